"""BabelStream's text and CSV (versions 4 and 5).

BabelStream prints the best rate of each kernel, and the shortest, the longest and the mean time of it; the condition
`statistic` says which one a record is. The kernel that it calls Mul is STREAM's Scale.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import About, FormatError, Reader, number, ours, theirs
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record, Scalar

_KERNELS: Final = {
    "Copy": ("copy", 2, 2),  # name, arrays that it uses, elements that it moves
    "Mul": ("scale", 2, 2),
    "Add": ("add", 3, 3),
    "Triad": ("triad", 3, 3),
    "Dot": ("dot", 2, 2),
    "Nstream": ("nstream", 3, 4),
}
_LARGEST: Final = 1e18  # B/s
_CLASSIC: Final = ["Copy", "Mul", "Add", "Triad", "Dot"]
_UNIT: Final = {"m": (1e6, 2**20), "g": (1e9, 2**30), "t": (1e12, 2**40)}
_TEXT: Final = re.compile(r"^BabelStream\s*\nVersion: (\S+)\s*\nImplementation: ([^\n]+)", re.MULTILINE)
_HEAD: Final = re.compile(
    r"^function,num_times,n_elements,sizeof,max_([mgt])(i?)(?:bytes|b)_per_sec,min_runtime,max_runtime,avg_runtime\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_TABLE: Final = re.compile(r"Function\s+([MGT])(i?)B(?:ytes)?/s(?:ec)?\s+Min \(sec\)\s+Max\s+Average\s*")


def recognises(start: str) -> bool:
    return _TEXT.search(start) is not None or _HEAD.search(start) is not None


def read(text: str, machine: str) -> list[Record]:
    """The best rate and the times of each kernel."""
    if "Validation failed" in text or "FAILED validation" in text:
        raise FormatError("BabelStream: found a failed validation; results that do not validate are not imported")
    if not text.endswith("\n"):
        raise FormatError("BabelStream: found no end of the last line; the output is cut off")
    return _read_text(text, machine) if _TEXT.search(text) else _read_csv(text, machine)


def _read_text(text: str, machine: str) -> list[Record]:
    title = _TEXT.search(text)
    running = re.search(r"^Running (.*)", text, re.MULTILINE)
    precision = re.search(r"^Precision: (float|double)$", text, re.MULTILINE)
    array = re.search(r"^Array size: ([\d.]{1,20}) ([KMGT])(i?)B\b", text, re.MULTILINE)
    elements = re.search(r"^Number of elements: (\d{1,18})$", text, re.MULTILINE)
    if title is None or running is None or precision is None or array is None:
        raise FormatError("BabelStream: found no 'Running', 'Precision: double' or 'Array size: 268.4 MB'")
    times = re.search(r"(\d{1,9}) times", running[1])
    about = About(machine, "babelstream", title[1])
    width = 8 if precision[1] == "double" else 4
    if elements:
        each = int(elements[1]) * width
    else:
        unit = {"K": (1e3, 2**10), "M": (1e6, 2**20), "G": (1e9, 2**30), "T": (1e12, 2**40)}[array[2]]
        each = round(number(array[1], "BabelStream: Array size") * unit[bool(array[3])])
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if _TABLE.fullmatch(line)]
    if len(heads) != 1 or (head := _TABLE.fullmatch(lines[heads[0]])) is None:
        raise FormatError(
            f"BabelStream: found {len(heads)} lines 'Function MBytes/sec Min (sec) Max Average'; required: 1"
        )
    scale = _UNIT[head[1].lower()][bool(head[2])]
    made: list[Record] = []
    seen: list[str] = []
    for at in range(heads[0] + 1, len(lines)):
        cells = lines[at].split()
        if not cells:
            continue
        if cells[0] not in _KERNELS or cells[0] in seen or len(cells) != 5:
            raise FormatError(
                f"BabelStream: line {at + 1}: found '{quoted(lines[at], 40)}'; required: a kernel, 4 numbers"
            )
        seen.append(cells[0])
        conditions = {"implementation": title[2].strip(), "repetitions": int(times[1]) if times else None}
        made += _kernel(about, cells, scale, each, width, f"BabelStream: line {at + 1}", conditions)
    wanted = [*_CLASSIC, "Nstream"] if "All kernels" in running[1] else _CLASSIC
    only = [k for k in _KERNELS if re.search(rf"\b{k}\b", running[1], re.IGNORECASE)]
    if seen != (only or wanted):
        raise FormatError(f"BabelStream: found the kernels {', '.join(seen)}; required: {', '.join(only or wanted)}")
    return made


def _read_csv(text: str, machine: str) -> list[Record]:
    head = _HEAD.search(text)
    if head is None:
        raise FormatError("BabelStream: found no line 'function,num_times,…,avg_runtime'")
    about = About(machine, "babelstream")
    scale = _UNIT[head[1].lower()][bool(head[2])]
    first = text.count("\n", 0, head.start()) + 2
    made: list[Record] = []
    seen: list[str] = []
    for at, line in enumerate(text[head.end() :].lstrip("\n").splitlines(), first):
        if not line.strip():
            continue
        cells = line.strip().split(",")
        where = f"BabelStream: line {at}"
        if (
            len(cells) != 8
            or cells[0] not in _KERNELS
            or cells[0] in seen
            or not all(c.isdecimal() and len(c) < 19 for c in cells[1:4])
        ):
            raise FormatError(f"{where}: found '{quoted(line, 40)}'; required: another kernel and 7 numbers")
        seen.append(cells[0])
        elements, width = int(cells[2]), int(cells[3])
        if width not in (2, 4, 8) or not 0 < elements < 2**60:
            raise FormatError(f"{where}: found {cells[2][:40]} elements of {cells[3][:40]} B; required: of 2, 4 or 8 B")
        made += _kernel(
            about, [cells[0], *cells[4:]], scale, elements * width, width, where, {"repetitions": int(cells[1][:9])}
        )
        rate, best = made[-3].value, made[-2].value
        if not 0.99 < rate * best / (_KERNELS[cells[0]][2] * elements * width) < 1.01:
            raise FormatError(f"{where}: found a rate that its size and min_runtime do not give; a cell is damaged")
    if seen not in (_CLASSIC, [*_CLASSIC, "Nstream"]) and len(seen) != 1:
        raise FormatError(f"BabelStream: found the kernels {', '.join(seen)}; required: {', '.join(_CLASSIC)}, or one")
    return made


def _kernel(
    about: About, cells: list[str], scale: float, each: int, width: int, where: str, conditions: dict[str, Scalar]
) -> list[Record]:
    """The records of a line: the best rate, and the shortest and the mean time.

    Args:
        cells: Kernel, rate in `scale` B/s, and the three times in s.
        each: Size of an array in bytes.
        width: Of an element in bytes.
    """
    kernel, arrays, _ = _KERNELS[cells[0]]
    same = {"kernel": kernel, "footprint_bytes": arrays * each, "element_bytes": width, **conditions}
    rate = scale * number(cells[1], f"{where}: rate", above_zero=True)
    best, worst, mean = (number(c, f"{where}: time") for c in cells[2:])
    if not 0 <= best <= mean <= worst or rate > _LARGEST:
        raise FormatError(
            f"{where}: found {', '.join(cells[1:])}; required: a rate, then the shortest, longest and mean time"[:250]
        )
    rates = [ours(about, "bandwidth", "bandwidth_net", [rate], **same, statistic="best")]
    times = (("best", best), ("worst", worst), ("mean", mean))
    return rates + [
        theirs(about, "kernel_time", "s", "lower", [v], **same, statistic=s) for s, v in times[:1] + times[2:]
    ]


READERS: Final = [Reader("babelstream", "BabelStream, text or CSV", recognises, whole(read))]
