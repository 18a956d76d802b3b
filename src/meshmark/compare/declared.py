"""Compares what the firmware and the Linux kernel declare about memory and caches with measurements.

Sources of declarations: the ACPI tables SLIT (relative distances of nodes) and HMAT (latency and bandwidth between a
node and its nearest CPUs), the kernel's list of caches, and the firmware's description of memory modules. In a virtual
machine, the hypervisor invents them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from meshmark.compare.exports.base import ExportMaterial
from meshmark.compare.exports.matrix import (
    NodePairMatrix,
    bandwidth_commands,
    bandwidths,
    in_memory,
    latencies,
    latency_command,
)
from meshmark.machine.absence import is_absent
from meshmark.measure.repetitions import measured
from meshmark.statistics.verdicts import Interval, Ratio, alike, judge
from meshmark.statistics.verdicts import ratio as ratio_of
from meshmark.store.record import Record

MARGIN: Final = 0.1  # declarations are coarse: a SLIT has steps of a tenth
CAPACITY: Final = "capacity"
Word = Literal["agrees", "measured lower", "measured higher", "inconclusive", "not measured"]
_WORDS: Final[Mapping[str, Word]] = {
    "equal": "agrees",
    "lower": "measured lower",
    "higher": "measured higher",
    "inconclusive": "inconclusive",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A declared number, and its measured value.

    Attributes:
        part: Part of the machine, such as `L2` or `node 0 to node 1`.
        unit: Unit of `declared`, `value` and `interval`; `1` for relative latencies and distances, local = 1.
        value: Measured value; None if it was not measured.
        ratio: Measured value over declared value.
        limit: Whether the declared number is an upper bound, which a lower value does not contradict.
        reason: Why there is no verdict; "" otherwise.
        command: A command that measures it.
    """

    part: str
    quantity: str
    source: str
    unit: str
    declared: float
    value: float | None = None
    interval: Interval | None = None
    ratio: Ratio | None = None
    limit: bool = False
    reason: str = ""
    command: str = ""

    @property
    def word(self) -> str:
        """Return the verdict."""
        if self.ratio is None:
            return "not measured"
        return "within" if self.limit and self.ratio.word in {"lower", "equal"} else _WORDS[self.ratio.word]


def declarations(material: ExportMaterial, margin: float = MARGIN, *, flagged: bool = False) -> list[Declaration]:
    """Return all declared numbers of a machine that describe a quantity which an instrument measures.

    Args:
        material: Results, topology and facts of the machine.
        margin: The smallest relative difference that matters.
        flagged: Whether flagged results are judged if there are no others. If not, their values have no verdict.

    Raises:
        UsageError: The topology is unknown.
    """
    rows = _rows(material)
    if any(row.value is None for row in rows):
        records = [replace(r, flags=frozenset()) for r in material.side.records]
        flagged_rows = _rows(replace(material, side=replace(material.side, records=records)))
        if not flagged:
            flagged_rows = [replace(row, reason="flagged; --flagged judges it") for row in flagged_rows]
        pairs = zip(rows, flagged_rows, strict=True)
        rows = [
            flagged_row if row.value is None and flagged_row.value is not None else row for row, flagged_row in pairs
        ]
    return [_judged(row, margin) for row in rows]


def _rows(material: ExportMaterial) -> list[Declaration]:
    """Return the declarations with measured values, but not judged; whatever was measured, the list is the same."""
    latency = latencies(material)
    return [*_caches(material), *_distances(material, latency), *_performance(material, latency), *_peak(material)]


def absent(material: ExportMaterial) -> list[str]:
    """Return a line for each thing that the machine does not declare, with the reason."""
    assert material.opened is not None
    facts = material.opened.facts
    memory = facts.get("memory")
    parts = {
        "HMAT": facts.get("node_performance"),
        "peak of the memory": memory.get("peak_bytes_per_s") if isinstance(memory, dict) else None,
    }
    lines = [f"{name}: {v['absent']}" for name, v in parts.items() if isinstance(v, dict) and is_absent(v)]
    if len(material.topology.nodes) < 2:
        lines.append("SLIT: the machine has one memory node")
    elif not material.topology.distances:
        lines.append("SLIT: the kernel reports no distances")
    return lines


def _judged(row: Declaration, margin: float) -> Declaration:
    """Return the row with its judged ratio. If it has a ratio of two results, the interval of that ratio is used."""
    if row.value is None:
        return row
    if row.ratio is not None:
        declared = row.declared
        interval = (
            None if row.ratio.interval is None else (row.ratio.interval[0] / declared, row.ratio.interval[1] / declared)
        )
        value = row.ratio.value / declared
    else:
        interval = None if row.interval is None else (row.interval[0] / row.declared, row.interval[1] / row.declared)
        value = row.value / row.declared
    word = judge(None if row.reason else interval, alike(margin))
    if row.quantity == CAPACITY and not row.reason and interval is not None and interval[0] <= 1 <= interval[1]:
        word = "equal"  # a curve only shows between which footprints a cache ends
    return replace(row, ratio=Ratio(value, interval, word))


