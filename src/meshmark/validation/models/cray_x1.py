"""Statements on Cray X1."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.model.engine import ask
from meshmark.model.instruments import nodes_and_cpus
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import trial
from meshmark.validation.models.base import (
    StatementResult,
    check,
    machine,
    published_number,
    relation,
)


@check("D01")
def node_and_network_peaks() -> StatementResult:
    m = machine("cray-x1")
    memory = m.number("node.controllers") * m.number("memory.channel_gb_per_s")
    network = 2 * 2 * m.number("links.planes.bandwidth_gb_per_s")  # two ports per plane, both directions
    return relation(
        abs(memory / 204.8 - 1) <= 0.01 and abs(network / 102.4 - 1) <= 0.01,
        f"{memory:.1f} and {network:.1f} GB/s",
        numbers=(memory, network),
    )


def swap(m: MachineFile, distance: int, block: int, pairs: Sequence[int]) -> float:
    """Return the time in seconds of a swap of `block` bytes between nodes n and n xor `distance`, for n in `pairs`."""
    _, node_of = nodes_and_cpus(m)
    first_cpu = {n: c for c, n in reversed(list(enumerate(node_of)))}
    lines = max(1, block // int(m.number("memory.line_bytes")))
    nodes = sorted({n for p in pairs for n in (p, p ^ distance)})
    actors = [
        {
            "cpus": [first_cpu[n]],
            "chains": int(m.number("cpu.outstanding")),
            "accesses": lines,
            "streams": [{"homes": [n ^ distance]}],
        }
        for n in nodes
    ]
    return (
        float(ask(m, [trial(actors, warm_ns=0, measure_ns=0)], threads=1)[0]["groups"][0]["ended_s"])
        + m.number("messages.overhead_us") * 1e-6
    )


@check("D02")
def swap_does_not_depend_on_distance() -> StatementResult:
    m = machine("cray-x1")
    rates = [8 * 2**20 / swap(m, d, 8 * 2**20, [0]) for d in (1, 3, 7, 15)]
    change = 100 * (max(rates) / min(rates) - 1)
    return StatementResult(
        f"{change:.1f} % between 1 and 4 hops, 8 MiB",
        change <= 10,
        series=(("B/s", tuple(rates)),),
        numbers=tuple(r / rates[0] for r in rates),
    )


@check("D03")
def contention_above_eight_pairs() -> StatementResult:
    m = machine("cray-x1", "node.cpus=4")
    previous = (512.0, 1.0)  # size, slowdown
    for size in (2**k for k in range(9, 22)):
        single_s, all_s = contention(m, size)
        slowdown = all_s / single_s
        if slowdown > 1.1:
            fraction = (1.1 - previous[1]) / (slowdown - previous[1])
            threshold = previous[0] * (size / previous[0]) ** fraction
            inside = 4 <= threshold / 1024 <= 16
            return StatementResult(
                f"{threshold / 1024:.3g} KiB",
                inside,
                "depends on the assumed message overhead of 7.3 µs",
                numbers=(threshold,),
            )
        previous = (size, slowdown)
    return StatementResult("none up to 2 MiB", False, "the network carries all pairs at full rate")


def contention(m: MachineFile, size: int) -> tuple[float, float]:
    """Return the time in seconds of one swap across the first dimension and of simultaneous swaps of all CPUs."""
    _, node_of = nodes_and_cpus(m)
    lines = max(1, size // int(m.number("memory.line_bytes")))

    def run(cpus: Sequence[int]) -> float:
        actors = [
            {
                "cpus": [c],
                "chains": int(m.number("cpu.outstanding")),
                "accesses": lines,
                "streams": [{"homes": [node_of[c] ^ 1]}],
            }
            for c in cpus
        ]
        elapsed = ask(m, [trial(actors, warm_ns=0, measure_ns=0)], threads=1)[0]["groups"][0]["ended_s"]
        return float(elapsed) + m.number("messages.overhead_us") * 1e-6

    return run([0]), run(range(len(node_of)))


@check("D04")
def co_array_solver_over_mpi() -> StatementResult:
    m = machine("cray-x1")
    transfer_s = 2e-6 / 2  # the transfer of a line is far below both overheads
    ratio = (m.number("messages.overhead_us") * 1e-6 + transfer_s) / (
        m.number("messages.one_sided_overhead_us") * 1e-6 + transfer_s
    )
    return StatementResult(f"{ratio:.2g}", ratio >= 3 * 0.75, "the ratio of two assumed overheads", numbers=(ratio,))


@check("D05")
def topology_changes() -> StatementResult:
    # According to another slide, the largest hypercube has 512 MSPs; an X1 node has four.
    nodes = published_number("cray_x1_2005", "system.x1.network.hypercube_msps_max") / machine("cray-x1").number(
        "node.cpus"
    )
    return StatementResult(
        f"hypercube up to {nodes:g} nodes; the smaller change is not modelled",
        None,
        "a change at 4 modules would follow from the ports of a module, which are not published",
        numbers=(nodes,),
    )


@check("D06")
def halo_protocols() -> StatementResult:
    return StatementResult("not modelled", None, "the five MPI protocols differ in software, which is not modelled")
