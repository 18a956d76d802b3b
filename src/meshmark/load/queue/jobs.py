"""Jobs of a mix, and which jobs of an accounting file are left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from meshmark.errors import UsageError
from meshmark.values.units import counted, duration

MAX_SLOTS: Final = 1_000_000  # of a job


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that is submitted at a time and computes in all of its slots until it ends.

    Attributes:
        name: Name or number of the job.
        submit_s: Time of submission since the first submission, s.
        run_s: Time that it takes alone, s.
        slots: Number of slots.
        bytes_per_s: Memory traffic of all its slots when it runs alone, B/s; 0 if it is unknown.
        command: Program and arguments of a real run; () if the job is only known from accounting.
    """

    name: str
    submit_s: float
    run_s: float
    slots: int
    bytes_per_s: float = 0.0
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobMix:
    """The jobs of a mix.

    Attributes:
        name: Name of the mix or of its file.
        jobs: The jobs by time of submission; the first one is submitted at 0 s.
        left_out: Number of jobs of the source that are left out, by reason.
    """

    name: str
    jobs: tuple[QueuedJob, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    def within(self, begin_s: float, end_s: float) -> JobMix:
        """Return the jobs that were submitted between two times; times then count from the first of them.

        Raises:
            UsageError: There are no such jobs.
        """
        selected = [j for j in self.jobs if begin_s <= j.submit_s < end_s]
        if not selected:
            last = self.jobs[-1].submit_s if self.jobs else 0.0
            raise UsageError(
                f"--from, --to: found no job that was submitted then; the last one was submitted after {duration(last)}"
            )
        count = len(self.jobs) - len(selected)
        reasons = {**self.left_out, "submitted at another time": count} if count else self.left_out
        first_s = selected[0].submit_s
        return replace(self, jobs=tuple(replace(j, submit_s=j.submit_s - first_s) for j in selected), left_out=reasons)

    def scaled(self, factor: float) -> JobMix:
        """Return the mix with all times multiplied by a factor."""
        return replace(
            self, jobs=tuple(replace(j, submit_s=j.submit_s * factor, run_s=j.run_s * factor) for j in self.jobs)
        )


class JobCollector:
    """Collects the jobs of an accounting file, and counts by reason which ones are left out."""

    def __init__(self) -> None:
        self._jobs: list[QueuedJob] = []
        self.left_out: Counter[str] = Counter()
        self.jobs_seen = 0

    def leave_out(self, reason: str) -> None:
        """Count a job that is left out."""
        self.jobs_seen += 1
        self.left_out[reason] += 1

    def add(self, name: str, submit_s: float | None, run_s: float | None, slots: int | None) -> None:
        """Add a job, or count the reason why it is left out.

        Args:
            name: Name or number of the job.
            submit_s: Time of submission, in s since any time; None if it is unknown.
            run_s: Time between start and end, s; None if the job did not run or has not ended.
            slots: Number of CPUs that it had; None if it is unknown.
        """
        if not all(math.isfinite(value) for value in (submit_s, run_s, slots) if value is not None):
            self.leave_out("on a line that cannot be read")
        elif run_s is None:
            self.leave_out("without a start or an end")
        elif run_s < 0:
            self.leave_out("whose end is before the start: the clock was set back")
        elif run_s == 0:
            self.leave_out("of less than a second")
        elif submit_s is None:
            self.leave_out("without a time of submission")
        elif slots is None or not 1 <= slots <= MAX_SLOTS:
            self.leave_out("without a number of CPUs")
        else:
            self.jobs_seen += 1
            self._jobs.append(QueuedJob(name, submit_s, run_s, slots))

    def mix(self, name: str, option: str) -> JobMix:
        """Return the collected jobs by time of submission.

        Raises:
            UsageError: The file has no job that ran.
        """
        if not self._jobs:
            raise UsageError(f"{option}: {name} has no job that ran{left_out_text(self.left_out, '; left out: ')}")
        self._jobs.sort(key=lambda job: job.submit_s)
        first_s = self._jobs[0].submit_s
        jobs: Sequence[QueuedJob] = [replace(job, submit_s=job.submit_s - first_s) for job in self._jobs]
        return JobMix(name, tuple(jobs), dict(self.left_out))


def left_out_text(left_out: Mapping[str, int], prefix: str = "") -> str:
    """Return the jobs that are left out by reason, after a prefix; "" if there are none."""
    reasons = [f"{counted(count, 'job')} {reason}" for reason, count in left_out.items()]
    return prefix + ", ".join(reasons) if reasons else ""
