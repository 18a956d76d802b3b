"""The canary's calibration: how long its loads take at which traffic, measured once on each machine."""

from __future__ import annotations

import json
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.native import find_native
from meshmark.store.files import read_json, write_file
from meshmark.values.paths import data_home


def calibration_file(machine: str) -> Path:
    """Where the calibration of a machine is kept."""
    return data_home() / "canary" / f"{machine.replace('/', '_')}.json"


def tells(calibration: Path) -> bool:
    """Whether a kept calibration shows traffic on some node; one of a version that did not say it may."""
    try:
        return any(read_json(calibration).get("tells", {"all": True}).values())
    except (MeshmarkError, AttributeError):
        return False  # the sampler says what is wrong with it


def last_words(talk: str, status: int) -> str:
    """Why a sampler ended, by what it wrote on standard error."""
    said = talk.strip().splitlines()
    return said[-1].removeprefix("meshmark-watch: error: ") if said else f"the sampler ended with status {status}"


def calibrate(seconds: float) -> tuple[Path, dict[str, Any]]:
    """Measures and keeps how the canary's latency grows with traffic; all CPUs are busy meanwhile.

    Returns:
        The file, and what is in it: `nodes`, by number a list of [B/s, low, median, high of the latency in s], and
        `tells`, by number whether traffic shows in that latency.

    Raises:
        AbsentError: this machine has no CPU to make the traffic, or no way to flush a line.
        MeshmarkError: the sampler failed; the message is its own.
    """
    command = [str(find_native("meshmark-watch", "MESHMARK_WATCH")), "--calibrate", f"{seconds:g}"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
    said = last_words(done.stderr, done.returncode)
    if done.returncode == 77:
        raise AbsentError(said)
    if done.returncode != 0:
        raise MeshmarkError(said)
    found: dict[str, Any] = {**json.loads(done.stdout), "when": datetime.now(UTC).isoformat(timespec="seconds")}
    path = calibration_file(socket.gethostname())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, (json.dumps(found, indent=1) + "\n").encode())
    return path, found
