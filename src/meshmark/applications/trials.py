"""Measures all configurations of an application in rounds, in fresh processes.

The state is kept in a folder, so that an interrupted measurement can resume: `application.json` (the request)
and `journal.jsonl` (one line per run, flushed to disk before the run counts). In each round every configuration runs
once, in random order, so that drift and other states of the machine affect all alike, and any two can be compared by
the ratios within rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.applications.application import Application, of_tables
from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.configuration import Configuration
from meshmark.errors import MeshmarkError
from meshmark.experiments.trial import BUDGET
from meshmark.store.files import write_json
from meshmark.store.record import median
from meshmark.store.session import Journal, load_plan

PLAN: Final = "application.json"
JOURNAL: Final = "journal.jsonl"
FAILURES: Final = 2  # number of failures after which a configuration is left out
INTERRUPTED: Final = "it was interrupted"
_LONGER: Final = 2.0  # a run that exceeds the budget is ended after this multiple of its usual time

Run = Callable[[Configuration, int, bool, float], ConfigurationRun]


@dataclass(slots=True, kw_only=True)
class ApplicationPlan:
    """The request of a measurement.

    Attributes:
        tables: Tables of the application file, with the changes of the command line.
        source: Folder of the file.
        rounds: Number of rounds; in each of them, each configuration runs once.
        warmup: Number of additional rounds at the start, which do not count; the first of them observes placement.
        budget_s: Time in s for all runs; a resumed measurement has this time once more.
        seed: Seed of the order within rounds.
        margin: Smallest relative difference that matters.
        run: Name of the run in the store.
        started: Time of the start, ISO 8601, UTC.
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
        """Return the application.

        Raises:
            UsageError: A table is invalid.
        """
        return of_tables(self.tables, PLAN, Path(self.source))

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of the run."""
        write_json(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> ApplicationPlan:
        """Return the plan in a folder.

        Raises:
            UsageError: The folder has no plan.
            MeshmarkError: The plan cannot be read.
        """
        return load_plan(folder / PLAN, lambda content: ApplicationPlan(**content), "an application")


@dataclass(slots=True)
class Trials:
    """All runs so far.

    Attributes:
        excluded: Reasons why configurations are left out, by label.
        stopped: Reason why no more runs followed; "" if all rounds ran.
        before_s: Time in s of the runs before the measurement was resumed, which the budget does not include.
    """

    plan: ApplicationPlan
    all: Sequence[Configuration]
    attempts: list[ConfigurationRun] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    stopped: str = ""
    before_s: float = 0.0

    def add(self, run: ConfigurationRun) -> None:
        """Add a run. After `FAILURES` failed runs, its configuration is excluded with the reason of the last one."""
        self.attempts.append(run)
        if run.value is None:
            count = self.failures[run.configuration] = self.failures.get(run.configuration, 0) + 1
            if count >= FAILURES:
                self.excluded.setdefault(run.configuration, run.reason)

    @property
    def spent_s(self) -> float:
        """Return the time in s of the runs since the measurement was started or resumed."""
        return math.fsum(a.spent_s for a in self.attempts) - self.before_s

    def left(self) -> list[Configuration]:
        """Return the configurations that are not excluded, in their order."""
        return [c for c in self.all if c.label not in self.excluded]

    def valid_runs(self, label: str) -> dict[int, ConfigurationRun]:
        """Return the runs of a configuration that count, by round."""
        return {a.round: a for a in self.attempts if a.configuration == label and a.round > 0 and a.value is not None}

    def warm(self, label: str) -> ConfigurationRun | None:
        """Return the run in which placement was observed; None if there is no such run."""
        return next((a for a in self.attempts if a.configuration == label and a.seen and a.value is not None), None)

    def usual_s(self, label: str = "") -> float:
        """Return the median time of a run of a configuration, in s; of all configurations if it has not run."""
        times = [a.spent_s for a in self.attempts if a.configuration == label] or [a.spent_s for a in self.attempts]
        return median(times) if times else 0.0


def conduct(
    plan: ApplicationPlan, all_: Sequence[Configuration], folder: Path, run: Run, notify: Callable[[Trials], None]
) -> Trials:
    """Run or resume a measurement.

    Args:
        plan: Request of the measurement.
        all_: The configurations that could be built.
        folder: Folder with the journal.
        run: Function that runs a configuration in a round. The last two arguments are whether to observe placement, and
            the time in s after which the run is ended.
        notify: Function that is called after every run.

    Raises:
        MeshmarkError: The journal belongs to another plan, all configurations failed, or the budget ended before a run
            that counts.
    """
    trials = Trials(plan, all_)
    journal = Journal(folder / JOURNAL)
    labels = {c.label for c in all_}
    for _, attempt in journal.entries(ConfigurationRun.from_json, "a run"):
        if attempt.configuration not in labels:
            raise MeshmarkError(f"{journal.path}: belongs to another plan: found a run of '{attempt.configuration}'")
        trials.add(attempt)
    trials.before_s = trials.spent_s
    try:
        trials.stopped = _go_on(trials, run, journal, notify)
    except KeyboardInterrupt:
        trials.stopped = INTERRUPTED
    if all_ and not trials.left():
        raise MeshmarkError(f"{all_[0].label}: {trials.excluded[all_[0].label]}")
    if trials.stopped == BUDGET and not any(trials.valid_runs(c.label) for c in all_):
        raise MeshmarkError(f"{BUDGET} before a run that counts", f"allow more than {plan.budget_s:.3g} s, or resume")
    return trials


def _go_on(trials: Trials, run: Run, journal: Journal, notify: Callable[[Trials], None]) -> str:
    """Run all missing rounds. Return why they ended early; "" if all rounds ran."""
    plan = trials.plan
    # A run that failed just before an interruption is repeated, as it would have been without the interruption.
    completed_runs = {(a.configuration, a.round) for a in trials.attempts if a.value is not None}
    for round_ in range(1 - plan.warmup, plan.rounds + 1):
        configurations = trials.left()
        random.Random(f"{plan.seed} {round_}").shuffle(configurations)  # independent of all other rounds
        for configuration in configurations:
            if (configuration.label, round_) in completed_runs:
                continue
            for _ in range(FAILURES):  # a failed run is repeated, since the machine may have caused the failure
                rest_s, usual_s = plan.budget_s - trials.spent_s, trials.usual_s(configuration.label)
                if trials.attempts and usual_s > rest_s:
                    return BUDGET
                attempt = run(configuration, round_, round_ == 1 - plan.warmup <= 0, max(rest_s, _LONGER * usual_s))
                if attempt.reason == BUDGET:
                    return BUDGET
                journal.append(attempt.to_json())
                trials.add(attempt)
                notify(trials)
                if attempt.value is not None or configuration.label in trials.excluded:
                    break
    return ""
