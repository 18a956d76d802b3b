"""Reads journals, which contain the unmodified output lines of a probe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from meshmark.describe import observed_conditions
from meshmark.store.files import utf8
from meshmark.store.record import Record, RecordError, is_scalar, is_unicode
from meshmark.store.run import Absence
from meshmark.store.session import MAX_LINE_BYTES


def parse_line(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a line of the protocol; None for any other line."""
    if len(raw) > MAX_LINE_BYTES:
        return None
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) and isinstance(line.get("type"), str) else None


@dataclass
class JournalContent:
    """The content of a journal."""

    records: list[Record] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    ended: str | None = None  # status in the `end` line
    error: str | None = None  # message of the `error` line
    invalid_lines: int = 0  # number of lines that are not JSON objects
    invalid_records: list[str] = field(default_factory=list)  # one error for each invalid result
    invalid_at: list[int] = field(default_factory=list)  # index of the line of each invalid result

    def results(self, metric: str) -> list[Record]:
        """Return the results of a metric."""
        return [r for r in self.records if r.metric == metric]


def read_journal(lines: Iterable[bytes], step: str) -> JournalContent:
    """Read a journal, which may be incomplete, resumed or corrupt. The content never raises an exception.

    A run that was killed between a result and its `point` line repeats the result when it resumes. The last of several
    results with the same metric and conditions replaces the others.
    """
    reading = JournalContent()
    by_identity: dict[str, Record] = {}
    absent: dict[str, Absence] = {}
    for index, raw in enumerate(lines):
        line = parse_line(raw)
        if line is None:
            reading.invalid_lines += 1
            continue
        kind = line["type"]
        if kind == "header":
            reading.header = reading.header or line
            reading.ended = reading.error = None
        elif kind == "result":
            try:
                record = Record.from_json(line)
                by_identity[_identity(line)] = record
            except (RecordError, RecursionError) as error:
                reading.invalid_records.append(str(error))
                reading.invalid_at.append(index)
        elif kind == "absent":
            absence = read_absence(line, step)
            absent[repr(absence)] = absence
        elif kind == "end":
            reading.ended = str(line.get("status", ""))
        elif kind == "error":
            field_name, allowed = line.get("field"), line.get("allowed")
            message = f"{field_name}: {line.get('message')}" if field_name else str(line.get("message"))
            reading.error = f"{message}; allowed: {allowed}" if allowed else message
    reading.records = list(by_identity.values())
    reading.absences = list(absent.values())
    return reading


def read_absence(line: Mapping[str, Any], step: str) -> Absence:
    """Return the absence that an object describes; values of another type are left out."""
    conditions = line.get("conditions")
    return Absence(
        instrument=_text(line, "instrument"),
        metric=_text(line, "metric") or None,
        conditions={k: v for k, v in conditions.items() if is_unicode(k) and is_scalar(v)}
        if isinstance(conditions, dict)
        else {},
        reason=_text(line, "reason"),
        enable=_text(line, "enable"),
        step=step,
    )


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    return utf8(value).decode() if isinstance(value, str) else ""


def _identity(line: dict[str, Any]) -> str:
    """Return metric and point of a result; derived values have no point and are identified by their set conditions."""
    point = line.get("point")
    if point is None:
        observed = observed_conditions([_text(line, "instrument")])
        point = {k: v for k, v in line["conditions"].items() if k not in observed}
    return json.dumps([line["metric"], point], sort_keys=True, default=str)
