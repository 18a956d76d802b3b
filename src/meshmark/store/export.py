"""Exports records, with their run and step, as JSON Lines and CSV; both formats can be imported."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.store.record import Record, RecordError, Scalar

Row = tuple[str, str, Record]  # run, step, record
CSV_FIXED: Final = (
    "run",
    "step",
    "source",
    "machine",
    "instrument",
    "metric",
    "unit",
    "better",
    "value",
    "low",
    "high",
    "flags",
    "samples",
    "provenance",
)


def check_date(name: str, when: str) -> None:
    """Raise if the value of an option is neither a date and time nor the first part of one, such as 2026-11.

    Raises:
        UsageError: The text is not empty and not a date of ISO 8601, or the calendar has no such day or time.
    """
    if not when:
        return
    parts = re.fullmatch(
        r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(?:(\d\d)(?::(\d\d)(?::(\d\d)(?:\.\d*)?)?)?)?Z?)?)?)?", when, re.ASCII
    )
    try:
        if parts is None:
            raise ValueError
        year, month, day, hour, minute, second = (int(part) if part else None for part in parts.groups())
        datetime(
            year or 0, 1 if month is None else month, 1 if day is None else day, hour or 0, minute or 0, second or 0
        )
    except ValueError:
        raise UsageError(f"{name}: found '{quoted(when)}', a date such as 2026-11-25 is required") from None


def started_between(row: Row, since: str = "", until: str = "") -> bool:
    """Return whether the measurement started between two times, both inclusive; "" is no limit.

    2026-11 stands for the start of that month in `since`, and for its end in `until`.
    """
    start = str(row[2].provenance.get("start", "")).removesuffix("Z")
    earliest, latest = since.removesuffix("Z"), until.removesuffix("Z")
    return start >= earliest and (not latest or "" < start[: len(latest)] <= latest)


def to_jsonl(rows: Iterable[Row]) -> str:
    """Return one line of the line protocol per record, with `run` and `step`; each ends with a newline."""
    return "".join(
        json.dumps({"type": "result", "schema": 1, "run": run, "step": step, **record.to_json()}) + "\n"
        for run, step, record in rows
    )


def to_csv(rows: Iterable[Row]) -> str:
    """Return CSV with one column per condition, samples and flags separated by spaces, and provenance as JSON.

    Conditions are JSON scalars, but strings are quoted only if they would otherwise parse as another type.
    """
    table = list(rows)
    names = sorted({name for _, _, record in table for name in record.conditions})
    return csv_header(names) + csv_rows(table, names)


def csv_header(conditions: Sequence[str]) -> str:
    """Return the first line of `to_csv` for rows with these conditions."""
    return _csv_text([[*CSV_FIXED, *conditions]])


def csv_rows(rows: Iterable[Row], conditions: Sequence[str]) -> str:
    """Return the lines of `to_csv` below the header, which has these conditions."""
    return _csv_text(_csv_cells(row, conditions) for row in rows)


def _csv_text(rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue()


def _csv_cells(row: Row, conditions: Sequence[str]) -> list[object]:
    run, step, r = row
    low, high = r.interval or ("", "")
    return [
        run,
        step,
        r.source,
        r.machine,
        r.instrument,
        r.metric,
        r.unit,
        r.better,
        repr(r.value),
        low,
        high,
        " ".join(sorted(r.flags)),
        " ".join(map(repr, r.samples)),
        json.dumps(dict(r.provenance)),
        *[_cell(r.conditions[name]) if name in r.conditions else "" for name in conditions],
    ]


def row_of_line(line: bytes) -> Row:
    """Return run, step and record of one line of `to_jsonl`."""
    result = json.loads(line)
    return result["run"], result["step"], Record.from_json(result)


def record_of_csv(row: Mapping[str, Any]) -> Record:
    """Return the record of one row of `to_csv`.

    Raises:
        RecordError: The row is not a valid record; the message names the column.
    """
    # In a row longer or shorter than the header, csv yields a column named None or a value of None.
    text = {k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
    low, high = text.get("low", ""), text.get("high", "")
    return Record.from_json(
        {
            **{k: text.get(k) for k in ("source", "machine", "instrument", "metric", "unit")},
            "better": text.get("better") or None,
            "value": _number("value", text.get("value", "")),
            "interval": [_number("low", low), _number("high", high)] if low or high else None,
            "samples": [_number("samples", s) for s in text.get("samples", "").split()],
            "flags": text.get("flags", "").split(),
            "conditions": {k: _scalar(v) for k, v in text.items() if k not in CSV_FIXED and v},
            "provenance": _object(text.get("provenance", "") or "{}"),
        }
    )


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RecordError(f"{name}: found '{text[:60]}', a number is required") from None


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RecordError(f"provenance: found '{text[:60]}', a JSON object is required") from None


def _cell(value: Scalar) -> str:
    if not isinstance(value, str):
        return json.dumps(value)
    return value if value and _scalar(value) is value else json.dumps(value)


def _scalar(text: str) -> Scalar:
    """Return the value of a JSON scalar; any other text unchanged."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str | int | float | None) else text
