"""Reads the runs of configurations from CSV files, and adds runs to such a file.

A file has a head and one row per run. Ratings of configurations that cannot alternate, such as kernels or firmware,
collect their runs in one file.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError, near, quoted
from meshmark.experiments.figure import DIRECTIONS
from meshmark.experiments.rating import RatedRun
from meshmark.store.files import read_text
from meshmark.store.session import open_for_append
from meshmark.values.numbers import decimal, whole

CONFIGURATION: Final = "configuration"
VALUE: Final = "value"
ROUND: Final = "round"
COLUMNS: Final = (CONFIGURATION, VALUE, "unit", "better", "metric", ROUND, "place", "start", "run")
MOST_RUNS: Final = 100_000
MOST_CONFIGURATIONS: Final = 200


@dataclass(slots=True)
class RatingFile:
    """The runs in a file.

    Attributes:
        runs: Runs by configuration, in the order of the file. The runs have rounds if the file has the column `round`
            in all its rows and each configuration has at most one run per round.
        unit, better, metric: Contents of these columns; "" without the column.
        sessions: Names of the runs of Meshmark that added rows.
    """

    runs: dict[str, list[RatedRun]] = field(default_factory=dict)
    unit: str = ""
    better: str = ""
    metric: str = ""
    sessions: set[str] = field(default_factory=set)


def read_runs(path: Path, by: Sequence[str] = (CONFIGURATION,), value: str = VALUE) -> RatingFile:
    """Return the runs in a CSV file.

    Args:
        path: The file; its first row names the columns.
        by: Columns whose contents make up a configuration.
        value: Column of the values, numbers above 0. Rows in which it is empty are left out.

    Raises:
        UsageError: A column is missing, a value is not a number above 0, or the units differ.
        MeshmarkError: The file cannot be read.
    """
    try:
        rows = csv.DictReader(io.StringIO(read_text(path).removeprefix("\ufeff")), strict=True)
        columns = [name.strip() for name in rows.fieldnames or []]
        rows.fieldnames = columns
        for name in (*by, value):
            if name not in columns:
                listed = quoted(", ".join(columns))
                raise UsageError(f"{path.name}: found the columns {listed}; required: {name}", near(name, columns))
        file = RatingFile()
        with_rounds = True
        for row in rows:
            where = f"{path.name}: line {rows.line_num}"
            text = (row[value] or "").strip()
            if not text:
                continue
            number = decimal(text)
            if number is None or number <= 0:
                raise UsageError(f"{where}: {value}: found '{quoted(text)}'; allowed: a number above 0")
            name = _name(row, by)
            if not name or not name.isprintable():
                raise UsageError(f"{where}: {by[0]}: found '{quoted(name)}'; allowed: the name of a configuration")
            in_round = whole((row.get(ROUND) or "").strip())
            with_rounds = with_rounds and in_round is not None
            file.runs.setdefault(name, []).append(RatedRun(number, in_round, (row.get("place") or "").strip()))
            _take_columns(file, row, where)
            if sum(map(len, file.runs.values())) > MOST_RUNS or len(file.runs) > MOST_CONFIGURATIONS:
                raise UsageError(
                    f"{where}: found more runs or configurations; allowed: {MOST_RUNS} runs, "
                    f"{MOST_CONFIGURATIONS} configurations"
                )
    except csv.Error as error:
        raise UsageError(f"{path.name}: is not a CSV file: {error}") from error
    if not with_rounds or any(len({run.round for run in runs}) < len(runs) for runs in file.runs.values()):
        file.runs = {name: [RatedRun(run.value, None, run.place) for run in runs] for name, runs in file.runs.items()}
    return file


def _name(row: Mapping[str, str | None], by: Sequence[str]) -> str:
    """Return the name of a configuration: the content of one column, or `COLUMN=CONTENT …` of several."""
    contents = {name: (row[name] or "").strip() for name in by}
    if len(by) == 1:
        return contents[by[0]]
    return " ".join(f"{name}={content}" for name, content in contents.items())


def _take_columns(file: RatingFile, row: Mapping[str, str | None], where: str) -> None:
    for name in ("unit", "better", "metric"):
        content, earlier = (row.get(name) or "").strip(), getattr(file, name)
        if name == "better" and content not in ("", *DIRECTIONS):
            raise UsageError(f"{where}: better: found '{quoted(content)}'; allowed: {', '.join(DIRECTIONS)}")
        if content and earlier and content != earlier:
            raise UsageError(f"{where}: {name}: found '{quoted(content)}'; allowed: {earlier}, as in earlier rows")
        setattr(file, name, content or earlier)
    if session := (row.get("run") or "").strip():
        file.sessions.add(session)


def check_columns(path: Path) -> bool:
    """Check that runs can be added to a file; return whether it has rows or at least a head.

    Raises:
        UsageError: The file has other columns than `COLUMNS`, or an incomplete last line.
        MeshmarkError: The file cannot be read.
    """
    if not path.exists() or not path.stat().st_size:
        return False
    text = read_text(path)
    head = next(csv.reader([text.split("\n", 1)[0].rstrip("\r")]), [])
    if head != list(COLUMNS):
        raise UsageError(
            f"--add-to: {path.name}: found the columns {quoted(', '.join(head))}; allowed: {', '.join(COLUMNS)}"
        )
    if not text.endswith("\n"):
        raise UsageError(f"--add-to: {path.name}: found an incomplete last line; complete or remove it first")
    return True


def add_runs(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Add rows to a file with the columns `COLUMNS`, which is made if it does not exist.

    Raises:
        UsageError: The file has other columns.
        MeshmarkError: The file cannot be read or written.
    """
    has_head = check_columns(path)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not has_head:
        writer.writeheader()
    writer.writerows(rows)
    try:
        with open_for_append(path) as file:
            file.write(text.getvalue().encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MeshmarkError(f"cannot write {path}: {error.strerror or error}") from error
