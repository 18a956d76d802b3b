"""Runs a command under several settings in rounds, in each of which every setting runs once, in random order.

So drift and other states of the machine affect all settings alike. The state is kept in a folder, so that interrupted
rounds can resume: a file with the request, and `journal.jsonl` with a line per run, flushed to disk before the run
counts.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.experiment import INTERRUPTED, JOURNAL, ExperimentRun
from meshmark.experiments.plan import SettingsPlan
from meshmark.experiments.trial import BUDGET
from meshmark.store.record import median
from meshmark.store.session import Journal

FAILED_RUNS: Final = 3  # a setting is left out after this many consecutive failed runs, or if its first run fails
ALL_ROUNDS: Final = "all rounds are complete"
NONE_LEFT: Final = "every setting failed"


@dataclass(slots=True, kw_only=True)
class RoundsPlan(SettingsPlan, ABC):
    """The request of runs in rounds.

    Attributes:
        rounds: Number of rounds.
    """

    rounds: int

    @property
    @abstractmethod
    def labels(self) -> Sequence[str]:
        """Return the label of every setting."""

    def order(self, number: int) -> list[str]:
        """Return the labels in the random order of a round."""
        labels = list(self.labels)
        random.Random(f"{self.seed} {number}").shuffle(labels)
        return labels


Plan = TypeVar("Plan", bound=RoundsPlan)
RunOnce = Callable[[int, str, int], ExperimentRun]  # round, setting, position in the round


@dataclass
class Rounds(Generic[Plan]):
    """The state of runs in rounds.

    Attributes:
        runs: All runs, in their order.
        counted: The runs that have a value and the unit of the first of them.
        spent_s: Time of all runs in s.
        failed: Reasons of failed runs by setting.
        left_out: Settings that do not run any more, with the reason.
        stopped: Why no further round runs.
    """

    plan: Plan
    runs: list[ExperimentRun] = field(default_factory=list)
    counted: list[ExperimentRun] = field(default_factory=list)
    spent_s: float = 0.0
    failed: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    _in_a_row: dict[str, int] = field(default_factory=dict)

    def add(self, run: ExperimentRun) -> None:
        """Add a run.

        Raises:
            UsageError: The figure of merit cannot be read as requested.
        """
        self.spent_s += run.spent_s
        first = self.counted[0] if self.counted else None
        if first and run.value is not None and (run.unit, run.points) != (first.unit, first.points):
            run.reason = (
                f"--metric: found {run.points} values in {run.unit}, the first run had {first.points} in {first.unit}"
            )
            run.value = None
        self.runs.append(run)
        if run.value is not None:
            self.counted.append(run)
            self._in_a_row[run.side] = 0
            return
        if run.reason.startswith("--") and first is None:
            raise UsageError(run.reason)
        self.failed.setdefault(run.side, []).append(run.reason)
        # A setting that has not succeeded yet is left out at once.
        self._in_a_row[run.side] = self._in_a_row.get(run.side, FAILED_RUNS - 1) + 1
        if self._in_a_row[run.side] >= FAILED_RUNS:
            self.left_out[run.side] = run.reason

    def finished(self, number: int) -> str:
        """Return why a round does not run; "" if it runs."""
        if len(self.left_out) == len(self.plan.labels):
            return NONE_LEFT
        if number >= self.plan.rounds:
            return ALL_ROUNDS
        usual_s = median([run.spent_s for run in self.runs]) * len(self.plan.labels) if self.runs else 0.0
        return BUDGET if self.spent_s + usual_s > self.plan.budget_s else ""


def conduct(plan: Plan, folder: Path, run: RunOnce, notify: Callable[[Rounds[Plan]], None]) -> Rounds[Plan]:
    """Run or resume rounds until all are complete, they are interrupted or the budget is spent.

    Args:
        plan: The request.
        folder: Folder of the session.
        run: Function that runs a setting once.
        notify: Function that is called after every run.

    Raises:
        MeshmarkError: The journal belongs to another plan.
    """
    session = Rounds(plan)
    journal = Journal(folder / JOURNAL)
    complete = set[tuple[int, str]]()
    for _, entry in journal.entries(ExperimentRun.from_json, "a run"):
        if entry.side not in plan.labels:
            raise MeshmarkError(f"{journal.path}: belongs to another plan, which has no '{entry.side}'")
        complete.add((entry.pair, entry.side))
        session.add(entry)
    try:
        number = 0
        while not (stop_reason := session.finished(number)):
            for position, name in enumerate(plan.order(number)):
                if (number, name) in complete or name in session.left_out:
                    continue
                outcome = run(number, name, position)
                journal.append({"type": "run", **asdict(outcome)})
                session.add(outcome)
                notify(session)
            number += 1
        session.stopped = stop_reason
    except KeyboardInterrupt:
        session.stopped = INTERRUPTED
    return session
