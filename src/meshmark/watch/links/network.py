"""The network of a recorded machine: its links, the shortest paths along them, and the loads that traffic causes.

Only the topology in the header is used, never the routing of the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.watch.frames import Header

Floats = NDArray[np.float64]
Table = Mapping[int, Sequence[int]]  # links on which each vertex sends the packets for one target

DIRECTIONS = (("east", "west"), ("south", "north"), ("up", "down"))
FAR = 1 << 30


def distances_to(vertices: int, ends: Iterable[tuple[int, int]], target: int) -> list[int]:
    """Return the number of links on the shortest path from each vertex to a target; `FAR` if there is no path.

    Args:
        vertices: Number of vertices.
        ends: First and last vertex of each directed link.
        target: The last vertex of the paths.
    """
    inputs: list[list[int]] = [[] for _ in range(vertices)]
    for begin, end in ends:
        inputs[end].append(begin)
    distance = [FAR] * vertices
    distance[target] = 0
    queue = deque([target])
    while queue:
        vertex = queue.popleft()
        for begin in inputs[vertex]:
            if distance[begin] == FAR:
                distance[begin] = distance[vertex] + 1
                queue.append(begin)
    return distance


@dataclass(frozen=True)
class LinkNetwork:
    """The directed links between the routers of a machine, or between its nodes if it has no routers.

    Attributes:
        vertices: Number of routers or nodes.
        ends: First and last vertex of each link.
        names, classes: Name and kind of each link.
        directions: Dimension and direction (1 or -1) of each link; None if the machine is not a grid.
        bytes_per_s: Bandwidth of each link; all 1 if one of them is not known.
        is_bus: Whether a link connects CPUs of a node with the router of the node, shape (links,).
        vertex_of_node: The vertex of each node.
    """

    vertices: int
    ends: tuple[tuple[int, int], ...]
    names: tuple[str, ...]
    classes: tuple[str, ...]
    directions: tuple[tuple[int, int] | None, ...]
    bytes_per_s: Floats
    is_bus: NDArray[np.bool_]
    vertex_of_node: tuple[int, ...]

    @cached_property
    def outputs(self) -> list[list[int]]:
        """Return the links that begin at each vertex, in the order of the links."""
        outputs: list[list[int]] = [[] for _ in range(self.vertices)]
        for link, (begin, _) in enumerate(self.ends):
            outputs[begin].append(link)
        return outputs

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """Return the number of links of the shortest path from one vertex to another, shape (vertices, vertices)."""
        return np.array([self.distances_to(target) for target in range(self.vertices)]).T

    def distances_to(self, target: int, without: int | None = None) -> list[int]:
        """Return the distance from each vertex to a target, along paths that do not use the vertex `without`."""
        return distances_to(self.vertices, (pair for pair in self.ends if without not in pair), target)

    @cached_property
    def shortest(self) -> list[dict[int, tuple[int, ...]]]:
        """Return by target the links of each vertex with which a shortest path to the target begins."""
        return [
            {
                vertex: tuple(
                    link
                    for link in self.outputs[vertex]
                    if self.distances[self.ends[link][1], target] + 1 == self.distances[vertex, target]
                )
                for vertex in range(self.vertices)
                if vertex != target and self.distances[vertex, target] < FAR
            }
            for target in range(self.vertices)
        ]

    def loads_to(self, target: int, sent: Floats, table: Table, weights: Floats) -> Floats:
        """Return the volume on each link if each vertex sends a volume to one target.

        Args:
            target: The vertex that receives everything.
            sent: Volume that each vertex sends, shape (vertices,).
            table: Links on which each vertex sends the packets for the target; they must not form a circle.
            weights: Where several links are possible, the volume is divided in proportion to their weights.
        """
        loads = np.zeros(len(self.ends))
        waiting = sent.copy()
        waiting[target] = 0.0
        for vertex in self._order(target, table):
            volume = waiting[vertex]
            if volume == 0:
                continue
            links = list(table[vertex])
            shares = volume * weights[links] / weights[links].sum()
            for link, share in zip(links, shares, strict=True):
                loads[link] += share
                waiting[self.ends[link][1]] += share
        return loads

    def _order(self, target: int, table: Table) -> list[int]:
        """Return the vertices so that each comes before those to which it sends the packets for the target."""
        senders = np.zeros(self.vertices, dtype=int)
        for links in table.values():
            for link in links:
                senders[self.ends[link][1]] += 1
        ready = [v for v in table if senders[v] == 0]
        order = []
        while ready:
            vertex = ready.pop()
            order.append(vertex)
            for link in table[vertex]:
                end = self.ends[link][1]
                senders[end] -= 1
                if senders[end] == 0 and end != target:
                    ready.append(end)
        if len(order) != len(table):
            raise ValueError("the packets for a target would move in a circle")
        return order

    def loads(self, volumes: Floats, weights: Floats | None = None) -> Floats:
        """Return the volume on each link if packets take the shortest paths.

        Args:
            volumes: Volume from each vertex (row) to each other one, shape (vertices, vertices).
            weights: Weights of the links where shortest paths divide; None: each link of a vertex gets the same share.
        """
        weights = np.ones(len(self.ends)) if weights is None else weights
        total = np.zeros(len(self.ends))
        for target in range(self.vertices):
            if np.any(volumes[:, target] > 0):
                total += self.loads_to(target, volumes[:, target], self.shortest[target], weights)
        return total

    @cached_property
    def tie_groups(self) -> list[int]:
        """Return a group of each link: the links of a group are equally attractive where shortest paths divide.

        In a grid, a group is a direction of a dimension; otherwise, each link is a group. In group 0 are the first of
        them, and links that are never chosen instead of others.
        """
        divided = [links for table in self.shortest for links in table.values() if len(links) > 1]
        chosen = sorted({link for links in divided for link in links})
        if any(self.directions):
            known = sorted({self.directions[link] or (-1, 0) for link in chosen})
            return [known.index(d or (-1, 0)) if (d or (-1, 0)) in known else 0 for d in self.directions]
        first = {self.ends[link][0]: link for link in reversed(chosen)}
        free = [link for link in chosen if first[self.ends[link][0]] != link]
        return [1 + free.index(link) if link in free else 0 for link in range(len(self.ends))]

    def direction_name(self, link: int) -> str:
        """Return the compass point of a link in a grid, or `+` or `-` with its dimension; "" without a grid."""
        if (direction := self.directions[link]) is None:
            return ""
        dimension, sign = direction
        grid_dimensions = 1 + max(d[0] for d in self.directions if d is not None)
        if grid_dimensions <= len(DIRECTIONS):
            return DIRECTIONS[dimension][0 if sign > 0 else 1]
        return f"dimension {dimension} {'+' if sign > 0 else '-'}"


def network_of(header: Header) -> LinkNetwork:
    """Return the network of a recorded machine.

    Raises:
        MeshmarkError: The machine has no links, or its header does not say what they connect.
    """
    links = header.components.get("link", ())
    if not links:
        raise MeshmarkError(f"links: found none in the recording of {header.machine}: {header.why_unknown('link')}")
    has_routers = header.count("router") > 0
    keys = ("from_router", "to_router") if has_routers else ("from", "to")
    ends = []
    for link in links:
        begin, end = (link.get(key) for key in keys)
        if not isinstance(begin, int) or not isinstance(end, int):
            raise MeshmarkError(f"links: the recording does not say what link {link.get('name')} connects")
        ends.append((begin, end))
    nodes = header.components.get("node", ())
    vertices = header.count("router") if has_routers else max(len(nodes), 1 + max(max(e) for e in ends))
    rates = np.array([_rate(link) for link in links])
    buses = {i for i, router in enumerate(header.components.get("router", ())) if router.get("bus") is True}
    is_bus = np.array([not buses.isdisjoint(pair) for pair in ends])
    return LinkNetwork(
        vertices,
        tuple(ends),
        tuple(header.names("link")),
        tuple(str(link.get("kind", "link")) for link in links),
        tuple(_direction(link) for link in links),
        np.where(is_bus, 1.0, rates) if np.all(rates[~is_bus] > 0) else np.ones(len(links)),
        is_bus,
        tuple(int(n["router"]) if has_routers else i for i, n in enumerate(nodes)),
    )


def _rate(link: Mapping[str, Any]) -> float:
    rate = link.get("bytes_per_s")
    return float(rate) if isinstance(rate, int | float) and not isinstance(rate, bool) else 0.0


def _direction(link: Mapping[str, Any]) -> tuple[int, int] | None:
    dimension, sign = link.get("dimension"), link.get("direction")
    return (dimension, sign) if isinstance(dimension, int) and isinstance(sign, int) and dimension >= 0 else None
