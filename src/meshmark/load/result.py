"""What came of a scenario: who ran, waited, slept and moved, program by program and thread by thread.

A thread's time is user + system + waiting + sleeping. The operating-system kernel counts in ns what a thread ran and
what it waited for a CPU (schedstat), and in ticks how the time that it ran splits; the remaining wall time is sleep.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError

FOREIGN: Final = 0.05  # share of the CPUs that others may take before a run counts as noisy
DRIFT: Final = 0.1  # of the canary from before to after
STOLEN: Final = 0.01
MISPLACED: Final = 0.01  # of a program's memory; where it was not bound to its nodes, a MiB too
_MOST_NAMED: Final = 5  # programs in a line
Key = tuple[str, int]  # a program and its copy
# ---------------------------------------------------------------- what is read


@dataclass(frozen=True, slots=True)
class Span:
    """What a thread did between two looks. Seconds after the clock's start; the four parts add up to `wall_s`."""

    from_s: float
    to_s: float
    user_s: float
    system_s: float
    waiting_s: float
    sleeping_s: float
    cpu: int
    moved: bool  # it came from another CPU

    @property
    def wall_s(self) -> float:
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """A thread from its program's release (or its birth, if later) to its last look; s after the clock's start."""

    thread: int
    program: str
    copy: int
    pid: int
    tid: int
    command: str
    from_s: float
    to_s: float
    user_s: float
    system_s: float
    waiting_s: float
    sleeping_s: float
    migrations: int
    cpus: tuple[int, ...]  # on which it ran
    spans: tuple[Span, ...] = ()

    @property
    def wall_s(self) -> float:
        return self.to_s - self.from_s

    @property
    def closes(self) -> float:
        """user + system + waiting + sleeping, over wall; 1 where the ledger is whole. NaN of no time at all."""
        told = self.user_s + self.system_s + self.waiting_s + self.sleeping_s
        return told / self.wall_s if self.wall_s > 0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """A copy of a program with all its processes and threads. `how`: ok, status, signal, timeout, stopped, failed (it
    was never started) or cut (the run was killed). Sleeping is the sum over its threads."""

    program: str
    copy: int
    how: str
    reason: str = ""  # where `how` is not ok
    released_s: float = 0.0
    ended_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    waiting_s: float = 0.0
    sleeping_s: float = 0.0
    unseen_s: float = 0.0  # CPU time of what ended between two looks, part of user and system
    threads: int = 0
    migrations: int = 0
    largest_bytes: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)  # node → B, when last counted
    done: Mapping[str, Any] = field(default_factory=dict)  # a synthesised program's own sums

    @property
    def wall_s(self) -> float:
        return self.ended_s - self.released_s

    @property
    def paced(self) -> bool:
        """It kept a schedule, or was to."""
        return float(self.done.get("spun_s", 0.0)) > 0 or float(self.done.get("late_s", 0.0)) > 0

    @property
    def attained(self) -> float:
        """Part of the CPU time that it was ready to use which it got, 0 to 1; 1 where it never wanted any."""
        ran = self.user_s + self.system_s
        return ran / (ran + self.waiting_s) if ran + self.waiting_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of the whole bench, s. After PARbench (Nagel and Linn 1991; Janda, Müller, Nagel, Trenkler 2007)."""

    bench_s: float  # from the clock's start to the end of the last program
    cpus: int  # that any of the programs might use
    available_s: float  # bench_s x cpus
    user_s: float
    system_s: float
    idle_s: float  # available - user - system: also what others took
    completion_s: float  # mean over the programs, from the clock's start to their ends
    run_s: float  # sum of the programs' wall times
    waiting_s: float  # sum over all threads

    @property
    def utilisation(self) -> float:
        return (self.user_s + self.system_s) / self.available_s if self.available_s > 0 else math.nan


@dataclass(kw_only=True)
class LoadRun:
    """A run that was read back."""

    folder: Path
    status: str  # ok, timeout, stopped, cut
    header: Mapping[str, Any]
    scenario: Mapping[str, Any]
    programs: list[ProgramUse]
    threads: list[ThreadUse]
    bench_s: float
    cpus: tuple[int, ...]  # that any of the programs might use
    bound: Mapping[Key, tuple[int, ...]]  # CPUs of each copy, () where it was not bound
    events: list[dict[str, Any]]
    windows: dict[Key, list[dict[str, Any]]]  # of synthesised programs; times are after the clock's start
    canary: list[dict[str, Any]]
    end: Mapping[str, Any]
    begin_s: float = 0.0  # the clock's start, s after what the header calls `start`
    nodes: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)  # on which each copy's memory was asked to be

    @property
    def cut(self) -> bool:
        return self.status == "cut"

    def totals(self) -> Totals:
        ran = [p for p in self.programs if p.how != "failed"]
        user, system = sum(p.user_s for p in ran), sum(p.system_s for p in ran)
        available = self.bench_s * len(self.cpus)
        return Totals(
            bench_s=self.bench_s,
            cpus=len(self.cpus),
            available_s=available,
            user_s=user,
            system_s=system,
            idle_s=available - user - system,
            completion_s=statistics.fmean(p.ended_s for p in ran) if ran else 0.0,
            run_s=sum(p.wall_s for p in ran),
            waiting_s=sum(p.waiting_s for p in ran),
        )

    def fairness(self, alone_s: Mapping[str, float] | None = None) -> float:
        """Jain's index over the programs, from 1/n (one has all) to 1 (all alike).

        Args:
            alone_s: what each program takes by itself; then over their speeds, else over the part of the CPU time that
                each wanted and got.
        """
        ran = [p for p in self.programs if p.how == "ok"]
        if alone_s is not None:
            return jain([alone_s[p.program] / p.wall_s for p in ran if p.program in alone_s and p.wall_s > 0])
        return jain([p.attained for p in ran])

    def flags(self, program: ProgramUse) -> frozenset[str]:
        """Of the record's flags those that a program's results carry."""
        out: set[str] = set()
        about: Mapping[str, Any] = next(
            (p for p in self.scenario.get("programs", ()) if p.get("name") == program.program), {}
        )
        bound = self.bound.get((program.program, program.copy), ())
        if int(about.get("threads", 1)) > (len(bound) or len(self.cpus)):
            out.add("oversubscribed")
        if bound and any(
            not set(t.cpus) <= set(bound)
            for t in self.threads
            if (t.program, t.copy) == (program.program, program.copy)
        ):
            out.add("migrated")
        if self._misplaced(program, str(about.get("memory") or "")):
            out.add("misplaced")
        if self.status != "ok" or program.how in {"timeout", "stopped", "cut"}:
            out.add("truncated")
        if program.done.get("wrong"):
            out.add("unverified")
        machine = self.end.get("machine", {})
        busy, steal = machine.get("busy_s", []), machine.get("steal_s", [])
        available = self.bench_s * len(self.cpus)
        if available > 0 and steal and sum(steal[c] for c in self.cpus if c < len(steal)) > STOLEN * available:
            out.add("stolen")
        foreign = self.foreign_s(busy)
        if (foreign is not None and foreign > FOREIGN * available) or self.canary_drift() > DRIFT:
            out.add("noisy")
        return frozenset(out)

    def _misplaced(self, program: ProgramUse, memory: str) -> bool:
        asked = self.nodes.get((program.program, program.copy), ())
        elsewhere = sum(b for node, b in program.pages.items() if node not in asked)
        least = 0 if memory.startswith("bind") else 1 << 20
        return bool(asked) and elsewhere > max(least, MISPLACED * sum(program.pages.values()))

    def foreign_s(self, busy: Sequence[float] | None = None) -> float | None:
        """CPU time that others took on the programs' CPUs, s; None where that was not recorded (the run was cut)."""
        busy = self.end.get("machine", {}).get("busy_s") if busy is None else busy
        if not busy:
            return None
        ours = sum(p.user_s + p.system_s for p in self.programs) + float(self.end.get("sampling", {}).get("cpu_s", 0.0))
        return max(0.0, sum(busy[c] for c in self.cpus if c < len(busy)) - ours)

    def canary_level(self, when: str) -> float:
        """Median latency of the canary's loads `before`, `during` or `after`, s; NaN where it did not sing."""
        seen = [float(c["load_latency_s"]) for c in self.canary if c.get("when") == when]
        return statistics.median(seen) if seen else math.nan

    def canary_drift(self) -> float:
        """How much longer loads from memory took after than before, as a share; 0 where that was looked at less than
        three times each."""
        times = [sum(c.get("when") == when for c in self.canary) for when in ("before", "after")]
        before = self.canary_level("before")
        change = abs(self.canary_level("after") / before - 1) if before else math.nan
        return change if min(times) >= 3 and math.isfinite(change) else 0.0


