"""Study: finds the bandwidth from which equal programs on one memory bus slow each other down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshmark.errors import UsageError
from meshmark.load.calibration.effects import Crossing, crossing
from meshmark.load.calibration.variants import Variant
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, require_two_cpus
from meshmark.load.studies.outcome import Cell
from meshmark.load.studies.pairs import alone_and_together, checked_copies, checked_fraction, rate_alone
from meshmark.load.studies.results import Point, format_slowdown, table
from meshmark.store.record import Scalar


@dataclass(frozen=True, kw_only=True)
class SharedBus(StudyResult):
    points: tuple[Point, ...]  # x: measured GB/s of one program alone
    crossing: Crossing  # GB/s of one program alone
    level: float


def shared_bus(
    variants: Sequence[Variant],
    out: Path,
    *,
    cpus: Sequence[int] = (),
    copies: int = 0,
    rates_gb_per_s: Sequence[float] = (),
    write_fraction: float | None = None,
    run_time_s: float = 5.0,
    threshold: float = 0.1,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> SharedBus:
    """Measure the slowdown with one copy per CPU, by the bandwidth of one program.

    Args:
        cpus: CPUs of one memory domain; empty: all available CPUs.
        copies: Number of copies that run together, one per CPU; 0: one copy for each CPU.
        rates_gb_per_s: Bandwidths of one program; empty: shares of the feasible range.
        threshold: Report the bandwidth at which the slowdown crosses 1 + threshold.

    Raises:
        UsageError: An argument is invalid; the message names it.
        AbsentError: Only one CPU is available.
    """
    bench = Bench(
        "shared_bus",
        out,
        options,
        cpus,
        {
            "copies": copies,
            "rates_gb_per_s": list(rates_gb_per_s),
            "write_fraction": write_fraction,
            "run_time_s": run_time_s,
            "threshold": threshold,
        },
        variants,
    )
    require_two_cpus(bench)
    count = checked_copies(bench, copies)
    if not 0 < threshold < 100:
        raise UsageError(f"threshold: found {threshold:g}; allowed: a share above 0, such as 0.1")
    fraction = {} if write_fraction is None else {"write_fraction": checked_fraction(write_fraction)}
    rates = bench.rates(rates_gb_per_s, bench.target(run_time_s, fraction))
    bench.begin()
    pairs: dict[float, tuple[Cell, Cell]] = {}
    for rate in rates:
        target = bench.target(run_time_s, {"memory_gb_per_s": rate, **fraction}, name=f"{rate:g} GB per s")
        file = bench.make_program(f"{rate:g}", target, {"memory_rate_asked": rate * 1e9})
        if file is not None:
            pairs[rate] = alone_and_together(bench, f"{rate:g} GB/s", file, count)
    outcomes, results = bench.run(list(pairs.values()))
    points = []
    for rate, (cell_alone, cell_together) in pairs.items():
        measured_rate = rate_alone(outcomes[cell_alone.name], options.clock)
        p = bench.point(
            results,
            measured_rate / 1e9,
            f"{rate:g} GB/s",
            outcomes[cell_alone.name],
            outcomes[cell_together.name],
            {
                "memory_rate_asked": rate * 1e9,
                "memory_rate": measured_rate,
                "copies": count,
                "write_fraction": write_fraction,
            },
        )
        if p is not None:
            points.append(p)
    points.sort(key=lambda p: p.x)
    flags = frozenset[str]().union(*(p.flags for p in points))
    conditions: dict[str, Scalar] = {"copies": count, "threshold": threshold, "write_fraction": write_fraction}
    if len(points) >= 2 and all(b.x > a.x for a, b in itertools.pairwise(points)):
        edge = crossing(
            [p.x for p in points], [p.pairs or (p.slowdown.ratio,) for p in points], 1 + threshold, seed=options.seed
        )
    else:
        edge = Crossing(None, reason="fewer than 2 rates were measured")
    if edge.value is None:
        results.absent("crossing_rate", edge.reason, conditions, "absent")
    else:
        results.add(
            "crossing_rate",
            [edge.value * 1e9],
            {
                **conditions,
                "crossing_low": None if edge.low is None else edge.low * 1e9,
                "crossing_high": None if edge.high is None else edge.high * 1e9,
            },
            flags,
        )
    rows = [[p.label, f"{p.x:.3f}", f"{p.x * count:.3f}", *format_slowdown(p.slowdown)] for p in points]
    result = f"exceeds {100 * threshold:g} % at {_between(edge)}" if edge.value is not None else edge.reason
    caveat = f" (from runs with flags: {', '.join(sorted(flags))})" if flags else ""
    head = ["requested", "alone GB/s", f"{count} copies GB/s", "slowdown", "95 %"]
    text = table(head, rows, [p.flags for p in points]) + f"\nslowdown: {result}{caveat}"
    return SharedBus(points=tuple(points), crossing=edge, level=1 + threshold, **bench.end(results, text))


def _between(c: Crossing) -> str:
    low = "below the measured range" if c.low is None else f"{c.low:.3g}"
    high = "beyond the measured range" if c.high is None else f"{c.high:.3g}"
    return f"{c.value:.3g} GB/s ({low} – {high})" if c.low is not None or c.high is not None else f"{c.value:.3g} GB/s"
