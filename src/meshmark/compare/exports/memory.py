"""Writes settings of Linux, memkind and numactl that follow from measured bandwidth and latency of the memory nodes.

Source:
    Linux, Documentation/ABI/testing/sysfs-kernel-mm-mempolicy-weighted-interleave: weights are integers from 1 to 255.
    memkind, memkind_mem_attributes.c: MEMKIND_HBW_THRESHOLD is compared with hwloc's bandwidth; 200 * 1024 by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from meshmark.compare.exports.base import ExportMaterial, Format, commented, nothing, shown
from meshmark.compare.exports.matrix import known_latencies, node_bandwidths
from meshmark.errors import AbsentError
from meshmark.machine.tree import format_list
from meshmark.measure.repetitions import measured
from meshmark.statistics.verdicts import ratio
from meshmark.store.record import Record

_MAX_WEIGHT: Final = 255
_TOLERANCE: Final = 0.02  # relative error of the ratio of two weights
_FOLDER: Final = "/sys/kernel/mm/mempolicy/weighted_interleave"


def weights(bandwidths: Mapping[int, float]) -> tuple[dict[int, int], float]:
    """Return the smallest integer weights whose ratios differ by at most 2 % from the ratios of the bandwidths.

    If no integers up to 255 have such ratios, return the weights with the smallest error.

    Args:
        bandwidths: Bandwidths by node, above 0, in any unit.

    Returns:
        The weights, from 1 to 255, and the largest relative error of their ratios to the weight of the fastest node.
    """
    fastest = max(bandwidths.values())
    best: tuple[float, dict[int, int]] | None = None
    for top in range(1, _MAX_WEIGHT + 1):
        weight_by_node = {n: max(1, round(top * b / fastest)) for n, b in bandwidths.items()}
        error = max(abs(weight_by_node[n] * fastest / (top * b) - 1) for n, b in bandwidths.items())
        if best is None or error < best[0]:
            best = error, weight_by_node
        if error <= _TOLERANCE:
            return weight_by_node, error
    assert best is not None
    return best[1], best[0]


def weighted_interleave(material: ExportMaterial) -> str:
    """Return commands that set the weights of Linux 6.9 or newer.

    Raises:
        AbsentError: The bandwidth of no node was measured.
    """
    record_by_node, conditions = _positive(material)
    for node in material.topology.nodes:
        if node.memory_bytes and node.os_index not in record_by_node:
            material.notes.append(f"node {node.os_index}: bandwidth not measured; its weight stays as it is")
    weight_by_node, error = weights({n: r.value for n, r in record_by_node.items()})
    head = [
        *material.about("weighted-interleave"),
        f"Measured: {conditions}",
        f"The ratios of the weights differ from the ratios of the bandwidths by at most {100 * error:.1f} %"
        + ("" if error <= _TOLERANCE else f"; weights up to {_MAX_WEIGHT} come no closer"),
        "For Linux 6.9 or newer, as root",
    ]
    lines = commented(head)
    for number, record in record_by_node.items():
        lines += [f"# node {number}: {shown(record)}", f"echo {weight_by_node[number]} > {_FOLDER}/node{number}"]
    if len(record_by_node) == 1:
        material.notes.append("one node: interleaving has no effect")
    return "\n".join(lines) + "\n"


def memkind(material: ExportMaterial) -> str:
    """Return variables that name the nodes of high bandwidth.

    Raises:
        AbsentError: The bandwidth of fewer than two nodes was measured, or no group of nodes is shown to be faster.
    """
    records, conditions = _positive(material)
    if len(records) < 2:
        raise AbsentError(
            f"export: found the bandwidth of one memory node, {next(iter(records))}; memkind's nodes of high bandwidth "
            "are those that are faster than others",
            "meshmark machine show",
        )
    order = sorted(records, key=lambda n: records[n].value, reverse=True)
    gaps = [records[a].value / records[b].value for a, b in pairwise(order)]
    cut = gaps.index(max(gaps)) + 1
    slowest, next_slower = records[order[cut - 1]], records[order[cut]]
    if not material.flagged and ratio(measured(slowest), measured(next_slower)).word != "higher":
        raise AbsentError(
            f"export: found no node with a higher bandwidth than others: node {order[0]} has "
            f"{shown(records[order[0]])}, node {order[-1]} {shown(records[order[-1]])}",
            "meshmark export numactl",
        )
    threshold = round((slowest.value * next_slower.value) ** 0.5 / 2**20)
    head = [
        *material.about("memkind"),
        f"Measured: {conditions}",
        *(f"node {n}: {shown(records[n])}" for n in order),
        "MEMKIND_HBW_NODES alone suffices. memkind compares the threshold, in MiB/s, with the bandwidth that hwloc",
        "reports; it lies between both groups of nodes as measured",
    ]
    lines = [
        *commented(head),
        f"export MEMKIND_HBW_NODES={format_list(sorted(order[:cut]))}",
        f"export MEMKIND_HBW_THRESHOLD={threshold}",
    ]
    return "\n".join(lines) + "\n"


def numactl(material: ExportMaterial) -> str:
    """Return command lines that bind a program's memory, with the measured reason for each.

    Raises:
        AbsentError: No memory latency was measured.
    """
    latency = known_latencies(material)
    lines = commented([*material.about("numactl"), f"Latency measured: {latency.conditions}"])
    for initiator in sorted({a for a, _ in latency.cells}):
        targets = sorted((r.value, b, r) for (a, b), r in latency.cells.items() if a == initiator)
        _, nearest, nearest_record = targets[0]
        farther_nodes = [f"node {b} {shown(r)}" for _, b, r in targets[1:]]
        lines.append(f"# CPUs of node {initiator}: memory of node {nearest} is the nearest, {shown(nearest_record)}")
        lines += [f"# then {text}" for text in farther_nodes]
        lines.append(f"numactl --cpunodebind={initiator} --membind={nearest} PROGRAM")
        if farther_nodes:
            lines.append(f"numactl --cpunodebind={initiator} --preferred={nearest} PROGRAM  # if it may not fit there")
    lines += _interleaved(material)
    return "\n".join(lines) + "\n"


def _interleaved(material: ExportMaterial) -> list[str]:
    """Return the line for programs that need the bandwidth of several nodes, if it was measured."""
    try:
        record_by_node, conditions = _positive(material)
    except AbsentError as error:
        material.notes.append(f"no line for interleaved memory: {str(error).removeprefix('export: ')} ({error.hint})")
        return []
    fastest = max(r.value for r in record_by_node.values())
    fast_nodes = [n for n, r in record_by_node.items() if r.value >= fastest / 2]
    if len(fast_nodes) < 2:
        return []
    head = [
        f"Bandwidth measured: {conditions}",
        *(f"node {n}: {shown(r)}" for n, r in record_by_node.items()),
        "Interleaved evenly, every node delivers as much as the slowest; nodes below half of the fastest are left out",
    ]
    return [*commented(head), f"numactl --interleave={format_list(fast_nodes)} PROGRAM"]


def _positive(material: ExportMaterial) -> tuple[dict[int, Record], str]:
    record_by_node, conditions = node_bandwidths(material)
    positive = {n: r for n, r in record_by_node.items() if r.value > 0}
    if not positive:
        raise nothing("bandwidth above 0")
    return positive, conditions


FORMATS: Final = [
    Format(
        name="weighted-interleave",
        summary="weights of memory nodes for Linux's weighted interleave, 1 to 255",
        write=weighted_interleave,
        needs="topology",
        suffix=".sh",
    ),
    Format(
        name="memkind",
        summary="MEMKIND_HBW_NODES and MEMKIND_HBW_THRESHOLD",
        write=memkind,
        needs="topology",
        suffix=".sh",
    ),
    Format(
        name="numactl", summary="numactl command lines, with reasons", write=numactl, needs="topology", suffix=".sh"
    ),
]
