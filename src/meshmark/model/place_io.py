"""Places I/O ports on nodes to minimise the mean or maximum distance to the nearest port."""

from __future__ import annotations

from typing import Any

from meshmark.errors import UsageError
from meshmark.model.engine import ask
from meshmark.model.machine import MachineFile


def place(machine: MachineFile, ports: int, minimize: str) -> dict[str, Any]:
    """Find nodes for `ports` I/O ports, at most one per node.

    Args:
        machine: The modelled machine.
        ports: Number of ports.
        minimize: `mean` or `max`: the figure of the distances from all nodes to their nearest port, in hops.

    Returns:
        The nodes, mean_hops, max_hops (over all nodes, to the nearest port), and whether the choice is proved optimal.

    Raises:
        UsageError: There are more ports than nodes, or `minimize` is neither mean nor max.

    Source: p-median and p-center problems of a graph (Hakimi, 1964), solved as mixed integer programs by HiGHS.
    """
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, eye_array, hstack, kron

    if minimize not in {"mean", "max"}:
        raise UsageError(f"--minimize: found '{minimize}'; allowed: mean, max")
    hops = np.array(ask(machine, [{"kind": "hops"}], threads=1)[0]["hops"], dtype=float)
    n = len(hops)
    if not 1 <= ports <= n:
        raise UsageError(f"--ports: found {ports}; allowed: 1 to {n}, because {machine.name} has {n} nodes")
    # y[j]: node j has a port; x[i, j]: node i uses it. For `max`, one more variable bounds all used distances.
    bound_variables = 1 if minimize == "max" else 0
    cost = np.concatenate(
        [np.zeros(n), hops.ravel() / n if minimize == "mean" else 1e-6 * hops.ravel() / n, np.ones(bound_variables)]
    )
    zeros = csr_array((n, bound_variables))
    one_each = hstack([csr_array((n, n)), kron(eye_array(n), np.ones((1, n))), zeros])
    only_ports = hstack([kron(np.ones((n, 1)), -eye_array(n)), eye_array(n * n), csr_array((n * n, bound_variables))])
    count = hstack([csr_array(np.ones((1, n))), csr_array((1, n * n)), csr_array((1, bound_variables))])
    rows = [
        LinearConstraint(one_each, 1, 1),
        LinearConstraint(only_ports, -np.inf, 0),
        LinearConstraint(count, ports, ports),
    ]
    if bound_variables:
        used_distances = kron(eye_array(n), np.ones((1, n))).multiply(np.tile(hops.ravel(), (n, 1)))
        rows.append(
            LinearConstraint(
                hstack([csr_array((n, n)), csr_array(used_distances), csr_array(-np.ones((n, 1)))]), -np.inf, 0
            )
        )
    integrality = np.concatenate([np.ones(n), np.zeros(n * n + bound_variables)])
    upper = np.concatenate([np.ones(n + n * n), np.full(bound_variables, hops.max())])
    solution = milp(
        cost, constraints=rows, integrality=integrality, bounds=Bounds(0, upper), options={"time_limit": 30.0}
    )
    if solution.x is None:
        raise UsageError(f"--ports: found no placement of {n} nodes within 30 s")
    nodes = sorted(int(j) for j in np.flatnonzero(solution.x[:n] > 0.5))
    nearest = hops[:, nodes].min(axis=1)
    return {
        "machine": machine.label,
        "nodes": nodes,
        "mean_hops": float(nearest.mean()),
        "max_hops": int(nearest.max()),
        "proved": bool(solution.status == 0),
    }
