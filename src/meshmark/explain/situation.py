"""Describes a machine and a program that was observed on it, as verdicts need them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from meshmark.explain.access_cost import AccessCost, access_cost, joint, read_bandwidth
from meshmark.explain.observation import Observation, ObservedProcess, observe
from meshmark.explain.targets import Target
from meshmark.machine.topology import Topology
from meshmark.machine.tree import FileTree, kilobytes
from meshmark.store.record import Record
from meshmark.watch.traffic.placed import PlacedProgram, PlacedShares, estimate

CONCENTRATED: Final = 0.8  # share of one node from which it holds the threads, or the pages


def main_node(by_node: Mapping[int, float]) -> int:
    """Return the node with the largest value."""
    return max(by_node, key=lambda n: (by_node[n], -n))


@dataclass(frozen=True, slots=True)
class Situation:
    """A machine, and a program that was observed on it.

    Attributes:
        cost: Costs of access between nodes; None if they are unknown.
        bandwidth: How fast the CPUs of a node read its memory, B/s, for nodes where it was measured.
        free_by_node: Memory of each node that pages can move to, B.
        target: The program.
        privileged: Whether this user may move pages that processes share.
    """

    topology: Topology
    observation: Observation
    cost: AccessCost | None
    bandwidth: Mapping[int, Record]
    free_by_node: Mapping[int, int]
    target: Target
    privileged: bool = True

    @property
    def process(self) -> int:
        """Return the process that commands name: the one from which the others descend, or else the first one."""
        return self.target.root or self.target.processes[0]

    @property
    def memory_nodes(self) -> list[int]:
        """Return the nodes with memory."""
        return [n.os_index for n in self.topology.nodes if n.memory_bytes != 0]

    def cpus_of(self, node: int) -> tuple[int, ...]:
        """Return the CPUs of a node that this user may use."""
        allowed = set(self.topology.allowed_cpus)
        return next((tuple(c for c in n.cpus if c in allowed) for n in self.topology.nodes if n.os_index == node), ())

    def permits(self, node: int) -> bool:
        """Return whether the program may use the CPUs and the memory of a node; a manager can permit every node."""
        if self.target.kind != "process":
            return True
        cpuset = self.observation.surroundings.cpuset
        return all(not p.allowed_nodes or node in p.allowed_nodes for p in self.judged) and (
            cpuset is None or set(self.cpus_of(node)) <= set(cpuset.cpus)
        )

    @property
    def demand(self) -> float:
        """Return how many CPUs the program would use if none of its threads waited for one."""
        return (self.observation.ran_s + self.observation.waited_s) / self.observation.seconds

    @property
    def judged(self) -> list[ObservedProcess]:
        """Return the processes that ran and whose pages are known."""
        return [p for p in self.observation.processes if p.ran_s > 0 and sum(p.own_pages.values()) > 0]

    def accesses(self) -> dict[tuple[int, int], float]:
        """Return the shares of accesses from nodes to nodes, each process weighted by its CPU time."""
        total: dict[tuple[int, int], float] = {}
        for p in self.judged:
            for pair, share in joint(p.ran_by_node, p.own_pages).items():
                total[pair] = total.get(pair, 0.0) + p.ran_s * share
        whole = sum(total.values())
        return {pair: s / whole for pair, s in total.items()}

    def traffic(self) -> tuple[list[int], PlacedShares | None]:
        """Return the nodes, and the estimated shares of accesses between them with bounds; None if nothing is known."""
        nodes = sorted(n.os_index for n in self.topology.nodes)
        programs = [
            PlacedProgram(
                np.array([p.ran_by_node.get(n, 0.0) for n in nodes]),
                0.0,
                np.array([float(p.own_pages.get(n, 0)) for n in nodes]),
                0 if p.pages is None or p.pages.exact else p.pages.sampled,
            )
            for p in self.judged
        ]
        return nodes, estimate(programs)

    @property
    def most_local(self) -> float:
        """Return the share of local accesses if each thread used pages of its own node wherever there are any."""
        weighted = 0.0
        for p in self.judged:
            whole = sum(p.own_pages.values())
            weighted += sum(min(s, p.ran_s * p.own_pages.get(n, 0) / whole) for n, s in p.ran_by_node.items())
        return weighted / sum(p.ran_s for p in self.judged)

    @property
    def sampled(self) -> int:
        """Return the number of pages on which the shares rest."""
        return sum(p.pages.sampled for p in self.judged if p.pages)


def situation(topology: Topology, target: Target, duration_s: float, records: Sequence[Record]) -> Situation:
    """Observe a program on this host.

    Args:
        topology: This host.
        target: The program.
        duration_s: How long to observe.
        records: Latencies between nodes and bandwidths, measured on this machine or given for it.

    Raises:
        MeshmarkError: The processes have ended, or the sampler does not run.
    """
    tree = FileTree(Path("/"))
    node_of = {cpu: n.os_index for n in topology.nodes for cpu in n.cpus}
    observation = observe(tree, target.processes, node_of, duration_s)
    free_by_node = {n.os_index: _free_bytes(tree, n.os_index) for n in topology.nodes}
    cost, bandwidth = access_cost(topology, records), read_bandwidth(topology, records)
    return Situation(topology, observation, cost, bandwidth, free_by_node, target, os.geteuid() == 0)


def _free_bytes(tree: FileTree, node: int) -> int:
    """Return the memory of a node that pages can move to: what is free, and cached files that were not used lately."""
    text = tree.text(f"sys/devices/system/node/node{node}/meminfo")
    return (kilobytes(text, "MemFree") or 0) + (kilobytes(text, r"Inactive\(file\)") or 0)
