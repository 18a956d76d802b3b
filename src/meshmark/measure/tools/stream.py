"""STREAM's output (McCalpin; C version 5.9 and 5.10).

STREAM prints the best of its repetitions, so its rates have no interval and the condition `statistic` says `best`.
"""

from __future__ import annotations

import re
from typing import Final

from meshmark.measure.tools.base import About, FormatError, Reader, number, ours
from meshmark.measure.tools.output import whole
from meshmark.store.record import Record

_KERNELS: Final = {"Copy": "copy", "Scale": "scale", "Add": "add", "Triad": "triad"}
_ARRAYS: Final = {"copy": 2, "scale": 2, "add": 3, "triad": 3}


def recognises(start: str) -> bool:
    return "STREAM version $Revision" in start and "BabelStream" not in start


def read(text: str, machine: str) -> list[Record]:
    """The best rate of each kernel."""
    version = re.search(r"STREAM version \$Revision: ([\d.]+)", text)
    elements = re.search(r"Array size = (\d+)", text)
    width = re.search(r"uses (\d+) bytes per", text)
    threads = re.search(r"Number of Threads (?:counted|requested) = (\d+)", text)
    if elements is None or width is None:
        raise FormatError("STREAM: found no array size, 'Array size =' and 'bytes per array element' are required")
    about = About(machine, "stream", version[1] if version else "")
    made = []
    for at, line in enumerate(text.splitlines(), 1):
        if (match := re.match(r"(Copy|Scale|Add|Triad):\s+(\S+)", line)) is None:
            continue
        kernel = _KERNELS[match[1]]
        rate = 1e6 * number(match[2], f"STREAM: line {at}: rate of {kernel}", above_zero=True)
        footprint = _ARRAYS[kernel] * int(elements[1]) * int(width[1])
        made.append(
            ours(
                about,
                "bandwidth",
                "bandwidth_net",
                [rate],
                kernel=kernel,
                threads=int(threads[1]) if threads else 1,
                footprint_bytes=footprint,
                statistic="best",
            )
        )
    if len(made) != len(_KERNELS):
        raise FormatError(f"STREAM: found {len(made)} of 4 rates; the output is incomplete")
    if "Solution Validates" not in text:
        raise FormatError("STREAM: found no 'Solution Validates'; results that do not validate are not imported")
    return made


READERS: Final = [Reader("stream", "STREAM (C), text", recognises, whole(read), version=2)]
