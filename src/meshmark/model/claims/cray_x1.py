"""Statements on Cray X1."""

from __future__ import annotations

from collections.abc import Sequence

from meshmark.model.claims.base import (
    Finding,
    check,
    machine,
    relation,
)
from meshmark.model.engine import ask
from meshmark.model.instruments import nodes_and_cpus
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import trial


@check("D01")
def node_and_network_peaks() -> Finding:
    m = machine("cray-x1")
    memory = m.number("node.controllers") * m.number("memory.channel_gb_per_s")
    network = 16 * 2 * 1.6 * 2
    return relation(
        abs(memory / 204.8 - 1) <= 0.01 and abs(network / 102.4 - 1) <= 0.01, f"{memory:.1f} and {network:.1f} GB/s"
    )


def swap(m: MachineFile, distance: int, block: int, pairs: Sequence[int]) -> float:
    """Return the time of a swap of `block` bytes between nodes n and n xor `distance`, for n in `pairs`, s."""
    _, node_of = nodes_and_cpus(m)
    first = {n: c for c, n in reversed(list(enumerate(node_of)))}
    lines = max(1, block // int(m.number("memory.line_bytes")))
    both = sorted({n for p in pairs for n in (p, p ^ distance)})
    actors = [
        {
            "cpus": [first[n]],
            "chains": int(m.number("cpu.outstanding")),
            "accesses": lines,
            "streams": [{"homes": [n ^ distance]}],
        }
        for n in both
    ]
    return (
        float(ask(m, [trial(actors, warm_ns=0, measure_ns=0)], threads=1)[0]["groups"][0]["ended_s"])
        + m.number("messages.overhead_us") * 1e-6
    )


@check("D02")
def swap_does_not_depend_on_distance() -> Finding:
    m = machine("cray-x1")
    rates = [8 * 2**20 / swap(m, d, 8 * 2**20, [0]) for d in (1, 3, 7, 15)]
    change = 100 * (max(rates) / min(rates) - 1)
    return Finding(f"{change:.1f} % between 1 and 4 hops, 8 MiB", change <= 10, series=(("B/s", tuple(rates)),))


@check("D03")
def contention_above_eight_pairs() -> Finding:
    m = machine("cray-x1", "node.cpus=4")
    for size in (2**k for k in range(9, 22)):
        alone, many = contention(m, size)
        if many / alone > 1.1:
            inside = 4 <= size / 1024 <= 16
            why = "" if inside else "depends on the assumed message overhead of 7.3 µs"
            return Finding(f"{size / 1024:.3g} KiB", inside, why)
    return Finding("none up to 2 MiB", False, "the network carries all pairs at full rate")


def contention(m: MachineFile, size: int) -> tuple[float, float]:
    """Return the time of one swap across the first dimension, and of the swaps of all CPUs at once, s."""
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
        ended = ask(m, [trial(actors, warm_ns=0, measure_ns=0)], threads=1)[0]["groups"][0]["ended_s"]
        return float(ended) + m.number("messages.overhead_us") * 1e-6

    return run([0]), run(range(len(node_of)))


@check("D04")
def co_array_solver_over_mpi() -> Finding:
    m = machine("cray-x1")
    small = 2e-6 / 2  # the transfer of a line is far below both overheads
    ratio = (m.number("messages.overhead_us") * 1e-6 + small) / (
        m.number("messages.one_sided_overhead_us") * 1e-6 + small
    )
    return Finding(f"{ratio:.2g}", ratio >= 3 * 0.75, "depends on two assumed overheads")


@check("D05")
def topology_changes() -> Finding:
    def kind(modules: int) -> str:
        return "direct" if modules <= 4 else "hypercube" if modules <= 128 else "torus"

    changes = [n for n in range(1, 300) if kind(n) != kind(n + 1)]
    return relation(changes == [4, 128], str(changes))


@check("D06")
def halo_protocols() -> Finding:
    return Finding("not modelled", None, "the five MPI protocols differ in software, which is not modelled")
