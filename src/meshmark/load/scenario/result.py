"""The result of a scenario: time, migrations and memory of each program and thread, and statistics over them.

A thread's time is user + system + waiting + sleeping. The Linux kernel counts the time that a thread ran and waited for
a CPU in ns (schedstat), and the split of the run time into user and system in ticks. The rest of wall time is sleep.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.statistics.estimates import jain
from meshmark.statistics.verdicts import MARGIN, Word, alike, judge
from meshmark.store.record import Metric

FOREIGN: Final = 0.05  # share of CPU time taken by other processes above which a run is disturbed
OFF_PLAN: Final = 0.05  # relative difference of the running time from the plan above which a program is off its plan
# Flags that may be the effect that a comparison looks for, such as a program that neighbours slow down. They are shown,
# but they are no reason to doubt the times.
EFFECTS: Final = frozenset({"off_plan"})
DRIFT: Final = 0.1  # change of the canary's latency from before to after above which a run is disturbed
STOLEN: Final = 0.01
MISPLACED: Final = 0.01  # share of a program's memory on other nodes; without a strict binding, also at least 1 MiB
_MAX_NAMED: Final = 5  # programs named in one message
Key = tuple[str, int]  # a program and its copy
RATES: Final[Mapping[str, tuple[str, ...]]] = {  # the counts that make up each metric
    "memory_rate": ("memory_read_bytes", "memory_write_bytes"),
    "cache_rate": ("cache_bytes",),
    "flop_rate": ("flops",),
    "integer_rate": ("int_ops",),
    "io_rate": ("io_read_bytes", "io_write_bytes"),
}


@dataclass(frozen=True, slots=True)
class ThreadSpan:
    """A thread between two samples. Times in s after the start of the clock; the four parts add up to `wall_s`."""

    from_s: float
    to_s: float
    user_s: float
    system_s: float
    waiting_s: float
    sleeping_s: float
    cpu: int
    moved: bool  # the thread came from another CPU

    @property
    def wall_s(self) -> float:
        """Return the length of the span in s."""
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """A thread from the later of its start and its program's release to its last sample, in s after the clock start."""

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
    cpus: tuple[int, ...]  # CPUs on which the thread ran
    spans: tuple[ThreadSpan, ...] = ()

    @property
    def wall_s(self) -> float:
        """Return the length of this time in s."""
        return self.to_s - self.from_s

    @property
    def accounted(self) -> float:
        """Return (user + system + waiting + sleeping) / wall; 1 if all time is accounted for, NaN if wall is 0."""
        parts = self.user_s + self.system_s + self.waiting_s + self.sleeping_s
        return parts / self.wall_s if self.wall_s > 0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """A copy of a program with all its processes and threads. Times are sums over its threads.

    The program ended as `how` says: ok, status, signal, timeout, stopped, failed (never started) or cut (the run was
    killed).

    A synthetic program has three phases: set-up, before the run starts; its calls; and the check of its results.
    """

    program: str
    copy: int
    how: str
    reason: str = ""  # if `how` is not ok
    setup_s: float = 0.0  # from the start of the process until it could be released
    released_s: float = 0.0
    ended_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    waiting_s: float = 0.0
    sleeping_s: float = 0.0
    unseen_s: float = 0.0  # CPU time of threads that ended between two samples, part of user and system
    threads: int = 0
    migrations: int = 0
    largest_bytes: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)  # node → B, at the last count
    done: Mapping[str, Any] = field(default_factory=dict)  # totals that a synthetic program counted
    figure: Metric | None = None  # figure of merit of an application
    figure_value: float = 0.0

    @property
    def wall_s(self) -> float:
        """Return the time in s from the release of the copy to its end."""
        return self.ended_s - self.released_s

    @property
    def synthetic(self) -> bool:
        """Return whether the program is synthetic: it counts its work."""
        return float(self.done.get("wall_s", 0.0)) > 0

    @property
    def running_s(self) -> float:
        """Return the duration of the calls and waits of the schedule; for a command, the time from release to end."""
        return float(self.done["wall_s"]) if self.synthetic else self.wall_s

    @property
    def check_s(self) -> float:
        """Return the time from the last call of a synthetic program to its end."""
        return max(0.0, self.wall_s - self.running_s)

    @property
    def plan_gap(self) -> float | None:
        """Return the relative difference of `running_s` from the plan; None without a plan.

        Rates are off by the inverse, because the counts are as planned.
        """
        planned_s = float(self.done.get("planned_s", 0.0))
        return self.running_s / planned_s - 1 if self.synthetic and planned_s > 0 else None

    def rates(self) -> dict[str, float]:
        """Return the metrics of `RATES` over `running_s`, without metrics that are 0."""
        if not self.synthetic:
            return {}
        amounts = {m: sum(float(self.done.get(k, 0.0)) for k in keys) for m, keys in RATES.items()}
        return {m: amount / self.running_s for m, amount in amounts.items() if amount > 0}

    @property
    def paced(self) -> bool:
        """Return whether the program followed a schedule."""
        return any(float(self.done.get(k, 0.0)) > 0 for k in ("pace", "spun_s", "late_s"))

    @property
    def cpu_share(self) -> float:
        """Return the CPU time over the time that threads were ready to run, 0 to 1; 1 if no thread was ready."""
        ran_s = self.user_s + self.system_s
        return ran_s / (ran_s + self.waiting_s) if ran_s + self.waiting_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of the whole run in s. After PARbench (Nagel and Linn 1991; Janda, Müller, Nagel, Trenkler 2007)."""

    bench_s: float  # from the start of the clock to the end of the last program
    cpus: int  # CPUs that any program may use
    available_s: float  # bench_s x cpus
    user_s: float
    system_s: float
    idle_s: float  # available - user - system; includes time taken by other processes
    completion_s: float  # mean over the programs, from the start of the clock to their ends
    run_s: float  # sum of the programs' wall times
    waiting_s: float  # sum over all threads

    @property
    def utilisation(self) -> float:
        """Return the CPU time over the available CPU time; NaN if none was available."""
        return (self.user_s + self.system_s) / self.available_s if self.available_s > 0 else math.nan


@dataclass(kw_only=True)
class LoadRun:
    """A scenario run, read from its folder."""

    folder: Path
    status: str  # ok, timeout, stopped, cut
    header: Mapping[str, Any]
    scenario: Mapping[str, Any]
    programs: list[ProgramUse]
    threads: list[ThreadUse]
    bench_s: float
    cpus: tuple[int, ...]  # CPUs that any program may use
    bound: Mapping[Key, tuple[int, ...]]  # CPUs of each copy, () if not bound
    events: list[dict[str, Any]]
    windows: dict[Key, list[dict[str, Any]]]  # windows of synthetic programs; times after the start of the clock
    canary: list[dict[str, Any]]
    end: Mapping[str, Any]
    begin_s: float = 0.0  # start of the clock, s after `start` of the header
    nodes: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)  # nodes requested for the memory of each copy

    @property
    def cut(self) -> bool:
        """Return whether the journal has no end, because the runner was killed or could not write it."""
        return self.status == "cut"

    def totals(self) -> Totals:
        """Return totals over all programs that were started; times are in s."""
        started_programs = [p for p in self.programs if p.how != "failed"]
        user, system = sum(p.user_s for p in started_programs), sum(p.system_s for p in started_programs)
        available = self.bench_s * len(self.cpus)
        return Totals(
            bench_s=self.bench_s,
            cpus=len(self.cpus),
            available_s=available,
            user_s=user,
            system_s=system,
            idle_s=available - user - system,
            completion_s=statistics.fmean(p.ended_s for p in started_programs) if started_programs else 0.0,
            run_s=sum(p.wall_s for p in started_programs),
            waiting_s=sum(p.waiting_s for p in started_programs),
        )

    def fairness(self, alone_s: Mapping[str, float] | None = None) -> float:
        """Return Jain's index over the programs, from 1/n (one gets everything) to 1 (all get the same).

        Args:
            alone_s: run time of each program alone. With it, the index is over relative speeds, otherwise over
                `cpu_share`.
        """
        successful_programs = [p for p in self.programs if p.how == "ok"]
        if alone_s is not None:
            return jain(
                [alone_s[p.program] / p.wall_s for p in successful_programs if p.program in alone_s and p.wall_s > 0]
            )
        return jain([p.cpu_share for p in successful_programs])

    def flags(self, program: ProgramUse) -> frozenset[str]:
        """Return the record flags that apply to the results of a program."""
        flags: set[str] = set()
        program_table: Mapping[str, Any] = next(
            (p for p in self.scenario.get("programs", ()) if p.get("name") == program.program), {}
        )
        bound_cpus = self.bound.get((program.program, program.copy), ())
        if int(program_table.get("threads", 1)) > (len(bound_cpus) or len(self.cpus)):
            flags.add("oversubscribed")
        if bound_cpus and any(
            not set(t.cpus) <= set(bound_cpus)
            for t in self.threads
            if (t.program, t.copy) == (program.program, program.copy)
        ):
            flags.add("migrated")
        if self._misplaced(program, str(program_table.get("memory") or "")):
            flags.add("misplaced")
        if self.status != "ok" or program.how in {"timeout", "stopped", "cut"}:
            flags.add("stopped")
        if program.done.get("wrong"):
            flags.add("unverified")
        if program.how == "ok" and program.plan_gap is not None and abs(program.plan_gap) > OFF_PLAN:
            flags.add("off_plan")
        machine = self.end.get("machine", {})
        busy, steal = machine.get("busy_s", []), machine.get("steal_s", [])
        available = self.bench_s * len(self.cpus)
        if available > 0 and steal and sum(steal[c] for c in self.cpus if c < len(steal)) > STOLEN * available:
            flags.add("stolen")
        foreign = self.foreign_s(busy)
        if (foreign is not None and foreign > FOREIGN * available) or self.canary_drift() > DRIFT:
            flags.add("disturbed")
        return frozenset(flags)

    def _misplaced(self, program: ProgramUse, memory: str) -> bool:
        requested_nodes = self.nodes.get((program.program, program.copy), ())
        misplaced_bytes = sum(b for node, b in program.pages.items() if node not in requested_nodes)
        min_bytes = 0 if memory.startswith("bind") else 1 << 20
        return bool(requested_nodes) and misplaced_bytes > max(min_bytes, MISPLACED * sum(program.pages.values()))

    def foreign_s(self, busy: Sequence[float] | None = None) -> float | None:
        """Return the CPU time in s that other processes used on the programs' CPUs; None if the run was cut."""
        busy = self.end.get("machine", {}).get("busy_s") if busy is None else busy
        if not busy:
            return None
        own_cpu_s = sum(p.user_s + p.system_s for p in self.programs) + float(
            self.end.get("sampling", {}).get("cpu_s", 0.0)
        )
        return max(0.0, sum(busy[c] for c in self.cpus if c < len(busy)) - own_cpu_s)

    def canary_level(self, when: str) -> float:
        """Return the median latency in s of the canary `before`, `during` or `after` the run; NaN without samples."""
        samples = [float(c["load_latency_s"]) for c in self.canary if c.get("when") == when]
        return statistics.median(samples) if samples else math.nan

    def canary_drift(self) -> float:
        """Return the canary's relative latency change from before to after; 0 if either has under three samples."""
        sample_counts = [sum(c.get("when") == when for c in self.canary) for when in ("before", "after")]
        latency_before = self.canary_level("before")
        change = abs(self.canary_level("after") / latency_before - 1) if latency_before else math.nan
        return change if min(sample_counts) >= 3 and math.isfinite(change) else 0.0


