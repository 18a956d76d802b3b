"""Reads and writes plans, and journals with one line per run. A run in a journal counts and survives the process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from meshmark.errors import MeshmarkError, UsageError
from meshmark.store.files import open_private, read_json, write_file
from meshmark.store.session import cut_torn_end, whole_lines

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUDGET: Final = "the budget ended"  # reason why no more runs followed, or why a run was ended

Run = TypeVar("Run")
Plan = TypeVar("Plan")


def save_plan(path: Path, plan: DataclassInstance) -> None:
    """Write a plan, which states the request."""
    write_file(path, json.dumps(asdict(plan), indent=1).encode() + b"\n", private=True)


def load_plan(path: Path, of: Callable[..., Plan], what: str, hint: str = "") -> Plan:
    """Return the plan that `save_plan` wrote.

    Args:
        of: Function that makes a plan from its fields.
        what: Kind of the plan, for errors.

    Raises:
        UsageError: The file does not exist.
        MeshmarkError: The plan cannot be read.
    """
    if not path.exists():
        raise UsageError(f"--resume: found no {path.name} in {path.parent}", hint)
    try:
        return of(**read_json(path))
    except (UsageError, TypeError) as error:  # Meshmark wrote the file, so this is not a usage error
        raise MeshmarkError(f"{path}: not a plan of {what}: {error}") from error


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Yield a function that appends a line to a journal and returns when the line is on the disk."""
    with open_private(path, "ab", 0) as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

        yield write


def runs_in(path: Path, run_of: Callable[[Mapping[str, Any]], Run]) -> Iterator[Run]:
    """Yield the runs in a journal. An incomplete last line never counted and is removed.

    Args:
        run_of: Function that makes a run from a line; it raises ValueError, TypeError or AttributeError if the line is
            not a run.

    Raises:
        MeshmarkError: A line is not a run.
    """
    cut_torn_end(path)
    for number, raw in enumerate(whole_lines(path), 1):
        try:
            run = run_of(json.loads(raw))
        except (ValueError, TypeError, AttributeError) as error:
            raise MeshmarkError(f"{path}: line {number} is not a run: {error}") from error
        yield run
