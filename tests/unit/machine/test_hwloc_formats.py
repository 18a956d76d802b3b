"""The Python code and `meshmark place` read every format of the XML of hwloc alike."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from machines.shapes import SHAPES, Form, Shape, write_shape
from meshmark.machine.sources import from_hwloc_xml, from_sysfs
from meshmark.native import find_native


def plan(topology: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = str(find_native("meshmark-place", "MESHMARK_PLACE"))
    argv = [program, "plan", "--topology", topology, "--json", *words]
    return subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False)


def planned(topology: str, *words: str, **variables: str) -> dict[str, Any]:
    completed = plan(topology, *words, **variables)
    assert completed.returncode == 0, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


def mask(*cpus: int) -> str:
    return f"0x{sum(1 << c for c in cpus):08x}"


def sets(cpus: str, nodes: str, version: int) -> str:
    text = f'cpuset="{cpus}" complete_cpuset="{cpus}" nodeset="{nodes}" complete_nodeset="{nodes}"'
    return text + (f' online_cpuset="{cpus}" allowed_cpuset="{cpus}"' if version == 1 else "")


def nodes_2(version: str, distances: str, extra: str = "", nodes: Sequence[int] = range(4)) -> str:
    """Return four packages of one CPU in the format of hwloc 2 or 3; packages in `nodes` have a NUMA node."""
    all_sets = sets(mask(0, 1, 2, 3), mask(*nodes), 2)
    allowed = f'allowed_cpuset="{mask(0, 1, 2, 3)}" allowed_nodeset="{mask(*nodes)}"'

    def of(n: int) -> str:
        return sets(mask(n), mask(n) if n in nodes else mask(), 2)

    def node(n: int) -> str:
        memory = f'local_memory="1073741824" {of(n)}'
        return f'<object type="NUMANode" os_index="{n}" gp_index="{20 + n}" {memory}/>' if n in nodes else ""

    body = "".join(
        f'<object type="Package" os_index="{n}" gp_index="{10 + n}" {of(n)}>{node(n)}'
        f'<object type="Core" os_index="0" gp_index="{30 + n}" {of(n)}>'
        f'<object type="PU" os_index="{n}" gp_index="{40 + n}" {of(n)}/></object></object>'
        for n in range(4)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
        f'<topology version="{version}"><object type="Machine" os_index="0" gp_index="1" {all_sets} {allowed}>'
        f"{body}</object>{distances}{extra}</topology>\n"
    )


# Nodes 0 and 2 are near each other, and so are 1 and 3.
VALUES = [[10, 40, 20, 40], [40, 10, 40, 20], [20, 40, 10, 40], [40, 20, 40, 10]]


def distances_2(kind: int, name: str | None, values: list[list[int]] = VALUES) -> str:
    name_attribute = "" if name is None else f' name="{name}"'
    flat = " ".join(str(v) for row in values for v in row) + " "
    return (
        f'<distances2 type="NUMANode" nbobjs="4" kind="{kind}"{name_attribute} indexing="os">'
        f'<indexes length="8">0 1 2 3 </indexes><u64values length="{len(flat)}">{flat}</u64values></distances2>'
    )


def xml_1() -> str:
    """Return the same machine in hwloc's format 1: nodes contain sockets, distances are relative to the smallest."""
    body = "".join(
        f'<object type="NUMANode" os_level="-1" os_index="{n}" local_memory="1073741824" {sets(mask(n), mask(n), 1)}>'
        f'<object type="Socket" os_level="-1" os_index="{n}" {sets(mask(n), mask(n), 1)}>'
        f'<object type="Cache" os_level="-1" cache_size="8388608" depth="3" cache_linesize="64" '
        f'cache_associativity="16" cache_type="0" {sets(mask(n), mask(n), 1)}>'
        f'<object type="Core" os_level="-1" os_index="0" {sets(mask(n), mask(n), 1)}>'
        f'<object type="PU" os_level="-1" os_index="{n}" {sets(mask(n), mask(n), 1)}/>'
        "</object></object></object></object>"
        for n in range(4)
    )
    values = "".join(f'<latency value="{v / 10:.6f}"/>' for row in VALUES for v in row)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc.dtd">\n<topology>'
        f'<object type="Machine" os_level="-1" os_index="0" {sets(mask(0, 1, 2, 3), mask(0, 1, 2, 3), 1)}>'
        f'<distances nbobjs="4" relative_depth="1" latency_base="10.000000">{values}</distances>'
        f"{body}</object></topology>"
    )


