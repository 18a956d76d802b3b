"""Finds the loads of links closest to the observed ones that uneven traffic can cause along shortest paths.

In uneven traffic, routers see different loads, and adaptive ones divide packets between equally short paths in ways
that no simple rule predicts; nodes near a busy memory also access it more often than distant ones. Both are therefore
free: a linear program chooses how often each node accesses memory and how each router divides the packets for each
target between its shortest paths. If no choice reaches the observed loads within their intervals, packets took other
paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError
from meshmark.watch.links.network import LinkNetwork, Table
from meshmark.watch.links.traffic import NodeTraffic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_BEYOND: Final = 1e3  # cost of a difference beyond the interval, relative to one within it
_DETOUR: Final = 10.0  # cost of volume off the shortest paths, between the two


@dataclass(frozen=True, slots=True)
class ClosestLoads:
    """The closest explanation of the observed loads.

    Attributes:
        use: Use of each link, shape (links,).
        beyond: How far the observed use lies beyond its interval around `use`, shape (links,).
        detours: Use of each link by packets for which it is on no shortest path, if detours are allowed.
    """

    use: Floats
    beyond: Floats
    detours: dict[int, float]


def closest_loads(
    network: LinkNetwork,
    traffic: NodeTraffic,
    mean: Floats,
    half_widths: Floats,
    tables: dict[int, Table] | None = None,
    detours_to: int | None = None,
) -> ClosestLoads:
    """Return the loads closest to the observed ones that the traffic can cause.

    Args:
        network: The network.
        traffic: The traffic; only the ratios of what one node sends to different nodes matter.
        mean: Observed use, shape (links,).
        half_widths: Half-widths of the intervals of the observed use, shape (links,).
        tables: Links that are allowed instead of the shortest paths, by target.
        detours_to: Target whose packets may also leave the shortest paths, at a high cost.
    """
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack

    program = _program(network, traffic, tables or {}, detours_to)
    columns = program.columns
    tested = np.flatnonzero(~network.is_bus)
    m = len(tested)
    # Columns: the flows and rates of the program, then the distance of each tested link, then its part beyond.
    load = csr_array(_entries(program.loads), shape=(len(network.ends), columns))[tested]
    balance = csr_array(_entries(program.balances), shape=(program.rows, columns + 2 * m))
    unit, none = eye_array(m), csr_array((m, m))
    mean, half_widths = mean[tested], half_widths[tested]
    solution = milp(
        np.concatenate([program.costs, np.ones(m), np.full(m, _BEYOND)]),
        constraints=[
            LinearConstraint(hstack([load, -unit, none]), -np.inf, mean),
            LinearConstraint(hstack([load, unit, none]), mean, np.inf),
            LinearConstraint(hstack([csr_array((m, columns)), unit, -unit]), -np.inf, half_widths),
            LinearConstraint(balance, 0.0, 0.0),
        ],
    )
    if solution.x is None:
        raise MeshmarkError(f"links: the loads that the traffic can cause were not computed: {solution.message}")
    use, beyond = np.full(len(network.ends), np.nan), np.zeros(len(network.ends))
    use[tested] = load @ solution.x[:columns]
    beyond[tested] = solution.x[columns + m :]
    flows = {link: float(solution.x[c]) for link, c in program.detours.items() if solution.x[c] > 1e-9}
    return ClosestLoads(use, beyond, flows)


def _entries(entries: Sequence[tuple[int, int, float]]) -> tuple[Floats, tuple[Integers, Integers]]:
    """Return the entries (row, column, value) of a sparse matrix as arrays."""
    rows, columns, values = np.array(entries, dtype=np.float64).reshape(-1, 3).T
    return values, (rows.astype(np.int64), columns.astype(np.int64))


class _RoutesProgram:
    """Rows and columns of the linear program, as lists of (row, column, value)."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.loads: list[tuple[int, int, float]] = []
        self.balances: list[tuple[int, int, float]] = []
        self.detours: dict[int, int] = {}
        self.rows = 0

    @property
    def columns(self) -> int:
        return len(self.costs)

    def column(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1


def _program(
    network: LinkNetwork, traffic: NodeTraffic, tables: dict[int, Table], detours_to: int | None
) -> _RoutesProgram:
    """Return the balance of the flow to each target at each vertex, and the flows on each link."""
    program = _RoutesProgram()
    rates = [program.column(0.0) for _ in network.vertex_of_node]
    capacity = network.bytes_per_s / network.bytes_per_s.max()
    scale = max(traffic.requests.max(), traffic.answers.max(), 1e-300)
    for node, target in enumerate(network.vertex_of_node):
        senders: dict[int, list[tuple[int, float]]] = {}
        for other, vertex in enumerate(network.vertex_of_node):
            if vertex == target:
                continue
            for rate, volume in ((other, traffic.requests[other, node]), (node, traffic.answers[node, other])):
                if volume > 0:
                    senders.setdefault(vertex, []).append((rates[rate], volume / scale))
        if not senders:
            continue
        table = tables.get(target, network.shortest[target])
        row_of = {vertex: program.rows + i for i, vertex in enumerate(table)}
        program.rows += len(table)
        for vertex, row in row_of.items():
            program.balances += [(row, rate, -volume) for rate, volume in senders.get(vertex, ())]
            allowed = set(table[vertex])
            for link in network.outputs[vertex] if target == detours_to else table[vertex]:
                is_detour = link not in allowed
                column = program.column(_DETOUR if is_detour else 0.0)
                if is_detour:
                    program.detours[link] = column
                end = network.ends[link][1]
                program.loads.append((link, column, 1 / capacity[link]))
                program.balances.append((row, column, 1.0))
                if end in row_of:
                    program.balances.append((row_of[end], column, -1.0))
    return program
