"""Writes hwloc 2 XML with the measured latency and bandwidth from the CPUs of every node to every memory.

The Linux kernel reports these only for the nearest CPUs of a memory, from the firmware's HMAT, if at all. Programs that
use hwloc read the file with HWLOC_XMLFILE=FILE and HWLOC_THISSYSTEM=1.

Source:
    hwloc, memattrs.h: latency in ns, bandwidth in MiB/s; distances.h: kinds of matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

from meshmark.compare.exports.base import ExportMaterial, Format, nothing
from meshmark.compare.exports.matrix import (
    NodePairMatrix,
    bandwidth_commands,
    bandwidths,
    latencies,
    latency_command,
    line_latencies,
    node_of,
)
from meshmark.store.record import Record

_HIGHER, _LOWER, _INITIATOR = 1, 2, 4  # flags of an attribute
_FROM_USER, _LATENCY, _BANDWIDTH = 2, 4, 8  # kinds of a matrix
_STANDARD: Final = {"Latency": _LOWER | _INITIATOR, "Bandwidth": _HIGHER | _INITIATOR}
_PER_LINE: Final = 16


def write(material: ExportMaterial) -> str:
    """Return the XML of the topology, with memory attributes and matrices.

    Raises:
        AbsentError: Neither memory latency nor memory bandwidth was measured.
    """
    data = material.hwloc_xml()
    # `hwloc_xml` has refused entities, so the data may be parsed. The document type is hwloc's, and is kept.
    prolog = data[: data.index(b"<topology")].decode("utf-8")
    top = ElementTree.fromstring(data)
    latency, bandwidth, lines = latencies(material), bandwidths(material), line_latencies(material)
    if not latency.cells and not bandwidth.cells:
        topology = material.topology
        raise nothing("latency or bandwidth of a memory", latency_command(topology), *bandwidth_commands(topology))
    machine = top.find("object")
    assert machine is not None  # `from_hwloc_xml` requires it
    nodes = {int(o.get("os_index", -1)): o for o in machine.iter("object") if o.get("type") == "NUMANode"}
    members: dict[int, list[int]] = {}
    for cpu, node in node_of(material.topology).items():
        members.setdefault(node, []).append(cpu)
    _attribute(top, "Latency", latency, nodes, members, _nanoseconds)
    _attribute(top, "Bandwidth", bandwidth, nodes, members, _mebibytes)
    cpus = sorted({cpu for pair in lines.cells for cpu in pair})
    nodes_with_cpus = sorted(members)
    if nodes_with_cpus != sorted(nodes):
        material.notes.append("matrices have the nodes with CPUs only; the attributes have all memories")
    matrices = (
        # Not called NUMALatency, which is what the operating system reports, relative to 10.
        ("load_latency_ns", "NUMANode", _LATENCY, latency, nodes_with_cpus, _nanoseconds),
        ("bandwidth_net_MiB_per_s", "NUMANode", _BANDWIDTH, bandwidth, nodes_with_cpus, _mebibytes),
        ("line_latency_ns", "PU", _LATENCY, lines, cpus, _nanoseconds),
    )
    for name, kind, quantity, matrix, indexes, unit in matrices:
        if matrix.cells:
            _distances(material, top, name, kind, _FROM_USER | quantity, matrix, indexes, unit)
    _infos(material, machine, {"Latency": latency, "Bandwidth": bandwidth, "Lines": lines})
    ElementTree.indent(top)
    return prolog + ElementTree.tostring(top, encoding="unicode") + "\n"


def _nanoseconds(record: Record) -> int:
    return round(record.value * 1e9)


def _mebibytes(record: Record) -> int:
    return round(record.value / 2**20)


def _cpuset(cpus: Sequence[int]) -> str:
    """Return hwloc's bitmap of CPUs: words of 32 bits, the highest first."""
    digits = f"{sum(1 << c for c in set(cpus)):x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(f"0x{digits[start : start + 8]}" for start in range(0, len(digits), 8))


def _attribute(
    top: ElementTree.Element,
    name: str,
    matrix: NodePairMatrix,
    nodes: Mapping[int, ElementTree.Element],
    members: Mapping[int, Sequence[int]],
    unit: Callable[[Record], int],
) -> None:
    """Replace the values of a memory attribute by measured values, which are not mixed with values of the firmware."""
    if not matrix.cells:
        return
    element = next((e for e in top.iter("memattr") if e.get("name") == name), None)
    if element is None:
        element = ElementTree.SubElement(top, "memattr", name=name)
    element.set("flags", str(_STANDARD[name]))
    for child in list(element):
        element.remove(child)
    for (initiator, target), record in matrix.cells.items():
        ElementTree.SubElement(
            element,
            "memattr_value",
            target_obj_type="NUMANode",
            target_obj_gp_index=nodes[target].get("gp_index", ""),
            value=str(unit(record)),
            initiator_cpuset=_cpuset(members[initiator]),
        )


def _distances(
    material: ExportMaterial,
    top: ElementTree.Element,
    name: str,
    kind: str,
    flags: int,
    matrix: NodePairMatrix,
    indexes: Sequence[int],
    unit: Callable[[Record], int],
) -> None:
    """Add a matrix, in the order that hwloc requires: after the objects, before everything else."""
    missing = [(a, b) for a in indexes for b in indexes if (a, b) not in matrix.cells and not (kind == "PU" and a == b)]
    if missing or len(indexes) < 2:
        if missing:
            objects = "NUMA nodes" if kind == "NUMANode" else "CPUs"
            a, b = missing[0]
            material.notes.append(
                f"no matrix {name}: {objects} {a} to {b} not measured; hwloc's matrices have all pairs"
            )
        return
    element = ElementTree.Element(
        "distances2", type=kind, nbobjs=str(len(indexes)), kind=str(flags), name=name, indexing="os"
    )
    _numbers(element, "indexes", indexes)
    cells = [unit(matrix.cells[a, b]) if (a, b) in matrix.cells else 0 for a in indexes for b in indexes]
    _numbers(element, "u64values", cells)
    last = max(i for i, child in enumerate(top) if child.tag in {"object", "distances2"})
    top.insert(last + 1, element)


def _numbers(parent: ElementTree.Element, tag: str, numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), _PER_LINE):
        text = "".join(f"{n} " for n in numbers[start : start + _PER_LINE])
        ElementTree.SubElement(parent, tag, length=str(len(text))).text = text


def _infos(material: ExportMaterial, machine: ElementTree.Element, matrices: Mapping[str, NodePairMatrix]) -> None:
    about = dict(zip(("MeshmarkExport", "MeshmarkResults"), material.about("hwloc-xml"), strict=True))
    about |= {f"Meshmark{name}": m.conditions for name, m in matrices.items() if m.cells}
    last = max((i for i, child in enumerate(machine) if child.tag == "info"), default=-1)
    for name, value in reversed(about.items()):
        machine.insert(last + 1, ElementTree.Element("info", name=name, value=value))


FORMATS: Final = [
    Format(
        name="hwloc-xml",
        summary="hwloc 2 XML with measured Latency and Bandwidth of every pair of nodes, and matrices",
        write=write,
        needs="hwloc",
        suffix=".xml",
    )
]
