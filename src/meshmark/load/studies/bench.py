"""What every study does: plan cells, run them, and turn the outcomes into a result."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.placing import Here
from meshmark.load.profile import TargetProfile
from meshmark.load.result import LoadRun
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
from meshmark.load.variants import MAX_PROGRAM_BYTES, Variant
from meshmark.machine.tree import format_list
from meshmark.store.files import read_bytes
from meshmark.store.record import Record, Scalar
from meshmark.store.run import Absence
from meshmark.values.inputs import found

# ---------------------------------------------------------------- one study


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What all studies are told. `rounds`: of calibration of each program that is made."""

    repetitions: int = 5  # intervals need 4
    seed: int = 0
    clock: Clock = "wall"
    rounds: int = 1
    memory_mib: float = MEMORY_MIB  # of each program that is made
    machine: str = ""  # whose base data the variants are
    timeout_s: float = 0.0  # of one run, which then does not count; 0: none
    notify: Notify = silent


DEFAULT_OPTIONS: Final = StudyOptions()


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Of every study."""

    study: str
    folder: Path
    records: tuple[Record, ...]
    absences: tuple[Absence, ...]
    table: str
    excluded: str = ""  # which runs do not count, in a line; "": all do


class Bench:
    """One study on its way."""

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
            raise UsageError(f"repetitions: found {options.repetitions}; allowed are 1 to {MAX_REPETITIONS}")
        if options.clock not in CLOCKS:
            raise UsageError(f"clock: found {found(options.clock)}; allowed are {', '.join(CLOCKS)}")
        if not 0 <= options.timeout_s <= 1e6:
            raise UsageError(f"timeout_s: found {options.timeout_s:g}; allowed is a number from 0 to 1000000")
        self.name, self.out, self.options = name, out, options
        self.here = Here.now()
        self.cpus = tuple(cpus) or self.here.cpus
        if len(set(self.cpus)) != len(self.cpus) or not set(self.cpus) <= set(self.here.cpus):
            raise UsageError(
                f"cpus: found {found(list(self.cpus))}; allowed are different ones of {format_list(self.here.cpus)}"
            )
        self.variants = variants
        self.parameters = {
            "cpus": format_list(self.cpus),
            "seed": options.seed,
            "clock": options.clock,
            "machine": options.machine,
            "rounds": options.rounds,
            "memory_mib": options.memory_mib,
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
            raise UsageError(f"run_time_s: found {run_time_s:g}; allowed is a number above 0, up to 100000")
        return TargetProfile(
            run_time_s=run_time_s,
            metrics=metrics or {},
            **{"memory_mib": self.options.memory_mib, "seed": self.options.seed, **more},
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
        all_of = [o for runs in outcomes.values() for o in runs]
        if bad := [o for o in all_of if o.reason]:
            self.excluded = f"{len(bad)} of {len(all_of)} runs do not count: {bad[0].cell}: {bad[0].reason}"
        about: Mapping[str, str] = all_of[0].about if all_of else {}
        results = Results(
            study=self.name,
            machine=self.options.machine or about.get("machine", ""),
            common=self.common,
            provenance={
                **{k: about.get(k, "") for k in ("build", "compiler", "kernel")},
                "start": min((o.start for o in all_of), default=""),
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
        """A point with its records, or its absence."""
        p, reason = point(x, label, alone, together, self.options.clock)
        if p is None:
            results.absent("slowdown", reason, conditions)
        else:
            results.add_point(p, conditions)
        return p

    def end(self, results: Results, summary: str) -> dict[str, Any]:
        """What a result's base takes.

        Raises:
            MeshmarkError: not one run counts, with the first reason.
        """
        results.write(self.out)
        if not results.records:
            why = results.absences[0].reason if results.absences else "nothing was run"
            raise MeshmarkError(f"{self.name}: no run counts: {why}", f"{self.out} has the runs and what they printed")
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
        """GB/s, rising: those given, or shares of what base data allow.

        Raises:
            UsageError: one is not positive, or there is none.
        """
        if given:
            if any(not (isinstance(r, int | float) and 0 < r < 1e6) for r in given):
                raise UsageError(f"rates: found {found(list(given))}; allowed are numbers of GB/s above 0")
            return tuple(sorted({float(r) for r in given}))
        reachable = explain(
            self.variants, dataclasses.replace(target, metrics={"memory_gb_per_s": 1.0, **target.metrics})
        )
        top = reachable["memory_gb_per_s"]
        if top is None or top[1] <= 0:
            raise UsageError("rates: base data allow no rate of memory with what else is asked")
        return tuple(float(f"{top[0] + (top[1] - top[0]) * s:.3g}") for s in SHARES)

    def make_program(
        self, name: str, target: TargetProfile, conditions: Mapping[str, Scalar], **more: Any
    ) -> Path | None:
        """A program's file; None and an absence where it is impossible."""
        try:
            return self.maker.file(name, target, **more)
        except UsageError as why:  # impossible, or in more memory than it may take
            self.failed.append(("slowdown", str(why), dict(conditions)))
            self.options.notify(f"{self.name}: {why}")
            return None

    def work(self, work: Work, key: str = "command") -> Work:
        """
        Raises:
            UsageError: there is no such file or program.
        """
        if isinstance(work, Path):
            if not work.is_file():
                raise UsageError(f"{key}: found {work}; no such file")
            return work.resolve()
        words = [str(w) for w in work]
        if isinstance(work, str) or not words or not words[0] or shutil.which(words[0]) is None:
            raise UsageError(f"{key}: found {found(words[0] if words else '')}; no such program is here")
        return words


def work_identity(work: Work) -> list[str] | str:
    """What tells one work from another: a command's words, a file's name and content."""
    if not isinstance(work, Path):
        return [str(w) for w in work]
    try:
        return f"{work} {hashlib.sha256(read_bytes(work, MAX_PROGRAM_BYTES)).hexdigest()[:16]}"
    except UsageError:
        return str(work)  # refused where it is used


def _calibration_key(variants: Sequence[Variant]) -> str:
    """Tells one set of base data from another: programs made of both would be no study of one thing."""
    return hashlib.sha256(repr([v.to_json() for v in variants]).encode()).hexdigest()[:16] if variants else ""


def require_two_cpus(bench: Bench) -> None:
    if len(bench.cpus) < 2:
        raise AbsentError(f"{bench.name}: needs two CPUs, may use {format_list(bench.cpus)}", "widen the set of CPUs")


def one_cpu_each(cpus: Sequence[int]) -> list[tuple[int, ...]]:
    return [(c,) for c in cpus]
