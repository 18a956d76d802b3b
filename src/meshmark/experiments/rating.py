"""Rates configurations by their runs: groups that behave alike, the spread of each, and where each start lies.

`statistics.grouping` makes the groups. A start is a run of a program. It lies at the level of a group, between
two levels, or beyond all of them, so that a configuration whose starts lie at several levels is recognised even if its
median is good.

The module is pure. Values are positive, in any unit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median
from typing import Any, Final

from meshmark.statistics.grouping import SIGNIFICANCE, Cut, Grouping, divide
from meshmark.statistics.pairs import MeritUnit, relative_deviation, spreads
from meshmark.statistics.verdicts import Interval
from meshmark.store.record import median_interval

MANY: Final = 26  # groups that have letters
_NORMAL: Final = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_NEAR: Final = 3.0  # standard deviations of a level within which a start belongs to it


@dataclass(frozen=True, slots=True)
class RatedRun:
    """A run of a configuration.

    Attributes:
        round: Round in which all configurations ran once, from 0; None if the run belongs to no round.
        place: Where its threads and pages were, see `start_placement`; "" if it was not observed.
    """

    value: float
    round: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class RatedConfiguration:
    """A configuration with the summary of its runs.

    Attributes:
        name: Its name.
        group: Letter of its group; A is the best.
        values: Values of its runs, in their order.
        interval: Interval of the median; None with too few runs.
        spread: Mean absolute deviation from the median, as a share of the median; None with fewer than 5 runs.
        spread_ratio: Its spread divided by the spread of the first configuration, and the interval; None if one of
            them has no spread.
        starts: Number of runs at each level and between them, such as `A` and `between A and B`.
        places: Of the runs at each of these, the number by where they were; empty if no run was observed.
    """

    name: str
    group: str
    values: tuple[float, ...]
    interval: Interval | None
    spread: float | None
    spread_ratio: tuple[float, Interval] | None
    starts: Mapping[str, int]
    places: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class _Level:
    name: str  # letters of its groups, such as "A" or "B/C"
    log: float  # logarithm of the median of its runs
    tolerance: float  # of logarithms


@dataclass
class Rating:
    """The result for several configurations.

    Args:
        runs: Runs of each configuration, at least one, in the order of the configurations.
        merit: Unit of the values, and which direction is better.
        margin: Relative difference of levels that does not matter.
        seed: Seed of the permutations.
    """

    runs: Mapping[str, Sequence[RatedRun]]
    merit: MeritUnit
    margin: float
    seed: int = 1

    @cached_property
    def grouping(self) -> Grouping:
        """Return the groups, in ascending order of values."""
        in_rounds = all(run.round is not None for runs in self.runs.values() for run in runs)
        rounds = {name: [run.round or 0 for run in runs] for name, runs in self.runs.items()} if in_rounds else None
        return divide(self.values, rounds, self.margin, self.seed)

    @cached_property
    def values(self) -> dict[str, list[float]]:
        """Return the values of each configuration."""
        return {name: [run.value for run in runs] for name, runs in self.runs.items()}

    @cached_property
    def groups(self) -> list[tuple[str, ...]]:
        """Return the configurations of each group, the best group first, and of one level the steadier group first."""
        indexed = zip(self.grouping.level_of, self.grouping.groups, strict=True)
        levels = [[group for _, group in groups] for _, groups in groupby(indexed, lambda pair: pair[0])]
        if self.merit.better == "higher":
            levels.reverse()
        return [group for level in levels for group in level]

    @cached_property
    def letters(self) -> dict[str, str]:
        """Return the letter of the group of each configuration; from the 27th group on, a number."""
        letters = [chr(ord("A") + i) if i < MANY else str(i + 1) for i in range(len(self.groups))]
        return {name: letter for letter, group in zip(letters, self.groups, strict=True) for name in group}

    @cached_property
    def _levels(self) -> list[_Level]:
        """Return the levels in ascending order of values."""
        indexed = zip(self.grouping.level_of, self.grouping.groups, strict=True)
        levels = []
        for _, pairs in groupby(indexed, lambda pair: pair[0]):
            groups = [group for _, group in pairs]
            logs = [math.log(value) for value in _pooled(self.values, groups[0])]  # of the steadiest group
            centre = median(logs)
            near = _NEAR * _NORMAL * median(abs(log - centre) for log in logs)
            name = "/".join(sorted({self.letters[group[0]] for group in groups}))
            levels.append(_Level(name, centre, max(near, math.log1p(self.margin))))
        return levels

    def level_of(self, value: float) -> str:
        """Return where a start lies: the letters of a level, or in words where it lies between or beyond levels."""
        log = math.log(value)
        nearest = min(self._levels, key=lambda level: abs(level.log - log))
        if abs(nearest.log - log) <= nearest.tolerance:
            return nearest.name
        for low, high in pairwise(self._levels):
            if low.log < log < high.log:
                first, second = sorted((low.name, high.name))
                return f"between {first} and {second}"
        is_better = (log > nearest.log) == (self.merit.better == "higher")
        return f"{'better' if is_better else 'worse'} than {nearest.name}"

    @cached_property
    def configurations(self) -> list[RatedConfiguration]:
        """Return the configurations, in the order of their groups and of their medians."""
        first = next(iter(self.values.values()))
        rated = []
        for name, values in self.values.items():
            ratio, interval = spreads(values, first)
            rated.append(
                RatedConfiguration(
                    name=name,
                    group=self.letters[name],
                    values=tuple(values),
                    interval=median_interval(values),
                    spread=relative_deviation(values),
                    spread_ratio=None if ratio is None or interval is None else (ratio, interval),
                    starts=dict(Counter(map(self.level_of, values)).most_common()),
                    places=self._places(name),
                )
            )
        sign = -1 if self.merit.better == "higher" else 1
        return sorted(rated, key=lambda one: (one.group, sign * median(one.values)))

    def _places(self, name: str) -> dict[str, dict[str, int]]:
        """Return the numbers of runs by their level, then by where they were."""
        places: dict[str, Counter[str]] = {}
        for run in self.runs[name]:
            if run.place:
                places.setdefault(self.level_of(run.value), Counter())[run.place] += 1
        return {level: dict(counts.most_common()) for level, counts in places.items()}


def _pooled(values: Mapping[str, Sequence[float]], names: Sequence[str]) -> list[float]:
    return [value for name in names for value in values[name]]


def to_json(rating: Rating, metric: str) -> dict[str, Any]:
    """Return the object that `--json` prints. Values have the unit `unit`; spreads are shares of the median."""
    better = rating.merit.better
    best = max if better == "higher" else min
    worst = min if better == "higher" else max
    return {
        "type": "rating",
        "schema": 1,
        "metric": metric,
        "unit": rating.merit.unit,
        "better": better,
        "margin": rating.margin,
        "significance": SIGNIFICANCE,
        "groups": [_group(rating, group) for group in rating.groups],
        "configurations": [
            {
                "configuration": one.name,
                "group": one.group,
                "runs": len(one.values),
                "median": median(one.values),
                "low": one.interval[0] if one.interval else None,
                "high": one.interval[1] if one.interval else None,
                "best": best(one.values),
                "worst": worst(one.values),
                "spread": one.spread,
                "spread_ratio": one.spread_ratio[0] if one.spread_ratio else None,
                "spread_ratio_low": one.spread_ratio[1][0] if one.spread_ratio else None,
                "spread_ratio_high": one.spread_ratio[1][1] if one.spread_ratio else None,
                "starts": dict(one.starts),
                "places": {level: dict(places) for level, places in one.places.items()},
            }
            for one in rating.configurations
        ],
        "cuts": [_cut(rating, cut) for cut in rating.grouping.cuts],
    }


def _group(rating: Rating, names: Sequence[str]) -> dict[str, Any]:
    pooled = _pooled(rating.values, names)
    return {
        "group": rating.letters[names[0]],
        "configurations": list(names),
        "runs": len(pooled),
        "median": median(pooled),
    }


def _cut(rating: Rating, cut: Cut) -> dict[str, Any]:
    """Return a cut with the letters of its parts."""
    parts = {
        f"{side}_groups": sorted({rating.letters[name] for name in names})
        for side, names in (("low", cut.low), ("high", cut.high))
    }
    return {**asdict(cut), **parts}
