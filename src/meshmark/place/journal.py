"""Plans, and journals of runs, one line for each: what is in one counts, and survives the end of the process."""

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
from meshmark.store.lines import cut_torn_end, whole_lines

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

BUDGET: Final = "the budget ended"  # why no more runs followed, or one was ended

Run = TypeVar("Run")
Plan = TypeVar("Plan")


def save_plan(path: Path, plan: DataclassInstance) -> None:
    """Write what was asked for."""
    write_file(path, json.dumps(asdict(plan), indent=1).encode() + b"\n", private=True)


def load_plan(path: Path, of: Callable[..., Plan], what: str, hint: str = "") -> Plan:
    """What `save_plan` wrote.

    Args:
        of: Makes a plan of its fields.
        what: That is planned.

    Raises:
        UsageError: There is none.
        MeshmarkError: It cannot be read.
    """
    if not path.exists():
        raise UsageError(f"--resume: found no {path.name} in {path.parent}", hint)
    try:
        return of(**read_json(path))
    except (UsageError, TypeError) as why:  # Meshmark wrote the file, so this is not a usage error
        raise MeshmarkError(f"{path}: not a plan of {what}: {why}") from why


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that appends a line to a journal, and returns when it is on the disk."""
    with open_private(path, "ab", 0) as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

        yield write


def runs_in(path: Path, run_of: Callable[[Mapping[str, Any]], Run]) -> Iterator[Run]:
    """Runs in a journal. An incomplete last line never counted and is removed.

    Args:
        run_of: Makes a run of a line; raises ValueError, TypeError or AttributeError if it is none.

    Raises:
        MeshmarkError: A line is not a run.
    """
    cut_torn_end(path)
    for number, raw in enumerate(whole_lines(path), 1):
        try:
            found = run_of(json.loads(raw))
        except (ValueError, TypeError, AttributeError) as why:
            raise MeshmarkError(f"{path}: line {number} is not a run: {why}") from why
        yield found
