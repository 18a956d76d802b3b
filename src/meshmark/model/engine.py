"""Runs the simulator, which reads one request and writes one answer per run (docs/reference/model-protocol.md)."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshmark import process
from meshmark.errors import MeshmarkError, UsageError
from meshmark.model.machine import MachineFile, MachineFileError
from meshmark.native import find_native

Answer = Mapping[str, Any]


def find_engine() -> Path:
    """Find the simulator in `MESHMARK_MODEL`, the installed package, or the build folder of this checkout.

    Raises:
        MeshmarkError: It is missing or not executable.
    """
    return find_native("meshmark-model", "MESHMARK_MODEL")


def ask(
    machine: MachineFile,
    runs: Sequence[Mapping[str, Any]],
    *,
    threads: int | None = None,
    on_line: Callable[[Answer], None] | None = None,
) -> list[Answer]:
    """Simulate all runs on one machine and return the answers in the order of the runs.

    Args:
        runs: Runs as in the protocol of the simulator.
        threads: Concurrent simulations; None: one per available CPU. The answers do not depend on it.
        on_line: Called with each output line as it arrives, including frames.

    Raises:
        MachineFileError: The machine is invalid; the message names the file and the key.
        MeshmarkError: The simulation failed. After a deadlock, the message lists which component waits for which.
    """
    if not runs:
        return []
    count = threads or len(os.sched_getaffinity(0))
    request = json.dumps({"machine": machine.resolved(), "runs": list(runs), "threads": count})
    answers: list[Answer] = []
    error: Answer | None = None
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as request_file,
        tempfile.TemporaryFile("w+", encoding="utf-8") as error_file,
    ):
        request_file.write(request + "\n")
        request_file.seek(0)
        with process.start(
            [find_engine()],
            stdin=request_file,
            stdout=subprocess.PIPE,
            stderr=error_file,
            encoding="utf-8",
        ) as child:
            assert child.stdout is not None
            try:
                for text in child.stdout:
                    line = json.loads(text)
                    if line.get("type") == "error":
                        error = line
                    elif line.get("type") == "answer":
                        answers.append(line)
                    if on_line is not None and error is None:
                        on_line(line)
            except BaseException:
                child.kill()
                raise
        error_file.seek(0)
        error_text = error_file.read().strip()
    if error is not None:
        message = f"{error['message']}" + (f"; allowed: {error['allowed']}" if error.get("allowed") else "")
        field = error.get("field")
        if field and str(field).startswith(("runs[", "request", "options")):
            raise UsageError(f"{field}: {message}")
        if isinstance(field, str) and field in machine.unknown:
            raise MachineFileError(
                f"{machine.path.name}: {field}: found unknown: {machine.unknown[field]}, a number is needed"
            )
        if field:
            raise MachineFileError(f"{machine.path.name}: {field}: {message}")
        raise MeshmarkError(f"{machine.name}: {message}")
    if child.returncode != 0 or len(answers) != len(runs):
        raise MeshmarkError(
            f"the simulator ended: {process.status_text(child.returncode)}"
            + (f": {error_text.splitlines()[-1]}" if error_text else "")
        )
    return answers


def median_of(values: Iterable[float]) -> float:
    """Return the median of at least one value."""
    ordered = sorted(values)
    n = len(ordered)
    return ordered[n // 2] if n % 2 else 0.5 * (ordered[n // 2 - 1] + ordered[n // 2])
