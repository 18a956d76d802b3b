"""Draws the topology of a machine as nested boxes: packages, NUMA nodes, last-level caches and cores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from meshmark.values.units import size
from meshmark.views.render import render

PAD, HEAD = 10, 22
# Fills of jobs after Okabe and Ito, light enough for dark text; labels distinguish the jobs without colour.
JOB_FILLS: Final = ("#8cc5e8", "#f3c77a", "#7fd1b3", "#e0a9c6", "#f2a27a", "#f4ea8a", "#b8c0c8", "#a9b8e8")


class _TopologyBox:
    """A rectangle with a title, and children in a roughly square grid."""

    def __init__(
        self,
        title: str,
        kind: str,
        children: Sequence[_TopologyBox] = (),
        width: int = 0,
        height: int = 0,
        fill: str = "",
    ) -> None:
        self.title, self.kind, self.children, self.fill = title, kind, list(children), fill
        self.x, self.y, self.width, self.height = 0, 0, width, height
        if self.children:
            cell_w = max(c.width for c in self.children)
            cell_h = max(c.height for c in self.children)
            n = len(self.children)
            target = 2.2 if kind in {"machine", "package"} else 3.0
            columns = max(1, min(n, round(math.sqrt(n * target * cell_h / cell_w))))
            while n % columns and columns < n and n // columns == n // (columns + 1):
                columns += 1
            rows = math.ceil(n / columns)
            for i, child in enumerate(self.children):
                child.x = PAD + (i % columns) * (cell_w + PAD)
                child.y = HEAD + PAD + (i // columns) * (cell_h + PAD)
                child.width, child.height = cell_w, cell_h
            self.width = max(PAD + columns * (cell_w + PAD), 8 * len(title) + 2 * PAD)
            self.height = HEAD + PAD + rows * (cell_h + PAD)

    def placed(self, x: int, y: int) -> Iterator[Mapping[str, Any]]:
        """Yield this box and all boxes in it, with absolute positions."""
        position = {"x": x + self.x, "y": y + self.y, "width": self.width, "height": self.height}
        yield {**position, "title": self.title, "kind": self.kind, "fill": self.fill}
        for child in self.children:
            yield from child.placed(position["x"], position["y"])


def topology_svg(topology: Mapping[str, Any], held: Mapping[int, Sequence[int]] | None = None) -> str:
    """Draw a topology (`machine.topology.Topology.to_dict`) as SVG; "" if it is empty.

    Memory-only nodes are drawn beside the packages; cores with several CPUs show all of them.

    Args:
        topology: The topology as JSON.
        held: Numbers (from 1) of the jobs that hold each CPU; if not None, the drawing is a stand-alone file.
    """
    nodes: list[Mapping[str, Any]] = list(topology.get("nodes") or [])
    cores: list[Mapping[str, Any]] = list(topology.get("cores") or [])
    packages: list[Mapping[str, Any]] = list(topology.get("packages") or [])
    if not cores or not packages:
        return ""
    caches = [c for c in topology.get("caches") or [] if c.get("kind") != "instruction"]
    last = max((int(c["level"]) for c in caches), default=0)
    groups = [c for c in caches if int(c["level"]) == last and last >= 2]
    dense = len(cores) > 64

    def core_box(core: Mapping[str, Any]) -> _TopologyBox:
        cpus = ",".join(map(str, core["cpus"]))
        jobs = sorted({j for c in core["cpus"] for j in (held or {}).get(c, ())})
        title = cpus if dense else f"CPU {cpus}"
        fill = ""
        if jobs:
            title += (":" if dense else " · job ") + "+".join(map(str, jobs))
            fill = JOB_FILLS[(jobs[0] - 1) % len(JOB_FILLS)]
        width = (34 if dense else 74) + (0 if not held else 24 if dense else 56)
        return _TopologyBox(title, "core", width=width, height=22 if dense else 30, fill=fill)

    def cores_of(cpus: set[int]) -> list[_TopologyBox]:
        return [core_box(c) for c in cores if cpus & set(c["cpus"])]

    def inner(cpus: set[int]) -> list[_TopologyBox]:
        boxes = []
        covered: set[int] = set()
        for cache in groups:
            shared = set(cache["cpus"]) & cpus
            if len(shared) > 1 and not shared <= covered:
                covered |= shared
                boxes.append(_TopologyBox(f"L{last} {size(cache['size_bytes'])} (reported)", "cache", cores_of(shared)))
        remaining = cpus - covered
        return boxes + (cores_of(remaining) if remaining else [])

    def node_box(node: Mapping[str, Any], cpus: set[int]) -> _TopologyBox:
        memory = node.get("memory_bytes")
        title = f"node {node['os_index']}"
        if isinstance(memory, int | float):
            title += f" · {size(float(memory)) if memory else 'no memory'}"
        return (
            _TopologyBox(title, "node", inner(cpus))
            if cpus
            else _TopologyBox(f"{title}, no CPUs", "node", width=220, height=40)
        )

    boxes: list[_TopologyBox] = []
    drawn: set[int] = set()
    for package in packages:
        cpus = set(package["cpus"])
        package_nodes = [n for n in nodes if cpus & set(n["cpus"])]
        drawn |= {int(n["os_index"]) for n in package_nodes}
        children = [node_box(n, cpus & set(n["cpus"])) for n in package_nodes] or inner(cpus)
        number = package["os_index"] if isinstance(package["os_index"], int) else package["index"]
        boxes.append(_TopologyBox(f"package {number}", "package", children))
    package_cpus = {cpu for package in packages for cpu in package["cpus"]}
    boxes += [node_box(n, set(n["cpus"]) - package_cpus) for n in nodes if int(n["os_index"]) not in drawn]
    root = _TopologyBox("", "machine", boxes)
    return render(
        "topology.svg",
        summary=str(topology.get("summary", "the machine's topology")),
        width=root.width,
        height=root.height - HEAD,
        pad=PAD,
        alone=held is not None,
        boxes=[box for child in root.children for box in child.placed(0, -HEAD)],
    )
