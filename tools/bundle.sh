#!/usr/bin/env bash
# bundle.sh [ARCH]: builds dist/meshmark-native-VERSION-ARCH.tar.xz, static programs that need no library and no Python.
# ARCH: that of this machine, or aarch64 by cross-compilation (cmake/aarch64.cmake).
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022
arch=${1:-$(uname -m)}
programs="meshmark-probe meshmark-watch meshmark-place meshmark-load meshmark-model meshmark-node"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
name=meshmark-native-$version-$arch
preset=static
[ "$arch" = "$(uname -m)" ] || preset=static-$arch
# shellcheck disable=SC2086
tools/build.sh $preset $programs
rm -rf "build/bundle/$name" dist/meshmark-native-*-"$arch".tar.xz
mkdir -p "build/bundle/$name" dist
for program in $programs; do cp "build/$preset/bin/$program" "build/bundle/$name/"; done
cp LICENSE NOTICE.md tools/bundle/README.md "build/bundle/$name/"
# The same content gives the same file.
tar --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner -C build/bundle -c "$name" |
  xz -9e >"dist/$name.tar.xz"
ls -l "dist/$name.tar.xz"
