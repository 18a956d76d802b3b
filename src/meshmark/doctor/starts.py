"""Run-to-run spread of a small program, started bound and unbound."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark import process
from meshmark.doctor.finding import HostFinding, Judgement
from meshmark.errors import MeshmarkError
from meshmark.experiments.rating import RatedRun, Rating
from meshmark.experiments.start_placement import PLACES, StartPlacement, placement_note, placement_of
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree
from meshmark.place import native
from meshmark.statistics.grouping import rounds_needed
from meshmark.statistics.pairs import MeritUnit


@dataclass(frozen=True, slots=True)
class TriadStart:
    """One start of the triad: its rate in B/s, and where it was."""

    rate: float
    placement: StartPlacement


# ------------------------------------------------------------------ scheduling quality

_SMALL: Final = 0.05  # smallest spread of starts, and smallest difference of medians, that matters

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
            note = placement_note(record.read().decode("utf-8", "replace"))
        except ValueError:
            raise MeshmarkError(f"the triad exited with status {completed.returncode}: {message}") from None
    return TriadStart(rate, placement_of(note or {}, node_of))


def summary(starts: Sequence[TriadStart]) -> str:
    """Return the numbers of starts by where their threads ran and where their pages were."""
    counts = Counter(start.placement.place for start in starts)
    return ", ".join(f"{counts[place]} {place}" for place in PLACES if counts[place])


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
            f"{100 * spread:.3g} % ({summary(results)})"
        )
    judgement, reason = judge(*([start.rate for start in results] for results in runs.values()))
    command = "bind programs: meshmark run --bind balance" if judgement == "wrong" else ""
    value = f"{starts} starts of {count} threads; " + "; ".join([*texts, *([reason] if reason else [])])
    return HostFinding(name, value, judgement, effect, command)


def judge(unbound: Sequence[float], bound: Sequence[float]) -> tuple[Judgement, str]:
    """Judge whether the scheduler makes unbound starts slower or lets them vary, and return the reason.

    Args:
        unbound: Rates of unbound starts.
        bound: Rates of bound starts, one after each unbound start. The scheduler does not affect them: if they vary,
            other work is the cause, and the effect of the scheduler is unknown.
    """
    runs = {
        name: [RatedRun(rate, number) for number, rate in enumerate(rates)]
        for name, rates in (("unbound", unbound), ("bound", bound))
    }
    rating = Rating(runs, MeritUnit("higher", "B/s"), _SMALL)
    letters, (cut, *_) = rating.letters, rating.grouping.cuts[::-1]
    difference = f"p = {cut.p:.2g}"
    if letters["unbound"] > letters["bound"]:
        what = "slower" if cut.kind == "level" else "less steady"
        return "wrong", f"unbound starts are {what} ({difference})"
    unbound_spread, bound_spread = spread_of(unbound)[2], spread_of(bound)[2]
    if unbound_spread <= _SMALL:
        return "ok", ""
    if bound_spread > _SMALL:
        return "unknown", "bound starts vary, too, so that something other than the scheduler disturbs them"
    if letters["unbound"] < letters["bound"]:
        return "ok", f"bound starts are not better ({difference})"
    more = 2 * max(len(bound), rounds_needed(len(runs)))
    return "unknown", f"too few starts for a verdict ({difference}; --starts {more})"
