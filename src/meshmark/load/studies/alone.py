"""Measures the co-run slowdown of each program of a scenario.

Runs of the whole scenario alternate with runs of one copy of each program alone, on the CPUs that the copy has in the
scenario. Confidence intervals need four repetitions. `cells.py` describes the folder, the order and how to resume.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.scenario.placing import Here, check_here, place_copies, scenario_json, threads_of
from meshmark.load.scenario.result import jain
from meshmark.load.scenario.scenario import Scenario
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, work_identity
from meshmark.load.studies.outcome import Cell, Outcome
from meshmark.load.studies.results import Point, Results, format_slowdown, table
from meshmark.store.record import Scalar, median_interval

TOGETHER: Final = "together"


@dataclass(frozen=True, kw_only=True)
class CoRun(StudyResult):
    points: tuple[Point, ...]  # x: index of the program in the scenario; empty if nothing ran alone
    run: Path | None  # folder of the scenario run with the median bench time; None if no run is valid


def co_run(
    scenario: Scenario,
    out: Path,
    files: Mapping[str, Path],
    *,
    alone: bool = True,
    options: StudyOptions = DEFAULT_OPTIONS,
    here: Here | None = None,
) -> CoRun:
    """Run a scenario repeatedly, and each of its programs alone.

    Copies of a program are averaged, because they are not independent samples. A run in which a program failed is
    excluded, because the other programs did not run under the requested load.

    Args:
        files: Files of the programs synthesised for the scenario's target profiles, by name.
        alone: Also run each program alone; otherwise, repeat the scenario only.

    Raises:
        UsageError: The scenario does not fit this machine, or the folder contains something else.
        MeshmarkError: No run is valid.
    """
    here = Here.now() if here is None else here
    scenario, memory = _with_files(scenario, files)
    check_here(scenario, here, memory)
    bench = Bench(
        "scenario",
        out,
        options,
        here.cpus,
        {
            "scenario": scenario_json(scenario),
            "applications": {p.name: work_identity(p.described) for p in scenario.programs if p.described},
            "files": {p.name: work_identity(p.file) for p in scenario.programs if p.file},
        },
    )
    bench.here = here
    cells = [Cell(name=TOGETHER, scenarios=(scenario,))]
    if alone:
        cells += _alone(scenario, here)
    bench.begin()
    outcomes, results = bench.run([cells])
    scenario_outcomes = outcomes[TOGETHER]
    results.common = {**results.common, "scenario": scenario.name, "processes": scenario.processes}
    points, rows = [], []
    for number, p in enumerate(scenario.programs):
        conditions: dict[str, Scalar] = {"program": p.name, "copies": p.copies, "threads": p.threads}
        program_outcomes = [dataclasses.replace(o, measured=(p.name,)) for o in scenario_outcomes]
        if not alone:
            rows += _repeated(results, p.name, program_outcomes, options, conditions)
            continue
        outcomes_alone = outcomes[_cell_of(p.name)]
        point = bench.point(results, number, p.name, outcomes_alone, program_outcomes, conditions)
        if point is None:
            continue
        points.append(point)
        rows.append(
            [
                p.name,
                f"{statistics.median(point.alone_s):.4g}",
                f"{statistics.median(point.together_s):.4g}",
                *format_slowdown(point.slowdown),
                _waited(program_outcomes),
                " ".join(sorted(point.flags)) or "-",
            ]
        )
    valid_outcomes = sorted((o for o in scenario_outcomes if not o.reason), key=lambda o: o.totals.bench_s)
    flags = frozenset().union(*(o.flags for o in valid_outcomes))
    results.add("bench", [o.totals.bench_s for o in valid_outcomes], {}, flags)
    if points:
        alone_s = {p.label: statistics.median(p.alone_s) for p in points}
        shares = [
            [alone_s[u.program] / u.time_s(options.clock) for u in o.uses if u.program in alone_s]
            for o in valid_outcomes
        ]
        results.add("fairness", [jain(s) for s in shares], {"of": "speeds"}, flags)
    head = (
        ["program", "alone s", "together s", "slowdown", "95 %", "waited", "flags"]
        if alone
        else ["program", "median s", "95 %", "waited", "flags"]
    )
    return CoRun(
        points=tuple(points),
        run=out / "runs" / valid_outcomes[len(valid_outcomes) // 2].run if valid_outcomes else None,
        **bench.end(results, table(head, rows)),
    )


def _with_files(scenario: Scenario, files: Mapping[str, Path]) -> tuple[Scenario, dict[str, int]]:
    """Replace each target profile by the file of its program.

    Returns:
        The scenario, and the memory of a copy of each synthetic program, B.
    """
    members, memory = [], {}
    for p in scenario.programs:
        if not p.synthesised:
            members.append(p)
            continue
        file = p.file or files.get(p.name)
        if file is None:
            raise UsageError(f"program {p.name}: no program was synthesised", "create it with meshmark load make")
        threads, memory[p.name] = threads_of(file)
        members.append(dataclasses.replace(p, file=file.resolve(), profile=None, threads=threads))
    return dataclasses.replace(scenario, programs=tuple(members)), memory


def _cell_of(program: str) -> str:
    return f"{program} alone"


def _alone(scenario: Scenario, here: Here) -> list[Cell]:
    """Return one cell per program, which runs its copies in turn, each on its CPUs in the scenario."""
    cpus_by_copy = place_copies(scenario, here)
    cells = []
    for p in scenario.programs:
        scenarios = []
        for copy in range(p.copies):
            copy_alone = scenario.alone(p.name, copy)
            program = dataclasses.replace(copy_alone.programs[0], cpus=(cpus_by_copy[p.name, copy],), policy="")
            scenarios.append(dataclasses.replace(copy_alone, programs=(program,), policy=""))
        cells.append(Cell(name=_cell_of(p.name), scenarios=tuple(scenarios)))
    return cells


def _waited(outcomes: Sequence[Outcome]) -> str:
    """Return the median over the runs of the share of the time that a thread waited for a CPU, as text."""
    shares = [
        statistics.fmean(u.waiting_s / (u.threads * u.wall_s) for u in o.of() if u.wall_s > 0)
        for o in outcomes
        if not o.reason and any(u.wall_s > 0 for u in o.of())
    ]
    return f"{100 * statistics.median(shares):.0f} %" if shares else "-"


def _repeated(
    results: Results, name: str, outcomes: Sequence[Outcome], options: StudyOptions, about: Mapping[str, Scalar]
) -> list[list[str]]:
    """Record a program that ran in the scenario only, and return its table row."""
    valid_outcomes = [o for o in outcomes if not o.reason]
    if not valid_outcomes:
        results.absent("elapsed", next((o.reason for o in outcomes), "not run"), about)
        return []
    times = [o.time_s(options.clock) for o in valid_outcomes]
    flags = frozenset().union(*(o.flags for o in valid_outcomes))
    results.add("elapsed", times, {**about, "company": TOGETHER}, flags)
    interval = median_interval(times)
    return [
        [
            name,
            f"{statistics.median(times):.4g}",
            f"{interval[0]:.4g} – {interval[1]:.4g}" if interval else "none below 6 runs",
            _waited(valid_outcomes),
            " ".join(sorted(flags)) or "-",
        ]
    ]
