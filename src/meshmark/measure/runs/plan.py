"""Plans a survey: expands a specification into ordered steps, each a command line with a time budget."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from meshmark.describe import Description, description
from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine.topology import Topology
from meshmark.machine.tree import format_list
from meshmark.measure.runs.budget import BUDGET, budget_s, memory_scale
from meshmark.measure.runs.probe import arguments
from meshmark.measure.runs.spec import Spec, StepSpec
from meshmark.store.files import write_json
from meshmark.store.session import load_plan
from meshmark.values import grammar
from meshmark.values.inputs import LIST, Excerpt, checked

_ID: Final = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$"  # used as a file name in the run folder
_REPETITION: Final = re.compile(r"\.r\d+$")  # the end of the id of a repetition
REPETITIONS: Final = 3  # fresh processes of one measurement
SHORTEST_S: Final = 1.0  # shortest budget of a repetition
_SHORTEST_OF_PROGRAMS_S: Final = 10.0  # the same for a whole program, which needs time to set up its fields
_PROGRAMS: Final = frozenset({"anatomy", "gyro", "npb", "pop", "swim"})
_LONG: Final = frozenset({"linpack"})  # one sample takes up to minutes


@dataclass(frozen=True, slots=True)
class SurveyStep(Excerpt):
    """One run of an instrument. `argv` excludes the path of the program; `budget_s` limits its sampling time."""

    id: Annotated[str, Field(pattern=_ID, description="an id of a step: letters, digits, _ . -")]
    instrument: str
    argv: Annotated[tuple[str, ...], LIST]
    budget_s: float
    ranks: int = 0  # processes that a launcher starts; 0: the probe without a launcher
    mpi: str = ""  # kind of MPI library; "" without a launcher
    threads: int = 1  # threads of each rank

    @property
    def repeats(self) -> str:
        """Return the name of the step in the specification, common to all its repetitions."""
        return _REPETITION.sub("", re.sub(r"^\d+-", "", self.id))


@dataclass(frozen=True, slots=True)
class SurveyPlan(Excerpt):
    """The steps of a survey in their order, and the name of their specification."""

    spec: str
    steps: Annotated[tuple[SurveyStep, ...], LIST]

    @property
    def budget_s(self) -> float:
        """Return the sum of the budgets of all steps in s."""
        return sum(step.budget_s for step in self.steps)

    def save(self, path: Path) -> None:
        """Write the plan into a file."""
        write_json(path, self)

    @staticmethod
    def load(path: Path) -> SurveyPlan:
        """Read a plan.

        Raises:
            UsageError: The file is missing.
            MeshmarkError: The file is not a plan.
        """
        where = f"cannot read the plan {path}"
        return load_plan(path, lambda content: checked(SurveyPlan, content, where, MeshmarkError), "a survey")


class Launch(NamedTuple):
    """One run of an instrument: one process of the probe, or `ranks` ranks with an MPI library."""

    argv: tuple[str, ...]
    budget_s: float
    ranks: int = 0
    mpi: str = ""
    turn: int = 0  # 1 or 2: first or second run of this library, if several libraries alternate
    value: str = ""  # value of the option with one value per process, if several values are measured
    threads: int = 1  # threads of each rank


def launched(d: Description, argv: Sequence[str]) -> list[Launch]:
    """Return the runs of an instrument with the arguments `argv`, in order.

    Several MPI libraries alternate, A B B A, each time with half the budget. Otherwise, drift of the machine would
    appear as a difference between libraries, and variation between starts of the ranks would be invisible. If an option
    has one value per process, such as the threads of a library, several values share the budget.

    Raises:
        UsageError: The value of `--ranks`, `--mpi` or `--budget` is invalid.
        AbsentError: A requested MPI library is not usable.
    """
    total_s = budget_s(d, argv)
    budget = f"{total_s:g}s"
    if not d.ranks:
        budget_is_set = BUDGET in argv or total_s == grammar.seconds(BUDGET, d.parameter("budget").default)
        option, values = _values_per_process(d, argv)
        if len(values) > 1:
            budget = f"{total_s / len(values):.9g}s"
            argv_by_value = [replaced(replaced(argv, option, v), BUDGET, budget) for v in values]
            return [
                Launch((d.name, *value_argv), total_s / len(values), value=v)
                for value_argv, v in zip(argv_by_value, values, strict=True)
            ]
        return [Launch((d.name, *argv) if budget_is_set else (d.name, *argv, BUDGET, budget), total_s)]
    from meshmark.measure.runs.launch import chosen, counts, cpus, cpus_of_rank

    common_options = {"--ranks": "all", "--mpi": "any", BUDGET: budget, "--seed": str(d.parameter("seed").default)}
    other_arguments: list[str] = []
    remaining = iter(argv)
    for argument in remaining:
        if argument in common_options:
            common_options[argument] = next(remaining, "")
        else:
            other_arguments.append(argument)
    kinds, seed = chosen(common_options["--mpi"]), common_options["--seed"]
    turns = ((1, kinds), (2, kinds[::-1])) if len(kinds) > 1 else ((0, kinds),)
    runs = []
    for ranks, (turn, order) in itertools.product(counts(common_options["--ranks"], cpus()), turns):
        option, values = _values_per_process(d, argv, cpus_of_rank(ranks))
        has_several = len(values) > 1
        run_budget_s = total_s / (2 if turn else 1) / len(values)
        budget = f"{run_budget_s:.9g}s" if turn or has_several else common_options[BUDGET]
        shuffled = str(int(seed) + 1) if turn == 2 and seed.isdecimal() else seed
        for value, kind in itertools.product(values, order):
            set_options = ("--ranks", str(ranks), "--mpi", kind, BUDGET, budget, "--seed", shuffled)
            value_argv = replaced(other_arguments, option, value) if option else other_arguments
            threads = int(value) if option == "--threads" else 1
            runs.append(
                Launch(
                    (d.name, *set_options, *value_argv),
                    run_budget_s,
                    ranks,
                    kind,
                    turn,
                    value if has_several else "",
                    threads,
                )
            )
    return runs


def _values_per_process(d: Description, argv: Sequence[str], cpus: int = 0) -> tuple[str, list[str]]:
    """Return the option with one value per process, and its values.

    Args:
        d: The instrument.
        argv: Its arguments.
        cpus: Number of CPUs of each process; 0 for the CPUs that the arguments name.

    Returns:
        The option and its values; "" and a list of one "" if the instrument has no such option.
    """
    no_option = ("", [""])
    option = next((p for p in d.parameters if p.per_process), None)
    if option is None:
        return no_option
    value_by_option = dict(itertools.pairwise(argv))
    try:
        cpu_list = value_by_option.get("--cpus", "allowed")
        cpu_count = cpus or len(
            os.sched_getaffinity(0) if cpu_list in {"allowed", "all"} else grammar.cpus("--cpus", cpu_list)
        )
        high = int(option.maximum) if option.maximum is not None else cpu_count
        values = grammar.integers(
            option.option, value_by_option.get(option.option, option.default), high, all_=cpu_count
        )
    except UsageError:
        return no_option  # the instrument will refuse it
    return option.option, [str(v) for v in values]


def measurement(d: Description, argv: Sequence[str], repetitions: int = 0) -> SurveyPlan:
    """Return the plan of one instrument: runs in fresh processes, which share the budget.

    Args:
        d: Description of the instrument.
        argv: Arguments of the instrument.
        repetitions: Number of fresh processes, or of starts of all ranks. 0 means `REPETITIONS`, but one if each
            repetition would have less than `SHORTEST_S`, or if several MPI libraries alternate, because each library is
            then started twice.

    Raises:
        UsageError, AbsentError: See `launched`.
    """
    value_by_option = dict(itertools.pairwise(argv))
    total_s = budget_s(d, argv)
    _, values = _values_per_process(d, argv)
    shortest_s = _SHORTEST_OF_PROGRAMS_S if d.name in _PROGRAMS else SHORTEST_S
    can_repeat = total_s >= REPETITIONS * shortest_s * len(values) and d.name not in _LONG
    if can_repeat and d.ranks:
        can_repeat = not any(run.turn for run in launched(d, argv))
    count = repetitions or (REPETITIONS if can_repeat else 1)
    steps: list[SurveyStep] = []
    for number in range(1, count + 1):
        repetition_argv = list(argv)
        if count > 1:
            repetition_argv = replaced(repetition_argv, BUDGET, f"{total_s / count:.9g}s")
            if number > 1 and "--seed" not in value_by_option:
                repetition_argv += ["--seed", str(number)]
        for run in launched(d, repetition_argv):
            id_ = d.name + _suffix(run, number, count)
            steps.append(SurveyStep(id_, d.name, run.argv, run.budget_s, run.ranks, run.mpi, run.threads))
    return SurveyPlan("measure", tuple(steps))


def _suffix(run: Launch, repetition: int, repetitions: int) -> str:
    """Return the part of an id that distinguishes a run from other runs of its instrument.

    It names library, ranks or value, and the repetition, counted from 1. If libraries alternate, each run of a library
    counts as a repetition.
    """
    target = (f"-{run.mpi}-{run.ranks}" if run.ranks else "") + (f"-{run.value}" if run.value else "")
    if not run.turn and repetitions == 1:
        return target
    return f"{target}.r{2 * (repetition - 1) + run.turn if run.turn else repetition}"


def _id(number: int, name: str, run: Launch, repetition: int, repetitions: int) -> str:
    """Return the id of the n-th step of a plan."""
    suffix = _suffix(run, repetition, repetitions)
    # A suffix is added to a name that ends like a repetition, so that it is not taken for one.
    return f"{number:02d}-{name}{suffix or (f'.r{repetition}' if _REPETITION.search(name) else '')}"


def replaced(argv: Sequence[str], option: str, value: str) -> list[str]:
    """Return `argv` with another value of an option; the option is appended if it is missing."""
    index = argv.index(option) if option in argv else None
    return [*argv, option, value] if index is None else [*argv[: index + 1], value, *argv[index + 2 :]]


def in_turns(spec: Spec) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield the runs of a specification, in order: the index of the step, the repetition from 1, and the options.

    The n-th runs of all steps follow the (n-1)-th runs of all steps, so that a slow phase of the machine does not
    affect a single instrument. Each repetition has another seed.
    """
    for repetition in range(1, max(step.repetitions for step in spec.step) + 1):
        for number, step in enumerate(spec.step):
            if repetition <= step.repetitions:
                seeded = repetition == 1 or "seed" in step.options
                yield number, repetition, step.options if seeded else {**step.options, "seed": repetition}


