"""Nodes and jobs of OpenPBS and PBS Professional, by their commands.

Source:
    Output of `pbsnodes -a -F json` and `qstat -f -F json`, and qsub(1B), of OpenPBS 20 and later; tried with 23.06.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from meshmark.fleet.engines.engine import (
    STATES,
    Batch,
    EngineError,
    EngineNode,
    Job,
    JobWork,
    State,
    answer,
    cancel_by,
    node,
    own_name,
    parsed,
    table,
)

_BUSY: Final = frozenset({"job-busy", "job-exclusive", "resv-exclusive", "busy"})


@dataclass(frozen=True, slots=True)
class Pbs(Batch):
    """The batch system PBS.

    Attributes:
        cpus_of_divided: Number of CPUs of each host that has several vnodes, from the last query of the nodes.
    """

    name: ClassVar[str] = "pbs"
    cpus_of_divided: dict[str, int] = field(default_factory=dict, init=False, compare=False)

    def nodes(self) -> list[EngineNode]:
        """Return all hosts. The number of CPUs of hosts that are divided into several vnodes is kept for `submit`."""
        argv = ["pbsnodes", "-a", "-F", "json"]
        hosts: dict[str, list[_Vnode]] = {}
        for name, attributes in _objects(argv, "nodes").items():
            vnode = _vnode(name, attributes)
            hosts.setdefault(vnode.host, []).append(vnode)
        divided = {name: sum(vnode.cpus for vnode in vnodes) for name, vnodes in hosts.items() if len(vnodes) > 1}
        self.cpus_of_divided.clear()
        self.cpus_of_divided.update(divided)
        return [_host(name, vnodes) for name, vnodes in hosts.items()]

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        """Submit a job that has its nodes to itself, and return its id; raises like `Engine.submit`."""
        argv = [
            "qsub",
            "-N",
            name,
            "-l",
            "select=" + "+".join(self._chunk(node) for node in nodes),
            "-l",
            # A job gets only the vnodes of its chunk; without exclhost, other jobs would get the rest of the host.
            "place=scatter:exclhost" if any(node in self.cpus_of_divided for node in nodes) else "place=scatter:excl",
            "-l",
            f"walltime={math.ceil(work.limit_s) + 60}",
            "-r",
            "n",
            "-j",
            "oe",
            "-o",
            "/dev/null",  # where hosts cannot copy files, the delivery of the output would keep the job for minutes
            *(["-q", self.queue] if self.queue else []),
            *(["-A", self.account] if self.account else []),
            *self.options,
        ]
        log = shlex.quote(f"{work.logs / name}.log")
        task = shlex.quote(f"exec >>{log} 2>&1; exec {work.command(own_name(nodes))}")
        script = work.script or f"exec pbsdsh -- /bin/sh -c {task}\n"
        return answer(argv, f"#!/bin/sh\nexec >>{log} 2>&1\n{script}", tries=1).strip()

    def _chunk(self, host: str) -> str:
        """Return a chunk with all CPUs of the host; otherwise, the cgroups of a job have the CPUs of only one vnode."""
        cpus = self.cpus_of_divided.get(host, 0)
        return f"1:host={host}:ncpus={cpus}" if cpus else f"1:host={host}"

    def jobs(self, names: Collection[str]) -> list[Job]:
        """Return the unfinished jobs with one of these names, with the reason why one waits."""
        if not names:
            return []
        argv = ["qstat", "-f", "-F", "json"]
        jobs = []
        for id_, attributes in _objects(argv, "Jobs").items():
            if str(attributes.get("Job_Name", "")) in names and attributes.get("job_state") not in {"E", "F", "X"}:
                waits = attributes.get("job_state") in {"Q", "H", "W"}
                jobs.append(
                    Job(id_, str(attributes["Job_Name"]), waits, str(attributes.get("comment", "")) if waits else "")
                )
        return jobs

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs by their ids; a job that has ended is not an error."""
        cancel_by(["qdel"], ids, ["Job has finished", "Unknown Job Id"])

    def drain(self, node: str, reason: str) -> None:
        """Set a node offline, with a reason as its comment."""
        answer(["pbsnodes", "-C", reason, "-o", node])


@dataclass(frozen=True, slots=True)
class _Vnode:
    """A host, or one of its NUMA nodes if the site divides hosts (vnode_per_numa_node of the cgroup hook).

    Attributes:
        host: The host that jobs name.
        states: One or more states, such as `free` or `down,job-busy`.
    """

    host: str
    states: str
    has_jobs: bool
    comment: str
    cpus: int

    @property
    def state(self) -> State:
        words = {word.strip() for word in self.states.split(",")}
        if words == {"free"}:
            return "busy" if self.has_jobs else "idle"
        return "busy" if words <= _BUSY else "out"


def _vnode(name: str, attributes: Mapping[str, Any]) -> _Vnode:
    resources = attributes.get("resources_available")

    def resource(key: str) -> str:
        value = resources.get(key) if isinstance(resources, dict) else attributes.get(f"resources_available.{key}")
        return str(value or "")

    cpus = resource("ncpus")
    return _Vnode(
        resource("host") or name.partition("[")[0],
        str(attributes.get("state", "")),
        bool(attributes.get("jobs")),
        str(attributes.get("comment", "")),
        int(cpus) if re.fullmatch(r"[0-9]{1,9}", cpus) else 0,
    )


def _objects(argv: Sequence[str], key: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the nodes or jobs that a command lists as JSON, by name.

    Releases of PBS do not escape quotes and backslashes in comments and in the variables of jobs, so that the text of
    one user can make the whole output invalid. The plain output, which has the same attributes, is read then.
    """
    text = answer(argv)
    try:
        return table(parsed(argv, text), key)
    except EngineError as error:
        objects = dict(_objects_of_text(answer([word for word in argv if word not in {"-F", "json"}])))
        if not objects:
            raise error from None
        return objects


def _objects_of_text(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and attributes of each object in the plain output of `pbsnodes -a` or `qstat -f`.

    Attributes are on indented lines.
    """
    name, attributes = "", dict[str, str]()
    for line in [*text.splitlines(), "end"]:
        key, equals, value = line.strip().partition(" = ")
        if line[:1].isspace() and equals:
            attributes.setdefault(key, value)  # a second line with the same key is part of a comment
        elif line.strip() and not line[:1].isspace():
            if {"state", "job_state"} & attributes.keys():
                yield name, attributes
            name, attributes = line.strip().removeprefix("Job Id: "), {}


def _host(name: str, vnodes: Sequence[_Vnode]) -> EngineNode:
    """Return a host, which is idle if all of its vnodes are idle, and out if one of them is out."""
    worst = max(vnodes, key=lambda vnode: STATES.index(vnode.state))
    description = f"{worst.states}: {worst.comment}" if worst.comment else worst.states
    return node(name, worst.state, "" if worst.state == "idle" else description)