def _measured_fields(record: Record) -> dict[str, Any]:
    """Return value, interval and doubt of a result as fields of a declaration."""
    measurement = measured(record)
    return {"value": record.value, "interval": record.bounds, "reason": measurement.excluded}


# ------------------------------------------------------------------ kinds of declarations


def _caches(material: ExportMaterial) -> Iterator[Declaration]:
    """Yield the sizes of data caches. The measured capacity lies between two footprints, the ends of its interval."""
    sizes = {c.level: c.size_bytes for c in material.topology.caches if c.kind != "instruction" and c.size_bytes}
    record_by_level: dict[int, Record] = {}
    for r in material.take("latency", "level_capacity"):
        level = r.conditions.get("level")
        if isinstance(level, int) and r.conditions.get("kind") == "cache":
            record_by_level[level] = (
                r if level not in record_by_level or r.conditions.get("pages") == "thp" else record_by_level[level]
            )
    for level, size in sorted(sizes.items()):
        row = Declaration(
            part=f"L{level}",
            quantity=CAPACITY,
            source="kernel",
            unit="B",
            declared=float(size or math.nan),
            command="meshmark measure latency",
        )
        if level not in record_by_level:
            yield row
            continue
        r, next_bytes = record_by_level[level], record_by_level[level].conditions.get("next_bytes")
        if not isinstance(next_bytes, int | float):
            yield replace(row, value=r.value, reason="the curve ends in this cache")
            continue
        low, high = sorted(r.ends)  # lowest and highest value of several runs
        yield replace(row, value=r.value, interval=(low, max(high, float(next_bytes))))


def _distances(material: ExportMaterial, latency: NodePairMatrix) -> Iterator[Declaration]:
    """Yield the distances of nodes and the latencies, each as a multiple of the local distance or latency."""
    topology = material.topology
    if not topology.distances or len(topology.nodes) < 2:
        return
    command = latency_command(topology)
    for node, row in zip(topology.nodes, topology.distances, strict=True):
        a = node.os_index
        local_distance = row[[n.os_index for n in topology.nodes].index(a)]
        for other_node, distance in zip(topology.nodes, row, strict=True):
            b = other_node.os_index
            if a == b or not node.cpus or local_distance <= 0:
                continue  # nodes without CPUs cannot load
            declaration = Declaration(
                part=f"node {a} to node {b}",
                quantity="relative latency",
                source="SLIT",
                unit="1",
                declared=distance / local_distance,
                command=command,
            )
            local, remote = latency.cells.get((a, a)), latency.cells.get((a, b))
            if local is None or remote is None:
                yield declaration
                continue
            r = ratio_of(measured(remote), measured(local))
            doubts = [measured(x).excluded for x in (local, remote) if measured(x).excluded]
            yield replace(declaration, value=r.value, interval=r.interval, ratio=r, reason="; ".join(doubts))


def _performance(material: ExportMaterial, latency: NodePairMatrix) -> Iterator[Declaration]:
    """Yield latency and read bandwidth of the HMAT, for the class of initiators that have CPUs if there is one."""
    assert material.opened is not None
    rows = material.opened.facts.get("node_performance")
    if not isinstance(rows, list):
        return
    row_by_pair: dict[tuple[int, int], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["access"]):
        row_by_pair |= {(initiator, row["target"]): row for initiator in row["initiators"]}
    bandwidth = bandwidths(material)
    quantities = (
        ("read_latency_s", "latency", "s", latency.cells, latency_command(material.topology)),
        ("read_bytes_per_s", "bandwidth", "B/s", bandwidth.cells, "; ".join(bandwidth_commands(material.topology))),
    )
    for (a, b), row in sorted(row_by_pair.items()):
        for key, quantity, unit, cells, command in quantities:
            if key not in row:
                continue
            declaration = Declaration(
                part=f"node {a} to node {b}",
                quantity=quantity,
                source="HMAT",
                unit=unit,
                declared=float(row[key]),
                command=command,
            )
            record = cells.get((a, b))
            yield declaration if record is None else replace(declaration, **_measured_fields(record))


def _peak(material: ExportMaterial) -> Iterable[Declaration]:
    """Yield the theoretical peak of the memory, which no measured traffic can exceed."""
    assert material.opened is not None
    memory = material.opened.facts.get("memory")
    peak = memory.get("peak_bytes_per_s") if isinstance(memory, dict) else None
    if not isinstance(peak, int | float):
        return
    row = Declaration(
        part="memory",
        quantity="bandwidth",
        source="firmware",
        unit="B/s",
        declared=float(peak),
        limit=True,
        command="meshmark measure bandwidth",
    )
    records = material.take("bandwidth", "bandwidth_gross")
    sized_records = [r for r in records if isinstance(r.conditions.get("footprint_bytes"), int)]
    memory_records = [r for r in sized_records if in_memory(r, material.topology)]
    yield replace(row, **_measured_fields(max(memory_records, key=lambda r: r.value))) if memory_records else row
