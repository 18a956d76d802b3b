"""Names the nodes of a class that are worse than the others, with a controlled rate of false names.

Two steps, as for a medical test. All values of a day choose suspects, generously. Suspects and some healthy nodes then
measure again, several times; only these fresh values can name a node, at a level that takes into account how many nodes
were looked at, on this day and on all days before.

Source:
    Discoveries over days: Zrnic, Jiang, Ramdas, Jordan, The Power of Batching in Multiple Hypothesis Testing, AISTATS
    2020 (Batch BH), of the package online-fdr.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import Baseline, deviation, fit, nan_median
from meshmark.fleet.evidence import Evidence, evidence

RATE: Final = 0.05  # of false names among all names
CONTROLS: Final = 16  # healthy nodes that measure again, too
_SUSPECT: Final = 0.02  # p-value below which a node is suspected
_MOST: Final = 0.03  # share of the nodes that may be suspected, the worst first
FRESH: Final = 5  # fewest fresh values


@dataclass(frozen=True, slots=True)
class Screening:
    """What a day's values say about the nodes of a class.

    Attributes:
        baseline: Of the class.
        p: Of each node, shape (nodes,).
        suspects: Indices of nodes, the most unlikely first.
    """

    baseline: Baseline
    p: Array
    suspects: list[int]


def fresh_count(values: int) -> int:
    """How many fresh values a suspect needs, for a baseline from so many values of each node: as many, so that their
    medians vary alike."""
    return max(values, FRESH)


def screen(window: Array, today: int, groups: Array | None = None, known: Collection[int] = ()) -> Screening:
    """Choose suspects.

    Args:
        window: Values of the last days, shape (nodes, k, p), as of `baseline.fit`; the last `today` are today's.
        groups: As of `baseline.fit`.
        known: Nodes that were named before and are not to be suspected again.

    Raises:
        ValueError: Too few nodes.
    """
    import numpy as np

    baseline = fit(window, groups)
    p = evidence(window, baseline).node
    if today < window.shape[1]:  # a small fault shows in many days before it shows in one, a large one at once
        now = window[:, -today:]
        p = np.minimum(1.0, 2 * np.minimum(p, evidence(now, fit(now, groups)).node))
    most = max(3, int(_MOST * len(p)))
    order = [int(i) for i in np.argsort(p, kind="stable") if i not in known]
    return Screening(baseline, p, [i for i in order[:most] if p[i] <= _SUSPECT])


def fresh_evidence(baseline: Baseline, suspects: Array, controls: Array, before: Array) -> Evidence:
    """The evidence of fresh values.

    What changed for all since the first values, such as the load of a network, changed for the controls, too, and is
    subtracted; how well it is known widens the scale.

    Args:
        suspects: Shape (suspects, r, p).
        controls: Fresh values of healthy nodes, shape (m, r, p); m may be 0.
        before: The window's values of these, shape (m, k, p).
    """
    import numpy as np

    if len(controls):
        change = nan_median(controls, axis=1) - nan_median(before, axis=1)
        drift = np.nan_to_num(nan_median(change, axis=0))
        variance = np.pi / 2 * deviation(change - drift) ** 2 / len(controls)
        suspects = suspects - drift
        baseline = replace(baseline, scale=np.sqrt(baseline.scale**2 + variance))
    return evidence(suspects, baseline)


class Discoveries:
    """Decides over days, so that at most `RATE` of all names are false.

    Args:
        state: What `state()` returned after the last day; None: the first day.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, rate: float = RATE) -> None:
        from online_fdr.p_values import BatchBH

        self._method: Any = BatchBH(alpha=rate) if state is None else BatchBH.from_snapshot(dict(state))

    def decide(self, p: Sequence[float], nodes: int) -> list[bool]:
        """Which suspects are named.

        Args:
            p: Of the suspects, from fresh values.
            nodes: The number of nodes that were looked at; those without fresh values count as tests with p = 1.
        """
        whole = [*map(float, p), *([1.0] * (nodes - len(p)))]
        return list(self._method.test_batch(whole)[: len(p)])

    def state(self) -> dict[str, Any]:
        """For the next day, JSON-compatible."""
        snapshot: dict[str, Any] = self._method.snapshot()
        return snapshot
