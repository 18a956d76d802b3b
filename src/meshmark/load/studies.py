"""Studies of equal programs: on one bus, over the mix of reads and writes, over memory domains, over copies.

Studies of more programs than CPUs are in `overload.py`, of unequal neighbours in `interference.py`. Each function plans
scenarios, runs them in turn and repeatedly (`study.py`: seeded order, every run kept, resumed where it stopped), and
returns a result with its records, which `report/studies.py` draws, and a table of text. On a busy machine the clock
`dedicated` leaves out what a program waited for a CPU.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import AbsentError, UsageError
from meshmark.load.effects import Crossing, Equivalence, crossing, equivalence
from meshmark.load.scenario import Here
from meshmark.load.study import (
    LEAD_S,
    OUTLASTS,
    USUAL,
    Bench,
    Cell,
    Clock,
    How,
    Outcome,
    Point,
    StudyResult,
    Work,
    member,
    said,
    said_work,
    scenario,
    sets,
    table,
    two,
)
from meshmark.load.synthesis import explain
from meshmark.load.variants import Variant, found
from meshmark.machine.topology import from_sysfs
from meshmark.machine.tree import format_list
from meshmark.store.record import Scalar

FRACTIONS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, kw_only=True)
class SharedBus(StudyResult):
    points: tuple[Point, ...]  # x: GB/s of one program, as it ran alone
    crossing: Crossing  # in the same GB/s
    level: float


@dataclass(frozen=True, kw_only=True)
class Mix(StudyResult):
    points: tuple[Point, ...]  # x: write fraction
    rate_gb_per_s: float


@dataclass(frozen=True, kw_only=True)
class Isolation(StudyResult):
    points: tuple[Point, ...]  # x: domains loaded, from 2 on
    tests: tuple[Equivalence, ...]  # one a point


@dataclass(frozen=True, kw_only=True)
class Copies(StudyResult):
    counts: tuple[int, ...]
    times_s: tuple[tuple[float, ...], ...]  # of each count: mean over the copies of each repetition
    throughput: tuple[float, ...]  # copies a second, medians: all began at once, the last one's end counts
    points: tuple[Point, ...]  # x: copies, from the second count on


def _pair(bench: Bench, key: str, work: Work, copies: int) -> tuple[Cell, Cell]:
    """A program alone, on each of the CPUs in turn, and with copies of it on all of them."""
    cpus = bench.cpus[:copies]
    return (
        Cell(
            name=f"{key} alone",
            scenarios=tuple(scenario(f"{bench.name}: {key} alone", member("program", work, [(c,)])) for c in cpus),
        ),
        Cell(
            name=f"{key} together",
            scenarios=(scenario(f"{bench.name}: {key}, {copies} copies", member("program", work, sets(cpus))),),
        ),
    )


def _number_of_copies(bench: Bench, copies: int) -> int:
    many = copies or len(bench.cpus)
    if not 2 <= many <= len(bench.cpus):
        raise UsageError(f"copies: found {many}; allowed are 2 to {len(bench.cpus)}, one a CPU")
    return many


def _rate(outcomes: Sequence[Outcome], clock: Clock) -> float:
    """B/s of one measured copy alone, as its own counts say; the median of the repetitions."""
    return statistics.median(u.memory_rate(clock) for o in outcomes for u in o.of()) if outcomes else 0.0


# ---------------------------------------------------------------- one bus


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
    how: How = USUAL,
) -> SharedBus:
    """How much longer programs of r GB/s each take when a copy runs on every CPU, over r.

    Args:
        cpus: of one memory domain; empty: all that may be used.
        copies: that run together, one a CPU; 0: all.
        rates_gb_per_s: of one program; empty: shares of what base data allow.
        threshold: a slowdown of 1 + threshold is looked for.

    Raises:
        UsageError: by the argument; AbsentError: there is one CPU only.
    """
    bench = Bench(
        "shared_bus",
        out,
        how,
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
    two(bench)
    many = _number_of_copies(bench, copies)
    if not 0 < threshold < 100:
        raise UsageError(f"threshold: found {threshold:g}; allowed is a share above 0, such as 0.1")
    fraction = {} if write_fraction is None else {"write_fraction": _fraction(write_fraction)}
    rates = bench.rates(rates_gb_per_s, bench.wish(run_time_s, fraction))
    bench.begin()
    pairs: dict[float, tuple[Cell, Cell]] = {}
    for rate in rates:
        wish = bench.wish(run_time_s, {"memory_gb_per_s": rate, **fraction}, name=f"{rate:g} GB per s")
        file = bench.made(f"{rate:g}", wish, {"memory_rate_asked": rate * 1e9})
        if file is not None:
            pairs[rate] = _pair(bench, f"{rate:g} GB/s", file, many)
    outcomes, results = bench.run(list(pairs.values()))
    points = []
    for rate, (alone, together) in pairs.items():
        ran = _rate(outcomes[alone.name], how.clock)
        p = bench.point(
            results,
            ran / 1e9,
            f"{rate:g} GB/s",
            outcomes[alone.name],
            outcomes[together.name],
            {
                "memory_rate_asked": rate * 1e9,
                "memory_rate": ran,
                "copies": many,
                "write_fraction": write_fraction,
            },
        )
        if p is not None:
            points.append(p)
    points.sort(key=lambda p: p.x)
    about: dict[str, Scalar] = {"copies": many, "threshold": threshold, "write_fraction": write_fraction}
    if len(points) >= 2 and all(b.x > a.x for a, b in itertools.pairwise(points)):
        crossed = crossing(
            [p.x for p in points], [p.pairs or (p.slowdown.ratio,) for p in points], 1 + threshold, seed=how.seed
        )
    else:
        crossed = Crossing(None, reason="fewer than 2 rates were measured")
    if crossed.value is None:
        results.absent("crossing_rate", crossed.reason, about, "absent")
    else:
        results.add(
            "crossing_rate",
            [crossed.value * 1e9],
            {
                **about,
                "crossing_low": None if crossed.low is None else crossed.low * 1e9,
                "crossing_high": None if crossed.high is None else crossed.high * 1e9,
            },
        )
    rows = [[p.label, f"{p.x:.3f}", f"{p.x * many:.3f}", *said(p.slowdown)] for p in points]
    what = f"passes {100 * threshold:g} % at {_between(crossed)}" if crossed.value is not None else crossed.reason
    text = table(["asked", "alone GB/s", f"{many} copies GB/s", "slowdown", "95 %"], rows) + f"\nslowdown: {what}"
    return SharedBus(points=tuple(points), crossing=crossed, level=1 + threshold, **bench.end(results, text))


def _between(c: Crossing) -> str:
    low = "below what was measured" if c.low is None else f"{c.low:.3g}"
    high = "beyond what was measured" if c.high is None else f"{c.high:.3g}"
    return f"{c.value:.3g} GB/s ({low} – {high})" if c.low is not None or c.high is not None else f"{c.value:.3g} GB/s"


def _fraction(value: float) -> float:
    if not (isinstance(value, int | float) and 0 <= value <= 1):
        raise UsageError(f"write_fraction: found {found(value)}; allowed is a number from 0 to 1")
    return float(value)


def mix(
    variants: Sequence[Variant],
    out: Path,
    *,
    cpus: Sequence[int] = (),
    copies: int = 0,
    rate_gb_per_s: float = 0.0,
    write_fractions: Sequence[float] = FRACTIONS,
    run_time_s: float = 5.0,
    how: How = USUAL,
) -> Mix:
    """How much longer programs take with a copy on every CPU, at one rate, over the part of the traffic that writes.

    Args:
        rate_gb_per_s: of one program; 0: half of what base data allow with every one of the fractions.

    Raises:
        UsageError: by the argument; AbsentError: there is one CPU only.
    """
    bench = Bench(
        "mix",
        out,
        how,
        cpus,
        {
            "copies": copies,
            "rate_gb_per_s": rate_gb_per_s,
            "write_fractions": list(write_fractions),
            "run_time_s": run_time_s,
        },
        variants,
    )
    two(bench)
    many = _number_of_copies(bench, copies)
    fractions = sorted({_fraction(f) for f in write_fractions})
    if not fractions:
        raise UsageError("write_fractions: found none; allowed is at least one number from 0 to 1")
    rate = rate_gb_per_s
    if rate == 0:
        tops = []
        for f in fractions:
            wish = bench.wish(run_time_s, {"write_fraction": f, "memory_gb_per_s": 1.0})
            top = explain(variants, wish)["memory_gb_per_s"]
            tops += [top[1]] if top is not None else []
        rate = float(f"{0.5 * min(tops, default=0.0):.3g}")
    rate = bench.rates((rate,), bench.wish(run_time_s))[0]
    bench.begin()
    pairs: dict[float, tuple[Cell, Cell]] = {}
    for f in fractions:
        wish = bench.wish(run_time_s, {"memory_gb_per_s": rate, "write_fraction": f}, name=f"{f:g} writes")
        file = bench.made(f"{f:g}", wish, {"write_fraction": f, "memory_rate_asked": rate * 1e9})
        if file is not None:
            pairs[f] = _pair(bench, f"{f:g} writes", file, many)
    outcomes, results = bench.run(list(pairs.values()))
    points = []
    for f, (alone, together) in pairs.items():
        ran = _rate(outcomes[alone.name], how.clock)
        p = bench.point(
            results,
            f,
            f"{f:g}",
            outcomes[alone.name],
            outcomes[together.name],
            {
                "write_fraction": f,
                "memory_rate_asked": rate * 1e9,
                "memory_rate": ran,
                "copies": many,
            },
        )
        if p is not None:
            points.append(p)
    rows = [[p.label, f"{_rate(outcomes[pairs[p.x][0].name], how.clock) / 1e9:.3f}", *said(p.slowdown)] for p in points]
    text = table(["write fraction", "alone GB/s", "slowdown", "95 %"], rows)
    return Mix(points=tuple(points), rate_gb_per_s=rate, **bench.end(results, text))


# ---------------------------------------------------------------- domains


def memory_domains(cpus: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """CPUs of each memory domain of this machine that may be used."""
    may = set(cpus or Here.now().cpus)
    sets = (tuple(c for c in n.near_cpus or n.cpus if c in may) for n in from_sysfs().nodes if n.cpus)
    return [s for s in sets if s]


def isolation(
    variants: Sequence[Variant],
    out: Path,
    *,
    domains: Sequence[Sequence[int]] = (),
    rate_gb_per_s: float = 0.0,
    run_time_s: float = 5.0,
    margin: float = 0.05,
    how: How = USUAL,
) -> Isolation:
    """Whether a loaded memory domain is left alone by loads of the others: slowdown over the number of domains loaded.

    The first domain has a program on each of its CPUs, with memory of its own; so have the others, one after the other.

    Args:
        domains: CPUs of each; empty: this machine's.
        rate_gb_per_s: of one program; 0: 0.7 of what base data allow.
        margin: a slowdown within 1 / (1 + margin) … 1 + margin counts as none (`effects.equivalence`).

    Raises:
        AbsentError: there is one domain only. UsageError: by the argument.
    """
    parts = [tuple(d) for d in domains] or memory_domains()
    if len(parts) < 2:
        where = f": CPUs {format_list(parts[0])}" if parts else ""
        raise AbsentError(
            f"isolation: one memory domain is here{where}; at least two are compared",
            "a machine with more than one NUMA node",
        )
    if any(not d for d in parts) or len({c for d in parts for c in d}) != sum(map(len, parts)):
        raise UsageError("domains: found empty ones, or a CPU in two; allowed are parts of CPUs without overlap")
    if how.repetitions < 2:
        raise UsageError(f"repetitions: found {how.repetitions}; a test of equivalence needs at least 2")
    bench = Bench(
        "isolation",
        out,
        how,
        [c for d in parts for c in d],
        {
            "domains": [format_list(d) for d in parts],
            "rate_gb_per_s": rate_gb_per_s,
            "run_time_s": run_time_s,
            "margin": margin,
        },
        variants,
    )
    rates = bench.rates((rate_gb_per_s,) if rate_gb_per_s else (), bench.wish(run_time_s))
    rate = rates[0] if rate_gb_per_s else rates[-2]
    equivalence((1.0, 1.0), margin)  # refuses a wrong margin before anything runs
    bench.begin()
    file = bench.maker.file(f"{rate:g}", bench.wish(run_time_s, {"memory_gb_per_s": rate}, name=f"{rate:g} GB per s"))
    long = bench.maker.longer(file, OUTLASTS)
    cells = []
    for many in range(1, len(parts) + 1):
        here = member("here", file, sets(parts[0]), start_s=LEAD_S if many > 1 else 0.0)
        there = [c for d in parts[1:many] for c in d]
        others = (member("there", long, sets(there)),) if there else ()
        local = [dataclasses.replace(m, memory="local") for m in (here, *others)]
        cells.append(
            Cell(
                name=f"{many} domains", measured=("here",), scenarios=(scenario(f"isolation: {many} domains", *local),)
            )
        )
    outcomes, results = bench.run([cells])
    points, tests, rows = [], [], []
    for many, cell in enumerate(cells[1:], 2):
        about: dict[str, Scalar] = {
            "domains": many,
            "memory_rate_asked": rate * 1e9,
            "margin": margin,
            "copies": len(parts[0]),
        }
        p = bench.point(results, many, f"{many}", outcomes[cells[0].name], outcomes[cell.name], about)
        if p is None or len(p.pairs) < 2:
            continue
        test = equivalence(p.pairs, margin)
        results.add(
            "equivalence_p",
            [test.p],
            {
                **about,
                "ratio": test.ratio,
                "ratio_low": test.interval[0],
                "ratio_high": test.interval[1],
                "equivalent": test.equivalent,
            },
            p.flags,
        )
        points.append(p)
        tests.append(test)
        rows.append([p.label, *said(p.slowdown), f"{test.p:.3g}", "alike" if test.equivalent else "not shown"])
    text = table(["domains", "slowdown", "95 %", "p", f"within {100 * margin:g} %"], rows)
    return Isolation(points=tuple(points), tests=tuple(tests), **bench.end(results, text))


# ---------------------------------------------------------------- copies


def copies(
    work: Work,
    out: Path,
    *,
    cpus: Sequence[int] = (),
    counts: Sequence[int] = (),
    bind: bool = True,
    how: How = USUAL,
) -> Copies:
    """Run times, throughput and slowdown of 1 … all copies of a command.

    Args:
        counts: of copies; empty: 1 … all CPUs, by powers of two beyond 8. 1 is always among them.
        bind: a copy on each CPU (round again where there are more); else all share the CPUs.

    Raises:
        UsageError: by the argument.
    """
    bench = Bench("copies", out, how, cpus, {"work": said_work(work), "counts": list(counts), "bind": bind})
    work = bench.work(work)
    n = len(bench.cpus)
    if any(not (isinstance(c, int) and 1 <= c <= 4096) for c in counts):
        raise UsageError(f"counts: found {found(list(counts))}; allowed are numbers of copies from 1 to 4096")
    usual = range(1, n + 1) if n <= 8 else [*range(1, 9), *(c for k in range(4, 13) if (c := 1 << k) < n), n]
    many = sorted({1, *(counts or usual)})
    bench.begin()
    cells: dict[int, Cell] = {}
    for c in many:
        sets = [(bench.cpus[i % n],) if bind else bench.cpus for i in range(c)]
        turns = [[(cpu,)] for cpu in bench.cpus] if c == 1 and bind else [sets]
        cells[c] = Cell(
            name=f"{c} copies", scenarios=tuple(scenario(f"copies: {c}", member("program", work, t)) for t in turns)
        )
    outcomes, results = bench.run([list(cells.values())])
    alone = outcomes[cells[1].name]
    points, kept, times, rates = [], [], [], []
    for c, cell in cells.items():
        runs = [o for o in outcomes[cell.name] if not o.reason]
        about: dict[str, Scalar] = {"copies": c, "binding": "soft" if bind else "none"}
        p = bench.point(results, c, f"{c}", alone, outcomes[cell.name], about) if c > 1 else None
        if not runs:
            if c == 1:
                results.absent("elapsed", next((o.reason for o in outcomes[cell.name]), "it was not run"), about)
            continue
        flags = frozenset().union(*(o.flags for o in runs))
        if c == 1:
            results.add("elapsed", [o.time_s(how.clock) for o in runs], {**about, "company": "alone"}, flags)
        rate = [c / max(u.time_s(how.clock) for u in o.of()) for o in runs]
        results.add("throughput", rate, about, flags)
        points += [p] if p is not None else []
        kept.append(c)
        times.append(tuple(o.time_s(how.clock) for o in runs))
        rates.append(statistics.median(rate))
    by_count = {int(p.x): p for p in points}
    rows = [
        [
            f"{c}",
            f"{statistics.median(t):.3f}",
            f"{r:.3f}",
            f"{100 * r / (c * rates[0]):.1f} %",
            *(said(by_count[c].slowdown) if c in by_count else ("1", "")),
        ]
        for c, t, r in zip(kept, times, rates, strict=True)
    ]
    text = table(["copies", "run time s", "copies/s", "efficiency", "slowdown", "95 %"], rows)
    return Copies(
        counts=tuple(kept),
        times_s=tuple(times),
        throughput=tuple(rates),
        points=tuple(points),
        **bench.end(results, text),
    )
