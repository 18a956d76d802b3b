"""Journals of runs, one line for each: what is in one counts, and survives the end of the process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from meshmark.errors import MeshmarkError
from meshmark.store.lines import cut_torn_end, whole_lines

BUDGET: Final = "the budget ended"  # why no more runs followed, or one was ended

Run = TypeVar("Run")


@contextlib.contextmanager
def appending(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that appends a line to a journal, and returns when it is on the disk."""
    with path.open("ab", buffering=0) as file:

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
