"""The rows of a store's files as SQL, and the answers of DuckDB."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import quoted
from meshmark.store.checks import read
from meshmark.store.files import open_regular
from meshmark.store.layout import Kept, file_name

if TYPE_CHECKING:
    import pyarrow as pa

RUNS: Final = b"meshmark.runs"  # metadata of a compacted file: the names of its runs, JSON
_SEPARATOR: Final = "\x1f"


def with_runs(table: pa.Table) -> pa.Table:
    """The rows of a compacted file, with the names of its runs as metadata."""
    names = sorted(set(table["run"].to_pylist()))
    return table.replace_schema_metadata({RUNS: json.dumps(names).encode()})


def runs_in(path: Path) -> list[str]:
    """The names of the runs of a compacted file; none if it cannot be read."""
    import pyarrow.parquet as pq

    try:
        with open_regular(path) as file:
            names = json.loads((pq.read_schema(file).metadata or {}).get(RUNS, b"[]"))
    except Exception:  # damaged files make the reader raise arbitrary exceptions; a query names them
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


class QueryError(Exception):
    """DuckDB's error, as one line."""


def fetched(query: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    import duckdb

    with duckdb.connect() as db:
        try:
            cursor = db.execute(query, values)
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except RuntimeError as why:  # DuckDB raises it on SIGINT
            if "interrupted" in str(why):
                raise KeyboardInterrupt from why
            raise
        except duckdb.Error as why:
            raise QueryError(quoted(str(why).splitlines()[0])) from why


def relation(files: Sequence[Kept]) -> tuple[str, list[Any]]:
    """Return the rows of these files as SQL with its values, without the rows that newer files replace."""
    text = "SELECT * EXCLUDE (filename) FROM read_parquet(?, union_by_name = true, filename = true)"
    values: list[Any] = [[str(one.path) for one in files]]
    if replaced := _replaced(files):
        key = f"filename || '{_SEPARATOR}' || run"
        text += f" WHERE NOT list_contains(?, {key}) AND NOT list_contains(?, {key} || '{_SEPARATOR}' || step)"
        values += [replaced, replaced]
    return text, values


def _replaced(files: Sequence[Kept]) -> list[str]:
    """The rows that newer files replace, as `FILE/RUN` or `FILE/RUN/STEP`, with a separator in place of the slash."""
    finished = {(one.path.parent.name, one.run): one.path for one in files if one.run and not one.step}
    steps: dict[tuple[str, str], list[Kept]] = {}
    for one in files:
        if one.step:
            steps.setdefault((one.path.parent.name, one.run), []).append(one)
    found = []
    for key in finished.keys() & steps.keys():
        found += [_SEPARATOR.join((str(finished[key]), *_run_and_step(one.path))) for one in steps[key]]
    newer = {folder for folder, _ in (*finished, *steps)}
    for one in files:
        if one.run or one.path.parent.name not in newer:
            continue
        for run in runs_in(one.path):
            key = one.path.parent.name, file_name(run)
            if key in finished:
                found.append(_SEPARATOR.join((str(one.path), run)))
            else:
                found += [_SEPARATOR.join((str(one.path), *_run_and_step(step.path))) for step in steps.get(key, ())]
    return found


def _run_and_step(path: Path) -> tuple[str, str]:
    """The run and the step of a file of one step."""
    row = read(path, ["run", "step"]).slice(0, 1).to_pylist()
    return (row[0]["run"], row[0]["step"]) if row else ("", "")
