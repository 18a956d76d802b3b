"""Computes the layout of the map: boxes for components and lines for links, in px.

The browser, the terminal and exported pages share it and add colours.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.values.units import size
from meshmark.watch.frames import Header, check_places

Point = tuple[float, float]

PAD: Final = 14.0
GAP: Final = 46.0  # between adjacent boxes: room for two lines and a label
STUB: Final = 26.0  # length of each half of a wrap-around link
LABEL: Final = 15.0
CACHE: Final = 16.0  # height of the box of a shared cache
SIDE: Final = 4.5  # half the distance between the two directions of a link


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of the box of a CPU, of a bar across a node, and of the box of a component without a node."""

    cell: Point
    bar: float
    loose: Point

    @staticmethod
    def for_nodes(nodes: int, max_cpus: int) -> _Sizes:
        """Return the sizes; small machines have room for rates beside the shares."""
        if nodes <= 2 and max_cpus <= 16:
            return ROOMY
        return _Sizes((34.0, 24.0) if max_cpus <= 16 else (20.0, 16.0), 13.0, (80.0, 22.0))


ROOMY: Final = _Sizes((100.0, 40.0), 34.0, (164.0, 36.0))
ROOMY_WIDTH: Final = 330.0  # minimum width of the content of a node: two components without a node beside each other


@dataclass(frozen=True, slots=True)
class Plate:
    """A box with a text that never changes: a shared cache."""

    x: float
    y: float
    w: float
    h: float
    label: str


@dataclass(frozen=True, slots=True)
class ComponentBox:
    """A component's box; `index` is its index in the frames."""

    component_class: str
    index: int
    x: float
    y: float
    w: float
    h: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class LinkLine:
    """One direction of a link, from the first to the last point; a wrap-around link consists of two stubs."""

    index: int
    points: tuple[Point, ...]


@dataclass(slots=True)
class MachineMap:
    """The map of a machine; all lengths are in px."""

    width: float = 0.0
    height: float = 0.0
    boxes: list[ComponentBox] = field(default_factory=list)
    plates: list[Plate] = field(default_factory=list)
    lines: list[LinkLine] = field(default_factory=list)
    outlines: list[tuple[float, float, float, float, str]] = field(default_factory=list)  # x, y, w, h, label: nodes
    switches: list[tuple[float, float, str]] = field(default_factory=list)
    step: tuple[float, float] = (0.0, 0.0)  # distance between adjacent nodes of a grid
    roomy: bool = False  # boxes have room for names, shares and rates

    def to_json(self) -> dict[str, Any]:
        """Return the map as JSON; lengths are rounded to a tenth."""

        def n(value: float) -> float:
            return round(value, 1)

        return {
            "width": n(self.width),
            "height": n(self.height),
            "roomy": self.roomy,
            "boxes": [
                {
                    "class": b.component_class,
                    "index": b.index,
                    "x": n(b.x),
                    "y": n(b.y),
                    "w": n(b.w),
                    "h": n(b.h),
                    "label": b.label,
                }
                for b in self.boxes
            ],
            "plates": [{"x": n(p.x), "y": n(p.y), "w": n(p.w), "h": n(p.h), "label": p.label} for p in self.plates],
            "lines": [{"index": line.index, "points": [[n(x), n(y)] for x, y in line.points]} for line in self.lines],
            "outlines": [
                {"x": n(x), "y": n(y), "w": n(w), "h": n(h), "label": label} for x, y, w, h, label in self.outlines
            ],
            "switches": [{"x": n(x), "y": n(y), "label": label} for x, y, label in self.switches],
        }


