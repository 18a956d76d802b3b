"""Nodes without a scheduler, reached by ssh with ClusterShell. They share the folder of the fleet.

A connection lasts as long as its node measures. A runner whose connection breaks continues, and a second runner on the
same node waits for it (native/node/turn.hpp).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.errors import UsageError
from meshmark.fleet.engines.engine import EngineNode, Job, JobWork
from meshmark.fleet.engines.processes import Processes
from meshmark.fleet.nodesets import checked_names, fold

CONNECT_S: Final = 30  # timeout of a connection, beside hundreds of other connections
# Beyond the limit of the plan; less than the grace time of campaigns, after which the whole job is ended.
_GRACE_S: Final = 15.0
# Options of the site precede these, since ssh uses the first value of an option. No prompts: nobody would answer. A
# master connection would outlive its job and keep its output open. Nodes that stop answering are given up after 45 s.
_OPTIONS: Final = (
    "-nTx",
    "-oBatchMode=yes",
    f"-oConnectTimeout={CONNECT_S}",
    "-oControlMaster=no",
    "-oLogLevel=ERROR",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=3",
)


class Ssh:
    """Nodes that ssh reaches by name."""

    name: ClassVar[str] = "ssh"

    def __init__(self, names: Sequence[str], options: Sequence[str] = ()) -> None:
        if not names:
            raise UsageError(
                "nodes: found no node; allowed: a set such as n[1-16], since ssh lists no nodes", "--nodes"
            )
        self._names, self._options = tuple(checked_names(names, "--nodes")), tuple(options)
        self._processes = Processes()

    def nodes(self) -> list[EngineNode]:
        """Return the nodes of the site, all of them idle; a job shows whether its node answers."""
        return [EngineNode(name, "idle") for name in self._names]  # a job shows whether its node answers

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Start a process that runs the work on all nodes by ssh, and return the id of the job."""
        if work.script:  # the launcher in the script reaches the nodes itself
            return self._processes.start(name, ["/bin/sh", "-c", work.script], work.logs / f"{name}.log")
        # ClusterShell replaces %host in commands that run here, but not in commands that it runs by ssh itself.
        before, on_node = (text.replace("%", "%%") for text in (shlex.join(self._options), work.command("")))
        argv = [
            sys.executable,
            "-m",
            "ClusterShell.CLI.Clush",
            "-R",
            "exec",
            "-S",
            "-f",
            str(len(nodes)),  # all nodes at once, so that a job takes as long as one node
            "-u",
            str(int(work.limit_s + _GRACE_S)),
            "-w",
            fold(nodes),
            f"exec ssh {before} {shlex.join(_OPTIONS)} -- %host {shlex.quote(f'exec {on_node}%host')}",
        ]
        return self._processes.start(name, argv, work.logs / f"{name}.log")

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the jobs with one of these names whose process is running."""
        return self._processes.jobs(names)

    def cancel(self, ids: Sequence[str]) -> None:
        """End the processes of jobs."""
        self._processes.cancel(ids)
