"""The mesh of a described machine as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

from meshmark.model.layout import layout, shape_of
from meshmark.model.machine import MachineFile

# Told apart without colour too: dash patterns differ. Colours of the Okabe-Ito palette.
_STROKES: Final = (("#0072b2", ""), ("#d55e00", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#e69f00", "1 4"))

_STYLE: Final = (
    ".node{fill:#f4f6f8;stroke:#5a6672}.switch{fill:#dde3e8;stroke:#5a6672}text{fill:#1d252c}.legend{font-size:12px}"
    ".job{font-size:9px;fill:#1d252c}"
    "@media (prefers-color-scheme:dark){.node{fill:#262d33;stroke:#8b98a5}.switch{fill:#39434c;stroke:#8b98a5}"
    "text{fill:#e8edf1}.job{fill:#1d252c}}"
)


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
    shape = shape_of(machine)
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
            bend = (
                f"M{x1:.1f} {y1:.1f}Q{mx:.1f} {my - over:.1f} {x2:.1f} {y2:.1f}"
                if abs(y1 - y2) < 1
                else f"M{x1:.1f} {y1:.1f}Q{mx - over:.1f} {my:.1f} {x2:.1f} {y2:.1f}"
            )
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
