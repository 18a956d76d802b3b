"""Determines the likely reasons of unexpected results, with the evidence for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.applications.attempt import ConfigurationRun
from meshmark.machine.topology import Topology
from meshmark.store.record import median
from meshmark.values.units import counted

_WAITING: Final = 0.05  # share of the threads' time
_SYSTEM: Final = 0.1  # share of the CPU time, in addition to the share with fewer workers
_MORE: Final = 1.5  # ratio of faults or lost CPUs above which these are evidence
_FEW: Final = 10  # number of additional faults or lost CPUs up to which these explain no level
_PART: Final = 0.1  # share of the difference in elapsed time
_MIN_LEVEL: Final = 2  # minimum number of runs at each of two levels
_APART: Final = 5.0  # minimum ratio of the gap and the typical distance of neighbours within levels
_GAP: Final = 0.03  # minimum gap between two levels, relative to the lowest value


@dataclass(frozen=True, slots=True)
class RunMedians:
    """Medians of the runs of a configuration. `waiting_share` is from the run in which threads were observed."""

    elapsed_s: float
    cpu_s: float
    system_s: float
    waiting_share: float
    peak_bytes: float
    faults: float
    lost: float  # involuntary switches

    @staticmethod
    def from_runs(runs: Sequence[ConfigurationRun], warm: ConfigurationRun | None = None) -> RunMedians:
        """Return the medians of runs; the share of waiting is taken from `warm`, in which threads were observed."""

        def median_time(name: str) -> float:
            return median([a.times.get(name, 0.0) for a in runs])

        return RunMedians(
            median([a.elapsed_s for a in runs]),
            median_time("user") + median_time("system"),
            median_time("system"),
            waiting_share(warm),
            median([a.peak_bytes for a in runs]),
            median([a.counts.get("minor_faults", 0.0) + a.counts.get("major_faults", 0.0) for a in runs]),
            median([a.counts.get("switches_involuntary", 0.0) for a in runs]),
        )


def waiting_share(warm: ConfigurationRun | None) -> float:
    """Return the share of the threads' time in which they waited for a CPU; 0 without an observed run."""
    if warm is None or "waiting" not in warm.times:
        return 0.0
    waiting, cpu = warm.times["waiting"], warm.times.get("user", 0.0) + warm.times.get("system", 0.0)
    return waiting / (waiting + cpu) if waiting > 0 else 0.0


def of_sublinear(
    machine: Topology, few: RunMedians, many: RunMedians, workers: int, dimension: str, each: int = 1
) -> str:
    """Return why a program is slower than in proportion to its workers, as far as times and counts show.

    Args:
        machine: Topology, for its allowed CPUs and cores.
        few: Medians with one worker, or with few.
        many: Medians with `workers` workers.
        workers: The larger number of workers.
        dimension: Kind of worker: `threads`, `copies` or `ranks`.
        each: Number of units in a worker, such as the threads of a copy. If the workers are threads, the number of
            processes that have as many threads.
    """
    reasons = []
    allowed_cpus = set(machine.allowed_cpus)
    cpus, cores = len(allowed_cpus), sum(bool(allowed_cpus & set(core.cpus)) for core in machine.cores)
    if workers > cpus:
        reasons.append(f"{workers} {dimension} share {counted(cpus, 'CPU')}")
    elif workers > cores:
        reasons.append(f"{workers} {dimension} share {counted(cores, 'core')}")
    if many.waiting_share > _WAITING:
        reasons.append(f"threads waited for a CPU in {100 * many.waiting_share:.0f} % of their time")
    system_difference = _share(many.system_s, many.cpu_s) - _share(few.system_s, few.cpu_s)
    if system_difference > _SYSTEM:
        reasons.append(f"{100 * _share(many.system_s, many.cpu_s):.0f} % of the CPU time is in the kernel")
    if dimension == "threads" and many.elapsed_s > 0:
        busy_cpus = many.cpu_s / many.elapsed_s
        if busy_cpus < 0.9 * min(workers * each, cpus):
            reasons.append(f"only {busy_cpus:.1f} CPUs were busy on average")
        elif not reasons and many.cpu_s > 1.1 * few.cpu_s > 0:
            reasons.append(
                f"its threads were busy, and the CPU time grew by {100 * (many.cpu_s / few.cpu_s - 1):.0f} %: "
                "memory, caches or the clock are shared, or threads spin"
            )
    elif not reasons and dimension == "copies" and many.cpu_s > 1.1 * workers * few.cpu_s > 0:
        reasons.append(
            f"each copy took {100 * (many.cpu_s / workers / few.cpu_s - 1):.0f} % more CPU time: "
            "memory, caches or the clock are shared"
        )
    return "; ".join(reasons) or "the reason is not known"


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class TwoLevels:
    """Runs of one configuration at two levels."""

    low: float
    low_runs: int
    high: float
    high_runs: int
    evidence: str


def levels(runs: Mapping[int, ConfigurationRun]) -> TwoLevels | None:
    """Return two levels of values between which the gap exceeds the spread within both; None if there are none."""
    sorted_runs = sorted((a for a in runs.values() if a.value is not None), key=lambda a: a.value or 0.0)
    values = [a.value or 0.0 for a in sorted_runs]
    if len(values) < 3 * _MIN_LEVEL:
        return None
    cut = max(range(_MIN_LEVEL, len(values) - _MIN_LEVEL + 1), key=lambda i: values[i] - values[i - 1])
    gap = values[cut] - values[cut - 1]
    spread = max(values[cut - 1] - values[0], values[-1] - values[cut])
    if gap < max(_GAP * values[0], spread) or gap < _typical(values[:cut], values[cut:]) * _APART:
        return None
    low, high = RunMedians.from_runs(sorted_runs[:cut]), RunMedians.from_runs(sorted_runs[cut:])
    return TwoLevels(median(values[:cut]), cut, median(values[cut:]), len(values) - cut, _difference(low, high))


def _typical(*groups: Sequence[float]) -> float:
    """Return the largest mean distance of neighbouring values within a group."""
    return max((g[-1] - g[0]) / (len(g) - 1) for g in groups)


def _difference(one: RunMedians, other: RunMedians) -> str:
    differences = []
    time_s = abs(one.elapsed_s - other.elapsed_s)
    for description, a, b, unit, min_difference in (
        ("page faults", one.faults, other.faults, "", _FEW),
        ("lost CPUs", one.lost, other.lost, "", _FEW),
        ("time in the kernel", one.system_s, other.system_s, " s", _PART * time_s),
    ):
        low, high = min(a, b), max(a, b)
        if high > _MORE * low and high - low > min_difference:
            differences.append(f"{description}: {a:.3g}{unit} and {b:.3g}{unit}")
    return "; ".join(differences) or "page faults, preemptions and time in the kernel do not explain them"
