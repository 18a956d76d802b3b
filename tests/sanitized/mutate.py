"""Damages bytes and command lines as disks, editors and enemies do: the same seed, the same damage."""

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
    """Begin and end of a piece, mostly a short one."""
    begin = chance.randrange(len(data) + 1)
    return begin, min(len(data), begin + int(2 ** (chance.random() * 10)))


def _once(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    begin, end = _place(chance, data)
    kind = chance.randrange(10)
    if kind == 0 and data:  # flip a bit
        position = chance.randrange(len(data))
        return data[:position] + bytes([data[position] ^ 1 << chance.randrange(8)]) + data[position + 1 :]
    if kind == 1:  # cut off
        return data[:begin]
    if kind == 2:  # leave out
        return data[:begin] + data[end:]
    if kind == 3:  # twice, or many times
        return data[:begin] + data[begin:end] * chance.choice((2, 2, 3, 50)) + data[end:]
    if kind == 4:  # a piece of another
        other = chance.choice(others)
        first, last = _place(chance, other)
        return data[:begin] + other[first:last] + data[end:]
    if kind in (5, 6):  # another number
        if matches := list(_NUMBER.finditer(data)):
            position = chance.choice(matches)
            return data[: position.start()] + chance.choice(_NUMBERS) + data[position.end() :]
        return data
    if kind == 7:  # a word that matters
        return data[:begin] + chance.choice(_TOKENS) + data[begin:]
    if kind == 8:  # two numbers change places
        if len(matches := list(_NUMBER.finditer(data))) > 1:
            one, two = sorted(chance.sample(matches, 2), key=lambda m: m.start())
            middle = data[one.end() : two.start()]
            return data[: one.start()] + two[0] + middle + one[0] + data[two.end() :]
        return data
    deep = chance.choice((10, 300, 20_000))  # nested
    opened, closed = chance.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"<object>", b"</object>"), (b"(", b")")))
    return data[:begin] + opened * deep + data[begin:end] + closed * chance.choice((0, deep)) + data[end:]


def damaged(chance: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to eight damages; `others` are of the same kind."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        data = _once(chance, data, others)
    return data[: 1 << 20]


def damaged_words(chance: random.Random, words: Sequence[str], others: Sequence[str]) -> list[str]:
    """A command line: words left out, doubled, exchanged, of others, or damaged themselves. No word holds a NUL."""
    made = list(words)
    for _ in range(chance.choice((1, 1, 2, 4))):
        position = chance.randrange(len(made)) if made else 0
        kind = chance.randrange(6)
        if kind == 0:
            del made[position : position + 1]
        elif kind == 1:
            made.insert(position, chance.choice(others))
        elif kind == 2 and made:
            made[position] = chance.choice(others)
        elif kind == 3 and len(made) > 1:
            to = chance.randrange(len(made))
            made[position], made[to] = made[to], made[position]
        elif made:
            data = damaged(chance, os.fsencode(made[position]), [os.fsencode(word) for word in others])
            made[position] = os.fsdecode(data[:10_000].replace(b"\x00", b"0"))
    return made
