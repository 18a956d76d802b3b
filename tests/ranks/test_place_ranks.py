"""Ranks of `mpirun` run at the places that `meshmark-place run` gives them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from support.placer import CPUS, Place, placed, two_cpus


@pytest.fixture
def place() -> Iterator[Place]:
    with placed() as process:
        yield process


@two_cpus
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_ranks_of_mpirun(place: Place) -> None:
    env = place.env | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    words = ["--bind", f"list={CPUS[1]},{CPUS[0]}", "--slots", "threads", "-n", "2"]
    show = 'echo "$OMPI_COMM_WORLD_RANK$PMI_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)"; sleep 0.3'
    launcher = [
        "mpirun",
        "-np",
        "2",
        "--oversubscribe",
        "--bind-to",
        "none",
        *place.words(*words, "--each", "--", "sh", "-c", show),
    ]
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version:
        launcher = ["mpirun", "-n", "2", *launcher[6:]]
    form = "mpich" if "Open MPI" not in version else "openmpi5" if ") 5" in version else "openmpi"
    for command in (launcher, place.words(*words, "--launcher", form, "--", "sh", "-c", show)):
        completed = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
        assert sorted(completed.stdout.split("\n"))[-2:] == [f"0 {CPUS[1]}", f"1 {CPUS[0]}"], (command, completed)
