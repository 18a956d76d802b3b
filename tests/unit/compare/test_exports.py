"""Tests of the text of each export format, with simulated results of the machines in tests/machines."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from meshmark.compare.exports.base import ExportMaterial, machine_of
from meshmark.compare.exports.formats import FORMATS, format_of, write
from meshmark.compare.exports.guest import unit_of
from meshmark.compare.exports.memory import weights
from meshmark.errors import AbsentError, UsageError
from meshmark.machine.sources import from_hwloc_xml
from support.made_matrix import START, bandwidth, latency, lines, machine, material, topology
from support.made_run import record

NS = {(0, 0): 95.0, (0, 1): 190.0, (1, 0): 185.0, (1, 1): 96.0}
GB = {(0, 0): 60.0, (0, 1): 30.0, (1, 0): 30.0, (1, 1): 60.0}
NUMA = topology("numa-2")
CXL = topology("cxl-2+1")
CXL_NS = {**NS, (0, 2): 280.0, (1, 2): 360.0}


def numa_2(**more: object) -> ExportMaterial:
    return material("numa-2", [*latency(NUMA, NS), *bandwidth(NUMA, GB), *lines(NUMA)], **more)


# ------------------------------------------------------------------ hwloc


def attribute(xml: str, name: str) -> dict[tuple[str, str], int]:
    element = ElementTree.fromstring(xml).find(f"memattr[@name='{name}']")
    assert element is not None
    return {(v.get("initiator_cpuset", ""), v.get("target_obj_gp_index", "")): int(v.get("value", "")) for v in element}


def test_hwloc_gets_every_pair_in_its_own_units() -> None:
    xml = write("hwloc-xml", numa_2())
    values = attribute(xml, "Latency")
    assert sorted({cpus for cpus, _ in values}) == ["0x00000003", "0x0000000c"] and len(values) == 4
    assert sorted(values.values()) == pytest.approx([95, 96, 185, 190], rel=0.011)
    assert sorted(attribute(xml, "Bandwidth").values()) == pytest.approx([28610, 28610, 57220, 57220], rel=0.011)
    top = ElementTree.fromstring(xml)
    kinds = {(d.get("name"), d.get("type"), d.get("nbobjs"), d.get("kind")) for d in top.findall("distances2")}
    assert kinds >= {
        ("load_latency_ns", "NUMANode", "2", "6"),
        ("bandwidth_net_MiB_per_s", "NUMANode", "2", "10"),
        ("line_latency_ns", "PU", "4", "6"),
    }
    tags = [child.tag for child in top]
    assert tags.index("distances2") < tags.index("support") < tags.index("memattr"), "the order that hwloc writes"


def test_measured_matrices_are_not_taken_for_distances_of_the_system() -> None:
    plain_topology = from_hwloc_xml(numa_2().hwloc_xml())
    assert from_hwloc_xml(write("hwloc-xml", numa_2()).encode()).distances == plain_topology.distances


def test_what_the_firmware_claims_is_replaced() -> None:
    subject = numa_2()
    assert subject.opened is not None and subject.opened.hwloc_xml is not None
    firmware_xml = b'<memattr name="Latency" flags="6"><memattr_value target_obj_type="NUMANode" '
    firmware_xml += b'target_obj_gp_index="7" value="11" initiator_cpuset="0x1"/></memattr></topology>'
    data = subject.opened.hwloc_xml.replace(b"</topology>", firmware_xml)
    subject.opened = replace(subject.opened, hwloc_xml=data)
    assert 11 not in attribute(write("hwloc-xml", subject), "Latency").values()


def test_a_memory_only_node_is_a_target_and_no_row_of_a_matrix() -> None:
    subject = material("cxl-2+1", latency(CXL, CXL_NS))
    xml = write("hwloc-xml", subject)
    assert len(attribute(xml, "Latency")) == 6 and 'nbobjs="2"' in xml
    assert any("nodes with CPUs only" in note for note in subject.notes)


def test_pairs_that_are_missing_are_said() -> None:
    subject = material("numa-2", latency(NUMA, {(0, 0): 95.0, (0, 1): 190.0}))
    assert len(attribute(write("hwloc-xml", subject), "Latency")) == 2
    assert any("NUMA nodes 1 to 0 not measured" in note for note in subject.notes)


def test_cpus_beyond_32_have_words() -> None:
    wide_topology = topology("4x64")
    nodes = [n.os_index for n in wide_topology.nodes]
    xml = write("hwloc-xml", material("4x64", latency(wide_topology, {(nodes[1], nodes[0]): 100.0})))
    ((cpuset, _),) = attribute(xml, "Latency")
    assert cpuset == "0xffffffff,0xffffffff,0x00000000,0x00000000"


# ------------------------------------------------------------------ what is chosen


def test_one_matrix_has_one_set_of_conditions() -> None:
    small = latency(NUMA, dict.fromkeys(NS, 80.0), pages="4KiB")[:3]
    caches = latency(NUMA, dict.fromkeys(NS, 5.0), footprint_bytes=2**20)
    busy = latency(NUMA, dict.fromkeys(NS, 300.0), processes=4)
    strided = latency(NUMA, dict.fromkeys(NS, 4.0), pattern="stride")
    subject = material("numa-2", [*small, *caches, *busy, *strided, *latency(NUMA, NS)])
    assert sorted(attribute(write("hwloc-xml", subject), "Latency").values()) == pytest.approx(
        [95, 96, 185, 190], rel=0.011
    )
    assert subject.left_out() == ["left out 3 results: other conditions or CPUs than the matrix of load_latency"]


def test_flagged_results_are_left_out_unless_asked_for() -> None:
    records = latency(NUMA, NS, flags=["disturbed"])
    subject = material("numa-2", records)
    with pytest.raises(AbsentError, match="found no measured latency of a memory") as error:
        write("numactl", subject)
    assert subject.left_out() == ["left out 4 results: flagged (disturbed); --flagged exports them"]
    assert error.value.hint == "meshmark measure latency --cpus 0,2 --memory-node all --footprint 1GiB"
    assert "[disturbed]" in write("numactl", material("numa-2", records, flagged=True))


def test_cpus_of_another_machine_are_left_out() -> None:
    subject = material("uma-2", latency(NUMA, NS))
    write("hwloc-xml", subject)
    assert any("CPU 2, which no node of the topology has" in line for line in subject.left_out())


def test_results_by_node_of_other_tools_count() -> None:
    records = [record("latency", "load_latency", 1e-9 * v, cpu_node=a, memory_node=b) for (a, b), v in NS.items()]
    assert len(attribute(write("hwloc-xml", material("numa-2", records)), "Latency")) == 4


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({0: 100.0, 1: 100.0}, {0: 1, 1: 1}),
        ({0: 300.0, 1: 100.0}, {0: 3, 1: 1}),
        ({0: 60.0, 1: 24.0}, {0: 5, 1: 2}),
        ({0: 100.0}, {0: 1}),
        ({0: 100.0, 1: 0.001}, {0: 255, 1: 1}),
    ],
)
def test_weights_are_the_smallest_that_fit(rates: dict[int, float], expected: dict[int, int]) -> None:
    node_weights, error = weights(rates)
    if rates.get(1) == 0.001:
        assert error > 0.02 and set(node_weights.values()) <= set(range(1, 256)), "no integers up to 255 fit"
    else:
        assert node_weights == expected and error <= 0.02


def test_weighted_interleave_is_a_script_with_its_error() -> None:
    records = bandwidth(CXL, {(0, 0): 60.0, (0, 1): 59.9, (0, 2): 15.0})
    text = write("weighted-interleave", material("cxl-2+1", records))
    commands = [line for line in text.splitlines() if not line.startswith("#")]
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    assert commands == [f"echo {w} > {folder}/node{n}" for n, w in enumerate((4, 4, 1))]
    assert "by at most" in text and "cpus 0-1" in text


def test_each_nodes_own_cpus_serve_where_no_team_reaches_all() -> None:
    text = write("weighted-interleave", numa_2())
    assert "cpus own node" in text or "cpus 0-1" in text
    assert "node0" in text and "node1" in text


def test_memkind_names_the_faster_nodes() -> None:
    hbm = topology("hbm-2")
    records = bandwidth(hbm, {(0, 0): 100.0, (0, 1): 400.0, (0, 2): 90.0, (0, 3): 390.0})
    text = write("memkind", material("hbm-2", records))
    assert "export MEMKIND_HBW_NODES=1,3\n" in text
    threshold = int(text.rpartition("THRESHOLD=")[2])
    assert 100e9 / 2**20 < threshold < 390e9 / 2**20


def test_memkind_refuses_equal_nodes() -> None:
    with pytest.raises(AbsentError, match="no node with a higher bandwidth than others"):
        write("memkind", material("numa-2", bandwidth(NUMA, {(0, 0): 60.0, (0, 1): 60.1})))
    with pytest.raises(AbsentError, match="bandwidth of one memory node"):
        write("memkind", material("numa-2", bandwidth(NUMA, {(0, 0): 60.0})))


def test_numactl_binds_to_the_nearest_and_leaves_slow_memory_out() -> None:
    records = [*latency(CXL, CXL_NS), *bandwidth(CXL, {(0, 0): 60.0, (0, 1): 50.0, (0, 2): 15.0})]
    text = write("numactl", material("cxl-2+1", records))
    assert "numactl --cpunodebind=1 --membind=1 PROGRAM\n" in text and "numactl --interleave=0-1 PROGRAM\n" in text
    latency_only = material("cxl-2+1", latency(CXL, CXL_NS))
    assert "--interleave" not in write("numactl", latency_only) and any("interleaved" in n for n in latency_only.notes)


# ------------------------------------------------------------------ guests


def test_units_of_a_table_of_16_bits() -> None:
    assert [unit_of([v]) for v in (1, 65534, 65535, 131068, 528000)] == [1, 1, 2, 2, 16]


def test_qemu_gets_nodes_distances_and_tables() -> None:
    subject = material("cxl-2+1", [*latency(CXL, CXL_NS), *bandwidth(CXL, {**GB, (0, 2): 15.0})])
    options = [line for line in write("qemu", subject).splitlines() if not line.startswith("#")]
    assert "-machine q35,hmat=on" in options and "-smp 4,sockets=2,cores=2,threads=1" in options
    assert "-numa node,nodeid=2,memdev=m2,initiator=0" in options, "the nearest, by latency"
    assert "-numa cpu,node-id=1,socket-id=1" in options
    assert "-numa dist,src=0,dst=2,val=29" in options or "-numa dist,src=0,dst=2,val=30" in options
    assert "-numa dist,src=2,dst=0,val=29" in options or "-numa dist,src=2,dst=0,val=30" in options
    assert sum("access-latency" in o for o in options) == 6 and sum("access-bandwidth" in o for o in options) == 5
    assert any("assumed to equal the opposite direction" in note for note in subject.notes)


def test_qemu_has_no_memory_for_a_node_without() -> None:
    memless = topology("memless-3")
    text = write("qemu", material("memless-3", latency(memless, {(0, 0): 90.0, (1, 0): 120.0, (2, 2): 90.0})))
    assert "-numa node,nodeid=1,initiator=1\n" in text and "-m 2048M\n" in text


def test_libvirt_pins_every_cpu_and_states_distances() -> None:
    domain = ElementTree.fromstring(write("libvirt", numa_2()))
    pins = [(p.get("vcpu"), p.get("cpuset")) for p in domain.iter("vcpupin")]
    assert pins == [(str(i), str(i)) for i in range(4)]
    cells = list(domain.iter("cell"))
    assert [(c.get("id"), c.get("cpus")) for c in cells] == [("0", "0-1"), ("1", "2-3")]
    assert [s.get("value") for s in cells[0].iter("sibling")] == ["10", "20"]
    nodes = [(m.get("cellid"), m.get("nodeset")) for m in domain.iter("memnode")]
    assert nodes == [("0", "0"), ("1", "1")]


def test_distances_are_bytes_whatever_was_measured() -> None:
    subject = material("numa-2", latency(NUMA, {(0, 0): 10.0, (0, 1): 5000.0, (1, 0): 9.0, (1, 1): 10.0}))
    text = write("qemu", subject)
    assert "src=0,dst=1,val=254" in text and "src=1,dst=0,val=11" in text


# ------------------------------------------------------------------ the list


@pytest.mark.parametrize("name", [f.name for f in FORMATS.values() if f.needs in {"topology", "hwloc"}])
def test_a_format_says_that_it_needs_a_topology(name: str) -> None:
    with pytest.raises(UsageError, match="found no topology of n042") as error:
        write(name, material("", latency(NUMA, NS)))
    assert "--topology FILE" in error.value.hint


@pytest.mark.parametrize("name", [f.name for f in FORMATS.values() if f.write])
def test_nothing_to_export_is_absent_with_a_command(name: str) -> None:
    with pytest.raises((AbsentError, UsageError)) as error:
        write(name, material("numa-2", []))
    assert error.value.hint.startswith("meshmark ")


def test_unknown_formats_and_those_of_other_commands_are_refused() -> None:
    with pytest.raises(UsageError, match="format: found 'hwloc'; allowed: hwloc-xml, weighted-interleave"):
        format_of("hwloc")
    with pytest.raises(UsageError, match="written from recordings") as error:
        format_of("perfetto")
    assert error.value.hint == "meshmark replay RECORDING --trace FILE.json"


def test_a_capture_of_another_machine_is_refused() -> None:
    side = numa_2().side
    with pytest.raises(UsageError, match=r"found the topology of numa-guest-.*; the results are of n042"):
        machine_of(side, str(machine("numa-2")), "host-1")
    assert machine_of(side, "", "host-1") is None
    opened = machine_of(side, str(machine("4x64")), "host-1")
    assert opened is not None and opened.label == "hwloc-xml", "XML names no machine"


def test_a_capture_without_xml_cannot_be_extended() -> None:
    subject = numa_2()
    assert subject.opened is not None
    subject.opened = replace(subject.opened, hwloc_xml=None)
    with pytest.raises(UsageError, match="has no hwloc XML"):
        write("hwloc-xml", subject)


def test_heads_state_machine_and_source() -> None:
    assert numa_2().about("qemu")[1] == f"Machine n042, source host, file n042.jsonl, newest result {START}"


def test_of_several_cpus_of_a_node_the_middle_value_counts() -> None:
    c = {"footprint_bytes": 2**30, "pattern": "random", "pages": "thp", "memory_node": 0}
    records = [record("latency", "load_latency", v * 1e-9, cpu=i % 2, **c) for i, v in enumerate((95, 500, 300))]
    text = write("hwloc-xml", material("numa-2", records))
    assert list(attribute(text, "Latency").values()) == pytest.approx([300], rel=0.011)


def test_most_pairs_count_before_the_largest_pages() -> None:
    large_pages = latency(NUMA, {(0, 0): 70.0}, pages="1GiB")
    text = write("hwloc-xml", material("numa-2", [*large_pages, *latency(NUMA, NS)]))
    assert sorted(attribute(text, "Latency").values()) == pytest.approx([95, 96, 185, 190], rel=0.011)
