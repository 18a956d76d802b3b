"""Fixed limits for health checks on nodes, derived from the values of their classes.

A health check cannot compare nodes with one another, so that its limits are far from the values of the class: they
detect nodes that are clearly broken and leave the others to `judgements`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from meshmark.applications.records import INSTRUMENT
from meshmark.errors import AbsentError
from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.data.values import node_rows
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import FleetState, Suspects
from meshmark.fleet.plan import NodePlan, load_plan
from meshmark.statistics.estimates import deviation

_LEAST: Final = 0.10  # least relative distance of a limit from the median of the class
_FAR: Final = 6.0  # least distance in standard deviations of single values


def with_limits(fleet: Fleet, cluster: str, seen: FleetState) -> NodePlan:
    """Return the plan of a campaign with limits for the hardware of each class that is large enough.

    Raises:
        AbsentError: No class is large enough, or the plan has applications only.
        MeshmarkError: A file cannot be read.
    """
    plan = load_plan(fleet.plans / f"{Campaign.load(fleet, seen.campaign).begun['plan']}.json")
    hashes = {row["node"]: row["hash"] for row in node_rows(fleet, [seen.campaign], cluster)}
    limits: dict[str, list[Mapping[str, Any]]] = {}
    for group in seen.classes:
        if group.screening is not None:
            group_limits = _limits(seen, group)
            members = {hashes.get(seen.panel.nodes[m]) for m in group.of.members}
            limits |= {str(hardware_hash): group_limits for hardware_hash in members if hardware_hash}
    if not limits:
        raise AbsentError(f"{seen.campaign}: no class has enough nodes", "survey at least eight nodes that are alike")
    # The output of applications is judged by Python on the head node, not on the node.
    steps = [step for step in plan.steps if "program" not in step]
    if not steps:
        raise AbsentError(
            f"{seen.campaign}: has applications only, which have no limits on nodes", "limits need instruments"
        )
    return replace(plan, steps=steps, limits=limits)


def _limits(seen: FleetState, suspects: Suspects) -> list[Mapping[str, Any]]:
    assert suspects.screening is not None
    base = suspects.screening.baseline
    values = seen.panel.values[suspects.of.members][:, :, suspects.points] - base.middle
    spread = deviation(values.reshape(-1, len(suspects.points)))
    result: list[Mapping[str, Any]] = []
    for k, index in enumerate(suspects.points):
        point = seen.panel.points[index]
        if point.instrument == INSTRUMENT:
            continue
        margin = max(math.log1p(_LEAST), _FAR * float(spread[k]))
        # The middle is a logarithm; a higher one is worse.
        limit = math.exp((float(base.middle[k]) + margin) * point.sign)
        side = "high" if point.better == "lower" else "low"
        key = {"instrument": point.instrument, "metric": point.metric, "conditions": point.conditions}
        result.append({**key, side: limit})
    return result
