"""Parts that all readers of other tools' output use: numbers, fields, and errors that exclude an item or a file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.values.numbers import decimal


class FormatError(UsageError):
    """An item of a file, or the whole file, is damaged, incomplete or of an unknown variant."""


class UnknownMeaningError(FormatError):
    """The unit or the meaning of a column is unknown. Such a file is refused, since all its rows are in doubt."""


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """The tool that produced the numbers, and facts about its run; "" for facts that the file does not state.

    Attributes:
        tool: Name of the tool.
        version: Version of the tool.
        command: Command that was run.
        start: Start of the run in ISO 8601.
    """

    tool: str
    version: str = ""
    command: str = ""
    start: str = ""


@dataclass(frozen=True, slots=True)
class FormatReader:
    """A format.

    Attributes:
        name: Name of the format, as in messages.
        title: Description of the format for documentation.
        recognises: Function that returns whether the first 64 KiB of a file have this format. It does not raise, and
            takes linear time. See `has`.
        read: Function that adds the records of a `ToolOutput` to it, and counts the items that it leaves out; see
            `output`. It raises FormatError.
        tool: Name of the tool in the provenance of records, if it differs from the name of the format.
        version: Version of the reader, recorded as `reader_version` in the provenance of its records. It is increased
            when output that was imported before would give other records; `store verify` then finds the old records.
            Records without it have version 1.
    """

    name: str
    title: str
    recognises: Callable[[str], object]
    read: Callable[[Any], None]  # takes an output.ToolOutput
    version: int = 1
    tool: str = ""


def has(*patterns: str | re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function that returns whether a text matches one of the patterns; `^` and `$` match at line ends."""
    compiled = [re.compile(pattern, re.MULTILINE) if isinstance(pattern, str) else pattern for pattern in patterns]
    return lambda text: any(pattern.search(text) for pattern in compiled)


def number(text: str, where: str, *, above_zero: bool = False) -> float:
    """Return a finite number at a place in a file.

    Args:
        text: The number as the file states it.
        where: The place, such as `line 12: bandwidth`.
        above_zero: Whether 0 and negative numbers are refused.

    Raises:
        FormatError: The text is not a finite number, or not above 0 although it must be.
    """
    value = decimal(text)
    if value is None:
        raise FormatError(f"{where}: found '{quoted(text, 40)}', a number is required")
    if above_zero and value <= 0:
        raise FormatError(f"{where}: found {quoted(text, 40)}, a number above 0 is required")
    return value


def unexpected(value: object, required: str, where: str = "") -> FormatError:
    """Return an error that states the value in a file, and what is required in its place."""
    return FormatError(f"{where + ': ' if where else ''}found '{quoted(value, 40)}', {required} is required")


def matched(pattern: str | re.Pattern[str], text: str, required: str, where: str = "") -> re.Match[str]:
    """Return the match of a pattern with a whole text.

    Args:
        pattern: The regular expression.
        required: Description of a valid text, such as `a name`.
        where: The place in the file, if the message must name it.

    Raises:
        FormatError: The text does not match.
    """
    match = re.fullmatch(pattern, text)
    if match is None:
        raise unexpected(text, required, where)
    return match


def count(text: str, where: str = "") -> int:
    """Return a whole number of at least 0 with at most 18 digits.

    Raises:
        FormatError: The text is not such a number.
    """
    return int(matched(r"\d{1,18}", text, "a count", where)[0])


def ctime(text: str) -> str:
    """Return a time that C printed, such as `Mon Jul  5 17:04:56 2021`, in ISO 8601; "" for any other text."""
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y").isoformat()
    except ValueError:
        return ""


_SIZES: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size(text: str, where: str) -> int:
    """Return a size such as `64`, `64k`, `64KiB` or `1.5 MB` in bytes; all prefixes are binary, as in these tools.

    Raises:
        FormatError: The text is not a size.
    """
    match = matched(r"(?i)([\d.]+)\s*([kmgt]?)i?b?(?:ytes?)?", text.strip(), "a size", where)
    return round(number(match[1], where) * _SIZES[match[2].lower()])


def field(values: Any, key: Any, kind: type | tuple[type, ...], where: str = "") -> Any:
    """Return a field of a JSON or YAML object; the key may be any text of the file.

    Raises:
        FormatError: The field is missing or has another type.
    """
    value = values.get(key) if isinstance(values, dict) else None
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise FormatError(f"{place_of(where, key)}: found {quoted(repr(value), 40)}, {names} is required")
    return value


def place_of(where: str, key: object) -> str:
    """Return the place of a key of an object in a file, such as `jobs[0]: read`."""
    return f"{where}: {quoted(key, 60)}" if where else quoted(key, 60)
