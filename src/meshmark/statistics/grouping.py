"""Divides configurations into groups that behave alike, by the level and the spread of their runs.

The set of all configurations is divided by level: sorted by their medians, it is cut where the sum of squares between
the two parts is largest. The cut counts if it is significant and the medians of the parts differ by more than the
margin; then each part is divided in the same way. A group of one level is then divided by the spread of runs about the
median of their configuration, if the larger spread exceeds the margin.

A permutation test gives the significance. Its statistic is the sum of squares between both parts: of the ranks of the
runs for a level; for a spread, of the deviations themselves, since a few bad runs make a spread. It permutes runs
between the configurations, within rounds if runs belong to rounds, and repeats the search for the best cut for every
permutation, so that the search alone is never significant. A part is tested only if the set that contains it was
divided, so the error of the whole is the error of one test if all configurations are alike.

Sources: permutation tests of a maximum: Westfall, Young, "Resampling-Based Multiple Testing" (1993); division by the
largest sum of squares between two parts: Scott, Knott, Biometrics 30 (1974), 507-512; deviations from medians as
spread: Brown, Forsythe, J. Am. Stat. Assoc. 69 (1974), 364-367.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from meshmark.statistics.arrays import Array

SIGNIFICANCE: Final = 0.01  # largest p of a cut that counts
PERMUTATIONS: Final = 9999
SPREAD_FACTOR: Final = 2.0  # spreads that differ by less do not matter
SPREAD_RUNS: Final = 5  # runs of a configuration whose spread is judged
_LEAST_SPREAD: Final = 1e-6  # smaller relative deviations are rounding of printed figures

Kind = Literal["level", "spread"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The best division of some configurations into two parts.

    Attributes:
        kind: Whether the parts differ by level or by spread.
        low, high: Configurations of the part with the lower and the higher level or spread.
        ratio: Level or spread of the higher part, divided by the level or spread of the lower part.
        p: Probability of at least such a cut if runs are exchanged at random between the configurations.
        counts: Whether the parts are different groups.
    """

    kind: Kind
    low: tuple[str, ...]
    high: tuple[str, ...]
    ratio: float
    p: float
    counts: bool


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of configurations.

    Attributes:
        groups: Configurations of each group, in ascending order of level, then of spread.
        level_of: Index of the level of each group; groups that differ by spread only have the same one.
        cuts: The cuts that were tested, in the order of the tests.
    """

    groups: tuple[tuple[str, ...], ...]
    level_of: tuple[int, ...]
    cuts: tuple[Cut, ...]


def divide(
    values: Mapping[str, Sequence[float]],
    rounds: Mapping[str, Sequence[int]] | None = None,
    margin: float = 0.02,
    seed: int = 1,
) -> Grouping:
    """Divide configurations into groups.

    Args:
        values: Positive values of the runs of each configuration, at least one.
        rounds: Round of each run; None if the runs do not belong to rounds.
        margin: Relative difference of levels, and relative spread, that do not matter.
        seed: Seed of the permutations.
    """
    division = _Division(values, rounds, margin, seed)
    levels = division.parts(tuple(values), division.level)
    groups = [division.parts(level, division.spread) for level in levels]
    return Grouping(
        tuple(part for parts in groups for part in parts),
        tuple(i for i, parts in enumerate(groups) for _ in parts),
        tuple(division.cuts),
    )


def rounds_needed(configurations: int) -> int:
    """Return from how many rounds on one of at least two configurations is significantly different by being the best.

    Of n rounds with k configurations, it is the same one that is the best in all by chance with probability k^(1 - n).
    """
    return math.ceil(1 + math.log(1 / SIGNIFICANCE) / math.log(configurations) - 1e-9)


class _Division:
    """The runs of all configurations, and the cuts that were tested."""

    def __init__(
        self,
        values: Mapping[str, Sequence[float]],
        rounds: Mapping[str, Sequence[int]] | None,
        margin: float,
        seed: int,
    ) -> None:
        import numpy as np

        self.cuts: list[Cut] = []
        self._margin = math.log1p(margin)
        self._random = np.random.default_rng(seed)
        self._logs = {name: np.log(np.asarray(runs, dtype=float)) for name, runs in values.items()}
        self._medians = {name: float(np.median(logs)) for name, logs in self._logs.items()}
        self._rounds = {
            name: np.asarray(rounds[name] if rounds else [0] * len(runs), dtype=float) for name, runs in values.items()
        }

    def parts(self, names: tuple[str, ...], cut: Callable[[tuple[str, ...]], Cut | None]) -> list[tuple[str, ...]]:
        """Return the parts of a set in ascending order."""
        best = cut(names) if len(names) > 1 else None
        if best is None:
            return [names]
        self.cuts.append(best)
        return [*self.parts(best.low, cut), *self.parts(best.high, cut)] if best.counts else [names]

    def level(self, names: tuple[str, ...]) -> Cut | None:
        """Return the best cut by level."""
        import numpy as np
        from scipy.stats import rankdata

        logs, rounds = self._all(self._logs, names), self._all(self._rounds, names)
        for number in np.unique(rounds):  # removes drift
            logs[rounds == number] -= np.median(logs[rounds == number])
        sizes = np.array([len(self._logs[name]) for name in names])
        low, high, p = self._best(names, logs, rankdata(logs), rounds, sizes, lambda part: np.median(part, axis=-1))
        ratio = float(np.median(self._all(self._logs, high)) - np.median(self._all(self._logs, low)))
        return Cut("level", low, high, math.exp(ratio), p, p <= SIGNIFICANCE and ratio > self._margin)

    def spread(self, names: tuple[str, ...]) -> Cut | None:
        """Return the best cut by spread; None if a configuration has too few runs."""
        import numpy as np

        sizes = np.array([len(self._logs[name]) for name in names])
        if sizes.min() < SPREAD_RUNS:
            return None
        deviations = {name: np.abs(self._logs[name] - self._medians[name]) for name in names}
        deviation = self._all(deviations, names)

        def log_mean(part: Array) -> Array:
            return np.asarray(np.log(np.maximum(part.mean(axis=-1), _LEAST_SPREAD)))

        low, high, p = self._best(names, deviation, deviation, np.zeros(len(deviation)), sizes, log_mean)
        low_log, high_log = (float(log_mean(self._all(deviations, part))) for part in (low, high))
        matters = high_log - low_log > math.log(SPREAD_FACTOR) and math.exp(high_log) > self._margin
        return Cut("spread", low, high, math.exp(high_log - low_log), p, p <= SIGNIFICANCE and matters)

    def _all(self, arrays: Mapping[str, Any], names: Sequence[str]) -> Array:
        import numpy as np

        return np.concatenate([arrays[name] for name in names])

    def _best(
        self,
        names: tuple[str, ...],
        runs: Array,
        scores: Array,
        rounds: Array,
        sizes: Array,
        summary: Callable[[Array], Array],
    ) -> tuple[tuple[str, ...], tuple[str, ...], float]:
        """Return the two parts of the best cut, and its p.

        Args:
            names: The configurations.
            runs: Values by which configurations are cut, in the order of the configurations.
            scores: Value of each run in the statistic.
            rounds: Round of each run.
            sizes: Number of runs of each configuration.
            summary: Function that summarises the runs of a configuration, along the last axis.
        """
        import numpy as np

        by_round = np.argsort(rounds, kind="stable")
        keys = self._random.random((PERMUTATIONS, len(runs))) + np.searchsorted(np.unique(rounds), rounds)
        index = np.tile(np.arange(len(runs)), (PERMUTATIONS + 1, 1))
        index[1:, by_round] = np.argsort(keys, axis=1)
        ends = np.cumsum(sizes)[:-1]
        summaries = np.stack([summary(part) for part in np.split(runs[index], ends, axis=1)], axis=1)
        sums = np.stack([part.sum(axis=1) for part in np.split(scores[index], ends, axis=1)], axis=1)
        order = np.argsort(summaries, axis=1, kind="stable")  # permutations × configurations
        cut = _between(np.take_along_axis(summaries, order, axis=1) * sizes[order], sizes[order]).argmax(axis=1)
        between = _between(np.take_along_axis(sums, order, axis=1), sizes[order])
        statistic = between[np.arange(len(cut)), cut]
        extreme = int(np.count_nonzero(statistic[1:] >= statistic[0] * (1 - 1e-9)))
        sorted_names = [names[i] for i in order[0]]
        at = int(cut[0]) + 1
        return tuple(sorted_names[:at]), tuple(sorted_names[at:]), (1 + extreme) / (1 + PERMUTATIONS)


def _between(sums: Array, sizes: Array) -> Array:
    """Return the sum of squares between the two parts of each cut.

    Args:
        sums: Sums of the runs of each configuration, rows × configurations in the order of the cuts.
        sizes: Numbers of runs, of the same shape.

    Returns:
        Rows × cuts; cut i is after configuration i.
    """
    import numpy as np

    low, counts = np.cumsum(sums, axis=1), np.cumsum(sizes, axis=1)
    total, count = low[:, -1:], counts[:, -1:]
    low, counts = low[:, :-1], counts[:, :-1]
    return np.asarray(low**2 / counts + (total - low) ** 2 / (count - counts) - total**2 / count)
