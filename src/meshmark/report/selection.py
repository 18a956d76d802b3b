"""Which records a chart, a figure or a table can be made of: those that have the conditions it needs.

Records of models, of imports and of other versions lack conditions that a host's have, or hold a text where those
hold a number. Every view selects its records here and asks no record for a condition that it did not select by.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final

from meshmark.store.record import Record

# Beyond these a ratio, a power or an axis would leave the range of a double.
_SMALLEST: Final = 1e-100
_GREATEST: Final = 1e100
UNKNOWN: Final = "not recorded"

_left_out: ContextVar[dict[int, tuple[str, ...]] | None] = ContextVar("what a view left out", default=None)


def cleaned(records: Iterable[Record]) -> list[Record]:
    """Records without the conditions that say nothing (None, NaN, what no double holds): those are not recorded.

    Every view begins with it, so that a condition that is there is a text, a truth or a finite number.
    """
    return [
        r
        if all(_says(v) for v in r.conditions.values())
        else replace(r, conditions={k: v for k, v in r.conditions.items() if _says(v)})
        for r in records
    ]


def _says(value: object) -> bool:
    return isinstance(value, str | bool) or number_in(value) is not None


def number_in(value: object) -> float | None:
    """A value as a finite number; None where it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if -_GREATEST < value < _GREATEST else None  # which NaN is not either


def number(record: Record, key: str) -> float | None:
    """A condition, in its own unit; None where it is absent or no finite number."""
    return number_in(record.conditions.get(key))


def value_of(record: Record, key: str, fallback: float = 0.0) -> float:
    """A condition, in its own unit; `fallback` where it is absent or no finite number."""
    found = number(record, key)
    return fallback if found is None else found


def text_of(record: Record, *keys: str) -> str:
    """The first of these conditions that is there, as text; `not recorded` without any."""
    return next((str(v) for k in keys if (v := record.conditions.get(k)) is not None), UNKNOWN)


def listed(*parts: str) -> str:
    """Those that are recorded, in a line."""
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
    """Records of a metric that have every condition named.

    Args:
        instruments: whose; () is any.
        numbers: conditions that are finite numbers; `positive`: and above 0.
        texts: conditions that are there, whatever they are.
        above_zero: the value is, too: logarithmic axes and ratios need it.
    """
    wanted = {instruments} if isinstance(instruments, str) else {*instruments}
    left_out = _left_out.get()
    found = []
    for r in records:
        if r.metric != metric or (wanted and r.instrument not in wanted):
            continue
        lacking = [k for k in numbers if number(r, k) is None]
        lacking += [k for k in positive if value_of(r, k) <= 0]
        lacking += [k for k in texts if r.conditions.get(k) is None]
        if not (_SMALLEST < r.value < _GREATEST if above_zero else math.isfinite(r.value)):
            lacking.append("a value above 0")
        if not lacking:
            found.append(r)
        elif left_out is not None:
            left_out[id(r)] = tuple(lacking)
    return found


@contextmanager
def noting() -> Iterator[dict[int, tuple[str, ...]]]:
    """Collects what records lack that are left out meanwhile, by their identity."""
    token = _left_out.set({})
    try:
        found = _left_out.get()
        assert found is not None
        yield found
    finally:
        _left_out.reset(token)


def left_out_said(left_out: dict[int, tuple[str, ...]]) -> str:
    """`3 results lack pages, threads`; '' where nothing was left out."""
    if not left_out:
        return ""
    count = len(left_out)
    keys = dict.fromkeys(k for lacking in left_out.values() for k in lacking)
    return f"{count} result{'s lack' if count > 1 else ' lacks'} {', '.join(k.replace('_', ' ') for k in keys)}"
