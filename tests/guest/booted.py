"""Runs a script in a guest: a plan goes in, answers come out. Both sides import this module."""

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
    """Return the answers of a script in a guest, or why there is no guest."""
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
    """Return parameters: every test run boots the first machine, only `make check-all` boots the others."""
    import pytest  # not available in the guest

    first, *others = machines
    return [first, *(pytest.param(m, marks=pytest.mark.slow) for m in others)]


def answer(gather: Callable[[dict[str, Any], dict[str, Any]], None], answers: dict[str, Any]) -> None:
    """In the guest, call `gather(plan, answers)`; an exception becomes an answer, too, which the host shows."""
    try:
        gather(json.loads(Path(sys.argv[1]).read_text()), answers)
    except Exception:
        answers["failed"] = traceback.format_exc()
    Path(sys.argv[2]).write_text(json.dumps(answers))
