"""Selects the most exact source of the traffic between nodes that a recording has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.frames import Frame, Header
from meshmark.watch.traffic.bounds import MAX_NODES, traffic_bounds
from meshmark.watch.traffic.matrix import (
    COUNTED,
    ESTIMATED,
    REBUILT,
    SOURCES,
    RemoteShare,
    TrafficAbsent,
    TrafficMatrix,
    exact,
    remote_share,
)
from meshmark.watch.traffic.placed import RATE_RATIO, PlacedProgram, estimate
from meshmark.watch.traffic.rebuild import PacketBytes, TrafficSums, rebuild
from meshmark.watch.traffic.routes import LinkGraph

Floats = NDArray[np.float64]

_MAX_REBUILT: Final = 128  # nodes; with more, there are too many pairs
_RATES: Final = ("memory.read", "memory.write", "memory.traffic", "memory.busy", "link.out", "link.busy")


@dataclass(slots=True)
class _RecordedSums:
    """Sums over the frames of a recording.

    Attributes:
        amounts: By metric and component, value times time; NaN if it was never known.
        remote: By node, share of remote loads that its CPUs count; NaN if unknown.
    """

    seconds: float = 0.0
    amounts: dict[str, Floats] = field(default_factory=dict)
    remote: Floats = field(default_factory=lambda: np.zeros(0))
    programs: list[PlacedProgram] = field(default_factory=list)


def traffic_of(header: Header, frames: Iterable[Frame], source: str = "", whole: bool = True) -> TrafficMatrix:
    """Return the traffic between the nodes of a recording.

    Args:
        header: Its header.
        frames: Its frames, or a part of them.
        source: One of `SOURCES`; "": the most exact one that the recording has.
        whole: Whether the frames are all frames of the recording.

    Raises:
        TrafficAbsent: No source, or not this one, is available; the message has the reasons.
    """
    if not header.count("node"):
        raise TrafficAbsent("the recording names no memory nodes")
    totals = _totals(header, frames)
    functions: Mapping[str, Callable[[], TrafficMatrix]] = {
        COUNTED: lambda: _counted(header, totals, whole),
        REBUILT: lambda: _rebuilt(header, totals, whole),
        ESTIMATED: lambda: _estimated(header, totals),
    }
    reasons = []
    for name in [source] if source else SOURCES:
        try:
            return functions[name]()
        except TrafficAbsent as absence:
            reasons.append(f"not {name}: {absence}")
    raise TrafficAbsent("the traffic between nodes is unknown: " + "; ".join(reasons))


def _totals(header: Header, frames: Iterable[Frame]) -> _RecordedSums:
    totals = _RecordedSums()
    known: dict[str, Floats] = {}
    nodes = header.count("node")
    node_of_cpu = _nodes_of(header, "cpu")
    node_of_number = {int(c.get("number", i)): node_of_cpu[i] for i, c in enumerate(header.components.get("cpu", ()))}
    remote = np.zeros((2, nodes))  # remote and all loads, weighted by the use of the CPUs
    for frame in frames:
        totals.seconds += frame.window_s
        for metric in _RATES:
            if (row := frame.values.get(metric)) is not None:
                values = np.array(row, dtype=float)
                is_known = ~np.isnan(values)
                known.setdefault(metric, np.zeros(len(row)))
                totals.amounts.setdefault(metric, np.zeros(len(row)))
                known[metric] += frame.window_s * is_known
                totals.amounts[metric] += frame.window_s * np.where(is_known, values, 0.0)
        for cpu, share in enumerate(frame.values.get("cpu.remote", ())):
            busy = frame.value("cpu.busy", cpu)
            if share is not None and busy is not None and 0 <= node_of_cpu[cpu] < nodes:
                remote[:, node_of_cpu[cpu]] += frame.window_s * busy * np.array([share, 1.0])
        totals.programs += _programs(frame, nodes, node_of_number)
    for metric, amount in totals.amounts.items():
        seconds = known[metric]
        # A component that was unknown in some frames is assumed to have had its mean use in them.
        totals.amounts[metric] = np.where(seconds > 0, amount / np.maximum(seconds, 1e-30) * totals.seconds, np.nan)
    totals.remote = np.where(remote[1] > 0, remote[0] / np.maximum(remote[1], 1e-30), np.nan)
    return totals


def _nodes_of(header: Header, component_class: str) -> list[int]:
    return [int(c.get("node", -1)) for c in header.components.get(component_class, ())]


def _programs(frame: Frame, nodes: int, node_of: Mapping[int, int]) -> Iterable[PlacedProgram]:
    """Yield the programs of a frame whose pages are known, with the CPU time of their threads by node."""
    for process in frame.processes:
        pages = process.get("nodes")
        if not pages or len(pages) != nodes:
            continue
        ran, all_s = np.zeros(nodes), float(process.get("cpu") or 0.0) * frame.window_s
        threads = process.get("busiest") or [{"cpu": process.get("cpu"), "on": process.get("on")}]
        if "busiest" not in process and (process.get("threads") or 1) > 1:
            threads = []
        for thread in threads:
            node = node_of.get(int(thread.get("on", -1)), -1)
            if 0 <= node < nodes:
                ran[node] += float(thread.get("cpu") or 0.0) * frame.window_s
        yield PlacedProgram(ran, max(0.0, all_s - float(ran.sum())), np.array(pages, dtype=float))


def _names(header: Header) -> list[str]:
    return [str(c.get("number", i)) for i, c in enumerate(header.components["node"])]


def _pairs(header: Header) -> tuple[Floats, float] | None:
    """Return what the simulator counted: bytes by read and write, CPU node and memory node; and the seconds."""
    traffic = header.more.get("traffic")
    pairs = traffic.get("pairs") if isinstance(traffic, dict) else None
    if not isinstance(pairs, dict):
        return None
    try:
        value = np.array([pairs["read"], pairs["write"]], dtype=float)
        seconds = float(pairs["seconds"])
    except (LookupError, TypeError, ValueError) as error:
        raise TrafficAbsent("its header has invalid counts of the traffic") from error
    if value.shape != (2, *(2 * [header.count("node")])) or not (np.isfinite(value) & (value >= 0)).all():
        raise TrafficAbsent("its header has invalid counts of the traffic")
    return value, seconds


def _counted(header: Header, totals: _RecordedSums, whole: bool) -> TrafficMatrix:
    names = _names(header)
    pairs = _pairs(header)
    if pairs is not None:
        if not whole:
            raise TrafficAbsent("the simulator counted pairs for the whole recording, not for a part")
        return exact(COUNTED, names, "B", pairs[1], pairs[0].sum(axis=0), ["The simulator counted every line."])
    if len(names) == 1:
        columns = _by_node(header, totals)
        moved = np.array([[1.0 if columns is None else np.nansum(columns)]])
        unit = "1" if columns is None else "B"
        return exact(COUNTED, names, unit, totals.seconds, moved, ["The machine has one node: all traffic is local."])
    if header.source == "model":
        raise TrafficAbsent("the recording has no counts of pairs of nodes; record it again")
    raise TrafficAbsent("no processor counts traffic by pair of nodes")


def _by_node(header: Header, totals: _RecordedSums) -> Floats | None:
    """Return what memories read, wrote, and moved together, in B by node, shape (3, nodes); None if it is unknown."""
    nodes, node_of = header.count("node"), _nodes_of(header, "memory")
    amounts = [totals.amounts.get(m) for m in ("memory.read", "memory.write", "memory.traffic")]
    traffic = header.more.get("traffic")
    if isinstance(traffic, dict) and amounts[0] is None and "memory.busy" in totals.amounts:
        rates = np.array(traffic.get("memory_bytes_per_s", ()), dtype=float)
        if len(rates) == len(node_of):
            amounts[2] = totals.amounts["memory.busy"] * rates
    if amounts[0] is None or amounts[1] is None:
        amounts[0] = amounts[1] = None
    else:
        amounts[2] = None
    columns = np.full((3, nodes), np.nan)
    for row, amount in zip(columns, amounts, strict=True):
        if amount is None:
            continue
        for node, value in zip(node_of, amount, strict=True):
            if not 0 <= node < nodes or np.isnan(value):
                return None
            row[node] = value + (0.0 if np.isnan(row[node]) else row[node])
    return columns if np.isfinite(columns).any() else None


def _rebuilt(header: Header, totals: _RecordedSums, whole: bool) -> TrafficMatrix:
    names = _names(header)
    nodes = len(names)
    if nodes > _MAX_REBUILT:
        raise TrafficAbsent(f"the machine has {nodes} nodes; at most {_MAX_REBUILT} can be rebuilt")
    columns = _by_node(header, totals)
    if columns is None:
        metric = next((a["metric"] for a in header.absent if a["metric"].startswith("memory.")), "memory.read")
        raise TrafficAbsent(f"the traffic of the memories is unknown: {header.why_unknown(metric)}")
    moved, remote = np.full(nodes, np.nan), totals.remote
    notes = []
    pairs = _pairs(header) if whole else None
    if pairs is not None:
        reads, writes = pairs[0]
        moved, columns = pairs[0].sum(axis=(0, 2)), np.array([reads.sum(0), writes.sum(0), np.full(nodes, np.nan)])
        remote = 1 - np.diag(reads) / np.maximum(reads.sum(axis=1), 1.0)
        notes.append("Of the simulator's counts, only the sums by node and the remote share of each node are used.")
    graph, links = LinkGraph.of(header), _link_bytes(header, totals)
    if np.isnan(links).all():
        notes.append("The loads of links are unknown.")
    if np.isnan(moved).all():
        notes.append("The traffic of the CPUs is unknown; all nodes are assumed to be alike as far as links allow.")
    if np.isnan(remote).all():
        notes.append("The share of remote loads is unknown.")
    packets = _packets(header)
    sums = TrafficSums(moved, columns[0], columns[1], columns[2], links, remote)
    value = rebuild(sums, graph, packets).sum(axis=0)
    bounds = traffic_bounds(sums, graph, packets)
    if not bounds.remote_low <= remote_share(value) <= bounds.remote_high:
        nearest = float(np.clip(remote_share(value), bounds.remote_low, bounds.remote_high))
        value = rebuild(replace(sums, remote_total=nearest), graph, packets).sum(axis=0)
    if nodes > MAX_NODES:
        notes.append(f"With more than {MAX_NODES} nodes, the bounds are not the tightest.")
    share = remote_share(value)
    bounded = RemoteShare(share, min(share, bounds.remote_low), max(share, bounds.remote_high))
    low, high = np.minimum(value, bounds.low), np.maximum(value, bounds.high)
    return TrafficMatrix(REBUILT, names, "B", totals.seconds, value, low, high, bounded, notes)


def _link_bytes(header: Header, totals: _RecordedSums) -> Floats:
    traffic = header.more.get("traffic")
    rates = traffic.get("link_bytes_per_s") if isinstance(traffic, dict) else None
    busy, out = totals.amounts.get("link.busy"), totals.amounts.get("link.out")
    if out is None and busy is not None and isinstance(rates, Sequence) and len(rates) == len(busy):
        out = busy * np.array([np.nan if r is None else r for r in rates], dtype=float)
    return np.full(header.count("link"), np.nan) if out is None else out


def _packets(header: Header) -> PacketBytes:
    """Return the bytes on links for each byte of memory; counters of hosts count data only."""
    traffic: Any = header.more.get("traffic")
    try:
        line, sizes = float(traffic["line_bytes"]), traffic["packet_bytes"]
        request, data, ack = (float(sizes[key]) / line for key in ("request", "data", "ack"))
        return PacketBytes(request, data, ack, traffic["probes_all"] is True)
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return PacketBytes()


def _estimated(header: Header, totals: _RecordedSums) -> TrafficMatrix:
    names = _names(header)
    if header.source == "model":
        raise TrafficAbsent("a simulated machine has no processes")
    shares = estimate(totals.programs)
    if shares is None:
        raise TrafficAbsent("no busy process was seen whose threads and pages are known")
    notes = [
        "Estimated from the CPU time of threads and the places of pages, of the busiest processes: every thread is "
        "assumed to use all pages of its program alike.",
        "The bounds hold for any use of the pages by the threads, if all pages are used alike in total, and if threads "
        f"of one node access memory up to {RATE_RATIO:g} times as often as others.",
    ]
    value, low, high = shares.value, shares.low, shares.high
    remote = RemoteShare(shares.remote, shares.remote_low, shares.remote_high)
    counted = totals.remote[~np.isnan(totals.remote)]
    if len(counted) == len(names):
        notes.append(f"The CPUs count {100 * counted.mean():.0f} % remote loads, as a mean of the nodes.")
    return TrafficMatrix(ESTIMATED, names, "1", totals.seconds, value, low, high, remote, notes)
