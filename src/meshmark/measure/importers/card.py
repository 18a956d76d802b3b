"""Writes and reads the results in a machine card (`card.json`), so that cards can be compared and imported.

A card contains all results of its run with their samples, before repetitions are pooled. Results of one step and metric
form a group, which states common values once, so that a card takes a quarter of the size of the journals.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.measure.runs.journal import read_absence
from meshmark.store.record import Record, RecordError, Scalar, is_unicode, median, median_interval
from meshmark.store.run import Absence

SCHEMA: Final = 2  # cards of schema 1 had no results
TYPE: Final = "card"
MAX_RESULTS: Final = 20_000  # maximum number in a card, which then takes about 8 MB
_FIXED: Final = ("source", "machine", "instrument", "metric", "unit", "better")
_KEYS: Final = frozenset({"schema", "figures", "levels"})  # keys of every card, also of the first schema
_START: Final = re.compile(rb'\s*\{\s*"(?:type"\s*:\s*"card"|schema"\s*:\s*\d+\s*,\s*"machine"\s*:)')
_AGAIN: Final = "write the card again: meshmark report RUN"
StepRecord = tuple[str, Record]


@dataclass(slots=True)
class Card:
    """The results of a card.

    Attributes:
        left_out: Place of each item that was left out, and the reason.
    """

    run: str
    records: list[StepRecord] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)


# ------------------------------------------------------------------ writing


def results(rows: Sequence[StepRecord]) -> dict[str, Any]:
    """Return the fields `records` and `left_out` of a card.

    If there are more than `MAX_RESULTS`, the metrics with most results are left out, such as the latency between all
    pairs of hundreds of CPUs; `left_out` names them.
    """
    counts = Counter((r.instrument, r.metric) for _, r in rows)
    left_out: list[tuple[str, str]] = []
    for name, _ in counts.most_common():
        if sum(n for other, n in counts.items() if other not in left_out) <= MAX_RESULTS:
            break
        left_out.append(name)
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for step, r in rows:
        if (r.instrument, r.metric) not in left_out:
            groups.setdefault((step, *(getattr(r, k) for k in _FIXED)), []).append(r)
    return {
        "records": [_group(key[0], records) for key, records in groups.items()],
        "left_out": [
            {"instrument": instrument, "metric": metric, "results": counts[instrument, metric]}
            for instrument, metric in left_out
        ],
    }


def _group(step: str, records: Sequence[Record]) -> dict[str, Any]:
    conditions, provenance = (_common([getattr(r, k) for r in records]) for k in ("conditions", "provenance"))
    return {
        "step": step,
        **{k: getattr(records[0], k) for k in _FIXED},
        "conditions": conditions,
        "provenance": provenance,
        "results": [_result(r, conditions, provenance) for r in records],
    }


def _common(objects: Sequence[Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """Return the values that all objects share; 1 and 1.0 are different, because their types are."""
    first = _finite(objects[0])
    return {k: v for k, v in first.items() if all(k in o and _same(o[k], v) for o in objects)}


def _same(one: Scalar, other: Scalar) -> bool:
    return type(one) is type(other) and one == other


def _finite(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the values that JSON can represent."""
    return {k: v for k, v in values.items() if not isinstance(v, float) or math.isfinite(v)}


