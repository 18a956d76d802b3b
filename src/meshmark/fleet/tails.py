"""Tail probabilities of a statistic, from a sample of it, also beyond the sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshmark.fleet.arrays import Array

_SHARE: Final = 0.003  # of the sample beyond which the tail is exponential
_FEWEST: Final = 20  # values that an exponential tail is fitted to
_POINTS: Final = 400  # of the sample that are kept


@dataclass(frozen=True, slots=True)
class Tail:
    """The upper tail of a statistic.

    Attributes:
        at: Values, increasing.
        probability: Logarithms of the probability of at least these.
        begin: Where the exponential tail begins.
        share: The logarithm of the probability beyond it.
        rate: Of the exponential tail. Tails of normal distributions and of distances fall faster.
    """

    at: Array
    probability: Array
    begin: float
    share: float
    rate: float

    @staticmethod
    def of(sample: Array) -> Tail:
        import numpy as np

        ordered = np.sort(sample)
        size = len(ordered)
        count = min(max(_FEWEST, int(_SHARE * size)), size)
        begin, mean = float(ordered[size - count]), float(ordered[size - count :].mean())
        # Dense in the tail: ranks from the largest value, which has 1.
        ranks = np.unique(np.geomspace(1, size, _POINTS).astype(int))[::-1]
        at, first = np.unique(ordered[size - ranks], return_index=True)
        return Tail(at, np.log(ranks[first] / size), begin, float(np.log(count / size)), 1 / max(mean - begin, 1e-12))

    def log(self, x: Array) -> Array:
        """The logarithm of the probability of at least x."""
        import numpy as np

        far = self.share - (x - self.begin) * self.rate
        return np.asarray(np.where(x > self.begin, far, np.interp(x, self.at, self.probability)))

    def median(self) -> float:
        """The value that half of the sample has at least."""
        import numpy as np

        return float(np.interp(np.log(2), -self.probability, self.at))
