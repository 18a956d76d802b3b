"""The parts that all readers of other tools' output use: records, numbers, and the errors that leave out or refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.describe import descriptions
from meshmark.errors import UsageError, quoted
from meshmark.store.record import Better, Metric, Record, Scalar
from meshmark.values.numbers import decimal

REPORTED: Final = "reported"  # provenance `origin` of a number that another tool measured


class FormatError(UsageError):
    """An item of a file, or all of it, is damaged, incomplete or of an unknown variant."""


class UnknownMeaning(FormatError):
    """The unit or the meaning of a column is unknown. Such a file is refused, since all its rows are in doubt."""


@dataclass(frozen=True, slots=True)
class About:
    """Where the numbers of a file come from.

    Attributes:
        machine: Name of the machine that the tool ran on.
        tool: Name of the tool.
        version: Of the tool; "" if the file does not state it.
        command: That was run; "" if the file does not state it.
        start: ISO 8601; "" if the file does not state it.
    """

    machine: str
    tool: str
    version: str = ""
    command: str = ""
    start: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """A format.

    Attributes:
        name: Of the format, as in messages and as `tool` in the provenance of records.
        title: What it is, for documentation.
        recognises: Whether the first 64 KiB of a file are of this format; must not raise, and takes linear time.
        read: Adds the records of a `ToolOutput` to it, and counts what it leaves out; see `output`.
            Raises FormatError.
        version: Of the reader, recorded as `reader_version` in the provenance of its records. It is raised when an
            output that was imported before would give other records; `store verify` then finds the former ones.
            1 is the version of records without it.
    """

    name: str
    title: str
    recognises: Callable[[str], bool]
    read: Callable[[Any], None]  # of an output.ToolOutput
    version: int = 1


def ours(about: About, instrument: str, metric: str, samples: Sequence[float], **conditions: Scalar) -> Record:
    """A record of a metric that an instrument of ours describes, so that results compare with ours.

    Args:
        samples: At least one, in the metric's unit (SI).
        conditions: As the instrument names them; only those that the file states.
    """
    return _record(about, instrument, descriptions()[instrument].metric(metric), samples, conditions)


def theirs(
    about: About, metric: str, unit: str, better: Better, samples: Sequence[float], **conditions: Scalar
) -> Record:
    """A record of a metric that only the tool has; the instrument is the tool.

    Args:
        unit: SI: s, B/s, B, flop/s, op/s, Hz, or 1 for shares, ratios and counts.
        samples: At least one, in `unit`.
    """
    return _record(about, about.tool, Metric(metric, unit, better, ""), samples, conditions)


def _record(
    about: About, instrument: str, metric: Metric, samples: Sequence[float], conditions: dict[str, Scalar]
) -> Record:
    known = {"tool": about.tool, "tool_version": about.version, "command": about.command, "start": about.start}
    return Record.of(
        metric,
        samples,
        source="tool",
        machine=about.machine,
        instrument=instrument,
        conditions={k: v for k, v in conditions.items() if v is not None},
        provenance={"origin": REPORTED, **{k: v for k, v in known.items() if v}},
    )


def number(text: str, where: str, *, above_zero: bool = False) -> float:
    """A finite number at a place in a file.

    Args:
        where: The place, as `line 12: bandwidth`.

    Raises:
        FormatError: It is none, or not above 0 although it must be.
    """
    value = decimal(text)
    if value is None:
        raise FormatError(f"{where}: found '{quoted(text, 40)}', a number is required")
    if above_zero and value <= 0:
        raise FormatError(f"{where}: found {quoted(text, 40)}, a number above 0 is required")
    return value


_SIZES: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size(text: str, where: str) -> int:
    """A size such as `64`, `64k`, `64KiB` or `1.5 MB` in bytes, with binary prefixes, as these tools mean them.

    Raises:
        FormatError: It is none.
    """
    match = re.fullmatch(r"([\d.]+)\s*([kmgt]?)i?b?(?:ytes?)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise FormatError(f"{where}: found '{quoted(text, 40)}', a size is required")
    return round(number(match[1], where) * _SIZES[match[2].lower()])


def field(values: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    """A field of an object of JSON or YAML.

    Raises:
        FormatError: It is missing or of another type.
    """
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, kind) or (
        isinstance(found, bool) and bool not in (kind if isinstance(kind, tuple) else (kind,))
    ):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        place = f"{where}: {key}" if where else key
        raise FormatError(f"{place}: found {quoted(repr(found), 40)}, {names} is required")
    return found
