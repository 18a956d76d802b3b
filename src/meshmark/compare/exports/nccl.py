"""Topology of CPUs for NCCL, NCCL_TOPO_FILE, with the bandwidth that NCCL assumes beside the measured one.

NCCL's format has no attribute for the bandwidth between CPUs. NCCL takes a constant by vendor and model of the CPU, so
the file can only name the CPUs and the nodes; the measured values stand in comments.

Source:
    NCCL (commit 5067397c), src/graph/topo.cc and topo.h: ncclTopoAddCpu, ncclTopoGetInterCpuBw; xml.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree

from meshmark.compare.exports.base import Format, Material, nothing, shown, xml_text
from meshmark.compare.exports.matrix import bandwidth_commands, bandwidths
from meshmark.errors import UsageError

_FIRST_MODEL: Final = ((0xCF, 40.0), (0x8F, 22.0), (0x55, 10.0), (0, 6.0))  # Intel family 6: GB/s from this model on
_VENDORS: Final = {"GenuineIntel", "AuthenticAMD"}
_ARM: Final = 6.0


def write(material: Material) -> str:
    """The nodes with CPUs.

    Raises:
        AbsentError: No bandwidth between two nodes was measured.
        UsageError: The vendor, family or model of the CPUs is unknown to the topology or to this format.
    """
    topology = material.topology
    matrix = bandwidths(material)
    far = {pair: r for pair, r in matrix.cells.items() if pair[0] != pair[1]}
    if not far:
        raise nothing("bandwidth between two nodes", *bandwidth_commands(topology))
    attributes, assumed = _cpu(material)
    system = ElementTree.Element("system", version="1")
    for node in topology.nodes:
        if not node.cpus:
            continue
        mask = f"{sum(1 << c for c in node.cpus):x}"
        mask = mask.zfill(-(-len(mask) // 8) * 8)
        affinity = ",".join(mask[at : at + 8] for at in range(0, len(mask), 8))
        ElementTree.SubElement(system, "cpu", {"numaid": str(node.os_index), "affinity": affinity, **attributes})
    material.notes.append(
        f"NCCL's format has no bandwidth between CPUs: NCCL assumes {assumed:g} GB/s for these, "
        "the measured values stand in comments"
    )
    about = [
        *material.about("nccl"),
        f"NCCL assumes {assumed:g} GB/s between CPUs of this model; measured: {matrix.conditions}",
        *(f"node {a} to {b}: {shown(r)}, {r.value / assumed / 1e9:.2g} of NCCL's" for (a, b), r in far.items()),
    ]
    return xml_text(system, about)


def _cpu(material: Material) -> tuple[dict[str, str], float]:
    """The attributes of a CPU, and the bandwidth between two such CPUs that NCCL assumes, in GB/s."""
    assert material.opened is not None
    facts = material.opened.facts.get("cpu")
    cpu: Mapping[str, object] = facts if isinstance(facts, Mapping) else {}
    vendor, family, model = (cpu.get(k) for k in ("vendor", "family", "model_number"))
    if isinstance(vendor, str) and vendor.startswith("0x"):  # Linux on ARM has a number
        return {"arch": "arm64"}, _ARM
    if not (vendor in _VENDORS and _digits(family) and _digits(model)):
        raise UsageError(
            f"export: found CPUs of vendor '{vendor if isinstance(vendor, str) else 'unknown'}'; allowed: "
            f"{', '.join(sorted(_VENDORS))}, or ARM, in a capture of the machine",
            "meshmark machine capture FILE on that machine, and --topology FILE",
        )
    known, number = int(str(family)), int(str(model))
    # NCCL adds the extended family in steps of 16, Linux in steps of 1.
    theirs = known if known <= 15 else 15 + (known - 15 << 4)
    attributes = {"arch": "x86_64", "vendor": str(vendor), "familyid": str(theirs), "modelid": str(number)}
    if vendor == "AuthenticAMD":
        return attributes, 16.0
    return attributes, next(rate for first, rate in _FIRST_MODEL if (known == 6 and number >= first) or first == 0)


def _digits(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


FORMATS: Final = [
    Format(
        name="nccl",
        summary="NCCL topology of CPUs; measured against assumed bandwidth in comments",
        write=write,
        needs="topology",
        suffix=".xml",
    )
]
