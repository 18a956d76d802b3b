"""Tests whether a component is busier than its peers for longer than the phases of a balanced load explain.

The components of one class are grouped into places: the controllers of a node are one place, any other component is a
place by itself. A place is *high* while its use is far above the use of its peers; the time until it is no longer high
is a *period*. A balanced load makes places high in alternation. All places then have the same two exponential
distributions: of the lengths of periods, and of the times between them. A window of n frames in which a place was high
for a share x of the time is then about as improbable, for large n, as one period of

    L = n (sqrt(x) - sqrt(r (1 - x)))^2    frames

where r is the ratio of high to other frames of the class. This is the rate function of a two-state process, the worst
case among reversible Markov processes with the same mean and correlation (León and Perron, Ann. Appl. Probab. 14,
2004).
If k periods lasted T frames in total, a further period lasts L frames or more with the probability

    (1 + L / T)^-k

because the ratio of one exponential time to the sum of k others has this distribution, whatever the mean. The k periods
are those that ended in the history at other places, or at the place itself before the window.

A place stands out if this probability is below `FALSE_PER_FRAME`, divided by the number of classes, places and windows
that are tested in a frame, and if its mean use in the window is far above the use of its peers. By Bonferroni's
inequality, a balanced load then causes at most `FALSE_PER_FRAME` false hot spots per frame on average, whatever the
number of components.

Without a period to compare with, no test can tell a hot spot from the first phase of a program. `PRIOR_PERIODS`
imagined periods are therefore added to k, of such a length that a lone place stands out after `SHORTEST` frames. Hence
a first phase that is longer than that is reported, and the bound holds only for loads with shorter phases, or after
some phases have ended. Because these imagined periods are short, a hot spot beside a load with few or long phases is
reported late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FALSE_PER_FRAME: Final = 1e-6  # bound of the expected number of false hot spots in one frame
SHORTEST: Final = 30  # frames after which a place stands out if no other place was ever high
ABOVE: Final = 0.25  # minimum distance from the usual use of the others, as a share of capacity
RELEASE: Final = 2 * SHORTEST  # frames after which a place no longer stands out
STAYS: Final = 0.8 * ABOVE  # distance below which a place no longer stands out
PRIOR_PERIODS: Final = 8
HISTORY: Final = 1024  # frames that are considered
WINDOWS: Final = tuple(round(SHORTEST * 2 ** (i / 2)) for i in range(11))  # 30 to 960 frames
RATIO: Final = 1.5  # minimum ratio to the usual use of the others
ALONE: Final = 0.85  # minimum use of the only place of a class, if it can stand out at all


def period_probability(length: float, count: int, total: float) -> float:
    """Return the probability that a further period lasts at least `length`, if `count` periods lasted `total`."""
    return float((1 + length / total) ** -count)


def required_length(probability: float, count: Floats, total: Floats) -> Floats:
    """Return the length in frames that a further period exceeds with this probability, in the shape of `count`.

    Args:
        probability: Probability of a longer period.
        count: Number of measured periods.
        total: Total length of these periods in frames.
    """
    prior_total = (SHORTEST - 0.5) / (probability ** (-1 / PRIOR_PERIODS) - 1)
    exponents = -math.log(probability) / (count + PRIOR_PERIODS)
    return np.asarray((total + prior_total) * np.expm1(exponents))


def usual_use(values: Floats) -> Floats:
    """Return the larger of mean and median of all other known values for each value, shape (…, places).

    The median alone would be low if just under half of the places were high. The result is 0 without other values.
    """
    if values.shape[-1] < 2:
        return np.zeros_like(values)
    count = np.count_nonzero(~np.isnan(values), axis=-1, keepdims=True)
    ascending = np.append(np.sort(values, axis=-1), np.full((*values.shape[:-1], 1), np.nan), axis=-1)

    def without_itself(position: NDArray[np.intp]) -> Floats:
        """Return the value at a position of the ascending values, from which each value is left out in turn."""
        at, after = (np.take_along_axis(ascending, position + step, axis=-1) for step in (0, 1))
        return np.where(values <= at, after, at)

    below = without_itself(np.maximum(0, (count - 2) // 2))
    above = without_itself(np.maximum(0, (count - 1) // 2))
    known = np.nan_to_num(values)
    mean = (known.sum(axis=-1, keepdims=True) - known) / np.maximum(1, count - ~np.isnan(values))
    return np.where(count > 1, np.maximum((below + above) / 2, mean), 0.0)


class Periods:
    """Follows the use of all places of one class and tests which ones stand out."""

    def __init__(self, places: Sequence[Sequence[int]], min_use: float, classes: int, alone: bool = True) -> None:
        """Start without history.

        Args:
            places: Indices of the components of each place; every component is in one place.
            min_use: Minimum use of a place that stands out.
            classes: Number of classes that are tested in each frame.
            alone: Whether the only place of a class can stand out.
        """
        self.places = [tuple(p) for p in places]
        self._order = np.array([i for p in places for i in p], dtype=np.intp)
        self._begins = np.cumsum([0, *map(len, places)])[:-1].astype(np.intp)
        self._sizes = np.array([len(p) for p in places], dtype=float)
        n = len(self.places)
        self._min_use = min_use if n > 1 else ALONE if alone else math.inf
        self._probability = FALSE_PER_FRAME / (classes * max(1, n) * len(WINDOWS))
        # Sums over all frames so far, of which the last HISTORY + 1 are kept: use, known frames, high frames, number of
        # ended periods, and their lengths.
        self._sums = np.zeros((HISTORY + 1, 5, n))
        self._tick = 0
        self._last = np.zeros(n)
        self._high = np.zeros(n, dtype=bool)
        self._start = np.zeros(n, dtype=np.int64)
        self._start_s = np.zeros(n)
        self.standing = np.zeros(n, dtype=bool)
        self.since_s = np.zeros(n)
        self._begin = np.zeros(n, dtype=np.int64)  # the first frame of the windows of each place

    def add(self, values: Sequence[float | None], time_s: float) -> None:
        """Add the use of all components in one frame; an empty list means that none is known."""
        if not self.places:
            return
        use = self._use_of_places(values)
        self._tick += 1
        known = ~np.isnan(use)
        level = np.where(known, use, 0.0)
        previous, current = self._sums[(self._tick - 1) % (HISTORY + 1)], self._sums[self._tick % (HISTORY + 1)]
        current[:] = previous
        current[:2] += (level, known)
        self._follow(level, known, current, time_s)
        if np.any(self.standing):
            self._release()
        recent_high = self._recent(SHORTEST, 2)
        if self._tick >= SHORTEST and np.any((recent_high >= SHORTEST / 2) & ~self.standing):
            self._test()

    def _release(self) -> None:
        """End the state of places whose use has been close to the use of their peers for `RELEASE` frames.

        Windows that test such a place again begin after its end.
        """
        mean = self.mean_use(RELEASE)
        stands = self.standing & (mean - usual_use(mean) >= STAYS)
        self._begin[self.standing & ~stands] = self._tick
        self.standing = stands

    def mean_use(self, frames: int = SHORTEST) -> Floats:
        """Return the mean use of each place over the last frames, shape (places,)."""
        return np.asarray(self._recent(frames, 0) / np.maximum(1, self._recent(frames, 1)))

    def mean_by_component(self, count: int) -> Floats:
        """Return the mean use over the last frames of each of `count` components: the mean of its place."""
        means = np.zeros(count)
        for mean, indices in zip(self.mean_use(), self.places, strict=True):
            means[list(indices)] = mean
        return means

    def since(self, components: Sequence[int]) -> float:
        """Return the time in s since which the earliest of these components has been high, or was so last."""
        begin_s = np.where(self.standing, self.since_s, self._start_s)
        return min(float(begin_s[n]) for n, p in enumerate(self.places) if not set(p).isdisjoint(components))

    def components(self, selected: NDArray[np.bool_]) -> set[int]:
        """Return the indices of the components of the selected places."""
        return {i for number in np.flatnonzero(selected) for i in self.places[number]}

    @property
    def recently_high(self) -> NDArray[np.bool_]:
        """Return which places were high in most of the last frames, shape (places,)."""
        return np.asarray(self._recent(SHORTEST, 2) >= min(self._tick, SHORTEST) / 2)

    def _use_of_places(self, values: Sequence[float | None]) -> Floats:
        if not values:
            return np.full(len(self.places), np.nan)
        raw = np.array(values, dtype=float)[self._order]
        return raw if len(raw) == len(self.places) else np.add.reduceat(raw, self._begins) / self._sizes

    def _recent(self, frames: int, quantity: int) -> Floats:
        size = HISTORY + 1
        begin = max(0, self._tick - min(frames, HISTORY))
        return np.asarray(self._sums[self._tick % size, quantity] - self._sums[begin % size, quantity])

    def _follow(self, level: Floats, known: NDArray[np.bool_], current: Floats, time_s: float) -> None:
        """Update which places are high, and record the periods that ended.

        A period ends when the use has been closer to the usual than to the high level for two frames, so that short
        gaps do not divide it.
        """
        if not np.any(self._high) and np.max(level) < self._min_use:
            self._last = level
            return
        usual = np.nan_to_num(usual_use(np.where(known, self.mean_use(), np.nan)))
        begin_level = np.maximum(self._min_use, np.maximum(usual + ABOVE, RATIO * usual))
        stay_level = (begin_level + usual) / 2
        begins = ~self._high & (level >= begin_level)
        ends = self._high & (level < stay_level) & (self._last < stay_level)
        self._last = level
        self._start[begins] = self._tick
        self._start_s[begins] = time_s
        self._high = (self._high | begins) & ~ends
        current[2] += self._high
        current[3] += ends
        current[4] += np.where(ends, self._tick - 1 - self._start, 0)

    def _test(self) -> None:
        windows = [w for w in WINDOWS if w <= min(self._tick, HISTORY)]
        size = HISTORY + 1
        now = self._sums[self._tick % size]
        past = self._sums[[(self._tick - w) % size for w in windows]]
        use_sums, known, high, window_count, window_total = np.moveaxis(now - past, 1, 0)
        frames = np.array(windows, dtype=float)[:, None]
        peers = ~self.standing
        # A place is compared with the others, except those that stand out, and with itself before the window.
        history = min(self._tick, HISTORY)
        all_high = self._recent(HISTORY, 2)
        peers_high = np.where(peers, all_high, 0.0)
        other_high = peers_high.sum() - peers_high + all_high - high
        other_frames = (np.count_nonzero(peers) - peers) * history + history - frames
        ratio = other_high / np.maximum(1.0, other_frames - other_high)
        share = high / frames
        excess = np.maximum(0.0, np.sqrt(share) - np.sqrt(ratio * (1 - share)))
        valid = (share * (1 + ratio) > ratio) & (frames <= self._tick - self._begin)
        length = np.where(valid, frames * excess**2, 0.0)
        count = self._recent(HISTORY, 3).sum() - window_count
        total = self._recent(HISTORY, 4).sum() - window_total
        needed = required_length(self._probability, count, total)
        if not np.any(length >= needed):
            return
        means = np.where(known > 0, use_sums / np.maximum(1, known), np.nan)
        usual = usual_use(means)
        large = (means >= self._min_use) & (means - usual >= ABOVE) & (means >= RATIO * usual)
        stands = np.any((length >= needed) & large, axis=0) & (self._recent(SHORTEST, 2) >= SHORTEST / 2)
        new = stands & ~self.standing
        self.since_s[new] = self._start_s[new]
        self.standing |= new
