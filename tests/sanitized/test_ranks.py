"""The programs of ranks with sanitizers, with each launcher: every instrument once, without a report.

`make sanitize` runs it. OpenSHMEM is left out: its heap overlaps the memory of the address sanitizer. The libraries
leak memory, so leaks are not reported.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from meshmark.measure.runs import launch
from support.mpi_here import needed
from support.paths import ROOT

PROGRAMS = ROOT / "build" / "asan" / "bin"
SHORT = ("--interval", "100", "--budget", "4s")
RUNS = {
    "halo": ("--protocol", "mpi,caf", "--words", "1,1000"),
    "pingpong": ("--bytes", "0,8,64KiB"),
    "swap": ("--pairs", "all", "--bytes", "8,64KiB"),
    "exchange": ("--bytes", "8,64KiB"),
    "barrier": (),
    "bcast": ("--bytes", "8,64KiB"),
    "reduce": ("--bytes", "8,64KiB"),
    "allreduce": ("--bytes", "8,64KiB"),
    "alltoall": ("--bytes", "8,64KiB"),
    "defects": (),
}
if (PROGRAMS / "meshmark-probe-apps").exists():
    RUNS |= {
        "npb": ("--class", "S"),
        "pop": ("--protocol", "mpi,caf"),
        "gyro": (),
        "swim": ("--protocol", "mpi,caf"),
        "anatomy": (),
    }


@pytest.fixture(params=["openmpi", "mpich"])
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> launch.Launcher:
    assert (PROGRAMS / "meshmark-comm").exists(), "not built: tools/build.sh asan"
    monkeypatch.setenv("MESHMARK_COMM", str(PROGRAMS))
    launch.launchers.cache_clear()
    return needed(request.param)


def test_every_instrument_has_a_run() -> None:
    names = set()
    for program in (PROGRAMS / "meshmark-comm", *PROGRAMS.glob("meshmark-comm-openmpi-apps")):
        completed = subprocess.run([program, "--describe"], capture_output=True, check=True, timeout=60)
        names |= {d["name"] for d in json.loads(completed.stdout)}
    assert names == set(RUNS)


@pytest.mark.parametrize("instrument", RUNS)
def test_nothing_is_complained_of(launcher: launch.Launcher, instrument: str) -> None:
    words = launch.launch_argv(launcher, 2, len(os.sched_getaffinity(0)))
    env = {**launch.environment(launcher.kind), "ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    completed = subprocess.run(
        [*words, instrument, *RUNS[instrument], *SHORT],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert "Sanitizer" not in completed.stderr and "runtime error" not in completed.stderr, completed.stderr[-5000:]
    assert completed.returncode == 0, completed.stderr[-3000:]
    lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]
    assert lines[-1]["type"] == "end" and any(line["type"] == "result" for line in lines)
