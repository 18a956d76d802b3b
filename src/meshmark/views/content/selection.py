"""Selects the records that a chart, figure or table can show because they have the conditions that it needs.

Records of models, imports and other versions may lack conditions, or have a text instead of a number. Every view
selects its records here and reads only conditions that it selected by.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from meshmark.describe import chosen_conditions
from meshmark.store.record import MODE_SUFFIX, Record
from meshmark.values.units import NBSP, scale_for, show, size, wide_text
from meshmark.values.units import number as digits

# Ratios, powers and axes of values beyond these could overflow a double.
_MIN: Final = 1e-100
_MAX: Final = 1e100
UNKNOWN: Final = "not recorded"

_skipped: ContextVar[dict[int, tuple[str, ...]] | None] = ContextVar("records that a view skips", default=None)


def cleaned(records: Iterable[Record]) -> list[Record]:
    """Return the records without unusable conditions (None, NaN, out of range).

    Views call this function first, so that every condition is a text, a Boolean or a finite number.
    """
    return [
        r
        if all(_is_usable(v) for v in r.conditions.values())
        else replace(r, conditions={k: v for k, v in r.conditions.items() if _is_usable(v)})
        for r in records
    ]


def _is_usable(value: object) -> bool:
    return isinstance(value, str | bool) or number_in(value) is not None


def number_in(value: object) -> float | None:
    """Return a value as a finite number; None if it is not a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if -_MAX < value < _MAX else None  # also None for NaN


def number(record: Record, key: str) -> float | None:
    """Return a condition in its unit; None if it is missing or not a finite number."""
    return number_in(record.conditions.get(key))


def value_of(record: Record, key: str, default: float = 0.0) -> float:
    """Return a condition in its unit; `default` if it is missing or not a finite number."""
    value = number(record, key)
    return default if value is None else value


USUAL_STRIDES: Final = (64.0, 256.0)  # bytes: each slot is on a line of its own, and a page has many slots


def usual_stride(records: Iterable[Record]) -> list[Record]:
    """Return the records with the smallest usual stride, or with the smallest stride if none is usual.

    Usual strides are one to four cache lines (`USUAL_STRIDES`).

    Latencies of several strides are different quantities: with a stride of a page, the lines of a footprint of 64 MiB
    fit in a cache of 1 MiB. Records without a stride count as having the smallest usual stride.
    """
    records = list(records)
    strides = {value_of(r, "stride_bytes", USUAL_STRIDES[0]) for r in records}
    usual = {s for s in strides if USUAL_STRIDES[0] <= s <= USUAL_STRIDES[1]} or strides
    return [r for r in records if value_of(r, "stride_bytes", USUAL_STRIDES[0]) == min(usual)]


def unusual_stride(record: Record) -> str:
    """Return `stride 4 KiB` for a stride that is not usual (see `usual_stride`); "" for a usual stride."""
    stride = value_of(record, "stride_bytes", USUAL_STRIDES[0])
    return "" if USUAL_STRIDES[0] <= stride <= USUAL_STRIDES[1] else f"stride {size(stride)}"


def text_of(record: Record, *keys: str) -> str:
    """Return the first of these conditions that is present, as text; `not recorded` if none is present."""
    return next((str(v) for k in keys if (v := record.conditions.get(k)) is not None), UNKNOWN)


def listed(*parts: str) -> str:
    """Return the recorded parts, separated by commas."""
    return ", ".join(p for p in parts if p and p != UNKNOWN) or UNKNOWN


