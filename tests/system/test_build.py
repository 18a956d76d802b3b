"""The build follows what is installed, and the probe carries its version and every instrument."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from meshmark.describe import APPLICATIONS, find_comm
from support import applications_here
from support.cli import meshmark
from support.mpi_here import has_coarrays, has_openshmem, installed
from support.paths import ROOT

PROBE = ROOT / "build" / "release" / "bin" / "meshmark-probe"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_probe_carries_the_version_of_the_project() -> None:
    completed = subprocess.run([PROBE, "clock", "--budget", "0.2s"], capture_output=True, text=True, check=True)
    header = json.loads(completed.stdout.splitlines()[0])
    assert header["provenance"]["build"].partition("+")[0] == PROJECT["project"]["version"]
    assert "-march" not in header["provenance"]["compiler"]


# A probe that contains only what the linker finds referred to would lose instruments silently.
def test_every_instrument_source_is_in_the_probe() -> None:
    description = json.loads(subprocess.run([PROBE, "--describe"], capture_output=True, check=True).stdout)
    names = {instrument["name"] for instrument in description}
    folder = ROOT / "native" / "instruments"
    registered = re.findall(r"^mm_instrument\(([\w/]+)", (folder / "CMakeLists.txt").read_text(), re.M)
    assert registered and all((folder / f"{path}.cpp").exists() for path in registered)
    assert {Path(path).name for path in registered} == names


def packaged(folder: Path, name: str) -> Path:
    """Write a development package that pkg-config finds, without contents."""
    file = folder / f"{name}.pc"
    file.write_text(f"Name: {name}\nDescription: made up\nVersion: 3.1\nCflags: -DMADE_UP\n")
    return file


@pytest.mark.slow
def test_the_build_follows_what_is_installed(tmp_path: Path) -> None:
    """Uses this tree with packages that come and go; configuration is real, building is simulated."""
    for name in ("CMakeLists.txt", "CMakePresets.json", "cmake", "native", "pyproject.toml", "tests/native"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "build.sh", tmp_path / "tools")
    for folder in ("bin", "packages"):
        (tmp_path / folder).mkdir()
    script = tmp_path / "bin" / "cmake"
    script.write_text(f'#!/bin/sh\n[ "$1" != --build ] || exit 0\necho >>calls\nexec {shutil.which("cmake")} "$@"\n')
    script.chmod(0o755)
    packages = tmp_path / "packages"
    packaged(packages, "hwloc")
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PKG_CONFIG_LIBDIR": str(packages)}
    environment.pop("PKG_CONFIG_PATH", None)
    programs = tmp_path / "build" / "release" / "bin"

    def built() -> tuple[int, str]:
        """Return how often CMake has configured, and the last request to build the program of MPICH."""
        subprocess.run([tmp_path / "tools" / "build.sh", "release"], env=environment, check=True, timeout=300)
        commands = json.loads((tmp_path / "build/release/compile_commands.json").read_text())
        mpich_commands = {c["command"] for c in commands if "meshmark-comm-mpich.dir" in c["command"]}
        return len((tmp_path / "calls").read_text()), " ".join(mpich_commands)

    assert built() == (1, "")
    assert built() == (1, ""), "nothing changed"
    mpich = packaged(packages, "mpich")
    calls, commands = built()
    assert calls == 2 and "MADE_UP" in commands and "MM_CAF" not in commands
    coarrays = packaged(packages, "caf-mpich")
    calls, commands = built()
    assert calls == 3 and ("MM_CAF" in commands) == bool(shutil.which("gfortran"))
    programs.mkdir(exist_ok=True)
    for name in ("meshmark-comm", "meshmark-comm-mpich", "meshmark-probe"):
        (programs / name).touch()
    assert built()[0] == 3
    coarrays.unlink()
    calls, commands = built()
    assert calls == 4 and "MADE_UP" in commands and "MM_CAF" not in commands
    assert (programs / "meshmark-comm-mpich").exists()
    mpich.unlink()
    assert built() == (5, "")
    assert sorted(p.name for p in programs.iterdir()) == ["meshmark-comm", "meshmark-probe"]


def test_what_is_installed_is_built_and_nothing_else() -> None:
    """After `make run` on a machine without MPICH, `make test` had installed it and built nothing with it."""
    folder = find_comm().parent
    endings = ("", "-apps") if applications_here.BUILT else ("",)
    assert {p.name for p in folder.glob("meshmark-comm-*")} == {
        f"meshmark-comm-{kind}{ending}" for kind in installed() for ending in endings
    }
    for kind in installed():
        completed = subprocess.run(
            ["ldd", folder / f"meshmark-comm-{kind}"], capture_output=True, text=True, check=True
        )
        assert ("libcaf_" in completed.stdout) == has_coarrays(kind), f"{kind}: co-arrays"
        assert ("liboshmem" in completed.stdout) == (kind == "openmpi" and has_openshmem()), f"{kind}: OpenSHMEM"


# A package that only CMake looks for, and not build.sh, would be built only if CMake happens to run again.
def test_build_looks_at_all_that_cmake_looks_for() -> None:
    lists = "".join(p.read_text() for p in [ROOT / "CMakeLists.txt", *(ROOT / "native").glob("**/CMakeLists.txt")])
    script = (ROOT / "tools" / "build.sh").read_text()
    packages = re.findall(r"pkg_check_modules\(\w+ .*?([\w-]+)\)", lists) + re.findall(
        r"find_library\(\w+ (\w+)", lists
    )
    assert {"hwloc", "mpich", "oshmem"} <= set(packages)
    assert not [name for name in packages if not re.search(rf"(?<![\w-])(lib)?{name}(?![\w-])", script)]


@pytest.mark.parametrize("name", sorted(applications_here.NAMES))
def test_an_application_that_was_not_built_is_absent(name: str, tmp_path: Path) -> None:
    probe = shutil.copy2(PROBE, tmp_path)
    completed = subprocess.run([probe, name], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (77, "")
    assert completed.stderr == (
        f"meshmark-probe: absent: {name} is an application, which this installation does not include\n"
        "hint: make setup APPS=yes\n"
    )


@applications_here.needs_applications
def test_the_applications_are_described_as_the_package_says() -> None:
    known = {d["name"]: d for d in json.loads(APPLICATIONS.read_text())}
    names = {name for name, d in known.items() if d["ranks"] and not installed()}
    for program in [PROBE.with_name("meshmark-probe-apps"), *sorted(PROBE.parent.glob("meshmark-comm-*-apps"))]:
        text = subprocess.run([program, "--describe"], capture_output=True, check=True).stdout
        for description in json.loads(text):
            assert known[description["name"]] == description, "run tools/describe_applications.py"
            names.add(description["name"])
    assert names == known.keys(), "run tools/describe_applications.py"


def test_an_application_that_was_not_built_is_known_and_cannot_run(tmp_path: Path) -> None:
    probe = shutil.copy2(PROBE, tmp_path)
    home = {"MESHMARK_PROBE": str(probe), "XDG_DATA_HOME": str(tmp_path / "data")}
    reason = "fft is an application, which this installation does not include"
    measured = meshmark("measure", "fft", env=home)
    assert (measured.returncode, measured.stderr) == (77, f"meshmark: absent: {reason}\nhint: make setup APPS=yes\n")
    assert "example: meshmark measure fft" in meshmark("measure", "fft", "--help", env=home).stdout
    rows = [json.loads(line) for line in meshmark("list", "instruments", "--json", env=home).stdout.splitlines()]
    assert {row["instrument"] for row in rows if row["built"] == "no"} == applications_here.NAMES
    composite = meshmark("measure", "composite", "open13", env=home)
    assert composite.returncode == 77 and "lacks 6 of 13 members: " in composite.stderr and reason in composite.stderr
    survey = tmp_path / "survey.toml"
    steps = ['[[step]]\ninstrument = "fft"', '[[step]]\ninstrument = "clock"\noptions = { budget = "1s" }']
    survey.write_text("\n".join(['name = "s"\nsummary = "s"', *steps]))
    surveyed = meshmark("survey", "--spec", survey, env=home)
    assert surveyed.returncode == 0 and "1 absent or failed" in surveyed.stderr
    assert reason in Path(surveyed.stdout.split()[0]).read_text()  # the report
