"""The recordings of a folder, by their names."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame
from meshmark.watch.recording import Recording
from meshmark.web.hub import Past
from meshmark.web.server import NotHere, reported
from meshmark.web.shelf import Shelf

MOST_RECORDINGS: Final = 200  # listed, the newest first
_KINDS: Final = (".parquet", ".part")


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """A file of the folder, as it is listed; `broken` says why it cannot be shown."""

    name: str
    changed: float  # s since 1970
    machine: str = ""
    started: str = ""
    frames: int = 0
    length_s: float = 0.0
    broken: str = ""


class Recordings:
    """The recordings that lie in a folder, by their names. What a link in it leads out to is not shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[tuple[str, int, int], RecordingRow] = {}
        self._shelf: Shelf[Past] = Shelf(kept=8, at_once=2)

    def rows(self) -> tuple[list[RecordingRow], int]:
        """Those to list, the newest first, and how many more there are."""
        found: list[tuple[str, os.stat_result]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_KINDS) and not entry.name.startswith("."):
                        with contextlib.suppress(OSError):  # gone meanwhile
                            found.append((entry.name, _stat(entry)))
        except OSError as why:
            raise MeshmarkError(f"{self.folder}: {why.strerror or why}") from why
        found.sort(key=lambda f: (-f[1].st_mtime, f[0]))
        rows: dict[tuple[str, int, int], RecordingRow] = {}
        for name, stat in found[:MOST_RECORDINGS]:
            key = (name, stat.st_mtime_ns, stat.st_size)
            rows[key] = self._rows.get(key) or self._row(name, stat)
        self._rows = rows  # what has gone is forgotten
        return list(rows.values()), max(0, len(found) - MOST_RECORDINGS)

    def _row(self, name: str, stat: os.stat_result) -> RecordingRow:
        if not addressable(name):
            return RecordingRow(name, stat.st_mtime, broken="has a name that is no UTF-8 text, and so no address")
        try:
            with reported("cannot be read"):
                recording = Recording(self.path(name))
                header, (frames, length_s) = recording.header, recording.extent()
        except MeshmarkError as why:
            told = " ".join(str(why).split())
            path = self.folder / name
            for before in (f"{path}:", f"{os.path.realpath(path)}:", f"recording {name}:"):
                told = told.removeprefix(" ".join(before.split())).lstrip()
            return RecordingRow(name, stat.st_mtime, broken=told[:200])
        return RecordingRow(name, stat.st_mtime, header.machine, header.started, frames, length_s)

    def path(self, name: str) -> Path:
        """Where the recording of that name lies.

        Raises:
            NotHere: none is listed under it.
        """
        with contextlib.suppress(OSError, ValueError):
            if name.endswith(_KINDS) and any(p.name == name for p in self.folder.iterdir()):
                path = Path(os.path.realpath(self.folder / name))
                if path.parent != Path(os.path.realpath(self.folder)):
                    raise NotHere(f"recording {name}: is a link that leads out of the folder")
                if not path.is_file():  # a link that leads nowhere or in a circle is none either
                    raise NotHere(f"recording {name}: is no file")
                return path
        raise NotHere(f"recording: found no '{name[:80]}'", "the front page lists what is there")

    async def open(self, name: str) -> Past:
        """Its frames."""
        path, key = await anyio.to_thread.run_sync(self._key, name)
        return await self._shelf.get(key, lambda: _past_of(path))

    def _key(self, name: str) -> tuple[Path, object]:
        path = self.path(name)
        try:
            stat = path.stat()
        except OSError as why:
            raise NotHere(f"recording {name}: {why.strerror or why}") from why
        return path, (name, stat.st_mtime_ns, stat.st_size)


def addressable(name: str) -> bool:
    """Whether a name of a file is text: an address is, and cannot lead to what is none."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Of what it leads to; of the link itself where that is nothing."""
    try:
        return entry.stat()
    except OSError:
        return entry.stat(follow_symlinks=False)


def _past_of(path: Path) -> Past:
    one = threading.Lock()  # a reader of Parquet is not made for two threads

    def load(begin: int, count: int) -> list[Frame]:
        with one, reported(f"{path}: cannot be read"):
            return recording.some(begin, count)

    with reported(f"{path}: cannot be read"):
        recording = Recording(path)
        return Past(recording.header, recording.count(), load)
