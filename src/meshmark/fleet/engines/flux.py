"""Nodes and jobs of a Flux instance, which may be the system instance or run within an allocation, by its commands.

Source:
    flux-resource(1), flux-submit(1) and flux-jobs(1) of flux-core 0.50 and later; tried with 0.88.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.fleet.engines.engine import Batch, EngineNode, Job, JobWork, State, answer, node
from meshmark.fleet.nodesets import expand, fold

_STATES: Final[dict[str, State]] = {"free": "idle", "allocated": "busy"}
_HERE: Final = '"$(flux getattr hostname)"'  # name of the node in this instance
_WAITING: Final = frozenset({"D", "P", "S"})


class Flux(Batch):
    """The engine `flux`."""

    name: ClassVar[str] = "flux"

    def nodes(self) -> list[EngineNode]:
        """Return the nodes of the instance, with the reason if one is drained; raises like `Engine.nodes`."""
        states = "free,allocated,down"
        node_by_name: dict[str, EngineNode] = {}
        for line in answer(["flux", "resource", "list", "-n", "-s", states, "-o", "{state} {nodelist}"]).splitlines():
            word, _, nodes = line.strip().partition(" ")
            for name in expand(nodes, "flux resource list"):
                state = _STATES.get(word, "out")
                if (
                    name not in node_by_name or state != "idle"
                ):  # a node whose cores are partly allocated is in two lines
                    node_by_name[name] = node(name, state, "" if state == "idle" else word)
        if any(node.why == "down" for node in node_by_name.values()):  # drained nodes are listed as down, too
            for line in answer(["flux", "resource", "drain", "-n", "-o", "{nodelist} {reason}"]).splitlines():
                nodes, _, reason = line.strip().partition(" ")
                for name in expand(nodes, "flux resource drain"):
                    if name in node_by_name and node_by_name[name].why == "down":
                        node_by_name[name] = EngineNode(name, "out", f"drained: {reason}" if reason else "drained")
        return list(node_by_name.values())

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Submit a job that has its nodes to itself, and return its id; raises like `Engine.submit`."""
        argv = [
            "flux",
            "batch" if work.script else "submit",
            f"--job-name={name}",
            f"--nodes={len(nodes)}",
            *([] if work.script else [f"--ntasks={len(nodes)}"]),
            "--exclusive",
            f"--requires=host:{fold(nodes)}",
            f"--time-limit={math.ceil(work.limit_s) + 60}s",
            f"--output={work.logs / name}.log",
            *([f"--queue={self.queue}"] if self.queue else []),
            *([f"--bank={self.account}"] if self.account else []),
            *self.options,
        ]
        if work.script:
            return answer(argv, work.script, tries=1).strip()
        return answer([*argv, "/bin/sh", "-c", f"exec {work.command(_HERE)}"], tries=1).strip()

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the unfinished jobs with one of these names; raises like `Engine.jobs`."""
        if not names:
            return []
        jobs = []
        for line in answer(
            ["flux", "jobs", "-n", "--count=0", "-o", "{id.f58plain} {name} {state_single}"]
        ).splitlines():
            id_, name, state = (*line.split(), "", "", "")[:3]
            if name in names:
                jobs.append(Job(id_, name, state in _WAITING, "it is queued" if state in _WAITING else ""))
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by their ids."""
        if ids:
            answer(["flux", "cancel", *ids])

    def drain(self, node: str, reason: str) -> None:
        """Take a node out of service for new jobs, with a reason."""
        answer(["flux", "resource", "drain", node, reason])
