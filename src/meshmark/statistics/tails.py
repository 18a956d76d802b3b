"""Tail probabilities of a statistic, from a sample of it, also beyond the sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshmark.statistics.arrays import Array

_SHARE: Final = 0.003  # share of the sample in the exponential tail
_FEWEST: Final = 20  # least number of values to which an exponential tail is fitted
_POINTS: Final = 400  # points of the sample that are stored


@dataclass(frozen=True, slots=True)
class Tail:
    """The upper tail of a statistic.

    Attributes:
        at: Values, increasing.
        probability: Logarithms of the probability of at least each value.
        begin: Value at which the exponential tail begins.
        share: Logarithm of the probability of the exponential tail.
        rate: Rate of the exponential tail. Tails of normal distributions and of distances fall faster.
    """

    at: Array
    probability: Array
    begin: float
    share: float
    rate: float

    @staticmethod
    def from_sample(sample: Array) -> Tail:
        """Return the tail of a sample, shape (n,): the empirical one, continued by an exponential distribution."""
        import numpy as np

        ordered = np.sort(sample)
        size = len(ordered)
        count = min(max(_FEWEST, int(_SHARE * size)), size)
        begin, mean = float(ordered[size - count]), float(ordered[size - count :].mean())
        # Points are dense in the tail: ranks are counted from the largest value, which has rank 1.
        ranks = np.unique(np.geomspace(1, size, _POINTS).astype(int))[::-1]
        values, first = np.unique(ordered[size - ranks], return_index=True)
        return Tail(
            values, np.log(ranks[first] / size), begin, float(np.log(count / size)), 1 / max(mean - begin, 1e-12)
        )

    def log(self, x: Array) -> Array:
        """Return the logarithm of the probability of at least x."""
        import numpy as np

        far = self.share - (x - self.begin) * self.rate
        return np.asarray(np.where(x > self.begin, far, np.interp(x, self.at, self.probability)))

    def median(self) -> float:
        """Return the median of the sample."""
        import numpy as np

        return float(np.interp(np.log(2), -self.probability, self.at))
