"""The traffic between nodes: what the simulator counts, what loads tell of it, and what threads and pages tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshmark.model.engine import ask
from meshmark.model.frames import busiest, frame_lines, frames_and_pairs, header_line
from meshmark.model.machine import find_machine
from meshmark.model.workloads import random_reads, trial
from meshmark.watch.frames import Frame, FrameMetric, Header, frame_of, header_of
from meshmark.watch.recording import Recorder, RecordingFile
from meshmark.watch.traffic.bounds import traffic_bounds
from meshmark.watch.traffic.coverage import coverage
from meshmark.watch.traffic.matrix import TrafficAbsent, grouped
from meshmark.watch.traffic.placed import PlacedProgram, estimate
from meshmark.watch.traffic.rebuild import PacketBytes, TrafficSums, rebuild
from meshmark.watch.traffic.routes import LinkGraph, route_shares
from meshmark.watch.traffic.sources import traffic_of

WINDOW_NS = 500.0


def simulated(name: str, run: Mapping[str, Any], frames: int = 100) -> tuple[Header, list[Frame]]:
    m = find_machine(name)
    lines, pairs = frames_and_pairs(m, run, WINDOW_NS, frames)
    header = header_of(header_line(m, WINDOW_NS * 1e-9, pairs))
    return header, [frame_of(line, header) for line in lines]


def recorded(name: str, workload: str, frames: int = 100) -> tuple[Header, list[Frame]]:
    return simulated(name, busiest(find_machine(name), workload), frames)


def error(header: Header, frames: list[Frame]) -> float:
    truth = traffic_of(header, frames, "counted").value
    return float(np.abs(traffic_of(header, frames, "rebuilt").value - truth).sum() / truth.sum())


# ------------------------------------------------------------------ what the simulator counts


def test_the_simulator_counts_each_line_once_at_its_pair_of_nodes() -> None:
    m = find_machine("gs1280-4")
    actors = [
        {"cpus": [1], "accesses": 300, "streams": [{"homes": [2]}]},
        {"cpus": [3], "accesses": 200, "streams": [{"homes": [3], "op": "write"}]},
    ]
    (answer,) = ask(m, [trial(actors, warm_ns=0, measure_ns=0, traffic=True)], threads=1)
    reads, writes = np.zeros((4, 4)), np.zeros((4, 4))
    reads[1, 2], writes[3, 3] = 300, 200
    assert answer["traffic"] == {"reads": reads.tolist(), "writes": writes.tolist()}


def test_lines_of_the_warm_up_are_not_counted() -> None:
    m = find_machine("gs1280-4")
    run = random_reads(m, 1, [0], [1])
    first, all_of_it = ask(
        m,
        [
            {**run, "warm_ns": 20_000, "measure_ns": 10_000, "traffic": True},
            {**run, "warm_ns": 0, "measure_ns": 30_000, "traffic": True},
        ],
        threads=1,
    )
    assert 0.30 < first["traffic"]["reads"][0][1] / all_of_it["traffic"]["reads"][0][1] < 0.37


def test_counted_traffic_agrees_with_the_use_of_the_memories() -> None:
    header, frames = recorded("gs1280-4", "random_reads")
    counted = traffic_of(header, frames, "counted")
    rates = np.array(header.more["traffic"]["memory_bytes_per_s"])
    used = sum(np.array(f.values["memory.busy"]) for f in frames) * rates * WINDOW_NS * 1e-9
    assert counted.value.sum(axis=0) == pytest.approx(used.reshape(4, -1).sum(axis=1), rel=0.01)
    assert counted.remote.value == 1.0  # random_reads reads the memory of other nodes only


def test_frames_do_not_depend_on_the_counts() -> None:
    m = find_machine("gs1280-4")
    run = busiest(m, "random_reads")
    assert frames_and_pairs(m, run, WINDOW_NS, 20)[0] == list(frame_lines(m, run, WINDOW_NS, 20))


# ------------------------------------------------------------------ routes


def test_packets_are_divided_among_shortest_routes() -> None:
    header, _ = recorded("gs1280-16", "throughput", 1)
    graph = LinkGraph.of(header)
    shares = route_shares(graph)
    (hops,) = ask(find_machine("gs1280-16"), [{"kind": "hops"}], threads=1)
    assert shares.sum(axis=2) == pytest.approx(np.array(hops["hops"]), abs=1e-9)
    assert not shares[np.arange(16), np.arange(16)].any()


def test_weights_move_packets_to_other_shortest_routes_only() -> None:
    header, _ = recorded("gs1280-4", "throughput", 1)
    graph = LinkGraph.of(header)
    even = route_shares(graph)
    diagonal = next((a, b) for a in range(4) for b in range(4) if even[a, b].sum() > 1.5)
    preferred = int(np.flatnonzero(even[diagonal])[0])
    weights = np.ones(len(graph.ends))
    weights[preferred] = 1e6
    moved = route_shares(graph, weights)
    assert moved[diagonal].sum() == pytest.approx(even[diagonal].sum())
    assert set(np.flatnonzero(moved[diagonal])) <= set(np.flatnonzero(even[diagonal]))


# ------------------------------------------------------------------ rebuilt traffic


@pytest.mark.parametrize("name", ["gs1280-16", "altix3700", "xeon5500"])
@pytest.mark.parametrize("workload", ["hot_spot", "throughput", "all_to_all"])
def test_rebuilt_traffic_is_near_the_truth_where_the_sums_determine_it(name: str, workload: str) -> None:
    assert error(*recorded(name, workload)) < 0.05


def test_without_sums_of_the_cpus_bounds_still_contain_the_remote_share() -> None:
    header, frames = recorded("gs1280-4", "hot_spot")
    truth = traffic_of(header, frames).remote.value
    part = traffic_of(header, frames, "rebuilt", whole=False)
    assert part.remote.low <= truth <= part.remote.high
    assert part.remote.low <= part.remote.value <= part.remote.high
    assert part.remote.high - part.remote.low < 0.1


def sums_of(value: np.ndarray[Any, Any], graph: LinkGraph, with_remote: bool) -> TrafficSums:
    """Return the sums of reads, exactly as routes predict them."""
    nodes = len(value)
    unknown = np.full(nodes, np.nan)
    links = np.einsum("ij,jil->l", value, route_shares(graph))
    remote = 1 - np.diag(value) / value.sum(axis=1) if with_remote else unknown
    return TrafficSums(value.sum(axis=1), value.sum(axis=0), np.zeros(nodes), unknown, links, remote)


def ring(nodes: int) -> LinkGraph:
    return LinkGraph(
        tuple(range(nodes)), tuple(p for n in range(nodes) for p in ((n, (n + 1) % nodes), ((n + 1) % nodes, n))), nodes
    )


def test_bounds_contain_every_matrix_with_the_sums() -> None:
    rng = np.random.default_rng(1)
    graph = ring(5)
    for _ in range(5):
        value = rng.gamma(0.5, 1.0, (5, 5))
        bounds = traffic_bounds(sums_of(value, graph, False), graph, PacketBytes())
        assert (bounds.low <= value * (1 + 1e-9)).all() and (value <= bounds.high * (1 + 1e-9)).all()
        assert bounds.remote_low <= 1 - np.trace(value) / value.sum() <= bounds.remote_high


def test_neighbours_on_a_ring_cannot_be_told_from_a_mixture() -> None:
    graph = ring(8)
    neighbours = np.roll(np.eye(8), 1, axis=1) + np.roll(np.eye(8), -1, axis=1)
    bounds = traffic_bounds(sums_of(neighbours, graph, False), graph, PacketBytes())
    assert bounds.remote_low < 0.5 and bounds.remote_high > 0.99
    told = traffic_bounds(sums_of(neighbours, graph, True), graph, PacketBytes())
    assert told.remote_low > 0.98
    value = rebuild(sums_of(neighbours, graph, True), graph, PacketBytes()).sum(axis=0)
    assert np.abs(value - neighbours).sum() / neighbours.sum() < 0.05


def test_on_large_machines_the_counts_of_the_cpus_still_bound_the_remote_share() -> None:
    graph = ring(40)
    value = np.ones((40, 40)) + 40 * np.eye(40)
    bounds = traffic_bounds(sums_of(value, graph, True), graph, PacketBytes())
    assert bounds.remote_low == pytest.approx(39 / 80, rel=0.06) == bounds.remote_high
    loose = traffic_bounds(sums_of(value, graph, False), graph, PacketBytes())
    assert loose.remote_low <= bounds.remote_low and bounds.remote_high <= loose.remote_high


def test_two_nodes_are_determined_by_memories_and_links() -> None:
    graph = LinkGraph((0, 1), ((0, 1), (1, 0)), 2)
    value = np.array([[5.0, 1.0], [3.0, 2.0]])
    sums = replace(sums_of(value, graph, False), moved=np.full(2, np.nan))
    assert rebuild(sums, graph, PacketBytes()).sum(axis=0) == pytest.approx(value, rel=0.05)
    bounds = traffic_bounds(sums, graph, PacketBytes())
    assert bounds.low == pytest.approx(value, rel=0.05) and bounds.high == pytest.approx(value, rel=0.05)


def test_no_traffic_is_no_matrix() -> None:
    graph = ring(3)
    assert not rebuild(sums_of(np.zeros((3, 3)), graph, False), graph, PacketBytes()).any()


# ------------------------------------------------------------------ hosts


def host(metrics: list[FrameMetric], nodes: int = 2, **more: Any) -> Header:
    return Header(
        "host",
        "made",
        "",
        1.0,
        {
            "node": tuple({"name": f"node {n}", "number": n} for n in range(nodes)),
            "cpu": tuple({"name": f"CPU {n}", "number": n, "node": n} for n in range(nodes)),
            "memory": tuple({"name": f"memory {n}", "node": n} for n in range(nodes)),
            "link": ({"name": "0 to 1", "from": 0, "to": 1}, {"name": "1 to 0", "from": 1, "to": 0}),
        },
        tuple(metrics),
        **more,
    )


def test_counters_of_a_host_are_rebuilt_with_its_remote_loads() -> None:
    metrics = [FrameMetric(m, "B/s", "made") for m in ("memory.read", "memory.write", "link.out")]
    metrics += [FrameMetric("cpu.remote", "1", "made", "loads"), FrameMetric("cpu.busy", "1", "made", "time")]
    values: dict[str, list[float | None]] = {
        "memory.read": [8e9, 3e9],
        "memory.write": [0.0, 0.0],
        "link.out": [3e9, 1e9],  # node 1 reads 3 GB/s of node 0's memory, node 0 reads 1 GB/s of node 1's
        "cpu.remote": [1 / 6, 0.6],
        "cpu.busy": [1.0, 1.0],
    }
    matrix = traffic_of(host(metrics), [Frame(1, 1.0, 1.0, values)])
    assert matrix.source == "rebuilt"
    assert matrix.value == pytest.approx(np.array([[5e9, 1e9], [3e9, 2e9]]), rel=0.05)
    assert matrix.remote.low <= 4 / 11 <= matrix.remote.high


def test_without_counters_threads_and_pages_give_an_estimate_with_bounds() -> None:
    absent = ({"metric": "memory", "why": "this is a virtual machine"},)
    process = {"pid": 1, "name": "p", "cpu": 1.0, "threads": 1, "rss": 100.0, "on": 1, "nodes": [75.0, 25.0]}
    frame = Frame(1, 1.0, 1.0, {}, processes=[process])
    matrix = traffic_of(host([], absent=absent), [frame])
    assert (matrix.source, matrix.unit) == ("estimated", "1")
    assert matrix.value == pytest.approx(np.array([[0.0, 0.0], [0.75, 0.25]]))
    assert matrix.remote.value == pytest.approx(0.75)
    with pytest.raises(TrafficAbsent, match=r"not rebuilt: .*this is a virtual machine; not estimated: no busy"):
        traffic_of(host([], absent=absent), [Frame(1, 1.0, 1.0, {})])


def test_threads_on_unknown_nodes_widen_the_bounds() -> None:
    placed = PlacedProgram(np.array([1.0, 1.0]), 0.0, np.array([0.5, 0.5]))
    known, unknown = estimate([placed]), estimate([replace(placed, elsewhere=2.0)])
    assert known is not None and unknown is not None
    assert unknown.low == pytest.approx(np.zeros((2, 2)))
    assert (unknown.high >= known.high).all()
    assert estimate([replace(placed, pages=np.zeros(2))]) is None


def test_the_bracket_of_an_estimate_holds_when_pages_are_sampled() -> None:
    rng = np.random.default_rng(5)
    inside = trials = 0
    for _ in range(200):
        truth = rng.dirichlet(np.full(9, 0.3)).reshape(3, 3)
        pages = rng.multinomial(200, truth.sum(axis=0)).astype(float)
        shares = estimate([PlacedProgram(truth.sum(axis=1), 0.0, pages, 200)])
        assert shares is not None
        inside += int(((shares.low <= truth) & (truth <= shares.high)).sum())
        trials += truth.size
    assert inside / trials > 0.95


def test_a_machine_with_one_node_has_local_traffic_only() -> None:
    one = replace(host([]), components={"node": ({"name": "node 0"},), "cpu": ({"name": "CPU 0", "node": 0},)})
    matrix = traffic_of(one, [Frame(1, 1.0, 1.0, {})])
    assert (matrix.source, matrix.remote.value, matrix.value.tolist()) == ("counted", 0.0, [[1.0]])


# ------------------------------------------------------------------ recordings


def test_counts_survive_a_recording_and_older_recordings_open(tmp_path: Path) -> None:
    header, frames = recorded("gs1280-4", "hot_spot", 20)
    older = replace(header, more={k: v for k, v in header.more.items() if k != "traffic"})
    for name, of in (("new", header), ("old", older)):
        with Recorder(tmp_path / name, of) as recorder:
            for frame in frames:
                recorder.add(frame)
    new, old = RecordingFile(tmp_path / "new"), RecordingFile(tmp_path / "old")
    assert traffic_of(new.header, new.frames()).value.tolist() == traffic_of(header, frames).value.tolist()
    with pytest.raises(TrafficAbsent, match="record it again"):
        traffic_of(old.header, old.frames())
    assert coverage(old.header, old.frames()).frames == 20


@pytest.mark.parametrize("pairs", [{}, {"seconds": 1, "read": [[1]], "write": [[1]]}, {"seconds": 1, "read": "x"}])
def test_damaged_counts_are_an_absence(pairs: object) -> None:
    header, frames = recorded("gs1280-4", "hot_spot", 2)
    damaged = replace(header, more={**header.more, "traffic": {**header.more["traffic"], "pairs": pairs}})
    with pytest.raises(TrafficAbsent, match="invalid counts"):
        traffic_of(damaged, frames, "counted")


def test_a_part_of_a_recording_is_not_counted() -> None:
    header, frames = recorded("gs1280-4", "hot_spot", 4)
    with pytest.raises(TrafficAbsent, match="whole recording"):
        traffic_of(header, frames[:2], "counted", whole=False)


def test_groups_of_nodes_keep_the_sum() -> None:
    value = np.arange(16.0).reshape(4, 4)
    assert grouped(value, [[0, 1], [2, 3]]).tolist() == [[10.0, 18.0], [42.0, 50.0]]


# ------------------------------------------------------------------ coverage


def test_coverage_of_a_model_is_what_its_workload_uses() -> None:
    header, frames = recorded("gs1280-16", "hot_spot")
    use = {c.component_class: c for c in coverage(header, frames).classes}
    memories = header.components["memory"]
    busy = {u.name for u in use["memory"].components if u.peak > 0}
    assert busy == {c["name"] for c in memories if c["node"] == 0}
    assert use["memory"].used == len(busy) and use["memory"].saturated == len(busy)
    assert use["io"].used == 0 and use["cpu"].used == 16
    run = {**busiest(find_machine("gs1280-16"), "hot_spot"), "warm_ns": 0, "measure_ns": 100 * WINDOW_NS, "links": True}
    (answer,) = ask(find_machine("gs1280-16"), [run], threads=1)
    carried = [link["share"] for link in answer["links"]]
    assert [u.peak > 0 for u in use["link"].components] == [share > 0 for share in carried]
    assert [u.mean for u in use["link"].components] == pytest.approx(carried, abs=1e-3)
    # No packet leaves the shortest routes from and to node 0.
    shares = route_shares(LinkGraph.of(header))
    allowed = (shares[:, 0].sum(axis=0) + shares[0].sum(axis=0)) > 0
    assert all(a for a, share in zip(allowed, carried, strict=True) if share > 0)


def test_means_and_peaks_of_coverage_leave_out_unknown_values() -> None:
    metric = FrameMetric("memory.busy", "1", "made", "the window")
    rows: list[list[float | None]] = [[0.2, None], [0.95, None]]
    frames = [Frame(i, i + 1.0, 1.0, {"memory.busy": row}) for i, row in enumerate(rows)]
    absent = ({"metric": "memory.busy:memory 1", "why": "no counter"},)
    memory = next(c for c in coverage(host([metric], absent=absent), frames).classes if c.component_class == "memory")
    (component,) = memory.components
    assert (component.mean, component.peak, component.at_limit) == pytest.approx((0.575, 0.95, 0.5))
    assert (memory.used, memory.saturated, memory.unknown, memory.why_unknown) == (1, 1, 1, "no counter")
