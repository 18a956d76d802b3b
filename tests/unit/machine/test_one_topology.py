"""The native programs and the Python code read the same CPUs, cores, packages and nodes of every machine.

The native sources are compared number by number in tests/native/topology_test.cpp; this compares the programs with
`machine.topology`, also on trees of server processors.
"""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from machines.servers import NAMES
from machines.trees import make_tree, many
from meshmark.machine.capture import unpacked
from meshmark.machine.sources import from_hwloc_xml, from_sysfs
from meshmark.machine.topology import Topology
from meshmark.native import find_native
from meshmark.watch.frames import Header
from meshmark.watch.live import LiveSampler
from support.paths import MACHINES

INDEX = {m["name"]: m["label"] for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]}
RECORDED = [name for name, label in INDEX.items() if label == "recorded-in-guest"]
DESCRIBED = [name for name, label in INDEX.items() if label == "synthetic"]


def placed(topology: str, root: Path | None = None) -> tuple[int, ...]:
    """Return the packages, nodes, cores and CPUs that `meshmark place` counts; a tree replaces this host's files."""
    words = [str(find_native("meshmark-place", "MESHMARK_PLACE")), "plan", "--topology", topology, "--json"]
    env = os.environ | ({} if root is None else {"HWLOC_FSROOT": str(root)})
    completed = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
    machine = json.loads(completed.stdout)["machine"]
    return tuple(machine[part] for part in ("packages", "nodes", "cores", "cpus"))


def counts(t: Topology) -> tuple[int, ...]:
    return len(t.packages), len(t.nodes), len(t.cores), len(t.cpus)


def watched(root: Path | None) -> Header:
    with LiveSampler(100, 0.01, root=root, sources=["node"]) as live:
        return live.header


def agree(header: Header, t: Topology) -> None:
    components = header.components["cpu"]
    assert [c["number"] for c in components] == sorted([*(c.os_index for c in t.cpus), *t.offline_cpus])
    assert [n["number"] for n in header.components["node"]] == [n.os_index for n in t.nodes]
    online = {c["number"]: c for c in components if c["number"] not in t.offline_cpus}
    for cpu in t.cpus:
        place = online[cpu.os_index]
        assert place.get("package", 0) == cpu.package
        assert place.get("core") == t.cores[cpu.core].os_index
        assert ("node" in place) == (cpu.node is not None)
        assert cpu.node is None or t.nodes[place["node"]].os_index == cpu.node
    if t.distances is not None:
        assert [tuple(n["distance"]) for n in header.components["node"]] == list(t.distances)
    assert len(header.components["memory"]) >= sum(n.memory_bytes != 0 and not n.cpus for n in t.nodes)


@pytest.fixture(params=[*RECORDED, *NAMES, "many"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param not in RECORDED:
        yield many(tmp_path, cpus=256, nodes=4) if request.param == "many" else make_tree(tmp_path, request.param)
        return
    with unpacked(MACHINES / f"{request.param}.tar.xz") as folder:
        yield folder / "root"


def test_of_a_tree(tree: Path) -> None:
    t = from_sysfs(tree)
    agree(watched(tree), t)
    if (tree / "sys/devices/system/cpu/cpu0/topology/core_cpus").exists():  # hwloc reads masks, not lists
        assert placed("host", tree) == counts(t)


def test_of_this_host() -> None:
    t = from_sysfs()
    agree(watched(None), t)
    assert placed("host") == counts(t)


@pytest.mark.parametrize("name", DESCRIBED)
def test_of_a_description(name: str) -> None:
    xml = MACHINES / f"{name}.xml"
    assert placed(str(xml)) == counts(from_hwloc_xml(xml.read_bytes()))