@dataclass(frozen=True, slots=True)
class Slowdown:
    """Run time together over run time alone. `interval`: 95 % interval; None with fewer than 4 runs of each."""

    ratio: float
    interval: tuple[float, float] | None
    alone: int  # runs
    together: int

    def judged(self, doubt: str = "") -> Word:
        """Return the verdict; `higher`: slower together. `doubt`: why times cannot be judged, such as their flags."""
        return judge(None if doubt else self.interval, alike(MARGIN))


def slowdown(alone_s: Sequence[float], together_s: Sequence[float]) -> Slowdown:
    """Return the ratio of two sets of run times: the median of all pairwise ratios, and its interval.

    Source:
        Hodges and Lehmann 1963, with the interval of Moses, on logarithms. It assumes no distribution, only that the
        two sets differ by a factor.

    Raises:
        MeshmarkError: a set is empty, or a time is not positive.
    """
    if not alone_s or not together_s or min(*alone_s, *together_s, 1.0) <= 0:
        raise MeshmarkError("slowdown: found no run times, or times of 0 s; needs at least one positive time of each")
    ratios = sorted(t / a for t in together_s for a in alone_s)
    n, m = len(together_s), len(alone_s)
    rank = rank_sum_bound(n, m)
    return Slowdown(statistics.median(ratios), (ratios[rank - 1], ratios[n * m - rank]) if rank >= 1 else None, m, n)


