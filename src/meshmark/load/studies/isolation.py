"""Study: tests whether memory domains are independent of each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from meshmark.errors import AbsentError, UsageError
from meshmark.load.calibration.effects import Equivalence, equivalence
from meshmark.load.calibration.variants import Variant
from meshmark.load.scenario.placing import Here
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, one_cpu_each
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, member, scenario
from meshmark.load.studies.outcome import Cell
from meshmark.load.studies.results import Point, format_slowdown, table
from meshmark.machine.sources import from_sysfs
from meshmark.machine.tree import format_list
from meshmark.statistics.verdicts import spoken
from meshmark.store.record import Scalar


@dataclass(frozen=True, kw_only=True)
class Isolation(StudyResult):
    points: tuple[Point, ...]  # x: number of loaded domains, from 2
    tests: tuple[Equivalence, ...]  # one per point


def memory_domains(cpus: Sequence[int] = ()) -> list[tuple[int, ...]]:
    """Return the available CPUs of each memory domain of this machine."""
    allowed_cpus = set(cpus or Here.now().cpus)
    cpu_sets = (tuple(c for c in n.near_cpus or n.cpus if c in allowed_cpus) for n in from_sysfs().nodes if n.cpus)
    return [s for s in cpu_sets if s]


def isolation(
    variants: Sequence[Variant],
    out: Path,
    *,
    domains: Sequence[Sequence[int]] = (),
    rate_gb_per_s: float = 0.0,
    run_time_s: float = 5.0,
    margin: float = 0.05,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Isolation:
    """Measure the slowdown of programs in one memory domain by the number of loaded domains.

    The first domain runs one program per CPU, in local memory. The other domains follow, one by one, in the same way.

    Args:
        domains: CPUs of each domain; empty: the domains of this machine.
        rate_gb_per_s: Rate of one program; 0: 0.7 of the feasible range.
        margin: A slowdown from 1 / (1 + margin) to 1 + margin counts as equal (`effects.equivalence`).

    Raises:
        AbsentError: There is only one domain.
        UsageError: An argument is invalid; the message names it.
    """
    parts = [tuple(d) for d in domains] or memory_domains()
    if len(parts) < 2:
        cpus_found = f": CPUs {format_list(parts[0])}" if parts else ""
        raise AbsentError(
            f"isolation: found one memory domain{cpus_found}; at least two are needed",
            "a machine with more than one NUMA node",
        )
    if any(not d for d in parts) or len({c for d in parts for c in d}) != sum(map(len, parts)):
        raise UsageError("domains: found an empty domain or a CPU in two domains; domains must not overlap")
    if options.repetitions < 2:
        raise UsageError(f"repetitions: found {options.repetitions}; an equivalence test needs at least 2")
    bench = Bench(
        "isolation",
        out,
        options,
        [c for d in parts for c in d],
        {
            "domains": [format_list(d) for d in parts],
            "rate_gb_per_s": rate_gb_per_s,
            "run_time_s": run_time_s,
            "margin": margin,
        },
        variants,
    )
    rates = bench.rates((rate_gb_per_s,) if rate_gb_per_s else (), bench.target(run_time_s))
    rate = rates[0] if rate_gb_per_s else rates[-2]
    equivalence((1.0, 1.0), margin)  # reject an invalid margin before anything runs
    bench.begin()
    file = bench.maker.file(f"{rate:g}", bench.target(run_time_s, {"memory_gb_per_s": rate}, name=f"{rate:g} GB per s"))
    long_file = bench.maker.longer(file, OUTLASTS)
    cells = []
    for count in range(1, len(parts) + 1):
        local_program = member("here", file, one_cpu_each(parts[0]), start_s=LEAD_S if count > 1 else 0.0)
        other_cpus = [c for d in parts[1:count] for c in d]
        other_programs = (member("there", long_file, one_cpu_each(other_cpus)),) if other_cpus else ()
        programs = [dataclasses.replace(m, memory="local") for m in (local_program, *other_programs)]
        cells.append(
            Cell(
                name=f"{count} domains",
                measured=("here",),
                scenarios=(scenario(f"isolation: {count} domains", *programs),),
            )
        )
    outcomes, results = bench.run([cells])
    points, tests, rows = [], [], []
    for count, cell in enumerate(cells[1:], 2):
        conditions: dict[str, Scalar] = {
            "domains": count,
            "memory_rate_asked": rate * 1e9,
            "margin": margin,
            "copies": len(parts[0]),
        }
        p = bench.point(results, count, f"{count}", outcomes[cells[0].name], outcomes[cell.name], conditions)
        if p is None or len(p.pairs) < 2:
            continue
        result = equivalence(p.pairs, margin)
        verdict = result.word if not p.flags else "inconclusive"
        results.add(
            "equivalence_p",
            [result.p],
            {
                **conditions,
                "ratio": result.ratio,
                "ratio_low": result.interval[0],
                "ratio_high": result.interval[1],
                "verdict": verdict,
            },
            p.flags,
        )
        points.append(p)
        tests.append(result)
        rows.append([p.label, *format_slowdown(p.slowdown), f"{result.p:.3g}", spoken(verdict, "lower", "s")])
    text = table(
        ["domains", "slowdown", "95 %", "p", f"verdict (±{100 * margin:g} %)"], rows, [p.flags for p in points]
    )
    return Isolation(points=tuple(points), tests=tuple(tests), **bench.end(results, text))
