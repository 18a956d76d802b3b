"""Names of nodes, and sets of them as administrators write them, such as `n[1-16,20]`, in the notation of ClusterShell.

A name of a node becomes a word of commands and part of a path. It is checked where it enters: from the command line,
from fleet.toml, from a batch system, and from files of campaigns. The nodes of a set are counted before they are built.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from meshmark.errors import UsageError, quoted

MAX_NODES: Final = 200_000  # in a set; the largest cluster by number of nodes, Fugaku, has 158,976
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")  # as in native/node/main.cpp
NAME: Final = "up to 200 letters, digits, '.', '-' and '_', not first '.' or '-'"
_EXAMPLE: Final = "a set such as n[1-16,20],gpu3"
_OPERATOR: Final = re.compile(r"\[[^\[\]]*\]|([,!&^])")  # brackets are skipped, since they have commas, too
_OPERAND: Final = re.compile(r"(?:[A-Za-z0-9._-]|\[[0-9,/-]+\])+")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+)(?:/(\d+))?)?", re.ASCII)
_MAX_DIGITS: Final = 18  # of a number in a range; a name may have more
_NUMBERS: Final = re.compile(r"(\d+)", re.ASCII)

Key = tuple[str | tuple[int, int], ...]


def is_name(text: object) -> bool:
    """Whether a text is a name of a node: letters, digits, `.`, `-` and `_`, and no path or option."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def checked_names(names: Iterable[object], field: str = "nodes") -> list[str]:
    """Return names of nodes as they are.

    Raises:
        UsageError: One is not a name of a node; the message begins with `field`.
    """
    checked = []
    for name in names:
        if not isinstance(name, str) or not is_name(name):
            raise UsageError(f"{field}: found '{quoted(name, 60)}'; a name of a node has {NAME}")
        checked.append(name)
    return checked


def own_node_name() -> str:
    """Return the name of this host, without its domain.

    Raises:
        UsageError: It is not a name of a node.
    """
    import socket

    name = socket.gethostname().partition(".")[0]
    if not is_name(name):
        raise UsageError(f"nodes: found this host's name '{quoted(name)}'; a name of a node has {NAME}", "--nodes NAME")
    return name


def expand(text: str, field: str = "nodes") -> list[str]:
    """Return the names in a set, in natural order.

    Ranges may have leading zeros and steps (`n[01-16/2]`), and a name several ranges (`r[1-4]n[1-16]`). Sets are
    combined from left to right by `,` (union), `!` (difference), `&` (intersection) and `^` (either, not both).

    Raises:
        UsageError: The text is not a set, or the set has more than `MAX_NODES` nodes; the message begins with `field`.
    """
    text = text.strip()
    if not text:
        return []
    if (count := text.count(",")) >= 2 * MAX_NODES:
        raise UsageError(
            f"{field}: found '{quoted(text, 60)}' with {count:,} commas; allowed: up to {MAX_NODES:,} nodes"
        )
    if "@" in text or "*" in text:
        hint = f"nodeset --fold {text} prints its nodes" if re.fullmatch(r"@[\w.:-]{1,60}", text, re.ASCII) else ""
        raise UsageError(f"{field}: found '{quoted(text)}'; groups and wildcards are not allowed, but {_EXAMPLE}", hint)
    operands = _operands(text)
    for _, operand in operands:
        if not _OPERAND.fullmatch(operand):
            rule = f"a name of a node has {NAME}" if operand and "[" not in operand else f"allowed: {_EXAMPLE}"
            raise UsageError(f"{field}: found '{quoted(text)}'; {rule}")
    if (count := sum(_count(operand, field, text) for _, operand in operands)) > MAX_NODES:
        number = f"{count:,}" if count < 10**_MAX_DIGITS else "too many"
        raise UsageError(f"{field}: found '{quoted(text)}' with {number} nodes; allowed: up to {MAX_NODES:,}")
    names: dict[str, None] = {}
    for operator, operand in operands:
        these = dict.fromkeys(_names(operand, field, text))
        if operator == ",":
            names |= these
        elif operator == "&":
            names = {name: None for name in names if name in these}
        else:
            more = [name for name in these if name not in names] if operator == "^" else []
            names = {name: None for name in names if name not in these} | dict.fromkeys(more)
    return in_order(checked_names(names, field))


