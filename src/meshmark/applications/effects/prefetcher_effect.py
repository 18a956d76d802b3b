"""Determines the effect of the hardware prefetchers on an application, from runs with prefetchers on and off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.applications.configuration import Configuration, varied
from meshmark.statistics.pairs import MeritUnit, compare
from meshmark.statistics.verdicts import Interval


@dataclass(frozen=True, slots=True)
class PrefetcherEffect:
    """The effect of switching the prefetchers off, with the other dimensions fixed.

    Attributes:
        others: Values of the other dimensions.
        ratio: Figure of merit with prefetchers off over the figure with prefetchers on; None if no round has both.
        interval: Interval of the ratio; None with too few rounds.
        text: The result in words.
    """

    others: str
    ratio: float | None
    interval: Interval | None
    text: str


def prefetcher_effects(
    values: Mapping[str, Mapping[int, float]],
    ran: Sequence[Configuration],
    merit: MeritUnit,
    margin: float,
    confidence: float,
) -> list[PrefetcherEffect]:
    """Compare prefetchers off with prefetchers on, where both ran.

    Args:
        values: Figures of the runs of each configuration, by label and round.
        ran: Configurations with a valid run.
        merit: Unit of the figures, and which direction is better.
        margin: Smallest relative difference that matters.
        confidence: Confidence of each comparison.
    """
    effects = []
    for others, configurations in varied(ran, "prefetchers").items():
        labels = {configuration.values["prefetchers"]: configuration.label for configuration in configurations}
        off_label, on_label = labels["off"], labels["on"]
        pair = compare(off_label, on_label, (values[off_label], values[on_label]), merit, margin, confidence)
        effects.append(PrefetcherEffect(others, pair.ratio, pair.interval, f"off against on: {pair.text(merit)}"))
    return effects
