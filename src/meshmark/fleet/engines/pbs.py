"""Nodes and jobs of OpenPBS and PBS Professional, by their commands.

Source:
    Output of `pbsnodes -a -F json` and `qstat -f -F json`, and qsub(1B), of OpenPBS 20 and later; tried with 23.06.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.fleet.engines.engine import Batch, Job, Node, State, Work, answer, cancel_by, own_name, parsed, table

_BUSY: Final = frozenset({"job-busy", "job-exclusive", "resv-exclusive", "busy"})


class Pbs(Batch):
    name: ClassVar[str] = "pbs"

    def nodes(self) -> list[Node]:
        argv = ["pbsnodes", "-a", "-F", "json"]
        found = table(parsed(argv, answer(argv)), "nodes")
        return [
            _node(name, str(of.get("state", "")), bool(of.get("jobs")), str(of.get("comment", "")))
            for name, of in found.items()
        ]

    def submit(self, name: str, nodes: Sequence[str], work: Work) -> str:
        argv = [
            "qsub",
            "-N",
            name,
            "-l",
            "select=" + "+".join(f"1:host={node}" for node in nodes),
            "-l",
            "place=scatter:excl",
            "-l",
            f"walltime={math.ceil(work.limit_s) + 60}",
            "-r",
            "n",
            "-j",
            "oe",
            "-o",
            "/dev/null",  # its delivery would keep the job for minutes where hosts cannot copy files
            *(["-q", self.queue] if self.queue else []),
            *(["-A", self.account] if self.account else []),
            *self.options,
        ]
        log = shlex.quote(f"{work.logs / name}.log")
        task = shlex.quote(f"exec >>{log} 2>&1; exec {work.command(own_name(nodes))}")
        script = work.script or f"exec pbsdsh -- /bin/sh -c {task}\n"
        return answer(argv, f"#!/bin/sh\nexec >>{log} 2>&1\n{script}", tries=1).strip()

    def jobs(self, names: Collection[str]) -> list[Job]:
        if not names:
            return []
        argv = ["qstat", "-f", "-F", "json"]
        found = []
        for id_, of in table(parsed(argv, answer(argv)), "Jobs").items():
            if str(of.get("Job_Name", "")) in names and of.get("job_state") not in {"E", "F", "X"}:
                waits = of.get("job_state") in {"Q", "H", "W"}
                found.append(Job(id_, str(of["Job_Name"]), waits, str(of.get("comment", "")) if waits else ""))
        return found

    def cancel(self, ids: Sequence[str]) -> None:
        cancel_by(["qdel"], ids, ["Job has finished", "Unknown Job Id"])

    def drain(self, node: str, reason: str) -> None:
        answer(["pbsnodes", "-C", reason, "-o", node])


def _node(name: str, states: str, has_jobs: bool, comment: str) -> Node:
    """A node has several states at once, such as `free` or `down,job-busy`."""
    words = {word.strip() for word in states.split(",")}
    state: State = "out"
    if words == {"free"}:
        state = "busy" if has_jobs else "idle"
    elif words <= _BUSY:
        state = "busy"
    return Node(name, state, "" if state == "idle" else f"{states}: {comment}" if comment else states)
