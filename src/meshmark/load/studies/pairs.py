"""Equal programs, alone and together: what the studies of a bus, of mixes and of copies share."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from meshmark.errors import UsageError
from meshmark.load.studies.bench import Bench, one_cpu_each
from meshmark.load.studies.cells import Work, member, scenario
from meshmark.load.studies.outcome import Cell, Clock, Outcome
from meshmark.values.inputs import found


def alone_and_together(bench: Bench, key: str, work: Work, copies: int) -> tuple[Cell, Cell]:
    """A program alone, on each of the CPUs in turn, and with copies of it on all of them."""
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
        raise UsageError(f"copies: found {count}; allowed are 2 to {len(bench.cpus)}, one a CPU")
    return count


def rate_alone(outcomes: Sequence[Outcome], clock: Clock) -> float:
    """B/s of one measured copy alone, as its own counts say; the median of the repetitions."""
    return statistics.median(u.memory_rate(clock) for o in outcomes for u in o.of()) if outcomes else 0.0


def checked_fraction(value: float) -> float:
    if not (isinstance(value, int | float) and 0 <= value <= 1):
        raise UsageError(f"write_fraction: found {found(value)}; allowed is a number from 0 to 1")
    return float(value)