def fold(names: Iterable[str]) -> str:
    """Return the set of these names, in natural order; the inverse of `expand`."""
    rows = [tuple(_NUMBERS.split(name)) for name in in_order(dict.fromkeys(names))]  # text, number, text, …
    # From the last number to the first, rows that differ only in this number become one with a range in its place.
    for at in range(max(map(len, rows), default=1) - 2, 0, -2):
        numbers: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            key = (*row[:at], "", *row[at + 1 :]) if at < len(row) else row
            numbers.setdefault(key, []).append(row[at] if at < len(row) else "")
        rows = [(*key[:at], _ranges(of), *key[at + 1 :]) if of[0] else key for key, of in numbers.items()]
    return ",".join(map("".join, rows))


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of their numbers: n2 before n10."""
    return sorted(names, key=_natural)


def _natural(name: str) -> Key:
    return tuple((int(part), len(part)) if i % 2 else part for i, part in enumerate(_NUMBERS.split(name)))


# ------------------------------------------------------------------ parts


def _operands(text: str) -> list[tuple[str, str]]:
    """The operands of a set, each with the operator before it."""
    operands, operator, start = [], ",", 0
    for match in _OPERATOR.finditer(text):
        if match[1]:
            operands.append((operator, text[start : match.start()]))
            operator, start = match[1], match.end()
    return [*operands, (operator, text[start:])]


def _brackets(operand: str) -> tuple[list[str], list[list[str]]]:
    """The texts of an operand outside of brackets, and the ranges of each bracket between them."""
    parts = re.split(r"\[([^\]]*)\]", operand)
    return parts[::2], [part.split(",") for part in parts[1::2]]


def _count(operand: str, field: str, whole: str) -> int:
    """The number of names that an operand gives."""
    _, brackets = _brackets(operand)
    return math.prod(
        sum((last - first) // step + 1 for first, last, step, _ in (_bounds(text, field, whole) for text in ranges))
        for ranges in brackets
    )


def _names(operand: str, field: str, whole: str) -> Iterator[str]:
    texts, brackets = _brackets(operand)
    choices: list[Sequence[str]] = [[texts[0]]]
    for ranges, text in zip(brackets, texts[1:], strict=True):
        numbers: list[str] = []
        for bounds in ranges:
            first, last, step, width = _bounds(bounds, field, whole)
            numbers += [f"{number:0{width}d}" for number in range(first, last + 1, step)]
        choices += [numbers, [text]]
    return map("".join, itertools.product(*choices))


def _bounds(text: str, field: str, whole: str) -> tuple[int, int, int, int]:
    """The first and the last number of a range, its step, and its width if it has leading zeros, otherwise 0."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"{field}: found '{quoted(whole)}'; allowed: {_EXAMPLE}")
    first, last, step = match[1], match[2] or match[1], match[3] or "1"
    digits = max(len(first), len(last), len(step))
    if digits > (_MAX_DIGITS if match[2] else 200):  # a single number is only a part of a name
        what = f"a number of {digits} digits"
        raise UsageError(f"{field}: found '{quoted(whole, 60)}' with {what}; allowed: up to {MAX_NODES:,} nodes")
    width = max(_padded(first), _padded(last))
    if int(first) > int(last) or int(step) < 1 or (width and len(first) != len(last)):
        rule = "ascending ranges such as 1-16 or 01-16, with steps from 1"
        raise UsageError(f"{field}: found '{quoted(whole)}', at {text}; allowed: {rule}")
    return int(first), int(last), int(step), width


def _ranges(numbers: Iterable[str]) -> str:
    """Numbers as one text: `7`, or `[1-4,7]`."""
    runs: list[list[str]] = []
    distinct = set(numbers)
    widths = set(map(_padded, distinct))
    # 10 continues 08 and 09 if all three are there.
    for number in sorted(distinct, key=lambda text: (len(text) if len(text) in widths else 0, int(text))):
        last = runs[-1][-1] if runs else ""
        # The widths of all numbers of a run with leading zeros are equal.
        joins = last and int(number) == int(last) + 1 and len(number) <= _MAX_DIGITS
        if joins and (len(number) == len(runs[-1][0]) or not (_padded(number) or _padded(runs[-1][0]))):
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    if len(runs) == 1 and len(runs[0]) == 1:
        return runs[0][0]
    return f"[{','.join('-'.join(run) for run in runs)}]"


def _padded(number: str) -> int:
    """The width of a number with leading zeros, and 0 of others."""
    return len(number) if len(number) > 1 and number[0] == "0" else 0
