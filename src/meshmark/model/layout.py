"""Lays out the routers of a modelled machine for drawing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from meshmark.model.engine import ask
from meshmark.model.machine import MachineFile


def shape_of(machine: MachineFile) -> Mapping[str, Any]:
    """Return the nodes, routers and links that the simulator describes (docs/reference/model-protocol.md)."""
    return ask(machine, [{"kind": "describe"}], threads=1)[0]


def layout(shape: Mapping[str, Any], kind: str) -> list[tuple[float, float]]:
    """Return the position of each router, in units of the distance between neighbours."""
    routers = shape["routers"]
    grid = [r["place"] for r in routers if not r["bus"]]
    node_router = {n["router"] for n in shape["nodes"]}
    if kind in {"torus", "mesh"} and grid and len(grid[0]) == 2:
        return [(float(r["place"][0]), float(r["place"][1])) if r["place"] else (0.0, 0.0) for r in routers]
    if kind == "hypercube" and grid:
        # Each dimension has its own vector: nested squares, slightly skewed so that no links coincide.
        def arrow(d: int) -> tuple[float, float]:
            length, skew = 2.4 ** (d // 2), 0.28 * (-0.6) ** (d // 2)
            return (length, skew * length) if d % 2 == 0 else (skew * length, length)

        arrows = [arrow(d) for d in range(len(grid[0]))]
        return [
            (
                sum(b * a[0] for b, a in zip(r["place"], arrows, strict=False)),
                sum(b * a[1] for b, a in zip(r["place"], arrows, strict=False)),
            )
            for r in routers
        ]
    hosts = [r["router"] for r in routers if r["router"] in node_router]
    switches = [r["router"] for r in routers if r["router"] not in node_router and not r["bus"]]
    places = [(0.0, 0.0)] * len(routers)
    if switches and kind in {"fat_tree", "switches", "crossbar"}:
        # Leaves in a row, switches evenly spaced in rows above them.
        level = dict.fromkeys(hosts, 0)
        for i, r in enumerate(hosts):
            places[r] = (float(i), 0.0)
        children: dict[int, list[int]] = {r: [] for r in switches}
        for link in shape["links"]:
            if link["to"] in children and link["from"] < link["to"]:
                children[link["to"]].append(link["from"])
        for r in switches:
            level[r] = 1 + max((level.get(c, 0) for c in children[r]), default=0)
        rows: dict[int, list[int]] = {}
        for r in switches:
            rows.setdefault(level[r], []).append(r)
        for lvl, row in rows.items():
            for i, r in enumerate(row):
                places[r] = ((i + 0.5) * len(hosts) / len(row) - 0.5, -1.6 * lvl)
        return places
    radius = max(1.0, len(hosts) / (2 * math.pi) * 1.1)
    for i, r in enumerate(hosts + switches):
        angle = 2 * math.pi * i / max(1, len(hosts) + len(switches)) - math.pi / 2
        places[r] = (
            (radius * math.cos(angle), radius * math.sin(angle)) if len(hosts) + len(switches) > 1 else (0.0, 0.0)
        )
    return places
