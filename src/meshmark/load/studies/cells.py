"""Runs the scenarios of a study in turn, stores every run, and resumes an interrupted study.

The folder of a study contains `study.json` (the request), `programs/` (synthesised once), `journal.jsonl` (one line per
finished run, flushed to disk before the run counts), `runs/` (one folder per run) and finally `records.jsonl`.

Runs that are compared are close together in time. A repetition runs each group of cells once, in an order drawn from
the seed. Runs of a group are compared directly, so their order alternates with the repetition.
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
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.application import ScenarioApplication
from meshmark.load.scenario.placing import HostResources
from meshmark.load.scenario.result import LoadRun
from meshmark.load.scenario.run import run_scenario
from meshmark.load.scenario.scenario import Canary, Scenario, ScenarioProgram
from meshmark.load.studies.outcome import JOURNAL, PLAN, CellRun, StudyCell, outcome_of, read_outcomes
from meshmark.load.synthesis import synthesize
from meshmark.load.synthesis.make import calibrate
from meshmark.load.synthesis.program import SyntheticProgram, dump_program, read_program
from meshmark.store.files import read_json, write_file, write_json
from meshmark.store.session import Journal, check_same, held

Notify = Callable[[str], None]
Work = Path | Sequence[str] | ScenarioApplication  # file of a synthetic program, a command, or an application
LEAD_S: Final = 0.25  # neighbours start this long before the measured programs
MEMORY_MIB: Final = 512.0  # of each program; initialising and checking more memory takes longer than the run
OUTLASTS: Final = 12.0  # run time of a neighbour relative to the measured program, with which the neighbour is stopped
SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # of the feasible range of rates
MAX_REPETITIONS: Final = 100
QUIET: Final = Canary(0.0, 0.0, False)  # no canary: its loads would disturb the programs


def silent(_: str) -> None:
    """Discard a message."""


class _NeighbourStopper:
    """Stops the neighbours as soon as all measured copies have ended."""

    def __init__(self, scenario: Scenario, measured: Sequence[str]) -> None:
        copies = {p.name: p.copies for p in scenario.programs}
        self._left = sum(copies[name] for name in measured)
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
                    os.killpg(pid, signal.SIGTERM)  # each program leads its own process group
            self._pids.clear()


def order(groups: Sequence[Sequence[StudyCell]], repetition: int, seed: int) -> list[StudyCell]:
    """Return the cells of one repetition, in an order that depends on the arguments only, for resumed studies."""
    rng = random.Random(f"{seed}/{repetition}")
    shuffled_groups = list(groups)
    rng.shuffle(shuffled_groups)
    cells_in_order: list[StudyCell] = []
    for group in shuffled_groups:
        cells = list(group)
        if len(cells) > 2:
            rng.shuffle(cells)
        elif repetition % 2:
            cells.reverse()  # alternate which one runs first
        cells_in_order += cells
    return cells_in_order


def start_study(folder: Path, name: str, parameters: Mapping[str, Any], notify: Notify = silent) -> None:
    """Create the folder of a study, or resume the same study in it.

    Raises:
        UsageError: The folder contains another study; the message names the parameter that differs.
        MeshmarkError: The folder is not writable.
    """
    plan = json.loads(json.dumps({"format": "meshmark load study", "version": 1, "study": name, **parameters}))
    path = folder / PLAN
    if path.exists():
        try:
            recorded = read_json(path)
        except UsageError as error:
            raise UsageError(f"not a study of Meshmark: {error}", "choose another folder with --out") from error
        hint = "choose another folder with --out, or use the original options to resume"
        check_same(folder, "a study", recorded, plan, hint)
        run_count = len(read_outcomes(folder))
        if run_count:
            notify(f"{name}: resuming in {folder}, {run_count} runs are done")
        return
    if folder.exists() and any(
        f.name != "programs" for f in folder.iterdir()
    ):  # programs may exist before the study starts
        raise UsageError(f"{folder}: is not empty and contains no study", "choose another folder with --out")
    write_json(path, plan)


def _is_pointless(cell: StudyCell, groups: Sequence[Sequence[StudyCell]], failed: set[str]) -> bool:
    """Return whether a cell failed, or every cell to compare it with failed."""
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
    groups: Sequence[Sequence[StudyCell]],
    repetitions: int,
    seed: int,
    notify: Notify = silent,
    inspect: Callable[[LoadRun], Mapping[str, float]] | None = None,
    here: HostResources | None = None,
    timeout_s: float = 0.0,
) -> dict[str, list[CellRun]]:
    """Run the cells that the journal lacks, and return all outcomes.

    A cell is not repeated after an invalid run (a program failed, or a neighbour ended too early). Cells that have no
    valid cell to compare with are not repeated, either. All other cells continue. The outcome contains the reason.

    Args:
        folder: Folder of the study, with its journal.
        groups: The first cell of each group is the baseline of the other cells.
        repetitions: Number of runs of each cell.
        seed: Seed of the order of the cells.
        notify: Function that is called with lines about the progress.
        inspect: Function that returns more values of a run, by name; None: there are none.
        here: CPUs and memory of this host; None: they are determined.
        timeout_s: Limit of a run; 0: the limit of its scenario.

    Returns:
        Outcomes by cell, in order of repetition, including invalid outcomes.

    Raises:
        MeshmarkError: A run failed or the folder is not writable.
    """
    by_name = {c.name: c for g in groups for c in g}
    outcomes = {
        (o.cell, o.repetition): o for o in read_outcomes(folder) if o.cell in by_name and o.repetition < repetitions
    }
    steps = [(c, r) for r in range(repetitions) for c in order(groups, r, seed)]
    names = {c: f"{i:03d}" for i, c in enumerate(by_name)}
    durations: list[float] = []
    failed = {c for (c, _), o in outcomes.items() if o.reason}
    journal = Journal(folder / JOURNAL)
    with held(folder, resumed=True):
        for number, (cell, repetition) in enumerate(steps, 1):
            if (cell.name, repetition) in outcomes:
                continue
            if _is_pointless(cell, groups, failed):
                continue
            run_folder = folder / "runs" / f"{names[cell.name]}-{repetition:02d}"
            shutil.rmtree(run_folder, ignore_errors=True)  # left by a study that was killed during this run
            scenario = cell.scenarios[repetition % len(cell.scenarios)]
            scenario = dataclasses.replace(scenario, timeout_s=timeout_s or scenario.timeout_s)
            start_s = time.monotonic()
            report = _NeighbourStopper(scenario, cell.measured) if cell.measured else None
            try:
                run = run_scenario(scenario, run_folder, report=report, here=here, builds=folder, notify=notify)
            except MeshmarkError as error:
                error.args = (f"{cell.name}: {error}",)
                raise
            outcome = outcome_of(cell, repetition, run, inspect)
            journal.append(outcome.to_json())
            outcomes[cell.name, repetition] = outcome
            durations.append(time.monotonic() - start_s)
            failed |= {cell.name} if outcome.reason else set()
            remaining_s = statistics.fmean(durations) * sum(
                not _is_pointless(c, groups, failed) for c, _ in steps[number:]
            )
            result = f"{outcome.time_s('wall'):.3g} s" if not outcome.reason else outcome.reason
            notify(f"{number}/{len(steps)} {cell.name}: {result}; about {remaining_s:.0f} s left")
    outcomes_by_cell: dict[str, list[CellRun]] = {name: [] for name in by_name}
    for o in sorted(outcomes.values(), key=lambda o: o.repetition):
        outcomes_by_cell[o.cell].append(o)
    return outcomes_by_cell


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramMaker:
    """Synthesises the programs of a study, and reuses existing ones."""

    folder: Path  # folder of the study
    variants: Sequence[Variant]
    machine: str
    cpus: Sequence[int]  # for calibration runs
    rounds: int = 1
    trial_s: float = 1.0
    notify: Notify = silent

    def file(
        self, name: str, target: TargetProfile, only: Callable[[Variant], bool] | None = None, rounds: int | None = None
    ) -> Path:
        """Return the file of a program, and synthesise it if needed.

        Args:
            name: Name of the program.
            target: Its target profile.
            only: Filters the variants.
            rounds: Calibration rounds; 0 if the program needs fixed work rather than an exact run time.

        Raises:
            UsageError: The target profile is impossible, see `synthesize`.
            MeshmarkError: A calibration run failed.
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
        """Return the file of the program with `factor` times the calls, for use as a neighbour."""
        longer_path = path.with_name(f"{path.stem}.long.json")
        if not longer_path.exists():
            write_file(longer_path, dump_program(lengthened(read_program(path), factor)).encode())
        return longer_path

    def _path(self, name: str) -> Path:
        return self.folder / "programs" / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".json")


