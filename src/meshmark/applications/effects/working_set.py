"""Determines how much of the last-level cache an application needs, from runs that may fill different parts of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.applications.configuration import Configuration, varied
from meshmark.applications.resources.machine_limits import cache_bytes
from meshmark.statistics.pairs import MeritUnit, compare


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """The effect of less cache, with the other dimensions fixed.

    Attributes:
        others: Values of the other dimensions.
        enough: The smallest part for which it and all larger parts are shown to be as good as the largest; "" if there
            is no such part.
        worse: The largest part that is worse than the largest one; "" if there is no such part.
        text: The result in words.
    """

    others: str
    enough: str
    worse: str
    text: str


def working_sets(
    values: Mapping[str, Mapping[int, float]],
    ran: Sequence[Configuration],
    merit: MeritUnit,
    margin: float,
    confidence: float,
) -> list[WorkingSet]:
    """Compare each part of the cache with the largest.

    Args:
        values: Figures of the runs of each configuration, by label and round.
        ran: Configurations with a valid run.
        merit: Unit of the figures, and which direction is better.
        margin: Smallest relative difference that matters.
        confidence: Confidence of each comparison.
    """
    groups = {others: sorted(members, key=_part, reverse=True) for others, members in varied(ran, "cache").items()}
    sets = []
    for others, (reference, *smaller) in groups.items():
        largest, enough, unclear, worse = reference.values["cache"], "", "", ""
        for configuration in smaller:
            value_pair = (values[configuration.label], values[reference.label])
            pair = compare(configuration.label, reference.label, value_pair, merit, margin, confidence)
            part = configuration.values["cache"]
            if pair.best == reference.label:
                worse = f"{part} is {pair.text(merit)}"
                break
            if pair.word != "equal" and pair.best != configuration.label:
                unclear = unclear or f"{part} is {pair.text(merit)}"
            elif not unclear:
                enough = part
        conclusion = f"{enough} is as good as {largest}" if enough else ""
        text = "; ".join(filter(None, (conclusion, unclear, worse)))
        sets.append(WorkingSet(others, enough, worse.partition(" ")[0], text))
    return sets


def _part(configuration: Configuration) -> float:
    return cache_bytes("cache", configuration.values["cache"]) or math.inf
