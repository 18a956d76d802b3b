"""Runs equal programs alone and together, for the studies of a shared bus and of mixes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from meshmark.errors import UsageError
from meshmark.load.studies.bench import Bench, one_cpu_each
from meshmark.load.studies.cells import Work, member, scenario
from meshmark.load.studies.outcome import Cell, Clock, Outcome
from meshmark.values.inputs import found


def alone_and_together(bench: Bench, key: str, work: Work, copies: int) -> tuple[Cell, Cell]:
    """Return the cells of a program alone on each CPU in turn, and of copies on all CPUs."""
    cpus = bench.cpus[:copies]
    return (
        Cell(
            name=f"{key} alone",
            scenarios=tuple(scenario(f"{bench.name}: {key} alone", member("program", work, [(c,)])) for c in cpus),
        ),
        Cell(
            name=f"{key} together",
            scenarios=(scenario(f"{bench.name}: {key}, {copies} copies", member("program", work, one_cpu_each(cpus))),),
        ),
    )


def checked_copies(bench: Bench, copies: int) -> int:
    count = copies or len(bench.cpus)
    if not 2 <= count <= len(bench.cpus):
        raise UsageError(f"copies: found {count}; allowed: 2 to {len(bench.cpus)}, one per CPU")
    return count


def rate_alone(outcomes: Sequence[Outcome], clock: Clock) -> float:
    """Return the memory bandwidth of one copy alone by its counts in B/s; median over the repetitions."""
    return statistics.median(u.memory_rate(clock) for o in outcomes for u in o.of()) if outcomes else 0.0


def checked_fraction(value: float) -> float:
    if not (isinstance(value, int | float) and 0 <= value <= 1):
        raise UsageError(f"write_fraction: found {found(value)}; allowed: 0 to 1")
    return float(value)
