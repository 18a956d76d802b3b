"""Study: OpenMP programs that share CPUs with sequential programs, by wait policy."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.scenario import PRIORITIES, WAIT_POLICIES
from meshmark.load.studies.cells import LEAD_S, Work, member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.overload import cpu_shares
from meshmark.load.studies.results import StudyPoint
from meshmark.load.studies.study import Study, checked_work
from meshmark.values.inputs import quoted_value
from meshmark.values.numbers import whole

OMP_OUTLASTS: Final = 1000.0  # run time of a sequential program relative to the parallel program, see `run_time_s`


def running(run: LoadRun, program: str, copy: int) -> list[tuple[float, float]]:
    """Return (duration in s, mean number of running threads) of a copy for each sampling period.

    The check at the end of a synthetic program is not included.
    """
    use = next(p for p in run.programs if (p.program, p.copy) == (program, copy))
    start_s = use.released_s
    end_s = start_s + use.running_s
    step_s = float(run.header.get("sample_s", 0.1))
    bins = max(1, math.ceil((end_s - start_s) / step_s - 1e-9))
    running_s = [0.0] * bins
    for thread in run.threads:
        if (thread.program, thread.copy) != (program, copy):
            continue
        for s in thread.spans:
            cpu, width = s.user_s + s.system_s, s.to_s - s.from_s
            if cpu <= 0 or width <= 0:
                continue
            for i in range(max(0, int((s.from_s - start_s) / step_s)), bins):
                low, high = start_s + i * step_s, min(end_s, start_s + (i + 1) * step_s)
                if low >= s.to_s:
                    break
                running_s[i] += cpu * max(0.0, min(high, s.to_s) - max(low, s.from_s)) / width
    widths = [min(end_s, start_s + (i + 1) * step_s) - start_s - i * step_s for i in range(bins)]
    return [(w, r / w) for w, r in zip(widths, running_s, strict=True) if w > 0]


def serialisation(samples: Sequence[tuple[float, float]]) -> float:
    """Return the serialisation index: the share of the time in which fewer than 2 threads ran, 0 to 1.

    Only the mean number of running threads in each sampling period is known. For a mean from 1 to 2, the share is taken
    as 2 - mean. This is exact if there are two threads and at least one always runs, and a lower bound otherwise. A
    spinning thread (OMP_WAIT_POLICY=active) counts as running; the run time shows the cost of spinning.

    Args:
        samples: (s, threads) from `running`.
    """
    total_s = sum(w for w, _ in samples)
    return sum(w * min(1.0, max(0.0, 2.0 - r)) for w, r in samples) / total_s if total_s > 0 else math.nan


def checked_priority(text: str) -> tuple[int, str]:
    """Return the nice value and the scheduling class that a word states, such as `5` or `batch`.

    Raises:
        UsageError: The word states neither.
    """
    if text in PRIORITIES:
        return 0, text
    value = whole(text)
    if value is None or not -20 <= value <= 19:
        raise UsageError(f"priorities: found '{quoted(text)}'; allowed: -20 to 19, {', '.join(PRIORITIES)}")
    return value, "other"


@dataclass(kw_only=True)
class OmpOverloadStudy(Study):
    """Slowdown of OpenMP programs next to endless sequential programs on the same CPUs, by OMP_WAIT_POLICY.

    Attributes:
        parallel: The OpenMP program; None: it is synthesised from the calibration data.
        sequential: The sequential program; None: it is synthesised from the calibration data.
        threads: Threads of a parallel program; 0: one per CPU.
        copies: Copies of the parallel program.
        sequentials: Number of sequential programs; 0: one per CPU.
        policies: Values of OMP_WAIT_POLICY.
        priorities: Priorities of the sequential programs: nice values, or scheduling classes.
        run_time_s: Run time of a parallel program alone. Its threads synchronise after each call, thousands of times a
            second. If they spin while one thread has no CPU, each barrier takes a time slice of the scheduler, and the
            program takes a hundred times as long. `StudyOptions.timeout_s` limits a run, by default to a minute.
    """

    study = "omp_overload"
    columns = ("OMP_WAIT_POLICY", "slowdown", "95 %", "serial alone", "serial together", "running", "others received")
    measured = ("parallel",)
    measures_waiting = True
    parallel: Work | None = None
    sequential: Work | None = None
    threads: int = 0
    copies: int = 1
    sequentials: int = 0
    policies: Sequence[str] = WAIT_POLICIES
    priorities: Sequence[str] = ("0",)
    run_time_s: float = 0.5

    def __post_init__(self) -> None:
        timeout_s = self.options.timeout_s or max(60.0, 100 * self.run_time_s)
        self.options = dataclasses.replace(self.options, timeout_s=timeout_s)
        super().__post_init__()
        self.threads, self.sequentials = self.threads or max(2, len(self.cpus)), self.sequentials or len(self.cpus)
        if self.threads < 2 or self.copies < 1 or self.sequentials < 1:
            raise UsageError(
                f"threads: found {self.threads} with {self.copies} copies and {self.sequentials} sequential programs; "
                "allowed: at least 2 threads, 1 copy and 1 program"
            )
        unknown = [quoted_value(p) for p in self.policies if p not in WAIT_POLICIES]
        if unknown or not self.policies:
            raise UsageError(
                f"policies: found {unknown[0] if unknown else 'none'}; allowed: {', '.join(WAIT_POLICIES)}"
            )
        self.priorities = list(dict.fromkeys(self.priorities))
        self._priorities = [checked_priority(text) for text in self.priorities]
        if (self.parallel is None or self.sequential is None) and not self.variants:
            raise UsageError("parallel: found neither programs nor calibration data to synthesise them from")
        if self.parallel is not None:
            self.parallel = checked_work(self.parallel, "parallel")
        if self.sequential is not None:
            self.sequential = checked_work(self.sequential, "sequential")

    def groups(self) -> list[list[StudyCell]]:
        """Return a group per wait policy and priority: the parallel programs alone, and next to sequential programs."""
        parallel, sequential = self.parallel, self.sequential
        if parallel is None:
            # Kernels that only exchange lines or wait at barriers slow down hundreds of times if one thread has no
            # CPU, which is not representative of programs.
            target = self.target(self.run_time_s, threads=self.threads, name="parallel")
            parallel = self.maker.file("parallel", target, only=lambda v: v.kind != "sharing", rounds=0)
        if sequential is None:
            file = self.maker.file("sequential", self.target(self.run_time_s, name="sequential"), rounds=0)
            sequential = self.maker.longer(file, OMP_OUTLASTS)
        groups = []
        for policy, (number, priority) in itertools.product(self.policies, enumerate(self._priorities)):
            # The usual priority is no condition, so that records without it are comparable with earlier ones.
            word = self.priorities[number]
            label = policy if word == "0" else f"{policy}, priority {word}"
            neighbours = member(
                "sequential", sequential, [self.cpus] * self.sequentials, endless=True, priority=priority
            )
            alone, beside = (
                member(
                    "parallel",
                    parallel,
                    [self.cpus] * self.copies,
                    threads=self.threads,
                    wait_policy=policy,
                    start_s=start_s,
                    oversubscribe=self.threads > len(self.cpus),
                )
                for start_s in (0.0, LEAD_S)
            )
            conditions = {
                "wait_policy": policy,
                "threads": self.threads,
                "copies": self.copies,
                "programs": self.sequentials,
                **({} if word == "0" else {"priority": word}),
            }
            together: dict[str, Any] = {"x": self.sequentials, "label": label, "conditions": conditions}
            groups.append(
                [
                    self.cell(f"{label} alone", [alone], sample_s=0.05),
                    self.cell(f"{label} together", [beside, neighbours], sample_s=0.05, **together),
                ]
            )
        return groups

    def inspect(self, run: LoadRun) -> dict[str, float]:
        """Return the serialisation and the mean number of running threads of the copies."""
        per_copy = [running(run, "parallel", c) for c in range(self.copies)]
        total_s = sum(w for samples in per_copy for w, _ in samples)
        return {
            "serialisation": statistics.fmean(serialisation(x) for x in per_copy),
            "running": sum(w * r for samples in per_copy for w, r in samples) / total_s if total_s > 0 else 0.0,
        }

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add serialisation, running threads, and the CPU time of the sequential programs over CPU and waiting time."""
        p = super().add(cell, alone)
        if p is None:
            return None
        medians = []
        for company, name in (("alone", alone.name), ("together", cell.name)):
            indices = [o.more["serialisation"] for o in self.outcomes[name]]
            self.results.add("serialisation", indices, {**cell.conditions, "company": company}, p.flags)
            medians.append(f"{statistics.median(indices):.3f}")
        outcomes = self.outcomes[cell.name]
        threads = [o.more["running"] for o in outcomes]
        self.results.add("running_threads", threads, {**cell.conditions, "company": "together"}, p.flags)
        shares = [statistics.fmean(cpu_shares(o, "sequential")) for o in outcomes]
        self.results.add("attained", shares, {**cell.conditions, "program": "sequential"}, p.flags)
        running_text = f"{statistics.median(threads):.2f} of {self.threads}"
        row = [*self.row(p), *medians, running_text, f"{100 * statistics.median(shares):.1f} %"]
        self.rows.append((row, p.flags))
        return p
