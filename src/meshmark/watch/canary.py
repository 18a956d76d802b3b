"""Measures and stores the canary's calibration: its load latency at different rates of memory traffic."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.errors import AbsentError, MeshmarkError
from meshmark.machine.facts import host_id
from meshmark.native import find_native
from meshmark.store.files import read_json, write_file
from meshmark.values.paths import data_home

_HINT: Final = "hint: "  # begins the line of standard error with a remedy


def calibration_file(machine: str) -> Path:
    """Return the path of a machine's calibration."""
    return data_home() / "canary" / f"{machine.replace('/', '_')}.json"


def shows_traffic(calibration: Path) -> bool:
    """Return whether a stored calibration shows traffic on some node."""
    try:
        return any(read_json(calibration).get("tells", {}).values())
    except (MeshmarkError, AttributeError):
        return False  # the sampler reports the error


def exit_reason(stderr: str, status: int) -> str:
    """Return why a sampler ended: its message on standard error, or its exit status."""
    lines = [line for line in stderr.strip().splitlines() if not line.startswith(_HINT)]
    message = lines[-1].removeprefix("meshmark-watch: ") if lines else f"the sampler ended with status {status}"
    return message.removeprefix("error: ").removeprefix("absent: ")


def run_sampler(*words: str) -> str:
    """Run the sampler with options that let it measure and exit, and return its output.

    Raises:
        AbsentError: The machine lacks what the options require.
        MeshmarkError: The sampler failed; the message comes from the sampler.
    """
    completed = process.run_text([str(find_native("meshmark-watch", "MESHMARK_WATCH")), *words])
    if completed.returncode == 0:
        return completed.stdout
    hints = [line.removeprefix(_HINT) for line in completed.stderr.splitlines() if line.startswith(_HINT)]
    error = AbsentError if completed.returncode == AbsentError.status else MeshmarkError
    raise error(exit_reason(completed.stderr, completed.returncode), *hints[:1])


def calibrate(seconds: float) -> tuple[Path, dict[str, Any]]:
    """Measure and store the canary's latency at increasing traffic; uses all CPUs.

    Returns:
        The file and its content: `nodes` maps each node number to a list of [B/s, low, median, high of the latency in
        s]; `tells` maps each node number to whether the latency depends on traffic.

    Raises:
        AbsentError: there is no CPU to generate traffic, or no instruction to flush a line.
        MeshmarkError: the sampler failed; the message comes from the sampler.
    """
    curve = json.loads(run_sampler("--calibrate", f"{seconds:g}"))
    content: dict[str, Any] = {**curve, "when": datetime.now(UTC).isoformat(timespec="seconds")}
    path = calibration_file(host_id())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())
    return path, content
