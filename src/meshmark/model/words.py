"""Text as people write it, to numbers: `512KiB`, `4KiB..1GiB`, `1..16`, `0-3,8`, `all`. Same words as the probe's."""

from __future__ import annotations

import re

from meshmark.errors import UsageError
from meshmark.store.files import quoted

_UNITS = {"": 1, "b": 1}
for _i, _p in enumerate("kmgt", 1):
    _UNITS |= {f"{_p}b": 1000**_i, f"{_p}ib": 1024**_i, _p: 1024**_i}


def size(field: str, text: str) -> int:
    """Bytes of `512KiB`, `64MB`, `64`.

    Raises:
        UsageError: it is no size.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].lower() not in _UNITS:
        raise UsageError(f"{field}: found '{text}', a size like 512KiB or 64MB is needed")
    value = float(match[1]) * _UNITS[match[2].lower()]
    if not 1 <= value < 2**60:
        raise UsageError(f"{field}: found '{text}', at least one byte and less than 1 EiB is needed")
    return int(value)


def sizes(field: str, text: str) -> list[int]:
    """`A`, `A,B`, `A..B` (doubling), `A..B/4` (4 points an octave)."""
    found: list[int] = []
    for part in text.split(","):
        low, dots, rest = part.partition("..")
        if not dots:
            found.append(size(field, part))
            continue
        high, slash, steps = rest.partition("/")
        points = int(steps) if slash and re.fullmatch("[0-9]{1,3}", steps) else int(not slash)
        if not 1 <= points <= 64:
            raise UsageError(f"{field}: found '{part}', 1 to 64 points an octave are allowed")
        a, b = size(field, low), size(field, high)
        if b < a:
            raise UsageError(f"{field}: found '{part}', the second must not be less than the first")
        k = 0
        while (value := round(a * 2 ** (k / points))) <= b:
            found.append(value)
            k += 1
    return found


def integers(field: str, text: str, most: int, least: int = 1) -> list[int]:
    """`1,2,4`, `1..16` (doubling, and the end), `0-3`, `all` (which is `most`)."""
    found: list[int] = []
    for part in (p.strip() for p in text.split(",")):
        match = re.fullmatch(r"([0-9]+|all)(?:(\.\.|-)([0-9]+|all))?", part)
        if match is None:
            raise UsageError(f"{field}: found '{part}', a number, a range or all is needed")
        ends = [_integer(field, end, most, least) for end in (match[1], match[3] or match[1])]
        a, b = ends
        if b < a:
            raise UsageError(f"{field}: found '{part}', the second must not be less than the first")
        if match[2] == "-":
            found += range(a, b + 1)
            continue
        while 0 < a < b:
            found.append(a)
            a *= 2
        found.append(b)
    return list(dict.fromkeys(found))


def _integer(field: str, text: str, most: int, least: int) -> int:
    # Longer ones are not even numbers to Python.
    value = most if text == "all" else int(text) if len(text) < 20 else -1
    if not least <= value <= most:
        raise UsageError(f"{field}: found {quoted(text)}, allowed are {least} to {most}")
    return value


def choice(field: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """A comma list, each of `allowed`."""
    found = [p.strip() for p in text.split(",")]
    for p in found:
        if p not in allowed:
            raise UsageError(f"{field}: found '{p}', allowed are {', '.join(allowed)}")
    return found
