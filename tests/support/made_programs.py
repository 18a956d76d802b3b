"""Programs that were observed on a machine with two to four nodes, made up for tests of verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshmark.explain.access_cost import AccessCost
from meshmark.explain.observation import MaskUse, Observation, ObservedProcess, PagesByNode
from meshmark.explain.situation import Situation
from meshmark.explain.surroundings import Surroundings
from meshmark.explain.targets import Target
from meshmark.machine.sources import from_synthetic
from meshmark.machine.topology import Topology
from meshmark.store.record import Record

GIB = 1 << 30
CPUS_OF_NODE = 8


def topology(nodes: int = 2) -> Topology:
    """Return a machine with 8 CPUs and some memory on each node."""
    made = from_synthetic(f"pack:{nodes} [numa] core:{CPUS_OF_NODE} pu:1")
    return replace(made, nodes=tuple(replace(n, memory_bytes=64 * GIB) for n in made.nodes))


def cost(nodes: int = 2, far: float = 1.6, error: float = 0.01) -> AccessCost:
    """Return measured latencies: 100 ns to the own node, `far` times that to others."""
    value = {(a, b): 100e-9 * (1.0 if a == b else far) for a in range(nodes) for b in range(nodes)}
    return AccessCost(value, {pair: error * v for pair, v in value.items()}, measured=True)


def process(
    ran: Mapping[int, float],
    pages: Mapping[int, float],
    number: int = 4711,
    waited_s: float = 0.0,
    allowed: Sequence[int] = (),
    threads: int = 1,
    sampled: int = 3000,
) -> ObservedProcess:
    """Return a process.

    Args:
        ran: Time on the CPUs of each node, s.
        pages: Memory on each node, GiB.
        allowed: CPUs on which its threads may run; empty for those of two nodes.
    """
    cpus = tuple(allowed) or tuple(range(2 * CPUS_OF_NODE))
    whole = sum(pages.values())
    own = {node: int(GIB * share) for node, share in pages.items()}
    return ObservedProcess(
        process=number,
        command="server",
        threads=threads,
        observed_threads=threads,
        ran_s=sum(ran.values()),
        waited_s=waited_s,
        ran_by_node=ran,
        masks=(MaskUse(cpus, threads, sum(ran.values()), waited_s),),
        resident_bytes=int(GIB * whole),
        swapped_bytes=0,
        allowed_nodes=(),
        pages=PagesByNode(own, sampled=sampled, exact=True),
        pages_absent="",
    )


def situation(
    *processes: ObservedProcess,
    idle: Mapping[int, float] | None = None,
    free: Mapping[int, float] | None = None,
    nodes: int = 2,
    cost_of_access: AccessCost | None = None,
    bandwidth: Mapping[int, Record] | None = None,
    around: Surroundings | None = None,
    seconds: float = 1.0,
) -> Situation:
    """Return a situation; without `idle` and `free`, CPUs that the program leaves are idle, and 60 GiB are free."""
    machine = topology(nodes)
    used = {n: sum(p.ran_by_node.get(n, 0.0) for p in processes) / seconds for n in range(nodes)}
    idle_by_node = idle if idle is not None else {n: max(0.0, CPUS_OF_NODE - used[n]) for n in range(nodes)}
    free_by_node = {n: int(GIB * (free or {}).get(n, 60.0)) for n in range(nodes)}
    idle_by_cpu = {  # the last CPUs of a node are idle
        CPUS_OF_NODE * (n + 1) - 1 - k: max(0.0, min(1.0, share - k))
        for n, share in idle_by_node.items()
        for k in range(CPUS_OF_NODE)
    }
    observation = Observation(
        seconds, 0.005, len(processes), processes, idle_by_node, idle_by_cpu, around or Surroundings()
    )
    target = Target("process", str(processes[0].process), tuple(p.process for p in processes), processes[0].process)
    return Situation(machine, observation, cost_of_access or cost(nodes), bandwidth or {}, free_by_node, target)
