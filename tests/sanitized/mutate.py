"""Damages bytes and command lines as disks, editors and attackers do: the same seed gives the same damage."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"2147483647",
    b"2147483648",
    b"-2147483649",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1e999",
    b"-1e308",
    b"5e-324",
    b"0.5",
    b"1e19",
    b"99999999999999999999",
    b"nan",
    b"0x10",
    b"00",
    b"1" * 400,
)
_TOKENS = (
    b"\x00",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    b"\n",
    b"\r\n",
    b'"',
    b"'",
    b"<",
    b">",
    b"&#0;",
    b"]]>",
    b"<!--",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"..",
    b"-",
    b"%s%n",
    b"\x1b[2J",
    b"null",
    b"true",
    b" " * 300,
)


def _place(chance: random.Random, data: bytes) -> tuple[int, int]:
    """Return the begin and end of a range, usually a short one."""
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + int(2 ** (chance.random() * 10)))


def _once(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    begin, end = _place(chance, data)
    kind = chance.randrange(10)
    if kind == 0 and data:  # flip a bit
        position = chance.randrange(len(data))
        return data[:position] + bytes([data[position] ^ 1 << chance.randrange(8)]) + data[position + 1 :]
    if kind == 1:  # truncate
        return data[:begin]
    if kind == 2:  # remove a range
        return data[:begin] + data[end:]
    if kind == 3:  # repeat a range twice or many times
        return data[:begin] + data[begin:end] * chance.choice((2, 2, 3, 50)) + data[end:]
    if kind == 4:  # insert a range of another input
        other = chance.choice(others)
        first, last = _place(chance, other)
        return data[:begin] + other[first:last] + data[end:]
    if kind in (5, 6):  # replace a number
        if matches := list(_NUMBER.finditer(data)):
            position = chance.choice(matches)
            return data[: position.start()] + chance.choice(_NUMBERS) + data[position.end() :]
        return data
    if kind == 7:  # insert a significant word
        return data[:begin] + chance.choice(_TOKENS) + data[begin:]
    if kind == 8:  # swap two numbers
        if len(matches := list(_NUMBER.finditer(data))) > 1:
            former, two = sorted(chance.sample(matches, 2), key=lambda m: m.start())
            middle = data[former.end() : two.start()]
            return data[: former.start()] + two[0] + middle + former[0] + data[two.end() :]
        return data
    deep = chance.choice((10, 300, 20_000))  # nest deeply
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<object>", b"</object>"), (b"(", b")")))
    return data[:begin] + opening * deep + data[begin:end] + closing * chance.choice((0, deep)) + data[end:]


def damaged(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Return the data with one to eight damages; `others` are inputs of the same kind."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        data = _once(chance, data, others)
    return data[: 1 << 20]


def damaged_words(chance: random.Random, words: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return a command line with words removed, doubled, swapped, inserted from `others`, or damaged, without NUL
    bytes."""
    result = list(words)
    for _ in range(chance.choice((1, 1, 2, 4))):
        position = chance.randrange(len(result)) if result else 0
        kind = chance.randrange(6)
        if kind == 0:
            del result[position : position + 1]
        elif kind == 1:
            result.insert(position, chance.choice(others))
        elif kind == 2 and result:
            result[position] = chance.choice(others)
        elif kind == 3 and len(result) > 1:
            target = chance.randrange(len(result))
            result[position], result[target] = result[target], result[position]
        elif result:
            data = damaged(chance, os.fsencode(result[position]), [os.fsencode(word) for word in others])
            result[position] = os.fsdecode(data[:10_000].replace(b"\x00", b"0"))
    return result
