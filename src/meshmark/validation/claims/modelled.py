"""Methods of tests on modelled machines. Models are deterministic and do not need a quiet machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from meshmark.errors import AbsentError
from meshmark.model.engine import ask
from meshmark.model.machine import find_machine
from meshmark.statistics.verdicts import MedianEstimate
from meshmark.store.record import Record
from meshmark.validation.claims.bench import Bench, EffectTerm, selected, terms_of, value_of
from meshmark.validation.claims.judging import Effect, exact, product
from meshmark.validation.claims.registry import method

_LOADED: Final = "loaded"


@method("model")
def ratio(bench: Bench, test: str, machine: str, *, what: str, factor: float = 1.0, **parameters: Any) -> list[Effect]:
    """Return the value of one condition over the value of another, or a product of several values."""
    terms = terms_of(parameters)
    records = bench.simulate(test, machine, terms)
    return [product(what, [(value_of(r), t.power) for r, t in zip(records, terms, strict=True)], factor)]


@method("model")
def dirty_over_clean(bench: Bench, test: str, machine: str, *, what: str) -> list[Effect]:
    """Return the mean latency of lines that another CPU modified over the latency of clean lines.

    The lines are on other nodes unless the machine has only one.
    """
    rows = {s: _matrix(machine, s) for s in ("dirty", "clean")}
    remote = [(a, b) for a in range(len(rows["clean"])) for b in range(len(rows["clean"])) if a != b] or [(0, 0)]
    means = {s: math.fsum(m[a][b] for a, b in remote) / len(remote) for s, m in rows.items()}
    return [exact(what, means["dirty"] / means["clean"])]


def _matrix(machine: str, state: str) -> Sequence[Sequence[float]]:
    """Return the latencies between nodes in seconds; row = node of the load."""
    rows: Sequence[Sequence[float]] = ask(find_machine(machine), [{"kind": "matrix", "state": state}], threads=1)[0][
        "latency_s"
    ]
    return rows


def _hops(machine: str) -> Sequence[Sequence[int]]:
    rows: Sequence[Sequence[int]] = ask(find_machine(machine), [{"kind": "hops"}], threads=1)[0]["hops"]
    return rows


@method("model")
def remote_over_local(bench: Bench, test: str, machine: str, *, what: str, worst: bool = False) -> list[Effect]:
    """Return the mean (or worst) latency of remote nodes over the latency of the local node."""
    rows = _matrix(machine, "clean")
    if len(rows) < 2:
        raise AbsentError(f"{machine} has one node")
    remote = [v for a, row in enumerate(rows) for b, v in enumerate(row) if a != b]
    local = math.fsum(row[i] for i, row in enumerate(rows)) / len(rows)
    return [exact(what, (max(remote) if worst else math.fsum(remote) / len(remote)) / local)]


@method("model")
def latency_by_hops(bench: Bench, test: str, machine: str, *, what: str) -> list[Effect]:
    """Return the share of the variance of remote latencies that a straight line over the number of hops explains."""
    rows, hops = _matrix(machine, "clean"), _hops(machine)
    pairs = [(float(hops[a][b]), v) for a, row in enumerate(rows) for b, v in enumerate(row) if a != b]
    if len({h for h, _ in pairs}) < 2:
        raise AbsentError(f"{machine} has one distance between nodes")
    return [exact(what, explained(pairs))]


def explained(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the coefficient of determination of the least-squares line through points, 0 to 1."""
    n = len(pairs)
    mx, my = (math.fsum(p[i] for p in pairs) / n for i in (0, 1))
    xx = math.fsum((x - mx) ** 2 for x, _ in pairs)
    yy = math.fsum((y - my) ** 2 for _, y in pairs)
    xy = math.fsum((x - mx) * (y - my) for x, y in pairs)
    return xy * xy / (xx * yy)


@method("model")
def mean_hops(bench: Bench, test: str, machine: str, *, what: str, over: str = "") -> list[Effect]:
    """Return the mean number of hops to other nodes, or its ratio to the mean of machine `over`."""

    def mean(name: str) -> float:
        rows = _hops(name)
        remote = [h for a, row in enumerate(rows) for b, h in enumerate(row) if a != b]
        return math.fsum(remote) / len(remote)

    return [exact(what, mean(machine) / (mean(over) if over else 1.0))]


