"""Outcomes of the runs of a study, and the journal that stores them."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from meshmark.load.scenario.lines import is_count, is_number
from meshmark.load.scenario.result import EFFECTS, LoadRun, ProgramUse, Totals
from meshmark.load.scenario.scenario import Scenario
from meshmark.store.record import Scalar
from meshmark.store.session import Journal

JOURNAL: Final = "journal.jsonl"
PLAN: Final = "study.json"
RECORDS: Final = "records.jsonl"
Clock = Literal["wall", "dedicated"]
CLOCKS: Final = ("wall", "dedicated")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCell:
    """Scenarios that a study repeats. `x`, `label` and `conditions` describe its results, see `results.StudyPoint`."""

    name: str  # unique in its study
    scenarios: tuple[Scenario, ...]  # one per repetition, in turn
    measured: tuple[str, ...] = ()  # programs to wait for; the other programs are stopped then; empty: all
    x: float = 0.0
    label: str = ""
    conditions: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUse:
    """A copy of a program in one run, times in s. A synthetic program reports its times without its check."""

    program: str
    copy: int
    how: str
    wall_s: float
    waiting_s: float
    user_s: float
    system_s: float
    threads: int
    counts: Mapping[str, float]  # reported by a synthetic program

    def time_s(self, clock: Clock) -> float:
        """Return the run time; `dedicated`: minus the mean time that a thread waited for a CPU."""
        return self.wall_s if clock == "wall" else max(1e-9, self.wall_s - self.waiting_s / max(1, self.threads))

    def memory_rate(self, clock: Clock) -> float:
        """Return memory traffic in B/s by the program's counts; 0 if it has none."""
        traffic_bytes = self.counts.get("memory_read_bytes", 0.0) + self.counts.get("memory_write_bytes", 0.0)
        return traffic_bytes / self.time_s(clock) if self.wall_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRun:
    """The result of one run of a cell."""

    cell: str
    repetition: int
    run: str  # folder in runs/
    start: str
    measured: tuple[str, ...]
    uses: tuple[CopyUse, ...]
    totals: Totals
    flags: frozenset[str]
    about: Mapping[str, str] = field(default_factory=dict)  # machine, build, compiler, kernel
    more: Mapping[str, float] = field(default_factory=dict)  # values that the study derives from the run
    reason: str = ""  # why the outcome is excluded; "": valid

    def copies(self, *programs: str) -> list[CopyUse]:
        """Return the copies of these programs, by default of all measured programs."""
        return [u for u in self.uses if u.program in (programs or self.measured)]

    def time_s(self, clock: Clock) -> float:
        """Return the mean over the measured copies, which are not independent samples."""
        return statistics.fmean(u.time_s(clock) for u in self.copies())

    def to_json(self) -> dict[str, Any]:
        """Return the line of the journal, of type `run`; flags are sorted."""
        return {"type": "run", **dataclasses.asdict(self), "flags": sorted(self.flags)}

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> CellRun:
        """Parse a line of the journal.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: The line is not an outcome.
        """
        if line["type"] != "run":
            raise ValueError("not an outcome")
        fields = {k: v for k, v in line.items() if k != "type"}
        outcome = CellRun(
            **{
                **fields,
                "measured": tuple(line["measured"]),
                "uses": tuple(CopyUse(**u) for u in line["uses"]),
                "totals": Totals(**line["totals"]),
                "flags": frozenset(line["flags"]),
            }
        )
        texts = (
            outcome.cell,
            outcome.run,
            outcome.start,
            outcome.reason,
            *outcome.measured,
            *outcome.flags,
            *outcome.about.values(),
            *(text for u in outcome.uses for text in (u.program, u.how)),
        )
        counts = (outcome.repetition, *(n for u in outcome.uses for n in (u.copy, u.threads)))
        times = (n for u in outcome.uses for n in (u.wall_s, u.waiting_s, u.user_s, u.system_s, *u.counts.values()))
        numbers = (*times, *dataclasses.astuple(outcome.totals), *outcome.more.values())
        if not (all(isinstance(t, str) for t in texts) and all(map(is_count, counts)) and all(map(is_number, numbers))):
            raise ValueError("a value has the wrong type")
        if not outcome.reason and not (outcome.copies() and all(u.wall_s > 0 for u in outcome.copies())):
            raise ValueError("a valid outcome has a run time")
        json.dumps(fields, ensure_ascii=False).encode()  # lone surrogates cannot be encoded
        return outcome


def _use(p: ProgramUse) -> CopyUse:
    counts = {k: float(v) for k, v in p.done.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return CopyUse(
        program=p.program,
        copy=p.copy,
        how=p.how,
        wall_s=p.running_s,
        waiting_s=float(p.done["waiting_s"]) if p.synthetic else p.waiting_s,
        user_s=float(p.done["user_s"]) if p.synthetic else p.user_s,
        system_s=float(p.done["system_s"]) if p.synthetic else p.system_s,
        threads=max(1, p.threads),
        counts=counts,
    )


def outcome_of(
    cell: StudyCell, repetition: int, run: LoadRun, inspect: Callable[[LoadRun], Mapping[str, float]] | None
) -> CellRun:
    """Return the outcome of a run of a cell; its reason says why it is invalid.

    Args:
        repetition: Number of the repetition, from 0.
        run: The run of its scenario.
        inspect: Function that returns more values of a run, by name; None: there are none.
    """
    measured = cell.measured or tuple(dict.fromkeys(p.program for p in run.programs))
    measured_programs = [p for p in run.programs if p.program in measured]
    failed = [p for p in measured_programs if p.how != "ok"]
    others = [p for p in run.programs if p.program not in measured]
    # If a neighbour ended early, the measured program ran alone for a while.
    last_s = max((p.released_s + p.running_s for p in measured_programs if p.how == "ok"), default=0.0)
    early = [p for p in others if p.how == "failed" or p.ended_s < last_s]
    reason = (
        f"program {failed[0].program}, copy {failed[0].copy}: {failed[0].reason}"
        if failed
        else f"program {early[0].program}, copy {early[0].copy}: "
        + (
            f"did not start: {early[0].reason}"
            if early[0].how == "failed"
            else f"the neighbour ended after {early[0].ended_s:.3g} s, before the measured program after {last_s:.3g} s"
        )
        if early
        else ""
        if measured_programs
        else "no program ran"
    )
    return CellRun(
        cell=cell.name,
        repetition=repetition,
        run=run.folder.name,
        start=str(run.header.get("start", "")),
        measured=measured,
        uses=tuple(_use(p) for p in run.programs),
        totals=run.totals(),
        reason=reason,
        flags=frozenset().union(*(run.flags(p) for p in measured_programs)) - EFFECTS
        if measured_programs
        else frozenset(),
        more=dict(inspect(run)) if inspect is not None and not reason else {},
        about={
            "machine": str(run.header.get("machine", "")),
            "build": str(run.header.get("build", "")),
            "compiler": str(run.header.get("compiler", "")),
            "kernel": str(run.header.get("conditions", {}).get("kernel_release", "")),
        },
    )


def read_outcomes(folder: Path) -> list[CellRun]:
    """Return the finished runs of a study in order; skip invalid lines.

    Raises:
        MeshmarkError: The journal cannot be read.
    """
    runs = Journal(folder / JOURNAL).entries(CellRun.from_json)
    return list({(run.cell, run.repetition): run for _, run in runs}.values())
