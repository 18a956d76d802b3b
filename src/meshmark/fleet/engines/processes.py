"""Jobs that are processes of this host, for engines without a scheduler. They end with the campaign."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from meshmark.fleet.engines.engine import EngineError, Job


class Processes:
    """Processes by the names of their jobs."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}  # by id: name, process

    def start(self, name: str, argv: Sequence[str], log: Path) -> str:
        """Start a process in a group of its own, with its output in a file. Returns an id.

        Raises:
            EngineError: It cannot be started.
        """
        try:
            with log.open("ab") as out:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as why:
            raise EngineError(f"cannot start {argv[0]}: {why.strerror}") from why
        self._running[str(process.pid)] = name, process
        return str(process.pid)

    def jobs(self, names: Collection[str]) -> list[Job]:
        ended = [id_ for id_, (_, process) in self._running.items() if process.poll() is not None]
        for id_ in ended:
            del self._running[id_]
        return [Job(id_, name, waits=False) for id_, (name, _) in self._running.items() if name in names]

    def cancel(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            if id_ in self._running:
                _, process = self._running.pop(id_)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait()
