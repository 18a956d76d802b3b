"""The .deb and the .rpm, as `make packages` builds them."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

from release.dist import NATIVE, built
from release.roots import debian, run
from support.paths import ROOT

LISTED = {f"usr/bin/meshmark-{name}" for name in NATIVE} | {
    f"usr/share/man/man1/meshmark-{name}.1.gz" for name in (*NATIVE, "probe-latency", "place-run")
}

pytestmark = pytest.mark.timeout(600)


def deb() -> Path:
    return built("meshmark-native_*_amd64.deb")


def rpm() -> Path:
    return built("meshmark-native-*.x86_64.rpm")


@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie", "sid"])
def test_the_deb_is_installed_used_and_removed(suite: str) -> None:
    root = debian(suite)
    shutil.copy2(deb(), root / "tmp" / "native.deb")
    try:
        assert run(root, "dpkg", "--install", "/tmp/native.deb").returncode == 0
        completed = run(root, "meshmark-probe", "survey", "--help", user="1000")
        assert completed.returncode == 0 and "--budget <time>" in completed.stdout
        page = gzip.decompress((root / "usr/share/man/man1/meshmark-probe.1.gz").read_bytes()).decode()
        assert "meshmark\\-probe\\-latency" in page
    finally:
        removed = run(root, "dpkg", "--purge", "meshmark-native")
    assert removed.returncode == 0 and not [*root.glob("usr/bin/meshmark-*")]


def test_the_deb_lists_programs_pages_and_licences() -> None:
    names = subprocess.check_output(["dpkg-deb", "--fsys-tarfile", deb()])
    listing = subprocess.run(["tar", "t"], input=names, capture_output=True, check=True).stdout.decode()
    doc = "usr/share/doc/meshmark-native"
    wanted_files = LISTED | {f"{doc}/{name}" for name in ("copyright", "NOTICE.md", "changelog.gz", "README.md")}
    assert wanted_files <= {line.removeprefix("./") for line in listing.splitlines()}


def test_the_rpm_is_unpacked_below_any_folder(tmp_path: Path) -> None:
    """Absolute paths in its archive would overwrite files of the system that unpacks it."""
    if shutil.which("rpm2cpio") is None or shutil.which("cpio") is None:
        pytest.skip("rpm2cpio and cpio are needed")
    archive = subprocess.check_output(["rpm2cpio", rpm()])
    listing = subprocess.run(["cpio", "-t", "--quiet"], input=archive, capture_output=True, check=True).stdout.decode()
    assert all(line.startswith("./") for line in listing.splitlines())
    argv = ["cpio", "-id", "--quiet", "--no-absolute-filenames"]
    subprocess.run(argv, input=archive, cwd=tmp_path, check=True)
    licences = "usr/share/licenses/meshmark-native"
    paths = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert LISTED | {f"{licences}/LICENSE", f"{licences}/NOTICE.md"} <= paths
    completed = subprocess.run([tmp_path / "usr/bin/meshmark-probe", "--version"], capture_output=True, check=False)
    assert completed.returncode == 0


@pytest.mark.parametrize("linter", ["lintian", "rpmlint"])
def test_a_linter_has_no_findings(linter: str) -> None:
    if shutil.which(linter) is None:
        pytest.skip(f"{linter} is not installed")
    argv = {
        "lintian": ["lintian", "--allow-root", "--fail-on", "error,warning", deb()],
        "rpmlint": ["rpmlint", "-c", ROOT / "packaging" / "rpmlint.toml", rpm()],
    }[linter]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout
    assert linter == "lintian" or "0 errors, 0 warnings" in completed.stdout