def node_places(count: int, neighbours: Sequence[set[int]]) -> list[Point]:
    """Return positions of nodes without coordinates: a grid if the links form a torus by number, else a circle."""
    if count <= 3 or all(len(s) == count - 1 for s in neighbours):
        columns = max(1, math.ceil(math.sqrt(count))) if count > 4 else min(count, 2) if count == 4 else max(1, count)
        return [(float(i % columns), float(i // columns)) for i in range(count)]
    for columns in sorted((w for w in range(2, count) if count % w == 0), key=lambda w: abs(w - count / w)):
        rows = count // columns
        if columns < rows or rows < 2:
            continue

        def grid(i: int, wide: int = columns, high: int = rows) -> set[int]:
            x, y = i % wide, i // wide
            return {
                (x + 1) % wide + y * wide,
                (x - 1) % wide + y * wide,
                x + (y + 1) % high * wide,
                x + (y - 1) % high * wide,
            } - {i}

        if all(neighbours[i] == grid(i) for i in range(count)):
            return [(float(i % columns), float(i // columns)) for i in range(count)]
    # Chords would cross adjacent boxes, so they need a wider circle.
    chords = any((i - j) % count not in {1, count - 1} for i, links in enumerate(neighbours) for j in links)
    radius = max(1.0, count / (2 * math.pi) * (1.7 if chords else 1.15))
    return [
        (radius * math.sin(2 * math.pi * i / count), -radius * math.cos(2 * math.pi * i / count)) for i in range(count)
    ]


def _routers(header: Header) -> tuple[list[Point], list[bool], list[int]]:
    """Return the position of every router, whether it is a bus, and the router of every node."""
    nodes, routers = header.components.get("node", ()), header.components.get("router", ())
    if routers:
        places = [(float(r["place"][0]), float(r["place"][1])) for r in routers]
        return places, [bool(r.get("bus")) for r in routers], [int(n["router"]) for n in nodes]
    neighbours: list[set[int]] = [set() for _ in nodes]
    for link in header.components.get("link", ()):
        neighbours[int(link["from"])].add(int(link["to"]))
    places = node_places(len(nodes), neighbours)
    return places, [False] * len(nodes), list(range(len(nodes)))


def _ends(link: Mapping[str, Any]) -> tuple[int, int]:
    return int(link.get("from_router", link.get("from", 0))), int(link.get("to_router", link.get("to", 0)))


def map_of(header: Header) -> MachineMap:
    """Return the map of a machine from its header.

    Raises:
        FrameError: A component refers to one that the header does not have.
    """
    check_places(header)
    places, is_bus, router_of = _routers(header)
    links = header.components.get("link", ())
    layout = MachineMap()
    by_node: dict[str, dict[int, list[int]]] = {}
    for kind in ("cpu", "memory", "io"):
        by_node[kind] = defaultdict(list)
        for i, c in enumerate(header.components.get(kind, ())):
            by_node[kind][int(c.get("node", -1))].append(i)
    node_at = {r: n for n, r in enumerate(router_of)}
    buses: dict[int, list[int]] = defaultdict(list)  # links of the buses of each node
    for i, link in enumerate(links):
        a, b = _ends(link)
        if is_bus[a] or is_bus[b]:
            node = node_at.get(b if is_bus[a] else a)
            if node is not None:
                buses[node].append(i)

    max_cpus = max((len(v) for k, v in by_node["cpu"].items() if k >= 0), default=1)
    sizes = _Sizes.for_nodes(len(router_of), max_cpus)
    cell = sizes.cell
    layout.roomy = roomy = sizes is ROOMY
    columns = math.ceil(math.sqrt(max_cpus * 1.3))
    if roomy:  # rows of up to six
        columns = math.ceil(max_cpus / math.ceil(max_cpus / 6))
    columns = max(1, columns)
    rows = max(1, math.ceil(max_cpus / columns))
    caches = _shared_caches(header) if roomy else {}
    inner = max(columns * cell[0], ROOMY_WIDTH if roomy else 68.0)
    bars = [
        kind
        for kind, nodes_with in (("io", by_node["io"]), ("link", buses), ("memory", by_node["memory"]))
        if any(k >= 0 for k in nodes_with)
    ]
    width = inner + 12.0
    height = LABEL + rows * cell[1] + len(bars) * (sizes.bar + 3.0) + bool(caches) * (CACHE + 3.0) + 9.0
    step = layout.step = (width + GAP, height + GAP)

    hosts = [p for r, p in enumerate(places) if not is_bus[r]] or [(0.0, 0.0)]
    left, top = min(p[0] for p in hosts), min(p[1] for p in hosts)
    grid = _is_grid(header, places)
    wraps = [grid and _wraps(places, *_ends(link)) for link in links]
    edge = STUB + 8.0 if any(wraps) else 0.0

    def centre(router: int) -> Point:
        x, y = places[router]
        return (PAD + edge + (x - left) * step[0] + width / 2, PAD + edge + (y - top) * step[1] + height / 2)

    _draw_nodes(layout, header, centre, (width, height, inner), sizes, columns, bars, by_node, buses, router_of, caches)
    for r, name in enumerate(header.components.get("router", ())):
        if not is_bus[r] and r not in node_at:
            x, y = centre(r)
            layout.switches.append((x, y, str(name.get("name", r))))

    twins: Counter[tuple[int, int]] = Counter()
    for i, link in enumerate(links):
        a, b = _ends(link)
        if is_bus[a] or is_bus[b]:
            continue
        twin = twins[a, b]
        twins[a, b] += 1
        half = {r: (width / 2, height / 2) if r in node_at else (9.0, 9.0) for r in (a, b)}
        layout.lines += _line(i, centre(a), centre(b), half[a], half[b], wraps[i], twin)

    xs = [x + w for x, _, w, _, _ in layout.outlines] + [x + 12 for x, _, _ in layout.switches]
    ys = [y + h for _, y, _, h, _ in layout.outlines] + [y + 12 for _, y, _ in layout.switches]
    layout.width, layout.height = max(xs, default=0) + PAD + edge, max(ys, default=0) + PAD + edge
    # Components without a node (devices, offline CPUs) are at the bottom.
    loose = [(kind, i) for kind in ("cpu", "memory", "io") for i in by_node[kind].get(-1, [])]
    box_width, box_height = sizes.loose
    per_row = max(1, int((layout.width - 2 * PAD + 6) // (box_width + 6)))
    for k, (kind, i) in enumerate(loose):
        label = str(header.components[kind][i].get("name", i))
        x, y = PAD + k % per_row * (box_width + 6), layout.height + k // per_row * (box_height + 8)
        layout.boxes.append(ComponentBox(kind, i, x, y, box_width, box_height, label))
    if loose:
        layout.height += (box_height + 8) * math.ceil(len(loose) / per_row) + PAD
        layout.width = max(layout.width, PAD + min(per_row, len(loose)) * (box_width + 6) - 6 + PAD)
    return layout


def _shared_caches(header: Header) -> dict[int, list[tuple[str, list[int]]]]:
    """Return the last-level caches of each node: a text and the CPUs that share the cache."""
    cpus = header.components.get("cpu", ())
    caches = header.components.get("cache", ())
    last_level = max((int(c["level"]) for c in caches), default=0)
    by_node: dict[int, list[tuple[str, list[int]]]] = defaultdict(list)
    for c in caches:
        sharers = [int(i) for i in c.get("cpus", ()) if 0 <= int(i) < len(cpus)]
        if int(c["level"]) == last_level and sharers:
            by_node[int(cpus[sharers[0]].get("node", -1))].append(
                (f"L{last_level} {size(float(c['size_bytes']))}", sharers)
            )
    return dict(by_node)


def _own_caches(header: Header, cpus: Set[int]) -> str:
    """Return the caches of each core below the last level, such as `L1 32 KiB, L2 1 MiB`; "" if unknown."""
    caches = header.components.get("cache", ())
    last_level = max((int(c["level"]) for c in caches), default=0)
    sizes_by_level: dict[int, set[float]] = defaultdict(set)
    for c in caches:
        if int(c["level"]) < last_level and not cpus.isdisjoint(c.get("cpus", ())):
            sizes_by_level[int(c["level"])].add(float(c["size_bytes"]))
    return ", ".join(
        f"L{level} {' or '.join(size(b) for b in sorted(sizes))}" for level, sizes in sorted(sizes_by_level.items())
    )


def _draw_nodes(
    machine_map: MachineMap,
    header: Header,
    centre: Any,
    size_of: tuple[float, float, float],
    sizes: _Sizes,
    columns: int,
    bars: Sequence[str],
    by_node: Mapping[str, Mapping[int, list[int]]],
    buses: Mapping[int, list[int]],
    router_of: Sequence[int],
    caches: Mapping[int, Sequence[tuple[str, list[int]]]],
) -> None:
    width, height, inner = size_of
    cell, bar = sizes.cell, sizes.bar
    below = sum(bar + 3.0 for b in bars if b in {"link", "memory"}) + bool(caches) * (CACHE + 3.0)
    for n, router in enumerate(router_of):
        cx, cy = centre(router)
        x0, y0 = cx - width / 2, cy - height / 2
        node = header.components["node"][n]
        label = str(node.get("number", n))
        if sizes is ROOMY:
            core_caches = _own_caches(header, set(by_node["cpu"].get(n, [])))
            label = f"node {label}" + (f"; each core: {core_caches}" if core_caches else "")
        machine_map.outlines.append((x0, y0, width, height, label))
        y = y0 + LABEL
        for kind in ("io", "cpu", "cache", "link", "memory"):
            if kind == "cache":
                mine_caches = caches.get(n, ())
                for k, (text, sharers) in enumerate(mine_caches):
                    box_width = inner / len(mine_caches)
                    sharing = f", shared by {len(sharers)} CPUs" if len(sharers) > 1 else ""
                    machine_map.plates.append(Plate(x0 + 6 + k * box_width, y, box_width - 2, CACHE, text + sharing))
                y += bool(caches) * (CACHE + 3.0)
                continue
            indices = buses.get(n, []) if kind == "link" else by_node[kind].get(n, [])
            if kind == "cpu":
                box_width = inner / max(1, min(columns, len(indices) or 1))
                box_width = max(cell[0], box_width) if len(indices) <= columns else inner / columns
                for k, i in enumerate(indices):
                    name = str(header.components["cpu"][i].get("number", i))
                    corner = (x0 + 6 + k % columns * box_width, y + k // columns * cell[1])
                    label = f"CPU {name}" if sizes is ROOMY else name
                    machine_map.boxes.append(ComponentBox("cpu", i, *corner, box_width - 2, cell[1] - 2, label))
                y = y0 + height - 6 - below
            elif kind in bars:
                for k, i in enumerate(indices):
                    box_width = inner / len(indices)
                    name = str(header.components[kind][i].get("name", i)) if sizes is ROOMY else ""
                    machine_map.boxes.append(ComponentBox(kind, i, x0 + 6 + k * box_width, y, box_width - 2, bar, name))
                y += bar + 3.0


def _is_grid(header: Header, places: Sequence[Point]) -> bool:
    """Return whether the topology is a grid, by its name or by integer coordinates."""
    if str(header.more.get("topology", "")) in {"fat_tree", "switches", "crossbar", "hypercube", "graph", "single"}:
        return False
    return all(float(v).is_integer() for p in places for v in p)


def _wraps(places: Sequence[Point], a: int, b: int) -> bool:
    """Return whether a link of a grid wraps around: it is straight and longer than one step."""
    is_long = abs(places[a][0] - places[b][0]) > 1.01 or abs(places[a][1] - places[b][1]) > 1.01
    is_straight = places[a][0] == places[b][0] or places[a][1] == places[b][1]
    return is_long and is_straight


def _line(index: int, a: Point, b: Point, half_a: Point, half_b: Point, wraps: bool, twin: int) -> list[LinkLine]:
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) or 1.0
    ux, uy = dx / length, dy / length
    if wraps:
        ux, uy = -ux, -uy
    side = SIDE + 2 * SIDE * twin
    ox, oy = -uy * side, ux * side  # offset to the right of the direction

    def leave(half: Point) -> float:
        """Return the distance from the centre of a box to its edge along the line."""
        return min(half[k] / abs(u) for k, u in ((0, ux), (1, uy)) if abs(u) > 1e-9)

    start = leave(half_a)
    if not wraps:
        end = length - leave(half_b)
        return [
            LinkLine(
                index, ((a[0] + ux * start + ox, a[1] + uy * start + oy), (a[0] + ux * end + ox, a[1] + uy * end + oy))
            )
        ]
    outgoing = (
        (a[0] + ux * start + ox, a[1] + uy * start + oy),
        (a[0] + ux * (start + STUB) + ox, a[1] + uy * (start + STUB) + oy),
    )
    back = leave(half_b)
    incoming = (
        (b[0] - ux * (back + STUB) + ox, b[1] - uy * (back + STUB) + oy),
        (b[0] - ux * back + ox, b[1] - uy * back + oy),
    )
    return [LinkLine(index, outgoing), LinkLine(index, incoming)]
