"""Predicts how much two programs slow each other, from their profiles.

The second program is replaced by the mixture of pressures that affects probes as it does (see `mixture`); the slowdown
of the first program beside this mixture follows from its slowdowns beside the pressures. The interval contains the
scatter of the runs of both profiles, by resampling their rounds, and the error with which the mixture explains the
probes. It does not contain effects of neighbours that no pressure has.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from meshmark.errors import UsageError
from meshmark.machine.tree import format_list
from meshmark.profiles.mixture import misfit, shares_of, speed
from meshmark.profiles.profile import ProgramProfile
from meshmark.statistics.verdicts import Interval

_DRAWS: Final = 200
_NORMAL: Final = 1.96


@dataclass(frozen=True, slots=True)
class PredictedSlowdown:
    """How much longer a program takes beside another.

    Attributes:
        program, neighbour: Names of the programs.
        value: Predicted time beside the neighbour divided by the time alone.
        interval: 95 % interval.
        shares: The mixture that replaces the neighbour, see `mixture.shares_of`.
        misfit: Root mean square error of the speeds of probes beside the neighbour that the mixture explains.
    """

    program: str
    neighbour: str
    value: float
    interval: Interval
    shares: Mapping[str, float]
    misfit: float


def check_comparable(profiles: Sequence[ProgramProfile], names: Sequence[str]) -> None:
    """Check that profiles were made on the same machine with the same division of its CPUs.

    Raises:
        UsageError: They were not, or a program and its neighbours had different numbers of CPUs.
    """
    first = profiles[0]
    for profile, name in zip(profiles, names, strict=True):
        fields = (
            ("machine", profile.machine, first.machine),
            ("program_cpus", format_list(profile.program_cpus), format_list(first.program_cpus)),
            ("neighbour_cpus", format_list(profile.neighbour_cpus), format_list(first.neighbour_cpus)),
            ("effects", ", ".join(profile.speeds), ", ".join(first.speeds)),
        )
        for field, value, expected in fields:
            if value != expected:
                raise UsageError(
                    f"{name}: {field}: found {value}; allowed: {expected}, as in the profile of {names[0]}",
                    "make both profiles on one machine, with the same --cpus and --neighbours",
                )
        if len(profile.program_cpus) != len(profile.neighbour_cpus):
            raise UsageError(
                f"{name}: found {len(profile.program_cpus)} CPUs for the program and {len(profile.neighbour_cpus)} for "
                "neighbours; allowed: equal numbers, since a program takes the place of the neighbours"
            )
        if not profile.probes:
            raise UsageError(f"{name}: effects: found no slowdowns that the program causes; at least one is required")


@dataclass(frozen=True, slots=True)
class NeighbourMixture:
    """The mixture that replaces a neighbour, for any program beside it.

    Attributes:
        shares: See `mixture.shares_of`.
        misfit: Root mean square error of the speeds of probes that the mixture explains.
        draws: The shares from resampled rounds.
    """

    shares: Mapping[str, float]
    misfit: float
    draws: Sequence[Mapping[str, float]]


def mixture_of(neighbour: ProgramProfile, seed: int = 1) -> NeighbourMixture:
    """Return the mixture that replaces a program as a neighbour.

    Args:
        neighbour: Its profile.
        seed: Seed of the resampling.
    """
    pressures, probes, responses = list(neighbour.speeds), neighbour.probes, neighbour.responses
    shares = shares_of(probes, responses, pressures)
    caused = {effect.name: effect.caused for effect in neighbour.effects if effect.name in probes}
    rng = np.random.default_rng(seed)
    draws = []
    for _ in range(_DRAWS):
        drawn = {name: 1 / _resampled(factors, rng) for name, factors in caused.items()}
        draws.append(shares_of(drawn, responses, pressures))
    return NeighbourMixture(shares, misfit(probes, responses, shares), draws)


def predict(
    program: ProgramProfile, mixture: NeighbourMixture, names: tuple[str, str], seed: int = 2
) -> PredictedSlowdown:
    """Predict the slowdown of a program beside another.

    Args:
        program: Profile of the program.
        mixture: What replaces the other program, whose profile is comparable with the first.
        names: Their names.
        seed: Seed of the resampling, another one than that of the mixture.
    """
    shares, error = mixture.shares, mixture.misfit
    value = speed(shares, program.speeds)
    rng = np.random.default_rng(seed)
    draws = []
    for drawn in mixture.draws:
        speeds = {effect.name: 1 / _resampled(effect.slowdowns, rng) for effect in program.effects}
        draws.append(speed(drawn, speeds))
    scatter = float(np.std(draws))
    half = _NORMAL * float(np.hypot(scatter, error))
    low, high = max(value - half, 1e-3), value + half
    return PredictedSlowdown(*names, 1 / value, (1 / high, 1 / low), shares, error)


def _resampled(values: Sequence[float], rng: np.random.Generator) -> float:
    return float(median(values[i] for i in rng.integers(len(values), size=len(values)).tolist()))


def best_pairs(costs: Mapping[tuple[int, int], float], count: int) -> list[tuple[int, int]]:
    """Return the division of an even number of programs into pairs with the smallest sum of costs.

    Args:
        costs: Cost of each pair (i, j) with i < j.
        count: Number of programs.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    pairs = sorted(costs)
    incidence = np.array([[float(i in pair) for pair in pairs] for i in range(count)])
    solution = milp(
        np.array([costs[pair] for pair in pairs]),
        integrality=np.ones(len(pairs), np.int8),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(incidence, 1, 1),
    )
    assert solution.x is not None  # every even number of programs has such a division
    return [pair for pair, is_chosen in zip(pairs, solution.x, strict=True) if is_chosen > 0.5]


def predict_all(profiles: Sequence[ProgramProfile], names: Sequence[str]) -> dict[str, Any]:
    """Return the object that `meshmark predict neighbours --json` prints: all ordered pairs, and the best division.

    Args:
        profiles: Comparable profiles, at least two.
        names: Their names.
    """
    mixtures = [mixture_of(profile) for profile in profiles]
    by_index = {
        (i, j): predict(profiles[i], mixtures[j], (names[i], names[j]))
        for i, j in itertools.permutations(range(len(profiles)), 2)
    }
    answer: dict[str, Any] = {
        "type": "prediction",
        "schema": 1,
        "machine": profiles[0].machine,
        "program_cpus": list(profiles[0].program_cpus),
        "neighbour_cpus": list(profiles[0].neighbour_cpus),
        "predictions": [
            {
                "program": one.program,
                "neighbour": one.neighbour,
                "slowdown": one.value,
                "low": one.interval[0],
                "high": one.interval[1],
                "misfit": one.misfit,
                "shares": {name or "none": share for name, share in one.shares.items() if share > 0},
                "measured": None,
                "measured_low": None,
                "measured_high": None,
                "measured_flags": [],
                "reason": "",
            }
            for one in by_index.values()
        ],
        "pairs": [],
        "flags": sorted({flag for profile in profiles for flag in profile.flags}),
    }
    if len(profiles) > 2 and len(profiles) % 2 == 0:
        costs = {(i, j): by_index[i, j].value + by_index[j, i].value for i, j in by_index if i < j}
        answer["pairs"] = [
            {"programs": [names[i], names[j]], "slowdowns": [by_index[i, j].value, by_index[j, i].value]}
            for i, j in best_pairs(costs, len(profiles))
        ]
    return answer
