"""Writes inputs of simulators: curves of Mess, and platforms of SimGrid.

Source:
    Mess 2.0, processed/memory_curves.csv: percent of reads, GB/s (10^9 bytes), ns.
    SimGrid, platform.dtd version 4.1: hosts, links and routes of a zone.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from meshmark.compare.exports.base import ExportMaterial, Format, nothing, shown, words, xml_text
from meshmark.compare.exports.matrix import NodePairMatrix, bandwidths, line_latencies, node_of
from meshmark.measure.repetitions import measurement_key
from meshmark.store.record import Record, median

_DTD: Final = "https://simgrid.org/simgrid.dtd"
# Instruments whose rate of one thread is the speed of a core, in order of preference.
_ONE_CORE: Final = ("peak", "dgemm")


# ------------------------------------------------------------------ Mess


def mess(material: ExportMaterial) -> str:
    """Return curves of latency against bandwidth, as CSV, by share of reads.

    Each point was measured under the conditions of its records.

    Raises:
        AbsentError: No latency was measured under load.
    """
    latency: dict[str, Record] = {}
    bandwidth: dict[str, Record] = {}
    for r in material.take("loaded", "load_latency", "bandwidth_net"):
        records = latency if r.metric == "load_latency" else bandwidth
        records[measurement_key(r)] = r
    curves: dict[str, list[str]] = {}
    for key in latency.keys() & bandwidth.keys():
        curves.setdefault(_curve(latency[key]), []).append(key)
    if not curves:
        raise nothing("latency under load", "meshmark measure loaded --mode paced --threads all --read-share 1,0.5")
    # A machine has one family of curves: the family with the highest bandwidth, which is the family of all threads.
    best = max(curves, key=lambda c: (median([len(curves[c])]) > 2, max(bandwidth[k].value for k in curves[c]), c))
    for curve, keys in curves.items():
        if curve != best:
            for r in (by_key[k] for k in keys for by_key in (latency, bandwidth)):
                material.omit(r, "points of another curve (mode, threads, memory node, pages)")
    material.notes.append(f"curve: {best}")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["read_pct_rounded", "pause", "bandwidth_mean", "latency_mean"])
    rows = []
    for key in curves[best]:
        c = latency[key].conditions
        read_share = c.get("read_share")
        share = 100 * float(read_share) if isinstance(read_share, int | float) else 100.0
        pause = c.get("injected_pause", c.get("pause", 0))
        rows.append((-share, bandwidth[key].value, pause, latency[key].value))
    for share, rate, pause, time in sorted(rows, key=lambda row: row[:2]):
        writer.writerow([f"{-share:g}", pause, f"{rate / 1e9:.6g}", f"{time * 1e9:.6g}"])
    return buffer.getvalue()


def _curve(record: Record) -> str:
    """Return the conditions that the points of a family of curves have in common, in words."""
    names = ("source", "mode", "threads", "memory_node", "footprint_bytes", "pages", "statistic")
    conditions = {"source": record.source, **record.conditions}
    return words({name: conditions[name] for name in names if name in conditions})


# ------------------------------------------------------------------ SimGrid


def simgrid(material: ExportMaterial) -> str:
    """Return a platform with one zone: every core is a host, every memory node a router, and links connect them.

    A route between two cores of a node has the link of each core, and twice the bus of the node, because a copy reads
    and writes. A route between two nodes has the bus of each node and the link between them. The latency of a core's
    link is half of the latency of a line's transfer within a node. The latency of a link between nodes is the
    difference between the latencies of a transfer between the nodes and a transfer within a node.

    Raises:
        AbsentError: The speed of a core, the latency of lines or the bandwidth of a node was not measured.
    """
    topology = material.topology
    home = node_of(topology)
    cores = {core.cpus[0]: home[core.cpus[0]] for core in topology.cores if core.cpus[0] in home}
    speed, core_rate, lines = _speed(material), _core_rate(material), line_latencies(material)
    matrix = bandwidths(material)
    if not lines.cells:
        raise nothing("latency of the transfer of a line", "meshmark measure lines --state swap")
    local_latencies = [r.value for (a, b), r in lines.cells.items() if home.get(a) == home.get(b)]
    if not local_latencies:
        raise nothing("latency of the transfer of a line within a node", "meshmark measure lines --state swap")
    local_s = median(local_latencies)
    about = [
        *material.about("simgrid"),
        f"speed of a core: {speed.instrument} {shown(speed)}; its link: bandwidth of one thread, {shown(core_rate)}",
        f"latency of a core's link: half of {local_s * 1e9:.3g} ns, the median of a node's pairs ({lines.conditions})",
        *([f"bandwidth of nodes: {matrix.conditions}"] if matrix.cells else []),
    ]
    platform = ElementTree.Element("platform", version="4.1")
    # The default model multiplies latencies by 13, which fits TCP; these latencies are measured end to end.
    config = ElementTree.SubElement(platform, "config")
    ElementTree.SubElement(config, "prop", id="network/model", value="CM02")
    zone = ElementTree.SubElement(platform, "zone", id=material.side.machine, routing="Floyd")
    nodes = sorted(set(cores.values()))
    for cpu in cores:
        ElementTree.SubElement(zone, "host", id=f"cpu{cpu}", speed=f"{speed.value:.6g}f")
    for node in nodes:
        ElementTree.SubElement(zone, "router", id=f"node{node}")
    for cpu in cores:
        _link(zone, f"link_cpu{cpu}", core_rate.value, local_s / 2)
    routes: list[tuple[str, str, list[str]]] = []
    for node in nodes:
        node_bandwidth = matrix.cells.get((node, node))
        if node_bandwidth is None:
            material.notes.append(f"node {node}: bandwidth not measured; it has no bus that its cores share")
        else:
            _link(zone, f"bus_node{node}", node_bandwidth.value, 0.0)
        bus = [f"bus_node{node}"] if node_bandwidth is not None else []
        routes += [
            (f"cpu{cpu}", f"node{node}", [f"link_cpu{cpu}", *bus])
            for cpu, home_node in cores.items()
            if home_node == node
        ]
    routes += _between(material, zone, nodes, matrix, lines, local_s)
    for source, target, links in routes:
        route = ElementTree.SubElement(zone, "route", src=source, dst=target)
        for link in links:
            ElementTree.SubElement(route, "link_ctn", id=link)
    return xml_text(platform, about, ("platform", _DTD))


def _between(
    material: ExportMaterial,
    zone: ElementTree.Element,
    nodes: Sequence[int],
    matrix: NodePairMatrix,
    lines: NodePairMatrix,
    local_s: float,
) -> list[tuple[str, str, list[str]]]:
    """Add links between nodes and return their routes; a link serves both directions, with the lower bandwidth."""
    home = node_of(material.topology)
    routes = []
    for i, a in enumerate(nodes):
        for b in nodes[i + 1 :]:
            times = [r.value for (x, y), r in lines.cells.items() if {home.get(x), home.get(y)} == {a, b}]
            rates = [rate for pair in ((a, b), (b, a)) if (rate := matrix.value(*pair)) is not None]
            if not times or not rates:
                quantity = "transfers of lines" if not times else "bandwidth"
                material.notes.append(
                    f"nodes {a} and {b}: {quantity} not measured; the platform has no link between them"
                )
                continue
            _link(zone, f"link_node{a}_node{b}", min(rates), max(0.0, median(times) - local_s))
            routes.append((f"node{a}", f"node{b}", [f"link_node{a}_node{b}"]))
    return routes


def _link(zone: ElementTree.Element, name: str, rate: float, time_s: float) -> None:
    ElementTree.SubElement(zone, "link", id=name, bandwidth=f"{rate:.6g}Bps", latency=f"{time_s * 1e9:.6g}ns")


def _speed(material: ExportMaterial) -> Record:
    for instrument in _ONE_CORE:
        records = [
            r
            for r in material.take(instrument, "flop_rate")
            if r.conditions.get("threads") == 1 and r.conditions.get("type", "fp64") == "fp64"
        ]
        if records:
            return max(records, key=lambda r: r.value)
    raise nothing("speed of a core", "meshmark measure peak --type fp64 --threads 1")


def _core_rate(material: ExportMaterial) -> Record:
    """Return the bandwidth of one thread: of copy, since a message between processes is a copy, or of any kernel."""
    thread_records = [r for r in material.take("bandwidth", "bandwidth_net") if r.conditions.get("threads") == 1]
    in_memory = [r for r in thread_records if _footprint(r) == max(map(_footprint, thread_records))]
    copies = [r for r in in_memory if r.conditions.get("kernel") == "copy"] or in_memory
    if not copies:
        raise nothing("bandwidth of one thread", "meshmark measure bandwidth --kernel copy --threads 1")
    return max(copies, key=lambda r: r.value)


def _footprint(record: Record) -> float:
    footprint = record.conditions.get("footprint_bytes")
    return float(footprint) if isinstance(footprint, int | float) else 0.0


FORMATS: Final = [
    Format(
        name="mess", summary="curves of latency against bandwidth, memory_curves.csv of Mess", write=mess, suffix=".csv"
    ),
    Format(
        name="simgrid",
        summary="platform of SimGrid: cores, nodes and links",
        write=simgrid,
        needs="topology",
        suffix=".xml",
    ),
]