def rank_sum_bound(n: int, m: int, confidence: float = 0.95) -> int:
    """Return the largest k with 1 - 2 P(U < k) >= confidence, U of Mann and Whitney under no difference; at least 0."""
    if n * m > 10_000:
        return max(0, int(n * m / 2 - 1.96 * math.sqrt(n * m * (n + m + 1) / 12)))
    # Number of arrangements of n and m with U = u: f(n, m, u) = f(n - 1, m, u - m) + f(n, m - 1, u).
    rows: list[list[int]] = [[1] for _ in range(m + 1)]
    for i in range(1, n + 1):
        next_rows: list[list[int]] = [[1]]
        for j in range(1, m + 1):
            counts_without_first, counts_without_second = rows[j], next_rows[j - 1]
            counts = [0] * (i * j + 1)
            for u, c in enumerate(counts_without_first):
                counts[u + j] += c
            for u, c in enumerate(counts_without_second):
                counts[u] += c
            next_rows.append(counts)
        rows = next_rows
    counts = rows[m]
    total, sum_below, k = math.comb(n + m, n), 0, 0
    while k < n * m // 2 and 1 - 2 * (sum_below + counts[k]) / total >= confidence:
        sum_below += counts[k]
        k += 1
    return k


def failures_text(run: LoadRun) -> str:
    """Return the programs that failed, with reasons, in one line; "" if none failed."""
    failed_programs = [p for p in run.programs if p.how != "ok"]
    programs_with_copies = {p.program for p in run.programs if p.copy > 0}
    reasons = [
        f"{p.program}{f', copy {p.copy}' if p.program in programs_with_copies else ''}: {p.reason}"
        for p in failed_programs[:_MAX_NAMED]
    ]
    reasons += [f"and {len(failed_programs) - _MAX_NAMED} more"] if len(failed_programs) > _MAX_NAMED else []
    return (
        f"{len(failed_programs)} of {len(run.programs)} programs failed: {'; '.join(reasons)}"
        if failed_programs
        else ""
    )


