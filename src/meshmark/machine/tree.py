"""Reads small text files of a machine: below a root, which is `/` or a recorded tree, or in memory."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from meshmark.errors import MeshmarkError

MAX_CPUS = 1 << 16  # more than NR_CPUS of any Linux (8192); a bound for hostile input
_MAX_TEXT = 1 << 20  # more than the size of any file read here; Linux refuses reads of 4 MiB from /proc/sys


class MachineError(MeshmarkError):
    """The description of a machine cannot be read; the message names the file or field."""


class Files(ABC):
    """Small text files by their path below a root. Missing and unreadable files are None."""

    @property
    def live(self) -> bool:
        """Return whether the files belong to the running system rather than a recording."""
        return False

    @abstractmethod
    def data(self, name: str) -> bytes | None:
        """Return the first MiB of a file, as bytes."""

    @abstractmethod
    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder, in any order; empty if the folder is missing."""

    def exists(self, name: str) -> bool:
        """Return whether a file or folder exists, even if it cannot be read."""
        return self.data(name) is not None

    def register(self, cpu: int, number: int) -> int | None:
        """Return a model-specific register of a CPU; None unless this is the running system and the user is root."""
        return None

    def text(self, name: str) -> str | None:
        """Return the stripped text of a file; invalid UTF-8 is replaced."""
        data = self.data(name)
        return None if data is None else data.decode("utf-8", "replace").strip().strip("\0")

    def number(self, name: str) -> int | None:
        """Return the integer in a file, decimal or 0x…; None if the file is missing or contains anything else."""
        return parse_integer(self.text(name))

    def cpus(self, name: str) -> tuple[int, ...] | None:
        """Return the numbers in a file that contains a list such as `0-3,8`; None if it is missing or malformed."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_list(text)
        except MachineError:
            return None

    def numbered(self, folder: str, prefix: str) -> list[int]:
        """Return the sorted numbers N of the entries `prefixN` in a folder."""
        matches = (re.fullmatch(rf"{prefix}([0-9]{{1,7}})", name) for name in self.names(folder))
        return sorted({int(m[1]) for m in matches if m})


class FileTree(Files):
    """The files below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def live(self) -> bool:
        """Return whether the root is `/`, and not a recorded tree."""
        return self.root.resolve() == Path("/")

    def path(self, name: str) -> Path:
        """Return the path of a file, whose name is relative to the root."""
        return self.root / name

    def exists(self, name: str) -> bool:
        """Return whether a file or folder exists."""
        return self.path(name).exists()

    def data(self, name: str) -> bytes | None:
        """Return the beginning of a file; None if it is not a regular file or cannot be read."""
        try:
            path = self.root / name
            if not path.is_file():
                return None
            with path.open("rb") as file:
                return file.read(_MAX_TEXT)
        except (OSError, ValueError):
            return None

    def register(self, cpu: int, number: int) -> int | None:
        """Return the value of a model-specific register of a CPU; None if it cannot be read."""
        try:
            with self.path(f"dev/cpu/{cpu}/msr").open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), 8, number)
        except (OSError, ValueError):
            return None
        return int.from_bytes(data, "little") if len(data) == 8 else None

    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder; empty if it cannot be read."""
        try:
            return [p.name for p in (self.root / folder).iterdir()]
        except (OSError, ValueError):
            return []


class FilesInMemory(Files):
    """Files that were recorded.

    Args:
        files: Content by path below the root.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files
        self._folders: dict[str, set[str]] = {}
        for path in files:
            folder = path
            while folder:
                folder, _, name = folder.rpartition("/")
                entries = self._folders.setdefault(folder, set())
                if name in entries:
                    break
                entries.add(name)

    def data(self, name: str) -> bytes | None:
        """Return the beginning of a file; None if it does not exist."""
        content = self._files.get(name)
        return None if content is None else content[:_MAX_TEXT]

    def exists(self, name: str) -> bool:
        """Return whether a file or folder exists."""
        return name in self._files or name in self._folders

    def names(self, folder: str) -> Iterable[str]:
        """Return the names in a folder; empty if it does not exist."""
        return self._folders.get(folder, ())


def parse_integer(text: str | None) -> int | None:
    """Return the integer in a text, decimal or 0x…; None for anything else."""
    if text is None or not re.fullmatch(r"-?(0x[0-9a-fA-F]{1,16}|[0-9]{1,20})", text.strip()):
        return None
    return int(text, 16 if "x" in text else 10)


def kilobytes(text: str | None, name: str) -> int | None:
    """Return a field of a machine's or a node's meminfo, in bytes; None if it is missing."""
    match = re.search(rf"^(?:Node +[0-9]+ +)?{name}: *([0-9]{{1,18}}) kB", text or "", re.M | re.ASCII)
    return int(match[1]) * 1024 if match else None


def chosen(text: str | None) -> str | None:
    """Return the word in brackets in a text such as `always [madvise] never`; None without brackets."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match[1] if match else None


def parse_list(text: str) -> tuple[int, ...]:
    """Return the numbers of a list in the format of Linux, such as `0-3,8`, sorted and unique; () for empty text.

    Raises:
        MachineError: The text is not such a list, a range descends, or a number is 65536 or more.
    """
    numbers: set[int] = set()
    if text.strip() in {"", "(null)"}:
        return ()
    for part in text.strip().split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*", part, re.ASCII)
        if not match:
            raise MachineError(f"list '{text[:60]}': found '{part[:20]}'; allowed: numbers and ranges as in 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MAX_CPUS:
            raise MachineError(f"list '{text[:60]}': found '{part}'; allowed: ascending ranges below {MAX_CPUS}")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def allowed_in_status(status: str, what: Literal["Cpus", "Mems"]) -> tuple[int, ...] | None:
    """Return the CPUs or nodes that a process may use, from the list or else the mask in its /proc/PID/status.

    They may include numbers that do not exist. None if the text has neither.
    """
    words = dict(re.findall(rf"^({what}_allowed(?:_list)?):\s*(\S+)", status, re.M))
    try:
        if (ids := words.get(f"{what}_allowed_list")) is not None:
            return parse_list(ids)
    except MachineError:
        pass
    mask = words.get(f"{what}_allowed", "")
    if not re.fullmatch(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{8}){0,2047}", mask, re.ASCII):
        return None
    bits = int(mask.replace(",", ""), 16)
    return tuple(n for n in range(bits.bit_length()) if bits >> n & 1)


def format_list(numbers: tuple[int, ...] | list[int]) -> str:
    """Return numbers as a list that `parse_list` reads, such as `0-3,8`; `none` for an empty list."""
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "none"
