"""Names the likely reasons of results that are not as expected, with the evidence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.machine.topology import Topology
from meshmark.place.app.attempt import Attempt
from meshmark.store.record import median
from meshmark.values.units import counted

_WAITING: Final = 0.05  # share of the threads' time
_SYSTEM: Final = 0.1  # share of the CPU time, above that of fewer workers
_MORE: Final = 1.5  # times as many faults or lost CPUs are evidence
_FEW: Final = 10  # more faults or lost CPUs explain no level
_PART: Final = 0.1  # of the difference in elapsed time
_MIN_LEVEL: Final = 2  # runs at each of two levels
_APART: Final = 5.0  # times the spread within levels
_GAP: Final = 0.03  # relative, between two levels


@dataclass(frozen=True, slots=True)
class Usual:
    """Medians of the runs of a configuration; `waiting_share` is that of the run in which threads were observed."""

    elapsed_s: float
    cpu_s: float
    system_s: float
    waiting_share: float
    peak_bytes: float
    faults: float
    lost: float  # involuntary switches

    @staticmethod
    def of(runs: Sequence[Attempt], warm: Attempt | None = None) -> Usual:
        def middle(name: str) -> float:
            return median([a.times.get(name, 0.0) for a in runs])

        return Usual(
            median([a.elapsed_s for a in runs]),
            middle("user") + middle("system"),
            middle("system"),
            waiting_share(warm),
            median([a.peak_bytes for a in runs]),
            median([a.counts.get("minor_faults", 0.0) + a.counts.get("major_faults", 0.0) for a in runs]),
            median([a.counts.get("switches_involuntary", 0.0) for a in runs]),
        )


def waiting_share(warm: Attempt | None) -> float:
    """Share of the threads' time in which they waited for a CPU, in an observed run; 0 if none was."""
    if warm is None or "waiting" not in warm.times:
        return 0.0
    waiting, cpu = warm.times["waiting"], warm.times.get("user", 0.0) + warm.times.get("system", 0.0)
    return waiting / (waiting + cpu) if waiting > 0 else 0.0


def of_sublinear(machine: Topology, few: Usual, many: Usual, workers: int, dimension: str, each: int = 1) -> str:
    """Why a program is slower than in proportion to its workers, as far as times and counts tell.

    Args:
        each: What a worker consists of, such as the threads of a copy; of threads, the processes that have as many.
    """
    found = []
    allowed = set(machine.allowed_cpus)
    cpus, cores = len(allowed), sum(bool(allowed & set(core.cpus)) for core in machine.cores)
    if workers > cpus:
        found.append(f"{workers} {dimension} share {counted(cpus, 'CPU')}")
    elif workers > cores:
        found.append(f"{workers} {dimension} share {counted(cores, 'core')}")
    if many.waiting_share > _WAITING:
        found.append(f"threads waited for a CPU in {100 * many.waiting_share:.0f} % of their time")
    more = _share(many.system_s, many.cpu_s) - _share(few.system_s, few.cpu_s)
    if more > _SYSTEM:
        found.append(f"{100 * _share(many.system_s, many.cpu_s):.0f} % of the CPU time is in the kernel")
    if dimension == "threads" and many.elapsed_s > 0:
        busy = many.cpu_s / many.elapsed_s
        if busy < 0.9 * min(workers * each, cpus):
            found.append(f"only {busy:.1f} CPUs were busy on average")
        elif not found and many.cpu_s > 1.1 * few.cpu_s > 0:
            found.append(
                f"its threads were busy, and the CPU time grew by {100 * (many.cpu_s / few.cpu_s - 1):.0f} %: "
                "memory, caches or the clock are shared, or threads spin"
            )
    elif not found and dimension == "copies" and many.cpu_s > 1.1 * workers * few.cpu_s > 0:
        found.append(
            f"each copy took {100 * (many.cpu_s / workers / few.cpu_s - 1):.0f} % more CPU time: "
            "memory, caches or the clock are shared"
        )
    return "; ".join(found) or "the reason is not known"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Levels:
    """Runs of one configuration at two levels."""

    low: float
    low_runs: int
    high: float
    high_runs: int
    evidence: str


def levels(runs: Mapping[int, Attempt]) -> Levels | None:
    """Two levels of values far apart, if there are: the gap between them exceeds the spread within both."""
    ordered = sorted((a for a in runs.values() if a.value is not None), key=lambda a: a.value or 0.0)
    values = [a.value or 0.0 for a in ordered]
    if len(values) < 3 * _MIN_LEVEL:
        return None
    cut = max(range(_MIN_LEVEL, len(values) - _MIN_LEVEL + 1), key=lambda i: values[i] - values[i - 1])
    gap = values[cut] - values[cut - 1]
    within = max(values[cut - 1] - values[0], values[-1] - values[cut])
    if gap < max(_GAP * values[0], within) or gap < _typical(values[:cut], values[cut:]) * _APART:
        return None
    low, high = Usual.of(ordered[:cut]), Usual.of(ordered[cut:])
    return Levels(median(values[:cut]), cut, median(values[cut:]), len(values) - cut, _difference(low, high))


def _typical(*groups: Sequence[float]) -> float:
    """Largest mean distance of neighbours within a group."""
    return max((g[-1] - g[0]) / (len(g) - 1) for g in groups)


def _difference(one: Usual, other: Usual) -> str:
    found = []
    time_s = abs(one.elapsed_s - other.elapsed_s)
    for what, a, b, unit, least in (
        ("page faults", one.faults, other.faults, "", _FEW),
        ("lost CPUs", one.lost, other.lost, "", _FEW),
        ("time in the kernel", one.system_s, other.system_s, " s", _PART * time_s),
    ):
        low, high = min(a, b), max(a, b)
        if high > _MORE * low and high - low > least:
            found.append(f"{what}: {a:.3g}{unit} and {b:.3g}{unit}")
    return "; ".join(found) or "page faults, lost CPUs and time in the kernel do not explain them"
