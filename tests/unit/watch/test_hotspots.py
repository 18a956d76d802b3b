"""Hot spots are found on simulated machines with the processes that cause them; quiet machines have none."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from meshmark.model.frames import busiest, frame_lines, header_line
from meshmark.model.machine import MachineFile, find_machine
from meshmark.model.workloads import random_reads, stream_actor, trial
from meshmark.watch.findings.findings import Findings
from meshmark.watch.findings.hotspots import Detector, HotSpot
from meshmark.watch.findings.periods import SHORTEST
from meshmark.watch.frames import Frame, FrameMetric, Header, frame_of, header_of
from support.made_frames import frame, header


def simulated_cases() -> Iterator[tuple[MachineFile, tuple[str, Any] | None, dict[str, Any]]]:
    """Yield machines under load with a known hot spot, and as many without one (light, even, or heavy and even)."""
    draws = Random(3)
    for name, shape in (("gs1280-8", (4, 2)), ("gs1280-16", (4, 4)), ("gs1280-32", (8, 4)), ("es80", (8, 1))):
        m = find_machine(name)
        n = shape[0] * shape[1]
        for _ in range(4):
            home = draws.randrange(n)
            yield m, ("memory", home), random_reads(m, draws.choice([4, 8, 16]), homes=[home])
        for _ in range(3):  # every CPU uses its local memory, and half of them also the memory of one node
            home = draws.randrange(n)
            quiet = {**stream_actor(m, list(range(n)), "read", "ordinary", "local"), "pace_ns": 40}
            random_jobs = random_reads(m, 8, draws.sample(range(n), max(3, n // 2)), homes=[home])["actors"]
            yield m, ("memory", home), trial([quiet, *random_jobs])
        for _ in range(3):
            port = draws.randrange(n)
            yield m, ("io", port), trial([{"io": [port], "chains": 16, "streams": [{"homes": "uniform"}]}])
        for _ in range(3):
            cpu = draws.randrange(n)
            yield m, ("cpu", cpu), trial([stream_actor(m, [cpu], "read", "ordinary", "local")])
        for _ in range(3):  # three streams of reads share one link; none of their memories is saturated
            x, y = draws.randrange(shape[0]), draws.randrange(shape[1])
            nodes = [(x + d) % shape[0] + y * shape[0] for d in (0, 1, 2, -1)]
            pairs = ((nodes[0], nodes[1]), (nodes[3], nodes[1]), (nodes[0], nodes[2]))
            yield (
                m,
                ("link", (nodes[1], nodes[0])),
                trial([random_reads(m, 8, [a], homes=[b])["actors"][0] for a, b in pairs]),
            )
        for chains in (1, 2, 4, 8, 16):
            yield m, None, random_reads(m, chains)
        for pace in (0, 20, 60, 200):
            yield m, None, trial([{**stream_actor(m, "all", "triad", "ordinary", "local"), "pace_ns": pace}])
        yield m, None, trial([{"cpus": "all", "chains": 2, "streams": [{"homes": "uniform"}]}])


@pytest.mark.slow
def test_hot_spots_are_found_and_quiet_machines_left_alone() -> None:
    right = wrong_count = missed_count = quiet = 0
    for m, truth, work in simulated_cases():
        h = header_of(header_line(m, 1e-6))
        detector = Detector(h)
        spots: list[HotSpot] = []
        for line in frame_lines(m, work, 1000.0, 3 * SHORTEST):
            spots = detector.add(frame_of(line, h))
        links = h.components["link"]

        def is_it(s: HotSpot, truth: tuple[str, Any], links: Any = links) -> bool:
            if truth[0] == "link":
                ends = [(links[i]["from_router"], links[i]["to_router"]) for i in s.components]
                return s.component_class == "link" and truth[1] in ends
            if truth[0] == "memory" and s.component_class == "link":
                return s.node == truth[1]  # the memory's links are full before the memory is
            return s.component_class == truth[0] and (s.node == truth[1] or truth == ("cpu", s.components[0]))

        new_spots = [s for s in spots if truth is not None and is_it(s, truth)]
        right += bool(new_spots)
        missed_count += truth is not None and not new_spots
        wrong_count += len(spots) - len(new_spots)
        quiet += truth is None
    assert right + missed_count == 64 and quiet == 40
    assert right / (right + wrong_count) >= 0.95  # precision
    assert right / (right + missed_count) >= 0.95  # recall


@pytest.mark.parametrize("name", ["gs1280-8", "gs1280-16", "gs1280-64", "altix3700"])
def test_a_balanced_load_has_no_hot_spot_though_its_components_take_turns(name: str) -> None:
    """Every CPU uses its local memory equally; at any moment some are in a memory phase and others are not."""
    m = find_machine(name)
    h = header_of(header_line(m, 500e-9))
    detector = Detector(h)
    frames = [frame_of(line, h) for line in frame_lines(m, busiest(m, "throughput"), 500.0, 100)]
    busy = [[v for v in f.values["cpu.busy"] if v is not None] for f in frames]
    assert any(max(b) > 0.5 and min(b) < 0.1 for b in busy), "no place is high while others are not"
    assert [str(s) for f in frames for s in detector.add(f)] == []


def test_a_hot_spot_stays_one_beside_components_that_take_turns() -> None:
    rng = Random(5)
    ends = [0] * 16  # end of the busy phase, or of the pause, of each component
    hot = [False] * 16
    detector = Detector(header(16))
    by_name: dict[int, set[int]] = {}
    for n in range(1, 301):
        for i in range(16):
            if n >= ends[i]:
                hot[i] = not hot[i] and n > 1
                ends[i] = n + max(1, round(rng.expovariate(1 / (4 if hot[i] else 16))))
        use = [0.9 if cpu else 0.05 for cpu in hot]
        if n > 150:
            use[5] = 0.9
        by_name[n] = {c for s in detector.add(frame(n, *use)) for c in s.components}
    assert {c for n in range(1, 150) for c in by_name[n]} == set()
    assert all(5 in by_name[n] for n in range(275, 301)), "hot for 125 ticks, where periods last four"
    assert {c for n in range(150, 301) for c in by_name[n]} == {5}


def test_components_that_become_hot_one_after_another_are_told_from_turns() -> None:
    detector = Detector(header(16))
    by_name: dict[int, set[int]] = {}
    for n in range(1, 61):
        use = [0.9 if i in {2, 5, 11} and n > i else 0.05 for i in range(16)]  # three programs that do not move
        by_name[n] = {c for s in detector.add(frame(n, *use)) for c in s.components}
    assert by_name[60] == {2, 5, 11}
    detector = Detector(header(16))
    hot: set[int] = set()
    for n in range(1, 41):  # each of the others is hot for 12 ticks
        use = [0.9 if 3 * i < n <= 3 * i + 12 else 0.05 for i in range(16)]
        hot |= {c for s in detector.add(frame(n, *use)) for c in s.components}
    assert hot == set()


def test_a_hot_spot_says_what_goes_with_it_and_what_helps() -> None:
    m = find_machine("gs1280-16")
    h = header_of(header_line(m, 1e-6))
    detector = Detector(h)
    for line in frame_lines(m, random_reads(m, 16, homes=[5]), 1000.0, SHORTEST):
        spots = detector.add(frame_of(line, h))
    (spot,) = spots
    assert spot.names == ("memory 5.0", "memory 5.1") and spot.node == 5
    assert spot.since_s == pytest.approx(1e-6)
    assert spot.share > 0.95
    assert all("5" in name.split(" to ") for name in spot.evidence["link"])
    assert "memory bound" in str(spot) and "interleave" in str(spot)


def last_spots(frames: int, *use: float | None) -> list[HotSpot]:
    """Return the hot spots after frames in which the CPUs are equally busy."""
    detector = Detector(header(len(use)))
    for n in range(1, frames):
        detector.add(frame(n, *use))
    return detector.add(frame(frames, *use))


def test_what_is_not_known_or_lasts_a_moment_is_no_hot_spot() -> None:
    for equal in ([None, None], [0.9, 0.9, 0.9, 0.9], [0.9, 0.8], [0.4, 0.1, 0.1], [0.8]):
        assert last_spots(SHORTEST, *equal) == []
    for busy in ([0.9, 0.1, 0.1, None], [0.9], [0.95, 0.1]):
        assert [s.components for s in last_spots(SHORTEST, *busy)] == [(0,)]
    assert last_spots(SHORTEST - 1, 0.95, 0.1, 0.1) == []


def memory_header(nodes: int, *metrics: str) -> Header:
    return Header(
        "host",
        "t",
        "",
        1.0,
        {
            "node": tuple({"name": f"node {n}"} for n in range(nodes)),
            "memory": tuple({"name": f"memory {n}", "node": n} for n in range(nodes)),
            "link": tuple({"name": f"{n - 1} to {n}", "from": n - 1, "to": n} for n in range(1, nodes)),
        },
        tuple(FrameMetric(m, "1", "x", "y") for m in ("memory.busy", "link.busy", *metrics)),
    )


def memory_findings(memories: list[float], links: tuple[float, float] = (0.0, 0.0)) -> list[dict[str, Any]]:
    findings = Findings(memory_header(len(memories)))
    for n in range(1, SHORTEST + 1):
        last = findings.add(
            Frame(n, float(n), 1.0, {"memory.busy": [*memories], "link.busy": [*links][: len(memories) - 1]})
        )
    return [f.to_json() for f in last]


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_machine_whose_memories_are_all_full_is_saturated_and_has_no_hot_spot(nodes: int) -> None:
    (finding,) = memory_findings([0.97] * nodes)
    assert finding["verdict"] == "memory saturated" and finding["components"] == []
    assert "interleave" not in finding["text"] and "cannot help" in finding["text"]
    assert memory_findings([0.6] * nodes) == []


def test_the_limit_of_a_hot_memory_is_told_from_what_follows() -> None:
    (memory,) = memory_findings([0.1, 0.95, 0.1], (0.9, 0.2))
    assert memory["verdict"] == "memory bound" and memory["evidence"] == {"link": ["0 to 1"]}
    (link,) = memory_findings([0.1, 0.6, 0.1], (0.99, 0.2))
    assert (link["verdict"], link["node"], link["evidence"]) == ("link bound", 1, {"memory": ["memory 1"]})
    assert "interleave" in link["text"]  # its memory is the cause, though the link is the limit


def test_the_processes_behind_a_hot_spot_are_named() -> None:
    nodes = ({"name": "node 0"}, {"name": "node 1"}, {"name": "node 2"})
    memories = tuple({"name": f"memory {n}", "node": n} for n in range(3))
    cpus = tuple({"name": f"CPU {4 * n}", "number": 4 * n, "node": n} for n in range(3))
    h = Header(
        "host",
        "t",
        "",
        1.0,
        {"node": nodes, "memory": memories, "cpu": cpus},
        (FrameMetric("memory.busy", "1", "x", "y"), FrameMetric("cpu.busy", "1", "x", "y")),
    )
    busy = [
        {"pid": 1, "name": "small", "cpu": 1.0, "on": 0, "nodes": [9e9, 1e6, 0]},
        {"pid": 2, "name": "big", "cpu": 0.9, "on": 4, "nodes": [0, 8e9, 0]},
        {"pid": 3, "name": "idle", "cpu": 0.0, "on": 4, "nodes": [0, 9e9, 0]},
    ]
    detector = Detector(h)
    for n in range(1, SHORTEST + 1):
        spots = detector.add(
            Frame(n, n, 1.0, {"memory.busy": [0.1, 0.9, 0.1], "cpu.busy": [0.1, 0.2, 0.1]}, processes=busy)
        )
    assert [s.component_class for s in spots] == ["memory"]
    assert spots[0].culprits == ("big (2)", "small (1)")
    detector = Detector(h)
    for n in range(1, SHORTEST + 1):
        spots = detector.add(Frame(n, n, 1.0, {"cpu.busy": [0.0, 0.95, 0.0]}, processes=busy))
    assert spots[0].culprits == ("big (2)",) and "by big (2)" in str(spots[0])
