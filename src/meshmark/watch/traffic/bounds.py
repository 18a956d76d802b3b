"""Bounds the traffic between nodes: the lowest and the highest value of all matrices with the observed sums.

Unlike `rebuild`, bounds assume nothing about how routers divide packets among shortest routes: the flow of packets to
each node is a variable of its own, which routers conserve.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.traffic.rebuild import PacketBytes, TrafficSums, count_equations
from meshmark.watch.traffic.routes import LinkGraph

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

MAX_NODES: Final = 36  # above, the linear programs take minutes
_MAX_CELL_NODES: Final = 8  # above, pairs have only the bounds of rows, columns and routers
_TOLERANCE: Final = 0.01  # relative, of a sum: packets in flight, and rounded shares
_COARSE_TOLERANCE: Final = 0.05  # likewise, if it cannot be computed
_SPARE: Final = 1.2  # tolerance over the smallest with which any matrix has the sums


@dataclass(frozen=True, slots=True)
class TrafficBounds:
    """Lowest and highest traffic of each pair in B, shape (nodes, nodes), and remote share of all traffic."""

    low: Floats
    high: Floats
    remote_low: float
    remote_high: float


def traffic_bounds(sums: TrafficSums, graph: LinkGraph, packets: PacketBytes) -> TrafficBounds:
    """Return the bounds of the traffic of each pair and of its remote share.

    Up to `MAX_NODES` nodes, no tighter bounds of the remote share exist; up to 8 nodes, this also holds for pairs.
    """
    nodes, total = sums.nodes, sums.total
    if total <= 0:
        return TrafficBounds(np.zeros((nodes, nodes)), np.zeros((nodes, nodes)), 0.0, 0.0)
    program = _program(sums, graph, packets) if nodes <= MAX_NODES else None
    least = _least_tolerance(program) if program is not None else None
    tolerance = _COARSE_TOLERANCE if least is None else max(_TOLERANCE, _SPARE * least)
    low, high = _simple_bounds(sums, graph, packets, tolerance)
    diagonal = np.eye(nodes, dtype=bool)
    local_low, local_high = float(low[diagonal].sum()) / total, min(1.0, float(high[diagonal].sum()) / total)
    # What CPUs count of their reads bounds the local share, except for written data.
    local_reads = float((sums.moved * (1 - sums.remote)).sum()) / total
    written = float(sums.columns[1].sum()) / total
    if not np.isnan(local_reads):
        local_low = max(local_low, (local_reads - written) * (1 - tolerance))
        local_high = min(local_high, (local_reads + written) * (1 + tolerance))
    if program is not None and least is not None:
        local_low, local_high = _extremes(program, diagonal, tolerance, (local_low, local_high))
        for i, j in np.ndindex(nodes, nodes) if nodes <= _MAX_CELL_NODES else ():
            cell = np.zeros((nodes, nodes), dtype=bool)
            cell[i, j] = True
            ends = _extremes(program, cell, tolerance, (float(low[i, j]) / total, float(high[i, j]) / total))
            low[i, j], high[i, j] = total * ends[0], total * ends[1]
    return TrafficBounds(low, high, max(0.0, 1 - local_high), min(1.0, 1 - local_low))


def _simple_bounds(
    sums: TrafficSums, graph: LinkGraph, packets: PacketBytes, tolerance: float
) -> tuple[Floats, Floats]:
    """Return bounds of each pair, in B, from the sums of its row and column and the links of its routers."""
    nodes, total = sums.nodes, sums.total
    rows = np.where(np.isnan(sums.moved), total, sums.moved)
    read, written = sums.columns
    columns = read + written
    entering, leaving = _port_loads(sums, graph)
    data = max(packets.data, 1e-9)
    # Data that a CPU reads enter at its router and leave at the router of the memory; written data, the other way.
    reads = np.minimum(entering[:, None], leaving[None, :]) / data
    writes = np.minimum(leaving[:, None], entering[None, :]) / data
    router = np.array(graph.router_of)
    is_near = router[:, None] == router[None, :]
    is_split = ~np.isnan(sums.read)  # reads and writes of the memory are known
    by_links = np.minimum(reads, np.where(is_split, read, columns)) + np.minimum(
        writes, np.where(is_split, written, columns)
    )
    high = np.minimum(np.where(is_near, np.inf, by_links), np.minimum(rows[:, None], columns[None, :]))
    low = np.zeros((nodes, nodes))
    if not np.isnan(sums.moved).any():
        low = np.maximum(0.0, rows[:, None] + columns[None, :] - total)
    return low * (1 - tolerance), high * (1 + tolerance)


def _port_loads(sums: TrafficSums, graph: LinkGraph) -> tuple[Floats, Floats]:
    """Return the bytes that enter and leave the router of each node by links; infinite if a link is unknown."""
    entering, leaving = np.zeros(graph.routers), np.zeros(graph.routers)
    for ends, load in zip(graph.ends, sums.links, strict=True):
        if ends is not None:
            leaving[ends[0]] += np.inf if np.isnan(load) else load
            entering[ends[1]] += np.inf if np.isnan(load) else load
    router = np.array(graph.router_of, dtype=np.intp)
    if not any(e is not None for e in graph.ends):
        return np.full(len(router), np.inf), np.full(len(router), np.inf)
    return entering[router], leaving[router]


@dataclass(frozen=True, slots=True)
class _BoundsProgram:
    """Equations of a linear program: `equal` x = 0, and `near` x = `values` within a tolerance."""

    equal: csr_array
    near: csr_array
    values: Floats


def _extremes(
    program: _BoundsProgram, pairs: NDArray[np.bool_], tolerance: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """Return the lowest and the highest sum of some pairs, as a share of all traffic; limits if it is unknown."""
    costs = np.zeros(program.near.shape[1])
    costs[: 2 * pairs.size] = np.tile(pairs.ravel(), 2)
    least, most = (_optimum(program, sign * costs, tolerance) for sign in (1.0, -1.0))
    return limits[0] if least is None else max(0.0, least), limits[1] if most is None else -most


def _program(sums: TrafficSums, graph: LinkGraph, packets: PacketBytes) -> _BoundsProgram:
    from scipy.sparse import coo_array, csr_array, hstack, vstack

    nodes, total = sums.nodes, sums.total
    pairs = 2 * nodes * nodes
    is_known = [e is not None and not np.isnan(load) for e, load in zip(graph.ends, sums.links, strict=True)]
    entries: list[tuple[int, int, float]] = []  # of the conservation of flows: equation, variable, coefficient
    on_link: list[tuple[int, int]] = []  # link, variable
    equation, variable = 0, pairs
    for router in dict.fromkeys(graph.router_of):
        targets = [n for n, r in enumerate(graph.router_of) if r == router]
        number: dict[int, int] = {}
        for r, choices in graph.nearer_links(router):
            number.setdefault(r, equation + len(number))
            for k in choices:
                ends = graph.ends[k]
                assert ends is not None
                entries.append((number[r], variable, 1.0))
                if ends[1] != router:
                    number.setdefault(ends[1], equation + len(number))
                    entries.append((number[ends[1]], variable, -1.0))
                if is_known[k]:
                    on_link.append((k, variable))
                variable += 1
            sources = [n for n, at in enumerate(graph.router_of) if at == r]
            entries += [(number[r], x, -c) for x, c in _injected(sources, targets, nodes, packets)]
        equation += len(number)
    rows, columns, values = (np.array(v) for v in zip(*entries, strict=True)) if entries else (np.zeros(0),) * 3
    equal = coo_array((values, (rows.astype(int), columns.astype(int))), shape=(equation, variable))
    counts, count_values = count_equations(sums)
    counts = hstack([counts, csr_array((counts.shape[0], variable - pairs))])
    used = np.flatnonzero(is_known)
    index = {int(k): i for i, k in enumerate(used)}
    places = np.array([(index[k], v) for k, v in on_link], dtype=int).reshape(-1, 2)
    links = coo_array((np.ones(len(places)), (places[:, 0], places[:, 1])), shape=(len(used), variable))
    near = csr_array(vstack([counts, links]))
    return _BoundsProgram(csr_array(equal), near, np.concatenate([count_values, sums.links[used] / total]))


def _injected(sources: list[int], targets: list[int], nodes: int, packets: PacketBytes) -> Iterator[tuple[int, float]]:
    """Yield each pair whose packets travel from one of the sources to one of the targets, with its bytes per byte."""
    writes = nodes * nodes
    for s in sources:
        for t in targets:
            yield s * nodes + t, packets.request  # s reads memory of t
            yield t * nodes + s, packets.data  # t reads memory of s
            yield writes + s * nodes + t, packets.data
            yield writes + t * nodes + s, packets.ack
            if packets.probes_all:
                for n in range(nodes):
                    if n != t:
                        yield n * nodes + s, packets.request  # home s probes t for a read of n
                    yield t * nodes + n, packets.ack  # s acknowledges to t, which reads memory of n


def _limits(program: _BoundsProgram, tolerance: float) -> tuple[Floats, Floats]:
    span = tolerance * np.maximum(program.values, 1e-3 * max(program.values.max(initial=0.0), 1e-9))
    return program.values + span, program.values - span


def _optimum(program: _BoundsProgram, costs: Floats, tolerance: float) -> float | None:
    """Return the lowest cost of all matrices with the sums; None if no matrix has them."""
    from scipy.sparse import vstack

    above, below = _limits(program, tolerance)
    limits = np.concatenate([above, -below])
    return _minimum(costs, vstack([program.near, -program.near]), limits, program.equal)


def _least_tolerance(program: _BoundsProgram) -> float | None:
    """Return the smallest relative tolerance with which any matrix has the sums."""
    from scipy.sparse import csr_array, hstack, vstack

    span = _limits(program, 1.0)[0] - program.values
    slack = csr_array(-span[:, None])
    costs = np.zeros(program.near.shape[1] + 1)
    costs[-1] = 1.0
    upper = vstack([hstack([program.near, slack]), hstack([-program.near, slack])])
    equal = hstack([program.equal, csr_array((program.equal.shape[0], 1))])
    return _minimum(costs, upper, np.concatenate([program.values, -program.values]), equal)


def _minimum(costs: Floats, upper: Any, limits: Floats, equal: Any) -> float | None:
    """Minimise `costs` x with x ≥ 0, `upper` x ≤ `limits` and `equal` x = 0; None if that is impossible."""
    from scipy.optimize import linprog

    count = equal.shape[0]
    equations = {"A_eq": equal, "b_eq": np.zeros(count)} if count else {}
    result = linprog(costs, A_ub=upper, b_ub=limits, method="highs", **equations)
    return float(result.fun) if result.fun is not None and result.status == 0 else None