def lengthened(program: SyntheticProgram, factor: float) -> SyntheticProgram:
    """Return the same mix for `factor` times the run time."""
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
    priority: tuple[int, str] = (0, "other"),
) -> ScenarioProgram:
    """Return a program with one copy per set of CPUs.

    Args:
        name: Name of the program.
        work: What it runs: a command, a program file or an application.
        cpus: CPUs of each copy.
        endless: Repeat a command until it is stopped; has no effect on an application.
        start_s: Start of all copies in s after the clock start.
        threads: Number of threads of a copy.
        wait_policy: Value of OMP_WAIT_POLICY; "": it is not set.
        oversubscribe: Whether copies may have more threads than CPUs.
        priority: Nice value, relative to this process, and scheduling class.
    """
    fields: dict[str, Any] = {
        "name": name,
        "copies": len(cpus),
        "start_s": (start_s,) * len(cpus),
        "cpus": tuple(tuple(c) for c in cpus),
        "threads": threads,
        "wait_policy": wait_policy,
        "oversubscribe": oversubscribe,
        "nice": priority[0],
        "priority": priority[1],
    }
    if isinstance(work, Path):
        return ScenarioProgram(file=work, **fields)
    if isinstance(work, ScenarioApplication):
        return ScenarioProgram(application=work.name, described=work, **fields)
    loop = ("sh", "-c", 'while "$@"; do :; done', "sh") if endless else ()
    return ScenarioProgram(command=(*loop, *work), **fields)


def scenario(name: str, *members: ScenarioProgram, sample_s: float = 0.1) -> Scenario:
    """Return a scenario of these programs, with the canary of studies, sampled every `sample_s` seconds."""
    return Scenario(name=name, programs=members, canary=QUIET, sample_s=sample_s)
