"""Computes the volumes that the nodes of a model send each other under a workload, from the workload's description.

Nothing is simulated, so the volumes do not depend on the routing of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshmark.model.instruments import nodes_and_cpus
from meshmark.model.machine import MachineFile


def stated_traffic(machine: MachineFile, run: Mapping[str, Any], workload: str) -> dict[str, Any]:
    """Return the traffic between the nodes of a run, as the header of its frames states it.

    The CPUs of all actors are assumed to access memory equally often.

    Returns:
        `workload`, and either `requests` and `answers` or `why` they are unknown. `requests[a][b]` is what node a sends
        to node b for its own accesses, in flits per access, and `answers[a][b]` what b sends back to a.
    """
    if reason := _why_unknown(machine, run):
        return {"workload": workload, "why": reason}
    nodes, node_of = nodes_and_cpus(machine)
    requests, answers = np.zeros((nodes, nodes)), np.zeros((nodes, nodes))
    request, data, ack = _packet_flits(machine)
    for actor in run["actors"]:
        cpus = range(len(node_of)) if actor["cpus"] == "all" else actor["cpus"]
        for cpu in cpus:
            node = node_of[cpu]
            for share, home, is_write in _accesses(actor, node, nodes):
                requests[node, home] += share * (data if is_write else request)
                answers[node, home] += share * (ack if is_write else data)
    for volumes in (requests, answers):
        np.fill_diagonal(volumes, 0.0)
    scale = max(requests.sum() + answers.sum(), 1e-300)
    return {
        "workload": workload,
        "requests": _rounded(requests / scale),
        "answers": _rounded(answers / scale),
    }


def _why_unknown(machine: MachineFile, run: Mapping[str, Any]) -> str:
    if machine.data.get("coherence", {}).get("kind") == "broadcast":
        return "the processors of this model probe each other, which the workload does not describe"
    if machine.data.get("placement", {}).get("striping", "none") != "none":
        return "the memory of this model is striped, which the workload does not describe"
    streams = [s for a in run["actors"] for s in a.get("streams", ())]
    if any("io" in a for a in run["actors"]) or any(s.get("state", "clean") != "clean" for s in streams):
        return "the workload has I/O or lines in caches, whose traffic is not described"
    return ""


def _packet_flits(machine: MachineFile) -> tuple[float, float, float]:
    """Return the flits of a request, of a line and of an acknowledgement, as the simulator chooses them."""
    line_flits = -(-machine.number("memory.line_bytes", 64) // machine.number("router.flit_bytes", 8))
    request = machine.number("packets.request_flits", 1)
    data = machine.number("packets.data_flits", 1 + line_flits)
    return request, data, machine.number("packets.ack_flits", request)


def _accesses(actor: Mapping[str, Any], node: int, nodes: int) -> list[tuple[float, int, bool]]:
    """Return the share, the home and the kind (whether it is a write-back) of the accesses of a CPU of `node`."""
    if "trace" in actor:
        return [(1 / len(actor["trace"]), home, False) for _, home, _ in actor["trace"]]
    accesses = []
    for stream in actor["streams"]:
        homes = _homes(stream.get("homes", "local"), node, nodes)
        share = 1 / len(actor["streams"]) / len(homes)
        accesses += [(share, home, stream.get("op", "read") == "write") for home in homes]
    return accesses


def _homes(homes: str | Sequence[int], node: int, nodes: int) -> list[int]:
    if not isinstance(homes, str):
        return list(homes)
    if homes == "uniform":
        return list(range(nodes))
    if homes == "others" and nodes > 1:
        return [n for n in range(nodes) if n != node]
    return [node]


def _rounded(volumes: NDArray[np.float64]) -> list[list[float]]:
    return [[round(float(v), 9) for v in row] for row in volumes]
