"""Writes virtual machines of QEMU and libvirt whose memory is declared as measured.

Source:
    QEMU, qemu-options and hw/core/numa.c: bandwidth in whole MiB/s, distances up to 254, 16 bits for each entry of the
    HMAT, in a unit common to all entries.
    libvirt, formatdomain: cputune, numatune, numa cells with distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from meshmark.compare.exports.base import ExportMaterial, Format, commented, shown, xml_text
from meshmark.compare.exports.matrix import (
    NodePairMatrix,
    bandwidths,
    distances,
    known_latencies,
)
from meshmark.machine.topology import Node, Topology
from meshmark.machine.tree import format_list

_HMAT_MAX: Final = 65534  # largest value of an entry, in units of the table
_NODE_MIB: Final = 1024  # memory of a node of a guest
_MIB: Final = 2**20


def unit_of(values: Sequence[float]) -> int:
    """Return the smallest power of two whose multiples, up to the 65534th, reach all values."""
    unit = 1
    while max(values, default=0) / unit > _HMAT_MAX:
        unit *= 2
    return unit


def qemu(material: ExportMaterial) -> str:
    """Return options of QEMU, one per line, for a guest with the nodes of this machine.

    Raises:
        AbsentError: No memory latency was measured.
    """
    topology = material.topology
    latency, bandwidth = known_latencies(material), bandwidths(material)
    nodes = topology.nodes
    lines = commented(
        [
            *material.about("qemu"),
            f"Latency measured: {latency.conditions}",
            *([f"Bandwidth measured: {bandwidth.conditions}"] if bandwidth.cells else []),
            f"Use: qemu-system-x86_64 $(grep -v '^#' FILE) …; {_NODE_MIB} MiB of memory per node are a placeholder",
        ]
    )
    has_memory = [n.memory_bytes != 0 for n in nodes]
    lines += ["-machine q35,hmat=on", f"-m {_NODE_MIB * sum(has_memory)}M", *_cpu_options(topology)]
    for i, node in enumerate(nodes):
        memory = f",memdev=m{i}" if has_memory[i] else ""
        if has_memory[i]:
            lines.append(f"-object memory-backend-ram,id=m{i},size={_NODE_MIB}M")
        lines.append(f"-numa node,nodeid={i}{memory},initiator={_initiator(material, latency, node)}")
    lines += _cpu_nodes(topology)
    lines += _dist(material, latency, nodes)
    index_of_node = {node.os_index: i for i, node in enumerate(nodes)}
    table = "hierarchy=memory,data-type=access"
    for (a, b), record in latency.cells.items():
        lines.append(f"# node {a} to {b}: {shown(record)}")
        value = max(1, round(record.value * 1e9))
        lines.append(
            f"-numa hmat-lb,initiator={index_of_node[a]},target={index_of_node[b]},{table}-latency,latency={value}"
        )
    unit = unit_of([r.value / _MIB for r in bandwidth.cells.values()])
    for (a, b), record in bandwidth.cells.items():
        lines.append(f"# node {a} to {b}: {shown(record)}")
        value = max(1, round(record.value / _MIB / unit)) * unit
        lines.append(
            f"-numa hmat-lb,initiator={index_of_node[a]},target={index_of_node[b]},{table}-bandwidth,bandwidth={value}M"
        )
    if not bandwidth.cells:
        material.notes.append("no bandwidth from a node to a memory was measured; the guest's HMAT has latency only")
    elif unit > 1:
        material.notes.append(f"bandwidth is rounded to {unit} MiB/s: the HMAT has 16 bits for each entry")
    if [n.os_index for n in nodes] != list(range(len(nodes))):
        numbers = ", ".join(f"{n.os_index} is {i}" for i, n in enumerate(nodes))
        material.notes.append(f"QEMU numbers nodes from 0: node {numbers}")
    return "\n".join(lines) + "\n"


def _even(topology: Topology) -> tuple[int, int] | None:
    """Return the cores of a node and the threads of a core; None if they are not the same everywhere."""
    cores: dict[int, int] = {}
    threads = {len(c.cpus) for c in topology.cores}
    for core in topology.cores:
        node = topology.node_of(core.cpus[0])
        if node is None:
            return None
        cores[node] = cores.get(node, 0) + 1
    return (next(iter(cores.values())), threads.pop()) if len(threads) == 1 and len(set(cores.values())) == 1 else None


def _cpu_options(topology: Topology) -> list[str]:
    cpus = len(topology.cpus)
    if (even := _even(topology)) is not None:
        cores, threads = even
        return [f"-smp {cpus},sockets={cpus // cores // threads},cores={cores},threads={threads}"]
    return [f"-smp {cpus},sockets={cpus},cores=1,threads=1"]


def _cpu_nodes(topology: Topology) -> list[str]:
    """Return options with the node of each socket of the guest; a socket has the CPUs of a node, or one CPU."""
    index_of_node = {node.os_index: i for i, node in enumerate(topology.nodes)}
    if _even(topology) is not None:
        nodes_with_cpus = [n for n in topology.nodes if n.cpus]
        return [
            f"-numa cpu,node-id={index_of_node[n.os_index]},socket-id={socket}"
            for socket, n in enumerate(nodes_with_cpus)
        ]
    homes = [c.node for n in topology.nodes for c in topology.cpus if c.node == n.os_index]
    return [f"-numa cpu,node-id={index_of_node[n]},socket-id={i}" for i, n in enumerate(homes) if n is not None]


def _initiator(material: ExportMaterial, latency: NodePairMatrix, node: Node) -> int:
    """Return the index of the node whose CPUs are nearest, by measured latency; for a node with CPUs, its own."""
    nodes = material.topology.nodes
    index_of_node = {n.os_index: i for i, n in enumerate(nodes)}
    if node.cpus:
        return index_of_node[node.os_index]
    latencies = [(r.value, a) for (a, b), r in latency.cells.items() if b == node.os_index]
    if latencies:
        return index_of_node[min(latencies)[1]]
    first = next(i for i, n in enumerate(nodes) if n.cpus)
    material.notes.append(f"node {node.os_index} has no CPUs and no measured latency: node {first} is its initiator")
    return first


def _dist(material: ExportMaterial, latency: NodePairMatrix, nodes: Sequence[Node]) -> list[str]:
    distance_by_pair = distances(latency, [n.os_index for n in nodes])
    if distance_by_pair is None:
        material.notes.append("no distances: latency was not measured for all pairs; QEMU uses 10 and 20")
        return []
    if any((n.os_index, n.os_index) not in latency.cells for n in nodes):
        material.notes.append("distances from nodes without CPUs are assumed to equal the opposite direction")
    return [
        f"-numa dist,src={i},dst={j},val={distance_by_pair[a.os_index, b.os_index]}"
        for i, a in enumerate(nodes)
        for j, b in enumerate(nodes)
        if i != j
    ]


def libvirt(material: ExportMaterial) -> str:
    """Return parts of a libvirt domain: a guest that has this machine's CPUs and nodes, one to one.

    Raises:
        AbsentError: No memory latency was measured.
    """
    topology = material.topology
    latency = known_latencies(material)
    nodes = topology.nodes
    cpus = [c.os_index for c in topology.cpus]
    guest_cpu = {cpu: i for i, cpu in enumerate(cpus)}
    domain = ElementTree.Element("domain")
    total = sum(map(_kib, nodes))
    ElementTree.SubElement(domain, "memory", unit="KiB").text = str(total)
    ElementTree.SubElement(domain, "vcpu", placement="static").text = str(len(cpus))
    tune = ElementTree.SubElement(domain, "cputune")
    for cpu in cpus:
        ElementTree.SubElement(tune, "vcpupin", vcpu=str(guest_cpu[cpu]), cpuset=str(cpu))
    numatune = ElementTree.SubElement(domain, "numatune")
    ElementTree.SubElement(numatune, "memory", mode="strict", nodeset=format_list([n.os_index for n in nodes]))
    for i, node in enumerate(nodes):
        ElementTree.SubElement(numatune, "memnode", cellid=str(i), mode="strict", nodeset=str(node.os_index))
    numa = ElementTree.SubElement(ElementTree.SubElement(domain, "cpu", mode="host-passthrough"), "numa")
    distance_by_pair = distances(latency, [n.os_index for n in nodes])
    for i, node in enumerate(nodes):
        cell = ElementTree.SubElement(numa, "cell", id=str(i), memory=str(_kib(node)), unit="KiB")
        if node.cpus:
            cell.set("cpus", format_list([guest_cpu[c] for c in node.cpus]))
        if distance_by_pair is None:
            continue
        sibling = ElementTree.SubElement(cell, "distances")
        for j, other_node in enumerate(nodes):
            ElementTree.SubElement(
                sibling, "sibling", id=str(j), value=str(distance_by_pair[node.os_index, other_node.os_index])
            )
    if distance_by_pair is None:
        material.notes.append("no distances: latency was not measured for all pairs of nodes")
    material.notes.append("memory is all that a node has, or 1 GiB if that is unknown; leave some to the host")
    about = [*material.about("libvirt"), f"Latency measured: {latency.conditions}"]
    return xml_text(domain, [*about, *(f"node {a} to {b}: {shown(r)}" for (a, b), r in latency.cells.items())])


def _kib(node: Node) -> int:
    return (node.memory_bytes if node.memory_bytes is not None else _NODE_MIB * _MIB) // 1024


FORMATS: Final = [
    Format(
        name="qemu",
        summary="QEMU options of a guest with these nodes, distances and HMAT",
        write=qemu,
        needs="topology",
    ),
    Format(
        name="libvirt",
        summary="CPU pinning, memory nodes and distances of a libvirt domain",
        write=libvirt,
        needs="topology",
        suffix=".xml",
    ),
]
