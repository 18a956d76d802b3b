"""This host as a fleet of one node, or of several names that measure one after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from meshmark.fleet.engines.engine import EngineNode, Job, JobWork
from meshmark.fleet.engines.processes import Processes
from meshmark.fleet.nodesets import checked_names, own_node_name


class Local:
    """This host.

    Args:
        names: Names of nodes; (): only the name of the host.
    """

    name: ClassVar[str] = "local"

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(checked_names(names, "--nodes")) or (own_node_name(),)
        self._processes = Processes()

    def nodes(self) -> list[EngineNode]:
        """Return the names of this host, which are always idle."""
        return [EngineNode(name, "idle") for name in self._names]

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Start a process that measures for one name after the other, and return the id of the job."""
        command = work.command('"$node"')  # names are arguments of the shell, never part of its text
        script = work.script or f"for node; do {command}; done"
        return self._processes.start(name, ["/bin/sh", "-c", script, "sh", *nodes], work.logs / f"{name}.log")

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the jobs with one of these names whose process is running."""
        return self._processes.jobs(names)

    def cancel(self, ids: Sequence[str]) -> None:
        """End the processes of jobs."""
        self._processes.cancel(ids)
