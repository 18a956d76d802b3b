"""Measures and stores the canary's calibration: its load latency at different rates of memory traffic."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.machine.facts import host_id
from meshmark.native import find_native
from meshmark.store.files import read_json, write_file
from meshmark.values.paths import data_home


def calibration_file(machine: str) -> Path:
    """The path of a machine's calibration."""
    return data_home() / "canary" / f"{machine.replace('/', '_')}.json"


def shows_traffic(calibration: Path) -> bool:
    """Whether a stored calibration shows traffic on some node."""
    try:
        return any(read_json(calibration).get("tells", {}).values())
    except (MeshmarkError, AttributeError):
        return False  # the sampler reports the error


def exit_reason(stderr: str, status: int) -> str:
    """Why a sampler ended: the last line of its standard error, or its exit status."""
    lines = stderr.strip().splitlines()
    return lines[-1].removeprefix("meshmark-watch: error: ") if lines else f"the sampler ended with status {status}"


def calibrate(seconds: float) -> tuple[Path, dict[str, Any]]:
    """Measures and stores the canary's latency at increasing traffic; uses all CPUs.

    Returns:
        The file and its content: `nodes`, by number a list of [B/s, low, median, high of the latency in s], and
        `tells`, by number whether the latency depends on traffic.

    Raises:
        AbsentError: there is no CPU to generate traffic, or no instruction to flush a line.
        MeshmarkError: the sampler failed; the message is the sampler's.
    """
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--calibrate", f"{seconds:g}"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    reason = exit_reason(done.stderr, done.returncode)
    if done.returncode == 77:
        raise AbsentError(reason)
    if done.returncode != 0:
        raise MeshmarkError(reason)
    found: dict[str, Any] = {**json.loads(done.stdout), "when": datetime.now(UTC).isoformat(timespec="seconds")}
    path = calibration_file(host_id())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(found, indent=1) + "\n").encode())
    return path, found
