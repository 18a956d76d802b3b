"""Decides whether a run of an application computed the right result."""

from __future__ import annotations

import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from meshmark import process
from meshmark.applications.application import VerifyTable, filled
from meshmark.errors import quoted
from meshmark.experiments.trial import last_line, printable

LIMIT_S: Final = 300.0  # time limit of the command
OUTPUT_BYTES: Final = 1 << 30  # maximum size of a file that the command writes
_TAIL_BYTES: Final = 1 << 16


def verified(table: VerifyTable, text: str, folder: Path, values: Mapping[str, str]) -> str:
    """Return why a run is wrong; "" if it is right.

    Args:
        table: What the application file says about correct output.
        text: Output of the run.
        folder: Folder in which the run took place.
        values: Values of placeholders.
    """
    if reason := by_pattern(table, text):
        return reason
    return _by_command(table, folder, values) if table.command else ""


def by_pattern(table: VerifyTable, text: str) -> str:
    """Return why the output of a run is wrong; "" if it is right or there is no pattern."""
    if not table.pattern:
        return ""
    matches = list(re.finditer(table.pattern, text, re.M))
    if not matches:
        return "verify.pattern: found no match in the output"
    if table.expected is None:
        return ""
    for match in matches:
        word = match.group(match.re.groups and 1)
        try:
            number = float(word)
        except (TypeError, ValueError):
            return f"verify.pattern: found '{printable(str(word))}', a number is required"
        tolerance = max(table.tolerance * abs(table.expected), table.absolute)
        if not abs(number - table.expected) <= tolerance:
            return f"verify.expected: found {number!r}; expected {table.expected!r} ± {tolerance:.3g}"
    return ""


def _by_command(table: VerifyTable, folder: Path, values: Mapping[str, str]) -> str:
    assert table.command is not None
    words = [filled(word, values) for word in table.command]
    # The output goes to a file: a process that the command leaves behind could keep a pipe open, and it may be large.
    with tempfile.TemporaryFile() as out:
        try:
            child = process.start(
                words,
                _preparation(),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        except OSError as error:
            return not_run(words[0], str(error.strerror))
        try:
            status = child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return by_status(None, "")
        finally:
            process.end([child])  # together with processes that it left running
        if status == 0:
            return ""
        out.seek(max(0, out.seek(0, 2) - _TAIL_BYTES))
        return by_status(status, out.read().decode(errors="replace"))


def not_run(program: str, reason: str) -> str:
    """Return why the command has no verdict."""
    return f"verify.command: cannot run {quoted(program)}: {reason}"


def by_status(status: int | None, text: str) -> str:
    """Return why a run is wrong according to its command; "" if it is right.

    Args:
        status: Exit status of the command; negative after a signal, None if the command exceeded its time limit.
        text: End of the output of the command.
    """
    if status is None:
        return f"verify.command: took longer than {LIMIT_S:g} s"
    if status == 0:
        return ""
    exit_text = process.status_text(status)
    return f"verify.command: ended with {exit_text}: {printable(last_line(text.splitlines()))}"


def _preparation() -> process.Preparation:
    limits = {resource.RLIMIT_FSIZE: process.up_to_hard_limit(resource.RLIMIT_FSIZE, OUTPUT_BYTES)}
    return process.Preparation(at_parent_death=signal.SIGTERM, limits=limits)
