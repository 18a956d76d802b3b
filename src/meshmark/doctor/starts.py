"""Run-to-run spread of a small program, started bound and unbound."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark import process
from meshmark.doctor.finding import HostFinding, Judgement
from meshmark.errors import MeshmarkError
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, parse_list
from meshmark.place import native


@dataclass(frozen=True, slots=True)
class TriadStart:
    """One start of the triad.

    Attributes:
        rate: Rate in B/s.
        cpus: CPUs on which its threads ran; empty if unknown.
        migrations: Number of migrations; None if unknown.
        remote_share: Share of its pages on nodes other than the nodes of these CPUs; None if unknown.
    """

    rate: float
    cpus: tuple[int, ...]
    migrations: float | None
    remote_share: float | None


# ------------------------------------------------------------------ scheduling quality

_STEADY: Final = 0.2  # largest spread of bound starts that allows a verdict; published: 0.006
_SMALL: Final = 0.05  # smallest spread of unbound starts that matters

# Each thread allocates its own arrays, so that first touch places them, then waits at a barrier.
# The rate counts the traffic of this form of the triad (after STREAM): two passes, five operands.
_TRIAD: Final = """
import sys, threading, time
import numpy as np
count, n, passes = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
meet = threading.Barrier(count + 1)
def work():
    a, b, c = np.ones(n), np.ones(n), np.ones(n)
    meet.wait()
    for _ in range(passes):
        np.multiply(c, 3.0, out=a)
        np.add(a, b, out=a)
    meet.wait()
threads = [threading.Thread(target=work) for _ in range(count)]
for t in threads: t.start()
meet.wait()
began = time.perf_counter()
meet.wait()
print(count * passes * n * 8 * 5 / (time.perf_counter() - began))
"""


def triad(bind: str, threads: int, elements: int, passes: int, node_of: Mapping[int, int]) -> TriadStart:
    """Start the triad once through `meshmark-place run` and return its rate and placement.

    Args:
        bind: `none` or a binding policy.
        threads: Number of threads.
        elements: Number of elements per array and thread.
        passes: Number of passes over the arrays.
        node_of: Node by CPU.

    Raises:
        MeshmarkError: The triad failed.
    """
    # The file is anonymous, so that nothing is left behind if a process is killed.
    with os.fdopen(os.memfd_create("record"), "rb") as record:
        thread_options = ["-n", str(threads)] if bind != "none" else []
        record_path = f"/proc/{os.getpid()}/fd/{record.fileno()}"
        completed = process.run(
            [
                native.find_place(),
                "run",
                "--bind",
                bind,
                *thread_options,
                "--verify",
                "--record",
                record_path,
                "--",
                sys.executable,
                "-c",
                _TRIAD,
                str(threads),
                str(elements),
                str(passes),
            ],
            encoding="utf-8",
            errors="replace",
            timeout_s=600,
        )
        message = (completed.stderr.strip().splitlines() or ["no message"])[-1]
        try:
            rate = float(completed.stdout)
            lines = [json.loads(x) for x in record.read().splitlines()]
        except ValueError:
            raise MeshmarkError(f"the triad exited with status {completed.returncode}: {message}") from None
    from meshmark.experiments.trial import evidence
    from meshmark.place.candidates import Candidate

    note: dict[str, Any] = next(
        (x for x in lines if x.get("type") == "note" and x.get("kind") == "placement"), {"report": {}}
    )
    figures, _ = evidence(note, Candidate("triad"), node_of)
    # This excludes the main thread, which only waits; the kernel counts in ticks of 10 ms.
    busy = [t for t in note["report"].get("threads", ()) if t.get("user_s", 0) + t.get("system_s", 0) > 0.03]
    cpus = sorted({c for t in busy for c in parse_list(str(t.get("ran_on", "")).replace("none", ""))})
    return TriadStart(rate, tuple(cpus), figures.get("migrations"), figures.get("remote_share"))


def summary(starts: Sequence[TriadStart], threads: int) -> str:
    """Return the numbers of starts by where their threads ran and where their pages were."""
    moved_count = sum(len(s.cpus) > threads for s in starts)
    shared_count = sum(0 < len(s.cpus) < threads for s in starts)
    remote_count = sum((s.remote_share or 0.0) > 0.01 for s in starts)
    stayed_count = sum(len(s.cpus) == threads and (s.remote_share or 0.0) <= 0.01 for s in starts)
    unobserved_count = sum(not s.cpus for s in starts)
    counts = [
        f"{stayed_count} stayed",
        f"{moved_count} moved",
        f"{shared_count} shared a CPU",
        f"{remote_count} with remote pages",
    ]
    return ", ".join(counts + ([f"{unobserved_count} not observed"] if unobserved_count else []))


def spread_of(rates: Sequence[float]) -> tuple[float, float, float]:
    """Return mean (in the unit of the rates), coefficient of variation, and (max - min) / min of at least two rates."""
    mean = statistics.fmean(rates)
    return mean, statistics.stdev(rates) / mean, (max(rates) - min(rates)) / min(rates)


def scheduling(tree: FileTree, topology: Topology, starts: int, threads: int) -> HostFinding:
    """Return a finding about the run-to-run spread of a triad, started unbound and bound.

    Args:
        tree: The file system of this host; a recorded tree is not tested.
        topology: Topology of the host.
        starts: Number of starts of each kind, in alternation.
        threads: Number of threads; 0: half of the cores.
    """
    name = "scheduling quality"
    effect = "run-to-run spread caused by the scheduler; published: 43 % unbound, 0.6 % bound"
    if not tree.live:
        return HostFinding(name, "tested on live systems only", "unknown", effect)
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    cores = {c.core for c in topology.cpus if c.os_index in topology.allowed_cpus}
    count = threads or max(1, len(cores) // 2)
    elements, passes = 1 << 21, 12
    runs: dict[str, list[TriadStart]] = {"none": [], "balance": []}
    try:
        for _ in range(starts):
            for bind, results in runs.items():  # interleaved, so that disturbances affect both
                results.append(triad(bind, count, elements, passes, node_of))
    except (MeshmarkError, subprocess.TimeoutExpired) as error:
        return HostFinding(name, str(error), "unknown", effect)
    texts = []
    for bind, results in runs.items():
        mean, cov, spread = spread_of([s.rate for s in results])
        texts.append(
            f"{'unbound' if bind == 'none' else 'bound'}: {mean / 1e9:.3g} GB/s, CoV {100 * cov:.3g} %, spread "
            f"{100 * spread:.3g} % ({summary(results, count)})"
        )
    unbound_spread, bound_spread = (spread_of([s.rate for s in results])[2] for results in runs.values())
    judgement = judge(unbound_spread, bound_spread)
    if judgement == "unknown":
        texts.append("bound starts vary, too, so that something other than the scheduler disturbs them")
    command = "bind programs: meshmark run --bind balance" if judgement == "wrong" else ""
    return HostFinding(name, f"{starts} starts of {count} threads; " + "; ".join(texts), judgement, effect, command)


def judge(unbound: float, bound: float) -> Judgement:
    """Judge whether the scheduler makes unbound starts vary.

    Args:
        unbound: Spread of the rates of unbound starts: (max - min) / min.
        bound: Spread of bound starts, which the scheduler cannot affect. If they vary, other work is the cause,
            and the effect of the scheduler is unknown.
    """
    if bound > _STEADY:
        return "unknown"
    return "wrong" if unbound > 2 * bound and unbound > _SMALL else "ok"
