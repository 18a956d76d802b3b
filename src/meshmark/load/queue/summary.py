"""Summarises how a mix fared under each policy, and what a policy gains over the first one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from meshmark.load.queue.jobs import JobMix
from meshmark.load.queue.simulation import PolicyRun
from meshmark.statistics.shift import shift
from meshmark.values.inputs import fields_of

CLEAR: Final = 0.02  # logarithm of the ratio above which the order of two policies is clear
SHORT_S: Final = 10.0  # slowdowns refer to at least this run time, as in studies of batch systems, or to the median


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """How the jobs of a mix fared under a policy.

    Attributes:
        total_s: Time from the first submission to the end of the last job, s.
        waiting_s: Mean, median, 95th percentile and maximum of the time between submission and start, s.
        turnaround_s: The same of the time between submission and end, s.
        slowdown: Mean, median, 95th percentile and maximum of the time between submission and end, relative to the run
            time alone (to at least `SHORT_S`, or to the median run time if it is shorter).
        stretch: Mean, median, 95th percentile and maximum of the run time relative to the run time alone.
        use: Share of the time of all slots that jobs would need alone.
        oversubscribed: Number of jobs that shared a CPU with an earlier job when they started.
        refused: Number of jobs that could not run on this machine.
    """

    policy: str
    jobs: int
    total_s: float
    waiting_s: Mapping[str, float]
    turnaround_s: Mapping[str, float]
    slowdown: Mapping[str, float]
    stretch: Mapping[str, float]
    use: float
    oversubscribed: int
    refused: int

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON, with the names of the attributes."""
        return fields_of(self)


def summarise(mix: JobMix, run: PolicyRun) -> PolicySummary:
    """Return the summary of a mix that ran under a policy, with at least one job that ran."""
    jobs = [mix.jobs[r.job] for r in run.runs]
    alone = np.array([job.run_s for job in jobs])
    submit = np.array([job.submit_s for job in jobs])
    slots = np.array([job.slots for job in jobs])
    start = np.array([r.start_s for r in run.runs])
    end = np.array([r.end_s for r in run.runs])
    total_s = float(end.max())
    least_s = min(SHORT_S, float(np.median(alone)))
    return PolicySummary(
        run.policy,
        len(jobs),
        total_s,
        _spread(np.maximum(0.0, start - submit)),
        _spread(end - submit),
        _spread(np.maximum(1.0, (end - submit) / np.maximum(alone, least_s))),
        _spread((end - start) / alone),
        float(alone @ slots) / (run.slots * total_s),
        sum(r.oversubscribed for r in run.runs),
        len(run.refused),
    )


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "median": float(np.median(values)),
        "p95": float(np.percentile(values, 95)),
        "max": float(values.max()),
    }


@dataclass(frozen=True, slots=True)
class PolicyGain:
    """A policy against the first one, over repetitions with the same jobs.

    Attributes:
        repetitions: Number of repetitions; with fewer than 6, the intervals are None.
        total: Total time relative to the first policy, and its 95 % interval.
        waiting_s: Mean waiting time minus the mean waiting time under the first policy, s, and its 95 % interval.
    """

    policy: str
    repetitions: int
    total: float
    total_interval: tuple[float, float] | None
    waiting_s: float
    waiting_interval_s: tuple[float, float] | None

    def to_json(self) -> dict[str, Any]:
        """Return the gain as JSON, with the names of the attributes."""
        return fields_of(self)


def gains(repetitions: Sequence[Sequence[PolicySummary]]) -> list[PolicyGain]:
    """Return the gain of each policy but the first.

    Args:
        repetitions: For each repetition, the summaries of the same policies in the same order.
    """
    result = []
    for index in range(1, len(repetitions[0])):
        ratios = [math.log(row[index].total_s / row[0].total_s) for row in repetitions]
        waits = [row[index].waiting_s["mean"] - row[0].waiting_s["mean"] for row in repetitions]
        (ratio, ratio_interval), (wait, wait_interval) = shift(ratios), shift(waits)
        interval = None if ratio_interval is None else (math.exp(ratio_interval[0]), math.exp(ratio_interval[1]))
        result.append(
            PolicyGain(repetitions[0][index].policy, len(repetitions), math.exp(ratio), interval, wait, wait_interval)
        )
    return result


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many pairs of policies have the same order in the simulation and in real runs.

    Attributes:
        pairs: Pairs of which the simulated total times, or the mean times between submission and end, differ by more
            than `CLEAR`. A pair that differs in both counts twice.
    """

    pairs: int
    same_order: int

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON, with the names of the attributes."""
        return fields_of(self)


def agreement(measured: Sequence[Sequence[PolicySummary]], simulated: Sequence[Sequence[PolicySummary]]) -> Agreement:
    """Compare the order of policies, by medians over repetitions."""
    pairs = []
    for figure in (total_s, mean_turnaround_s):
        real, model = (
            [median_of(rows, index, figure) for index in range(len(rows[0]))] for rows in (measured, simulated)
        )
        for (real_a, real_b), (model_a, model_b) in zip(combinations(real, 2), combinations(model, 2), strict=True):
            if abs(math.log(model_a / model_b)) > CLEAR:
                pairs.append((real_a > real_b) == (model_a > model_b))
    return Agreement(len(pairs), sum(pairs))


def total_s(summary: PolicySummary) -> float:
    """Return the total time, s."""
    return summary.total_s


def mean_turnaround_s(summary: PolicySummary) -> float:
    """Return the mean time between submission and end, s."""
    return summary.turnaround_s["mean"]


def median_of(rows: Sequence[Sequence[PolicySummary]], index: int, figure: Callable[[PolicySummary], float]) -> float:
    """Return the median of a figure of a policy over repetitions."""
    return float(np.median([figure(row[index]) for row in rows]))


def waiting_over_time(mix: JobMix, run: PolicyRun) -> list[tuple[float, int]]:
    """Return the number of waiting jobs over time: each time at which it changes, s, and the number from then on."""
    changes: dict[float, int] = {}
    for r in run.runs:
        submit_s = mix.jobs[r.job].submit_s
        if r.start_s > submit_s:
            changes[submit_s] = changes.get(submit_s, 0) + 1
            changes[r.start_s] = changes.get(r.start_s, 0) - 1
    steps, count = [(0.0, 0)], 0
    for time_s in sorted(changes):
        count += changes[time_s]
        steps.append((time_s, count))
    return steps
