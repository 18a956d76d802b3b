"""Promises of the build: what is pinned, what is written into the tree, what the probe says of itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROBE = ROOT / "build" / "release" / "bin" / "meshmark-probe"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_pinned_by_name_and_version_only() -> None:
    lines = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?", line) for line in lines)
    pinned = {normal(line.partition("==")[0]) for line in lines}
    asked = PROJECT["project"]["dependencies"] + [
        word for extra in PROJECT["project"]["optional-dependencies"].values() for word in extra
    ]
    assert {normal(re.split(r"[<>=!~\[ ]", word)[0]) for word in asked} <= pinned


def test_the_probe_carries_the_version_of_the_project() -> None:
    if not PROBE.exists():
        pytest.skip("meshmark-probe is not built: make setup")
    done = subprocess.run([PROBE, "clock", "--budget", "0.2s"], capture_output=True, text=True, check=True)
    header = json.loads(done.stdout.splitlines()[0])
    assert header["provenance"]["build"].partition("+")[0] == PROJECT["project"]["version"]
    assert "-march" not in header["provenance"]["compiler"]


# A probe that keeps only what the linker finds referred to would lose instruments without a word.
def test_every_instrument_source_is_in_the_probe() -> None:
    if not PROBE.exists():
        pytest.skip("meshmark-probe is not built: make setup")
    described = json.loads(subprocess.run([PROBE, "--describe"], capture_output=True, check=True).stdout)
    names = {instrument["name"] for instrument in described}
    wired = re.findall(r"^mm_instrument\((\w+)", (ROOT / "native/instruments/CMakeLists.txt").read_text(), re.M)
    there = {name for name in wired if (ROOT / "native" / "instruments" / f"{name}.cpp").exists()}
    assert there <= names


def test_setup_says_what_to_install_where_it_may_not(tmp_path: Path) -> None:
    """With a PATH that lacks cmake and apt-get: one message for each of the three worlds, status 1."""
    (tmp_path / "python3").symlink_to(Path(sys.executable).resolve())
    for tool in (
        "bash",
        "c++",
        "cat",
        "grep",
        "sed",
        "tr",
        "sort",
        "dirname",
        "nproc",
        "mkdir",
        "id",
        "uname",
    ):
        found = shutil.which(tool)
        if found:
            (tmp_path / tool).symlink_to(found)
    done = subprocess.run(
        ["bash", str(ROOT / "tools" / "setup.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 1
    for line in ("apt-get install", "dnf install", "spack install"):
        assert re.search(rf"{line}.*\bcmake\b", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
