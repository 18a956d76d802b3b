"""What the folder of a fleet says of its nodes: which there are, in which racks, and which have open cases."""

from __future__ import annotations

from typing import Final

from meshmark.fleet.campaign import Campaign
from meshmark.fleet.cases import State
from meshmark.fleet.folder import Fleet
from meshmark.fleet.nodesets import expand, in_order
from meshmark.fleet.site import Site

CAMPAIGNS: Final = 7  # the newest, whose nodes are those of the fleet


def racks_of(site: Site) -> dict[str, list[str]]:
    """Nodes by rack, as fleet.toml has them."""
    return {name: expand(nodes) for name, nodes in site.racks.items()}


def nodes_of(fleet: Fleet, site: Site) -> list[str]:
    """Nodes that fleet.toml names and those of the last campaigns, in natural order.

    Raises:
        MeshmarkError: The journal of a campaign is damaged.
    """
    found = {name for names in racks_of(site).values() for name in names}
    found |= set(expand(site.nodes)) if site.nodes else set()
    for name in fleet.campaigns()[-CAMPAIGNS:]:
        found |= set(Campaign.load(fleet, name).members())
    return in_order(found)


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
