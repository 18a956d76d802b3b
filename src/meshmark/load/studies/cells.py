"""How a study is run: scenarios repeated in turn, every run kept, resumed where it stopped.

A study's folder holds `study.json` (what was asked), `programs/` (made once), `journal.jsonl` (a line a finished run,
on disk before it counts), `runs/` (the folder of each run) and, at the end, `records.jsonl`.

What is compared runs close together in time: a repetition runs every group of cells once, groups in an order drawn from
the seed, and within a group, which is what is compared directly, the order turns round with each repetition.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.make import calibrate
from meshmark.load.placing import Here
from meshmark.load.profile import TargetProfile
from meshmark.load.program import Program, dump_program, read_program
from meshmark.load.result import LoadRun
from meshmark.load.run import run_scenario
from meshmark.load.scenario import Canary, Member, Scenario
from meshmark.load.studies.outcome import JOURNAL, PLAN, Cell, Outcome, open_journal, outcome_of, read_outcomes
from meshmark.load.synthesis import synthesize
from meshmark.load.variants import Variant
from meshmark.store.files import read_json, write_file
from meshmark.values.inputs import found

Notify = Callable[[str], None]
Work = Path | Sequence[str]  # a program's file, or a command
LEAD_S: Final = 0.25  # neighbours run that long before what is measured starts
MEMORY_MIB: Final = 512.0  # of a study's programs: setting up and checking more takes longer than running
OUTLASTS: Final = 12.0  # times as long as what is measured: a neighbour, which is ended with it
SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # of the highest rate that base data allow
MAX_REPETITIONS: Final = 100
QUIET: Final = Canary(0.0, 0.0, False)  # a canary's loads would be one more neighbour


def silent(_: str) -> None:
    """Talk to nobody."""


class _NeighbourStopper:
    """Ends the neighbours as soon as it hears that all measured copies are done."""

    def __init__(self, scenario: Scenario, measured: Sequence[str]) -> None:
        of = {p.name: p.copies for p in scenario.programs}
        self._left = sum(of[name] for name in measured)
        self._measured = set(measured)
        self._pids: dict[tuple[str, int], int] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        key = (str(event.get("program", "")), int(event.get("copy", 0)))
        kind = event.get("event")
        if kind == "ready" and key[0] not in self._measured:
            self._pids[key] = int(event["pid"])
        elif kind in {"exit", "failed"}:
            self._pids.pop(key, None)
            self._left -= key[0] in self._measured
        if self._left <= 0:
            for pid in self._pids.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGTERM)  # each program leads a group of its own
            self._pids.clear()


# ---------------------------------------------------------------- in turn


def order(groups: Sequence[Sequence[Cell]], repetition: int, seed: int) -> list[Cell]:
    """The cells of one repetition. It depends on nothing but these arguments, so that a resumed study keeps it."""
    rng = random.Random(f"{seed}/{repetition}")
    shuffled = list(groups)
    rng.shuffle(shuffled)
    out: list[Cell] = []
    for group in shuffled:
        cells = list(group)
        if len(cells) > 2:
            rng.shuffle(cells)
        elif repetition % 2:
            cells.reverse()  # alone first, then together first
        out += cells
    return out


def start_study(folder: Path, name: str, parameters: Mapping[str, Any], notify: Notify = silent) -> None:
    """Makes a study's folder, or takes up what lies there if it is the same study.

    Raises:
        UsageError: another study lies there, by the parameter that differs.
        MeshmarkError: the folder cannot be written.
    """
    asked = json.loads(json.dumps({"format": "meshmark load study", "version": 1, "study": name, **parameters}))
    path = folder / PLAN
    if path.exists():
        try:
            known = read_json(path)
        except UsageError as why:
            raise UsageError(f"no study of Meshmark's: {why}", "name another folder with --out") from why
        for key in {**asked, **(known if isinstance(known, dict) else {})}:
            if not isinstance(known, dict) or known.get(key) != asked.get(key):
                was = known.get(key) if isinstance(known, dict) else known
                raise UsageError(
                    f"{folder}: holds a study with {key} = {found(was)}; asked is {found(asked.get(key))}",
                    "name another folder with --out, or ask for the same to resume it",
                )
        done = len(read_outcomes(folder))
        if done:
            notify(f"{name}: resumed in {folder}, {done} runs are there")
        return
    if folder.exists() and any(f.name != "programs" for f in folder.iterdir()):  # those may be made before
        raise UsageError(f"{folder}: is not empty and holds no study", "name another folder with --out")
    write_file(path, json.dumps(asked, indent=1).encode() + b"\n")


def _is_pointless(cell: Cell, groups: Sequence[Sequence[Cell]], failed: set[str]) -> bool:
    """It failed, or of every pair that it is one of the other did."""
    if cell.name in failed:
        return True
    for group in groups:
        names = [c.name for c in group]
        if cell.name in names:
            others = names[1:] if cell.name == names[0] else names[:1]
            if not others or not failed.issuperset(others):
                return False
    return True


def run_cells(
    folder: Path,
    groups: Sequence[Sequence[Cell]],
    repetitions: int,
    seed: int,
    notify: Notify = silent,
    inspect: Callable[[LoadRun], Mapping[str, float]] | None = None,
    here: Here | None = None,
) -> dict[str, list[Outcome]]:
    """Runs what is not in the journal yet, and returns everything that is.

    A cell whose run does not count (a program died, a neighbour ended too early) is not tried again in this study, nor
    what has nothing left to compare with; the others go on. Its outcomes say why.

    Args:
        groups: the first cell of each is what the others are compared with.

    Returns:
        Outcomes by cell and repetition, also those that do not count.

    Raises:
        MeshmarkError: a run or the folder fails.
    """
    by_name = {c.name: c for g in groups for c in g}
    done = {
        (o.cell, o.repetition): o for o in read_outcomes(folder) if o.cell in by_name and o.repetition < repetitions
    }
    steps = [(c, r) for r in range(repetitions) for c in order(groups, r, seed)]
    names = {c: f"{i:03d}" for i, c in enumerate(by_name)}
    durations: list[float] = []
    failed = {c for (c, _), o in done.items() if o.reason}
    with open_journal(folder / JOURNAL) as sink:
        for number, (cell, repetition) in enumerate(steps, 1):
            if (cell.name, repetition) in done:
                continue
            if _is_pointless(cell, groups, failed):
                continue
            run_folder = folder / "runs" / f"{names[cell.name]}-{repetition:02d}"
            shutil.rmtree(run_folder, ignore_errors=True)  # of a study that was killed in it
            scenario = cell.scenarios[repetition % len(cell.scenarios)]
            began = time.monotonic()
            report = _NeighbourStopper(scenario, cell.measured) if cell.measured else None
            try:
                run = run_scenario(scenario, run_folder, report=report, here=here)
            except MeshmarkError as why:
                why.args = (f"{cell.name}: {why}",)
                raise
            outcome = outcome_of(cell, repetition, run, inspect)
            sink.write(json.dumps(outcome.to_json(), allow_nan=False).encode() + b"\n")
            sink.flush()
            os.fsync(sink.fileno())
            done[cell.name, repetition] = outcome
            durations.append(time.monotonic() - began)
            failed |= {cell.name} if outcome.reason else set()
            left = statistics.fmean(durations) * sum(not _is_pointless(c, groups, failed) for c, _ in steps[number:])
            what = f"{outcome.time_s('wall'):.3g} s" if not outcome.reason else outcome.reason
            notify(f"{number}/{len(steps)} {cell.name}: {what}; about {left:.0f} s left")
    out: dict[str, list[Outcome]] = {name: [] for name in by_name}
    for o in sorted(done.values(), key=lambda o: o.repetition):
        out[o.cell].append(o)
    return out


# ---------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes programs for a study, once: those of an earlier attempt are used again."""

    folder: Path  # of the study
    variants: Sequence[Variant]
    machine: str
    cpus: Sequence[int]  # on which trials run
    rounds: int = 1
    trial_s: float = 1.0
    notify: Notify = silent

    def file(
        self, name: str, target: TargetProfile, only: Callable[[Variant], bool] | None = None, rounds: int | None = None
    ) -> Path:
        """The file of a program. `rounds`: 0 where what counts is that its work is fixed, not how long it takes.

        Raises:
            UsageError: it cannot be, as `synthesize` says.
            MeshmarkError: a trial failed.
        """
        path = self._path(name)
        if path.exists():
            return path
        variants = [v for v in self.variants if only is None or only(v)]
        program = synthesize(variants, target, machine=self.machine)
        if rounds := self.rounds if rounds is None else rounds:
            cpus = tuple(self.cpus) if target.threads > 1 else tuple(self.cpus[:1])
            program, _ = calibrate(program, self.trial_s, rounds, cpus, progress=self.notify)
        write_file(path, dump_program(program).encode())
        return path

    def longer(self, path: Path, factor: float) -> Path:
        """The same program with so many times the calls: a neighbour that outlasts what is measured."""
        out = path.with_name(f"{path.stem}.long.json")
        if not out.exists():
            write_file(out, dump_program(lengthened(read_program(path), factor)).encode())
        return out

    def _path(self, name: str) -> Path:
        return self.folder / "programs" / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".json")


