"""How long a measurement may take if no budget is given: longer in proportion to its points."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.describe import Description, Parameter
from meshmark.errors import UsageError
from meshmark.values import grammar

BUDGET: Final = "--budget"
MAX_S: Final = 600.0  # without --budget, unless the instrument's default is longer


def budget_s(d: Description, argv: Sequence[str]) -> float:
    """The time for a measurement with these arguments, s: `--budget`, or the instrument's default, times the points
    over those of its default options if these are more.

    Raises:
        UsageError: The value of `--budget` is invalid.
    """
    given = dict(itertools.pairwise(argv))
    default_s = grammar.seconds(BUDGET, d.parameter("budget").default)
    if BUDGET in given:
        return grammar.seconds(BUDGET, given[BUDGET])
    return min(max(MAX_S, default_s), default_s * max(1.0, relative_points(d, given)))


def relative_points(d: Description, given: Mapping[str, str]) -> float:
    """The number of points over that of the default options, as far as lists of values decide it.

    Args:
        given: Values by option; an invalid one counts as one value, since the instrument will refuse it.
    """
    return math.prod(_count(p, given.get(p.option, p.default)) / _count(p, p.default) for p in d.parameters)


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
