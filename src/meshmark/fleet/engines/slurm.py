"""Nodes and jobs of Slurm, by its commands.

Source:
    States and formats: sinfo(1), squeue(1), sbatch(1) and srun(1) of Slurm 22.05.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from typing import ClassVar, Final

from meshmark.fleet.engines.engine import Batch, EngineNode, Job, JobWork, State, answer, node
from meshmark.fleet.nodesets import expand, fold

_STATES: Final[dict[str, State]] = {
    "idle": "idle",
    "alloc": "busy",
    "mix": "busy",
    "comp": "busy",
    "plnd": "busy",
}
_UNUSABLE: Final = "*$@^"  # marks: not responding, reserved for maintenance, to be rebooted, being rebooted
_POWER: Final = {
    "~": "powered off",
    "#": "powering up",
    "%": "powering down",
    "!": "about to be powered off",
}
_DEFAULT: Final = "*"  # suffix of the name of the default partition
_MARKS: Final = "*~#!%$@^-+"
_START_MIN: Final = 1  # time to start a job, beyond the limit of its work


class Slurm(Batch):
    """The engine `slurm`."""

    name: ClassVar[str] = "slurm"

    def nodes(self) -> list[EngineNode]:
        """Return all nodes; nodes outside the default partition are out unless a queue is set."""
        # Sets of nodes: with a line for each node (--Node), sinfo takes seconds for 10,000 nodes.
        argv = ["sinfo", "--noheader", "--format=%P|%t|%N|%E", *self._partition()]
        lines = [(*line.split("|", 3), "", "", "")[:4] for line in answer(argv).splitlines()]
        # Without a queue, jobs go to the default partition, whose name is marked. A node may be in several.
        lines.sort(key=lambda line: not line[0].endswith(_DEFAULT))
        only_default = not self.queue and bool(lines) and lines[0][0].endswith(_DEFAULT)
        node_by_name: dict[str, EngineNode] = {}
        for partition, state, names, reason in lines:
            default_hint = f"only in partition {partition}, see slurm.queue in fleet.toml"
            is_other = only_default and not partition.endswith(_DEFAULT)
            for name in expand(names, "sinfo") if names else []:
                node_by_name.setdefault(
                    name, EngineNode(name, "out", default_hint) if is_other else _node(name, state, reason)
                )
        return list(node_by_name.values())

    def longest_s(self) -> float:
        """Return the longest time limit in s that the partition allows for the work of a job; infinite if unlimited."""
        lines = answer(["sinfo", "--noheader", "--format=%P|%l", *self._partition()]).splitlines()
        limits = {name: _minutes(text) for name, _, text in (line.partition("|") for line in lines)}
        usable_limits = (
            limits if self.queue else {name: m for name, m in limits.items() if name.endswith(_DEFAULT)} or limits
        )
        return max((60 * (minutes - _START_MIN) for minutes in usable_limits.values()), default=math.inf)

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Submit a job that has its nodes to itself, and return its id; raises like `Engine.submit`."""
        minutes = math.ceil(work.limit_s / 60) + _START_MIN
        argv = [
            "sbatch",
            "--parsable",
            f"--job-name={name}",
            f"--nodes={len(nodes)}",
            f"--nodelist={fold(nodes)}",
            "--ntasks-per-node=1",
            "--exclusive",
            "--mem=0",
            "--no-kill",  # if a node fails, the others continue
            "--no-requeue",
            f"--time={minutes}",
            f"--output={work.logs / name}.log",
            *self._partition(),
            *([f"--account={self.account}"] if self.account else []),
            *self.options,
        ]
        # Not repeated if it fails: the job may exist, and the campaign finds it by its name.
        return answer(argv, work.script or _script(work), tries=1).strip().partition(";")[0]

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the unfinished jobs with one of these names, with the reason why one waits."""
        if not names:
            return []
        jobs = []
        for line in answer(["squeue", "--me", "--noheader", "--format=%A|%j|%T|%r"]).splitlines():
            id_, name, state, reason = (*line.split("|", 3), "", "", "")[:4]
            # Because of a dead node, a job that has ended may be COMPLETING for minutes.
            if name in names and state != "COMPLETING":
                waits = state == "PENDING"
                jobs.append(Job(id_, name, waits, reason if waits else "", boots=state == "CONFIGURING"))
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by their ids."""
        if ids:
            answer(["scancel", *ids])

    def drain(self, node: str, reason: str) -> None:
        """Drain a node, with a reason."""
        answer(["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"])

    def _partition(self) -> list[str]:
        return [f"--partition={self.queue}"] if self.queue else []


def _script(work: JobWork) -> str:
    """Return a script that runs a task on each node; a task that fails does not end the others."""
    on_node = '"$SLURMD_NODENAME"'
    task = shlex.quote(f"exec {work.command(on_node)}")
    return f"#!/bin/sh\nexec srun --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 --wait=0 --label sh -c {task}\n"


def _minutes(text: str) -> float:
    """Return a time limit such as 30:00 or 1-12:00:00 in whole minutes; inf if it is "infinite"."""
    days, _, clock = text.rpartition("-")
    fields = clock.split(":")
    if not all(field.isdecimal() for field in (*fields, days or "0")):
        return math.inf
    seconds = sum(int(field) * unit for field, unit in zip(reversed(fields), (1, 60, 3600), strict=False))
    return int(days or 0) * 1440 + seconds // 60


def _node(name: str, text: str, reason: str) -> EngineNode:
    """Return a node with its state from the compact state, such as `idle` or `mix-`, and the marks after it.

    Nodes that are off take minutes to start, so that no job of nodes that are on may wait for them. Nodes that are
    being powered off count as busy, so that each has its own job.
    """
    state: State = "out" if set(text) & set(_UNUSABLE) else _STATES.get(text.rstrip(_MARKS), "out")
    marks = [mark for mark in _POWER if mark in text]
    power = [_POWER[mark] for mark in marks]
    if state == "idle" and (marks or text.endswith("-")):
        state = "off" if marks == ["~"] else "busy"
    words = f"{text}: {', '.join(power)}" if power else text
    words = words if reason in {"", "none"} else f"{words}: {reason}"
    return node(name, state, "" if state == "idle" else words)
