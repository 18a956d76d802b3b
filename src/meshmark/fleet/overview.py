"""The state and the history of a fleet, for pages and programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.cases import CasesState, NamedNode
from meshmark.fleet.data.values import is_sound, node_rows
from meshmark.fleet.folder import Fleet, time_of
from meshmark.fleet.health.assessment import FleetState, campaigns_of, look
from meshmark.fleet.health.trends import ClassLevelChange, NewFact, Trend, new_facts, steps, trends
from meshmark.fleet.nodesets import expand, in_order
from meshmark.fleet.site import Site
from meshmark.store.layout import date_of


@dataclass(frozen=True, slots=True)
class ClassOverview:
    """The history of a class of nodes.

    Attributes:
        at: Index of the class in `FleetState.classes`.
        steps: Changes of its level.
        facts: Changes in the configuration of most of its nodes.
    """

    at: int
    trend: Trend
    steps: Sequence[ClassLevelChange]
    facts: Sequence[NewFact]


@dataclass(frozen=True, slots=True)
class Overview:
    """The state and the history of a fleet.

    Attributes:
        campaigns: Campaigns of the trends, oldest first; the last is the campaign of `seen`.
        open: Open cases that were named until this campaign: nodes that compute wrongly first, then the newest.
        left: Nodes of the campaign that did not measure, or whose values do not count, each with the reason.
        racks: Names of nodes by rack; "" has the nodes that are in no rack.
    """

    cluster: str
    seen: FleetState
    campaigns: Sequence[str]
    classes: Sequence[ClassOverview]
    open: Sequence[NamedNode]
    closed: Sequence[tuple[NamedNode, str]]
    left: Mapping[str, str]
    racks: Mapping[str, Sequence[str]]

    def to_json(self) -> dict[str, Any]:
        """Return the overview as JSON for programs."""
        names = self.campaigns
        return {
            "type": "fleet",
            "cluster": self.cluster,
            "campaign": self.seen.campaign,
            "nodes": len(self.seen.panel.nodes),
            "suspects": self.seen.suspects(),
            "open": [dataclasses.asdict(case) for case in self.open],
            "closed": [{**dataclasses.asdict(case), "closed": campaign} for case, campaign in self.closed],
            "left": dict(self.left),
            "classes": [
                {
                    "name": self.seen.classes[group.at].of.name,
                    "nodes": len(group.trend.nodes),
                    "changes": [
                        {
                            "key": s.point.key,
                            "instrument": s.point.instrument,
                            "metric": s.point.metric,
                            "conditions": s.point.conditions,
                            "by": s.by,
                            "worse": s.worse,
                            "campaign": names[s.at],
                            "p": s.p,
                        }
                        for s in group.steps
                    ],
                    "facts": [{**dataclasses.asdict(f), "at": names[f.at]} for f in group.facts],
                }
                for group in self.classes
            ],
        }


def overview(fleet: Fleet, site: Site, until: str = "", days: int = 30) -> Overview:
    """Read a fleet.

    Args:
        fleet: Folder of the fleet.
        site: Settings of the site.
        until: The campaign to show; "": the newest.
        days: Length of the history, by the dates of the campaigns.

    Raises:
        AbsentError: No campaign has results.
        MeshmarkError: A file cannot be read.
    """
    cluster = site.cluster
    seen = look(fleet, cluster, until.partition("-")[0], until)
    first_date = (date.fromisoformat(date_of(seen.campaign)) - timedelta(days=days)).isoformat()
    kind = seen.campaign.partition("-")[0]
    names = [n for n in campaigns_of(fleet, cluster, kind, seen.campaign) if date_of(n) > first_date]
    members = [[seen.panel.nodes[m] for m in group.of.members] for group in seen.classes]
    trends_and_facts = zip(
        trends(fleet, cluster, names, members), new_facts(fleet, cluster, names, members), strict=True
    )
    overviews = [
        ClassOverview(index, trend, steps(trend), facts) for index, (trend, facts) in enumerate(trends_and_facts)
    ]
    state = CasesState.load(fleet, cluster)
    # Without cases that were named after the campaign that is shown. Both checks and surveys name nodes.
    cases = [case for case in state.open.values() if time_of(case.campaign) <= time_of(seen.campaign)]
    cases.sort(key=lambda c: (bool(c.wrong), time_of(c.campaign), c.node), reverse=True)
    unmeasured = _left(fleet, cluster, seen)
    return Overview(
        cluster, seen, names, overviews, cases, state.closed, unmeasured, _racks(site, {*seen.panel.nodes, *unmeasured})
    )


def _left(fleet: Fleet, cluster: str, seen: FleetState) -> dict[str, str]:
    rows = {row["node"]: row for row in node_rows(fleet, [seen.campaign], cluster)}
    campaign = Campaign.load(fleet, seen.campaign)
    reasons = {n: campaign.left.get(n, "no result") for n in campaign.nodes if n not in rows}
    for name, row in rows.items():
        if not is_sound(row):
            reasons[name] = row["doubt"] or row["damage"] or row["status"]
    return dict(sorted(reasons.items()))


def _racks(site: Site, nodes: Collection[str]) -> dict[str, list[str]]:
    racks = {name: expand(names) for name, names in site.racks.items()}
    placed = {node for names in racks.values() for node in names}
    unplaced = in_order(node for node in nodes if node not in placed)
    return {**racks, **({"": unplaced} if unplaced else {})}
