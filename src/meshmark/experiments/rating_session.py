"""Runs a command under several settings in rounds, so that the settings can be rated.

The state is kept in a folder, so that an interrupted rating can resume: `rating.json` (the request) and `journal.jsonl`
(one line per run, flushed to disk before the run counts). In each round every setting runs once, in random order, so
that drift and other states of the machine affect all alike.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.experiment import INTERRUPTED, ExperimentRun
from meshmark.experiments.plan import SettingsPlan
from meshmark.experiments.rating import RatedRun
from meshmark.experiments.setting import Setting, check_shells, parse
from meshmark.experiments.trial import BUDGET
from meshmark.place.other_work import result_flags, shares_during
from meshmark.store.files import write_json
from meshmark.store.record import Metric, Record, median
from meshmark.store.session import Journal, load_plan

PLAN: Final = "rating.json"
MOST_SETTINGS: Final = 50
FAILED_RUNS: Final = 3  # a setting is left out after this many consecutive failed runs, or if its first run fails
ALL_ROUNDS: Final = "all rounds are complete"
NONE_LEFT: Final = "every setting failed"


@dataclass(slots=True, kw_only=True)
class RatingPlan(SettingsPlan):
    """The request of a rating.

    Attributes:
        names: Name of each configuration; for a setting without another name, its text.
        texts: Text of each setting.
        rounds: Number of rounds.
        add_to: CSV file to which the runs are added; "" if there is no such file.
    """

    names: list[str]
    texts: list[str]
    rounds: int
    add_to: str

    def check(self) -> None:
        """Check the request.

        Raises:
            UsageError: A setting is invalid, or only some have a shell command, whose effect would last in runs of the
                others.
        """
        if not 1 <= len(self.texts) <= MOST_SETTINGS:
            raise UsageError(f"SETTING: found {len(self.texts)} settings; allowed: 1 to {MOST_SETTINGS}")
        check_shells(self.settings)

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the settings by the name of their configuration.

        Raises:
            UsageError: A setting is invalid.
        """
        return {name: parse("SETTING", text) for name, text in zip(self.names, self.texts, strict=True)}

    def order(self, number: int) -> list[str]:
        """Return the names of all configurations in the random order of a round."""
        names = list(self.names)
        random.Random(f"{self.seed} {number}").shuffle(names)
        return names

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of the rating."""
        write_json(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> RatingPlan:
        """Return the plan in a folder.

        Raises:
            UsageError: The folder has no plan.
            MeshmarkError: The plan cannot be read.
        """
        hint = "meshmark rate SETTING SETTING -- COMMAND starts one"
        return load_plan(folder / PLAN, lambda content: RatingPlan(**content), "a rating", hint)


RunOnce = Callable[[int, str, int], ExperimentRun]  # round, configuration, position in the round


@dataclass
class RatingSession:
    """The state of a rating.

    Attributes:
        runs: All runs, in their order.
        counted: The runs that have a value and the unit of the first of them.
        spent_s: Time of all runs in s.
        failed: Reasons of failed runs by configuration.
        left_out: Configurations that do not run any more, with the reason.
        stopped: Why no further round runs.
    """

    plan: RatingPlan
    runs: list[ExperimentRun] = field(default_factory=list)
    counted: list[ExperimentRun] = field(default_factory=list)
    spent_s: float = 0.0
    failed: dict[str, list[str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    stopped: str = ""
    _in_a_row: dict[str, int] = field(default_factory=dict)

    def rated(self) -> dict[str, list[RatedRun]]:
        """Return the runs of each configuration that has any, in the order of the settings."""
        by_name: Mapping[str, list[RatedRun]] = {name: [] for name in self.plan.names}
        for run in self.counted:
            assert run.value is not None
            by_name[run.side].append(RatedRun(run.value, run.pair, run.place))
        return {name: runs for name, runs in by_name.items() if runs}

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
        if len(self.left_out) == len(self.plan.names):
            return NONE_LEFT
        if number >= self.plan.rounds:
            return ALL_ROUNDS
        usual_s = median([run.spent_s for run in self.runs]) * len(self.plan.names) if self.runs else 0.0
        return BUDGET if self.spent_s + usual_s > self.plan.budget_s else ""


def conduct(plan: RatingPlan, folder: Path, run: RunOnce, notify: Callable[[RatingSession], None]) -> RatingSession:
    """Run or resume a rating until all rounds are complete, it is interrupted or the budget is spent.

    Args:
        plan: The request.
        folder: Folder of the rating.
        run: Function that runs a setting once.
        notify: Function that is called after every run.

    Raises:
        MeshmarkError: The journal belongs to another plan.
    """
    session = RatingSession(plan)
    journal = Journal(folder / "journal.jsonl")
    complete = set[tuple[int, str]]()
    for _, entry in journal.entries(ExperimentRun.from_json, "a run"):
        if entry.side not in plan.names:
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


def records(
    session: RatingSession, letters: Mapping[str, str], machine: str, command_line: str, build: str
) -> list[Record]:
    """Return one record per configuration with the values of its runs.

    Args:
        session: The rating.
        letters: Letter of the group of each configuration.
        machine: Name of this machine. Records of a setting with a host have the name of that host.
        command_line: Command line of Meshmark.
        build: Version of Meshmark.
    """
    plan, settings, rows = session.plan, session.plan.settings, list[Record]()
    for name, rated in session.rated().items():
        runs = [run for run in session.counted if run.side == name]
        first = runs[0]
        rows.append(
            Record.from_samples(
                Metric(plan.figure.name, first.unit, first.better, "figure by which the runs are judged"),
                [run.value for run in rated],
                source="host",
                machine=settings[name].host or machine,
                instrument="rating",
                conditions={
                    "program": Path(plan.command[0]).name,
                    "command": shlex.join(plan.command),
                    "setting": name,
                    **shares_during(runs),
                },
                flags=result_flags(runs),
                provenance={
                    "build": build,
                    "command": command_line,
                    "start": plan.started,
                    "seed": plan.seed,
                    "group": letters[name],
                    "failed": len(session.failed.get(name, ())),
                    "stopped": session.stopped,
                },
            )
        )
    return rows


def unique(names: Sequence[str]) -> list[str]:
    """Return the names, each with a number if it occurred before, such as `same` and `same (2)`."""
    return [name if (n := names[:i].count(name)) == 0 else f"{name} ({n + 1})" for i, name in enumerate(names)]
