"""Study: slowdown of equal programs by the share of writes in their traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.calibration.variants import Variant
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, require_two_cpus
from meshmark.load.studies.outcome import Cell
from meshmark.load.studies.pairs import alone_and_together, checked_copies, checked_fraction, rate_alone
from meshmark.load.studies.results import Point, format_slowdown, table
from meshmark.load.synthesis import explain

FRACTIONS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, kw_only=True)
class Mix(StudyResult):
    points: tuple[Point, ...]  # x: write fraction
    rate_gb_per_s: float


def mix(
    variants: Sequence[Variant],
    out: Path,
    *,
    cpus: Sequence[int] = (),
    copies: int = 0,
    rate_gb_per_s: float = 0.0,
    write_fractions: Sequence[float] = FRACTIONS,
    run_time_s: float = 5.0,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Mix:
    """Measure the slowdown with one copy per CPU at one rate, by the share of writes.

    Args:
        rate_gb_per_s: Rate of one program; 0: half of the maximum that is feasible at every write fraction.

    Raises:
        UsageError: An argument is invalid; the message names it.
        AbsentError: Only one CPU is available.
    """
    bench = Bench(
        "mix",
        out,
        options,
        cpus,
        {
            "copies": copies,
            "rate_gb_per_s": rate_gb_per_s,
            "write_fractions": list(write_fractions),
            "run_time_s": run_time_s,
        },
        variants,
    )
    require_two_cpus(bench)
    count = checked_copies(bench, copies)
    fractions = sorted({checked_fraction(f) for f in write_fractions})
    if not fractions:
        raise UsageError("write_fractions: found none; give at least one number from 0 to 1")
    rate = rate_gb_per_s
    if rate == 0:
        max_rates = []
        for f in fractions:
            target = bench.target(run_time_s, {"write_fraction": f, "memory_gb_per_s": 1.0})
            feasible = explain(variants, target)["memory_gb_per_s"]
            max_rates += [feasible[1]] if feasible is not None else []
        rate = float(f"{0.5 * min(max_rates, default=0.0):.3g}")
    rate = bench.rates((rate,), bench.target(run_time_s))[0]
    bench.begin()
    pairs: dict[float, tuple[Cell, Cell]] = {}
    for f in fractions:
        target = bench.target(run_time_s, {"memory_gb_per_s": rate, "write_fraction": f}, name=f"{f:g} writes")
        file = bench.make_program(f"{f:g}", target, {"write_fraction": f, "memory_rate_asked": rate * 1e9})
        if file is not None:
            pairs[f] = alone_and_together(bench, f"{f:g} writes", file, count)
    outcomes, results = bench.run(list(pairs.values()))
    points = []
    for f, (cell_alone, cell_together) in pairs.items():
        measured_rate = rate_alone(outcomes[cell_alone.name], options.clock)
        p = bench.point(
            results,
            f,
            f"{f:g}",
            outcomes[cell_alone.name],
            outcomes[cell_together.name],
            {
                "write_fraction": f,
                "memory_rate_asked": rate * 1e9,
                "memory_rate": measured_rate,
                "copies": count,
            },
        )
        if p is not None:
            points.append(p)
    rows = [
        [
            p.label,
            f"{rate_alone(outcomes[pairs[p.x][0].name], options.clock) / 1e9:.3f}",
            *format_slowdown(p.slowdown),
        ]
        for p in points
    ]
    text = table(["write fraction", "alone GB/s", "slowdown", "95 %"], rows, [p.flags for p in points])
    return Mix(points=tuple(points), rate_gb_per_s=rate, **bench.end(results, text))
