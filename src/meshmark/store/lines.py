"""Reads and repairs append-only files of lines, whose writer may have been killed within the last line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from meshmark.store.files import open_regular

MAX_LINE_BYTES = 16 << 20


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, including the newline; no lines if the file does not exist.

    A line longer than `MAX_LINE_BYTES` is replaced by an empty line, which all readers ignore.

    Raises:
        OSError: The file cannot be read or is not a regular file.
    """
    try:
        lines = open_regular(path)
    except FileNotFoundError:
        return
    with lines:
        too_long = False
        while line := lines.readline(MAX_LINE_BYTES + 1):
            if not line.endswith(b"\n"):
                too_long = True  # or the incomplete end of the file
            elif too_long:
                too_long = False
                yield b"\n"
            else:
                yield line


def cut_torn_end(path: Path) -> None:
    """Remove an incomplete last line, so that appended lines start on a new line."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        tail = min(size, MAX_LINE_BYTES)
        file.seek(size - tail)
        data = file.read(tail)
        keep = data.rfind(b"\n") + 1
        if keep != len(data):
            file.truncate(size - tail + keep)
