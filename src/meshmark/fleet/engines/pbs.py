"""Nodes and jobs of OpenPBS and PBS Professional, by their commands.

Source:
    Output of `pbsnodes -a -F json` and `qstat -f -F json`, and qsub(1B), of OpenPBS 20 and later; tried with 23.06.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from meshmark.fleet.engines.engine import (
    STATES,
    Batch,
    EngineError,
    Job,
    Node,
    State,
    Work,
    answer,
    cancel_by,
    node,
    own_name,
    parsed,
    table,
)

_BUSY: Final = frozenset({"job-busy", "job-exclusive", "resv-exclusive", "busy"})


class Pbs(Batch):
    name: ClassVar[str] = "pbs"

    def nodes(self) -> list[Node]:
        argv = ["pbsnodes", "-a", "-F", "json"]
        text = answer(argv)
        try:
            vnodes = [_vnode(name, of) for name, of in table(parsed(argv, text), "nodes").items()]
        except EngineError:  # some releases do not escape quotes in comments
            vnodes = list(_vnodes_of_text(answer(["pbsnodes", "-a"])))
            if not vnodes:
                raise
        hosts: dict[str, list[_Vnode]] = {}
        for vnode in vnodes:
            hosts.setdefault(vnode.host, []).append(vnode)
        return [_host(name, vnodes) for name, vnodes in hosts.items()]

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


@dataclass(frozen=True, slots=True)
class _Vnode:
    """A host, or one of its NUMA nodes if the site divides hosts (vnode_per_numa_node of the cgroup hook).

    Attributes:
        host: The host that jobs name.
        states: Several at once, such as `free` or `down,job-busy`.
    """

    host: str
    states: str
    has_jobs: bool
    comment: str

    @property
    def state(self) -> State:
        words = {word.strip() for word in self.states.split(",")}
        if words == {"free"}:
            return "busy" if self.has_jobs else "idle"
        return "busy" if words <= _BUSY else "out"


def _vnode(name: str, attributes: Mapping[str, Any]) -> _Vnode:
    resources = attributes.get("resources_available")
    host = resources.get("host") if isinstance(resources, dict) else attributes.get("resources_available.host")
    return _Vnode(
        str(host or name.partition("[")[0]),
        str(attributes.get("state", "")),
        bool(attributes.get("jobs")),
        str(attributes.get("comment", "")),
    )


def _vnodes_of_text(text: str) -> Iterator[_Vnode]:
    """The vnodes in the output of `pbsnodes -a`: a name, and its attributes on indented lines."""
    name, attributes = "", dict[str, str]()
    for line in [*text.splitlines(), "end"]:
        key, equals, value = line.strip().partition(" = ")
        if line[:1].isspace() and equals:
            attributes[key] = value
        elif line.strip() and not line[:1].isspace():
            if "state" in attributes:
                yield _vnode(name, attributes)
            name, attributes = line.strip(), {}


def _host(name: str, vnodes: Sequence[_Vnode]) -> Node:
    """A host is idle if all of its vnodes are, and out if one of them is."""
    worst = max(vnodes, key=lambda vnode: STATES.index(vnode.state))
    why = f"{worst.states}: {worst.comment}" if worst.comment else worst.states
    return node(name, worst.state, "" if worst.state == "idle" else why)
