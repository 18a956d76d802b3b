"""Lists and opens the recordings in a folder."""

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
from meshmark.watch.recording import RecordingFile
from meshmark.web.hub import StoredFrames
from meshmark.web.server import NotFoundError, reported
from meshmark.web.shelf import ResultCache

MAX_RECORDINGS: Final = 200  # number of recordings listed, the newest first
_KINDS: Final = (".parquet", ".part")


@dataclass(frozen=True, slots=True)
class RecordingRow:
    """A file in the list; `broken` is the reason why the file cannot be shown, or ""."""

    name: str
    changed: float  # s since 1970
    machine: str = ""
    started: str = ""
    frames: int = 0
    length_s: float = 0.0
    broken: str = ""


class Recordings:
    """The recordings in a folder, by name. Links that lead out of the folder are not shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[tuple[str, int, int], RecordingRow] = {}
        self._shelf: ResultCache[StoredFrames] = ResultCache(kept=8, at_once=2)

    def rows(self) -> tuple[list[RecordingRow], int]:
        """Return the newest recordings, newest first, and the number of older ones.

        Raises:
            MeshmarkError: The folder cannot be read.
        """
        files: list[tuple[str, os.stat_result]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(_KINDS) and not entry.name.startswith("."):
                        with contextlib.suppress(OSError):  # removed in the meantime
                            files.append((entry.name, _stat(entry)))
        except OSError as error:
            raise MeshmarkError(f"{self.folder}: {error.strerror or error}") from error
        files.sort(key=lambda f: (-f[1].st_mtime, f[0]))
        rows: dict[tuple[str, int, int], RecordingRow] = {}
        for name, stat in files[:MAX_RECORDINGS]:
            key = (name, stat.st_mtime_ns, stat.st_size)
            rows[key] = self._rows.get(key) or self._row(name, stat)
        self._rows = rows  # drops removed files from the cache
        return list(rows.values()), max(0, len(files) - MAX_RECORDINGS)

    def _row(self, name: str, stat: os.stat_result) -> RecordingRow:
        if not addressable(name):
            return RecordingRow(name, stat.st_mtime, broken="its name is not UTF-8, so it has no address")
        try:
            with reported("cannot be read"):
                recording = RecordingFile(self.path(name))
                header, (frames, length_s) = recording.header, recording.extent()
        except MeshmarkError as error:
            message = " ".join(str(error).split())
            path = self.folder / name
            for prefix in (f"{path}:", f"{os.path.realpath(path)}:", f"recording {name}:"):
                message = message.removeprefix(" ".join(prefix.split())).lstrip()
            return RecordingRow(name, stat.st_mtime, broken=message[:200])
        return RecordingRow(name, stat.st_mtime, header.machine, header.started, frames, length_s)

    def path(self, name: str) -> Path:
        """Return the path of a recording.

        Raises:
            NotFoundError: No recording of this name is listed.
        """
        with contextlib.suppress(OSError, ValueError):
            if name.endswith(_KINDS) and any(p.name == name for p in self.folder.iterdir()):
                path = Path(os.path.realpath(self.folder / name))
                if path.parent != Path(os.path.realpath(self.folder)):
                    raise NotFoundError(f"recording {name}: is a link that leads out of the folder")
                if not path.is_file():  # includes broken and circular links
                    raise NotFoundError(f"recording {name}: is not a file")
                return path
        raise NotFoundError(f"recording: found no '{name[:80]}'", "the front page lists what is there")

    async def open(self, name: str) -> StoredFrames:
        """Return the frames of a recording.

        Raises:
            NotFoundError: No recording of this name is listed.
            MeshmarkError: The recording cannot be read.
        """
        path, key = await anyio.to_thread.run_sync(self._key, name)
        return await self._shelf.get(key, lambda: _past_of(path))

    def _key(self, name: str) -> tuple[Path, object]:
        path = self.path(name)
        try:
            stat = path.stat()
        except OSError as error:
            raise NotFoundError(f"recording {name}: {error.strerror or error}") from error
        return path, (name, stat.st_mtime_ns, stat.st_size)


def addressable(name: str) -> bool:
    """Return whether a file name is UTF-8 text, as addresses require."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Return the status of an entry's target, or of the link itself if the target does not exist."""
    try:
        return entry.stat()
    except OSError:
        return entry.stat(follow_symlinks=False)


def _past_of(path: Path) -> StoredFrames:
    lock = threading.Lock()  # readers of Parquet are not thread-safe

    def load(begin: int, count: int) -> list[Frame]:
        with lock, reported(f"{path}: cannot be read"):
            return recording.some(begin, count)

    with reported(f"{path}: cannot be read"):
        recording = RecordingFile(path)
        return StoredFrames(recording.header, recording.count(), load)
