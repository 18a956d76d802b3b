"""Says what the hardware prefetchers bring an application, from runs with them on and off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.place.app.configuration import Configuration, varied
from meshmark.place.app.pairs import Merit, compare
from meshmark.values.verdicts import Interval


@dataclass(frozen=True, slots=True)
class PrefetcherEffect:
    """Off over on, with the other dimensions fixed.

    Attributes:
        others: Values of the other dimensions.
        ratio: Of the figure of merit; None if no round has both.
        interval: Of the ratio; None with too few rounds.
        text: In words.
    """

    others: str
    ratio: float | None
    interval: Interval | None
    text: str


def prefetcher_effects(
    values: Mapping[str, Mapping[int, float]],
    ran: Sequence[Configuration],
    merit: Merit,
    margin: float,
    confidence: float,
) -> list[PrefetcherEffect]:
    """Compare off with on, where both ran.

    Args:
        values: Of the runs of each configuration, by label and round.
        margin: Smallest relative difference that matters.
        confidence: Of each comparison.
    """
    found = []
    for others, these in varied(ran, "prefetchers").items():
        labels = {one.values["prefetchers"]: one.label for one in these}
        off, on = labels["off"], labels["on"]
        pair = compare(off, on, (values[off], values[on]), merit, margin, confidence)
        found.append(PrefetcherEffect(others, pair.ratio, pair.interval, f"off against on: {pair.text(merit)}"))
    return found