def step_names(spec: Spec) -> list[str]:
    """Return a different name for each step of a specification, which `SurveyStep.repeats` returns for its runs."""
    base_names = {step.base for step in spec.step}
    names: list[str] = []
    for step in spec.step:
        name, number = step.base, 1
        while name in names or (number > 1 and name in base_names):
            number += 1
            name = f"{step.base}-{number}"
        names.append(name)
    return names


def make_plan(spec: Spec, machine: str = "", topology: Topology | None = None) -> SurveyPlan:
    """Expand a specification into steps, see `steps_of`."""
    return SurveyPlan(spec.name, tuple(step for _, step in steps_of(spec, machine, topology)))


def steps_of(spec: Spec, machine: str = "", topology: Topology | None = None) -> list[tuple[int, SurveyStep]]:
    """Return the steps of a plan in the order of `in_turns`, each with the index of its step in the specification.

    Steps of applications have no instrument and no arguments; a caller that allows them sets the command to run.

    Args:
        spec: The specification.
        machine: Id of the machine in the records; "" lets the instrument determine it.
        topology: Topology of the machine, for steps from each node to each node; None if it is not known.

    Raises:
        UsageError: A step needs the topology, and it is not known.
    """
    steps: list[tuple[int, SurveyStep]] = []
    names = step_names(spec)
    for number, repetition, options in in_turns(spec):
        step = spec.step[number]
        if step.application:
            id_ = _id(len(steps) + 1, names[number], Launch((), 0.0), repetition, step.repetitions)
            steps.append((number, SurveyStep(id_, "", (), 0.0)))
            continue
        for suffix, run_options in _for_each_node(step, options, topology):
            for run in _launches(description(step.instrument), run_options, machine):
                id_ = _id(len(steps) + 1, names[number] + suffix, run, repetition, step.repetitions)
                run_step = SurveyStep(id_, step.instrument, run.argv, run.budget_s, run.ranks, run.mpi, run.threads)
                steps.append((number, run_step))
    return steps


