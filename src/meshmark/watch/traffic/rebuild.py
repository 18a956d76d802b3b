"""Rebuilds the traffic between nodes from the load of memories and links: network tomography.

Observed are sums: the traffic of each memory, the load of each link and, if CPUs count them, the traffic of each node's
CPUs and its share that goes to other nodes. Many matrices have the same sums. `rebuild` returns the one that differs
least, by relative entropy, from a prior in which each memory serves all nodes in proportion to their traffic (Zhang,
Roughan, Lund and Donoho, SIGCOMM 2003, call this tomogravity). `remote_bounds` returns the lowest and the highest share
of remote traffic of all matrices with these sums. See docs/explanation/traffic.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.watch.traffic.routes import LinkGraph, route_shares

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

_ASSUMED_READS: Final = 0.75  # share of memory traffic, where only reads and writes together are known
_COUNT_ERROR: Final = 1e-4  # relative, of traffic that CPUs and memories count
_LINK_ERROR: Final = 0.015  # of all loads of links, which need not be explained: routes are not known exactly
_LARGEST_ERROR: Final = 30.0  # relative, of the load of one link, at first
_SMALLEST_ERROR: Final = 0.02  # likewise, at the end
_ROUNDS: Final = 24  # of estimates of traffic and of routes, in turn
_ADAPTATIONS: Final = 4  # of routes to the loads, in each round
_STEADY: Final = 0.95  # ratio of successive residuals above which routes do not adapt further
_STEPS: Final = 60  # of Newton's method
_CONVERGED: Final = 1e-8  # decrease of the dual that Newton's method predicts
_SMALLEST_STEP: Final = 1e-4  # share of a step of Newton's method below which the search ends
_MAX_EXPONENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class PacketBytes:
    """Bytes that a link carries for each byte of memory traffic.

    Attributes:
        request, data, ack: Per byte that is read (request, data) or written (data, ack).
        probes_all: Whether a read makes the home probe all nodes but the requester, which they acknowledge.
    """

    request: float = 0.0
    data: float = 1.0
    ack: float = 0.0
    probes_all: bool = False


@dataclass(frozen=True, slots=True)
class TrafficSums:
    """Sums of the traffic between nodes, in B; an array of NaN is unknown.

    Attributes:
        moved: By node of the CPUs, shape (nodes,).
        read, written: By memory node, shape (nodes,).
        served: Read and written together, by memory node whose `read` and `written` are unknown, shape (nodes,).
        links: By link, shape (links,).
        remote: Share of the reads of a node's CPUs that other nodes serve, shape (nodes,).
        remote_total: Share of all traffic that is remote, if it is known.
    """

    moved: Floats
    read: Floats
    written: Floats
    served: Floats
    links: Floats
    remote: Floats
    remote_total: float = math.nan

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.read)

    @property
    def total(self) -> float:
        """Return the traffic of all memories."""
        return float(self.columns.sum())

    @property
    def columns(self) -> Floats:
        """Return what is read and written by memory node, shape (2, nodes), for which reads and writes may be assumed.

        Of traffic that is only known together, `_ASSUMED_READS` are reads; memories without known traffic have none.
        """
        served = np.nan_to_num(self.served)
        read = np.where(np.isnan(self.read), _ASSUMED_READS * served, self.read)
        written = np.where(np.isnan(self.written), (1 - _ASSUMED_READS) * served, self.written)
        return np.array([read, written])


def link_use(graph: LinkGraph, packets: PacketBytes, weights: Floats | None = None) -> csr_array:
    """Return the bytes on each link for each byte between a pair of nodes.

    Returns:
        Sparse array of shape (links, 2 nodes²): the pairs (node of the CPU, memory node) for reads, then for writes.
    """
    from scipy.sparse import csr_array

    shares = route_shares(graph, weights)
    nodes, _, links = shares.shape
    out, back = shares, shares.transpose(1, 0, 2)
    reads = packets.request * out + packets.data * back
    if packets.probes_all:  # home j probes each node k but the requester i, and k acknowledges to i
        probes = shares.sum(axis=1)[None, :, :] - back  # from j to all nodes but i
        answers = shares.sum(axis=0)[:, None, :] - np.zeros_like(shares)  # from all nodes to i
        reads = reads + packets.request * probes + packets.ack * answers
    writes = packets.data * out + packets.ack * back
    pairs = np.concatenate([reads.reshape(nodes * nodes, links), writes.reshape(nodes * nodes, links)])
    return csr_array(pairs.T)


def rebuild(sums: TrafficSums, graph: LinkGraph, packets: PacketBytes) -> Floats:
    """Return the most even matrix with these sums.

    Returns:
        Traffic in B, shape (2, nodes, nodes): reads and writes, row = node of the CPUs, column = memory node.
    """
    nodes, total = sums.nodes, sums.total
    if total <= 0:
        return np.zeros((2, nodes, nodes))
    rows = np.where(np.isnan(sums.moved), total / nodes, sums.moved)
    prior = (rows[None, :, None] / rows.sum() * sums.columns[:, None, :] / total).ravel()
    counts, count_values = count_equations(sums)
    weights = np.ones(len(graph.ends))
    known = np.array([e is not None for e in graph.ends], dtype=bool) & ~np.isnan(sums.links)
    loads = sums.links[known] / total
    floor = max(0.2 * loads.mean(), 1e-3 / nodes) if loads.size else 0.0
    values = np.concatenate([count_values, loads])
    scale = np.concatenate([np.maximum(count_values, 0.01 / nodes), np.maximum(loads, floor)])
    traffic: Floats = prior
    multipliers = np.zeros(len(values))
    # Routes explain the loads as far as they can; then traffic does, and no more than is needed.
    for link_error in np.geomspace(_LARGEST_ERROR, _SMALLEST_ERROR, _ROUNDS):
        use = link_use(graph, packets, weights)[known]
        error = np.concatenate([np.full(len(count_values), _COUNT_ERROR), np.full(len(loads), link_error)])
        solution = _least_entropy(prior, _stacked(counts, use), values, error * scale, multipliers)
        if solution is None:
            break
        traffic, multipliers = solution
        residual = np.inf
        for _ in range(_ADAPTATIONS):
            predicted = use @ traffic
            last, residual = residual, float(np.abs(predicted - loads).sum())
            if residual <= _LINK_ERROR * loads.sum() or residual > _STEADY * last:
                break
            ratio = (loads + 1e-3 * floor) / (predicted + 1e-3 * floor)
            weights[known] = np.clip(weights[known] * np.sqrt(np.clip(ratio, 0.1, 10.0)), 1e-6, 1e6)
            use = link_use(graph, packets, weights)[known]
        if residual <= _LINK_ERROR * loads.sum():
            break
    return np.asarray(traffic.reshape(2, nodes, nodes) * total)


def _stacked(first: csr_array, second: csr_array) -> csr_array:
    from scipy.sparse import csr_array, vstack

    return csr_array(vstack([first, second]))


def count_equations(sums: TrafficSums) -> tuple[csr_array, Floats]:
    """Return the equations of the sums by node, for traffic in units of the total: coefficients and values."""
    from scipy.sparse import csr_array

    nodes, total = sums.nodes, sums.total
    pairs = np.zeros((2, nodes, nodes))
    rows: list[Floats] = []
    values: list[float] = []

    def add(value: float, place: tuple[int | slice, ...]) -> None:
        if not np.isnan(value):
            row = pairs.copy()
            row[place] = 1.0
            rows.append(row.ravel())
            values.append(value / total)

    every = slice(None)
    for n in range(nodes):
        add(float(sums.moved[n]), (every, n, every))
        add(float(sums.read[n]), (0, every, n))
        add(float(sums.written[n]), (1, every, n))
        add(float(sums.served[n]), (every, every, n))
        share = float(sums.remote[n])
        if not np.isnan(share):
            row = pairs.copy()
            row[0, n, :] = share - 1.0
            row[0, n, n] = share
            rows.append(row.ravel())
            values.append(0.0)
    if not np.isnan(sums.remote_total):
        row = np.tile(1.0 - np.eye(nodes), (2, 1, 1)) - sums.remote_total
        rows.append(row.ravel())
        values.append(0.0)
    return csr_array(np.array(rows).reshape(len(rows), pairs.size)), np.array(values)


def _least_entropy(
    prior: Floats, equations: csr_array, values: Floats, errors: Floats, start: Floats
) -> tuple[Floats, Floats] | None:
    """Minimise the entropy of x relative to the prior plus half the squared errors of the equations.

    The dual problem, x = prior exp(equationsᵀ multipliers), is smooth and has one multiplier for each equation, so
    Newton's method solves it. Equations and multipliers are scaled by the errors.

    Returns:
        x, and the multipliers, with which a similar problem can start; None if the method does not converge.
    """
    from scipy.sparse import diags_array

    scaled = (diags_array(1.0 / errors) @ equations).tocsr()
    targets, transposed = values / errors, scaled.T.tocsr()

    def dual(multipliers: Floats) -> tuple[float, Floats]:
        x = prior * np.exp(np.clip(transposed @ multipliers, -_MAX_EXPONENT, _MAX_EXPONENT))
        return float(x.sum() - targets @ multipliers + 0.5 * multipliers @ multipliers), x

    multipliers = min(start, np.zeros_like(start), key=lambda m: dual(m)[0])
    best, x = dual(multipliers)
    for _ in range(_STEPS):
        gradient = scaled @ x - targets + multipliers
        hessian = (scaled @ diags_array(x) @ transposed).toarray() + np.eye(len(values))
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < _CONVERGED:
            return x, multipliers
        size = 1.0
        while size > _SMALLEST_STEP:
            candidate, moved = dual(multipliers - size * step)
            if candidate < best:
                multipliers, best, x = multipliers - size * step, candidate, moved
                break
            size /= 2
        else:
            return None
    return None
