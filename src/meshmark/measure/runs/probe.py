"""Converts options of a specification to command-line arguments, and plans runs with the native program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from meshmark import process
from meshmark.describe import Description, find_probe, find_working_comm
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
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


class RunPlan(NamedTuple):
    """What a run of an instrument with certain arguments needs (docs/reference/protocol.md)."""

    budget_s: float  # `--budget`, or the default, which grows with the points and with the size of `memory`
    memory_scale: float = 1.0  # at least 1: by which budgets grow because this machine has large caches
    relative_points: float = 1.0  # points over those with default arguments, as far as lists of values determine it
    memory_bytes: int | None = None  # what the footprint `memory` means here; None if no argument has this value


def planned(d: Description, argv: Sequence[str]) -> RunPlan:
    """Check the arguments of an instrument, and plan its run, with the native program and without measuring.

    Raises:
        UsageError: An argument is invalid; the message names the option, what was found and what is allowed.
        AbsentError: The instrument is an application that is not installed.
        MeshmarkError: The program does not run, or its answer is not a plan.
    """
    try:
        return _planned(find_working_comm() if d.ranks else find_probe(), d.name, tuple(argv))
    except _RefusedError as error:
        field, _, reason = str(error).partition(": ")
        option = next((p.option for p in d.parameters if p.name == field), field)
        raise UsageError(f"{d.name}: {option}: {reason}") from error


class _RefusedError(Exception):
    """The native program refused an argument; the text is its message."""


@lru_cache(maxsize=1024)
def _planned(program: Path, instrument: str, argv: tuple[str, ...]) -> RunPlan:
    try:
        completed = process.run_text([program, instrument, "--plan", *argv], timeout_s=60)
    except OSError as error:
        raise start_error(program, error) from error
    except subprocess.SubprocessError as error:
        raise MeshmarkError(f"cannot run {program.name}: {error}", hint=remedy()) from error
    if completed.returncode == UsageError.status:
        lines = completed.stderr.strip().splitlines() or ["a parameter is invalid"]
        raise _RefusedError(lines[-1].partition("error: ")[2] or lines[-1])
    if completed.returncode == AbsentError.status:
        raise AbsentError(completed.stderr.partition("absent: ")[2].partition("\n")[0])
    try:
        answer = json.loads(completed.stdout)
        plan = RunPlan(**{name: answer[name] for name in RunPlan._fields if name in answer})
    except (ValueError, TypeError) as error:
        raise MeshmarkError(f"{program.name} {instrument} --plan did not print a plan", hint=remedy()) from error
    return plan


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
