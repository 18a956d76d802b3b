"""Says how much of the last-level cache an application needs, from runs that may fill different parts of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshmark.place.app.configuration import Configuration, varied
from meshmark.place.app.machine_limits import cache_bytes
from meshmark.place.app.pairs import Merit, compare


@dataclass(frozen=True, slots=True)
class WorkingSet:
    """What less cache costs, with the other dimensions fixed.

    Attributes:
        others: Values of the other dimensions.
        enough: The smallest part from which on all are shown to be as good as the largest; "" if none is.
        worse: The largest part that is worse; "" if none is.
        text: In words.
    """

    others: str
    enough: str
    worse: str
    text: str


def working_sets(
    values: Mapping[str, Mapping[int, float]],
    ran: Sequence[Configuration],
    merit: Merit,
    margin: float,
    confidence: float,
) -> list[WorkingSet]:
    """Compare each part of the cache with the largest.

    Args:
        values: Of the runs of each configuration, by label and round.
        margin: Smallest relative difference that matters.
        confidence: Of each comparison.
    """
    groups = {others: sorted(these, key=_part, reverse=True) for others, these in varied(ran, "cache").items()}
    found = []
    for others, (most, *smaller) in groups.items():
        largest, enough, unclear, worse = most.values["cache"], "", "", ""
        for one in smaller:
            both = (values[one.label], values[most.label])
            pair = compare(one.label, most.label, both, merit, margin, confidence)
            part = one.values["cache"]
            if pair.best == most.label:
                worse = f"{part} is {pair.text(merit)}"
                break
            if pair.word != "equal" and pair.best != one.label:
                unclear = unclear or f"{part} is {pair.text(merit)}"
            elif not unclear:
                enough = part
        least = f"{enough} is as good as {largest}" if enough else ""
        text = "; ".join(filter(None, (least, unclear, worse)))
        found.append(WorkingSet(others, enough, worse.partition(" ")[0], text))
    return found


def _part(one: Configuration) -> float:
    return cache_bytes("cache", one.values["cache"]) or math.inf