@method("model")
def square_over_line(bench: Bench, test: str, machine: str, *, what: str, side: int) -> list[Effect]:
    """Return the mean latency in a square of `side` x `side` CPUs over the mean of as many CPUs in rows of a torus."""
    rows = _matrix(machine, "clean")
    shape = find_machine(machine).data["topology"].get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] * shape[1] != len(rows) or min(shape) < side:
        raise AbsentError(f"{machine} is not a torus of {side} x {side} nodes or more")
    columns = int(shape[0])
    square = [y * columns + x for y in range(side) for x in range(side)]
    line = list(range(side * side))

    def mean(nodes: Sequence[int]) -> float:
        remote = [rows[a][b] for a in nodes for b in nodes if a != b]
        return math.fsum(remote) / len(remote)

    return [exact(what, mean(square) / mean(line))]


@method("model")
def drawers(bench: Bench, test: str, machine: str, *, what: str) -> list[Effect]:
    """Return the ratio of the mean hops to the nearest I/O drawer of two placements of drawers.

    In the first, drawers are at every second node like on a checkerboard; in the second, all are in one half of the
    machine.
    """
    hops = _hops(machine)
    shape = find_machine(machine).data["topology"].get("shape")
    if not isinstance(shape, list) or len(shape) != 2:
        raise AbsentError(f"{machine} is not a torus")
    nodes = range(len(hops))
    board = [n for n in nodes if (n % shape[0] + n // shape[0]) % 2 == 0]
    half = list(nodes[: len(board)])

    def mean(where: Sequence[int]) -> float:
        return math.fsum(min(hops[n][d] for d in where) for n in nodes) / len(hops)

    return [exact(what, mean(board) / mean(half))]


def _curve(bench: Bench, test: str, machine: str, chains: str) -> list[tuple[float, float]]:
    """Return bandwidth in B/s and latency in s of all CPUs for each number of outstanding loads in `chains`."""
    records = bench.records(
        f"{test}.a", machine, EffectTerm(_LOADED, "load_latency", {"threads": "all", "chains": chains})
    )

    def at(metric: str, text: str) -> float:
        return selected(records, metric, {"chains": text}).value

    return [(at("bandwidth_net", text), at("load_latency", text)) for text in chains.split(",")]


@method("model")
def loaded_latency(bench: Bench, test: str, machine: str, *, what: str, at_share: float, chains: str) -> list[Effect]:
    """Return the latency at a share of the highest bandwidth over the latency of the first point.

    The latency is interpolated linearly between points.
    """
    curve = _curve(bench, test, machine, chains)
    target_rate = at_share * max(rate for rate, _ in curve)
    idle_latency = curve[0][1]
    if target_rate <= curve[0][0]:  # a single load per CPU exceeds the share
        return [exact(what, 1.0)]
    for (r0, l0), (r1, l1) in pairwise(curve):
        if r0 <= target_rate <= r1:
            return [exact(what, (l0 + (l1 - l0) * (target_rate - r0) / ((r1 - r0) or 1.0)) / idle_latency)]
    raise AbsentError(f"{machine} does not reach {at_share:.0%} of its bandwidth between the points")


@method("model")
def littles_law(bench: Bench, test: str, machine: str, *, what: str, chains: int) -> list[Effect]:
    """Return the bandwidth of random reads of other nodes over the outstanding bytes divided by the latency."""
    options = {"threads": "all", "chains": str(chains)}
    records = bench.records(f"{test}.a", machine, EffectTerm("random_reads", "load_latency", options))
    rate, latency = (selected(records, metric, {}) for metric in ("bandwidth_net", "load_latency"))
    file = find_machine(machine)
    outstanding = min(chains, int(file.number("cpu.outstanding"))) * int(str(rate.conditions["threads"]))
    inflight = outstanding * file.number("memory.line_bytes")
    return [product(what, [(value_of(rate), 1.0), (value_of(latency), 1.0)], 1 / inflight)]


def _extension(record: Record) -> MedianEstimate:
    """Return how much longer a program takes with the others than alone, as a share of 1."""
    bounds = record.bounds or (record.value, record.value)
    low, high = (max(0.0, b - 1) for b in bounds)
    return MedianEstimate(max(record.value - 1, 0.0), (low, high))


@method("model")
def extension(bench: Bench, test: str, machine: str, *, what: str, **parameters: Any) -> list[Effect]:
    """Return how much longer programs of the workload `throughput` take with others, in one condition over another."""
    terms = terms_of({"instrument": "throughput", "metric": "slowdown", **parameters})
    first, *rest = [_extension(r) for r in bench.simulate(test, machine, terms)]
    if not rest:
        return [Effect(what, first.value, first.bounds)]
    second = rest[0]
    if second.value < _NOTHING and first.value < _NOTHING:
        return [exact(what, 1.0)]
    if second.value < _NOTHING:
        return [Effect(what, 0.0, None, "the programs do not slow each other in the condition that is divided by")]
    return [exact(what, first.value / second.value)]


_NOTHING: Final = 0.005  # extensions below this share are negligible
