"""Reduces the number of files of a store.

It joins the steps of runs whose process ended before `Store.finish`, and all runs of a machine in a month.

`parquet.join` writes a new file before it removes the old files, so if the writer is killed in between, the store still
has each of its results exactly once.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.store.columns import schema_problem
from meshmark.store.files import leftovers, unlink, write_file
from meshmark.store.layout import INDEX, StoreFile, read_index, result_files
from meshmark.store.parquet import COMPACTED, UNIQUE, join, read, read_problem, remove_replaced
from meshmark.store.query import replaced_steps, runs_in
from meshmark.store.store import Store

QUIET_S: Final = 3600.0  # a run whose last step is newer may still be in progress


@dataclass(frozen=True, slots=True)
class StoreCompaction:
    """Number of files that a compaction replaced, kept or removed.

    Attributes:
        finished: Files of steps that were joined into a finished run.
        joined: Files of runs that were joined by month and machine.
        unreadable: Files that were left as they are, because they cannot be read.
        leftovers: Temporary files of killed writers, which were removed.
    """

    finished: int
    joined: int
    unreadable: int
    leftovers: int


def compact(store: Store, before: str) -> StoreCompaction:
    """Compact a store.

    Args:
        before: ISO date; runs filed under this date or later keep files of their own.

    Raises:
        MeshmarkError: A file cannot be written or removed.
    """
    with store.exclusively():
        finished = _finish(store)
        joined_count, unreadable = _join(store, before)
        abandoned = leftovers(store.folder)
        unlink(abandoned)
    return StoreCompaction(finished, joined_count, unreadable, len(abandoned))


def _finish(store: Store) -> int:
    """Finish the runs to which no process has added results for `QUIET_S`; return the number of joined files."""
    steps: dict[str, list[StoreFile]] = {}
    for file in result_files(store.folder):
        if file.step and UNIQUE not in file.step and not schema_problem(file.path) and not read_problem(file.path):
            steps.setdefault(file.run, []).append(file)
    now_s, count = time.time(), 0
    for step_files in steps.values():
        if all(now_s - file.path.stat().st_mtime > QUIET_S for file in step_files):
            store.finish(read(step_files[0].path, ["run"])["run"][0].as_py())
            count += len(step_files)
    return count


def _join(store: Store, before: str) -> tuple[int, int]:
    """Join the finished runs of each month and machine; return the number of joined and of unreadable files."""
    months: dict[tuple[str, str], list[StoreFile]] = {}
    open_runs = {(file.path.parent.name, file.run) for file in result_files(store.folder) if file.step}
    for file in result_files(store.folder):
        date, machine = file.path.parent.parent.name.removeprefix("date="), file.path.parent.name
        if file.step or date >= before or date == "unknown" or (file.run and (machine, file.run) in open_runs):
            continue
        months.setdefault((f"{date[:7]}-01", machine), []).append(file)
    joined_count = unreadable = 0
    for (date, machine), files in months.items():
        folder = store.folder / f"date={date}" / machine
        remove_replaced(folder)
        readable = [file for file in files if not schema_problem(file.path) and not read_problem(file.path)]
        unreadable += len(files) - len(readable)
        if len(readable) < 2:
            continue
        target = folder / f"{COMPACTED}{secrets.token_hex(6)}.parquet"
        join([file.path for file in readable], target, ["run"], replaced_steps(readable))
        joined_count += len(readable)
    for date in sorted({date for date, _ in months}):
        write_index(store.folder / f"date={date}")
    return joined_count, unreadable


def write_index(dated: Path) -> None:
    """Write the index of the compacted files of a date, which `layout.read_index` reads.

    Raises:
        MeshmarkError: The index cannot be written.
    """
    old_index = read_index(dated)
    names = sorted(path for path in dated.glob(f"machine=*/{COMPACTED}*.parquet"))
    index = {p.name: old_index.get(p.name) or runs_in(p) for p in names}
    if index != old_index:
        write_file(dated / INDEX, json.dumps(index).encode() + b"\n", private=True)
