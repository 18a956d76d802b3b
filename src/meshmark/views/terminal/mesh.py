"""Draws the mesh of a modelled machine as text."""

from __future__ import annotations

from typing import Final

from meshmark.model.layout import shape_of
from meshmark.model.machine import MachineFile

_DOWN: Final = {"-": "|", "=": "‖", "~": "¦", ".": ":"}  # characters for the same kind of link, horizontal and vertical


def mesh_text(machine: MachineFile) -> str:
    """Return a summary of the mesh, with a drawing of up to 80 columns if it is a grid that fits."""
    shape = shape_of(machine)
    nodes, links = shape["nodes"], shape["links"]
    kinds: dict[str, int] = {}
    for link in links:
        kinds[link["kind"]] = kinds.get(link["kind"], 0) + 1
    links_text = ", ".join(f"{count // 2} {kind}" for kind, count in kinds.items() if kind not in {"port", "bus"})
    summary = f"{len(nodes)} nodes, {shape['cpus']} CPUs, {shape['memories']} memory controllers"
    summary += f", {shape['io_ports']} I/O ports"
    summary += f"; links: {links_text}\n" if links_text else "\n"
    places = [r["place"] for r in shape["routers"] if not r["bus"]]
    if not places or not places[0] or len(places[0]) > 2 or machine.data["topology"]["kind"] == "hypercube":
        return summary
    width = 1 + max(p[0] for p in places)
    height = 1 + max(p[1] for p in places) if len(places[0]) == 2 else 1
    if width > 10 or height > 12:
        return summary
    mark = dict(zip(kinds, "-=~.", strict=False))
    by_pair = {(x["from"], x["to"]): x for x in links}
    lines = []
    for y in range(height):
        row, row_below = "", ""
        for x in range(width):
            router = x + y * width
            row += f"[{router:3d}]"
            right = by_pair.get((router, (x + 1) % width + y * width))
            if x + 1 < width:
                row += mark.get(right["kind"], "-") * 2 if right else "  "
            elif width > 2 and right and right["direction"] == 1:
                row += mark.get(right["kind"], "-") + ">"
            down = by_pair.get((router, x + (y + 1) % height * width))
            last = y + 1 == height
            sign = _DOWN[mark.get(down["kind"], "-")] if down else " "
            row_below += f"  {sign if not last or height > 2 else ' '}    "
        lines.append(row)
        if height > 1:
            lines.append(row_below)
    legend = ", ".join(f"{m} {_DOWN[m]} {k}" for k, m in mark.items() if k not in {"port", "bus"})
    wraps = "" if machine.data["topology"]["kind"] == "mesh" else "; links at the edges wrap around"
    return summary + "\n" + "\n".join(line.rstrip() for line in lines) + f"\n\n{legend}{wraps}\n"
