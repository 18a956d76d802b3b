"""Names the nodes of a class that are worse than the others, with a controlled rate of false names.

There are two steps, as in a medical test. Suspects are chosen generously from all values of a day. Suspects and some
healthy nodes then measure again, several times; only these fresh values can name a node, at a level that takes into
account how many nodes were tested, on this day and on all days before.

Source:
    Discoveries over days: Zrnic, Jiang, Ramdas, Jordan, The Power of Batching in Multiple Hypothesis Testing, AISTATS
    2020 (Batch BH), of the package online-fdr.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshmark.errors import MeshmarkError, extra, quoted
from meshmark.fleet.health.baseline import DRAWS, Baseline, fit
from meshmark.fleet.health.p_values import Evidence, evidence, excess
from meshmark.statistics.arrays import Array
from meshmark.statistics.estimates import deviation, location, nan_median

RATE: Final = 0.05  # largest share of false names among all names
CONTROLS: Final = 16  # healthy nodes that measure again together with the suspects
_SUSPECT: Final = 0.02  # p-value below which a node is suspected
_MOST: Final = (8, 0.03)  # largest number of suspects, or share of the nodes if that is more; the worst come first
FRESH: Final = 5  # least number of fresh values
SCREEN_DRAWS: Final = DRAWS // 8  # simulated nodes; screening needs no small probabilities
_SPREAD: Final = 2.0  # uncertainty factor of the variance ratio of one metric, which a few controls estimate


@dataclass(frozen=True, slots=True)
class Screening:
    """The result of screening the nodes of a class by the values of a day.

    Attributes:
        baseline: Baseline of the class.
        p: p-value of each node, shape (nodes,).
        suspects: Indices of nodes, the most unlikely first.
    """

    baseline: Baseline
    p: Array
    suspects: list[int]


def fresh_count(values: int) -> int:
    """Return how many fresh values a suspect needs if the baseline has `values` values of each node.

    Both numbers are equal, so that the medians have the same variance, but at least `FRESH` values are needed.
    """
    return max(values, FRESH)


def screen(window: Array, today: int, groups: Array | None = None, known: Collection[int] = ()) -> Screening:
    """Choose suspects.

    Args:
        window: Values of the last days, shape (nodes, k, p), in the form that `baseline.fit` takes.
        today: Number of values at the end of the window that are from today.
        groups: Groups of metrics, in the form that `baseline.fit` takes.
        known: Nodes that were named before and are not to be suspected again.

    Raises:
        ValueError: There are too few nodes.
    """
    import numpy as np

    baseline = fit(window, groups, SCREEN_DRAWS)
    p = evidence(baseline.own, baseline).node
    if today < window.shape[1]:  # many days show a small fault earlier than one day does; one day shows a large fault
        today_baseline = fit(window[:, -today:], groups, SCREEN_DRAWS)
        p = np.minimum(1.0, 2 * np.minimum(p, evidence(today_baseline.own, today_baseline).node))
    return Screening(baseline, p, suspected(p, known))


def suspected(p: Array, known: Collection[int] = ()) -> list[int]:
    """Return the most unlikely nodes, without known nodes."""
    import numpy as np

    limit = max(_MOST[0], int(_MOST[1] * len(p)))
    order = [int(i) for i in np.argsort(p, kind="stable") if i not in known]
    return [i for i in order[:limit] if p[i] <= _SUSPECT]


def fresh_evidence(baseline: Baseline, suspects: Array, controls: Array, rows: Sequence[int]) -> Evidence:
    """Return the evidence of fresh values.

    A change that affects all nodes since the first values, such as the load of a network, also affects the controls,
    and is subtracted. The uncertainty of this change widens the scale; so does noise of the confirmation that exceeds
    the noise of the baseline.

    Args:
        baseline: Distribution of the healthy nodes of the class.
        suspects: Fresh values of suspects, shape (suspects, r, p), as many values as the baseline has.
        controls: Fresh values of healthy nodes, shape (m, r, p); m may be 0.
        rows: Indices of the controls in the baseline.
    """
    import numpy as np

    locations = location(suspects)
    if not len(controls):
        return evidence(locations - baseline.level, baseline)
    change = location(controls) - baseline.own[list(rows)]
    drift = np.nan_to_num(nan_median(change, axis=0))
    variance = deviation(change - drift) ** 2
    noise = baseline.noise**2
    ratio = variance / np.maximum(2 * noise, 1e-18)
    excess_noise = np.maximum(np.maximum(np.median(ratio), ratio / _SPREAD) - 1, 0) * 2 * noise
    widened = replace(baseline, scale=np.sqrt(baseline.scale**2 + excess_noise + np.pi / 2 * variance / len(controls)))
    factor = np.sqrt(max(1.0, excess(location(controls) - drift, widened)))
    return evidence(locations - drift, replace(widened, scale=widened.scale * factor))


class Discoveries:
    """Decides which nodes are named over many days, so that at most `RATE` of all names are false.

    Args:
        state: The state that `state()` returned after the last day; None: the first day.
        rate: Largest share of false names.

    Raises:
        MeshmarkError: The state is damaged.
    """

    def __init__(self, state: Mapping[str, Any] | None = None, rate: float = RATE) -> None:
        with extra("fleet"):
            from online_fdr.p_values import BatchBH

        try:
            self._method: Any = BatchBH(alpha=rate) if state is None else BatchBH.from_snapshot(dict(state))
        except Exception as error:  # a damaged state raises exceptions of many types
            hint = "restore the file of judgements; without it, earlier decisions are lost"
            raise MeshmarkError(
                f"discoveries: cannot continue with the earlier decisions: {quoted(error)}", hint
            ) from error

    def decide(self, p: Sequence[float], nodes: int) -> list[bool]:
        """Return for each suspect whether it is named.

        Args:
            p: p-values of the suspects, from fresh values.
            nodes: Number of nodes that were tested; nodes without fresh values count as tests with p = 1.
        """
        p_values = [*map(float, p), *([1.0] * (nodes - len(p)))]
        return list(self._method.test_batch(p_values)[: len(p)])

    def state(self) -> dict[str, Any]:
        """Return the JSON-compatible state for the next day."""
        snapshot: dict[str, Any] = self._method.snapshot()
        return snapshot
