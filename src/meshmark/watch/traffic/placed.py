"""Estimates the traffic between nodes without counters, from where threads ran and where pages are.

The estimate assumes that every thread uses all pages of its program alike, as often as it runs. The bounds do not
assume which thread uses which page: like Fréchet's bounds of a joint distribution, they follow from the sums of rows
and columns. They allow for threads of one node that access memory up to `RATE_RATIO` times as often as others, and for
the error of a sample of pages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.traffic.matrix import remote_share

Floats = NDArray[np.float64]

RATE_RATIO: Final = 4.0
_Z: Final = 1.96  # of a 95 % interval


@dataclass(frozen=True, slots=True)
class PlacedProgram:
    """Run time and pages of a program by node.

    Attributes:
        ran: CPU time of its threads by node, s, shape (nodes,).
        elsewhere: CPU time of threads whose node is unknown, s.
        pages: Bytes of its pages by node, shape (nodes,).
        sampled: Number of pages on which `pages` rests; 0: all were counted.
    """

    ran: Floats
    elsewhere: float
    pages: Floats
    sampled: int = 0

    @property
    def weight(self) -> float:
        """Return the CPU time of the program; 0 if nothing is known about its pages or its threads."""
        return float(self.ran.sum()) + self.elsewhere if self.pages.sum() > 0 and self.ran.sum() > 0 else 0.0


@dataclass(frozen=True, slots=True)
class PlacedShares:
    """Estimated shares of all accesses: by pair, shape (nodes, nodes), and of remote ones, with their bounds."""

    value: Floats
    low: Floats
    high: Floats
    remote_low: float
    remote_high: float

    @property
    def remote(self) -> float:
        """Return the estimated share of remote accesses."""
        return remote_share(self.value)


def estimate(programs: Iterable[PlacedProgram]) -> PlacedShares | None:
    """Return the shares of accesses between nodes of programs, weighted by their CPU time; None without programs."""
    total = 0.0
    sums: list[Floats] = []
    local = np.zeros(2)
    for program in programs:
        if program.weight <= 0:
            continue
        ran_low, ran_high = _ran_bounds(program)
        page_low, page_high = _page_bounds(program)
        matrices = (
            np.outer(program.ran / program.ran.sum(), program.pages / program.pages.sum()),
            np.maximum(0.0, ran_low[:, None] + page_low[None, :] - 1),
            np.minimum(ran_high[:, None], page_high[None, :]),
        )
        weighted = [program.weight * m for m in matrices]
        sums = weighted if not sums else [a + b for a, b in zip(sums, weighted, strict=True)]
        local += program.weight * np.array([matrices[1].trace(), min(1.0, matrices[2].trace())])
        total += program.weight
    if not sums:
        return None
    value, low, high = (m / total for m in sums)
    return PlacedShares(value, low, high, float(1 - local[1] / total), float(1 - local[0] / total))


def _ran_bounds(program: PlacedProgram) -> tuple[Floats, Floats]:
    """Return bounds of the share of accesses by threads of each node."""
    low = program.ran / program.weight
    high = (program.ran + program.elsewhere) / program.weight
    return low / (low + RATE_RATIO * (1 - low)), RATE_RATIO * high / (RATE_RATIO * high + 1 - high)


def _page_bounds(program: PlacedProgram) -> tuple[Floats, Floats]:
    """Return the 95 % interval of the share of pages on each node (Wilson's); the share itself if all were counted."""
    share = program.pages / program.pages.sum()
    n = program.sampled
    if n <= 0:
        return share, share
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * np.sqrt(share * (1 - share) / n + (_Z / (2 * n)) ** 2) / (1 + _Z**2 / n)
    return np.maximum(0.0, centre - half), np.minimum(1.0, centre + half)
