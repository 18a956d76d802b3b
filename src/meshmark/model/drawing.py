"""The mesh of a described machine, drawn: as text for terminals, as SVG for pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any, Final

from meshmark.model.engine import ask
from meshmark.model.machine import MachineFile

# Told apart without colour too: dash patterns differ. Colours of the Okabe-Ito palette.
_STROKES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#e69f00", "1 4"))

_DOWN: Final = {"-": "|", "=": "‖", "~": "¦", ".": ":"}  # the same kind of link across and down, in text

_STYLE: Final = (
    ".node{fill:#f4f6f8;stroke:#5a6672}.switch{fill:#dde3e8;stroke:#5a6672}text{fill:#1d252c}.legend{font-size:12px}"
    ".job{font-size:9px;fill:#1d252c}"
    "@media (prefers-color-scheme:dark){.node{fill:#262d33;stroke:#8b98a5}.switch{fill:#39434c;stroke:#8b98a5}"
    "text{fill:#e8edf1}.job{fill:#1d252c}}"
)


def _describe(machine: MachineFile) -> Mapping[str, Any]:
    return ask(machine, [{"kind": "describe"}], threads=1)[0]


def mesh_text(machine: MachineFile) -> str:
    """A drawing of up to 80 columns, or a sentence where the mesh is too large or no grid."""
    shape = _describe(machine)
    nodes, links = shape["nodes"], shape["links"]
    kinds: dict[str, int] = {}
    for link in links:
        kinds[link["kind"]] = kinds.get(link["kind"], 0) + 1
    used = ", ".join(f"{count // 2} {kind}" for kind, count in kinds.items() if kind not in {"port", "bus"})
    said = f"{len(nodes)} nodes, {shape['cpus']} CPUs, {shape['memories']} memory controllers"
    said += f", {shape['io_ports']} I/O ports"
    said += f"; links: {used}\n" if used else "\n"
    places = [r["place"] for r in shape["routers"] if not r["bus"]]
    if not places or not places[0] or len(places[0]) > 2 or machine.data["topology"]["kind"] == "hypercube":
        return said
    width = 1 + max(p[0] for p in places)
    height = 1 + max(p[1] for p in places) if len(places[0]) == 2 else 1
    if width > 10 or height > 12:
        return said
    mark = dict(zip(kinds, "-=~.", strict=False))
    by_pair = {(x["from"], x["to"]): x for x in links}
    lines = []
    for y in range(height):
        row, below = "", ""
        for x in range(width):
            here = x + y * width
            row += f"[{here:3d}]"
            right = by_pair.get((here, (x + 1) % width + y * width))
            if x + 1 < width:
                row += mark.get(right["kind"], "-") * 2 if right else "  "
            elif width > 2 and right and right["direction"] == 1:
                row += mark.get(right["kind"], "-") + ">"
            down = by_pair.get((here, x + (y + 1) % height * width))
            last = y + 1 == height
            sign = _DOWN[mark.get(down["kind"], "-")] if down else " "
            below += f"  {sign if not last or height > 2 else ' '}    "
        lines.append(row)
        if height > 1:
            lines.append(below)
    legend = ", ".join(f"{m} {_DOWN[m]} {k}" for k, m in mark.items() if k not in {"port", "bus"})
    wraps = "" if machine.data["topology"]["kind"] == "mesh" else "; links at the edges wrap round"
    return said + "\n" + "\n".join(line.rstrip() for line in lines) + f"\n\n{legend}{wraps}\n"


def layout(shape: Mapping[str, Any], kind: str) -> list[tuple[float, float]]:
    """Places of all routers, in units of one node distance."""
    routers = shape["routers"]
    grid = [r["place"] for r in routers if not r["bus"]]
    node_router = {n["router"] for n in shape["nodes"]}
    if kind in {"torus", "mesh"} and grid and len(grid[0]) == 2:
        return [(float(r["place"][0]), float(r["place"][1])) if r["place"] else (0.0, 0.0) for r in routers]
    if kind == "hypercube" and grid:
        # Each dimension is an arrow of its own: squares inside squares, a little askew so that no links coincide.
        def arrow(d: int) -> tuple[float, float]:
            long, skew = 2.4 ** (d // 2), 0.28 * (-0.6) ** (d // 2)
            return (long, skew * long) if d % 2 == 0 else (skew * long, long)

        arrows = [arrow(d) for d in range(len(grid[0]))]
        return [
            (sum(b * a[0] for b, a in zip(r["place"], arrows, strict=False)),
             sum(b * a[1] for b, a in zip(r["place"], arrows, strict=False)))
            for r in routers
        ]  # fmt: skip
    hosts = [r["router"] for r in routers if r["router"] in node_router]
    others = [r["router"] for r in routers if r["router"] not in node_router and not r["bus"]]
    places = [(0.0, 0.0)] * len(routers)
    if others and kind in {"fat_tree", "switches", "crossbar"}:
        # Leaves in a row, switches above the middle of what hangs below them.
        level = dict.fromkeys(hosts, 0)
        for i, r in enumerate(hosts):
            places[r] = (float(i), 0.0)
        below: dict[int, list[int]] = {r: [] for r in others}
        for link in shape["links"]:
            if link["to"] in below and link["from"] < link["to"]:
                below[link["to"]].append(link["from"])
        for r in others:
            level[r] = 1 + max((level.get(c, 0) for c in below[r]), default=0)
        rows: dict[int, list[int]] = {}
        for r in others:
            rows.setdefault(level[r], []).append(r)
        for lvl, row in rows.items():
            for i, r in enumerate(row):
                places[r] = ((i + 0.5) * len(hosts) / len(row) - 0.5, -1.6 * lvl)
        return places
    radius = max(1.0, len(hosts) / (2 * math.pi) * 1.1)
    for i, r in enumerate(hosts + others):
        angle = 2 * math.pi * i / max(1, len(hosts) + len(others)) - math.pi / 2
        places[r] = (radius * math.cos(angle), radius * math.sin(angle)) if len(hosts) + len(others) > 1 else (0.0, 0.0)
    return places


def mesh_svg(
    machine: MachineFile,
    load: Mapping[tuple[int, int], float] | None = None,
    held: Mapping[int, tuple[str, str]] | None = None,
) -> str:
    """The mesh as SVG, light and dark by the reader's setting.

    Args:
        load: share of each link (from, to) that is used; draws it as width and says it in the tooltip.
        held: node → who holds it, as a word, and the colour of that one.
    """
    shape = _describe(machine)
    topology = machine.data["topology"]["kind"]
    places = layout(shape, topology)
    step, pad = 74.0, 46.0
    xs, ys = [p[0] for p in places], [p[1] for p in places]
    left, top = min(xs), min(ys)
    width, height = (max(xs) - left) * step + 2 * pad, (max(ys) - top) * step + 2 * pad
    at = [((x - left) * step + pad, (y - top) * step + pad) for x, y in places]
    buses = {r["router"] for r in shape["routers"] if r["bus"]}
    kinds: list[str] = []
    for link in shape["links"]:
        if link["kind"] not in kinds and link["kind"] not in {"bus", "port"}:
            kinds.append(link["kind"])
    parts = []
    for link in shape["links"]:
        a, b = link["from"], link["to"]
        if a in buses or b in buses or (a > b and (load is None or (b, a) in load)):
            continue
        colour, dash = _STROKES[kinds.index(link["kind"]) % len(_STROKES)]
        (x1, y1), (x2, y2) = at[a], at[b]
        wraps = topology in {"torus", "mesh"} and (abs(x1 - x2) > step * 1.01 or abs(y1 - y2) > step * 1.01)
        share = max(load.get((a, b), 0.0), load.get((b, a), 0.0)) if load is not None else None
        wide = 2.0 if share is None else 1.0 + 7.0 * share
        bend = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        if wraps:
            over = 46.0
            mx, my = (x1 + x2) / 2, (y1 + y2) / 2
            bend = (f"M{x1:.1f} {y1:.1f}Q{mx:.1f} {my - over:.1f} {x2:.1f} {y2:.1f}" if abs(y1 - y2) < 1
                    else f"M{x1:.1f} {y1:.1f}Q{mx - over:.1f} {my:.1f} {x2:.1f} {y2:.1f}")  # fmt: skip
        told = f"{a} – {b}, {link['kind']}" + ("" if share is None else f", {100 * share:.0f} %")
        parts.append(
            f'<path d="{bend}" fill="none" stroke="{colour}" stroke-width="{wide:.1f}" '
            f'stroke-dasharray="{dash}"><title>{escape(told)}</title></path>'
        )
    nodes_at: dict[int, list[Mapping[str, Any]]] = {}
    for node in shape["nodes"]:
        nodes_at.setdefault(node["router"], []).append(node)
    for r, (x, y) in enumerate(at):
        if r in buses:
            continue
        here = nodes_at.get(r, [])
        label = ",".join(str(n["node"]) for n in here[:4]) if here else ""
        told = (
            "; ".join(f"node {n['node']}: {n['cpus']} CPUs, {n['memories']} memory controllers" for n in here)
            or f"switch {r}"
        )
        job = ""
        who, fill = (held or {}).get(here[0]["node"], ("", "")) if here else ("", "")
        if who:
            told = f"{told}; held by job {who}"
            job = f'<text x="{x:.1f}" y="{y + 11.5:.1f}" text-anchor="middle" class="job">job {who}</text>'
        ink, dark = (f' style="fill:{fill}"', ' style="fill:#1d252c"') if fill else ("", "")
        box = (
            f'<rect x="{x - 19:.1f}" y="{y - 15:.1f}" width="38" height="30" rx="5" class="node"{ink}/>'
            if here
            else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="11" class="switch"/>'
        )
        parts.append(
            f'<g>{box}<text x="{x:.1f}" y="{y + (0.5 if job else 4.5):.1f}" text-anchor="middle"{dark}>'
            f"{label}</text>{job}"
            f"<title>{escape(told)}</title></g>"
        )
    legend = ""
    for i, kind in enumerate(kinds):
        colour, dash = _STROKES[i % len(_STROKES)]
        rate = machine.data["links"][kind]
        text = f"{kind}: {rate['bandwidth_gb_per_s']:g} GB/s, {rate['latency_ns']:g} ns"
        y = height + 18 * i + 6
        legend += (
            f'<line x1="{pad - 17:.0f}" y1="{y}" x2="{pad + 15:.0f}" y2="{y}" stroke="{colour}" '
            f'stroke-width="2.5" stroke-dasharray="{dash}"/>'
            f'<text x="{pad + 22:.0f}" y="{y + 4}" class="legend">{escape(text)}</text>'
        )
    total = height + 18 * len(kinds) + 8
    wide = max(width, 300.0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {total:.0f}" width="{wide:.0f}" '
        f'height="{total:.0f}" font-family="system-ui, sans-serif" font-size="13" role="img" '
        f'aria-label="{escape(machine.title)}"><style>{_STYLE}</style>' + "".join(parts) + legend + "</svg>\n"
    )