OS_LATENCY, USER_LATENCY, USER_BANDWIDTH = 5, 6, 10
FORMATS = {
    "hwloc 1": xml_1(),
    "hwloc 2": nodes_2("2.0", distances_2(OS_LATENCY, "NUMALatency")),
    "hwloc 2, unnamed": nodes_2("2.0", distances_2(OS_LATENCY, None)),
    "hwloc 2, annotated": nodes_2("2.0", distances_2(USER_LATENCY, "measured")),
    "hwloc 3": nodes_2("3.0", distances_2(OS_LATENCY, "NUMALatency"), '<info name="Backend" value="Linux"/>'),
    "hwloc 3, unnamed": nodes_2("3.1", distances_2(OS_LATENCY, None)),
    "hwloc 2, firmware's after others": nodes_2(
        "2.0",
        distances_2(USER_BANDWIDTH, "bandwidth", [[9] * 4] * 4)
        + distances_2(USER_LATENCY, "measured", [[7] * 4] * 4)
        + distances_2(OS_LATENCY, "NUMALatency"),
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_nodes_and_distances(name: str, tmp_path: Path) -> None:
    t = from_hwloc_xml(FORMATS[name].encode())
    assert [(p.os_index, p.cpus) for p in t.packages] == [(n, (n,)) for n in range(4)]
    assert [(n.os_index, n.cpus, n.memory_bytes) for n in t.nodes] == [(n, (n,), 1 << 30) for n in range(4)]
    assert t.distances == tuple(map(tuple, VALUES)) and t.doubts == ()
    file = tmp_path / "machine.xml"
    file.write_text(FORMATS[name])
    plan = planned(str(file), "--policy", "compact", "--jobs", "2,2")
    assert [(job["cpus"], job["mean_distance"]) for job in plan["jobs"]] == [([0, 2], 20), ([1, 3], 20)]


def test_caches_of_hwloc_1_have_their_level_and_kind() -> None:
    caches = from_hwloc_xml(xml_1().encode()).caches
    assert [(c.level, c.kind, c.size_bytes, c.line_bytes, c.ways, c.cpus) for c in caches] == [
        (3, "unified", 8 << 20, 64, 16, (n,)) for n in range(4)
    ]


def test_a_matrix_of_bandwidths_is_not_one_of_distances() -> None:
    t = from_hwloc_xml(nodes_2("2.0", distances_2(USER_BANDWIDTH, None)).encode())
    assert t.distances is None


def test_cpus_outside_the_description_are_not_called_offline() -> None:
    text = nodes_2("2.0", "").replace(f'complete_cpuset="{mask(0, 1, 2, 3)}"', f'complete_cpuset="{mask(*range(6))}"')
    t = from_hwloc_xml(text.encode())
    assert t.offline_cpus == () and t.unlisted_cpus == (4, 5)


KINDS = (
    f'<cpukind cpuset="{mask(2, 3)}"><info name="CoreType" value="IntelAtom"/>'
    '<info name="FrequencyMaxMHz" value="3900"/></cpukind>'
    f'<cpukind cpuset="{mask(0, 1)}"><info name="CoreType" value="IntelCore"/>'
    '<info name="FrequencyMaxMHz" value="5100"/></cpukind>'
)


def test_kinds_of_cpus_are_read() -> None:
    t = from_hwloc_xml(nodes_2("2.0", "", KINDS).encode())
    assert [(k.name, k.cpus, k.max_hz) for k in t.core_kinds] == [
        ("performance", (0, 1), 5_100_000_000),
        ("efficiency", (2, 3), 3_900_000_000),
    ]


def test_a_plan_names_the_kinds_of_its_cores(tmp_path: Path) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(nodes_2("2.0", "", KINDS))
    plan = planned(str(file), "--policy", "pack", "--jobs", "1,2")
    assert [kind["name"] for kind in plan["machine"]["core_kinds"]] == ["performance", "efficiency"]
    assert "kinds of cores: performance 0-1, efficiency 2-3" in plan["machine"]["summary"]
    first, second = plan["jobs"]
    assert first["core_kinds"] == {"performance": [0]} and "differ" not in first["why"]
    assert second["core_kinds"] == {"performance": [1], "efficiency": [2]}
    assert "the kinds of cores differ" in second["why"]


def test_a_node_that_is_unknown_is_not_guessed(tmp_path: Path) -> None:
    file = tmp_path / "machine.xml"
    file.write_text(nodes_2("2.0", "", nodes=range(3)))
    completed = plan(str(file), "--policy", "compact", "--jobs", "1,1,1,1")
    t = from_hwloc_xml(file.read_bytes())
    assert t.cpus[3].node is None and "no node has CPUs 3" in t.doubts
    job = json.loads(completed.stdout)["jobs"][3]
    assert job["cpus"] == [3] and job["nodes"] == [] and job["why"] == "the node of CPUs 3 is unknown"
    assert job["mean_distance"] == {"absent": "the node of CPUs 3 is unknown"} and not job["optimal"]


def test_an_empty_folder_of_nodes_is_one_node(tmp_path: Path) -> None:
    """hwloc ends with a failed assertion there."""
    root = write_shape(tmp_path, Shape(cores=[[0], [1]], packages=[[0], [1]]), Form.BOTH)
    (root / "sys/devices/system/node").mkdir()
    plan = planned("host", "--jobs", "1", HWLOC_FSROOT=str(root))
    assert (plan["machine"]["packages"], plan["machine"]["nodes"], plan["machine"]["cpus"]) == (2, 1, 2)
    assert [n.cpus for n in from_sysfs(root).nodes] == [(0, 1)]


@pytest.mark.parametrize("name", SHAPES)
def test_placement_counts_what_the_tree_states(name: str, tmp_path: Path) -> None:
    root = write_shape(tmp_path, SHAPES[name], Form.MASKS)
    t = from_sysfs(root)
    machine = planned("host", HWLOC_FSROOT=str(root), HWLOC_THISSYSTEM="0")["machine"]
    assert {part: machine[part] for part in ("packages", "nodes", "cores", "cpus")} == {
        "packages": len(t.packages),
        "nodes": len(t.nodes),
        "cores": len(t.cores),
        "cpus": len(t.cpus),
    }
