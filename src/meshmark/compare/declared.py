"""What the firmware and the Linux kernel declare about memory and caches, beside what was measured.

Sources of declarations: the ACPI tables SLIT (relative distances of nodes) and HMAT (latency and bandwidth between a
node and its nearest CPUs), the kernel's list of caches, and the firmware's description of memory modules. In a virtual
machine, the hypervisor makes them up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from meshmark.compare.exports.base import Material
from meshmark.compare.exports.matrix import (
    Matrix,
    bandwidth_commands,
    bandwidths,
    in_memory,
    latencies,
    latency_command,
)
from meshmark.machine.absence import is_absent
from meshmark.measure.repetitions import measured
from meshmark.store.record import Record
from meshmark.values.verdicts import Interval, Ratio, alike, judge
from meshmark.values.verdicts import ratio as ratio_of

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
    """A declared number, and what was measured of it.

    Attributes:
        part: Such as `L2` or `node 0 to node 1`.
        unit: Of `declared`, `value` and `interval`; `1` for relative latencies and distances, local = 1.
        value: None if it was not measured.
        ratio: Measured over declared.
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
        """The verdict."""
        if self.ratio is None:
            return "not measured"
        return "within" if self.limit and self.ratio.word in {"lower", "equal"} else _WORDS[self.ratio.word]


def declarations(material: Material, margin: float = MARGIN, *, flagged: bool = False) -> list[Declaration]:
    """All declared numbers of a machine whose meaning is measured by an instrument.

    Args:
        material: Its results, topology and facts.
        margin: The smallest relative difference that matters.
        flagged: Whether flagged results are judged where there are no others; if not, their values have no verdict.

    Raises:
        UsageError: The topology is unknown.
    """
    rows = _rows(material)
    if any(row.value is None for row in rows):
        records = [replace(r, flags=frozenset()) for r in material.side.records]
        with_flagged = _rows(replace(material, side=replace(material.side, records=records)))
        if not flagged:
            with_flagged = [replace(row, reason="flagged; --flagged judges it") for row in with_flagged]
        pairs = zip(rows, with_flagged, strict=True)
        rows = [other if row.value is None and other.value is not None else row for row, other in pairs]
    return [_judged(row, margin) for row in rows]


def _rows(material: Material) -> list[Declaration]:
    """The declarations with what was measured, not judged; whatever was measured, they are the same ones."""
    latency = latencies(material)
    return [*_caches(material), *_distances(material, latency), *_performance(material, latency), *_peak(material)]


def absent(material: Material) -> list[str]:
    """What the machine does not declare, with the reason, a line each."""
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
    """With its ratio, unless it has one of two results, which needs their rule."""
    if row.value is None:
        return row
    if row.ratio is not None:
        by = row.declared
        scaled = None if row.ratio.interval is None else (row.ratio.interval[0] / by, row.ratio.interval[1] / by)
        value = row.ratio.value / by
    else:
        scaled = None if row.interval is None else (row.interval[0] / row.declared, row.interval[1] / row.declared)
        value = row.value / row.declared
    word = judge(None if row.reason else scaled, alike(margin))
    if row.quantity == CAPACITY and not row.reason and scaled is not None and scaled[0] <= 1 <= scaled[1]:
        word = "equal"  # a curve tells no more than the footprints between which a cache ends
    return replace(row, ratio=Ratio(value, scaled, word))


def _of(record: Record) -> dict[str, Any]:
    """Value, interval and doubt of a result."""
    found = measured(record)
    return {"value": record.value, "interval": record.bounds, "reason": found.excluded}


# ------------------------------------------------------------------ kinds of declarations


def _caches(material: Material) -> Iterator[Declaration]:
    """Sizes of data caches. The measured capacity lies between two footprints, the ends of its interval."""
    sizes = {c.level: c.size_bytes for c in material.topology.caches if c.kind != "instruction" and c.size_bytes}
    found: dict[int, Record] = {}
    for r in material.take("latency", "level_capacity"):
        level = r.conditions.get("level")
        if isinstance(level, int) and r.conditions.get("kind") == "cache":
            found[level] = r if level not in found or r.conditions.get("pages") == "thp" else found[level]
    for level, size in sorted(sizes.items()):
        row = Declaration(
            part=f"L{level}",
            quantity=CAPACITY,
            source="kernel",
            unit="B",
            declared=float(size or math.nan),
            command="meshmark measure latency",
        )
        if level not in found:
            yield row
            continue
        r, after = found[level], found[level].conditions.get("next_bytes")
        if not isinstance(after, int | float):
            yield replace(row, value=r.value, reason="the curve ends in this cache")
            continue
        low, high = sorted(r.ends)  # of several runs
        yield replace(row, value=r.value, interval=(low, max(high, float(after))))


def _distances(material: Material, latency: Matrix) -> Iterator[Declaration]:
    """Distances of nodes, as multiples of the local one, beside the latencies, as multiples of the local one."""
    topology = material.topology
    if not topology.distances or len(topology.nodes) < 2:
        return
    command = latency_command(topology)
    for node, row in zip(topology.nodes, topology.distances, strict=True):
        a = node.os_index
        own = row[[n.os_index for n in topology.nodes].index(a)]
        for other, distance in zip(topology.nodes, row, strict=True):
            b = other.os_index
            if a == b or not node.cpus or own <= 0:
                continue  # nodes without CPUs cannot load
            declared = Declaration(
                part=f"node {a} to node {b}",
                quantity="relative latency",
                source="SLIT",
                unit="1",
                declared=distance / own,
                command=command,
            )
            local, remote = latency.cells.get((a, a)), latency.cells.get((a, b))
            if local is None or remote is None:
                yield declared
                continue
            r = ratio_of(measured(remote), measured(local))
            doubts = [measured(x).excluded for x in (local, remote) if measured(x).excluded]
            yield replace(declared, value=r.value, interval=r.interval, ratio=r, reason="; ".join(doubts))


def _performance(material: Material, latency: Matrix) -> Iterator[Declaration]:
    """Latency and read bandwidth of the HMAT; of the classes of initiators the one with CPUs, if there is one."""
    assert material.opened is not None
    rows = material.opened.facts.get("node_performance")
    if not isinstance(rows, list):
        return
    best: dict[tuple[int, int], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["access"]):
        best |= {(initiator, row["target"]): row for initiator in row["initiators"]}
    bandwidth = bandwidths(material)
    quantities = (
        ("read_latency_s", "latency", "s", latency.cells, latency_command(material.topology)),
        ("read_bytes_per_s", "bandwidth", "B/s", bandwidth.cells, "; ".join(bandwidth_commands(material.topology))),
    )
    for (a, b), row in sorted(best.items()):
        for key, quantity, unit, cells, command in quantities:
            if key not in row:
                continue
            declared = Declaration(
                part=f"node {a} to node {b}",
                quantity=quantity,
                source="HMAT",
                unit=unit,
                declared=float(row[key]),
                command=command,
            )
            found = cells.get((a, b))
            yield declared if found is None else replace(declared, **_of(found))


def _peak(material: Material) -> Iterable[Declaration]:
    """The theoretical peak of the memory, which no measured traffic can exceed."""
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
    gross = material.take("bandwidth", "bandwidth_gross")
    sized = [r for r in gross if isinstance(r.conditions.get("footprint_bytes"), int)]
    found = [r for r in sized if in_memory(r, material.topology)]
    yield replace(row, **_of(max(found, key=lambda r: r.value))) if found else row
