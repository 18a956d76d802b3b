"""The nodes of a fleet, their racks and their open cases, from the folder of the fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meshmark.errors import MeshmarkError
from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.cases import CasesState
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import expand, in_order
from meshmark.fleet.site import Site

CAMPAIGNS: Final = 7  # number of newest campaigns whose nodes are the nodes of the fleet


def racks_of(site: Site) -> dict[str, list[str]]:
    """Return the nodes of each rack in fleet.toml."""
    return {name: expand(nodes) for name, nodes in site.racks.items()}


def nodes_of(fleet: Fleet, site: Site, warn: Callable[[str], None]) -> list[str]:
    """Return the nodes that fleet.toml names and the nodes of the last campaigns, in natural order.

    Args:
        fleet: The folder of the fleet.
        site: The content of its fleet.toml.
        warn: Called with the reason why the nodes of a campaign are left out: its journal is damaged.
    """
    nodes = {name for names in racks_of(site).values() for name in names}
    nodes |= set(expand(site.nodes)) if site.nodes else set()
    for campaign in fleet.campaigns()[-CAMPAIGNS:]:
        try:
            nodes |= set(Campaign.load(fleet, campaign).members())
        except MeshmarkError as error:
            warn(f"the nodes of campaign {campaign} are left out: {error}")
    return in_order(nodes)


def cases_of(fleet: Fleet, site: Site) -> dict[str, tuple[bool, str]]:
    """Return for each node with an open case whether it computes wrongly, and a description of what is wrong.

    Raises:
        MeshmarkError: The cases cannot be read.
    """
    cases = {}
    for name, case in CasesState.load(fleet, site.cluster).open.items():
        worst = [f"{m.instrument} {m.metric}: {100 * m.by:.1f} % worse" for m in case.metrics[:3]]
        cases[name] = bool(case.wrong), "; ".join([*case.wrong, *worst])
    return cases
