"""Formats numbers for display: the only place where a value leaves its SI unit.

Bandwidth is decimal (GB/s = 10⁹ B/s), capacity is binary (MiB = 2²⁰ B), and time gets the prefix that suits its
magnitude. A value, its interval and its best sample share one scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

NBSP: Final = "\u00a0"  # keeps a number and its unit on one line

_DECIMAL: Final = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_TIME: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BINARY: Final = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_SYMBOL: Final = {"B/s": "B/s", "flop/s": "FLOP/s", "op/s": "op/s", "Hz": "Hz"}

FLAG_TEXT: Final = {
    "migrated": "a thread left the CPU it was placed on",
    "stolen": "the hypervisor took CPU time away",
    "clock_varied": "the clock changed from sample to sample, and the value with it",
    "disturbed": "other work used the CPUs, interrupted a quarter of the samples, or slowed the canary down",
    "stopped": "the program was stopped, or ran out of time",
    "oversubscribed": "more threads than CPUs",
    "misplaced": "the memory was not on the requested node",
    "page_size": "the pages did not have the requested size",
    "faulted": "page faults occurred in the timed region",
    "unverified": "the kernel's result check failed or could not run",
    "off_plan": "a synthetic program ran more than 5 % longer or shorter than planned, so its rates are off as much",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """Divide a value in the metric's unit by `factor` to show it in `symbol`."""

    factor: float
    symbol: str


def scale_for(unit: str, value: float) -> Scale:
    """Return the scale with the prefix that suits the magnitude of `value` (in `unit`)."""
    size = abs(value)
    if not math.isfinite(size):
        size = 0.0
    if unit == "s":
        factor, symbol = next(((f, s) for f, s in _TIME if size >= f), _TIME[-1])
        return Scale(factor, symbol)
    if unit == "B":
        factor, symbol = next(((f, s) for f, s in _BINARY if size >= f), _BINARY[-1])
        return Scale(factor, symbol)
    if unit in _SYMBOL:
        factor, prefix = next(((f, p) for f, p in _DECIMAL if size >= f), _DECIMAL[-1])
        return Scale(factor, prefix + _SYMBOL[unit])
    return Scale(1.0, "" if unit == "1" else unit)


def counted(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: `1 node`, `2 nodes`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def number(value: float, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits; with an exponent only below 1e-4 and from 1e7.

    >>> number(41.04), number(1692.3), number(0.0652), number(99.97)
    ('41.0', '1692', '0.0652', '100')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    rounded = abs(float(f"{value:.{digits - 1}e}"))  # which may have a digit more before the point than the value
    places = max(0, digits - 1 - math.floor(math.log10(rounded)))
    text = f"{value:.{places}f}"
    if rounded < 1e-4 or abs(float(text)) >= 1e7:
        return f"{value:.{digits - 1}e}"
    return text if abs(float(text)) < 10000 else f"{round(value):,}".replace(",", "\u202f")


def ratio_text(value: float) -> str:
    """Return a ratio with three digits, and with thousandths near 1."""
    return f"{value:.3f}" if 0.9 < value < 1.1 else number(value)


def show(value: float, unit: str, scale: Scale | None = None, digits: int = 3) -> str:
    """Return `value` (in `unit`) with its scaled unit and a no-break space: `41.0 GB/s`, `160 ns`, `8 MiB`."""
    scale = scale or scale_for(unit, value)
    scaled = value / scale.factor
    text = f"{scaled:.0f}" if unit == "B" and scaled == round(scaled) else number(scaled, digits)
    return f"{text}{NBSP}{scale.symbol}" if scale.symbol else text


def plain(value: float, unit: str, digits: int = 4) -> str:
    """Return the text of `show` with an ordinary space, for terminals and pipes: `41.04 GB/s`."""
    return show(value, unit, digits=digits).replace(NBSP, " ")


def percent(share: float) -> str:
    """Return a share as a percentage: `0.034` becomes `3.4 %`."""
    if not math.isfinite(share):
        return "–"
    return f"{number(100 * share, 2)}{NBSP}%"


def size(value: float) -> str:
    """Return a size in bytes with a binary prefix: `512 KiB`."""
    return show(value, "B")


def round_size(value: int) -> str:
    """Return a size in bytes with the prefix in which it is round, decimal or binary: `40 GB`, `512 MiB`."""
    factor, prefix = next(((f, p) for f, p in _DECIMAL if value >= f), _DECIMAL[-1])
    if value % 2**20 and value >= 1e6 and value % (factor / 1000) == 0:
        return f"{value / factor:g}{NBSP}{prefix}B"
    return size(value)


def seconds(value: float) -> str:
    """Return a run's duration in whole seconds: `48 s`, `3 min 12 s`."""
    if value < 90:
        return f"{value:.0f}{NBSP}s"
    return f"{int(value // 60)}{NBSP}min {int(value % 60)}{NBSP}s"


def seconds_of(value: float) -> str:
    """Return a time in s, without prefix, for the rows of a table: `1200 s`, `12.3 s`, `0.25 s`."""
    size = abs(value)
    return f"{value:.0f} s" if size >= 1000 else f"{value:.1f} s" if size >= 10 else f"{value:.2f} s"


def duration(length_s: float) -> str:
    """Return a duration with its unit, from `85 ns` to `12 h 05 min`."""
    if length_s >= 3600:
        return f"{int(length_s // 3600)} h {int(length_s % 3600 // 60):02} min"
    if length_s >= 60:
        return f"{int(length_s // 60)} min {int(length_s % 60):02} s"
    return plain(length_s, "s", 3)


def half_width_text(half_width: float) -> str:
    """Return half the width of an interval over its value: `±3.1 %`, or `> 100 %` if it is wider than that."""
    return f"> 100{NBSP}%" if half_width > 1 else f"±{number(100 * half_width, 2)}{NBSP}%"


def wide_text(half_width: float | None, requested: float | None) -> str:
    """Return an interval next to the requested one, such as `±3.1 %, requested ±2 %`; "" if none was requested.

    Args:
        half_width: Half the interval over the value; None without an interval.
        requested: The requested half width over the value; None if none was requested.
    """
    if requested is None:
        return ""
    actual = "too few samples" if half_width is None else half_width_text(half_width)
    return f"{actual}, requested ±{100 * requested:g}{NBSP}%"
