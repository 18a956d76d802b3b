"""Study: slowdown by the bandwidth of the neighbour, and how well the curve predicts held-out programs."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.effects import Curve
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.studies.cells import LEAD_S, OUTLASTS, Work, member
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint
from meshmark.load.studies.study import Study, checked_work, one_cpu_each
from meshmark.load.synthesis.program import read_program


@dataclass(frozen=True, kw_only=True)
class CurvePrediction:
    """A neighbour that the curve predicts."""

    predicted: float  # slowdown
    measured: StudyPoint

    @property
    def error_points(self) -> float:
        """Return the absolute error in percentage points."""
        return 100 * abs(self.predicted - self.measured.slowdown.ratio)


@dataclass(kw_only=True)
class CurveStudy(Study):
    """Slowdown of a program by the bandwidth of synthetic neighbours, GB/s of all of them (`x` of a point).

    The curve predicts the slowdown next to held-out neighbours, which are measured, too.

    Attributes:
        work: The measured program, on the first CPU.
        neighbours: Number of neighbours, one on each of the next CPUs. Rates are totals over all neighbours.
        rates_gb_per_s: Rates of the curve; empty: shares of the feasible range.
        held_out_gb_per_s: Rates of neighbours with other kernels, measured only to check the prediction; None: two
            rates between the rates of the curve.
        held_out: Files of more held-out neighbours, by name, at their planned rates.
        neighbour_run_time_s: Target run time of a neighbour, which is then extended `outlasts` times. The neighbour
            must outlast the measured program, with which it is stopped.
        predictions: Held-out neighbours in the range of the curve. They are not in `points`.
        predict: Predicts the slowdown by the neighbours' GB/s; raises UsageError outside the measured range.
    """

    study = "interference_curve"
    columns = ("beside", "slowdown", "95 %", "predicted", "off by points")
    measured = ("measured",)
    needs_two_cpus = True
    work: Work
    neighbours: int = 1
    rates_gb_per_s: Sequence[float] = ()
    held_out_gb_per_s: Sequence[float] | None = None
    held_out: Mapping[str, Path] = field(default_factory=dict)
    neighbour_run_time_s: float = 5.0
    outlasts: float = OUTLASTS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.work = checked_work(self.work)
        if not 1 <= self.neighbours < len(self.cpus):
            raise UsageError(f"neighbours: found {self.neighbours}; allowed: 1 to {len(self.cpus) - 1}, one per CPU")
        if not self.outlasts >= 1:
            raise UsageError(f"outlasts: found {self.outlasts:g}; allowed: 1 or more")
        rates_each = tuple(r / self.neighbours for r in self.rates_gb_per_s)
        target = self.target(self.neighbour_run_time_s)
        self.rates_gb_per_s = [r * self.neighbours for r in self.rates(rates_each, target)]
        if len(self.rates_gb_per_s) < 2:
            raise UsageError(f"rates: found {len(self.rates_gb_per_s)}; a curve needs at least 2")
        highest = max(self.rates_gb_per_s)
        for r in self.held_out_gb_per_s or ():
            if not 0 < r <= highest:
                raise UsageError(f"held_out_gb_per_s: found {r:g}; allowed: above 0, at most {highest:g}")
        for k, file in self.held_out.items():
            checked_work(file, f"held_out: {k}")

    def groups(self) -> list[list[StudyCell]]:
        """Return one group: the program alone, and beside each neighbour."""
        fitted = [self._neighbour(rate) for rate in self.rates_gb_per_s]
        feasible = [rate for _, rate, file in fitted if file is not None]
        held_out_rates = self.held_out_gb_per_s
        if held_out_rates is None:
            midpoints = [float(f"{0.5 * (a + b):.4g}") for a, b in itertools.pairwise(feasible)]
            held_out_rates = [midpoints[len(midpoints) // 3], midpoints[-1]] if midpoints else []
        checks = [self._neighbour(rate, held_out=True) for rate in sorted(set(held_out_rates))]
        for key, file in self.held_out.items():
            checks.append((key, self.neighbours * read_program(file).planned()["memory_gb_per_s"], file.resolve()))
        cpus, others = [self.cpus[:1]], one_cpu_each(self.cpus[1 : self.neighbours + 1])
        cells = [self.cell("alone", [member("measured", self.work, cpus)])]
        for is_held_out, neighbours in ((False, fitted), (True, checks)):
            for key, rate, neighbour in neighbours:
                if neighbour is None:
                    continue
                cells.append(
                    self.cell(
                        f"beside {key}",
                        [
                            member("measured", self.work, cpus, start_s=LEAD_S),
                            member("neighbour", neighbour, others),
                        ],
                        x=rate,
                        label=key,
                        conditions={
                            "neighbour_rate": rate * 1e9,
                            "neighbours": self.neighbours,
                            "held_out": is_held_out,
                            "neighbour": key,
                        },
                    )
                )
        return [cells]

    def _neighbour(self, rate: float, held_out: bool = False) -> tuple[str, float, Path | None]:
        """Return name, rate and file of a neighbour; no file if the neighbour is impossible."""
        key = f"{rate:g} GB/s" + (" held out" if held_out else "")
        metrics = {"memory_gb_per_s": rate / self.neighbours}
        target = self.target(self.neighbour_run_time_s, metrics, name=key.replace("/", " per "))
        program = self._other_mix(key, target) if held_out else None
        program = program or self.make_program(key, target, {"neighbour_rate": rate * 1e9, "held_out": held_out})
        return key, rate, program and self.maker.longer(program, self.outlasts)

    def _other_mix(self, key: str, target: TargetProfile) -> Path | None:
        """Synthesise a program with the same rate from a random half of the kernels; None if that is impossible."""
        kernels = sorted({v.kernel for v in self.variants if v.threads == 1})
        random.Random(f"{self.options.seed}/{key}").shuffle(kernels)
        without = tuple(sorted(kernels[: len(kernels) // 2]))
        try:
            return self.maker.file(key, dataclasses.replace(target, without=without, seed=target.seed + 1))
        except UsageError:
            return None

    def conclude(self) -> str:
        """Fit the curve, and predict and record each held-out neighbour in its range."""
        checks = [p for p in self.points if p.conditions["held_out"]]
        self.points = sorted((p for p in self.points if not p.conditions["held_out"]), key=lambda p: p.x)
        if not self.points:
            self.end("")
            raise MeshmarkError(f"{self.study}: no run next to a neighbour is valid", self.runs_hint)
        self.predict = Curve([p.x for p in self.points], [p.slowdown.ratio for p in self.points])
        self.predictions: list[CurvePrediction] = []
        for p in checks:
            if not self.predict.low <= p.x <= self.predict.high:
                reason = f"{p.label}: {p.x:.3g} GB/s is outside the range of the curve"
                self.results.absent("prediction_gap", reason, {"neighbour": p.label}, "absent")
                continue
            prediction = CurvePrediction(predicted=self.predict(p.x), measured=p)
            self.predictions.append(prediction)
            self.results.add(
                "prediction_gap",
                [abs(prediction.predicted - p.slowdown.ratio)],
                {
                    "neighbour": p.label,
                    "neighbour_rate": p.x * 1e9,
                    "predicted": prediction.predicted,
                    "measured": p.slowdown.ratio,
                },
                p.flags,
            )
        self.rows = [([*self.row(p), "", ""], p.flags) for p in self.points]
        for h in self.predictions:
            row = [*self.row(h.measured), f"{h.predicted:.3f}", f"{h.error_points:.1f}"]
            self.rows.append((row, h.measured.flags))
        return super().conclude()