def lengthened(program: Program, factor: float) -> Program:
    """The same mix for `factor` times as long."""
    return dataclasses.replace(
        program,
        profile=dataclasses.replace(program.profile, run_time_s=program.profile.run_time_s * factor),
        parts=tuple(dataclasses.replace(p, calls=min(1 << 29, round(p.calls * factor))) for p in program.parts),
    )


def member(
    name: str,
    work: Work,
    cpus: Sequence[Sequence[int]],
    *,
    endless: bool = False,
    start_s: float = 0.0,
    threads: int = 1,
    wait_policy: str = "",
    oversubscribe: bool = False,
) -> Member:
    """A program with a copy on each of these sets of CPUs. `endless`: a command is repeated for ever."""
    about: dict[str, Any] = {
        "name": name,
        "copies": len(cpus),
        "start_s": (start_s,) * len(cpus),
        "cpus": tuple(tuple(c) for c in cpus),
        "threads": threads,
        "wait_policy": wait_policy,
        "oversubscribe": oversubscribe,
    }
    if isinstance(work, Path):
        return Member(file=work, **about)
    again = ("sh", "-c", 'while "$@"; do :; done', "sh") if endless else ()
    return Member(command=(*again, *work), **about)


def scenario(name: str, *members: Member, sample_s: float = 0.1) -> Scenario:
    return Scenario(name=name, programs=members, canary=QUIET, sample_s=sample_s)