def selected(
    records: Iterable[Record],
    instruments: str | Collection[str],
    metric: str,
    *,
    numbers: Sequence[str] = (),
    positive: Sequence[str] = (),
    texts: Sequence[str] = (),
    above_zero: bool = False,
) -> list[Record]:
    """Return the records of a metric that have all required conditions.

    Args:
        instruments: The instruments to select from; () selects from all.
        metric: Name of the metric.
        numbers: Conditions that must be finite numbers.
        positive: Conditions that must be finite numbers above 0.
        texts: Conditions that must be present, of any type.
        above_zero: Require a value above 0, for logarithmic axes and ratios.
    """
    allowed = {instruments} if isinstance(instruments, str) else {*instruments}
    skipped = _skipped.get()
    matches = []
    for r in records:
        if r.metric != metric or (allowed and r.instrument not in allowed):
            continue
        missing = [k for k in numbers if number(r, k) is None]
        missing += [k for k in positive if value_of(r, k) <= 0]
        missing += [k for k in texts if r.conditions.get(k) is None]
        if not (_MIN < r.value < _MAX if above_zero else math.isfinite(r.value)):
            missing.append("a value above 0")
        if not missing:
            matches.append(r)
        elif skipped is not None:
            skipped[id(r)] = tuple(missing)
    return matches


@contextmanager
def collect_skipped() -> Iterator[dict[int, tuple[str, ...]]]:
    """Collect the records that `selected` skips in this context, by identity, and what they lack."""
    token = _skipped.set({})
    try:
        records = _skipped.get()
        assert records is not None
        yield records
    finally:
        _skipped.reset(token)


def skipped_text(skipped: dict[int, tuple[str, ...]]) -> str:
    """Describe skipped records, such as `3 results lack pages, threads`; "" if no record was skipped."""
    if not skipped:
        return ""
    count = len(skipped)
    keys = dict.fromkeys(k for missing in skipped.values() for k in missing)
    return f"{count} result{'s lack' if count > 1 else ' lacks'} {', '.join(k.replace('_', ' ') for k in keys)}"


def modes_of(records: Iterable[Record], record: Record) -> list[Record]:
    """Return the records of the modes of a point, lowest first; [] if all runs of the point are at one level."""
    if not record.conditions.get("run_modes"):
        return []
    same = {k: record.conditions[k] for k in chosen_conditions([record])}
    modes = [
        r
        for r in records
        if (r.machine, r.instrument, r.metric) == (record.machine, record.instrument, record.metric + MODE_SUFFIX)
        and all(r.conditions.get(k) == v for k, v in same.items())
    ]
    return sorted(modes, key=lambda r: value_of(r, "run_mode"))


def modes_texts(modes: Sequence[Record]) -> tuple[str, str]:
    """Return the values of the modes of a point, such as `49.0 or 97.2 GB/s`, and `2 and 1 of 3 runs`."""
    scale = scale_for(modes[-1].unit, modes[-1].value)
    values = [digits(m.value / scale.factor) for m in modes]
    counts = " and ".join(f"{value_of(m, 'mode_runs'):.0f}" for m in modes)
    return f"{' or '.join(values)}{NBSP}{scale.symbol}", f"{counts} of {value_of(modes[0], 'runs'):.0f} runs"


def bounds_text(record: Record, precision: int = 3) -> str:
    """Return the interval of a record: `47.2 – 51.0 GB/s`; `–` without one."""
    if not record.bounds:
        return "–"
    scale = scale_for(record.unit, record.value)
    low, high = (show(b, record.unit, scale, precision) for b in record.bounds)
    return f"{low.removesuffix(f'{NBSP}{scale.symbol}')} – {high}"


def interval_text(record: Record) -> str:
    """Return the interval of a record: `47.2 – 51.0 GB/s`; `–` without one.

    If the interval is wider than requested, the reached and the requested width follow.
    """
    text = bounds_text(record)
    return text if record.converged else f"{text} ({wide_text(record.half_width, record.requested_half_width)})"


def natural(text: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in a text by value: `2 threads` before `10 threads`."""
    parts = (t.lstrip("0") or t[-1] if t.isdecimal() else t for t in re.split(r"(\d+)", text) if t)
    return [(len(t), t) if t.isdecimal() else (-1, t) for t in parts]
