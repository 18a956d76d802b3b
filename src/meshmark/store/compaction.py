"""Makes a store of many files one of few: joins the steps of runs that ended without being finished, and the runs of a
month of a machine.

Every step writes the new file before it removes the old ones, so a store that loses its writer in between has all its
results, each once.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.store.checks import read, read_problem, schema_problem
from meshmark.store.files import unlink, write_file
from meshmark.store.layout import COMPACTED, INDEX, Kept, kept, read_index
from meshmark.store.query import runs_in, with_runs
from meshmark.store.store import Store, leftovers

QUIET_S: Final = 3600.0  # a run whose last step is newer may still go on
_ROWS: Final = 20_000  # of a row group, so that a query of one run reads little


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done, in numbers of files that were replaced.

    Attributes:
        unreadable: Files that stay as they are.
        leftovers: Temporary files of killed writers, which were removed.
    """

    finished: int
    joined: int
    unreadable: int
    leftovers: int


def compact(store: Store, before: str) -> Compacted:
    """Compact a store.

    Args:
        before: ISO date; runs filed under this date or later stay files of their own.

    Raises:
        MeshmarkError: A file cannot be written or removed.
    """
    with store.exclusively():
        finished = _finish(store)
        joined, unreadable = _join(store, before)
        abandoned = leftovers(store)
        unlink(abandoned)
    return Compacted(finished, joined, unreadable, len(abandoned))


def _finish(store: Store) -> int:
    """Finish the runs that no process has added to for a while."""
    steps: dict[str, list[Kept]] = {}
    for one in kept(store.folder):
        if one.step and not schema_problem(one.path) and not read_problem(one.path):
            steps.setdefault(one.run, []).append(one)
    now, files = time.time(), 0
    for of in steps.values():
        if all(now - one.path.stat().st_mtime > QUIET_S for one in of):
            store.finish(read(of[0].path, ["run"])["run"][0].as_py())
            files += len(of)
    return files


def _join(store: Store, before: str) -> tuple[int, int]:
    """Join the finished runs of each month and machine."""
    months: dict[tuple[str, str], list[Path]] = {}
    open_runs = {(one.path.parent.name, one.run) for one in kept(store.folder) if one.step}
    for one in kept(store.folder):
        date, machine = one.path.parent.parent.name.removeprefix("date="), one.path.parent.name
        if one.step or date >= before or date == "unknown" or (one.run and (machine, one.run) in open_runs):
            continue
        months.setdefault((f"{date[:7]}-01", machine), []).append(one.path)
    files = bad = 0
    for (date, machine), paths in months.items():
        readable = [p for p in paths if not schema_problem(p) and not read_problem(p)]
        bad += len(paths) - len(readable)
        if len(readable) < 2:
            continue
        _write_joined(store, store.folder / f"date={date}" / machine, readable)
        unlink(readable)
        files += len(readable)
    for date in sorted({date for date, _ in months}):
        write_index(store.folder / f"date={date}")
    return files, bad


def write_index(dated: Path) -> None:
    """Write the runs of the compacted files of a date, which `layout.kept` reads.

    Raises:
        MeshmarkError: It cannot be written.
    """
    known = read_index(dated)
    names = sorted(path for path in dated.glob(f"machine=*/{COMPACTED}*.parquet"))
    found = {p.name: known.get(p.name) or runs_in(p) for p in names}
    if found != known:
        write_file(dated / INDEX, json.dumps(found).encode() + b"\n", private=True)


def _write_joined(store: Store, folder: Path, paths: Sequence[Path]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    own = [p for p in paths if not p.name.startswith(COMPACTED)]
    tables = [read(p) for p in own]
    names = {name for table in tables for name in table["run"].unique().to_pylist()}
    for path in paths:
        if path in own:
            continue
        table = read(path)
        if names & {*runs_in(path)}:  # a finished run replaces itself
            table = table.filter(pc.invert(pc.is_in(table["run"], value_set=pa.array(sorted(names)))))
        tables.append(table)
    joined = pa.concat_tables([t.replace_schema_metadata(None) for t in tables], promote_options="default")
    name = f"{COMPACTED}{secrets.token_hex(6)}.parquet"
    store.write(folder / name, with_runs(joined.sort_by("run")), row_group_size=_ROWS)
