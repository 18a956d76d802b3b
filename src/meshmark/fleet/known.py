"""What the folder of a fleet says of its nodes: which there are, in which racks, and which have open cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meshmark.errors import MeshmarkError
from meshmark.fleet.campaign import Campaign
from meshmark.fleet.cases import State
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import expand, in_order
from meshmark.fleet.site import Site

CAMPAIGNS: Final = 7  # the newest, whose nodes are those of the fleet


def racks_of(site: Site) -> dict[str, list[str]]:
    """Nodes by rack, as fleet.toml has them."""
    return {name: expand(nodes) for name, nodes in site.racks.items()}


def nodes_of(fleet: Fleet, site: Site, warn: Callable[[str], None]) -> list[str]:
    """Nodes that fleet.toml names and the nodes of the last campaigns, in natural order.

    Args:
        fleet: The folder of the fleet.
        site: What its fleet.toml says.
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
    """By node with an open case, whether it computes wrongly, and what is wrong with it.

    Raises:
        MeshmarkError: They cannot be read.
    """
    found = {}
    for name, case in State.load(fleet, site.cluster).open.items():
        worst = [f"{m.instrument} {m.metric}: {100 * m.by:.1f} % worse" for m in case.metrics[:3]]
        found[name] = bool(case.wrong), "; ".join([*case.wrong, *worst])
    return found
