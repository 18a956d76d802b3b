"""Root file systems of other distributions, and how a command runs in one.

They are made by debootstrap from the mirror that this system uses, below build/release-roots, and kept there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.paths import ROOT

ROOTS = ROOT / "build" / "release-roots"
_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
# The binds end with the namespace, so that nothing of this system is below a root afterwards.
_ENTER = """
mount --make-rprivate /
for folder in proc sys dev; do mkdir -p "$0/$folder"; done
mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"
"""


def mirror() -> str:
    """Return the address of the mirror that apt uses."""
    paths = [p for source in _SOURCES for p in ([Path(source)] if Path(source).is_file() else Path(source).glob("*"))]
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"(?:deb|URIs:)\s.*?(https?://\S+/debian)/?(?:\s|$)", line):
                return match[1]
    pytest.skip("apt has no mirror of Debian")


def debian(suite: str) -> Path:
    """Return the root of a Debian release with Python."""
    root = ROOTS / suite
    if not (root / "complete").exists():
        # The standard library of Debian's Python is divided; python3-venv brings what pip needs.
        _bootstrap(root, "--include=python3-venv", suite)
        (root / "complete").touch()
    return root


def debian_files(suite: str, arch: str) -> Path:
    """Return a folder with the files of a Debian release with Python for another architecture.

    Its packages are unpacked, but not configured: an emulator reads the loader, libraries and Python there.
    """
    root = ROOTS / f"{suite}-{arch}"
    if not (root / "complete").exists():
        _bootstrap(root, "--include=python3", f"--arch={arch}", "--foreign", suite)
        for package in sorted(root.glob("var/cache/apt/archives/*.deb")):  # debootstrap unpacks the essential ones only
            archive = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", package])
            # Files that are there already are kept, which tar reports by its status.
            subprocess.run(["tar", "-xkC", root], input=archive, stderr=subprocess.DEVNULL, check=False)
        (root / "complete").touch()
    return root


def _bootstrap(root: Path, *words: str) -> None:
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("debootstrap and root are needed")
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    argv = ["debootstrap", "--variant=minbase", *words, str(root), mirror()]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        pytest.skip(f"{' '.join(argv)}: {completed.stdout[-200:]}")


def run(root: Path, *argv: str, user: str = "", timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
    """Run a command in a root without a network. `user` is a number; "" is root."""
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *argv] if user else [*argv]
    return subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-ec", _ENTER, str(root), *words],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp/home", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
