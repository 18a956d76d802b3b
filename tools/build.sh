#!/usr/bin/env bash
# build.sh PRESET: configures (once, or when CMake asks for it) and builds build/PRESET.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
jobs=${JOBS:-$(nproc)}
mkdir -p "build"
if command -v flock >/dev/null 2>&1; then  # two builds of one folder at once would spoil each other
  exec 9>"build/$preset.lock"
  flock 9
fi
# A build folder of another checkout, or one whose configuration failed, is of no use.
if ! grep -qsx "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "build/$preset/CMakeCache.txt" \
  || { [ ! -f "build/$preset/build.ninja" ] && [ ! -f "build/$preset/Makefile" ]; }; then
  rm -rf "build/$preset"
  generator=()
  if command -v ninja >/dev/null 2>&1; then generator=(-G Ninja); fi
  cmake --preset "$preset" "${generator[@]}" -DCMAKE_MESSAGE_LOG_LEVEL=WARNING >/dev/null
fi
mkdir -p "build/$preset"
log=build/$preset/build.log
cmake --build "build/$preset" -j "$jobs" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
