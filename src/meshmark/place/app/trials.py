"""Measures all configurations of an application in rounds, in fresh processes.

The state is kept in a folder, so that an interrupted measurement can resume: `application.json` (what was asked for)
and `journal.jsonl` (one line per run, flushed to disk before the run counts). In each round every configuration runs
once, in random order, so that drift and other states of the machine affect all alike, and any two can be compared by
the ratios within rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.place.app.application import Application, of_tables
from meshmark.place.app.attempt import Attempt
from meshmark.place.app.configuration import Configuration
from meshmark.place.journal import BUDGET, appending, load_plan, runs_in, save_plan
from meshmark.store.record import median

PLAN: Final = "application.json"
JOURNAL: Final = "journal.jsonl"
FAILURES: Final = 2  # of a configuration, after which it is left out
INTERRUPTED: Final = "it was interrupted"
_LONGER: Final = 2.0  # times its usual time: a run that exceeds the budget may take so much, and is ended then

Run = Callable[[Configuration, int, bool, float], Attempt]


@dataclass(slots=True, kw_only=True)
class Plan:
    """What was asked for.

    Attributes:
        tables: Those of the application file, with what the command line changed.
        source: Folder of the file.
        rounds: In which each configuration runs once.
        warmup: Rounds before that, which do not count; the first of them observes placement.
        budget_s: Time of all runs; a resumed measurement has it once more.
        seed: Of the order within rounds.
        margin: Smallest relative difference that matters.
        run: Name of the run in the store.
        started: ISO 8601, UTC.
    """

    tables: dict[str, Any]
    source: str
    rounds: int
    warmup: int
    budget_s: float
    seed: int
    margin: float
    run: str
    started: str

    @property
    def application(self) -> Application:
        """The application.

        Raises:
            UsageError: A table is invalid.
        """
        return of_tables(self.tables, PLAN, Path(self.source))

    def save(self, folder: Path) -> None:
        save_plan(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> Plan:
        """The plan in a folder.

        Raises:
            UsageError: There is none.
            MeshmarkError: It cannot be read.
        """
        return load_plan(folder / PLAN, Plan, "an application")


@dataclass(slots=True)
class Trials:
    """All runs so far.

    Attributes:
        excluded: Why configurations are left out, by label.
        stopped: Why no more runs followed; "" if all rounds ran.
        before_s: Time of the runs before it was resumed, which the budget does not include.
    """

    plan: Plan
    all: Sequence[Configuration]
    attempts: list[Attempt] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stopped: str = ""
    before_s: float = 0.0

    def add(self, one: Attempt) -> None:
        self.attempts.append(one)
        if one.value is None:
            count = self.failures[one.configuration] = self.failures.get(one.configuration, 0) + 1
            if count >= FAILURES:
                self.excluded.setdefault(one.configuration, one.reason)

    @property
    def spent_s(self) -> float:
        """Time of the runs since it was started or resumed."""
        return math.fsum(a.spent_s for a in self.attempts) - self.before_s

    def left(self) -> list[Configuration]:
        return [c for c in self.all if c.label not in self.excluded]

    def of(self, label: str) -> dict[int, Attempt]:
        """Runs of a configuration that count, by round."""
        return {a.round: a for a in self.attempts if a.configuration == label and a.round > 0 and a.value is not None}

    def warm(self, label: str) -> Attempt | None:
        """The run in which placement was observed."""
        return next((a for a in self.attempts if a.configuration == label and a.seen and a.value is not None), None)

    def usual_s(self, label: str = "") -> float:
        """Time of a run of a configuration; of all if it has not run."""
        times = [a.spent_s for a in self.attempts if a.configuration == label] or [a.spent_s for a in self.attempts]
        return median(times) if times else 0.0


def conduct(
    plan: Plan, all_: Sequence[Configuration], folder: Path, run: Run, notify: Callable[[Trials], None]
) -> Trials:
    """Run or resume a measurement.

    Args:
        all_: The configurations, without those that could not be built.
        run: Runs a configuration in a round; the last two arguments are whether to observe placement, and the time in s
            after which it is ended.
        notify: Called after every run.

    Raises:
        MeshmarkError: The journal belongs to another plan, all configurations failed, or the budget ended before a run.
    """
    found = Trials(plan, all_)
    journal = folder / JOURNAL
    labels = {c.label for c in all_}
    for one in runs_in(journal, Attempt.from_json):
        if one.configuration not in labels:
            raise MeshmarkError(f"{journal}: belongs to another plan: found a run of '{one.configuration}'")
        found.add(one)
    found.before_s = found.spent_s
    with appending(journal) as write:
        try:
            found.stopped = _go_on(found, run, write, notify)
        except KeyboardInterrupt:
            found.stopped = INTERRUPTED
    if all_ and not found.left():
        raise MeshmarkError(f"{all_[0].label}: {found.excluded[all_[0].label]}")
    if found.stopped == BUDGET and not any(found.of(c.label) for c in all_):
        raise MeshmarkError(f"{BUDGET} before a run that counts", f"allow more than {plan.budget_s:.3g} s, or resume")
    return found


def _go_on(
    found: Trials, run: Run, write: Callable[[Mapping[str, Any]], None], notify: Callable[[Trials], None]
) -> str:
    """Run what is missing; returns why it ended early."""
    plan = found.plan
    # One that failed just before an interruption is repeated, as it would have been.
    done = {(a.configuration, a.round) for a in found.attempts if a.value is not None}
    for round_ in range(1 - plan.warmup, plan.rounds + 1):
        these = found.left()
        random.Random(f"{plan.seed} {round_}").shuffle(these)  # independent of all other rounds
        for one in these:
            if (one.label, round_) in done:
                continue
            for _ in range(FAILURES):  # after a failure once more, since it may have been the machine
                left, usual = plan.budget_s - found.spent_s, found.usual_s(one.label)
                if found.attempts and usual > left:
                    return BUDGET
                made = run(one, round_, round_ == 1 - plan.warmup <= 0, max(left, _LONGER * usual))
                if made.reason == BUDGET:
                    return BUDGET
                write(made.to_json())
                found.add(made)
                notify(found)
                if made.value is not None or one.label in found.excluded:
                    break
    return ""
