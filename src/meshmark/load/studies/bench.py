"""Common steps of all studies: plan cells, run them, and turn the outcomes into a result."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import MAX_PROGRAM_BYTES, Variant
from meshmark.load.scenario.application import Described
from meshmark.load.scenario.placing import Here
from meshmark.load.scenario.result import LoadRun
from meshmark.load.studies.cells import (
    MAX_REPETITIONS,
    MEMORY_MIB,
    SHARES,
    Maker,
    Notify,
    Work,
    run_cells,
    silent,
    start_study,
)
from meshmark.load.studies.outcome import CLOCKS, Cell, Clock, Outcome
from meshmark.load.studies.results import Point, Results, point
from meshmark.load.synthesis import explain
from meshmark.machine.tree import format_list
from meshmark.store.files import read_bytes
from meshmark.store.record import Record, Scalar
from meshmark.store.run import Absence
from meshmark.values.inputs import found


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


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Result of a study; each study adds its own fields."""

    study: str
    folder: Path
    records: tuple[Record, ...]
    absences: tuple[Absence, ...]
    table: str
    excluded: str = ""  # message about excluded runs; "": all runs are valid


class Bench:
    """A study in progress."""

    def __init__(
        self,
        name: str,
        out: Path,
        options: StudyOptions,
        cpus: Sequence[int],
        parameters: Mapping[str, Any],
        variants: Sequence[Variant] = (),
    ) -> None:
        if not 1 <= options.repetitions <= MAX_REPETITIONS:
            raise UsageError(f"repetitions: found {options.repetitions}; allowed: 1 to {MAX_REPETITIONS}")
        if options.clock not in CLOCKS:
            raise UsageError(f"clock: found {found(options.clock)}; allowed: {', '.join(CLOCKS)}")
        if not 0 <= options.timeout_s <= 1e6:
            raise UsageError(f"timeout_s: found {options.timeout_s:g}; allowed: 0 to 1000000")
        self.name, self.out, self.options = name, out, options
        self.here = Here.now()
        self.cpus = tuple(cpus) or self.here.cpus
        if len(set(self.cpus)) != len(self.cpus) or not set(self.cpus) <= set(self.here.cpus):
            raise UsageError(
                f"cpus: found {found(list(self.cpus))}; allowed: distinct CPUs of {format_list(self.here.cpus)}"
            )
        self.variants = variants
        self.memory_mib = options.memory_mib or memory_mib(variants)
        self.parameters = {
            "cpus": format_list(self.cpus),
            "seed": options.seed,
            "clock": options.clock,
            "machine": options.machine,
            "rounds": options.rounds,
            "memory_mib": self.memory_mib,
            "base": _calibration_key(variants),
            **parameters,
        }
        self.common: dict[str, Scalar] = {"cpus": format_list(self.cpus), "clock": options.clock}
        self.maker = Maker(
            folder=out,
            variants=variants,
            machine=options.machine,
            cpus=self.cpus,
            rounds=options.rounds,
            notify=options.notify,
        )
        self.failed: list[tuple[str, str, dict[str, Scalar]]] = []  # metric, reason, conditions
        self.excluded = ""

    def begin(self) -> None:
        start_study(self.out, self.name, self.parameters, self.options.notify)

    def target(self, run_time_s: float, metrics: Mapping[str, float] | None = None, **more: Any) -> TargetProfile:
        if not 0 < run_time_s <= 1e5:
            raise UsageError(f"run_time_s: found {run_time_s:g}; allowed: above 0, at most 100000")
        return TargetProfile(
            run_time_s=run_time_s,
            metrics=metrics or {},
            **{"memory_mib": self.memory_mib, "seed": self.options.seed, **more},
        )

    def run(
        self, groups: Sequence[Sequence[Cell]], inspect: Callable[[LoadRun], Mapping[str, float]] | None = None
    ) -> tuple[dict[str, list[Outcome]], Results]:
        if self.options.timeout_s:
            groups = [
                [
                    dataclasses.replace(
                        c,
                        scenarios=tuple(dataclasses.replace(s, timeout_s=self.options.timeout_s) for s in c.scenarios),
                    )
                    for c in g
                ]
                for g in groups
            ]
        outcomes = run_cells(
            self.out, groups, self.options.repetitions, self.options.seed, self.options.notify, inspect, self.here
        )
        all_outcomes = [o for runs in outcomes.values() for o in runs]
        if invalid := [o for o in all_outcomes if o.reason]:
            self.excluded = (
                f"{len(invalid)} of {len(all_outcomes)} runs are excluded: {invalid[0].cell}: {invalid[0].reason}"
            )
        source: Mapping[str, str] = all_outcomes[0].about if all_outcomes else {}
        results = Results(
            study=self.name,
            machine=self.options.machine or source.get("machine", ""),
            common=self.common,
            provenance={
                **{k: source.get(k, "") for k in ("build", "compiler", "kernel")},
                "start": min((o.start for o in all_outcomes), default=""),
                "command": f"load study {self.name}",
                "run": self.out.name,
                "seed": self.options.seed,
                "repetitions": self.options.repetitions,
            },
        )
        for metric, reason, conditions in self.failed:
            results.absent(metric, reason, conditions)
        return outcomes, results

    def point(
        self,
        results: Results,
        x: float,
        label: str,
        alone: Sequence[Outcome],
        together: Sequence[Outcome],
        conditions: Mapping[str, Scalar],
    ) -> Point | None:
        """Record a point, or the reason why it is absent."""
        p, reason = point(x, label, alone, together, self.options.clock)
        if p is None:
            results.absent("slowdown", reason, conditions)
        else:
            results.add_point(p, conditions)
        return p

    def end(self, results: Results, summary: str) -> dict[str, Any]:
        """Write the records and return the fields of `StudyResult`.

        Raises:
            MeshmarkError: No run is valid; the message contains the first reason.
        """
        results.write(self.out)
        if not results.records:
            reason = results.absences[0].reason if results.absences else "nothing ran"
            raise MeshmarkError(f"{self.name}: no valid run: {reason}", f"the runs and their output are in {self.out}")
        lines = [summary, *(f"absent: {a.metric or a.instrument}: {a.reason}" for a in results.absences)]
        return {
            "study": self.name,
            "folder": self.out,
            "records": tuple(results.records),
            "absences": tuple(results.absences),
            "table": "\n".join(lines),
            "excluded": self.excluded,
        }

    def rates(self, given: Sequence[float], target: TargetProfile) -> tuple[float, ...]:
        """Return rates in GB/s in ascending order: the rates in `given`, or shares of the feasible range.

        Raises:
            UsageError: A rate is not positive, or no rate is feasible.
        """
        if given:
            if any(not (isinstance(r, int | float) and 0 < r < 1e6) for r in given):
                raise UsageError(f"rates: found {found(list(given))}; allowed: GB/s above 0")
            return tuple(sorted({float(r) for r in given}))
        reachable = explain(
            self.variants, dataclasses.replace(target, metrics={"memory_gb_per_s": 1.0, **target.metrics})
        )
        feasible = reachable["memory_gb_per_s"]
        if feasible is None or feasible[1] <= 0:
            raise UsageError("rates: the calibration data allow no memory bandwidth with the other target metrics")
        return tuple(float(f"{feasible[0] + (feasible[1] - feasible[0]) * s:.3g}") for s in SHARES)

    def make_program(
        self, name: str, target: TargetProfile, conditions: Mapping[str, Scalar], **more: Any
    ) -> Path | None:
        """Return the file of a program; if the program is impossible, store the reason and return None."""
        try:
            return self.maker.file(name, target, **more)
        except UsageError as error:  # impossible, or memory_mib is too small
            self.failed.append(("slowdown", str(error), dict(conditions)))
            self.options.notify(f"{self.name}: {error}")
            return None

    def work(self, work: Work, key: str = "command") -> Work:
        """Check a program's file or a command.

        Raises:
            UsageError: The file or the program does not exist.
        """
        if isinstance(work, Described):
            work.check()
            return work
        if isinstance(work, Path):
            if not work.is_file():
                raise UsageError(f"{key}: found {work}; no such file")
            return work.resolve()
        argv = [str(w) for w in work]
        if isinstance(work, str) or not argv or not argv[0] or shutil.which(argv[0]) is None:
            raise UsageError(f"{key}: found {found(argv[0] if argv else '')}; no such program")
        return argv


def work_identity(work: Work) -> list[str] | str:
    """Identify a work by the arguments of a command, or by name and digest of a file or an application."""
    if isinstance(work, Described):
        return work.identity
    if not isinstance(work, Path):
        return [str(w) for w in work]
    try:
        return f"{work} {hashlib.sha256(read_bytes(work, MAX_PROGRAM_BYTES)).hexdigest()[:16]}"
    except UsageError:
        return str(work)  # `Bench.work` reports it


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


def require_two_cpus(bench: Bench) -> None:
    if len(bench.cpus) < 2:
        raise AbsentError(f"{bench.name}: needs two CPUs; available: {format_list(bench.cpus)}", "allow more CPUs")


def one_cpu_each(cpus: Sequence[int]) -> list[tuple[int, ...]]:
    return [(c,) for c in cpus]
