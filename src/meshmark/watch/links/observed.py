"""The observed use of links in batches of frames, whose means are nearly independent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Frame, Header

Floats = NDArray[np.float64]
BATCHES: Final = (40, 20, 10)  # numbers of batches that are tried, from many short ones to few long ones
MIN_FRAMES: Final = 2  # frames of a batch
CORRELATED: Final = 0.3  # correlation of successive batches above which longer ones are tried
UNDECIDED: Final = 0.5  # correlation above which no interval is stated
ROUNDING: Final = 0.001  # resolution of a share in a recording


@dataclass(frozen=True, slots=True)
class ObservedUse:
    """The use of all links over a window.

    Attributes:
        batches: Mean use of each link in each batch, shape (batches, links); NaN is unknown.
        peak: Highest use of each link in one frame, shape (links,).
        frames, seconds: Number of frames and their total length.
        correlation: Mean correlation of successive batches; 0 if they are independent.
    """

    batches: Floats
    peak: Floats
    frames: int
    seconds: float
    correlation: float

    @property
    def mean(self) -> Floats:
        """Return the mean use of each link, shape (links,)."""
        return np.asarray(self.batches.mean(axis=0))

    @property
    def error(self) -> Floats:
        """Return the standard error of the mean use of each link, including the resolution of the recording."""
        spread = self.batches.std(axis=0, ddof=1) / np.sqrt(self.effective_batches)
        return np.asarray(np.hypot(spread, ROUNDING / np.sqrt(12 * len(self.batches))))

    @property
    def effective_batches(self) -> float:
        """Return the number of independent batches with the same information, as for an autoregressive process."""
        correlation = min(max(self.correlation, 0.0), UNDECIDED)
        return len(self.batches) * (1 - correlation) / (1 + correlation)

    @property
    def is_independent(self) -> bool:
        """Return whether the batches are independent enough for intervals over them."""
        return self.correlation <= UNDECIDED


def observe(header: Header, frames: Iterable[Frame]) -> ObservedUse:
    """Return the use of the links in some frames, in as many batches as are nearly independent.

    Raises:
        MeshmarkError: There are too few frames, or the recording does not contain the use of every link.
    """
    metric = header.use["link"]
    rows, seconds = [], 0.0
    for frame in frames:
        values = frame.values.get(metric, ())
        if len(values) != header.count("link") or any(v is None for v in values):
            raise MeshmarkError(f"links: the use of some links is unknown: {header.why_unknown(metric)}")
        rows.append(values)
        seconds += frame.window_s
    needed = MIN_FRAMES * BATCHES[-1]
    if len(rows) < needed:
        raise MeshmarkError(
            f"links: found {len(rows)} frames; allowed: at least {needed}, from which the intervals follow"
        )
    use = np.array(rows, dtype=np.float64)
    candidates = [_batches(use, n) for n in BATCHES if len(use) >= MIN_FRAMES * n]
    chosen = next((b for b in candidates if _correlation(b) <= CORRELATED), candidates[-1])
    return ObservedUse(chosen, use.max(axis=0), len(use), seconds, _correlation(chosen))


def _batches(use: Floats, count: int) -> Floats:
    return np.array([part.mean(axis=0) for part in np.array_split(use, count)])


def _correlation(batches: Floats) -> float:
    """Return the correlation of successive batches, over all links; 0 if no link varies.

    The expected value for independent batches, -1 / n, is added back.
    """
    centred = batches - batches.mean(axis=0)
    variance = float((centred**2).sum())
    if variance <= len(centred) * centred.shape[1] * ROUNDING**2:
        return 0.0
    return float((centred[1:] * centred[:-1]).sum()) / variance + 1 / len(batches)
