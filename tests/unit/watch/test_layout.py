"""The layout of the map has every component once, within the map, and no two components overlap."""

from __future__ import annotations

import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine, machine_names
from meshmark.watch.frames import Header, header_of
from meshmark.watch.layout import MachineMap, map_of, node_places
from meshmark.watch.live import LiveSampler
from support.paths import MACHINES

INDEX: dict[str, dict[str, Any]] = {
    m["name"]: m for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
}
RECORDED = sorted(n for n, m in INDEX.items() if m["label"] == "recorded-in-guest")


def tree(tmp_path: Path, name: str) -> Path:
    with tarfile.open(MACHINES / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "root"


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_machine_is_drawn_whole(name: str, tmp_path: Path) -> None:
    entry = INDEX[name]
    with LiveSampler(50, 0.1, root=tree(tmp_path, name)) as live:
        assert list(live.frames())
        h = live.header
    assert h.count("node") == entry["nodes"]
    assert h.count("cpu") >= entry["cpus"]
    links = {(link["from"], link["to"]) for link in h.components.get("link", ())}
    assert links == {(b, a) for a, b in links}
    degrees = {sum(1 for a, _ in links if a == n) for n in range(entry["nodes"])}
    expected = {"ring-8": {2}, "torus-4x4-16": {4}}.get(name)
    assert expected is None or degrees == expected
    whole(h, map_of(h))


def whole(h: Header, m: MachineMap) -> None:
    """Assert that every component is on the map once and within it, and that no two boxes overlap."""
    for kind in ("cpu", "memory", "io"):
        assert sorted(b.index for b in m.boxes if b.component_class == kind) == list(range(h.count(kind)))
    lines = {line.index for line in m.lines}
    boxes = {b.index for b in m.boxes if b.component_class == "link"}
    assert sorted(lines | boxes) == list(range(h.count("link")))
    assert not lines & boxes
    for b in m.boxes:
        assert b.x >= 0 and b.y >= 0 and b.x + b.w <= m.width and b.y + b.h <= m.height
        assert b.w > 3 and b.h > 3
    for line in m.lines:
        assert all(-1 <= x <= m.width + 1 and -1 <= y <= m.height + 1 for x, y in line.points)
    for i, a in enumerate(m.boxes):
        for b in m.boxes[i + 1 :]:
            assert (
                a.x + a.w <= b.x + 0.01 or b.x + b.w <= a.x + 0.01 or a.y + a.h <= b.y + 0.01 or b.y + b.h <= a.y + 0.01
            )


@pytest.mark.parametrize("name", machine_names())
def test_every_model_is_drawn_whole(name: str) -> None:
    h = header_of(header_line(find_machine(name), 1e-6))
    whole(h, map_of(h))


def test_places_of_nodes_that_say_none() -> None:
    ring = [{(i - 1) % 8, (i + 1) % 8} for i in range(8)]
    assert len({(round(x, 6), round(y, 6)) for x, y in node_places(8, ring)}) == 8
    torus = [
        {(x + 1) % 4 + 4 * y, (x - 1) % 4 + 4 * y, x + 4 * ((y + 1) % 3), x + 4 * ((y - 1) % 3)}
        for y in range(3)
        for x in range(4)
    ]
    assert node_places(12, torus)[5] == (1.0, 1.0)
    assert node_places(2, [{1}, {0}]) == [(0.0, 0.0), (1.0, 0.0)]


def test_a_small_machine_has_room_for_rates_and_shows_its_caches() -> None:
    cpus = tuple({"name": f"CPU {i}", "number": i, "node": 0} for i in range(8))
    caches = [{"name": f"L2 {i}", "level": 2, "size_bytes": 2**20, "cpus": [i]} for i in range(8)]
    caches += [{"name": f"L3 {i}", "level": 3, "size_bytes": 2**25, "cpus": [*range(4 * i, 4 * i + 4)]} for i in (0, 1)]
    parts: dict[str, Any] = {
        "node": ({"name": "node 0", "number": 0},),
        "cpu": cpus,
        "memory": ({"name": "memory 0", "node": 0},),
        "io": ({"name": "vda", "kind": "disk"}, {"name": "eth0", "kind": "network"}),
        "cache": tuple(caches),
    }
    h = Header("host", "test", "", 1.0, parts, ())
    m = map_of(h)
    whole(h, m)
    assert m.roomy and len(m.plates) == 2
    assert [p.label for p in m.plates] == ["L3 32\u00a0MiB, shared by 4 CPUs"] * 2
    assert m.outlines[0][4] == "node 0; each core: L2 1\u00a0MiB"
    for p in m.plates:  # plates lie between the CPUs and the memory and overlap no box
        assert all(p.y >= b.y + b.h or p.y + p.h <= b.y for b in m.boxes)
    many_cpus = {**parts, "cpu": tuple({**cpus[0], "number": i} for i in range(40))}
    assert not map_of(Header("host", "test", "", 1.0, many_cpus, ())).roomy
