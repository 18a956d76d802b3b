"""A plan: the spec's steps in order, each one a command line with an estimate of its time."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from meshmark.describe import Description, description
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.probe import words
from meshmark.measure.spec import Spec
from meshmark.store.files import read_json, write_file
from meshmark.values.grammar import seconds
from meshmark.values.inputs import LIST, Excerpt, checked

_ID: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$"  # it names a file of the run folder
BUDGET: Final = "--budget"


@dataclass(frozen=True, slots=True)
class Step(Excerpt):
    """One process: `argv` without the probe's own path, `budget_s` is what it may take."""

    id: Annotated[str, Field(pattern=_ID, description="an id of a step: letters, digits, _ . -")]
    instrument: str
    argv: Annotated[tuple[str, ...], LIST]
    budget_s: float
    ranks: int = 0  # processes that a launcher starts; 0: the probe alone
    mpi: str = ""  # whose launcher

    @property
    def repeats(self) -> str:
        """The same for all repetitions of a step: its name in the specification."""
        return re.sub(r"^\d+-|\.r\d+$", "", self.id)


@dataclass(frozen=True, slots=True)
class Plan(Excerpt):
    spec: str
    steps: Annotated[tuple[Step, ...], LIST]

    @property
    def budget_s(self) -> float:
        return sum(step.budget_s for step in self.steps)

    def save(self, path: Path) -> None:
        write_file(path, json.dumps(asdict(self), indent=1).encode() + b"\n")

    @staticmethod
    def load(path: Path) -> Plan:
        """Raises MeshmarkError where the file is missing or is no plan."""
        try:
            return checked(Plan, read_json(path), f"cannot read the plan {path}", MeshmarkError)
        except UsageError as why:  # it is ours
            raise MeshmarkError(f"cannot read the plan {path}: {quoted(why)}") from why


class Launch(NamedTuple):
    """One run of an instrument: of the probe alone, or of so many ranks under a library."""

    argv: tuple[str, ...]
    budget_s: float
    ranks: int = 0
    mpi: str = ""
    turn: int = 0  # of its library, from 1, where several take turns


def launched(d: Description, argv: Sequence[str]) -> list[Launch]:
    """The runs that the words ask for, in their order.

    Several libraries take turns, A B B A, each time with half of the budget: else what changes on the machine meanwhile
    would look like a difference of theirs, and what differs from one start of ranks to the next would not be seen.

    Raises:
        UsageError, AbsentError: of `--ranks`, `--mpi` or `--budget`.
    """
    default = str(d.parameter("budget").default)
    if not d.ranks:
        budget = dict(itertools.pairwise(argv)).get("--budget", default)
        return [Launch((d.name, *argv), seconds(BUDGET, budget))]
    from meshmark.measure.launch import chosen, counts, cpus

    asked = {"--ranks": "all", "--mpi": "any", "--budget": default, "--seed": str(d.parameter("seed").default)}
    rest: list[str] = []
    words_ = iter(argv)
    for word in words_:
        if word in asked:
            asked[word] = next(words_, "")
        else:
            rest.append(word)
    kinds, seed, whole_s = chosen(asked["--mpi"]), asked["--seed"], seconds(BUDGET, asked["--budget"])
    turns = ((1, kinds), (2, kinds[::-1])) if len(kinds) > 1 else ((0, kinds),)
    found = []
    for ranks, (turn, order) in itertools.product(counts(asked["--ranks"], cpus()), turns):
        budget = f"{whole_s / 2:g}s" if turn else asked["--budget"]
        shuffled = str(int(seed) + 1) if turn == 2 and seed.isdecimal() else seed
        for kind in order:
            given = ("--ranks", str(ranks), "--mpi", kind, "--budget", budget, "--seed", shuffled)
            found.append(Launch((d.name, *given, *rest), whole_s / 2 if turn else whole_s, ranks, kind, turn))
    return found


def make_plan(spec: Spec, machine: str = "") -> Plan:
    """Steps in the spec's order. Repetitions of the whole survey, not of one step in a row: the n-th runs of all
    steps come after the (n-1)-th, so that a slow stretch of the machine does not fall on one instrument alone."""
    steps: list[Step] = []
    numbers: dict[str, int] = {}
    names: list[str] = []
    for step in spec.step:
        base = step.name or step.instrument
        numbers[base] = numbers.get(base, 0) + 1
        names.append(base if numbers[base] == 1 else f"{base}-{numbers[base]}")
    for repetition in range(max(step.repetitions for step in spec.step)):
        for name, step in zip(names, spec.step, strict=True):
            if repetition >= step.repetitions:
                continue
            d = description(step.instrument)
            options: Mapping[str, Any] = step.options
            if repetition and "seed" not in options:
                options = {**options, "seed": repetition + 1}
            named = ("--machine", machine) if machine else ()
            for run in launched(d, (*words(d, options), *named)):
                count = 2 * repetition + run.turn if run.turn else repetition + 1
                suffix = f".r{count}" if run.turn or step.repetitions > 1 else ""
                of = f"-{run.mpi}-{run.ranks}" if run.ranks else ""
                name_ = f"{len(steps) + 1:02d}-{name}{of}{suffix}"
                steps.append(Step(name_, step.instrument, run.argv, run.budget_s, run.ranks, run.mpi))
    return Plan(spec.name, tuple(steps))
