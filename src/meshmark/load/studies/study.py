"""A study: its request, how it runs or resumes, and its results.

Each kind of study is a subclass of `Study` in a module of this folder; `meshmark.cli.load.study` has their commands.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import MAX_PROGRAM_BYTES, Variant
from meshmark.load.scenario.application import ScenarioApplication
from meshmark.load.scenario.placing import HostResources
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.scenario import ScenarioProgram
from meshmark.load.studies.cells import (
    MAX_REPETITIONS,
    MEMORY_MIB,
    SHARES,
    Notify,
    ProgramMaker,
    Work,
    run_cells,
    scenario,
    silent,
    start_study,
)
from meshmark.load.studies.outcome import CLOCKS, CellRun, Clock, StudyCell
from meshmark.load.studies.results import StudyPoint, StudyResults, format_slowdown, point, table
from meshmark.load.synthesis import explain
from meshmark.machine.tree import format_list
from meshmark.store.files import read_bytes
from meshmark.store.record import Record, Scalar
from meshmark.store.run import Absence
from meshmark.values.inputs import quoted_value


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """Options of all studies."""

    repetitions: int = 5  # confidence intervals need 4
    seed: int = 0
    clock: Clock = "wall"
    rounds: int = 1  # calibration rounds of each synthesised program
    memory_mib: float = 0.0  # of each synthesised program; 0: the result of `memory_mib`
    machine: str = ""  # machine of the calibration data
    timeout_s: float = 0.0  # limit of one run, which is then excluded; 0: none
    notify: Notify = silent


DEFAULT_OPTIONS: Final = StudyOptions()


def _host() -> HostResources:
    return HostResources.now()


@dataclass
class Study(ABC):
    """A study. Its fields are the request, which `run` carries out; `run` also sets the results.

    A subclass adds the parameters of its request as fields, and checks and completes them after this class has stored
    them. `groups` returns what to run, `add` takes the outcomes of each cell, and `conclude` returns the table.

    Attributes:
        folder: Folder of the study; an interrupted study in it is resumed.
        variants: Calibration data to synthesise programs from.
        cpus: CPUs to use; empty: all available CPUs.
        points: Slowdowns, in the order of the cells.
        table: Table of the results and list of the absent ones.
        excluded: Message about excluded runs; "": all runs are valid.

    Raises:
        UsageError: An argument is invalid; the message names it.
        AbsentError: The machine has too few CPUs.
    """

    study: ClassVar[str]  # name in records
    measured: ClassVar[tuple[str, ...]] = ()  # programs to wait for; the other programs are stopped then; empty: all
    needs_two_cpus: ClassVar[bool] = False
    measures_waiting: ClassVar[bool] = False

    columns: Sequence[str] = field(init=False, default=())  # of the table
    folder: Path
    _: KW_ONLY
    variants: Sequence[Variant] = ()
    cpus: Sequence[int] = ()
    options: StudyOptions = DEFAULT_OPTIONS
    here: HostResources = field(default_factory=_host)

    def __post_init__(self) -> None:
        options, available = self.options, format_list(self.here.cpus)
        if not 1 <= options.repetitions <= MAX_REPETITIONS:
            raise UsageError(f"repetitions: found {options.repetitions}; allowed: 1 to {MAX_REPETITIONS}")
        if options.clock not in CLOCKS:
            raise UsageError(f"clock: found {quoted_value(options.clock)}; allowed: {', '.join(CLOCKS)}")
        if not 0 <= options.timeout_s <= 1e6:
            raise UsageError(f"timeout_s: found {options.timeout_s:g}; allowed: 0 to 1000000")
        self.cpus = tuple(self.cpus) or self.here.cpus
        if len(set(self.cpus)) != len(self.cpus) or not set(self.cpus) <= set(self.here.cpus):
            raise UsageError(f"cpus: found {quoted_value(list(self.cpus))}; allowed: distinct CPUs of {available}")
        if self.measures_waiting and options.clock != "wall":
            raise UsageError(
                f"clock: found {options.clock}; allowed: wall, because the study measures waiting for a CPU"
            )
        if self.needs_two_cpus and len(self.cpus) < 2:
            raise AbsentError(f"{self.study}: needs two CPUs; available: {format_list(self.cpus)}", "allow more CPUs")
        self.memory_mib = options.memory_mib or memory_mib(self.variants)
        self.request = {
            "cpus": format_list(self.cpus),
            "seed": options.seed,
            "clock": options.clock,
            "machine": options.machine,
            "rounds": options.rounds,
            "memory_mib": self.memory_mib,
            "base": _calibration_key(self.variants),
            **self.parameters(),
        }
        self.common: dict[str, Scalar] = {"cpus": format_list(self.cpus), "clock": options.clock}
        self.maker = ProgramMaker(
            folder=self.folder,
            variants=self.variants,
            machine=options.machine,
            cpus=self.cpus,
            rounds=options.rounds,
            notify=options.notify,
        )
        self.impossible: list[tuple[str, Mapping[str, Scalar]]] = []  # reason and conditions of programs
        self.points: list[StudyPoint] = []
        self.rows: list[tuple[Sequence[str], frozenset[str]]] = []  # of the table, with flags; empty: one per point
        self.excluded = ""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that identify this kind of study, as JSON. A resumed study must have the same ones."""
        common = {f.name for f in fields(Study)}
        return {f.name: identity(getattr(self, f.name)) for f in fields(self) if f.name not in common}

    @abstractmethod
    def groups(self) -> Sequence[Sequence[StudyCell]]:
        """Return the cells to run, and synthesise their programs. The first cell of a group is its baseline."""

    def inspect(self, run: LoadRun) -> Mapping[str, float]:
        """Return values that the study derives from a valid run, to be stored in its outcome."""
        return {}

    def add(self, cell: StudyCell, alone: StudyCell) -> StudyPoint | None:
        """Add the results of a cell. `alone`: the baseline of its group, which may be the cell itself."""
        if cell.name == alone.name:
            return None
        return self.compare(cell.x, cell.label, self.outcomes[alone.name], self.outcomes[cell.name], cell.conditions)

    def row(self, p: StudyPoint) -> Sequence[str]:
        """Return the table row of a point."""
        return [p.label, *format_slowdown(p.slowdown)]

    def conclude(self) -> str:
        """Add the results of the whole study, and return its table."""
        rows = self.rows or [(self.row(p), p.flags) for p in self.points]
        return table([*self.columns, "flags"], [[*row, " ".join(sorted(flags)) or "-"] for row, flags in rows])

    def run(self) -> Self:
        """Run the study, or resume it, and set the results.

        Raises:
            UsageError: The folder contains something else, or no program is possible.
            MeshmarkError: No run is valid; the message contains the first reason.
        """
        options = self.options
        start_study(self.folder, self.study, self.request, options.notify)
        groups = self.groups()
        more = (options.notify, self.inspect, self.here, options.timeout_s)
        self.outcomes = run_cells(self.folder, groups, options.repetitions, options.seed, *more)
        outcomes = [o for runs in self.outcomes.values() for o in runs]
        if invalid := [o for o in outcomes if o.reason]:
            self.excluded = (
                f"{len(invalid)} of {len(outcomes)} runs are excluded: {invalid[0].cell}: {invalid[0].reason}"
            )
        source: Mapping[str, str] = outcomes[0].about if outcomes else {}
        self.results = StudyResults(
            study=self.study,
            machine=options.machine or source.get("machine", ""),
            common=self.common,
            provenance={
                **{k: source.get(k, "") for k in ("build", "compiler", "kernel")},
                "start": min((o.start for o in outcomes), default=""),
                "command": f"load study {self.study}",
                "run": self.folder.name,
                "seed": options.seed,
                "repetitions": options.repetitions,
            },
        )
        for reason, conditions in self.impossible:
            self.results.absent("slowdown", reason, conditions)
        for group in groups:
            for cell in group:
                self.add(cell, group[0])
        self.end(self.conclude())
        return self

    def end(self, summary: str) -> None:
        """Write the records and set the results.

        Raises:
            MeshmarkError: No run is valid; the message contains the first reason.
        """
        self.results.write(self.folder)
        self.records: tuple[Record, ...] = tuple(self.results.records)
        self.absences: tuple[Absence, ...] = tuple(self.results.absences)
        if not self.records:
            reason = self.absences[0].reason if self.absences else "nothing ran"
            raise MeshmarkError(f"{self.study}: no valid run: {reason}", self.runs_hint)
        self.table = "\n".join([summary, *(f"absent: {a.metric or a.instrument}: {a.reason}" for a in self.absences)])

    @property
    def runs_hint(self) -> str:
        """Return the hint of an error that says where the output of the runs is."""
        return f"the runs and their output are in {self.folder}"

    def compare(
        self,
        x: float,
        label: str,
        alone: Sequence[CellRun],
        together: Sequence[CellRun],
        conditions: Mapping[str, Scalar],
    ) -> StudyPoint | None:
        """Record a point, or the reason why it is absent."""
        p, reason = point(x, label, alone, together, self.options.clock, conditions)
        if p is None:
            self.results.absent("slowdown", reason, conditions)
        else:
            self.results.add_point(p)
            self.points.append(p)
        return p

    def valid(self, cell: StudyCell, metric: str = "") -> tuple[list[CellRun], frozenset[str]]:
        """Return the valid outcomes of a cell and their flags.

        Args:
            metric: Record this metric as absent if no outcome is valid.
        """
        outcomes = [o for o in self.outcomes[cell.name] if not o.reason]
        if metric and not outcomes:
            reason = next((o.reason for o in self.outcomes[cell.name]), "not run")
            self.results.absent(metric, reason, cell.conditions)
        return outcomes, frozenset().union(*(o.flags for o in outcomes))

    def cell(self, name: str, *placements: Sequence[ScenarioProgram], title: str = "", **more: Any) -> StudyCell:
        """Return a cell.

        Args:
            name: Name of the cell, unique in the study.
            placements: Programs of each repetition, in turn.
            title: Name of the scenarios; "": the name of the cell.
            more: Fields of the cell; `sample_s`: sampling period of the scenarios.
        """
        # The names of scenarios are shorter than the names of studies.
        title = f"{self.study.removeprefix('interference_')}: {title or name}"
        sample_s = more.pop("sample_s", 0.1)
        scenarios = tuple(scenario(title, *members, sample_s=sample_s) for members in placements)
        return StudyCell(name=name, measured=self.measured, scenarios=scenarios, **more)

    def target(self, run_time_s: float, metrics: Mapping[str, float] | None = None, **more: Any) -> TargetProfile:
        """Return the target profile of a program.

        Raises:
            UsageError: The run time is not in the allowed range.
        """
        if not 0 < run_time_s <= 1e5:
            raise UsageError(f"run_time_s: found {run_time_s:g}; allowed: above 0, at most 100000")
        return TargetProfile(
            run_time_s=run_time_s,
            metrics=metrics or {},
            **{"memory_mib": self.memory_mib, "seed": self.options.seed, **more},
        )

    def rates(self, given: Sequence[float], target: TargetProfile) -> tuple[float, ...]:
        """Return rates in GB/s in ascending order: the rates in `given`, or shares of the feasible range.

        Raises:
            UsageError: A rate is not positive, or no rate is feasible.
        """
        if given:
            if any(not (isinstance(r, int | float) and 0 < r < 1e6) for r in given):
                raise UsageError(f"rates: found {quoted_value(list(given))}; allowed: GB/s above 0")
            return tuple(sorted({float(r) for r in given}))
        reachable = explain(
            self.variants, dataclasses.replace(target, metrics={"memory_gb_per_s": 1.0, **target.metrics})
        )
        feasible = reachable["memory_gb_per_s"]
        if feasible is None or feasible[1] <= 0:
            raise UsageError("rates: the calibration data allow no memory bandwidth with the other target metrics")
        return tuple(float(f"{feasible[0] + (feasible[1] - feasible[0]) * s:.3g}") for s in SHARES)

    def make_program(self, name: str, target: TargetProfile, conditions: Mapping[str, Scalar]) -> Path | None:
        """Return the file of a program; if the program is impossible, store the reason and return None."""
        try:
            return self.maker.file(name, target)
        except UsageError as error:  # impossible, or memory_mib is too small
            self.impossible.append((str(error), conditions))
            self.options.notify(f"{self.study}: {error}")
            return None


