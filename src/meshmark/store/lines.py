"""Files that grow by whole lines: what a killed writer left of its last line was never claimed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshmark.store.files import open_regular

MOST_LINE_BYTES = 16 << 20


def whole_lines(path: Path) -> Iterator[bytes]:
    """Lines that end in a newline, each of at most `MOST_LINE_BYTES`; a longer one comes as an empty line, which no
    reader takes for one of its own. None of a file that is not there.

    Raises:
        OSError: it is there and cannot be read, or is no regular file.
    """
    try:
        lines = open_regular(path)
    except FileNotFoundError:
        return
    with lines:
        too_long = False
        while line := lines.readline(MOST_LINE_BYTES + 1):
            if not line.endswith(b"\n"):
                too_long = True  # or the torn end of the file
            elif too_long:
                too_long = False
                yield b"\n"
            else:
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
