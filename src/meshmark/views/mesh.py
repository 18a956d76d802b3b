"""Draws the mesh of a modelled machine as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meshmark.model.layout import layout, shape_of
from meshmark.model.machine import MachineFile
from meshmark.views.render import render

# Colours of the Okabe-Ito palette; dash patterns distinguish the links without colour.
_STROKES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#e69f00", "1 4"))


def mesh_svg(
    machine: MachineFile,
    load: Mapping[tuple[int, int], float] | None = None,
    held: Mapping[int, tuple[str, str]] | None = None,
    light: bool = False,
) -> str:
    """Draw the mesh as SVG for light and dark colour schemes.

    Args:
        machine: The modelled machine.
        load: Utilisation of each link (from, to), shown as line width and in the tooltip.
        held: Job and colour by node.
        light: Draw for a light background only, whatever the reader prefers.
    """
    shape = shape_of(machine)
    topology = machine.data["topology"]["kind"]
    places = layout(shape, topology)
    step, pad = 74.0, 46.0
    xs, ys = [p[0] for p in places], [p[1] for p in places]
    left, top = min(xs), min(ys)
    width, height = (max(xs) - left) * step + 2 * pad, (max(ys) - top) * step + 2 * pad
    positions = [((x - left) * step + pad, (y - top) * step + pad) for x, y in places]
    buses = {r["router"] for r in shape["routers"] if r["bus"]}
    kinds: list[str] = []
    for link in shape["links"]:
        if link["kind"] not in kinds and link["kind"] not in {"bus", "port"}:
            kinds.append(link["kind"])
    links = []
    for link in shape["links"]:
        a, b = link["from"], link["to"]
        if a in buses or b in buses or (a > b and (load is None or (b, a) in load)):
            continue
        colour, dash = _STROKES[kinds.index(link["kind"]) % len(_STROKES)]
        (x1, y1), (x2, y2) = positions[a], positions[b]
        wraps = topology in {"torus", "mesh"} and (abs(x1 - x2) > step * 1.01 or abs(y1 - y2) > step * 1.01)
        share = max(load.get((a, b), 0.0), load.get((b, a), 0.0)) if load is not None else None
        line_width = 2.0 if share is None else 1.0 + 7.0 * share
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        if wraps:
            bulge = 46.0
            mx, my = (x1 + x2) / 2, (y1 + y2) / 2
            path = (
                f"M{x1:.1f} {y1:.1f}Q{mx:.1f} {my - bulge:.1f} {x2:.1f} {y2:.1f}"
                if abs(y1 - y2) < 1
                else f"M{x1:.1f} {y1:.1f}Q{mx - bulge:.1f} {my:.1f} {x2:.1f} {y2:.1f}"
            )
        tip = f"{a} – {b}, {link['kind']}" + ("" if share is None else f", {100 * share:.0f} %")
        links.append({"path": path, "colour": colour, "dash": dash, "wide": line_width, "tip": tip})
    nodes_at: dict[int, list[Mapping[str, Any]]] = {}
    for node in shape["nodes"]:
        nodes_at.setdefault(node["router"], []).append(node)
    routers = []
    for r, (x, y) in enumerate(positions):
        if r in buses:
            continue
        router_nodes = nodes_at.get(r, [])
        tip = (
            "; ".join(f"node {n['node']}: {n['cpus']} CPUs, {n['memories']} memory controllers" for n in router_nodes)
            or f"switch {r}"
        )
        job, fill = (held or {}).get(router_nodes[0]["node"], ("", "")) if router_nodes else ("", "")
        routers.append(
            {
                "x": x,
                "y": y,
                "node": bool(router_nodes),
                "label": ",".join(str(n["node"]) for n in router_nodes[:4]),
                "job": job,
                "fill": fill,
                "tip": f"{tip}; held by job {job}" if job else tip,
            }
        )
    legend = []
    for i, kind in enumerate(kinds):
        colour, dash = _STROKES[i % len(_STROKES)]
        rate = machine.data["links"][kind]
        text = f"{kind}: {rate['bandwidth_gb_per_s']:g} GB/s, {rate['latency_ns']:g} ns"
        legend.append({"colour": colour, "dash": dash, "text": text, "y": height + 18 * i + 6})
    return render(
        "mesh.svg",
        title=machine.title,
        width=max(width, 300.0),
        height=height + 18 * len(kinds) + 8,
        pad=pad,
        links=links,
        routers=routers,
        legend=legend,
        light=light,
    )
