"""Study: slowdown by the bandwidth of the neighbour, and how well the curve predicts held-out programs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.effects import Curve
from meshmark.load.calibration.variants import Variant
from meshmark.load.studies.bench import (
    DEFAULT_OPTIONS,
    Bench,
    StudyOptions,
    StudyResult,
    one_cpu_each,
    require_two_cpus,
    work_identity,
)
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, Work, member, scenario
from meshmark.load.studies.interference import other_mix
from meshmark.load.studies.outcome import Cell, Outcome
from meshmark.load.studies.results import Point, Results, format_slowdown, table
from meshmark.load.synthesis.program import read_program


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    neighbour: str
    rate_gb_per_s: float
    predicted: float  # slowdown
    measured: Point
    error_points: float  # absolute error, percentage points


@dataclass(frozen=True, kw_only=True)
class InterferenceCurve(StudyResult):
    points: tuple[Point, ...]  # x: GB/s of all neighbours
    held_out: tuple[HeldOut, ...]
    curve: Curve

    def predict(self, neighbour_gb_per_s: float) -> float:
        """Predict the slowdown next to a neighbour with that bandwidth.

        Raises:
            UsageError: The bandwidth is outside the measured range.
        """
        return self.curve(neighbour_gb_per_s)


def _cells(bench: Bench, work: Work, files: Mapping[str, Path], neighbours: int) -> tuple[Cell, dict[str, Cell]]:
    """Return the cell of the measured program alone, and one cell per neighbour."""
    measured_cpus, neighbour_cpus = bench.cpus[:1], bench.cpus[1 : neighbours + 1]
    cell_alone = Cell(
        name="alone",
        measured=("measured",),
        scenarios=(scenario("curve: alone", member("measured", work, [measured_cpus])),),
    )
    cells = {
        key: Cell(
            name=f"beside {key}",
            measured=("measured",),
            scenarios=(
                scenario(
                    f"curve: beside {key}",
                    member("measured", work, [measured_cpus], start_s=LEAD_S),
                    member("neighbour", file, one_cpu_each(neighbour_cpus)),
                ),
            ),
        )
        for key, file in files.items()
    }
    return cell_alone, cells


def _points(
    bench: Bench,
    results: Results,
    outcomes: Mapping[str, Sequence[Outcome]],
    alone: Cell,
    cells: Mapping[str, Cell],
    rates: Mapping[str, float],
    held_out: Mapping[str, Path] | None,
) -> tuple[list[Point], list[tuple[str, Point]]]:
    """Return the points of the curve, and the held-out points with their neighbour."""
    points: list[Point] = []
    checks: list[tuple[str, Point]] = []
    for key, cell in cells.items():
        rate = rates[key]
        is_held_out = key in (held_out or {}) or key.endswith(" held out")
        p = bench.point(
            results,
            rate,
            key,
            outcomes[alone.name],
            outcomes[cell.name],
            {
                "neighbour_rate": rate * 1e9,
                "neighbours": int(bench.parameters["neighbours"]),
                "held_out": is_held_out,
                "neighbour": key,
            },
        )
        if p is not None and is_held_out:
            checks.append((key, p))
        elif p is not None:
            points.append(p)
    return points, checks


def _held_out(results: Results, curve: Curve, checks: Sequence[tuple[str, Point]]) -> list[HeldOut]:
    """Predict and record each held-out neighbour; a neighbour outside the range of the curve is absent."""
    predictions: list[HeldOut] = []
    for key, p in checks:
        if not curve.low <= p.x <= curve.high:
            results.absent(
                "prediction_gap",
                f"{key}: {p.x:.3g} GB/s is outside the range of the curve",
                {"neighbour": key},
                "absent",
            )
            continue
        prediction = curve(p.x)
        predictions.append(
            HeldOut(
                neighbour=key,
                rate_gb_per_s=p.x,
                predicted=prediction,
                measured=p,
                error_points=100 * abs(prediction - p.slowdown.ratio),
            )
        )
        results.add(
            "prediction_gap",
            [abs(prediction - p.slowdown.ratio)],
            {
                "neighbour": key,
                "neighbour_rate": p.x * 1e9,
                "predicted": prediction,
                "measured": p.slowdown.ratio,
            },
            p.flags,
        )
    return predictions


def _table(points: Sequence[Point], held: Sequence[HeldOut]) -> str:
    rows = [[p.label, *format_slowdown(p.slowdown), "", ""] for p in points]
    rows += [
        [h.neighbour, *format_slowdown(h.measured.slowdown), f"{h.predicted:.3f}", f"{h.error_points:.1f}"]
        for h in held
    ]
    flags = [*(p.flags for p in points), *(h.measured.flags for h in held)]
    return table(["beside", "slowdown", "95 %", "predicted", "off by points"], rows, flags)


def interference_curve(
    work: Work,
    variants: Sequence[Variant],
    out: Path,
    *,
    cpus: Sequence[int] = (),
    neighbours: int = 1,
    rates_gb_per_s: Sequence[float] = (),
    held_out_gb_per_s: Sequence[float] | None = None,
    held_out: Mapping[str, Path] | None = None,
    neighbour_run_time_s: float = 5.0,
    outlasts: float = OUTLASTS,
    options: StudyOptions = DEFAULT_OPTIONS,
) -> InterferenceCurve:
    """Measure the slowdown of a command by the bandwidth of synthetic neighbours, and predict held-out neighbours.

    Args:
        work: The measured program, on the first CPU.
        neighbours: Number of neighbours, one on each of the next CPUs. Rates are totals over all neighbours.
        held_out_gb_per_s: Rates of neighbours with other kernels, measured only to check the prediction; None: two
            rates between the rates of the curve.
        held_out: Files of more held-out neighbours, by name, at their planned rates.
        neighbour_run_time_s: Target run time of a neighbour, which is then extended `outlasts` times. The neighbour
            must outlast the measured program, with which it is stopped.

    Raises:
        UsageError: An argument is invalid; the message names it.
        AbsentError: Only one CPU is available.
    """
    bench = Bench(
        "interference_curve",
        out,
        options,
        cpus,
        {
            "work": work_identity(work),
            "neighbours": neighbours,
            "rates_gb_per_s": list(rates_gb_per_s),
            "held_out_gb_per_s": None if held_out_gb_per_s is None else list(held_out_gb_per_s),
            "held_out": {k: work_identity(v) for k, v in (held_out or {}).items()},
            "neighbour_run_time_s": neighbour_run_time_s,
            "outlasts": outlasts,
        },
        variants,
    )
    require_two_cpus(bench)
    work = bench.work(work)
    if not 1 <= neighbours < len(bench.cpus):
        raise UsageError(f"neighbours: found {neighbours}; allowed: 1 to {len(bench.cpus) - 1}, one per CPU")
    if not outlasts >= 1:
        raise UsageError(f"outlasts: found {outlasts:g}; allowed: 1 or more")
    target = bench.target(neighbour_run_time_s)
    rates_each = tuple(r / neighbours for r in rates_gb_per_s)
    rates = [r * neighbours for r in bench.rates(rates_each, target)]
    if len(rates) < 2:
        raise UsageError(f"rates: found {len(rates)}; a curve needs at least 2")
    for r in held_out_gb_per_s or ():
        if not 0 < r <= max(rates):
            raise UsageError(f"held_out_gb_per_s: found {r:g}; allowed: above 0, at most {max(rates):g}")
    for k, file in (held_out or {}).items():
        bench.work(file, f"held_out: {k}")
    bench.begin()
    neighbour_programs: dict[str, tuple[float, Path]] = {}

    def make(rate: float, held: bool) -> None:
        key = f"{rate:g} GB/s" + (" held out" if held else "")
        target = bench.target(
            neighbour_run_time_s, {"memory_gb_per_s": rate / neighbours}, name=key.replace("/", " per ")
        )
        program = other_mix(bench, key, target) if held else None
        program = program or bench.make_program(key, target, {"neighbour_rate": rate * 1e9, "held_out": held})
        if program is not None:
            neighbour_programs[key] = rate, bench.maker.longer(program, outlasts)

    for rate in rates:
        make(rate, held=False)
    if held_out_gb_per_s is None:
        feasible = [rate for rate, _ in neighbour_programs.values()]
        midpoints = [float(f"{0.5 * (a + b):.4g}") for a, b in itertools.pairwise(feasible)]
        held_out_gb_per_s = [midpoints[len(midpoints) // 3], midpoints[-1]] if midpoints else []
    for rate in sorted(set(held_out_gb_per_s)):
        make(rate, held=True)
    for key, file in (held_out or {}).items():
        rate = neighbours * read_program(file).planned()["memory_gb_per_s"]
        neighbour_programs[key] = rate, file.resolve()
    cell_alone, cells = _cells(bench, work, {key: file for key, (_, file) in neighbour_programs.items()}, neighbours)
    outcomes, results = bench.run([[cell_alone, *cells.values()]])
    points, checks = _points(
        bench, results, outcomes, cell_alone, cells, {k: rate for k, (rate, _) in neighbour_programs.items()}, held_out
    )
    if not points:
        bench.end(results, "")
        raise MeshmarkError(
            "interference_curve: no run next to a neighbour is valid", f"the runs and their output are in {out}"
        )
    points.sort(key=lambda p: p.x)
    curve = Curve([p.x for p in points], [p.slowdown.ratio for p in points])
    predictions = _held_out(results, curve, checks)
    text = _table(points, predictions)
    return InterferenceCurve(points=tuple(points), held_out=tuple(predictions), curve=curve, **bench.end(results, text))
