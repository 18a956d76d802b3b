"""Hosts and jobs of IBM Spectrum LSF, by its commands.

Source:
    bhosts, bjobs, bsub and blaunch of LSF 10.1.0.2 and later, which print JSON.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.fleet.engines.engine import (
    Batch,
    EngineNode,
    Job,
    JobWork,
    State,
    answer,
    cancel_by,
    node,
    own_name,
    parsed,
    records,
)

_LOST: Final = "lost_and_found"  # not a host: LSF lists the jobs of removed hosts there
_BUSY: Final = frozenset({"closed_Full", "closed_Excl", "closed_Busy", "closed_Cu_excl"})


class Lsf(Batch):
    """The engine `lsf`."""

    name: ClassVar[str] = "lsf"

    def nodes(self) -> list[EngineNode]:
        """Return all hosts except the lost-and-found host; raises like `Engine.nodes`."""
        argv = ["bhosts", "-X", "-o", "host_name status njobs", "-json"]
        return [
            _node(str(record.get("HOST_NAME", "")), str(record.get("STATUS", "")), str(record.get("NJOBS", "0")))
            for record in records(parsed(argv, answer(argv)), "RECORDS")
            if record.get("HOST_NAME") != _LOST
        ]

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Submit a job that has its nodes to itself, and return its id; raises like `Engine.submit`."""
        argv = [
            "bsub",
            "-J",
            name,
            "-x",
            "-m",
            " ".join(nodes),
            "-n",
            str(len(nodes)),
            "-R",
            "span[ptile=1]",
            "-W",
            str(max(1, math.ceil(work.limit_s / 60) + 1)),
            "-rn",
            "-o",
            f"{work.logs / name}.log",
            *(["-q", self.queue] if self.queue else []),
            *(["-P", self.account] if self.account else []),
            *self.options,
        ]
        task = shlex.quote(f"exec {work.command(own_name(nodes))}")
        script = f"#!/bin/sh\nexec blaunch -z {shlex.quote(' '.join(nodes))} /bin/sh -c {task}\n"
        text = answer(argv, work.script or script, tries=1)
        return text.partition("<")[2].partition(">")[0] or text.strip()  # "Job <123> is submitted to queue <normal>."

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the unfinished jobs with one of these names, with the reason why one waits."""
        if not names:
            return []
        argv = ["bjobs", "-o", "jobid job_name stat pend_reason", "-json"]
        jobs = []
        for record in records(parsed(argv, answer(argv)), "RECORDS"):
            if record.get("JOB_NAME") in names:
                waits = record.get("STAT") in {"PEND", "PSUSP", "WAIT"}
                reason = str(record.get("PEND_REASON", "")) if waits else ""
                jobs.append(Job(str(record.get("JOBID", "")), str(record["JOB_NAME"]), waits, reason))
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by their ids; a job that has ended is not an error."""
        cancel_by(["bkill"], ids, ["already finished", "No matching job found"])

    def drain(self, node: str, reason: str) -> None:
        """Close a host for new jobs, with a reason."""
        answer(["badmin", "hclose", "-C", reason, node])


def _node(name: str, status: str, jobs: str) -> EngineNode:
    state: State = "out"
    used = jobs not in {"0", "-"}
    if status == "ok":
        state = "busy" if used else "idle"
    elif status in _BUSY or (status == "closed" and used):  # by default, bhosts prints no reason after "closed"
        state = "busy"
    return node(name, state, "" if state == "idle" else status if status != "ok" else f"{jobs} jobs")