def _launches(d: Description, options: Mapping[str, Any], machine: str) -> list[Launch]:
    """Return the runs of one step with these options; an explicit budget grows with what `memory` means here."""
    scale = memory_scale(d, arguments(d, options))
    if scale > 1 and "budget" in options:
        options = {**options, "budget": f"{scale * grammar.seconds(BUDGET, str(options['budget'])):g}s"}
    return launched(d, (*arguments(d, options), *(("--machine", machine) if machine else ())))


def _for_each_node(
    step: StepSpec, options: Mapping[str, Any], topology: Topology | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the options of each run of a step, and the end of its name; only `each_node` needs several runs.

    An instrument that measures CPUs one by one measures the first CPU of each node in one run. One that uses them
    together has one run for each node, on all its CPUs.
    """
    if not step.each_node:
        yield "", options
        return
    if topology is None:
        raise UsageError(f"{step.base}: each_node: the nodes of the machine are not known here", "meshmark survey")
    allowed = set(topology.allowed_cpus)
    if len([n for n in topology.nodes if n.memory_bytes != 0]) < 2:
        return
    cpus_of_nodes = {n.os_index: cpus for n in topology.nodes if (cpus := [c for c in n.cpus if c in allowed])}
    if "cpu" in description(step.instrument).identity:
        firsts = ",".join(str(cpus[0]) for cpus in cpus_of_nodes.values())
        yield "", {**options, "cpus": firsts, "memory_node": "all"}
        return
    for node, cpus in cpus_of_nodes.items():
        yield f"-{node}", {**options, "cpus": format_list(cpus), "memory_node": "all"}
