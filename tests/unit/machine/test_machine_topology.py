"""Topologies: every recorded and synthetic machine is read as it was defined; invalid input is one clear error."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError
from meshmark.machine.capture import OpenedMachine, open_machine
from meshmark.machine.sources import from_hwloc_xml, from_synthetic, from_sysfs, is_synthetic
from meshmark.machine.topology import Topology
from meshmark.machine.tree import MachineError, format_list, parse_list
from support.paths import MACHINES

INDEX: dict[str, dict[str, Any]] = {
    m["name"]: m for m in tomllib.loads((MACHINES / "index.toml").read_text())["machine"]
}
needs_hwloc = pytest.mark.skipif(
    not (shutil.which("lstopo-no-graphics") or shutil.which("lstopo")), reason="hwloc's lstopo is not installed"
)


def machine(name: str) -> OpenedMachine:
    suffix = "xml" if INDEX[name]["label"] == "synthetic" else "tar.xz"
    return open_machine(str(MACHINES / f"{name}.{suffix}"))


def consistent(t: Topology) -> None:
    """Assert what holds for every machine."""
    cpus = [c.os_index for c in t.cpus]
    assert cpus == sorted(set(cpus)) and cpus
    assert sorted(c for core in t.cores for c in core.cpus) == cpus
    assert sorted(c for p in t.packages for c in p.cpus) == [c.os_index for c in t.cpus if c.package is not None]
    assert [p.index for p in t.packages] == list(range(len(t.packages)))
    assert [core.index for core in t.cores] == list(range(len(t.cores)))
    for cpu in t.cpus:
        assert cpu.os_index in t.cores[cpu.core].cpus
        if cpu.package is not None:
            assert cpu.os_index in t.packages[cpu.package].cpus
        if cpu.node is not None:
            assert cpu.os_index in next(n for n in t.nodes if n.os_index == cpu.node).cpus
    assert set(t.allowed_cpus) <= set(cpus)
    assert not set(t.offline_cpus) & set(cpus)
    for cache in t.caches:
        assert set(cache.cpus) <= set(cpus) and cache.cpus
    if t.distances is not None:
        assert all(len(row) == len(t.nodes) for row in t.distances) and len(t.distances) == len(t.nodes)
    json.dumps(t.to_dict())


def test_every_file_here_is_in_the_index() -> None:
    names = {p.name.removesuffix(".tar.xz").removesuffix(".xml") for p in MACHINES.glob("*.[tx]*")}
    assert names - {"index.toml"} == set(INDEX)


@pytest.mark.parametrize("name", INDEX)
def test_a_machine_is_what_it_was_made_to_be(name: str) -> None:
    entry, t = INDEX[name], machine(name).topology
    consistent(t)
    assert (len(t.packages), len(t.nodes), len(t.cores), len(t.cpus)) == (
        entry["packages"],
        entry["nodes"],
        entry["cores"],
        entry["cpus"],
    )
    assert [n.os_index for n in t.nodes if n.kind == "memory-only"] == entry.get("memory_only", [])
    assert [n.os_index for n in t.nodes if n.kind == "memory-less"] == entry.get("memory_less", [])
    assert list(t.offline_cpus) == entry.get("offline", [])
    if "distances" in entry:
        assert t.distances == tuple(map(tuple, entry["distances"]))
    assert t.doubts == ()


@pytest.mark.parametrize("name", [n for n, m in INDEX.items() if m["label"] == "recorded-in-guest"])
def test_sysfs_and_hwloc_agree(name: str) -> None:
    recording = machine(name)
    assert recording.hwloc_xml is not None
    ours, theirs = recording.topology, from_hwloc_xml(recording.hwloc_xml)
    consistent(theirs)
    assert (ours.cores, ours.packages, ours.caches) == (theirs.cores, theirs.packages, theirs.caches)
    assert ours.offline_cpus == theirs.unlisted_cpus and theirs.offline_cpus == ()
    with_memory = [n for n in ours.nodes if n.memory_bytes]  # hwloc omits nodes without memory
    assert [(n.os_index, n.cpus, n.memory_bytes) for n in with_memory] == [
        (n.os_index, n.cpus, n.memory_bytes) for n in theirs.nodes
    ]


def test_smt_siblings_share_a_core_and_survive_an_offline_one() -> None:
    assert [c.cpus for c in machine("smt-2").topology.cores] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [c.cpus for c in machine("smt-2-offline").topology.cores] == [(0, 1), (2,), (4, 5), (7,)]


def test_a_memory_only_node_names_the_cpus_near_it() -> None:
    node = machine("cxl-2+1").topology.nodes[2]
    assert node.cpus == () and node.near_cpus == (0, 1) and node.kind == "memory-only"


def test_a_ring_and_a_torus_keep_their_distances() -> None:
    ring, torus = machine("ring-8").topology.distances, machine("torus-4x4-16").topology.distances
    assert ring is not None and torus is not None
    assert list(ring[0]) == [10, 16, 22, 28, 34, 28, 22, 16]
    assert {d for row in torus for d in row} == {10, 16, 22, 28, 34}
    assert all(torus[a][b] == torus[b][a] for a in range(16) for b in range(16))


@needs_hwloc
@pytest.mark.parametrize(
    ("description", "packages", "cores", "cpus"),
    [
        ("pack:4 core:64 pu:1", 4, 256, 256),
        ("pack:4 [numa] core:64 pu:2", 4, 256, 512),
        ("node:8 2", 0, 16, 16),  # hwloc describes no package
        ("pu:1", 0, 1, 1),
    ],
)
def test_synthetic_machines(description: str, packages: int, cores: int, cpus: int) -> None:
    t = from_synthetic(description)
    consistent(t)
    assert (len(t.packages), len(t.cores), len(t.cpus)) == (packages, cores, cpus)


@needs_hwloc
def test_a_synthetic_node_without_a_size_is_unknown_not_empty() -> None:
    t = from_synthetic("pack:2 [numa] core:2 pu:1")
    assert [n.memory_bytes for n in t.nodes] == [None, None]
    assert [n.kind for n in t.nodes] == ["ordinary", "ordinary"]
    assert t.safe_memory_bytes is None


@pytest.mark.parametrize(
    "description",
    [
        "",
        "host2",
        "pack:2 core:x",
        "--help",
        "pack:99999 core:99999",
        "pack:0",
        "../../etc",
        "node:8 2 | reboot",
        "a" * 600,
    ],
)
def test_what_is_no_machine_is_one_clear_error(description: str) -> None:
    with pytest.raises(MeshmarkError) as error:
        open_machine(description)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_reads_like_synthetic() -> None:
    assert is_synthetic("pack:2 core:4 pu:2") and is_synthetic("[numa] core:2") and is_synthetic("node:8 2")
    assert not is_synthetic("host") and not is_synthetic("-i x") and not is_synthetic("a.xml")


# ------------------------------------------------------------------ trees made by hand


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def two_cpus(memory_kb: int, total_kb: int) -> dict[str, str]:
    cpu, node = "sys/devices/system/cpu", "sys/devices/system/node"
    files = {f"{cpu}/cpu{c}/topology/physical_package_id": "0\n" for c in (0, 1)}
    files |= {f"{cpu}/cpu{c}/topology/core_cpus_list": f"{c}\n" for c in (0, 1)}
    return files | {
        f"{cpu}/online": "0-1\n",
        f"{node}/node0/cpulist": "0-1\n",
        f"{node}/node0/distance": "10\n",
        f"{node}/node0/meminfo": f"Node 0 MemTotal:       {memory_kb} kB\nNode 0 MemFree: 1 kB\n",
        "proc/meminfo": f"MemTotal:       {total_kb} kB\n",
    }


@pytest.mark.parametrize(("node", "total"), [(8_000_000, 24_000_000), (24_000_000, 8_000_000)])
def test_memory_that_contradicts_itself_is_doubted_and_the_smaller_relied_on(
    tmp_path: Path, node: int, total: int
) -> None:
    t = from_sysfs(tree(tmp_path, two_cpus(node, total)))
    assert t.safe_memory_bytes == 8_000_000 * 1024
    assert t.safe_node_bytes(t.nodes[0]) == 8_000_000 * 1024
    assert t.nodes[0].memory_bytes == node * 1024, "the claim is kept as it was made"
    assert any("the nodes report" in d for d in t.doubts)


def test_a_kernel_without_numa_is_one_node_and_says_so(tmp_path: Path) -> None:
    files = {k: v for k, v in two_cpus(1, 1000).items() if "/node/" not in k}
    t = from_sysfs(tree(tmp_path, files))
    assert [n.cpus for n in t.nodes] == [(0, 1)] and t.nodes[0].memory_bytes == 1000 * 1024
    assert any("no NUMA nodes" in d for d in t.doubts)


def test_the_recorded_affinity_is_what_is_allowed(tmp_path: Path) -> None:
    files = two_cpus(1000, 1000) | {"proc/self/status": "Name:\tsh\nCpus_allowed_list:\t1\n"}
    assert from_sysfs(tree(tmp_path, files)).allowed_cpus == (1,)


def test_a_torn_tree_still_reads(tmp_path: Path) -> None:
    files = two_cpus(1000, 1000)
    files["sys/devices/system/node/node0/distance"] = "10 nonsense"
    files["sys/devices/system/node/node0/meminfo"] = "\0\0"
    files["sys/devices/system/cpu/cpu0/topology/core_cpus_list"] = "0-999999999999"
    files["sys/devices/system/cpu/cpu1/topology/physical_package_id"] = "-1"
    files["sys/devices/system/cpu/cpu1/cache/index0/level"] = "one"
    t = from_sysfs(tree(tmp_path, files))
    consistent(t)
    assert t.nodes[0].memory_bytes is None


def test_a_folder_without_cpus_is_no_machine(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="no CPU"):
        from_sysfs(tmp_path)


def test_the_live_machine_reads() -> None:
    if not Path("/sys/devices/system/cpu").is_dir():
        pytest.skip("no sysfs here")
    consistent(from_sysfs())


# ------------------------------------------------------------------ malformed input

XML = (MACHINES / "hbm-2.xml").read_bytes()


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "no <topology>"),
        (b"<a/>", "no <topology>"),
        (b"<topology/>", "no XML that hwloc"),
        (b'<topology version="2.0"/>', "no XML that hwloc"),
        (b'<topology version="3.0"/>', "no XML that hwloc"),
        (b'<topology version="9.0"/>', "no XML that hwloc"),
        (b'<topology version="2.0"><object type="Machine"/></topology>', "XML that hwloc"),
        (b'<topology version="2.0"><object type="PU" os_index="-1"/></topology>', "XML that hwloc"),
        (b'<!DOCTYPE t [<!ENTITY a "b">]><topology version="2.0"/>', "entity"),
        (b'<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><topology version="2.0">&a;</topology>', "entity"),
        ("<topology version='2.0'/>".encode("utf-16"), "UTF-8"),
        (b"<topology version='2.0'>" * 100, "XML that hwloc"),
        (b'<?xml version="1.0" encoding="no-such"?><topology/>', "XML"),
    ],
)
def test_malformed_xml_is_one_clear_error(data: bytes, word: str) -> None:
    with pytest.raises(MachineError, match=word) as error:
        from_hwloc_xml(data)
    assert "\n" not in str(error.value)


@settings(max_examples=40, deadline=None)  # each example starts a program
@given(st.data())
def test_xml_with_flipped_bytes_never_ends_in_a_traceback(data: st.DataObject) -> None:
    truncated = bytearray(XML)
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(truncated) - 1))
        truncated[position : position + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=12))
        if not truncated:
            break
    try:
        t = from_hwloc_xml(bytes(truncated))
    except MachineError as error:
        assert str(error)
    else:
        json.dumps(t.to_dict())


@settings(max_examples=40, deadline=None)  # each example starts a program
@given(
    st.binary(max_size=400)
    | st.text(max_size=200).map(lambda s: f"<topology version='2.0'>{s}</topology>".encode("utf-8", "replace"))
)
def test_any_bytes_are_a_topology_or_one_error(data: bytes) -> None:
    with pytest.raises(MachineError):
        from_hwloc_xml(data)


ATTRIBUTE = st.sampled_from(
    ["", "0", "1", "-1", "0x3", "0xf...f", "0xffffffff,,0x1", "99999999999999999999", "é", "nan"]
)


@settings(max_examples=40, deadline=None)  # each example starts a program
@given(
    st.lists(
        st.tuples(st.sampled_from(["PU", "Core", "NUMANode", "Package", "L3Cache", "Group"]), ATTRIBUTE, ATTRIBUTE)
    )
)
@example([("PU", "0", ""), ("L3Cache", "", "0")])  # a cache of a CPU that does not exist
def test_objects_with_any_attributes(objects: list[tuple[str, str, str]]) -> None:
    body = "".join(
        f'<object type="{kind}" os_index="{index}" cpuset="{cpus}" cache_size="{cpus}" local_memory="{index}"/>'
        for kind, index, cpus in objects
    )
    try:
        consistent(
            from_hwloc_xml(f'<topology version="2.0"><object type="Machine">{body}</object></topology>'.encode())
        )
    except MachineError as error:
        assert str(error)


@settings(deadline=None)
@given(st.frozensets(st.integers(0, 4095)))
def test_lists_come_back(numbers: frozenset[int]) -> None:
    text = format_list(tuple(numbers))
    assert parse_list("" if text == "none" else text) == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3-1", "list '3-1': found '3-1'; allowed: ascending ranges below 65536"),
        ("0,65536", "list '0,65536': found '65536'; allowed: ascending ranges below 65536"),
        ("0-x", "list '0-x': found '0-x'; allowed: numbers and ranges as in 0-3,8"),
        ("1,,2", "list '1,,2': found ''; allowed: numbers and ranges as in 0-3,8"),
        ("٣", "list '٣': found '٣'; allowed: numbers and ranges as in 0-3,8"),
    ],
)
def test_what_is_not_a_list_is_refused_with_the_part(text: str, message: str) -> None:
    with pytest.raises(MachineError) as raised:
        parse_list(text)
    assert str(raised.value) == message


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_a_list_or_one_error(text: str) -> None:
    try:
        assert all(0 <= n < 65536 for n in parse_list(text))
    except MachineError as error:
        assert str(error)
