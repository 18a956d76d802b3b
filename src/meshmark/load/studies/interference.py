"""Study: pairwise slowdown of classes of programs."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import LEVELS, Variant
from meshmark.load.studies.bench import DEFAULT_OPTIONS, Bench, StudyOptions, StudyResult, require_two_cpus
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, member, scenario
from meshmark.load.studies.outcome import Cell
from meshmark.load.studies.results import Point, table
from meshmark.values.inputs import found

MEMORY_BOUND: Final = ("stream", "irregular", "stencil", "solver", "dense", "compute", "integer", "spectral")


@dataclass(frozen=True, kw_only=True)
class Matrix(StudyResult):
    classes: tuple[str, ...]
    cells: Mapping[tuple[str, str], Point]  # (measured, neighbour)


def kernel_class(name: str) -> Callable[[Variant], bool]:
    """Return the filter of a class: a kind (`stream`), a kernel (`triad`), or either at a level (`stream@memory`).

    Raises:
        UsageError: The level is unknown.
    """
    kind, separator, level = name.partition("@")
    if separator and level not in LEVELS:
        raise UsageError(f"classes: found {found(name)}; allowed levels: {', '.join(LEVELS)}")
    return lambda v: kind in (v.kind, v.kernel) and (not separator or v.served_by == level)


def interference_matrix(
    variants: Sequence[Variant],
    out: Path,
    *,
    classes: Sequence[str] = (),
    cpus: Sequence[int] = (),
    run_time_s: float = 5.0,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> Matrix:
    """Measure the slowdown of fixed work of each class next to a program of each class.

    The two programs swap CPUs with each repetition, so that differences between the CPUs cancel out.

    Args:
        classes: See `kernel_class`; empty: for each kind, the sequential variants served by memory, if there are any.
        cpus: The first two are used; empty: all available CPUs.

    Raises:
        UsageError: An argument is invalid; the message names it.
        AbsentError: Only one CPU is available.
    """
    bench = Bench(
        "interference_matrix", out, options, cpus, {"classes": list(classes), "run_time_s": run_time_s}, variants
    )
    require_two_cpus(bench)
    kinds_available = {v.kind for v in variants if v.threads == 1 and v.served_by == "memory"}
    names = list(dict.fromkeys(classes)) or [f"{k}@memory" for k in MEMORY_BOUND if k in kinds_available]
    if not names:
        raise UsageError("classes: the calibration data have no sequential variant served by memory; name classes")
    for name in names:
        if not any(map(kernel_class(name), (v for v in variants if v.threads == 1))):
            kinds = ", ".join(sorted({v.kind for v in variants if v.threads == 1}))
            raise UsageError(f"classes: found {found(name)}; allowed: kernels and kinds ({kinds}), also with @LEVEL")
    bench.begin()
    files: dict[str, Path] = {}
    for name in names:
        # Idle and system kernels are used only if `kernels` names them.
        kernels = [v.kernel for v in variants if v.threads == 1 and kernel_class(name)(v)]
        target = bench.target(
            run_time_s, kernels=tuple(sorted(set(kernels))), least_kernels=1, most_share=1.0, name=name[:60]
        )
        files[name] = bench.maker.file(name, target, only=kernel_class(name), rounds=0)
    first_cpu, second_cpu = bench.cpus[:2]
    groups = []
    for a in names:
        group = [
            Cell(
                name=f"{a} alone",
                measured=("measured",),
                scenarios=tuple(
                    scenario(f"matrix: {a} alone", member("measured", files[a], [(c,)]))
                    for c in (first_cpu, second_cpu)
                ),
            )
        ]
        group += [
            Cell(
                name=f"{a} beside {b}",
                measured=("measured",),
                scenarios=tuple(
                    scenario(
                        f"matrix: {a} beside {b}",
                        member("measured", files[a], [(x,)], start_s=LEAD_S),
                        member("neighbour", bench.maker.longer(files[b], OUTLASTS), [(y,)]),
                    )
                    for x, y in ((first_cpu, second_cpu), (second_cpu, first_cpu))
                ),
            )
            for b in names
        ]
        groups.append(group)
    outcomes, results = bench.run(groups)
    cells: dict[tuple[str, str], Point] = {}
    for a in names:
        for i, b in enumerate(names):
            p = bench.point(
                results, i, b, outcomes[f"{a} alone"], outcomes[f"{a} beside {b}"], {"class": a, "neighbour": b}
            )
            if p is not None:
                cells[a, b] = p
    rows = [[a, *(f"{cells[a, b].slowdown.ratio:.3f}" if (a, b) in cells else "absent" for b in names)] for a in names]
    flags = [frozenset[str]().union(*(cells[a, b].flags for b in names if (a, b) in cells)) for a in names]
    text = table(["measured \\ beside", *names], rows, flags)
    return Matrix(classes=tuple(names), cells=cells, **bench.end(results, text))


def other_mix(bench: Bench, key: str, target: TargetProfile) -> Path | None:
    """Synthesise a program with the same rate from a random half of the kernels; None if that is impossible."""
    kernels = sorted({v.kernel for v in bench.variants if v.threads == 1})
    random.Random(f"{bench.options.seed}/{key}").shuffle(kernels)
    try:
        target = dataclasses.replace(target, without=tuple(sorted(kernels[: len(kernels) // 2])), seed=target.seed + 1)
        return bench.maker.file(key, target)
    except UsageError:
        return None
