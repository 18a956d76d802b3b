"""Measures suspects and some healthy nodes again, several times, in a campaign of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from meshmark.fleet.applications import LONGEST_S
from meshmark.fleet.campaigns.campaign import Campaign, NodeSelection, begin, new_campaign
from meshmark.fleet.campaigns.carry_out import UNSEEN, ProgressDisplay, carry_out, nothing_measured
from meshmark.fleet.data.panel import read_panel
from meshmark.fleet.engines.engine import Engine
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import Confirmation, FleetState, controls, fresh_values, reference
from meshmark.fleet.nodesets import fold
from meshmark.fleet.plan import NodePlan, load_plan
from meshmark.fleet.site import Site


def confirm_suspects(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    seen: FleetState,
    runner: Path,
    show: ProgressDisplay = UNSEEN,
    resume: bool = False,
) -> Confirmation:
    """Measure the suspects and healthy nodes of their classes, and return the fresh values.

    Args:
        fleet: Folder of the fleet.
        site: Settings of the site.
        engine: Engine that runs the jobs.
        seen: State of the fleet with its suspects.
        runner: The native program, at a path that nodes can read.
        show: Display of the progress.
        resume: Whether an earlier confirmation of this campaign is resumed.

    Raises:
        MeshmarkError: The engine does not answer, or no node has measured.
    """
    against = reference(fleet, site.cluster, seen)
    name = _begun(fleet, seen) if resume else ""
    if not name:
        name = new_campaign("confirm")
        plan = repeated(load_plan(fleet.plans / f"{_plan_of(fleet, seen)}.json"), fresh_values(against))
        nodes = sorted({*seen.suspects(), *controls(seen)})
        # The batch system gives a node to this job alone, so that its runner need not check for other work.
        settings = {"cluster": site.cluster, "confirms": seen.campaign, "beside": True, "scratch": site.scratch}
        begin(fleet, name, plan, engine, NodeSelection(nodes=fold(nodes)), settings)
    carry_out(fleet, site, engine, name, runner, show)
    panel = read_panel(fleet, [name], site.cluster)
    if not panel.nodes:
        raise nothing_measured(fleet, name)
    return Confirmation(panel, against)


def _begun(fleet: Fleet, seen: FleetState) -> str:
    """Return the newest confirmation of a campaign; "" if it has no confirmation."""
    for name in reversed(fleet.campaigns()):
        if name.startswith("confirm") and Campaign.load(fleet, name).begun.get("confirms") == seen.campaign:
            return name
    return ""


def _plan_of(fleet: Fleet, seen: FleetState) -> str:
    return str(Campaign.load(fleet, seen.campaign).begun["plan"])


def repeated(plan: NodePlan, values: int) -> NodePlan:
    """Return the plan with `values` repetitions of each step, each in a fresh process with other random numbers."""
    first = [
        dict(step)
        for step in plan.steps
        if not step["id"].rpartition(".r")[2].isdecimal() or step["id"].endswith(".r1")
    ]
    steps: list[dict[str, Any]] = []
    for repetition in range(1, values + 1):
        for step in first:
            seeded = "--seed" in step["argv"] or "program" in step  # programs of users have no such option
            argv = [*step["argv"], *([] if seeded else ["--seed", str(repetition)])]
            stem = step["id"].removesuffix(".r1").partition("-")[2]
            steps.append({**step, "id": f"{len(steps) + 1:03d}-{stem}.r{repetition}", "argv": argv})
    return replace(plan, steps=steps, alone=False, limit_s=min(LONGEST_S, sum(step["limit_s"] for step in steps)))
