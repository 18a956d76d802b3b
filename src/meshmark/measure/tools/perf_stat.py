"""`perf stat -j` (lines of JSON) and `perf stat -x SEP` (CSV), each with or without -r, -I, -A, --per-socket and so on.

Counters that are `<not supported>` or `<not counted>` are left out. With -I, the counts of the intervals are the
samples. Of derived metrics, those per event are read (instructions per cycle, shares), but no rates over time, which
are the count over the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_STARTED: Final = re.compile(r"^# started on (\w{3} \w{3} +\d+ [\d:]{8} \d{4})$", re.MULTILINE)
_MISSING: Final = {"<not supported>", "<not counted>"}
_UNITS: Final = {"": ("1", 1.0), "msec": ("s", 1e-3), "ns": ("s", 1e-9), "MiB": ("B", 2.0**20), "Joules": ("J", 1.0)}
_DERIVED: Final = {"GHz": ("clock", "Hz", 1e9), "insn per cycle": ("insn_per_cycle", "1", 1.0)}
_CSV: Final = re.compile(
    r"^(?: *\d+\.\d{9}(?P<a>[,;|\t]))?(?:[\w.-]+[,;|\t]){0,2}(?:[\d.]+|<not supported>|<not counted>)(?P<b>[,;|\t])"
    r"[A-Za-z]*(?P=b)[^,;|\t\n]+(?P=b)(?:[\d.]+%(?P=b))?\d+(?P=b)\d+\.\d\d\b",
    re.MULTILINE,
)
_PLACE: Final = re.compile(r"CPU\d+|S\d+(-[A-Z]+\d+)*|N\d+")
_KINDS: Final = {"cpu", "core", "socket", "die", "cluster", "node", "thread", "cgroup"}
_KEYS: Final = _KINDS | {
    *("interval", "counter-value", "unit", "event", "variance", "event-runtime", "pcnt-running", "metric-value"),
    *("metric-unit", "aggregate-number", "counters", "metric-threshold"),
}


# Samples by metric, unit and conditions.
_Series: TypeAlias = dict[tuple[str, str, str], tuple[dict[str, Scalar], list[float]]]


@dataclass(slots=True)
class _Line:
    """A counter's line: `metrics` are (value, unit) of derived ones."""

    where: str
    event: str
    value: str
    unit: str
    place: dict[str, Scalar]
    conditions: dict[str, Scalar]
    metrics: list[tuple[str, str]] = field(default_factory=list)


def recognises(start: str) -> bool:
    return _is_json(start) or _CSV.search(start) is not None


def _is_json(text: str) -> bool:
    first = next((line for line in text.splitlines() if line.startswith("{")), "")
    return '"counter-value"' in first and '"event"' in first


def read(text: str, machine: str) -> list[Record]:
    """The counters and their derived metrics."""
    if not text.endswith("\n"):
        raise FormatError("perf stat: found no end of the last line; the output is incomplete")
    started = _STARTED.search(text)
    try:
        start = datetime.strptime(started[1], "%a %b %d %H:%M:%S %Y").isoformat() if started else ""
    except ValueError:
        start = ""
    about = About(machine, "perf_stat", start=start)
    series: _Series = {}
    for line in _json(text) if _is_json(text) else _csv(text):
        if line.value in _MISSING:
            continue
        unit, scale = _UNITS.get(line.unit, ("1", 1.0))
        if line.unit not in _UNITS:
            line.conditions["event_unit"] = line.unit
        value = scale * number(line.value, f"{line.where}: {quoted(line.event, 40)}")
        _add(series, line.event, unit, {**line.place, **line.conditions}, value)
        for text_of, name in line.metrics:
            if not name or name.endswith("/sec") or text_of.strip() in {"", "nan", "-nan", "none"}:
                continue
            found = number(text_of.strip().rstrip("%"), f"{line.where}: {quoted(name, 40)}")
            metric, unit, scale = _DERIVED.get(name, (re.sub(r"\W+", "_", name).strip("_").lower() or "metric", "1", 1))
            _add(series, metric, unit, {**line.place, **line.conditions, "event": line.event}, scale * found)
    if not series:
        raise FormatError("perf stat: found no counter that was counted")
    return [
        theirs(about, name, unit, "none", samples, **conditions)
        for (name, unit, _), (conditions, samples) in series.items()
    ]


def _add(series: _Series, name: str, unit: str, conditions: dict[str, Scalar], value: float) -> None:
    series.setdefault((name, unit, str(conditions)), (conditions, []))[1].append(value)


