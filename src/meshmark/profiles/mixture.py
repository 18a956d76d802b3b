"""Describes a program by the mixture of pressures that affects neighbours as the program does, and predicts with it.

A probe beside a program has, on average, the speed that it has beside each pressure of a mixture, weighted with the
shares of the mixture: a program that streams from memory half of the time and computes in registers otherwise affects
its neighbours as these pressures do in turn. So the shares follow from the speeds of several probes, by least squares
with shares of at least 0 that add up to 1; the rest of the time, neighbours run as if they were alone. The same shares
predict the speed of another program from its speeds beside the pressures.

Speeds are relative to the speed alone: 0.5 is half as fast. The functions are pure.

Sources: a pressure that replaces the neighbour in the prediction: Mars, Tang, Hundt, Skadron, Soffa: Bubble-Up, MICRO
2011; a program as a mixture of load kernels: PARbench (Nagel, Linn, 1991); non-negative least squares: Lawson, Hanson,
Solving Least Squares Problems (1974), chapter 23.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_SUM_WEIGHT: Final = 1e3  # weight of the condition that the shares add up to 1
QUIET: Final = ""  # share of the time in which neighbours run as if they were alone


def shares_of(
    probes: Mapping[str, float], responses: Mapping[str, Mapping[str, float]], pressures: Sequence[str]
) -> dict[str, float]:
    """Return the share of each pressure, and of `QUIET`, in the mixture that affects the probes like a program.

    Args:
        probes: Speed of each probe beside the program.
        responses: Speed of each probe beside each pressure.
        pressures: Names of the pressures that the mixture may contain.
    """
    names = [*pressures, QUIET]
    rows = [[*(responses[probe][pressure] for pressure in pressures), 1.0] for probe in probes]
    shares = fitted_shares(np.array(rows).reshape(-1, len(names)), np.array(list(probes.values())))
    return {name: float(share) for name, share in zip(names, shares, strict=True)}


def fitted_shares(parts: Vector, whole: Vector) -> Vector:
    """Return the shares of parts that explain a whole best, at least 0 and with a sum of 1.

    Args:
        parts: What is observed of each part alone, shape (observations, parts).
        whole: What is observed of the whole, shape (observations,).
    """
    from scipy.optimize import nnls

    shares, _ = nnls(np.vstack([parts, np.full(parts.shape[1], _SUM_WEIGHT)]), np.append(whole, _SUM_WEIGHT))
    return np.asarray(shares / shares.sum())


def speed(shares: Mapping[str, float], speeds: Mapping[str, float]) -> float:
    """Return the speed of a program beside a mixture.

    Args:
        shares: Shares of the mixture.
        speeds: Speed of the program beside each pressure.
    """
    return sum(share * speeds.get(name, 1.0) if name != QUIET else share for name, share in shares.items())


def misfit(
    probes: Mapping[str, float], responses: Mapping[str, Mapping[str, float]], shares: Mapping[str, float]
) -> float:
    """Return the root mean square error of the speeds of the probes that a mixture explains."""
    errors = [speed(shares, responses[probe]) - probes[probe] for probe in probes]
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else 0.0
