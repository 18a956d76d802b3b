"""One look into a guest: a plan goes in, answers come out. Imported on both sides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def gathered(
    machine: str, script: str, plan: Mapping[str, Any], limit_s: int, env: Mapping[str, str] | None = None
) -> dict[str, Any] | str:
    """What a script said in a guest, or why the guest could not be had."""
    with tempfile.TemporaryDirectory(prefix="meshmark-guest-", dir=ROOT / "build") as folder:
        share = Path(folder)
        (share / "plan.json").write_text(json.dumps(plan))
        command = [
            str(HERE / "numa-guest"),
            "-t",
            machine,
            "--timeout",
            str(limit_s),
            "--share",
            folder,
            "--",
            sys.executable,
            str(HERE / script),
            str(share / "plan.json"),
            str(share / "answers.json"),
        ]
        env = {**os.environ, **(env or {})}
        completed = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=limit_s + 60)
        if completed.returncode == 77:
            message = completed.stderr.strip().splitlines()
            return message[-1] if message else "numa-guest: SKIP without a word"
        assert completed.returncode == 0, completed.stderr[-3000:] + completed.stdout[-1000:]
        answers: dict[str, Any] = json.loads((share / "answers.json").read_text())
        return answers


def first_quick(machines: Iterable[str]) -> list[Any]:
    """Parameters: the first machine is booted by every run of the tests, the others only by `make check-all`."""
    import pytest  # not there inside

    first, *others = machines
    return [first, *(pytest.param(m, marks=pytest.mark.slow) for m in others)]


def answer(gather: Callable[[dict[str, Any], dict[str, Any]], None], answers: dict[str, Any]) -> None:
    """Inside: `gather(plan, answers)`; what it raised is an answer too, which the host's side shows."""
    try:
        gather(json.loads(Path(sys.argv[1]).read_text()), answers)
    except Exception:
        answers["failed"] = traceback.format_exc()
    Path(sys.argv[2]).write_text(json.dumps(answers))
