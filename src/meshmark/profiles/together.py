"""Measures how much a program is slowed by other programs that run beside it, to check predictions.

The neighbour runs over and over, on the CPUs that pressures have in a profile, until the program has ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from meshmark import process
from meshmark.errors import MeshmarkError
from meshmark.experiments.rounds import Rounds, RoundsPlan
from meshmark.experiments.setting import Setting
from meshmark.experiments.trial import last_line, printable, tail
from meshmark.experiments.turns import Company
from meshmark.machine.tree import format_list
from meshmark.place.native import find_place
from meshmark.place.other_work import result_flags, used_s
from meshmark.profiles.pressure import ALONE
from meshmark.profiles.profile import interval_of
from meshmark.profiles.session import Solitary, bound, slowdowns
from meshmark.store.files import open_private, write_json
from meshmark.store.session import load_plan
from meshmark.values.secrets import reveal_words

PLAN: Final = "together.json"
LEAD_S: Final = 0.3  # time that a neighbour runs before the program starts


@dataclass(slots=True, kw_only=True)
class TogetherPlan(RoundsPlan):
    """The request to measure a program beside others.

    Attributes:
        name: Name of the program.
        program_cpus, neighbour_cpus: CPUs of the program, and of the neighbour.
        neighbours: Command of each neighbour, by name.
    """

    name: str
    program_cpus: list[int]
    neighbour_cpus: list[int]
    neighbours: dict[str, list[str]]

    @property
    def labels(self) -> Sequence[str]:
        """Return the run alone and the names of all neighbours."""
        return [ALONE, *self.neighbours]

    @property
    def settings(self) -> dict[str, Setting]:
        """Return the placement of the program, which is the same beside all neighbours."""
        return bound(self.labels, self.program_cpus)

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of the session."""
        write_json(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> TogetherPlan:
        """Return the plan in a folder.

        Raises:
            UsageError: The folder has no plan.
            MeshmarkError: The plan cannot be read.
        """

        def parse(content: Any) -> TogetherPlan:
            return TogetherPlan(**content)

        return load_plan(folder / PLAN, parse, "a check", "meshmark predict neighbours A B --check starts one")


class _OnCpus(Solitary):
    """A neighbour to which all work on its CPUs is attributed."""

    def __init__(self, cpus: Sequence[int]) -> None:
        super().__init__()
        self._cpus = cpus
        self._start_s = 0.0

    def begin(self) -> None:
        super().begin()
        self._start_s = used_s(self._cpus)

    def end(self) -> str:
        self.cpu_s = used_s(self._cpus) - self._start_s
        return super().end()


@dataclass
class ProgramsBeside:
    """Makes the contexts of the runs of a plan.

    Attributes:
        plan: The request.
        folder: Folder for the output of the neighbour.
    """

    plan: TogetherPlan
    folder: Path

    @contextlib.contextmanager
    def __call__(self, label: str) -> Iterator[Company]:
        """Run a neighbour over and over until the end of the context.

        Raises:
            MeshmarkError: The neighbour failed.
        """
        if label == ALONE:
            yield Solitary()
            return
        out, err = self.folder / "neighbour.out", self.folder / "neighbour.err"
        bind = ["run", "--bind", f"list={format_list(self.plan.neighbour_cpus)}", "--"]
        command = [str(find_place()), *bind, *reveal_words(self.plan.neighbours[label])]
        loop = ["sh", "-c", '"$@" || exit; while "$@" > /dev/null; do :; done', "sh", *command]
        with open_private(out, "wb") as output, open_private(err, "wb") as errors:
            child = process.start(
                loop, process.TERMINATED_WITH_PARENT, stdout=output, stderr=errors, start_new_session=True
            )
            company = _OnCpus(self.plan.neighbour_cpus)
            try:
                time.sleep(LEAD_S)
                yield company
                if child.poll() is not None:
                    text = last_line((tail(out) + "\n" + tail(err)).splitlines())
                    exit_text = process.status_text(child.returncode)
                    raise MeshmarkError(f"{label}: ended with {exit_text}: {printable(text)}")
            finally:
                process.end([child])


def add_measured(answer: Mapping[str, Any], session: Rounds[TogetherPlan]) -> None:
    """Add the measured slowdowns of a program to the predictions in an answer of `neighbours.predict_all`."""
    for one in answer["predictions"]:
        if one["program"] != session.plan.name:
            continue
        factors = slowdowns(session, one["neighbour"])
        if not factors:
            one["reason"] = session.left_out.get(one["neighbour"], session.stopped)
            continue
        one["measured"] = median(factors)
        one["measured_low"], one["measured_high"] = interval_of(factors) or (None, None)
        runs = [run for run in session.counted if run.side == one["neighbour"]]
        one["measured_flags"] = sorted(result_flags(runs))
