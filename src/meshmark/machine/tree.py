"""Reads small text files below a root, either `/` or a recorded tree."""

from __future__ import annotations

import re
from pathlib import Path

from meshmark.errors import MeshmarkError

MAX_CPUS = 1 << 16  # above NR_CPUS of any Linux (8192); a bound for hostile input
_MAX_TEXT = 1 << 20  # above the size of any file read here; Linux refuses reads of 4 MiB from /proc/sys


class MachineError(MeshmarkError):
    """The description of a machine cannot be read; the message names the file or field."""


class Tree:
    """The files below `root`. Missing and unreadable files are None."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def live(self) -> bool:
        """Whether the root is the running system rather than a recording."""
        return self.root.resolve() == Path("/")

    def path(self, name: str) -> Path:
        return self.root / name

    def text(self, name: str) -> str | None:
        """The stripped text of a file; invalid UTF-8 is replaced."""
        data = self.data(name)
        return None if data is None else data.decode("utf-8", "replace").strip().strip("\0")

    def data(self, name: str) -> bytes | None:
        """The first MiB of a file, as bytes."""
        try:
            path = self.root / name
            if not path.is_file():
                return None
            with path.open("rb") as file:
                return file.read(_MAX_TEXT)
        except (OSError, ValueError):
            return None

    def number(self, name: str) -> int | None:
        """A file that contains one integer, decimal or 0x…"""
        return parse_integer(self.text(name))

    def cpus(self, name: str) -> tuple[int, ...] | None:
        """A file that contains a list such as `0-3,8`; None if it is missing or malformed."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_list(text)
        except MachineError:
            return None

    def numbered(self, folder: str, prefix: str) -> list[int]:
        """Sorted numbers N of the entries `prefixN` in a folder."""
        try:
            names = [p.name for p in (self.root / folder).iterdir()]
        except (OSError, ValueError):
            return []
        found = (re.fullmatch(rf"{prefix}([0-9]{{1,7}})", name) for name in names)
        return sorted({int(m[1]) for m in found if m})


def parse_integer(text: str | None) -> int | None:
    """One integer, decimal or 0x…; None for anything else."""
    if text is None or not re.fullmatch(r"-?(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})", text.strip()):
        return None
    return int(text, 16 if "x" in text else 10)


def kilobytes(text: str | None, name: str) -> int | None:
    """A field of a machine's or a node's meminfo, in bytes; None if it is missing."""
    match = re.search(rf"^(?:Node +[0-9]+ +)?{name}: *([0-9]{{1,18}}) kB", text or "", re.M | re.ASCII)
    return int(match[1]) * 1024 if match else None


def chosen(text: str | None) -> str | None:
    """The word in brackets in a text such as `always [madvise] never`; None if there is none."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match[1] if match else None


def parse_list(text: str) -> tuple[int, ...]:
    """Numbers of a list in the format of Linux, such as `0-3,8`, sorted and unique; empty text is an empty list.

    Raises:
        MachineError: The text is not such a list, a range descends, or a number is 65536 or more.
    """
    found: set[int] = set()
    if text.strip() in {"", "(null)"}:
        return ()
    for part in text.strip().split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part, re.ASCII)
        if not match:
            raise MachineError(f"list '{text[:60]}': found '{part[:20]}'; allowed: numbers and ranges as in 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MAX_CPUS:
            raise MachineError(f"list '{text[:60]}': found '{part}'; allowed: ascending ranges below {MAX_CPUS}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def format_list(numbers: tuple[int, ...] | list[int]) -> str:
    """The inverse of `parse_list`, such as `0-3,8`; `none` for an empty list."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"
