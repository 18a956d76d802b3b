"""Places I/O ports on nodes to minimise the mean or maximum distance to the nearest port."""

from __future__ import annotations

from typing import Any

from meshmark.errors import UsageError
from meshmark.model.engine import ask
from meshmark.model.machine import MachineFile


def place(machine: MachineFile, ports: int, minimize: str) -> dict[str, Any]:
    """Find nodes for `ports` I/O ports, at most one per node.

    Args:
        minimize: `mean` or `max` of the distance of all nodes to the nearest port, in hops.

    Returns:
        nodes, mean_hops, max_hops (over all nodes, to the nearest port), and whether the choice is proved optimal.

    Raises:
        UsageError: There are more ports than nodes, or `minimize` is neither mean nor max.

    Source: p-median and p-center of a graph (Hakimi, 1964), as mixed integer programs for HiGHS.
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
    extra = 1 if minimize == "max" else 0
    cost = np.concatenate(
        [np.zeros(n), hops.ravel() / n if minimize == "mean" else 1e-6 * hops.ravel() / n, np.ones(extra)]
    )
    zeros = csr_array((n, extra))
    one_each = hstack([csr_array((n, n)), kron(eye_array(n), np.ones((1, n))), zeros])
    only_ports = hstack([kron(np.ones((n, 1)), -eye_array(n)), eye_array(n * n), csr_array((n * n, extra))])
    count = hstack([csr_array(np.ones((1, n))), csr_array((1, n * n)), csr_array((1, extra))])
    rows = [
        LinearConstraint(one_each, 1, 1),
        LinearConstraint(only_ports, -np.inf, 0),
        LinearConstraint(count, ports, ports),
    ]
    if extra:
        used = kron(eye_array(n), np.ones((1, n))).multiply(np.tile(hops.ravel(), (n, 1)))
        rows.append(
            LinearConstraint(hstack([csr_array((n, n)), csr_array(used), csr_array(-np.ones((n, 1)))]), -np.inf, 0)
        )
    integrality = np.concatenate([np.ones(n), np.zeros(n * n + extra)])
    upper = np.concatenate([np.ones(n + n * n), np.full(extra, hops.max())])
    found = milp(cost, constraints=rows, integrality=integrality, bounds=Bounds(0, upper), options={"time_limit": 30.0})
    if found.x is None:
        raise UsageError(f"--ports: found no placement of {n} nodes within 30 s")
    nodes = sorted(int(j) for j in np.flatnonzero(found.x[:n] > 0.5))
    nearest = hops[:, nodes].min(axis=1)
    return {
        "machine": machine.label,
        "nodes": nodes,
        "mean_hops": float(nearest.mean()),
        "max_hops": int(nearest.max()),
        "proved": bool(found.status == 0),
    }
