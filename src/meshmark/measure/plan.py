"""Plans a survey: expands a specification into ordered steps, each a command line with a time budget."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from meshmark.describe import Description, description
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.budget import BUDGET, budget_s, memory_scale
from meshmark.measure.probe import arguments
from meshmark.measure.spec import Spec
from meshmark.store.files import read_json, write_file
from meshmark.values import grammar
from meshmark.values.inputs import LIST, Excerpt, checked

_ID: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$"  # used as a file name in the run folder
_REPETITION: Final = re.compile(r"\.r\d+$")  # the end of its id
REPETITIONS: Final = 3  # fresh processes of one measurement
SHORTEST_S: Final = 1.0  # of a repetition
_SHORTEST_OF_PROGRAMS_S: Final = 10.0  # of a repetition of a whole program, which needs time to set up its fields
_PROGRAMS: Final = frozenset({"anatomy", "gyro", "npb", "pop", "swim"})
_LONG: Final = frozenset({"linpack"})  # one sample takes up to minutes


@dataclass(frozen=True, slots=True)
class Step(Excerpt):
    """One run of an instrument. `argv` excludes the path of the program; `budget_s` limits its sampling time."""

    id: Annotated[str, Field(pattern=_ID, description="an id of a step: letters, digits, _ . -")]
    instrument: str
    argv: Annotated[tuple[str, ...], LIST]
    budget_s: float
    ranks: int = 0  # processes that a launcher starts; 0: the probe without a launcher
    mpi: str = ""  # kind of MPI library; "" without a launcher
    threads: int = 1  # of each rank

    @property
    def repeats(self) -> str:
        """The step's name in the specification, common to all its repetitions."""
        return _REPETITION.sub("", re.sub(r"^\d+-", "", self.id))


@dataclass(frozen=True, slots=True)
class Plan(Excerpt):
    spec: str
    steps: Annotated[tuple[Step, ...], LIST]

    @property
    def budget_s(self) -> float:
        return sum(step.budget_s for step in self.steps)

    def save(self, path: Path) -> None:
        write_file(path, json.dumps(asdict(self), indent=1).encode() + b"\n", private=True)

    @staticmethod
    def load(path: Path) -> Plan:
        """Read a plan. Raises MeshmarkError if the file is missing or is not a plan."""
        try:
            return checked(Plan, read_json(path), f"cannot read the plan {path}", MeshmarkError)
        except UsageError as why:  # the plan is our own file, so this is no usage error
            raise MeshmarkError(f"cannot read the plan {path}: {quoted(why)}") from why


class Launch(NamedTuple):
    """One run of an instrument: of the probe, or of `ranks` ranks with an MPI library."""

    argv: tuple[str, ...]
    budget_s: float
    ranks: int = 0
    mpi: str = ""
    turn: int = 0  # number of this library's turn, from 1, if several libraries alternate
    value: str = ""  # of an option of which a process measures one value, if several are measured
    threads: int = 1  # of each rank


def launched(d: Description, argv: Sequence[str]) -> list[Launch]:
    """The runs of an instrument with the arguments `argv`, in order.

    Several MPI libraries alternate, A B B A, each time with half the budget. Otherwise, drift of the machine would
    appear as a difference between libraries, and variation between starts of the ranks would be invisible. Several
    values of an option that a process has once, such as threads of a library, share the budget.

    Raises:
        UsageError: The value of `--ranks`, `--mpi` or `--budget` is invalid.
        AbsentError: A requested MPI library is not usable.
    """
    total_s = budget_s(d, argv)
    budget = f"{total_s:g}s"
    if not d.ranks:
        named = BUDGET in argv or total_s == grammar.seconds(BUDGET, d.parameter("budget").default)
        option, values = _values_per_process(d, argv)
        if len(values) > 1:
            budget = f"{total_s / len(values):.9g}s"
            each = [replaced(replaced(argv, option, v), BUDGET, budget) for v in values]
            return [Launch((d.name, *own), total_s / len(values), value=v) for own, v in zip(each, values, strict=True)]
        return [Launch((d.name, *argv) if named else (d.name, *argv, BUDGET, budget), total_s)]
    from meshmark.measure.launch import chosen, counts, cpus, cpus_of_rank

    requested = {"--ranks": "all", "--mpi": "any", BUDGET: budget, "--seed": str(d.parameter("seed").default)}
    rest: list[str] = []
    remaining = iter(argv)
    for argument in remaining:
        if argument in requested:
            requested[argument] = next(remaining, "")
        else:
            rest.append(argument)
    kinds, seed = chosen(requested["--mpi"]), requested["--seed"]
    turns = ((1, kinds), (2, kinds[::-1])) if len(kinds) > 1 else ((0, kinds),)
    found = []
    for ranks, (turn, order) in itertools.product(counts(requested["--ranks"], cpus()), turns):
        option, values = _values_per_process(d, argv, cpus_of_rank(ranks))
        several = len(values) > 1
        own_s = total_s / (2 if turn else 1) / len(values)
        budget = f"{own_s:.9g}s" if turn or several else requested[BUDGET]
        shuffled = str(int(seed) + 1) if turn == 2 and seed.isdecimal() else seed
        for value, kind in itertools.product(values, order):
            given = ("--ranks", str(ranks), "--mpi", kind, BUDGET, budget, "--seed", shuffled)
            own = replaced(rest, option, value) if option else rest
            threads = int(value) if option == "--threads" else 1
            found.append(Launch((d.name, *given, *own), own_s, ranks, kind, turn, value if several else "", threads))
    return found


