"""Fixed limits for health checks on nodes, from what their classes measure.

A health check cannot compare nodes with one another, so that its limits are far from the class: they find nodes that
are clearly broken and leave the others to `judgements`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from meshmark.errors import AbsentError
from meshmark.fleet.campaign import Campaign
from meshmark.fleet.estimates import deviation
from meshmark.fleet.folder import Fleet
from meshmark.fleet.judgements import Look, Suspects
from meshmark.fleet.plan import NodePlan, load_plan
from meshmark.fleet.values import node_rows
from meshmark.place.app.records import INSTRUMENT

_LEAST: Final = 0.10  # relative distance of a limit from the middle of the class
_FAR: Final = 6.0  # standard deviations of single values


def with_limits(fleet: Fleet, cluster: str, seen: Look) -> NodePlan:
    """The plan of a campaign with limits for the hardware of each class that is large enough.

    Raises:
        AbsentError: No class is.
        MeshmarkError: A file cannot be read.
    """
    plan = load_plan(fleet.plans / f"{Campaign.load(fleet, seen.campaign).begun['plan']}.json")
    hashes = {row["node"]: row["hash"] for row in node_rows(fleet, [seen.campaign], cluster)}
    limits: dict[str, list[Mapping[str, Any]]] = {}
    for one in seen.classes:
        if one.screening is not None:
            found = _limits(seen, one)
            members = {hashes.get(seen.panel.nodes[m]) for m in one.of.members}
            limits |= {str(of): found for of in members if of}
    if not limits:
        raise AbsentError(f"{seen.campaign}: no class has enough nodes", "survey at least eight nodes that are alike")
    # What applications print is judged where there is Python, not on the node.
    steps = [step for step in plan.steps if "program" not in step]
    if not steps:
        raise AbsentError(
            f"{seen.campaign}: has applications only, which have no limits on nodes", "limits need instruments"
        )
    return replace(plan, steps=steps, limits=limits)


def _limits(seen: Look, one: Suspects) -> list[Mapping[str, Any]]:
    assert one.screening is not None
    base = one.screening.baseline
    values = seen.panel.values[one.of.members][:, :, one.points] - base.middle
    spread = deviation(values.reshape(-1, len(one.points)))
    found: list[Mapping[str, Any]] = []
    for k, at in enumerate(one.points):
        point = seen.panel.points[at]
        if point.instrument == INSTRUMENT:
            continue
        margin = max(math.log1p(_LEAST), _FAR * float(spread[k]))
        # The middle is a logarithm of which higher is worse.
        limit = math.exp((float(base.middle[k]) + margin) * point.sign)
        side = "high" if point.better == "lower" else "low"
        of = {"instrument": point.instrument, "metric": point.metric, "conditions": point.conditions}
        found.append({**of, side: limit})
    return found
