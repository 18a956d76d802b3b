"""Jobs that are processes of this host, for engines without a scheduler.

A variable in the environment of each process names its job. Jobs of a campaign that was killed are therefore found
again, and a process with a reused id is never mistaken for a job.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from meshmark import process
from meshmark.fleet.engines.engine import EngineError, Job
from meshmark.store.files import open_private

MARK: Final = "MESHMARK_JOB"


class Processes:
    """Processes by the names of their jobs, which are also the ids of the jobs."""

    def __init__(self) -> None:
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, argv: Sequence[str], log: Path) -> str:
        """Start a process in a new session, append its output to the file `log`, and return the id of the job.

        Raises:
            EngineError: The process cannot be started.
        """
        try:
            with open_private(log, "ab") as out:
                child = process.start(
                    argv,
                    process.OUTLIVES_PARENT,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, MARK: name},
                )
        except OSError as error:
            raise EngineError(f"cannot start {argv[0]}: {error.strerror}") from error
        self._children.append((name, child))
        return name

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return a job for each of these names that has a running process."""
        return [Job(name, name, waits=False) for name in sorted({name for name, _ in self._running(names)})]

    def cancel(self, ids: Sequence[str]) -> None:
        """Send SIGTERM to the processes of jobs; a process that has ended is not an error."""
        for _, pid in self._running(ids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def _running(self, names: Collection[str]) -> set[tuple[str, int]]:
        # The environment of a process is not visible while the kernel starts it; our children are known without it.
        self._children = [(name, child) for name, child in self._children if child.poll() is None]
        return {(name, child.pid) for name, child in self._children if name in names} | set(marked(names))


def marked(names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the processes of jobs: name of the job, id of the process."""
    name_by_variable = {f"{MARK}={name}".encode(): name for name in names}
    for path in Path("/proc").glob("[0-9]*/environ") if name_by_variable else ():
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # the process has ended, or belongs to another user
            continue
        for variable in variables:
            if variable in name_by_variable:
                yield name_by_variable[variable], int(path.parent.name)