def _values_per_process(d: Description, argv: Sequence[str], cpus: int = 0) -> tuple[str, list[str]]:
    """The option of which each process measures one value, and its values; "" and one of "" if there is none.

    Args:
        d: The instrument.
        argv: Its arguments.
        cpus: CPUs of each process; 0: those that the arguments name.
    """
    none = ("", [""])
    option = next((p for p in d.parameters if p.per_process), None)
    if option is None:
        return none
    given = dict(itertools.pairwise(argv))
    try:
        named = given.get("--cpus", "allowed")
        here = cpus or len(os.sched_getaffinity(0) if named in {"allowed", "all"} else grammar.cpus("--cpus", named))
        high = int(option.maximum) if option.maximum is not None else here
        values = grammar.integers(option.option, given.get(option.option, option.default), high, all_=here)
    except UsageError:
        return none  # the instrument will refuse it
    return option.option, [str(v) for v in values]


def measurement(d: Description, argv: Sequence[str], repetitions: int = 0) -> Plan:
    """The plan of one instrument: runs in fresh processes, which share the budget.

    Args:
        argv: Arguments of the instrument.
        repetitions: Number of fresh processes, or of starts of all ranks; 0: `REPETITIONS`, or one if each would have
            less than `SHORTEST_S`, and if several MPI libraries take turns, which starts each of them twice.

    Raises:
        UsageError, AbsentError: as `launched`.
    """
    given = dict(itertools.pairwise(argv))
    total_s = budget_s(d, argv)
    _, values = _values_per_process(d, argv)
    shortest_s = _SHORTEST_OF_PROGRAMS_S if d.name in _PROGRAMS else SHORTEST_S
    enough = total_s >= REPETITIONS * shortest_s * len(values) and d.name not in _LONG
    if enough and d.ranks:
        enough = not any(run.turn for run in launched(d, argv))
    count = repetitions or (REPETITIONS if enough else 1)
    steps: list[Step] = []
    for number in range(1, count + 1):
        own = list(argv)
        if count > 1:
            own = replaced(own, BUDGET, f"{total_s / count:.9g}s")
            if number > 1 and "--seed" not in given:
                own += ["--seed", str(number)]
        for run in launched(d, own):
            id_ = d.name + _suffix(run, number, count)
            steps.append(Step(id_, d.name, run.argv, run.budget_s, run.ranks, run.mpi, run.threads))
    return Plan("measure", tuple(steps))


def _suffix(run: Launch, repetition: int, repetitions: int) -> str:
    """What tells a run from the others of its instrument: library, ranks or value, and number from 1; turns count
    twice."""
    target = (f"-{run.mpi}-{run.ranks}" if run.ranks else "") + (f"-{run.value}" if run.value else "")
    if not run.turn and repetitions == 1:
        return target
    return f"{target}.r{2 * (repetition - 1) + run.turn if run.turn else repetition}"


def _id(number: int, name: str, run: Launch, repetition: int, repetitions: int) -> str:
    """The id of the n-th step of a plan."""
    suffix = _suffix(run, repetition, repetitions)
    # A name that ends as repetitions do is none.
    return f"{number:02d}-{name}{suffix or (f'.r{repetition}' if _REPETITION.search(name) else '')}"


def replaced(argv: Sequence[str], option: str, value: str) -> list[str]:
    """`argv` with another value of an option, wherever it is."""
    at = argv.index(option) if option in argv else None
    return [*argv, option, value] if at is None else [*argv[: at + 1], value, *argv[at + 2 :]]


def in_turns(spec: Spec) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """The runs of a specification, in order: the index of the step, the repetition from 1, and the options.

    The whole is repeated, not each step in a row: the n-th runs of all steps follow the (n-1)-th ones, so that a slow
    phase of the machine does not affect a single instrument. Each repetition has other random numbers.
    """
    for repetition in range(1, max(step.repetitions for step in spec.step) + 1):
        for number, step in enumerate(spec.step):
            if repetition <= step.repetitions:
                seeded = repetition == 1 or "seed" in step.options
                yield number, repetition, step.options if seeded else {**step.options, "seed": repetition}


def step_names(spec: Spec) -> list[str]:
    """What `Step.repeats` is for each step of a specification; all are different."""
    named = {step.base for step in spec.step}
    names: list[str] = []
    for step in spec.step:
        name, number = step.base, 1
        while name in names or (number > 1 and name in named):
            number += 1
            name = f"{step.base}-{number}"
        names.append(name)
    return names


def make_plan(spec: Spec, machine: str = "") -> Plan:
    """Expand a specification into steps, see `in_turns`."""
    return Plan(spec.name, tuple(step for _, step in steps_of(spec, machine)))


def steps_of(spec: Spec, machine: str = "") -> list[tuple[int, Step]]:
    """The steps of a plan, each with the index of that of the specification. Those of applications have no instrument:
    who allows them says what they run."""
    steps: list[tuple[int, Step]] = []
    names = step_names(spec)
    for number, repetition, own in in_turns(spec):
        step, options = spec.step[number], own
        if step.application:
            id_ = _id(len(steps) + 1, names[number], Launch((), 0.0), repetition, step.repetitions)
            steps.append((number, Step(id_, "", (), 0.0)))
            continue
        d = description(step.instrument)
        scale = memory_scale(d, arguments(d, options))
        if scale > 1 and "budget" in options:
            options = {**options, "budget": f"{scale * grammar.seconds(BUDGET, str(options['budget'])):g}s"}
        named = ("--machine", machine) if machine else ()
        for run in launched(d, (*arguments(d, options), *named)):
            id_ = _id(len(steps) + 1, names[number], run, repetition, step.repetitions)
            made = Step(id_, step.instrument, run.argv, run.budget_s, run.ranks, run.mpi, run.threads)
            steps.append((number, made))
    return steps
