"""Measures suspected nodes and switches again, with other partners, in a campaign of its own."""

from __future__ import annotations

from meshmark.fleet.campaigns.campaign import Campaign, NodeSelection
from meshmark.fleet.campaigns.carry_out import UNSEEN, ProgressDisplay
from meshmark.fleet.engines.engine import Engine
from meshmark.fleet.folder import Fleet
from meshmark.fleet.network.pairs import CONFIRMING, begin_pairs, measure_pairs
from meshmark.fleet.network.slow_links import NetworkState, NetworkTest, draw_fresh, read_exchange, roles, tests
from meshmark.fleet.nodesets import fold
from meshmark.fleet.plan import load_plan
from meshmark.fleet.site import Site


def confirm_network(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    seen: NetworkState,
    show: ProgressDisplay = UNSEEN,
) -> list[NetworkTest]:
    """Measure the suspects again and return their tests; an earlier confirmation of this campaign is resumed.

    Raises:
        MeshmarkError: The engine does not answer, or no pair has measured.
    """
    node_roles = roles(seen)
    name = _begun(fleet, seen.seen.campaign)
    if not name:
        plan = load_plan(fleet.plans / f"{Campaign.load(fleet, seen.seen.campaign).begun['plan']}.json")
        nodes = [seen.seen.nodes[i] for i in (*node_roles.judged, *node_roles.healthy)]
        name = begin_pairs(
            fleet,
            site,
            engine,
            NodeSelection(nodes=fold(nodes)),
            plan,
            lambda names: draw_fresh(seen, node_roles, names, seed=1),
            CONFIRMING,
            confirms=seen.seen.campaign,
        )
    measure_pairs(fleet, site, engine, name, show)
    return tests(seen, node_roles, read_exchange(fleet, name, site.cluster))


def _begun(fleet: Fleet, campaign: str) -> str:
    """Return the newest confirmation of a campaign; "" if it has no confirmation."""
    for name in reversed(fleet.campaigns()):
        if name.startswith(CONFIRMING) and Campaign.load(fleet, name).begun.get("confirms") == campaign:
            return name
    return ""
