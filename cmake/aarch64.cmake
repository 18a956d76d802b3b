# Cross-compiles for aarch64 on Debian, with the packages g++-aarch64-linux-gnu, libhwloc-dev:arm64 and zlib1g-dev:arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# The host's folder comes last, for libraries that consist of headers.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64-static;-L;/usr/aarch64-linux-gnu")
