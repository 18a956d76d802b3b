"""Files that grow by whole lines: what a killed writer left of its last line was never claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MOST_LINE_BYTES = 16 << 20


def whole_lines(path: Path) -> Iterator[bytes]:
    """Lines that end in a newline; none of a file that is not there."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield line


def cut_torn_end(path: Path) -> None:
    """Takes a torn last line off, so that what is appended starts on a line of its own."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        tail = min(size, MOST_LINE_BYTES)
        file.seek(size - tail)
        data = file.read(tail)
        keep = data.rfind(b"\n") + 1
        if keep != len(data):
            file.truncate(size - tail + keep)
