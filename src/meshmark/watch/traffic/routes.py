"""Derives the shortest routes between the nodes of a machine from the links in a header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.frames import Header
from meshmark.watch.links.network import FAR, distances_to

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Routers and the directed links between them.

    Attributes:
        router_of: Router of each node.
        ends: Routers at the start and the end of each link; None for a link that lies inside a node, as of a bus.
        routers: Number of routers.
    """

    router_of: tuple[int, ...]
    ends: tuple[tuple[int, int] | None, ...]
    routers: int

    @classmethod
    def of(cls, header: Header) -> LinkGraph:
        """Return the graph of a header; a machine without routers has one for each node."""
        nodes = header.components.get("node", ())
        routers = header.components.get("router", ())
        router_of = tuple(int(n.get("router", i)) if routers else i for i, n in enumerate(nodes))
        is_bus = [bool(r.get("bus")) for r in routers] or [False] * len(nodes)

        def ends(link: Mapping[str, Any]) -> tuple[int, int] | None:
            a, b = (int(link.get(f"{key}_router", link.get(key, -1))) for key in ("from", "to"))
            are_known = 0 <= a < len(is_bus) and 0 <= b < len(is_bus) and a != b
            return (a, b) if are_known and not (is_bus[a] or is_bus[b]) else None

        return cls(router_of, tuple(map(ends, header.components.get("link", ()))), len(is_bus))

    def nearer_links(self, target: int) -> list[tuple[int, list[int]]]:
        """Return, for each router from which a router can be reached, its links on shortest routes; farthest first."""
        distance = distances_to(self.routers, filter(None, self.ends), target)
        nearer: dict[int, list[int]] = {r: [] for r, d in enumerate(distance) if 0 < d < FAR}
        for number, pair in enumerate(self.ends):
            if pair is not None and distance[pair[1]] < distance[pair[0]] < FAR:
                nearer[pair[0]].append(number)
        return sorted(nearer.items(), key=lambda entry: -distance[entry[0]])


def route_shares(graph: LinkGraph, weights: Floats | None = None) -> Floats:
    """Return the share of the packets between nodes that each link carries.

    Packets take shortest routes. Each router divides them among its links on these routes.

    Args:
        graph: Routers and links.
        weights: Weights by which routers divide packets, shape (links,); None: evenly.

    Returns:
        Array of shape (nodes, nodes, links): from node, to node, link.
    """
    nodes, links = len(graph.router_of), len(graph.ends)
    weight = np.ones(links) if weights is None else weights
    shares = np.zeros((nodes, nodes, links))
    routers = np.array(graph.router_of, dtype=np.intp)
    for router in dict.fromkeys(graph.router_of):
        flow = np.zeros((graph.routers, nodes))
        flow[routers, np.arange(nodes)] = 1.0
        carried = np.zeros((nodes, links))
        for r, choices in graph.nearer_links(router):
            total = sum(weight[k] for k in choices)
            if total <= 0:
                continue
            for k in choices:
                part = flow[r] * (weight[k] / total)
                carried[:, k] += part
                ends = graph.ends[k]
                if ends is not None:
                    flow[ends[1]] += part
        shares[:, routers == router] = carried[:, None, :]
    return shares