def _result(r: Record, conditions: Mapping[str, Scalar], provenance: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the values of a record that its group does not state.

    Value and interval follow from the samples, and are stated only if an instrument rounded them otherwise.
    """
    result: dict[str, Any] = {"samples": list(r.samples)}
    if r.value != median(r.samples):
        result["value"] = r.value
    if r.interval != median_interval(r.samples):
        result["interval"] = None if r.interval is None else list(r.interval)
    if r.flags:
        result["flags"] = sorted(r.flags)
    for name, values, common in (("conditions", r.conditions, conditions), ("provenance", r.provenance, provenance)):
        if rest := {k: v for k, v in _finite(values).items() if k not in common}:
            result[name] = rest
    return result


def to_text(card: Mapping[str, Any]) -> str:
    """Return a card as JSON with a line for each result."""
    start = json.dumps({k: v for k, v in card.items() if k != "records"}, indent=1, default=str)
    groups = []
    for group in card["records"]:
        head = json.dumps({k: v for k, v in group.items() if k != "results"}, default=str)
        lines = ",\n".join(f"   {json.dumps(r, separators=(',', ':'), default=str)}" for r in group["results"])
        groups.append(f'  {head[:-1]}, "results": [\n{lines}\n  ]}}')
    return f'{start[:-2]},\n "records": [\n' + ",\n".join(groups) + "\n ]\n}\n"


# ------------------------------------------------------------------ reading


def read_card(data: bytes) -> Card | None:
    """Return the results of a card; None if the data is not a card.

    Raises:
        UsageError: The card is damaged, of another schema, or has no list of results. The message names the field.
    """
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    begins = _START.match(data.removeprefix(b"\xef\xbb\xbf")) is not None
    damage = ""
    try:
        card = json.loads(data)
    except RecursionError:
        card, damage = None, "its brackets are nested too deeply"
    except ValueError as error:
        card, damage = None, str(error).partition("; use sys")[0]
    if damage and begins:
        raise UsageError(f"the card is damaged: {damage}", _AGAIN)
    if not isinstance(card, dict) or not (card.get("type") == TYPE or card.keys() >= _KEYS):
        return None
    schema = card.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise UsageError(f"schema: found {_shown(schema)}; allowed: {SCHEMA}", _AGAIN)
    if schema < SCHEMA:
        raise UsageError(f"schema: found {schema}, {SCHEMA} is required: this card has figures without results", _AGAIN)
    if schema > SCHEMA:
        raise UsageError(f"schema: found {_shown(schema)}; this version of Meshmark reads {SCHEMA}", _AGAIN)
    run = card.get("run")
    if not isinstance(run, str) or not run or not is_unicode(run):
        raise UsageError(f"run: found {_shown(run)}, a name is required")
    content = Card(run)
    for number, group in enumerate(_objects(card, "records", "records"), 1):
        _read_group(content, group, f"group {number} of records")
    _read_left_out(content, card)
    content.absences = [a for item in _objects(card, "absent", "absent") if (a := _absence(item)) is not None]
    return content


def _objects(item: Mapping[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    values = item.get(key)
    if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
        raise UsageError(f"{where}: found {_shown(values)}, a list of objects is required")
    return values


def _read_group(card: Card, group: Mapping[str, Any], where: str) -> None:
    step = group.get("step")
    if not isinstance(step, str) or not step or not is_unicode(step):
        raise UsageError(f"{where}: step: found {_shown(step)}, a name is required")
    common = {}
    for key in ("conditions", "provenance"):
        common[key] = group.get(key)
        if not isinstance(common[key], dict):
            raise UsageError(f"{where}: {key}: found {_shown(common[key])}, an object is required")
    for number, result in enumerate(_objects(group, "results", f"{where}: results"), 1):
        try:
            card.records.append((step, _record(group, common, result)))
        except (RecordError, RecursionError) as error:
            card.left_out.append((f"{where}, result {number}", str(error)))


def _record(group: Mapping[str, Any], common: Mapping[str, Any], result: Mapping[str, Any]) -> Record:
    parts = {}
    for key, values in common.items():
        rest = result.get(key, {})
        if not isinstance(rest, dict):
            raise RecordError(
                f"{key}: found {_shown(rest)}, an object of strings, numbers, booleans and nulls is required"
            )
        parts[key] = {**values, **rest}
    samples = result.get("samples")
    line = {**{k: group.get(k) for k in _FIXED}, "samples": samples, "flags": result.get("flags", []), **parts}
    try:
        numbers = [float(s) for s in samples] if isinstance(samples, list) else []
        line["value"] = result.get("value", median(numbers) if numbers else None)
        interval = median_interval(numbers) if numbers else None
        line["interval"] = result.get("interval", list(interval) if interval else None)
    except (TypeError, ValueError, OverflowError):
        line |= {"value": 0.0, "interval": None}  # `Record.from_json` reports what is wrong with the samples
    return Record.from_json(line)


def _read_left_out(card: Card, content: Mapping[str, Any]) -> None:
    """Add the results that the card reports as left out."""
    for item in _objects(content, "left_out", "left_out"):
        name = f"{_text(item, 'instrument')} {_text(item, 'metric')}"
        count_text = f"{_shown(item.get('results'))} results are too many for a card"
        card.left_out.append((name, f"{count_text}; store export writes all"))


def _absence(item: Mapping[str, Any]) -> Absence | None:
    absence = read_absence(item, _text(item, "step"))
    if not absence.instrument or not absence.reason:
        return None
    return replace(absence, kind="error" if item.get("kind") == "error" else "absent", step=absence.step or None)


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return value if isinstance(value, str) and is_unicode(value) else ""


def _shown(value: object) -> str:
    """Return a value as one line of text for a message."""
    try:
        return quoted(json.dumps(value), 60)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} that is too large to be shown"