def jain(values: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): Jain, Chiu, Hawe, DEC-TR-301 (1984). NaN of no values or of zeros only."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How many times as long as alone. `interval`: of 95 %; None below 4 runs of each."""

    ratio: float
    interval: tuple[float, float] | None
    alone: int  # runs
    together: int


def slowdown(alone_s: Sequence[float], together_s: Sequence[float]) -> Slowdown:
    """Ratio of two sets of run times: the median of all ratios of one to another, and its interval.

    Source:
        Hodges and Lehmann 1963, with the interval of Moses, of the logarithms: no distribution is assumed, only that
        the two differ by a factor.

    Raises:
        MeshmarkError: a set is empty, or a time is not positive.
    """
    if not alone_s or not together_s or min(*alone_s, *together_s, 1.0) <= 0:
        raise MeshmarkError("slowdown: found no run times, or some of 0 s; at least one of each is needed")
    ratios = sorted(t / a for t in together_s for a in alone_s)
    n, m = len(together_s), len(alone_s)
    rank = rank_sum_bound(n, m)
    return Slowdown(statistics.median(ratios), (ratios[rank - 1], ratios[n * m - rank]) if rank >= 1 else None, m, n)


def rank_sum_bound(n: int, m: int, confidence: float = 0.95) -> int:
    """Largest k with 1 - 2 P(U < k) >= confidence, U of Mann and Whitney without any difference; 0: there is none."""
    if n * m > 10_000:
        return max(0, int(n * m / 2 - 1.96 * math.sqrt(n * m * (n + m + 1) / 12)))
    # How many arrangements of n and m have U = u: f(n, m, u) = f(n - 1, m, u - m) + f(n, m - 1, u).
    rows: list[list[int]] = [[1] for _ in range(m + 1)]
    for i in range(1, n + 1):
        now: list[list[int]] = [[1]]
        for j in range(1, m + 1):
            above, left = rows[j], now[j - 1]
            counts = [0] * (i * j + 1)
            for u, c in enumerate(above):
                counts[u + j] += c
            for u, c in enumerate(left):
                counts[u] += c
            now.append(counts)
        rows = now
    counts = rows[m]
    total, below, k = math.comb(n + m, n), 0, 0
    while k < n * m // 2 and 1 - 2 * (below + counts[k]) / total >= confidence:
        below += counts[k]
        k += 1
    return k


