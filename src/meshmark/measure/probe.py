"""Options of an instrument as words of a command line, and their check by the native program itself."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark.describe import Description, description, find_comm, find_probe
from meshmark.errors import MeshmarkError, UsageError, quoted

NOT_IN_SPECS: Final = frozenset({"--resume", "--machine"})  # a file of the user's would be written to or read


def words(d: Description, options: Mapping[str, Any]) -> list[str]:
    """Command-line words of a spec's options; lists become comma lists, true becomes a bare flag."""
    line: list[str] = []
    for word, value in options.items():
        parameter = d.parameter(word)
        if parameter.option in NOT_IN_SPECS:
            raise UsageError(f"{d.name}.{word}: found in a specification; the run itself sets it")
        if parameter.kind == "flag":
            if not isinstance(value, bool):
                raise UsageError(f"{d.name}.{word}: found '{quoted(value)}', allowed are true and false")
            line += [parameter.option] if value else []
        elif isinstance(value, bool) or not isinstance(value, str | int | float | list):
            raise UsageError(f"{d.name}.{word}: found '{quoted(value)}', a text, a number or a list is needed")
        else:
            try:
                line += [parameter.option, _text(value)]
            except ValueError as why:  # an integer of thousands of digits
                raise UsageError(f"{d.name}.{word}: found {quoted(value)}") from why
    return line


def check(instrument: str, line: Sequence[str]) -> None:
    """Lets the probe read a command line without measuring; UsageError names the field, found and allowed."""
    program = find_comm() if description(instrument).ranks else find_probe()
    try:
        done = subprocess.run(
            [program, instrument, "--check", *line],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as why:
        raise MeshmarkError(f"the probe does not run: {why}", hint="make setup") from why
    if done.returncode == UsageError.status:
        said = done.stderr.strip().splitlines() or ["a parameter is wrong"]
        raise UsageError(f"{instrument}: {said[-1].partition('error: ')[2] or said[-1]}")


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
