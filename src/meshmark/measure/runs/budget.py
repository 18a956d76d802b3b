"""Computes the budget of a measurement, which grows with its points and with the memory that it must touch."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.describe import Description, Parameter
from meshmark.errors import UsageError
from meshmark.measure.runs.probe import check
from meshmark.values import grammar

BUDGET: Final = "--budget"
USUAL_BYTES: Final = 512 << 20
MAX_S: Final = 600.0  # longest budget without --budget, unless the default of the instrument is longer


def budget_s(d: Description, argv: Sequence[str]) -> float:
    """Return the time for a measurement with these arguments, s: `--budget`, or the instrument's default times `more`.

    Raises:
        UsageError: The value of `--budget` is invalid.
    """
    value_by_option = dict(itertools.pairwise(argv))
    if BUDGET in value_by_option:
        return grammar.seconds(BUDGET, value_by_option[BUDGET])
    default_s = grammar.seconds(BUDGET, d.parameter("budget").default)
    return min(max(MAX_S, default_s), default_s * more(d, argv))


def more(d: Description, argv: Sequence[str]) -> float:
    """Return the factor by which the default budget grows: `relative_points` times `memory_scale`, at least 1."""
    return max(1.0, relative_points(d, dict(itertools.pairwise(argv)))) * memory_scale(d, argv)


def memory_scale(d: Description, argv: Sequence[str]) -> float:
    """Return the size that `memory` means over `USUAL_BYTES`, the size for which budgets are meant.

    `memory` is several times the last-level caches. Some hosts, and many virtual machines, report caches of hundreds of
    MiB.

    Returns:
        The quotient; 1 if it is less than 1, or if no argument has the value `memory`.
    """
    value_by_option = dict(itertools.pairwise(argv))
    if not any(
        p.kind in {"size", "sizes"} and value_by_option.get(p.option, p.default) == "memory" for p in d.parameters
    ):
        return 1.0
    try:
        memory_bytes = check(d.name, argv).get("memory_bytes")
    except UsageError:
        return 1.0  # the instrument will refuse the arguments
    return max(1.0, memory_bytes / USUAL_BYTES) if isinstance(memory_bytes, int) else 1.0


def relative_points(d: Description, given: Mapping[str, str]) -> float:
    """Return the number of points over the number with default options, as far as lists of values determine it.

    Args:
        d: Description of the instrument.
        given: Values by option. An invalid list counts as one value, since the instrument will refuse it.
    """
    points = math.prod(_count(p, given.get(p.option, p.default)) / _count(p, p.default) for p in d.parameters)
    return points * _single_cpus(d, given)


def _single_cpus(d: Description, given: Mapping[str, str]) -> int:
    """Return the number of CPUs that an instrument measures one by one; 1 if it uses them together or none is named."""
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
    """Return the number of values of an option; only lists have more than one."""
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
