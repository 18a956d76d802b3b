"""A file of events that survives a crash at any moment."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError
from meshmark.store.files import make_folder, open_private, sync_folder
from meshmark.store.session import cut_torn_end, whole_lines


class Journal:
    """A file with one event on each line; an event is on disk before it counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: Mapping[str, Any]) -> None:
        """Append an event, with the time as `at`.

        Raises:
            MeshmarkError: The file cannot be written.
        """
        line = json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **event}).encode() + b"\n"
        try:
            make_folder(self.path.parent)
            with open_private(self.path, "ab", 0) as file:
                created = os.fstat(file.fileno()).st_size == 0
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            if created:
                sync_folder(self.path.parent)
        except OSError as error:
            raise MeshmarkError(f"cannot write {self.path}: {error.strerror}") from error

    def read(self) -> list[dict[str, Any]]:
        """Return all whole events, oldest first. A torn event at the end is removed."""
        return [event for _, event in self.numbered()]

    def numbered(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the events that `read` returns, each with the number of its line, from 1.

        Raises:
            MeshmarkError: The file cannot be read.
        """
        try:
            cut_torn_end(self.path)
            return list(self._events())
        except OSError as error:
            raise MeshmarkError(f"cannot read {self.path}: {error.strerror or error}") from error

    def _events(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, raw in enumerate(whole_lines(self.path), 1):
            try:
                event = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield number, event
