"""Time that the hypervisor gives to another guest: a guest sees it only in /proc/stat, which is replaced here."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from disturb import repeating
from namespace import NAMESPACE

from support.paths import ROOT

PROBE = Path(os.environ.get("MESHMARK_PROBE", ROOT / "build" / "release" / "bin" / "meshmark-probe"))
TICKS = os.sysconf("SC_CLK_TCK")
STEAL = 8  # index of the field of a line of /proc/stat, after the name of the CPU


def with_steal(lines: list[str], stolen_s: float) -> str:
    """Return the lines with this steal time for the CPUs, and other lines unchanged. Lines keep their length."""
    changed = []
    for line in lines:
        fields = line.split()
        if fields[0].startswith("cpu"):
            fields[STEAL] = f"{round(stolen_s * TICKS):012d}"
        changed.append(" ".join(fields))
    return "\n".join(changed) + "\n"


@contextlib.contextmanager
def stealing(path: Path, share: float) -> Iterator[None]:
    """Bind-mount a copy of /proc/stat in which a share of the time goes to another guest."""
    lines = Path("/proc/stat").read_text().splitlines()
    begun_s = time.monotonic()
    path.write_text(with_steal(lines, 0))
    with path.open("r+b", buffering=0) as file:

        def write() -> None:
            # Before all others, or the time stands still while this thread waits for a CPU.
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
            os.pwrite(file.fileno(), with_steal(lines, share * (time.monotonic() - begun_s)).encode(), 0)

        with repeating(write, every_s=0.002):
            yield


def chase(stat: Path) -> list[dict[str, Any]]:
    probe = [
        str(PROBE),
        "latency",
        "--footprint",
        "16KiB",
        "--cpus",
        str(min(os.sched_getaffinity(0))),
        "--budget",
        "1s",
        "--interval",
        "0.01",
    ]
    completed = subprocess.run(
        [*NAMESPACE, "sh", "-c", 'mount --bind "$0" /proc/stat && exec "$@"', str(stat), *probe],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "mount: " in completed.stderr or "unshare: " in completed.stderr:
        pytest.skip(f"no namespace of file systems here: {completed.stderr.strip()}")
    assert completed.returncode == 0, completed.stderr
    return [r for r in map(json.loads, completed.stdout.splitlines()) if r.get("type") == "result"]


@pytest.mark.parametrize(("share", "flagged"), [(0.0, False), (0.002, False), (0.3, True), (0.9, True)])
def test_time_of_another_guest_is_a_flag(tmp_path: Path, share: float, flagged: bool) -> None:
    with stealing(tmp_path / "stat", share):
        results = chase(tmp_path / "stat")
    assert results
    for r in results:
        assert ("stolen" in r["flags"]) == flagged, (r["flags"], r["conditions"]["steal_share"])
        assert (r["conditions"]["steal_share"] > 0.02) == flagged
