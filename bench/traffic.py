"""Measures how well the traffic between nodes is rebuilt and estimated, on simulated machines, whose truth is known.

    .venv/bin/python bench/traffic.py [MODEL …] [--seed N] [--frames N] [--record]

A case is a workload on a model. Three observers know different sums of its traffic: of memories and links only; also of
the CPUs of each node; also of the share of remote loads that CPUs count. The error is the total absolute difference
over the total traffic, which is between 0 and 2. All models take some minutes of one CPU.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from results import Figure, add_row, bench_parser, recording

from meshmark.errors import MeshmarkError
from meshmark.model.engine import ask
from meshmark.model.frames import busiest, frames_and_pairs, header_line
from meshmark.model.instruments import nodes_and_cpus
from meshmark.model.machine import MachineFile, find_machine
from meshmark.model.workloads import trial
from meshmark.watch.frames import Frame, Header, frame_of, header_of
from meshmark.watch.traffic.bounds import MAX_NODES, traffic_bounds
from meshmark.watch.traffic.coverage import coverage
from meshmark.watch.traffic.matrix import remote_share
from meshmark.watch.traffic.placed import PlacedProgram, estimate
from meshmark.watch.traffic.rebuild import PacketBytes, TrafficSums, rebuild
from meshmark.watch.traffic.routes import LinkGraph

MODELS: Final = (
    *("gs1280-4", "gs1280-8", "gs1280-16", "es80", "altix3700", "altix4700"),
    *("gs320-16", "gs320-32", "e325", "xeon5500", "p690"),
)
PATTERNS: Final = ("hot_spot", "random_reads", "throughput", "exchange", "halo", "swap", "all_to_all")
MIXTURES: Final = 4
OBSERVERS: Final = ("memories and links", "and CPUs", "and remote loads")
AIM: Final = 0.05
WINDOW_NS: Final = 2000.0
PAGES: Final = 500  # pages of a program that are sampled

Floats = NDArray[np.float64]
Run = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrafficCase:
    """A workload on a model: its frames, and its reads and writes by pair of nodes, B."""

    name: str
    machine: MachineFile
    run: Run
    header: Header
    frames: Sequence[Frame]
    reads: Floats
    writes: Floats

    @property
    def truth(self) -> Floats:
        """Return the traffic of each pair."""
        return self.reads + self.writes


@dataclass(slots=True)
class Scores:
    """Outcomes of all cases."""

    errors: dict[str, list[tuple[str, float]]]
    remote_inside: list[bool]
    pairs_inside: list[float]
    widths: list[float]
    estimate_pairs: list[float]
    estimate_remote: list[bool]
    estimate_widths: list[float]
    coverage_exact: list[bool]


def mixture(machine: MachineFile, seed: int) -> Run:
    """Return programs that mix local, interleaved and remote reads and writes, with different rates and nodes."""
    nodes, node_of = nodes_and_cpus(machine)
    rng = Random(seed)
    limit = int(machine.number("cpu.outstanding"))
    actors = []
    for cpu in range(len(node_of)):
        if rng.random() < 0.15:
            continue  # idle
        targets = rng.sample(range(nodes), min(nodes, 3))
        homes: list[Any] = ["local"] * rng.randrange(0, 6) + ["uniform"] * rng.randrange(0, 3) + [targets]
        streams = [{"homes": h, "op": "write" if rng.random() < 0.2 else "read"} for h in homes]
        actors.append({"cpus": [cpu], "chains": rng.randint(1, min(16, limit)), "streams": streams})
    return trial(actors or [{"cpus": [0], "chains": 1, "streams": [{"homes": "uniform"}]}], seed=seed)


def cases(model: str, seed: int, frames: int) -> Iterator[TrafficCase]:
    """Yield the cases of a model."""
    machine = find_machine(model)
    runs: list[tuple[str, Run]] = []
    for pattern in PATTERNS:
        with contextlib.suppress(MeshmarkError):  # this machine has too few nodes for the pattern
            runs.append((pattern, {**busiest(machine, pattern), "seed": seed}))
    runs += [(f"mixture {k}", mixture(machine, 100 * seed + k)) for k in range(MIXTURES)]
    for name, run in runs:
        lines, pairs = frames_and_pairs(machine, run, WINDOW_NS, frames)
        if pairs is None:
            continue
        header = header_of(header_line(machine, WINDOW_NS * 1e-9, pairs))
        reads, writes = (np.array(pairs[key], dtype=float) for key in ("read", "write"))
        yield TrafficCase(name, machine, run, header, [frame_of(line, header) for line in lines], reads, writes)


def sums_of(case: TrafficCase, observer: str) -> TrafficSums:
    """Return what an observer knows: loads of links from frames, the other sums as counters have them."""
    nodes = len(case.reads)
    unknown = np.full(nodes, np.nan)
    rates = np.array([np.nan if r is None else r for r in case.header.more["traffic"]["link_bytes_per_s"]])
    busy = sum(np.array(f.values["link.busy"], dtype=float) * f.window_s for f in case.frames)
    moved = unknown if observer == OBSERVERS[0] else case.truth.sum(axis=1)
    remote = unknown
    if observer == OBSERVERS[2]:
        remote = 1 - np.diag(case.reads) / np.maximum(case.reads.sum(axis=1), 1.0)
    return TrafficSums(moved, case.reads.sum(axis=0), case.writes.sum(axis=0), unknown, busy * rates, remote)


def judge_rebuilt(case: TrafficCase, model: str, scores: Scores) -> str:
    """Rebuild a case for each observer; return the errors as text."""
    graph, traffic = LinkGraph.of(case.header), case.header.more["traffic"]
    line, size = traffic["line_bytes"], traffic["packet_bytes"]
    request, data, ack = (size[key] / line for key in ("request", "data", "ack"))
    packets = PacketBytes(request, data, ack, traffic["probes_all"])
    truth, total = case.truth, case.truth.sum()
    texts = []
    for observer in OBSERVERS:
        sums = sums_of(case, observer)
        error = float(np.abs(rebuild(sums, graph, packets).sum(axis=0) - truth).sum() / total)
        scores.errors[observer].append((f"{model} {case.name}", error))
        bounds = traffic_bounds(sums, graph, packets)
        is_inside = bounds.remote_low - 1e-6 <= remote_share(truth) <= bounds.remote_high + 1e-6
        scores.pairs_inside.append(float(((bounds.low <= truth + 1) & (truth - 1 <= bounds.high)).mean()))
        if len(truth) <= MAX_NODES:
            scores.remote_inside.append(is_inside)
            if observer == OBSERVERS[1]:
                scores.widths.append(bounds.remote_high - bounds.remote_low)
        texts.append(f"{100 * error:.1f} %{'' if is_inside else ' (remote share outside its bounds)'}")
    return ", ".join(texts)


def judge_estimate(case: TrafficCase, rng: np.random.Generator, scores: Scores) -> str:
    """Estimate a case from the time of its threads and a sample of its pages, as one program without counters."""
    truth = case.truth / case.truth.sum()
    node_of = [int(c["node"]) for c in case.header.components["cpu"]]
    ran = np.zeros(len(truth))
    for actor in case.run["actors"]:
        for cpu in range(len(node_of)) if actor["cpus"] == "all" else actor["cpus"]:
            ran[node_of[cpu]] += 1.0
    pages = rng.multinomial(PAGES, np.minimum(1.0, truth.sum(axis=0))).astype(float)
    shares = estimate([PlacedProgram(ran, 0.0, pages, PAGES)])
    assert shares is not None
    inside = float(((shares.low <= truth + 1e-9) & (truth - 1e-9 <= shares.high)).mean())
    remote = remote_share(truth)
    scores.estimate_pairs.append(inside)
    scores.estimate_remote.append(shares.remote_low - 1e-9 <= remote <= shares.remote_high + 1e-9)
    scores.estimate_widths.append(shares.remote_high - shares.remote_low)
    return f"{100 * inside:.0f} % of pairs in the bracket"


def judge_coverage(case: TrafficCase, scores: Scores) -> bool:
    """Compare the coverage of the frames with the shares that the simulator states for the whole time."""
    seconds = sum(f.window_s for f in case.frames)
    actors = [{**a, "accesses": 0} for a in case.run["actors"]]
    run = {**case.run, "actors": actors, "warm_ns": 0, "measure_ns": seconds * 1e9, "links": True}
    (answer,) = ask(case.machine, [run], threads=1)
    shares = {"memory": answer["memory_share"], "link": [link["share"] for link in answer["links"]]}
    least = 1e-4 / len(case.frames)  # below, every frame rounds to 0
    exact = True
    for c in coverage(case.header, case.frames).classes:
        if c.component_class in shares:
            exact &= all(
                abs(u.mean - share) < 1e-3 and (u.peak > 0) == (share > least)
                for u, share in zip(c.components, shares[c.component_class], strict=True)
            )
    scores.coverage_exact.append(exact)
    return exact


def main() -> None:
    """Judge all cases, and print and record the figures."""
    parser = bench_parser(__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frames", type=int, default=200)
    options = parser.parse_args()
    scores = Scores({o: [] for o in OBSERVERS}, [], [], [], [], [], [], [])
    rng = np.random.default_rng(options.seed)
    with recording("Watching", options):
        for model in options.models:
            for case in cases(model, options.seed, options.frames):
                rebuilt, estimated = judge_rebuilt(case, model, scores), judge_estimate(case, rng, scores)
                is_covered = judge_coverage(case, scores)
                state = "" if is_covered else ", coverage differs"
                print(f"{model} {case.name}: {rebuilt}; {estimated}{state}", flush=True)
        summarise(scores)


def summarise(scores: Scores) -> None:
    """Print and record the figures of all cases."""
    for observer, outcomes in scores.errors.items():
        errors = [e for _, e in outcomes]
        reached = sum(e <= AIM for e in errors)
        worst = ", ".join(f"{name} {100 * e:.0f} %" for name, e in sorted(outcomes, key=lambda o: -o[1])[:5])
        what = f"traffic between nodes rebuilt from {observer}" if observer == OBSERVERS[0] else f"likewise {observer}"
        print(f"{what}: {reached} of {len(errors)} cases within 5 %, median {100 * statistics.median(errors):.1f} %")
        notes = f"{reached} of {len(errors)} cases within 5 %; largest: {worst}"
        add_row(f"{what}: error over all traffic", "%", [100 * e for e in errors], limits=(None, 5), notes=notes)
    share = statistics.fmean(scores.remote_inside)
    notes = f"median width of the bounds, with the traffic of CPUs: {statistics.median(scores.widths):.3f}"
    add_row("rebuilt: cases whose remote share is within its bounds", "", share, limits=(0.9, None), notes=notes)
    print(f"remote share within its bounds: {share:.3f}; {notes}")
    pairs = statistics.fmean(scores.pairs_inside)
    add_row("rebuilt: pairs whose traffic is within its bounds", "", pairs, limits=(0.9, None))
    print(f"pairs within their bounds: {pairs:.3f}")
    pairs, remote = statistics.fmean(scores.estimate_pairs), statistics.fmean(scores.estimate_remote)
    width = statistics.median(scores.estimate_widths)
    low, high = min(scores.estimate_pairs), max(scores.estimate_pairs)
    add_row("estimated without counters: pairs within their bracket", "", Figure(pairs, low, high), limits=(0.9, None))
    notes = f"median width of the bracket: {width:.3f}"
    add_row("estimated without counters: remote share within its bracket", "", remote, limits=(0.9, None), notes=notes)
    print(f"estimate: {pairs:.3f} of pairs, {remote:.3f} of remote shares in the bracket; {notes}")
    exact = statistics.fmean(scores.coverage_exact)
    add_row("coverage: cases with the exact use of all memories and links", "", exact, limits=(1, None))
    print(f"coverage exact: {exact:.3f}")


if __name__ == "__main__":
    main()
