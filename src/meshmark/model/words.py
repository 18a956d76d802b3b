"""Text as people write it, to numbers: `512KiB`, `4KiB..1GiB`, `1..16`, `0-3,8`, `all`. Same words as the probe's."""

from __future__ import annotations

import re

from meshmark.errors import UsageError

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
        points = int(steps) if slash and steps.isdigit() else 1
        if slash and not 1 <= points <= 64:
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
        if part == "all":
            found.append(most)
        elif match := re.fullmatch(r"(\d+)\.\.(\d+|all)", part):
            a, b = int(match[1]), most if match[2] == "all" else int(match[2])
            while 0 < a < b:
                found.append(a)
                a *= 2
            found.append(b)
        elif match := re.fullmatch(r"(\d+)-(\d+)", part):
            found += range(int(match[1]), int(match[2]) + 1)
        elif part.isdigit():
            found.append(int(part))
        else:
            raise UsageError(f"{field}: found '{part}', a number, a range or all is needed")
    for n in found:
        if not least <= n <= most:
            raise UsageError(f"{field}: found {n}, allowed are {least} to {most}")
    return list(dict.fromkeys(found))


def choice(field: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    """A comma list, each of `allowed`."""
    found = [p.strip() for p in text.split(",")]
    for p in found:
        if p not in allowed:
            raise UsageError(f"{field}: found '{p}', allowed are {', '.join(allowed)}")
    return found
