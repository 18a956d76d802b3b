"""Nodes without a scheduler, reached by ssh with the fan-out of ClusterShell. They share the folder of the fleet."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.errors import UsageError
from meshmark.fleet.engines.engine import Job, Node, Work
from meshmark.fleet.engines.processes import Processes
from meshmark.fleet.nodesets import fold

_CONNECT_S: Final = 10


class Ssh:
    """Nodes by name."""

    name: ClassVar[str] = "ssh"

    def __init__(self, names: Sequence[str], options: Sequence[str] = (), fan_out: int = 32) -> None:
        if not names:
            raise UsageError("nodes: found none; allowed: a set such as n[1-16], since ssh knows no nodes", "--nodes")
        self._names, self._options, self._fan_out = tuple(names), tuple(options), fan_out
        self._processes = Processes()

    def nodes(self) -> list[Node]:
        return [Node(name, "idle") for name in self._names]  # whether one answers, its job finds out

    def submit(self, name: str, nodes: Sequence[str], work: Work) -> str:
        # ClusterShell replaces %host in commands that run here, not in those that it runs by ssh itself.
        on_node = work.command("%host")
        argv = [
            sys.executable,
            "-m",
            "ClusterShell.CLI.Clush",
            "-R",
            "exec",
            "-S",
            "-b",
            "-f",
            str(self._fan_out),
            "-u",
            str(int(work.limit_s) + _CONNECT_S + 30),
            "-w",
            fold(nodes),
            shlex.join(["ssh", f"-oConnectTimeout={_CONNECT_S}", *self._options, "%host", on_node]),
        ]
        return self._processes.start(name, argv, work.logs / f"{name}.log")

    def jobs(self, names: Collection[str]) -> list[Job]:
        return self._processes.jobs(names)

    def cancel(self, ids: Sequence[str]) -> None:
        self._processes.cancel(ids)
