"""Says what limits a program, and what it takes from its neighbours, from its profile.

The time beside a pressure is compared with the time beside the next weaker kind of pressure, so that the effect of the
clock is not counted as one of a cache, and the effect of a filled cache not as one of memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from meshmark.profiles.mixture import QUIET, misfit, shares_of
from meshmark.profiles.profile import PressureEffect, ProgramProfile
from meshmark.statistics.geometric import MIN_RUNS, GeometricMean, mean_of, over

MARGIN: Final = 0.05  # smallest increase of the time that matters
COMPONENTS: Final = {
    "memory": "memory bandwidth",
    "cache": "the shared cache",
    "compute": "the core and its clock",
}
NOTHING: Final = "nothing that it shares with neighbours"
UNKNOWN: Final = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much longer a program takes because of one kind of pressure.

    Attributes:
        kind: `memory`, `cache` or `compute`.
        effect: The strongest pressure of this kind.
        factor: Time beside it, divided by the time beside the strongest pressure of the next weaker kind, or by the
            time alone.
        matters: `yes` if the factor is surely above 1.05, `no` if it is surely not, otherwise `unknown`.
    """

    kind: str
    effect: PressureEffect
    factor: GeometricMean
    matters: Literal["yes", "no", "unknown"]


def limits(profile: ProgramProfile) -> list[Limit]:
    """Return the limits of a program, the greatest first."""
    each_limit = []
    weaker: GeometricMean | None = None
    for kind in ("compute", "cache", "memory"):
        effects = [effect for effect in profile.effects if effect.kind == kind]
        if not effects:
            continue
        strongest = max(effects, key=lambda effect: effect.slowdown) if kind == "cache" else effects[-1]
        mean = mean_of({strongest.name: strongest.slowdowns})
        factor = mean if weaker is None else over(mean, weaker)
        if len(strongest.slowdowns) < MIN_RUNS:
            factor = GeometricMean(factor.value, None)  # an interval of two runs would be misread
        each_limit.append(Limit(kind, strongest, factor, _matters(factor)))
        if weaker is None or mean.value > weaker.value:
            weaker = mean
    return sorted(each_limit, key=lambda limit: (limit.matters != "yes", -limit.factor.value))


def _matters(factor: GeometricMean) -> Literal["yes", "no", "unknown"]:
    interval = factor.interval
    if interval is None or interval[0] <= 1 + MARGIN < interval[1]:
        return "unknown"
    return "yes" if interval[0] > 1 + MARGIN else "no"


def limiting(profile: ProgramProfile) -> str:
    """Return the component that limits a program most; `UNKNOWN` if the runs vary too much or are too few."""
    all_limits = limits(profile)
    if all_limits[0].matters == "yes":
        return COMPONENTS[all_limits[0].kind]
    return NOTHING if all(limit.matters == "no" for limit in all_limits) else UNKNOWN


@dataclass(frozen=True, slots=True)
class Demand:
    """The mixture of pressures that affects neighbours as a program does, and the resources that it takes from them.

    Attributes:
        shares: Share of each pressure. `QUIET` is the share of the time in which neighbours run as if they were alone.
        bytes_per_s: Bytes that this mixture transfers to and from memory per s.
        cache_bytes: Part of the shared cache that it fills, on average.
        misfit: Root mean square error of the explained speeds of the probes.
    """

    shares: Mapping[str, float]
    bytes_per_s: float
    cache_bytes: float
    misfit: float


def demand(profile: ProgramProfile) -> Demand | None:
    """Return the demand of a program; None if no probe was measured."""
    probes = profile.probes
    if not probes:
        return None
    names = [effect.name for effect in profile.effects]
    shares = shares_of(probes, profile.responses, names)
    by_name = {effect.name: effect for effect in profile.effects}
    parts = [(share, by_name[name]) for name, share in shares.items() if name != QUIET]
    limit = profile.shared_bytes
    return Demand(
        {name: share for name, share in shares.items() if share > 0},
        sum(share * effect.bytes_per_s for share, effect in parts if effect.kind == "memory"),
        sum(share * min(effect.footprint_bytes, limit) for share, effect in parts if effect.kind != "compute"),
        misfit(probes, profile.responses, shares),
    )


def to_json(profile: ProgramProfile) -> dict[str, Any]:
    """Return the object that `--json` prints: the profile, its limits and its demand."""
    taken = demand(profile)
    return {
        **profile.to_json(),
        "limited_by": limiting(profile),
        "limits": [
            {
                "kind": limit.kind,
                "component": COMPONENTS[limit.kind],
                "pressure": limit.effect.name,
                "factor": limit.factor.value,
                "low": limit.factor.interval[0] if limit.factor.interval else None,
                "high": limit.factor.interval[1] if limit.factor.interval else None,
                "matters": limit.matters,
            }
            for limit in limits(profile)
        ],
        "demand": None
        if taken is None
        else {
            "shares": {name or "none": share for name, share in taken.shares.items()},
            "bytes_per_s": taken.bytes_per_s,
            "cache_bytes": taken.cache_bytes,
            "misfit": taken.misfit,
        },
    }
