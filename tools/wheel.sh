#!/usr/bin/env bash
# wheel.sh: builds dist/meshmark-VERSION-py3-none-manylinux_2_28_ARCH.whl, which is installed without a compiler and runs
# on every distribution with glibc 2.28 or newer. Two builds of a commit give the same file.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
glibc=2.28
tools=$PWD/build/wheel/tools out=$PWD/build/wheel/out
mkdir -p build/wheel dist
if ! cmp -s requirements/wheel.txt build/wheel/requirements.txt; then
  rm -rf "$tools"
  .venv/bin/uv pip install -q --python .venv/bin/python --target "$tools" --require-hashes -r requirements/wheel.txt >&2
  cp requirements/wheel.txt build/wheel/requirements.txt
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$out" dist/meshmark-*-py3-none-*_"$(uname -m)".whl
.venv/bin/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$out" \
  -C build-dir=build/wheel/native -C cmake.define.MM_GLIBC=$glibc -C cmake.define.MM_ZIG="$tools/ziglang/zig" . >&2
# It checks that the programs need no other library and no newer symbol, and names the wheel accordingly.
PYTHONPATH=$tools PATH=$tools/bin:$PATH .venv/bin/python -m auditwheel repair \
  --only-plat --plat "manylinux_${glibc/./_}_$(uname -m)" --wheel-dir dist "$out"/*.whl >&2
ls -l dist/*.whl
