"""The request of a rating, whose settings run in rounds (see `rounds`), and the records of its result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.experiments.rating import RatedRun
from meshmark.experiments.rounds import Rounds, RoundsPlan
from meshmark.experiments.setting import Setting, check_shells, parse
from meshmark.place.other_work import result_flags, shares_during
from meshmark.store.files import write_json
from meshmark.store.record import Metric, Record
from meshmark.store.session import load_plan

PLAN: Final = "rating.json"
MOST_SETTINGS: Final = 50


@dataclass(slots=True, kw_only=True)
class RatingPlan(RoundsPlan):
    """The request of a rating.

    Attributes:
        names: Name of each configuration; for a setting without another name, its text.
        texts: Text of each setting.
        add_to: CSV file to which the runs are added; "" if there is no such file.
    """

    names: list[str]
    texts: list[str]
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

    @property
    def labels(self) -> Sequence[str]:
        """Return the names of the configurations."""
        return self.names

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


def rated(session: Rounds[RatingPlan]) -> dict[str, list[RatedRun]]:
    """Return the runs of each configuration that has any, in the order of the settings."""
    by_name: Mapping[str, list[RatedRun]] = {name: [] for name in session.plan.names}
    for run in session.counted:
        assert run.value is not None
        by_name[run.side].append(RatedRun(run.value, run.pair, run.place))
    return {name: runs for name, runs in by_name.items() if runs}


def records(
    session: Rounds[RatingPlan], letters: Mapping[str, str], machine: str, command_line: str, build: str
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
    for name, runs_of_it in rated(session).items():
        runs = [run for run in session.counted if run.side == name]
        first = runs[0]
        rows.append(
            Record.from_samples(
                Metric(plan.figure.name, first.unit, first.better, "figure by which the runs are judged"),
                [run.value for run in runs_of_it],
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
