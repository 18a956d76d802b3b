"""Study: throughput by the number of copies of one program."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshmark.errors import UsageError
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, work_identity
from meshmark.load.studies.cells import Work, member, scenario
from meshmark.load.studies.outcome import Cell
from meshmark.load.studies.results import Point, format_slowdown, table
from meshmark.store.record import Scalar
from meshmark.values.inputs import found


@dataclass(frozen=True, kw_only=True)
class Copies(StudyResult):
    counts: tuple[int, ...]
    times_s: tuple[tuple[float, ...], ...]  # by count: mean over the copies of each repetition
    throughput: tuple[float, ...]  # copies per second, median; from the common start to the end of the last copy
    points: tuple[Point, ...]  # x: number of copies; without the first count


def copies(
    work: Work,
    out: Path,
    *,
    cpus: Sequence[int] = (),
    counts: Sequence[int] = (),
    bind: bool = True,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Copies:
    """Measure run time, throughput and slowdown by the number of copies of a command.

    Args:
        counts: Numbers of copies; empty: 1 to the number of CPUs, by powers of two beyond 8. 1 is always included.
        bind: Bind copies to CPUs round-robin; otherwise, all copies share the CPUs.

    Raises:
        UsageError: An argument is invalid; the message names it.
    """
    bench = Bench("copies", out, options, cpus, {"work": work_identity(work), "counts": list(counts), "bind": bind})
    work = bench.work(work)
    n = len(bench.cpus)
    if any(not (isinstance(c, int) and 1 <= c <= 4096) for c in counts):
        raise UsageError(f"counts: found {found(list(counts))}; allowed: 1 to 4096 copies")
    default_counts = range(1, n + 1) if n <= 8 else [*range(1, 9), *(c for k in range(4, 13) if (c := 1 << k) < n), n]
    all_counts = sorted({1, *(counts or default_counts)})
    bench.begin()
    cells: dict[int, Cell] = {}
    for c in all_counts:
        cpu_sets = [(bench.cpus[i % n],) if bind else bench.cpus for i in range(c)]
        placements = [[(cpu,)] for cpu in bench.cpus] if c == 1 and bind else [cpu_sets]
        cells[c] = Cell(
            name=f"{c} copies",
            scenarios=tuple(scenario(f"copies: {c}", member("program", work, t)) for t in placements),
        )
    outcomes, results = bench.run([list(cells.values())])
    outcomes_alone = outcomes[cells[1].name]
    points, measured_counts, times, rates = [], [], [], []
    flags_of_rows: list[frozenset[str]] = []
    for c, cell in cells.items():
        runs = [o for o in outcomes[cell.name] if not o.reason]
        conditions: dict[str, Scalar] = {"copies": c, "binding": "soft" if bind else "none"}
        point = bench.point(results, c, f"{c}", outcomes_alone, outcomes[cell.name], conditions) if c > 1 else None
        if not runs:
            if c == 1:
                results.absent("elapsed", next((o.reason for o in outcomes[cell.name]), "not run"), conditions)
            continue
        flags = frozenset().union(*(o.flags for o in runs))
        if c == 1:
            results.add("elapsed", [o.time_s(options.clock) for o in runs], {**conditions, "company": "alone"}, flags)
        rate = [c / max(u.time_s(options.clock) for u in o.of()) for o in runs]
        results.add("throughput", rate, conditions, flags)
        points += [point] if point is not None else []
        measured_counts.append(c)
        flags_of_rows.append(flags | (point.flags if point is not None else frozenset()))
        times.append(tuple(o.time_s(options.clock) for o in runs))
        rates.append(statistics.median(rate))
    by_count = {int(point.x): point for point in points}
    rows = [
        [
            f"{c}",
            f"{statistics.median(t):.3f}",
            f"{r:.3f}",
            f"{100 * r / (c * rates[0]):.1f} %",
            *(format_slowdown(by_count[c].slowdown) if c in by_count else ("1", "")),
        ]
        for c, t, r in zip(measured_counts, times, rates, strict=True)
    ]
    text = table(["copies", "run time s", "copies/s", "efficiency", "slowdown", "95 %"], rows, flags_of_rows)
    return Copies(
        counts=tuple(measured_counts),
        times_s=tuple(times),
        throughput=tuple(rates),
        points=tuple(points),
        **bench.end(results, text),
    )
