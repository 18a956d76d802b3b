"""Fits a power law y = a x^e to points, with the 95 % interval of its exponent.

The line through the logarithms is fitted by least squares (SciPy's `linregress`). The interval follows from Student's t
with n - 2 degrees of freedom for the slope. It includes both the scatter of the points and how far they are from a
power law, so with three points it is wide unless they are nearly on a line.

Source: Draper, Smith, Applied Regression Analysis (1998), 1.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.statistics.verdicts import Interval

MIN_POINTS: Final = 3  # a line has two parameters


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """A fitted power law.

    Attributes:
        factor: y at x = 1, in the unit of y.
        interval: 95 % interval of the exponent.
    """

    factor: float
    exponent: float
    interval: Interval

    def at(self, x: float) -> float:
        """Return the fitted value, in the unit of y."""
        return float(self.factor * x**self.exponent)


def power_law(points: Mapping[float, float]) -> PowerLaw | None:
    """Fit values above 0, by x above 0; return None if there are fewer than 3 points."""
    if len(points) < MIN_POINTS:
        return None
    from scipy.special import stdtrit
    from scipy.stats import linregress

    fit = linregress([math.log(x) for x in points], [math.log(y) for y in points.values()])
    error = 0.0 if math.isnan(fit.stderr) else float(fit.stderr)  # equal values have no correlation coefficient
    reach = float(stdtrit(len(points) - 2, 0.975)) * error
    exponent = float(fit.slope)
    return PowerLaw(math.exp(float(fit.intercept)), exponent, (exponent - reach, exponent + reach))
