"""Tests of the scheduler: where new threads start, whether it moves threads without need, and how it shares overload.

Processes that compute in registers are started without binding, and their CPUs and CPU times are sampled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from meshmark.applications.resources.kernel_process import KernelProcess
from meshmark.applications.resources.load_kernels import horner
from meshmark.doctor.finding import HostFinding, Judgement
from meshmark.errors import MeshmarkError
from meshmark.machine.activity import process_stat
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree
from meshmark.place.other_work import OtherWork
from meshmark.statistics.estimates import jain
from meshmark.values.units import number, percent

_MOST_CPUS: Final = 32  # the first allowed CPUs are tested, so that all processes start within a few seconds
_SAMPLES: Final = 50
_EVERY_S: Final = 0.02
_OTHERS: Final = 0.05  # share of the CPUs beyond which other work prevents a verdict
_CROWDED: Final = 0.1  # share of samples with two threads on a CPU while another one is idle, beyond which it is wrong
_MOVES: Final = 2.0  # moves per thread and second between CPUs of which none is idle, beyond which it is wrong
_FAIR: Final = 0.9  # least fairness of CPU times


@dataclass(frozen=True, slots=True)
class Watched:
    """Samples of busy threads.

    Attributes:
        cpus: By sample, the CPU of every thread.
        cpu_s: CPU time of every thread during the samples, in s.
        elapsed_s: Time of all samples in s.
        others: Share of the time of all CPUs that other work took.
    """

    cpus: Sequence[Sequence[int]]
    cpu_s: Sequence[float]
    elapsed_s: float
    others: float


@contextmanager
def _busy(count: int, cpus: Collection[int]) -> Iterator[list[int]]:
    """Run busy processes, one started after the other, and give their process IDs."""
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            processes.append(KernelProcess(cpus, horner("a thread of the test")))
            stack.callback(processes[-1].end)
        yield [process.pid for process in processes]


def _sampled(pids: Sequence[int]) -> Watched:
    other_work, begin_s, before = OtherWork(), time.monotonic(), [_cpu_s(pid) for pid in pids]
    samples = []
    for _ in range(_SAMPLES):
        samples.append([_cpu(pid) for pid in pids])
        time.sleep(_EVERY_S)
    used_s = [_cpu_s(pid) - start_s for pid, start_s in zip(pids, before, strict=True)]
    return Watched(samples, used_s, time.monotonic() - begin_s, other_work.shares(sum(used_s)).others)


def _stat(pid: int) -> tuple[str, ...]:
    """Return the fields of the state of a process, from the third on; raise OSError if it has ended."""
    stat = process_stat(FileTree(Path("/")), pid)
    if stat is None:
        raise OSError(f"process {pid}, which the test runs, has ended")
    return stat.fields


def _cpu(pid: int) -> int:
    return int(_stat(pid)[36])


def _cpu_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowded(samples: Sequence[Sequence[int]], cpus: int) -> float:
    """Return the share of samples in which threads share a CPU although another CPU has none.

    Args:
        samples: By sample, the CPU of every thread.
        cpus: Number of CPUs that the threads may use.
    """
    used = [len(set(sample)) for sample in samples]
    return sum(u < min(cpus, len(s)) for u, s in zip(used, samples, strict=True)) / len(samples)


def moves(samples: Sequence[Sequence[int]], cpus: int) -> int:
    """Return how many times a thread was on another CPU than in the sample before, in which no CPU was idle."""
    steps = [(before, after) for before, after in pairwise(samples) if len(set(before)) == cpus]
    return sum(a != b for before, after in steps for a, b in zip(before, after, strict=True))


def judge_starts(watched: Watched, cpus: int) -> tuple[Judgement, str]:
    """Judge where new threads were, if there are as many CPUs as threads."""
    share = crowded(watched.cpus, cpus)
    text = f"{len(watched.cpu_s)} new threads on {cpus} CPUs: two shared a CPU in {percent(share)} of the samples"
    return ("ok" if share <= _CROWDED else "wrong"), text


def judge_moves(watched: Watched, cpus: int) -> tuple[Judgement, str]:
    """Judge how often threads moved although no CPU was idle."""
    rate = moves(watched.cpus, cpus) / (len(watched.cpu_s) * watched.elapsed_s)
    return ("ok" if rate <= _MOVES else "wrong"), f"{number(rate, 2)} moves per thread and second without an idle CPU"


def judge_overload(watched: Watched, cpus: int) -> tuple[Judgement, str]:
    """Judge whether one thread more than CPUs is shared by all threads."""
    fairness, times = jain(watched.cpu_s), watched.cpu_s
    share = min(times) / max(*times, 1e-9)
    text = (
        f"{len(times)} threads on {cpus} CPUs: the slowest has {percent(share)} of the CPU time of the fastest, "
        f"fairness {number(fairness, 3)}"
    )
    return ("ok" if fairness >= _FAIR else "wrong"), text


def scheduler_findings(topology: Topology) -> list[HostFinding]:
    """Return a finding about each property of the scheduler. They are unknown if other programs use the CPUs.

    Args:
        topology: Topology of this host.
    """
    cpus = topology.allowed_cpus[:_MOST_CPUS]
    count = len(cpus)
    tests: Sequence[tuple[str, str, int, Callable[[Watched, int], tuple[Judgement, str]]]] = (
        ("start of threads", "a thread that waits for a shared CPU is slow", count, judge_starts),
        ("moves of threads", "a moved thread leaves its caches and its memory behind", count, judge_moves),
        ("shared overload", "a program waits for its slowest thread", count + 1, judge_overload),
    )
    findings = []
    watched: dict[int, Watched] = {}
    for name, effect, threads, judge in tests:
        try:
            if threads not in watched:
                with _busy(threads, cpus) as pids:
                    watched[threads] = _sampled(pids)
        except (MeshmarkError, OSError) as error:
            findings.append(HostFinding(name, str(error), "unknown", effect))
            continue
        judgement, text = judge(watched[threads], count)
        if watched[threads].others > _OTHERS:
            judgement, text = "unknown", f"{text}; other programs used {percent(watched[threads].others)} of the CPUs"
        command = "bind programs: meshmark run --bind balance" if judgement == "wrong" else ""
        findings.append(HostFinding(name, text, judgement, effect, command))
    return findings
