"""Converts options of a specification to command-line arguments, and checks them with the native program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

from meshmark import process
from meshmark.describe import Description, description, find_probe, find_working_comm
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.native import remedy, start_error

NOT_IN_SPECS: Final = frozenset({"--resume", "--machine"})  # set by the run; --resume would access any file


def arguments(d: Description, options: Mapping[str, Any]) -> list[str]:
    """Return the command-line arguments for the options of a specification.

    Lists become comma-separated lists, and true becomes a flag.

    Raises:
        UsageError: An option is unknown, or its value has the wrong type.
    """
    argv: list[str] = []
    for key, value in options.items():
        parameter = d.parameter(key)
        if parameter.option in NOT_IN_SPECS:
            raise UsageError(f"{d.name}.{key}: not allowed in a specification; the run sets it")
        if parameter.kind == "flag":
            if not isinstance(value, bool):
                raise UsageError(f"{d.name}.{key}: found '{quoted(value)}'; allowed: true and false")
            argv += [parameter.option] if value else []
        elif isinstance(value, bool) or not isinstance(value, str | int | float | list):
            raise UsageError(f"{d.name}.{key}: found '{quoted(value)}', a string, a number or a list is required")
        else:
            try:
                argv += [parameter.option, _text(value)]
            except ValueError as error:  # an integer of thousands of digits
                raise UsageError(f"{d.name}.{key}: found {quoted(value)}") from error
    return argv


def check(instrument: str, argv: Sequence[str]) -> Mapping[str, Any]:
    """Check the arguments of an instrument with the native program, without measuring.

    Returns:
        An object with `memory_bytes`, the size that `memory` means on this host, if an argument or a default has this
        value; otherwise an empty object.

    Raises:
        UsageError: An argument is invalid; the message names the field, what was found and what is allowed.
        MeshmarkError: The program does not run.
    """
    program = find_working_comm() if description(instrument).ranks else find_probe()
    try:
        completed = process.run_text([program, instrument, "--check", *argv], timeout_s=60)
    except OSError as error:
        raise start_error(program, error) from error
    except subprocess.SubprocessError as error:
        raise MeshmarkError(f"cannot run {program.name}: {error}", hint=remedy()) from error
    if completed.returncode == UsageError.status:
        lines = completed.stderr.strip().splitlines() or ["a parameter is invalid"]
        raise UsageError(f"{instrument}: {lines[-1].partition('error: ')[2] or lines[-1]}")
    try:
        answer = json.loads(completed.stdout or "{}")
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
