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

from meshmark.errors import MeshmarkError, quoted
from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import DRAWS, Baseline, fit
from meshmark.fleet.estimates import deviation, location, nan_median
from meshmark.fleet.evidence import Evidence, evidence, excess

RATE: Final = 0.05  # of false names among all names
CONTROLS: Final = 16  # healthy nodes that measure again, too
_SUSPECT: Final = 0.02  # p-value below which a node is suspected
_MOST: Final = (8, 0.03)  # nodes, or share of the nodes, that may be suspected, the worst first
FRESH: Final = 5  # fewest fresh values
SCREEN_DRAWS: Final = DRAWS // 8  # simulated nodes: suspects need no small probabilities
_SPREAD: Final = 2.0  # of a metric's own ratio of variances, as a few controls estimate it


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

    baseline = fit(window, groups, SCREEN_DRAWS)
    p = evidence(baseline.own, baseline).node
    if today < window.shape[1]:  # a small fault shows in many days before it shows in one, a large one at once
        now = fit(window[:, -today:], groups, SCREEN_DRAWS)
        p = np.minimum(1.0, 2 * np.minimum(p, evidence(now.own, now).node))
    return Screening(baseline, p, suspected(p, known))


def suspected(p: Array, known: Collection[int] = ()) -> list[int]:
    """The most unlikely nodes, without those that are known."""
    import numpy as np

    most = max(_MOST[0], int(_MOST[1] * len(p)))
    order = [int(i) for i in np.argsort(p, kind="stable") if i not in known]
    return [i for i in order[:most] if p[i] <= _SUSPECT]


def fresh_evidence(baseline: Baseline, suspects: Array, controls: Array, rows: Sequence[int]) -> Evidence:
    """The evidence of fresh values.

    What changed for all since the first values, such as the load of a network, changed for the controls, too, and is
    subtracted. How well it is known widens the scale, and so does noise of one confirmation that is larger than that of
    as many days.

    Args:
        suspects: Shape (suspects, r, p), as many values as the baseline has.
        controls: Fresh values of healthy nodes, shape (m, r, p); m may be 0.
        rows: The controls' places in the baseline.
    """
    import numpy as np

    own = location(suspects)
    if not len(controls):
        return evidence(own - baseline.level, baseline)
    change = location(controls) - baseline.own[list(rows)]
    drift = np.nan_to_num(nan_median(change, axis=0))
    variance = deviation(change - drift) ** 2
    noise = baseline.noise**2
    ratio = variance / np.maximum(2 * noise, 1e-18)
    more = np.maximum(np.maximum(np.median(ratio), ratio / _SPREAD) - 1, 0) * 2 * noise
    wider = replace(baseline, scale=np.sqrt(baseline.scale**2 + more + np.pi / 2 * variance / len(controls)))
    factor = np.sqrt(max(1.0, excess(location(controls) - drift, wider)))
    return evidence(own - drift, replace(wider, scale=wider.scale * factor))


class Discoveries:
    """Decides over days, so that at most `RATE` of all names are false.

    Args:
        state: What `state()` returned after the last day; None: the first day.

    Raises:
        MeshmarkError: The state is damaged.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, rate: float = RATE) -> None:
        from online_fdr.p_values import BatchBH

        try:
            self._method: Any = BatchBH(alpha=rate) if state is None else BatchBH.from_snapshot(dict(state))
        except Exception as error:  # of many kinds
            hint = "restore the file of judgements; moved away, earlier decisions are forgotten"
            raise MeshmarkError(
                f"discoveries: cannot go on with the earlier decisions: {quoted(error)}", hint
            ) from error

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
