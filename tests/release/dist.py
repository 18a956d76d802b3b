"""The files that `make wheel bundle packages cross` builds."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from support.paths import ROOT

DIST = ROOT / "dist"
NATIVE = ("probe", "watch", "place", "load", "model", "node")


def built(pattern: str) -> Path:
    """Return the only file of `dist` with such a name."""
    paths = [*DIST.glob(pattern)]
    if len(paths) != 1:
        pytest.fail(f"found {len(paths)} files dist/{pattern}, one is required: make wheel bundle packages")
    return paths[0]


def wheel(arch: str = "x86_64") -> Path:
    return _for_arch(f"meshmark-*_{arch}.whl", arch)


def bundle(arch: str = "x86_64") -> Path:
    return _for_arch(f"meshmark-native-*-{arch}.tar.xz", arch)


def _for_arch(pattern: str, arch: str) -> Path:
    if arch != "x86_64" and not [*DIST.glob(pattern)]:
        pytest.skip(f"dist/{pattern} is missing: make cross, which needs the cross-compiler")
    return built(pattern)


def programs(folder: Path) -> list[Path]:
    """Return the programs and libraries below a folder."""
    return [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def unpack_wheel(arch: str, folder: Path) -> Path:
    """Unpack a wheel without installing it, and return the folder."""
    with zipfile.ZipFile(wheel(arch)) as archive:
        archive.extractall(folder)
    for path in programs(folder):
        path.chmod(0o755)
    return folder


def unpack_bundle(arch: str, folder: Path) -> Path:
    subprocess.run(["tar", "xf", bundle(arch), "-C", folder, "--strip-components=1"], check=True)
    return folder


def dynamic(path: Path) -> str:
    """Return the dynamic section and the dynamic symbols of a program."""
    return subprocess.run(["readelf", "-dW", "--dyn-syms", path], capture_output=True, text=True, check=True).stdout


def glibc_versions(text: str) -> set[tuple[int, int]]:
    """Return the versions of glibc whose symbols occur in the output of `dynamic`."""
    return {(int(a), int(b)) for a, b in re.findall(r"@GLIBC_(\d+)\.(\d+)", text)}
