"""Determines the budget of a measurement, which grows with its points and with the memory that it must touch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from meshmark.describe import Description
from meshmark.errors import AbsentError, UsageError
from meshmark.measure.runs.probe import RunPlan, planned
from meshmark.values import grammar

BUDGET: Final = "--budget"


def budget_s(d: Description, argv: Sequence[str]) -> float:
    """Return the time for a measurement with these arguments, s: `--budget`, or what the instrument plans.

    Raises:
        UsageError: The value of `--budget` is invalid.
    """
    value_by_option = dict(itertools.pairwise(argv))
    if BUDGET in value_by_option:
        return grammar.seconds(BUDGET, value_by_option[BUDGET])
    plan = _plan(d, argv)
    return plan.budget_s if plan else grammar.seconds(BUDGET, d.parameter("budget").default)


def memory_scale(d: Description, argv: Sequence[str]) -> float:
    """Return the factor by which budgets grow because `memory` is large here; 1 if no argument has the value `memory`.

    `memory` is several times the last-level caches. Some hosts, and many virtual machines, report caches of hundreds of
    MiB.
    """
    value_by_option = dict(itertools.pairwise(argv))
    if not any(
        p.kind in {"size", "sizes"} and value_by_option.get(p.option, p.default) == "memory" for p in d.parameters
    ):
        return 1.0
    plan = _plan(d, argv)
    return plan.memory_scale if plan else 1.0


def _plan(d: Description, argv: Sequence[str]) -> RunPlan | None:
    """Return the plan of a run; None if the instrument will refuse these arguments, or is absent."""
    try:
        return planned(d, argv)
    except (UsageError, AbsentError):
        return None
