#!/usr/bin/env bash
# build.sh PRESET [TARGET…]: builds build/PRESET (all by default), and configures it first where there is none or what is
# installed has changed. The native tests are a target of their own: mm_tests. APPS=yes builds the applications of
# native/apps, too, from then on; APPS=no ends that.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022  # other users of the machine may run what root builds
preset=$1
shift
jobs=${JOBS:-$(nproc)}
cxx=${CXX:-c++}
build=build/$preset
# With ccache installed, another checkout of the same code is built in a minute. It has to ignore where the checkout is.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# What the system offers of everything that the CMakeLists.txt look for, as text.
parts() {
  local tool module library
  for tool in cmake ninja make ccache "$cxx" "${FC:-gfortran}" mpicc mpiexec; do
    echo "$tool: $(command -v "$tool")"
  done
  echo "$cxx: $("$cxx" -dumpfullversion -dumpversion)"
  for module in hwloc ompi-c mpich caf-openmpi caf-mpich; do
    echo "$module: $(pkg-config --modversion "$module") $(pkg-config --cflags --libs "$module")"
  done
  for library in libhwloc.a libz.a; do
    echo "$library: $("$cxx" -print-file-name=$library)"
  done
  echo "applications: $(cat build/apps)"
  echo "oshmem: $("$cxx" -print-file-name=liboshmem.so)" "$(pkg-config --variable=libdir ompi-c)"/liboshmem.*
} 2>/dev/null

mkdir -p "build"
[ -z "${APPS:-}" ] || echo "$APPS" >build/apps
if command -v flock >/dev/null 2>&1; then  # two builds of one folder at once would spoil each other
  exec 9>"$build.lock"
  flock 9
fi
if ! grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$build/CMakeCache.txt"; then
  rm -rf "$build"  # of another checkout, or never configured
fi
found=$(parts)
if [ "$found" != "$(cat "$build/parts" 2>/dev/null)" ] || { [ ! -f "$build/build.ninja" ] && [ ! -f "$build/Makefile" ]; }; then
  [ ! -d "$build" ] || echo "build: what is installed has changed; configuring $build again" >&2
  # CMake remembers what it found and what it did not: without its memory, as with --fresh, it looks again. Objects stay.
  rm -rf "$build/CMakeCache.txt" "$build/CMakeFiles" "$build/parts"
  generator=()
  if command -v ninja >/dev/null 2>&1; then generator=(-G Ninja); fi
  if command -v ccache >/dev/null 2>&1; then generator+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  if grep -qsx yes build/apps; then generator+=(-DMM_APPS=ON); fi
  cmake --preset "$preset" "${generator[@]}" -DCMAKE_MESSAGE_LOG_LEVEL=WARNING >/dev/null
  echo "$found" >"$build/parts"
fi
log=$build/build.log
cmake --build "$build" -j "$jobs" ${1:+--target "$@"} >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
