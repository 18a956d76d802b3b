"""Simulated fleets for tests: files as nodes write them, and an engine without nodes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from meshmark.fleet.engines.engine import EngineError, EngineNode, Job, JobWork
from meshmark.fleet.plan import NodePlan
from support.made_run import record

KERNELS = ("copy", "scale", "add", "triad", "read")
PLAN = NodePlan("made-up", "check", True, 60.0, [{"id": "01-bandwidth", "argv": ["bandwidth"], "limit_s": 30.0}])


def files(cpu: str = "Model A", memory_gib: int = 256, kernel: str = "6.1.0", **more: str) -> dict[str, str]:
    """Return the files that a node records about itself."""
    return {
        "proc/cpuinfo": f"vendor_id\t: AuthenticAMD\nmodel name\t: {cpu}\nmicrocode\t: 0x10\n",
        "proc/meminfo": f"MemTotal: {memory_gib << 20} kB\n",
        "proc/sys/kernel/osrelease": f"{kernel}\n",
        "sys/class/dmi/id/bios_version": "1.0\n",
        "sys/class/dmi/id/product_name": "Blade\n",
        "sys/class/dmi/id/sys_vendor": "Maker\n",
        **more,
    }


def lines_of(
    node: str,
    factor: Callable[[str, int], float] = lambda _kernel, _repetition: 1.0,
    *,
    repetitions: int = 1,
    recorded: Mapping[str, str] | None = None,
    status: str = "ok",
    problems: Sequence[str] = (),
    flags: Iterable[str] = (),
    **header: Any,
) -> list[dict[str, Any]]:
    """Return the lines of the file of a node: the bandwidths of five kernels.

    Args:
        factor: Factor of the bandwidth of a kernel, by repetition from 0.
        recorded: Contents of files by path.
        header: Fields of the first line.
    """
    first = {
        "type": "node",
        "format": "meshmark node result",
        "version": 1,
        "plan": PLAN.id,
        "kind": "check",
        "name": node,
        "hostname": node,
        "machine": f"{node}-0123abcd",
        "hash": "0123abcd4567",
        "boot": f"boot of {node}",
        "started": "",
        "uptime_s": 1000.0,
        "build": "0.1.0",
        **header,
    }
    records: list[dict[str, Any]] = [first]
    for path, content in (files() if recorded is None else recorded).items():
        records.append({"type": "file", "path": path, "content": content})
    for repetition in range(repetitions):
        suffix = f".r{repetition + 1}" if repetitions > 1 else ""
        step = f"{repetition + 1:02d}-bandwidth{suffix}"
        records.append({"type": "step", "id": step, "argv": ["bandwidth"]})
        for kernel in KERNELS:
            value = 1e11 * factor(kernel, repetition)
            row = record("bandwidth", "bandwidth_net", value, flags, kernel=kernel, threads=2, cpus="0-1")
            records.append({"type": "result", "schema": 1, **row.to_json(), "machine": first["machine"]})
        records.append({"type": "step end", "id": step, "status": "ok", "reason": "", "elapsed_s": 1.0})
    records.append(
        {
            "type": "finished",
            "status": status,
            "elapsed_s": 1.0,
            "cpu_s": 0.5,
            "peak_bytes": 1 << 27,
            "problems": list(problems),
        }
    )
    return records


def write_result(folder: Path, node: str, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write the file of a node as the native runner does, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = "+interrupted" if lines[-1].get("status") == "interrupted" else ""
    path = folder / f"{node}{suffix}.jsonl.gz"
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


def noisy(node: str, seed: int, slow: Mapping[str, float] | None = None) -> Callable[[str, int], float]:
    """Return the factors of a node: its node factor within 0.5 %, noise of 0.5 % per value, and faults by kernel."""
    rng = random.Random(node)
    factors = {kernel: 1 + rng.gauss(0, 0.005) for kernel in KERNELS}
    noise = random.Random(f"{node} {seed}")
    return lambda kernel, _: factors[kernel] * (1 + noise.gauss(0, 0.005)) * (1 - (slow or {}).get(kernel, 0.0))


@dataclass
class MadeEngine:
    """An engine whose jobs end when their states are read for the second time.

    Attributes:
        states: States of the nodes.
        measure: Writes the file of a node; None for nodes that die.
        refuses: Messages of the next submissions, which fail; after "silent", the job exists nevertheless.
        late: Number of reads after which silent jobs start.
        lasting: Whether jobs end only when they are cancelled.
        refused: Nodes whose jobs are refused.
        calls: Names of the methods, in the order of their calls.
    """

    states: dict[str, EngineNode]
    measure: Callable[[str, JobWork], None]
    refuses: list[str] = field(default_factory=list)
    late: int = 0
    lasting: bool = False
    refused: Collection[str] = ()
    name: str = "made-up"
    calls: list[str] = field(default_factory=list)
    submitted: list[tuple[str, list[str]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    _live: dict[str, int] = field(default_factory=dict)
    _late: list[tuple[int, str, list[str], JobWork]] = field(default_factory=list)

    @staticmethod
    def of(names: Sequence[str], measure: Callable[[str, JobWork], None], **more: Any) -> MadeEngine:
        """Return an engine.

        Args:
        more: States of nodes by name, and attributes.
        """
        states = {n: more.pop(n, EngineNode(n, "idle")) for n in names}
        return MadeEngine(states, measure, **more)

    def nodes(self) -> list[EngineNode]:
        self.calls.append("nodes")
        return list(self.states.values())

    def submit(self, name: str, nodes: Sequence[str], work: JobWork) -> str:
        self.calls.append("submit")
        reason = self.refuses.pop(0) if self.refuses else ""
        if not set(self.refused).isdisjoint(nodes):
            reason = "Requested node configuration is not available"
        if reason == "silent":
            self._late.append((self.late, name, list(nodes), work))
            self._start_late()
        if reason:
            raise EngineError(reason)
        self._start(name, list(nodes), work)
        return f"id of {name}"

    def _start(self, name: str, nodes: list[str], work: JobWork) -> None:
        self.submitted.append((name, nodes))
        self._live[name] = 2
        for node in nodes:
            if self.states[node].state in {"idle", "off"}:
                self.measure(node, work)

    def _start_late(self) -> None:
        waiting, self._late = self._late, []
        for polls, *job in waiting:
            if polls > 0:
                self._late.append((polls - 1, *job))
            else:
                self._start(*job)

    def jobs(self, names: Collection[str]) -> list[Job]:
        self.calls.append("jobs")
        self._start_late()
        engine_jobs = []
        for name in [n for n in self._live if n in names]:
            nodes = dict(self.submitted)[name]
            waits = any(self.states[n].state == "busy" for n in nodes)
            self._live[name] -= not waits and not self.lasting
            if self._live[name] < 1:
                del self._live[name]
            else:
                engine_jobs.append(Job(f"id of {name}", name, waits, "Resources" if waits else ""))
        return engine_jobs

    def cancel(self, ids: Sequence[str]) -> None:
        self.calls.append("cancel")
        self.cancelled += ids
        for id_ in ids:
            self._live.pop(id_.removeprefix("id of "), None)


def work_in(folder: Path, campaign: str) -> JobWork:
    campaign_folder = folder / "campaigns" / campaign
    return JobWork(Path("runner"), Path("plan"), campaign_folder / "inbox", campaign_folder / "logs", 60.0)
