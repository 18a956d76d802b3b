# Links programs that run on other distributions, if MM_GLIBC is set: a version of glibc, or "static". g++ compiles them as
# in a clone on the same machine, so that both measure the same. hwloc, zlib and the libraries of g++
# are static. zig links programs for a version of glibc, because it has the symbols of every version.
# docs/decisions/0023-wheel.md has the reasons.
find_library(mm_static_hwloc libhwloc.a REQUIRED)
find_library(mm_static_zlib libz.a REQUIRED)
# FindOpenMP links the shared library otherwise.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a OUTPUT_VARIABLE path
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(OpenMP_gomp_LIBRARY ${path} CACHE FILEPATH "" FORCE)

set(mm_linked_by_compiler ${CMAKE_CXX_LINK_EXECUTABLE})
if(MM_GLIBC STREQUAL "static")
  string(REPLACE "<LINK_LIBRARIES>" "-static -s -Wl,--gc-sections,--start-group <LINK_LIBRARIES> -Wl,--end-group"
         CMAKE_CXX_LINK_EXECUTABLE "${CMAKE_CXX_LINK_EXECUTABLE}")
else()
  set(MM_ZIG "" CACHE FILEPATH "the program zig of the Python package ziglang, which links programs for an old glibc")
  if(NOT EXISTS "${MM_ZIG}")
    message(FATAL_ERROR "MM_ZIG: found '${MM_ZIG}', the path of zig is required with MM_GLIBC=${MM_GLIBC}")
  endif()
  set(mm_runtime "")
  foreach(library libstdc++.a libgcc_eh.a libgcc.a)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${library} OUTPUT_VARIABLE path
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(APPEND mm_runtime " ${path}")
  endforeach()
  set(mm_zig "${CMAKE_COMMAND} -E env ZIG_GLOBAL_CACHE_DIR=${PROJECT_BINARY_DIR}/zig ${MM_ZIG} cc")
  string(APPEND mm_zig " -target ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu.${MM_GLIBC} -s -Wl,--gc-sections <LINK_FLAGS> <OBJECTS>")
  set(mm_libraries "-Wl,--start-group <LINK_LIBRARIES> -Wl,--end-group ${mm_runtime} -lm -ldl -lpthread -lrt")
  # Python loads the library beside others that have a libstdc++ of their own.
  set(mm_exports "-Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map")
  set(CMAKE_CXX_LINK_EXECUTABLE "${mm_zig} -o <TARGET> ${mm_libraries}")
  set(CMAKE_CXX_CREATE_SHARED_LIBRARY
      "${mm_zig} -shared ${mm_exports} <SONAME_FLAG><TARGET_SONAME> -o <TARGET> ${mm_libraries}")
endif()
# The linker removes what a program does not call, a tenth of it.
add_compile_options(-ffunction-sections -fdata-sections)
# Two builds in different folders give the same programs.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=build)

# What the wheel contains of others, for its metadata.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(MM_ZLIB REQUIRED zlib)
pkg_check_modules(TOMLPLUSPLUS REQUIRED tomlplusplus)
file(READ web/package.json page)
foreach(package uplot vega vega-lite vega-embed @expo-google-fonts/arimo)
  get_filename_component(name ${package} NAME)
  string(MAKE_C_IDENTIFIER mm_${name}_version variable)
  string(JSON ${variable} GET "${page}" dependencies ${package})
endforeach()
configure_file(cmake/sbom.cdx.json.in ${PROJECT_BINARY_DIR}/meshmark.cdx.json @ONLY)
if(SKBUILD)
  install(FILES ${PROJECT_BINARY_DIR}/meshmark.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()
