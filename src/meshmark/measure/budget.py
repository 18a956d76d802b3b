"""How long a measurement may take: longer in proportion to its points and to the memory that it must touch."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.describe import Description, Parameter
from meshmark.errors import UsageError
from meshmark.measure.probe import check
from meshmark.values import grammar

BUDGET: Final = "--budget"
USUAL_BYTES: Final = 512 << 20
MAX_S: Final = 600.0  # without --budget, unless the instrument's default is longer


def budget_s(d: Description, argv: Sequence[str]) -> float:
    """The time for a measurement with these arguments, s: `--budget`, or the instrument's default times `more`.

    Raises:
        UsageError: The value of `--budget` is invalid.
    """
    given = dict(itertools.pairwise(argv))
    if BUDGET in given:
        return grammar.seconds(BUDGET, given[BUDGET])
    default_s = grammar.seconds(BUDGET, d.parameter("budget").default)
    return min(max(MAX_S, default_s), default_s * more(d, argv))


def more(d: Description, argv: Sequence[str]) -> float:
    """The factor by which the default budget grows: points over those of the default options, and memory."""
    return max(1.0, relative_points(d, dict(itertools.pairwise(argv)))) * memory_scale(d, argv)


def memory_scale(d: Description, argv: Sequence[str]) -> float:
    """The size `memory` of a footprint over `USUAL_BYTES`, for which budgets are meant; 1 if smaller, or not an option.

    It is several times the last-level caches, of which some hosts, guests among them, claim hundreds of MiB.
    """
    given = dict(itertools.pairwise(argv))
    if not any(p.kind in {"size", "sizes"} and given.get(p.option, p.default) == "memory" for p in d.parameters):
        return 1.0
    try:
        found = check(d.name, argv).get("memory_bytes")
    except UsageError:
        return 1.0  # the instrument will refuse the arguments
    return max(1.0, found / USUAL_BYTES) if isinstance(found, int) else 1.0


def relative_points(d: Description, given: Mapping[str, str]) -> float:
    """The number of points over that of the default options, as far as lists of values decide it.

    Args:
        given: Values by option; an invalid one counts as one value, since the instrument will refuse it.
    """
    points = math.prod(_count(p, given.get(p.option, p.default)) / _count(p, p.default) for p in d.parameters)
    return points * _single_cpus(d, given)


def _single_cpus(d: Description, given: Mapping[str, str]) -> int:
    """The number of CPUs that an instrument measures one after the other, 1 if none are named or all work together."""
    text = given.get("--cpus", "")
    if not text or "cpu" not in d.identity:
        return 1
    if text in {"all", "allowed"}:
        return len(os.sched_getaffinity(0))
    try:
        return max(1, len(grammar.cpus("--cpus", text)))
    except UsageError:
        return 1


def _count(p: Parameter, text: str) -> int:
    """Number of values of an option: more than one only for lists."""
    try:
        if p.kind == "sizes":
            return max(1, len(grammar.sizes(p.option, text)))
        if p.kind == "integers":
            high = int(p.maximum) if p.maximum is not None else 1 << 62
            return max(1, len(grammar.integers(p.option, text, high, 0, len(os.sched_getaffinity(0)))))
    except UsageError:
        return 1
    if p.kind != "choices":
        return 1
    return len(p.choices) if text == "all" and p.choices else len(text.split(","))
