"""Predicts how long a program takes on another machine, from its profile and the rates of load kernels on both.

The time of a program alone is divided among kernels: a program that spends its time like a mixture of kernels is slowed
by each pressure as the mixture is. On the other machine, the time of each share changes by the ratio of the rates of
its kernel. Several divisions may explain the slowdowns equally well. The prediction is therefore an interval: the
shortest and the longest time among all divisions that explain every slowdown within its error (a linear program). Its
value is the time of the division that explains them best.

Sources: programs as mixtures of kernels: PARbench (Nagel, Linn, 1991); the time of a program as a sum over components
with the rates of each machine: Snavely, Carrington, Wolter, Labarta, Badia, Purkayastha: A Framework for Performance
Modeling and Prediction, SC 2002.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field

from meshmark.errors import UsageError
from meshmark.profiles.mixture import Vector, fitted_shares
from meshmark.profiles.profile import KernelRate, ProgramProfile
from meshmark.statistics.verdicts import Interval
from meshmark.values.inputs import LIST, Excerpt, Label

VERSION: Final = 1
_ERROR: Final = 0.015  # error of the slowdowns of kernels, which are measured for a few tenths of a second
_KINDS: Final = {"compute": "compute", "integer": "integer", "cache": "triad", "memory": "triad", "latency": "chase"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRates(Excerpt):
    """Rates of load kernels on a machine.

    Attributes:
        machine: Its name.
        processor: Model of its processor; "" if unknown.
        processes: Number of processes that ran each kernel at the same time, on a CPU each.
        kernels: The rates. `cache`, `memory` and `latency` have several footprints.
    """

    type: Literal["kernel rates"] = "kernel rates"
    schema: Literal[1] = VERSION
    machine: Label
    processor: str = ""
    processes: Annotated[int, Field(ge=1, le=1 << 20)]
    kernels: Annotated[tuple[KernelRate, ...], LIST, Field(min_length=1)]

    def rate(self, kernel: KernelRate) -> float:
        """Return the rate of a kernel with the footprint of another machine's, interpolated between footprints.

        Raises:
            UsageError: There is no such kernel, or the footprint is outside the measured range.
        """
        kind = _KINDS[kernel.kind]
        points = sorted((k.footprint_bytes, k.units_per_s) for k in self.kernels if _KINDS[k.kind] == kind)
        if not points:
            raise UsageError(f"{self.machine}: kernels: found no {kernel.kind}; required by the profile")
        footprints, rates = zip(*points, strict=True)
        if len(points) == 1 or kernel.footprint_bytes == 0:
            return float(rates[0])
        if not footprints[0] <= kernel.footprint_bytes <= footprints[-1]:
            raise UsageError(
                f"{self.machine}: kernels: found {kernel.kind} with {footprints[0]} to {footprints[-1]} B; required by "
                f"the profile: {kernel.footprint_bytes} B"
            )
        log = np.interp(math.log(kernel.footprint_bytes), np.log(footprints), np.log(rates))
        return float(np.exp(log))


@dataclass(frozen=True, slots=True)
class PredictedTime:
    """How long a program takes on another machine.

    Attributes:
        ratio: Time there divided by the time on the machine of the profile.
        interval: Shortest and longest ratio that the profile does not exclude.
        shares: Share of the time on the other machine that each kernel takes, by name.
        misfit: Root mean square error of the slowdowns that the division of the time explains.
    """

    ratio: float
    interval: Interval
    shares: Mapping[str, float]
    misfit: float


def predict_time(profile: ProgramProfile, there: MachineRates) -> PredictedTime:
    """Predict the time of a program on another machine, relative to its time on the machine of the profile.

    Raises:
        UsageError: The profile lacks kernels, or the rates do not cover them.
    """
    kernels = [kernel for kernel in profile.kernels if kernel.name in profile.responses]
    if len(kernels) < 2:
        raise UsageError(f"{profile.name}: kernels: found {len(kernels)}; allowed: at least 2")
    changes = np.array([kernel.units_per_s / there.rate(kernel) for kernel in kernels])
    slowed = np.array([[1 / profile.responses[k.name][e.name] for k in kernels] for e in profile.effects])
    measured = np.array([effect.slowdown for effect in profile.effects])
    shares = fitted_shares(slowed, measured)
    errors = slowed @ shares - measured
    low, high = _range(slowed, measured, _errors(profile), changes)
    spent = shares * changes
    ratio = float(spent.sum())
    return PredictedTime(
        ratio,
        (min(low, ratio), max(high, ratio)),
        {kernel.name: float(time / ratio) for kernel, time in zip(kernels, spent, strict=True) if time > 0},
        float(np.sqrt(np.mean(np.square(errors)))),
    )


def _errors(profile: ProgramProfile) -> Vector:
    """Return the error of each slowdown: half of its interval, and the error of the slowdowns of kernels."""
    halves = []
    for effect in profile.effects:
        bounds = effect.interval or (min(effect.slowdowns), max(effect.slowdowns))
        halves.append(math.hypot((bounds[1] - bounds[0]) / 2, _ERROR * effect.slowdown))
    return np.array(halves)


def _range(
    slowed: Vector,
    measured: Vector,
    errors: Vector,
    changes: Vector,
) -> Interval:
    """Return the smallest and the largest change of the time among the shares that explain all slowdowns.

    If no shares explain all of them within their errors, the errors are enlarged by the smallest common factor that
    admits some.
    """
    from scipy.optimize import linprog

    count = slowed.shape[1]
    # Variables: the shares, and the factor by which the errors are enlarged.
    above = np.hstack([slowed, -errors[:, None]])
    below = np.hstack([-slowed, -errors[:, None]])
    sides = np.concatenate([measured, -measured])
    total = np.append(np.ones(count), 0.0)[None, :]
    a_ub, bounds = np.vstack([above, below]), [(0.0, 1.0)] * count

    def least(costs: Vector, factors: tuple[float, float | None]) -> float:
        solution = linprog(costs, a_ub, sides, total, [1.0], [*bounds, factors])
        assert solution.fun is not None, solution.message  # some factor always admits shares
        return float(solution.fun)

    factor = 1.001 * least(np.append(np.zeros(count), 1.0), (1.0, None))
    low, high = (sign * least(np.append(sign * changes, 0.0), (factor, factor)) for sign in (1, -1))
    return low, high


def to_json(profile: ProgramProfile, there: MachineRates) -> dict[str, Any]:
    """Return the object that `meshmark predict machine --json` prints."""
    predicted = predict_time(profile, there)
    alone = median(profile.alone)
    is_rate = profile.better == "higher"
    value, low, high = (alone / ratio if is_rate else alone * ratio for ratio in (predicted.ratio, *predicted.interval))
    limit = max(predicted.shares, key=lambda name: predicted.shares[name])
    return {
        "type": "predicted time",
        "schema": 1,
        "program": profile.name,
        "from_machine": profile.machine,
        "machine": there.machine,
        "processor": there.processor,
        "metric": profile.metric,
        "unit": profile.unit,
        "there": alone,
        "value": value,
        "low": min(low, high),
        "high": max(low, high),
        "ratio": predicted.ratio,
        "ratio_low": predicted.interval[0],
        "ratio_high": predicted.interval[1],
        "limited_by": limit,
        "shares": dict(predicted.shares),
        "misfit": predicted.misfit,
        "flags": list(profile.flags),
    }
