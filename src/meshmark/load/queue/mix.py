"""Reads mix files: kinds of jobs, when they are submitted, and how the queue treats them.

[mix]
name = "night"
policies = ["none", "balance", "pack"]   # slots, discipline and max_slots are optional

[[job]]
name = "solver"
copies = 20
every_s = 30                  # mean time between submissions, at random times; or submit_s = [0, 10, …]
run_time_s = 120
slots = 4
memory_gb_per_s = 8           # of all slots, when it runs alone
command = ["./solver"]        # only for runs on this machine
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from meshmark.errors import UsageError, quoted
from meshmark.load.queue.jobs import MAX_SLOTS, JobMix, QueuedJob
from meshmark.store.files import parse_toml, read_text
from meshmark.values.inputs import LIST, PRINTABLE, Input, Name, OneOf, checked

DISCIPLINES: Final = ("fcfs", "first-fit")
SLOTS: Final = ("cores", "procs", "threads")
DEFAULT_POLICIES: Final = ("none", "balance", "pack", "compact")
MAX_JOBS: Final = 1_000_000
_YEAR_S: Final = 366 * 86400.0

_Policy = Annotated[str, Field(min_length=1, max_length=200), PRINTABLE]
_Seconds = Annotated[float, Field(ge=0, le=_YEAR_S)]


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("allowed: text without NUL")
    return text


@dataclass(frozen=True, slots=True)
class QueueRules(Input):
    """How the queue treats jobs.

    Attributes:
        name: Name of the mix.
        policies: Placement policies to compare, as `meshmark place` takes them.
        slots: What a slot is, as for `meshmark place --slots`.
        discipline: `fcfs`: a job that does not fit holds up the jobs behind it; `first-fit`: others may overtake it.
        max_slots: Slots of all running jobs together; "machine": as many as the machine has; 0: no limit, so that only
            the policy makes a job wait.
    """

    name: Name = "mix"
    policies: Annotated[tuple[_Policy, ...], Field(min_length=1, max_length=20), LIST] = DEFAULT_POLICIES
    slots: Annotated[str, OneOf(SLOTS)] = "cores"
    discipline: Annotated[str, OneOf(DISCIPLINES)] = "fcfs"
    max_slots: Annotated[int, Field(ge=0, le=MAX_SLOTS)] | Literal["machine"] = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind(Input):
    """A [[job]]: copies of a job, with the times of submission."""

    name: Name
    run_time_s: Annotated[float, Field(gt=0, le=_YEAR_S)]
    slots: Annotated[int, Field(ge=1, le=MAX_SLOTS)] = 1
    copies: Annotated[int, Field(ge=1, le=MAX_JOBS)] = 1
    submit_s: _Seconds | Annotated[tuple[_Seconds, ...], Field(max_length=MAX_JOBS), LIST] = 0.0
    every_s: _Seconds = 0.0
    memory_gb_per_s: Annotated[float, Field(ge=0, le=1e6)] = 0.0
    command: Annotated[tuple[Annotated[str, AfterValidator(_no_nul)], ...], LIST] = ()

    def times(self, random_source: random.Random) -> Iterator[float]:
        """Yield the times of submission of the copies, s."""
        if isinstance(self.submit_s, tuple):
            yield from self.submit_s
            return
        time_s = self.submit_s
        for _ in range(self.copies):
            if self.every_s:
                time_s += random_source.expovariate(1 / self.every_s)
            yield time_s


@dataclass(frozen=True, slots=True)
class _MixTables(Input):
    job: Annotated[tuple[JobKind, ...], Field(min_length=1, max_length=1000), LIST]
    mix: QueueRules = QueueRules()


@dataclass(frozen=True, slots=True)
class MixFile:
    """The content of a mix file."""

    rules: QueueRules
    kinds: tuple[JobKind, ...]

    @property
    def is_random(self) -> bool:
        """Return whether times of submission are random, so that repetitions differ."""
        return any(kind.every_s and not isinstance(kind.submit_s, tuple) for kind in self.kinds)

    def mix(self, seed: int) -> JobMix:
        """Return the jobs; random times of submission depend on the seed only."""
        source = random.Random(seed)
        jobs = [
            QueuedJob(kind.name, time_s, kind.run_time_s, kind.slots, 1e9 * kind.memory_gb_per_s, kind.command)
            for kind in self.kinds
            for time_s in kind.times(source)
        ]
        return JobMix(self.rules.name, tuple(sorted(jobs, key=lambda job: job.submit_s)))


def read_mix(path: Path) -> MixFile:
    """Return the content of a mix file.

    Raises:
        UsageError: One line that names the key, what was found and what is allowed.
    """
    raw = checked(_MixTables, parse_toml(read_text(path), quoted(path)), quoted(path))
    for kind in raw.job:
        if isinstance(kind.submit_s, tuple) and (kind.every_s or len(kind.submit_s) != kind.copies):
            raise UsageError(
                f"{quoted(path)}: job {kind.name}: submit_s: found {len(kind.submit_s)} times for {kind.copies} copies"
                f"{' and every_s' if kind.every_s else ''}; allowed: one time for each copy, without every_s"
            )
    total = sum(kind.copies for kind in raw.job)
    if total > MAX_JOBS:
        raise UsageError(f"{quoted(path)}: copies: found {total} jobs in all; allowed: at most {MAX_JOBS}")
    return MixFile(raw.mix, raw.job)