def not_well(run: LoadRun) -> str:
    """Which programs did not end well, and why, in a line; "" where all did."""
    bad = [p for p in run.programs if p.how != "ok"]
    many = {p.program for p in run.programs if p.copy > 0}
    said = [f"{p.program}{f', copy {p.copy}' if p.program in many else ''}: {p.reason}" for p in bad[:_MOST_NAMED]]
    said += [f"and {len(bad) - _MOST_NAMED} more"] if len(bad) > _MOST_NAMED else []
    return f"{len(bad)} of {len(run.programs)} programs did not end well: {'; '.join(said)}" if bad else ""


def canary_said(run: LoadRun) -> str:
    """What the canary told of the memory before, during and after, in a line; "" where it did not sing."""
    levels = {when: run.canary_level(when) for when in ("before", "during", "after")}
    told = [f"{1e9 * s:.1f} ns {when}" for when, s in levels.items() if math.isfinite(s)]
    return "A load from memory took " + ", ".join(told) if told else ""


def utilisation(run: LoadRun, step_s: float = 0.5) -> list[tuple[float, float]]:
    """Share of the programs' CPUs that they had, by time.

    Returns:
        (seconds after the clock's start, 0 … 1) of each step's begin.
    """
    steps = max(1, math.ceil(run.bench_s / step_s))
    busy = [0.0] * steps
    for t in run.threads:
        for s in t.spans:
            ran = s.user_s + s.system_s
            if ran <= 0 or s.wall_s <= 0:
                continue
            low, high = max(0.0, s.from_s), max(0.0, s.to_s)
            for i in range(int(low / step_s), min(steps - 1, int(high / step_s)) + 1):
                overlap = min(high, (i + 1) * step_s) - max(low, i * step_s)
                busy[i] += ran * max(0.0, overlap) / s.wall_s
    room = max(1, len(run.cpus))
    widths = [min(step_s, run.bench_s - i * step_s) or step_s for i in range(steps)]
    return [
        (i * step_s, min(1.0, b / (w * room)) if w > 0 else 0.0)
        for i, (b, w) in enumerate(zip(busy, widths, strict=True))
    ]