def checked_work(work: Work, key: str = "command") -> Work:
    """Check a program's file, an application or a command.

    Raises:
        UsageError: The file or the program does not exist.
    """
    if isinstance(work, ScenarioApplication):
        work.check()
        return work
    if isinstance(work, Path):
        if not work.is_file():
            raise UsageError(f"{key}: found {work}; no such file")
        return work.resolve()
    argv = [str(w) for w in work]
    if isinstance(work, str) or not argv or not argv[0] or shutil.which(argv[0]) is None:
        raise UsageError(f"{key}: found {quoted_value(argv[0] if argv else '')}; no such program")
    return argv


def identity(value: Any) -> Any:
    """Return a parameter as JSON: a file or an application by name and digest."""
    if isinstance(value, Mapping):
        return {k: identity(v) for k, v in value.items()}
    if isinstance(value, ScenarioApplication):
        return value.identity
    if isinstance(value, Path):
        try:
            return f"{value} {hashlib.sha256(read_bytes(value, MAX_PROGRAM_BYTES)).hexdigest()[:16]}"
        except UsageError:
            return str(value)  # `checked_work` reports it
    if isinstance(value, list | tuple):
        return [v if isinstance(v, int | float) else str(v) for v in value]
    return value


def memory_mib(variants: Sequence[Variant]) -> float:
    """Return the default memory of a synthesised program in MiB.

    The default is `MEMORY_MIB`, or enough for two of the largest arrays and for small arrays, because a large
    last-level cache requires large arrays.
    """
    largest = max((v.volume_bytes for v in variants), default=0) / 2**20
    return max(MEMORY_MIB, 2 * largest + MEMORY_MIB / 8 if largest > MEMORY_MIB / 4 else 0.0)


def _calibration_key(variants: Sequence[Variant]) -> str:
    """Return a digest of the calibration data, because a resumed study must not mix programs from different data."""
    return hashlib.sha256(repr([v.to_json() for v in variants]).encode()).hexdigest()[:16] if variants else ""


def one_cpu_each(cpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Return one set of CPUs per CPU."""
    return [(c,) for c in cpus]
