"""Units of other tools in SI, values of JSON, and names of conditions, for the readers of all formats.

This module does not read any format itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError, number, place_of, unexpected
from meshmark.measure.importers.base import field as field_of
from meshmark.store.record import Better, Scalar, is_unicode


@dataclass(frozen=True, slots=True)
class ToolUnit:
    """A unit of another tool.

    Attributes:
        si: SI unit of values that are multiplied by `factor`; the unit of the tool if it is unknown.
        factor: Number of SI units per unit of the tool.
        better: Direction that the unit suggests: lower for times, higher for rates.
    """

    si: str
    factor: float
    better: Better


@dataclass(frozen=True, slots=True)
class ToolQuantity:
    """The meaning of a column or key of another tool.

    Attributes:
        metric: Meshmark instrument and its metric, such as `latency.load_latency`, or a metric that only the tool has.
        unit: Unit of the numbers of the tool, such as `ns` or `MB/s`.
        conditions: Conditions that the column states.
        better: Direction of the metric; None if the unit implies it.
        above_zero: Whether a number of 0 or below cannot have been measured.
    """

    metric: str
    unit: str
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    better: Better | None = None
    above_zero: bool = False


_TIMES: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_PREFIXES: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SIZE: Final = re.compile(r"(Ki|Mi|Gi|Ti|[kKMGTPE]?)(B|[Bb]ytes?|b|[Bb]its?)")
_FLOPS: Final = re.compile(r"([kKMGTPE]?)(?:FLOPS|FLOP/s|FLOPs/s|Flops|Flop/s|Flops/s|flops|flop/s|flops/s)")
_PER_SECOND: Final = re.compile(r"(.+?)\s*(?:/\s*s(?:ec(?:ond)?)?|\s[Pp]er\s[Ss]ec(?:ond)?)\.?", re.DOTALL)
_OPERATIONS: Final = re.compile(
    r"([kKMGTPE]?)(?:[Oo]ps?|[Uu]pdates?|UPS?|L?[Uu][Pp][Ss]?|l[Uu][Pp][Ss]?|IOPS?|IPS)(/s)?"
)
# Counted things: an unknown word may begin with a prefix, as in Mcells, so only these words become operations.
_WORDS: Final = {"": 1.0, "Thousand": 1e3, "Million": 1e6, "Billion": 1e9}
_COUNTED: Final = re.compile(
    r"(?:(Thousand|Million|Billion)\s+[\w ]+|(?i:runs?|frames?|requests?|nodes?|queries|transactions?|operations?|ops"
    r"|iterations?|events?|images?|samples?|items?|jobs?|messages?|points?|calls?|signs?|verif(?:y|ies)|updates?))"
)


@lru_cache(1000)
def unit_of(text: str) -> ToolUnit:
    """Return the unit that a tool states; the prefixes k, M, G are decimal, and Ki, Mi, Gi are binary.

    An unknown unit is returned unchanged, without direction. An empty unit is 1.
    """
    text = text.strip()
    if not text or text in {"1", "-", "none", "None"}:
        return ToolUnit("1", 1.0, "none")
    if len(text) > 60:
        return ToolUnit(text, 1.0, "none")
    if text in {"%", "Percent", "percent"}:
        return ToolUnit("1", 0.01, "none")
    if (time := _TIMES.get(text, _TIMES.get(text.lower()))) is not None:
        return ToolUnit("s", time, "lower")
    if (flops := _FLOPS.fullmatch(re.sub(r"/\s*sec(?:ond)?s?$", "/s", text))) is not None:
        return ToolUnit("flop/s", _PREFIXES[flops[1]], "higher")
    if (clock := re.fullmatch(r"([kKMGT]?)Hz", text)) is not None:
        return ToolUnit("Hz", _PREFIXES[clock[1]], "none")
    if (factor := _bytes(text)) is not None:
        return ToolUnit("B", factor, "none")
    if (rate := re.fullmatch(r"([kKMGT])(b|B)(?:ps|PS)", text)) is not None:
        return ToolUnit("B/s", _PREFIXES[rate[1]] / (8 if rate[2] == "b" else 1), "higher")
    operations = _OPERATIONS.fullmatch(text)
    if operations is not None and (operations[2] or text.endswith(("PS", "UP"))):
        return ToolUnit("op/s", _PREFIXES[operations[1]], "higher")
    if (rate := _PER_SECOND.fullmatch(text)) is not None:
        if (factor := _bytes(rate[1])) is not None:
            return ToolUnit("B/s", factor, "higher")
        if (counted_match := _COUNTED.fullmatch(rate[1])) is not None:
            return ToolUnit("op/s", _WORDS[counted_match[1] or ""], "higher")
        return ToolUnit(text, 1.0, "higher")
    return ToolUnit(text, 1.0, "none")


def _bytes(text: str) -> float | None:
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    bits = match[2] == "b" or match[2].lower().startswith("bit")
    return (_BINARY.get(match[1]) or _PREFIXES[match[1]]) / (8 if bits else 1)


def scaled(value: float, factor: float, where: str) -> float:
    """Return `value` times `factor`.

    Raises:
        FormatError: The product is not finite.
    """
    product = value * factor
    if not math.isfinite(product):
        raise FormatError(f"{where}: found {value!r}, a number below 1e300 is required")
    return product


_ABOVE_ZERO: Final = {"s", "B/s", "op/s", "flop/s"}  # a time or rate of 0 was not measured
_NEVER_NEGATIVE: Final = {"B", "Hz", "J"}


def measured(value: float, unit: str, where: str) -> float:
    """Return `value`, a result in an SI unit, if it can have been measured.

    Raises:
        FormatError: The value cannot have been measured: a time or rate of 0 or less, or a negative size.
    """
    if (value <= 0 and unit in _ABOVE_ZERO) or (value < 0 and unit in _NEVER_NEGATIVE):
        least = "of at least 0" if unit in _NEVER_NEGATIVE else "above 0"
        raise FormatError(f"{where}: found {value!r}, a number {least} is required")
    return value


def value(text: str, unit: str, where: str, *, above_zero: bool = False) -> float:
    """Return a number of a file in SI units.

    Args:
        text: The number as the file states it.
        unit: Unit of the tool, such as `ns` or `MB/s`.
        where: The place in the file, for messages.
        above_zero: Whether 0 and negative numbers are refused.

    Raises:
        FormatError: The text is not a finite number, or not above 0 although it must be.
    """
    return scaled(number(text, where, above_zero=above_zero), unit_of(unit).factor, where)


def finite(values: Any, key: Any, where: str = "", factor: float = 1.0) -> float:
    """Return a number of an object times `factor`.

    Raises:
        FormatError: The number is missing, has another type or is not finite.
    """
    text = quoted(field_of(values, key, (int, float), where), 400)
    return scaled(number(text, place_of(where, key)), factor, place_of(where, key))


def numbers(values: Any, key: Any, where: str = "") -> list[float]:
    """Return a field of an object that is a list of at least one number.

    Raises:
        FormatError: The list is missing, empty or contains other values.
    """
    items = field_of(values, key, list, where)
    if not items:
        raise FormatError(f"{place_of(where, key)}: found none, at least 1 number is required")
    return [finite({key: item}, key, place_of(where, f"value {index}")) for index, item in enumerate(items, 1)]


def string(values: Any, key: str, where: str = "") -> str:
    """Return a field of an object that is a non-empty string.

    Raises:
        FormatError: The string is missing, empty or not Unicode.
    """
    text = str(field_of(values, key, str, where))
    if not text or not is_unicode(text):
        raise unexpected(text.encode("ascii", "replace").decode(), "a name", place_of(where, key))
    return text


def optional(values: Any, key: str) -> str:
    """Return a field of an object that is a string; "" if it is missing or has another type."""
    text = values.get(key) if isinstance(values, dict) else None
    return text if isinstance(text, str) and is_unicode(text) else ""


_TAKEN: Final = {"about", "instrument", "metric", "unit", "better", "samples"}


def named(conditions: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return conditions that a user of the other tool named, as keyword arguments of methods of `ToolOutput`.

    A condition with the name of another argument gets an underscore. Conditions with an empty name or with lone
    surrogates are left out.
    """
    return {
        f"{name}_" if name in _TAKEN else name: value
        for name, value in conditions.items()
        if name and is_unicode(name) and (not isinstance(value, str) or is_unicode(value))
    }


def slug(name: str) -> str:
    """Convert a name of another tool to a name of a metric or condition: `Avg Latency` becomes `avg_latency`."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


def scalar(text: str) -> Scalar:
    """Return a cell as a number if possible, otherwise as text; None if it is empty, `null` or `None`."""
    text = text.strip()
    if text in {"", "null", "None"}:
        return None
    if re.fullmatch(r"[+-]?\d{1,15}", text):
        return int(text)
    if re.fullmatch(r"[+-]?\d{1,15}\.\d{0,20}(?:[eE][+-]?\d{1,2})?|[+-]?\d{1,15}[eE][+-]?\d{1,2}", text):
        return float(text)
    return text


def facts(text: str, patterns: Mapping[str, str]) -> dict[str, Scalar]:
    """Return the facts that lines of a text state, by name.

    Args:
        patterns: Pattern of each name; its first group is the fact. Case does not matter; `^` and `$` match at line
            ends. Facts that no line states are absent from the result.
    """
    matches = {name: re.search(pattern, text, re.MULTILINE | re.IGNORECASE) for name, pattern in patterns.items()}
    return {name: scalar(match[1]) for name, match in matches.items() if match}