def _json(text: str) -> Iterator[_Line]:
    last: _Line | None = None
    for at, row in enumerate(text.splitlines(), 1):
        where = f"perf stat: line {at}"
        if not row.strip() or row.startswith("#"):
            continue
        try:
            found = json.loads(row, parse_int=str, parse_float=str, parse_constant=str)
        except (ValueError, RecursionError):
            raise FormatError(f"{where}: found '{quoted(row, 40)}', an object of JSON is required") from None
        if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
            raise FormatError(f"{where}: found '{quoted(row, 40)}', an object of strings and numbers is required")
        if unknown := sorted(set(found) - _KEYS):
            raise FormatError(f"{where}: found the unknown key '{quoted(unknown[0], 40)}'")
        metric = (found.get("metric-value", ""), found.get("metric-unit", ""))
        if "counter-value" not in found:
            if "metric-value" not in found:
                raise FormatError(f"{where}: found neither counter-value nor metric-value")
            if last is not None:
                last.metrics.append(metric)
            continue
        if last is not None:
            yield last
        last = _json_line(found, where, metric)
    if last is not None:
        yield last


def _json_line(found: dict[str, str], where: str, metric: tuple[str, str]) -> _Line:
    for key in ("event", "unit", "event-runtime", "pcnt-running"):
        if key not in found:
            raise FormatError(f"{where}: found no {key}, which is required")
    for key in (*sorted(_KINDS & set(found)), "unit"):
        if not found[key].isprintable():
            raise FormatError(f"{where}: {key}: found '{quoted(found[key], 40)}', a name is required")
    place: dict[str, Scalar] = {k: int(v[:18]) if v.isdecimal() else v for k, v in found.items() if k in _KINDS}
    share = number(found["pcnt-running"], f"{where}: pcnt-running")
    variance = found.get("variance")
    return _Line(
        where,
        _event(found["event"], where),
        found["counter-value"].strip(),
        found["unit"],
        place,
        _conditions("interval" in found, variance is not None, share),
        [metric],
    )


def _csv(text: str) -> Iterator[_Line]:
    shape = _CSV.search(text)
    if shape is None:
        raise FormatError("perf stat: found no line of a counter")
    mark = shape["b"]
    intervals = shape["a"] is not None
    last: _Line | None = None
    for at, row in enumerate(text.splitlines(), 1):
        where = f"perf stat: line {at}"
        if not row.strip() or row.startswith("#"):
            continue
        cells = row.split(mark)
        if last is not None and len(cells) > 5 and not any(c.strip() for c in cells[1 if intervals else 0 : -2]):
            last.metrics.append((cells[-2], cells[-1]))
            continue
        if last is not None:
            yield last
        last = _csv_line(cells, where, intervals)
    if last is not None:
        yield last


def _csv_line(cells: list[str], where: str, intervals: bool) -> _Line:
    place: dict[str, Scalar] = {}
    rest = list(cells)
    if intervals:
        number(rest.pop(0), f"{where}: time")
    if rest and (name := rest[0].strip()) and _PLACE.fullmatch(name):
        if name.startswith("CPU"):
            place["cpu"] = int(name[3:19])
            rest = rest[1:]
        else:  # the number of CPUs follows
            place["node" if name.startswith("N") else "core" if "-" in name else "socket"] = name
            rest = rest[2:]
    varies = len(rest) > 3 and rest[3].endswith("%")
    if varies:
        number(rest.pop(3)[:-1], f"{where}: variation")
    if len(rest) not in {5, 7} or not rest[3].isdecimal():
        raise FormatError(f"{where}: found {len(cells)} cells, those of a counter (value, unit, event …) are required")
    share = number(rest[4], f"{where}: share of the time")
    metrics = [(rest[5], rest[6])] if len(rest) == 7 else []
    event = _event(rest[2], where)
    if not rest[1].isprintable():
        raise FormatError(f"{where}: unit: found '{quoted(rest[1], 40)}', a unit is required")
    return _Line(where, event, rest[0].strip(), rest[1], place, _conditions(intervals, varies, share), metrics)


def _event(name: str, where: str) -> str:
    if not name.strip() or not name.isprintable() or '"' in name:
        raise FormatError(f"{where}: event: found '{quoted(name, 40)}', a name is required")
    return name


def _conditions(interval: bool, repeated: bool, share: float) -> dict[str, Scalar]:
    """`counted`: whether the counter ran for the whole time, or for a part of it, from which perf extrapolates."""
    stated: dict[str, Scalar] = {"counted": "all" if share >= 100 else "part"}
    if repeated:
        stated["statistic"] = "mean"
    if interval:
        stated["per"] = "interval"
    return stated


READERS: Final = [Reader("perf_stat", "perf stat -j and perf stat -x, JSON and CSV", recognises, whole(read))]