def canary_text(run: LoadRun) -> str:
    """Return the memory latency before, during and after the run in one line; "" if the canary took no sample."""
    levels = {when: run.canary_level(when) for when in ("before", "during", "after")}
    latencies = [f"{1e9 * s:.1f} ns {when}" for when, s in levels.items() if math.isfinite(s)]
    return "Memory latency: " + ", ".join(latencies) if latencies else ""


def utilisation(run: LoadRun, step_s: float = 0.5) -> list[tuple[float, float]]:
    """Return the utilisation of the programs' CPUs over time.

    Returns:
        (start of each step in s after the start of the clock, utilisation from 0 to 1).
    """
    steps = max(1, math.ceil(run.bench_s / step_s))
    busy = [0.0] * steps
    for t in run.threads:
        for s in t.spans:
            ran_s = s.user_s + s.system_s
            if ran_s <= 0 or s.wall_s <= 0:
                continue
            low, high = max(0.0, s.from_s), max(0.0, s.to_s)
            for i in range(int(low / step_s), min(steps - 1, int(high / step_s)) + 1):
                overlap = min(high, (i + 1) * step_s) - max(low, i * step_s)
                busy[i] += ran_s * max(0.0, overlap) / s.wall_s
    cpu_count = max(1, len(run.cpus))
    widths = [min(step_s, run.bench_s - i * step_s) or step_s for i in range(steps)]
    return [
        (i * step_s, min(1.0, b / (w * cpu_count)) if w > 0 else 0.0)
        for i, (b, w) in enumerate(zip(busy, widths, strict=True))
    ]
