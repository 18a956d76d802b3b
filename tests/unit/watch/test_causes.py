"""A hot spot states its likely causes with the evidence that the frames contain, and none without evidence."""

from __future__ import annotations

from typing import Any

import pytest

from meshmark.watch.findings.hotspots import Detector, HotSpot
from meshmark.watch.findings.periods import SHORTEST
from meshmark.watch.frames import Frame, FrameMetric, Header

GIB = 2.0**30
METRICS = (
    *("memory.busy", "cpu.busy", "io.busy", "cpu.interrupts", "cpu.stalled", "cpu.waiting", "cpu.remote"),
    *("node.used", "node.huge", "host.pages_balanced", "host.blocked", "l3.total", "l3.local"),
)
HEADER = Header(
    "host",
    "t",
    "",
    1.0,
    {
        "node": tuple({"name": f"node {n}"} for n in range(3)),
        "memory": tuple({"name": f"memory {n}", "node": n} for n in range(3)),
        "cpu": tuple({"name": f"CPU {i}", "number": i, "node": i // 2} for i in range(6)),
        "io": ({"name": "disk 0", "node": 0}, {"name": "disk 1", "node": 1}),
        "host": ({"name": "host"},),
        "l3": ({"name": "L3 0"}, {"name": "L3 1"}),
    },
    tuple(FrameMetric(m, "1", "x", "y") for m in METRICS),
)
HOT_MEMORY: dict[str, list[float | None]] = {"memory.busy": [0.9, 0.1, 0.1]}
HOT_CPU: dict[str, list[float | None]] = {"cpu.busy": [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]}


def spots_of(values: dict[str, list[float | None]], *processes: dict[str, Any], grows: float = 0.0) -> list[HotSpot]:
    detector = Detector(HEADER)
    for n in range(1, SHORTEST + 1):
        used: list[float | None] = [4 * GIB + grows * n, 4 * GIB, 4 * GIB]
        spots = detector.add(Frame(n, float(n), 1.0, {"node.used": used, **values}, processes=list(processes)))
    return spots


def spot(values: dict[str, list[float | None]], *processes: dict[str, Any], grows: float = 0.0) -> HotSpot:
    (last,) = spots_of(values, *processes, grows=grows)
    assert all(cause.replace("\u00a0", " ") in str(last) for cause in last.causes)
    return last


def process(pid: int, pages: list[float], *threads: tuple[float, int], **more: Any) -> dict[str, Any]:
    busiest = [{"tid": pid + i, "cpu": cpu, "on": on} for i, (cpu, on) in enumerate(threads)]
    return {
        "pid": pid,
        "name": f"p{pid}",
        "cpu": sum(cpu for cpu, _ in threads),
        "on": threads[0][1],
        "nodes": pages,
        **({"busiest": busiest} if len(busiest) > 1 else {}),
        **more,
    }


def kinds(last: HotSpot) -> list[str]:
    return [cause.partition(":")[0] for cause in last.causes]


def test_first_touch_is_named_if_threads_on_other_nodes_use_the_pages_of_one() -> None:
    last = spot(HOT_MEMORY, process(10, [8 * GIB, 0, 0], (1.0, 0), (1.0, 2), (1.0, 4)))
    assert kinds(last) == ["first touch"]
    text = last.causes[0].replace("\u00a0", " ")
    assert text == (
        "first touch: 100 % of the pages of p10 (10) are on node 0, "
        "but 67 % of the CPU time of its threads is on node 1, node 2"
    )


def test_a_remote_thread_is_told_from_first_touch() -> None:
    last = spot(HOT_MEMORY, process(10, [8 * GIB, 0, 0], (1.0, 3)))
    assert kinds(last) == ["remote thread"] and last.causes[0].endswith("but it runs on node 1")


@pytest.mark.parametrize(
    "harmless",
    [
        process(10, [8 * GIB, 0, 0], (1.0, 0), (1.0, 1)),  # its threads are where its pages are
        process(10, [4 * GIB, 3 * GIB, 3 * GIB], (1.0, 0), (1.0, 2), (1.0, 4)),  # its pages are spread
        process(10, [8 * GIB, 0, 0], (0.01, 2), (0.01, 4)),  # it does nothing
        process(10, [1e6, 0, 0], (1.0, 2), (1.0, 4)),  # it has few pages
        {"pid": 10, "name": "p10", "cpu": 1.0, "on": 3},  # the node of its pages is unknown
    ],
)
def test_no_cause_is_named_without_evidence(harmless: dict[str, Any]) -> None:
    assert spot(HOT_MEMORY, harmless).causes == ()


def test_another_process_than_the_owner_of_the_pages_is_named() -> None:
    owner, other = process(10, [8 * GIB, 0, 0], (0.02, 0)), process(20, [1 * GIB, 0, 0], (1.0, 1))
    last = spot(HOT_MEMORY, owner, other)
    assert kinds(last) == ["another process"]
    assert "p10 (10) has 89" in last.causes[0] and "p20 (20) uses 98" in last.causes[0]
    assert spot(HOT_MEMORY, process(10, [8 * GIB, 0, 0], (1.0, 0)), other).causes == ()


def test_balancing_is_named_if_pages_move_back_and_forth() -> None:
    moves: dict[str, list[float | None]] = {"host.pages_balanced": [5000.0]}
    assert kinds(spot({**HOT_MEMORY, **moves})) == ["NUMA balancing"]
    assert kinds(spot({**HOT_MEMORY, **moves}, grows=5000 * 4096.0)) == []  # pages move in one direction
    assert kinds(spot({**HOT_MEMORY, "host.pages_balanced": [3.0]})) == []


def test_huge_pages_on_one_node_are_named() -> None:
    assert kinds(spot({**HOT_MEMORY, "node.huge": [4 * GIB, 0.0, 0.1 * GIB]})) == ["huge pages"]
    assert kinds(spot({**HOT_MEMORY, "node.huge": [4 * GIB, 4 * GIB, 4 * GIB]})) == []


def test_interrupts_on_one_node_are_named_beside_a_hot_device() -> None:
    values: dict[str, list[float | None]] = {"io.busy": [1.0, 0.2], "host.blocked": [3.0]}
    last = spot({**values, "cpu.interrupts": [0.4, 0.2, 0.0, 0.0, 0.0, 0.0]})
    assert last.verdict == "I/O bound" and kinds(last) == ["interrupts"]
    assert "node 0" in last.causes[0] and "3 tasks wait for I/O" in last.causes[0]
    assert spot({**values, "cpu.interrupts": [0.1] * 6}).causes == ()


def test_devices_of_one_node_are_named_if_those_of_others_are_idle() -> None:
    last = spot({"io.busy": [0.95, 0.05]})
    assert [cause.replace("\u00a0", " ") for cause in last.causes] == [
        "devices of one node: node 0 has 95 % of the use of all devices, while disk 1 is at most 5.0 % busy"
    ]
    assert "spread the requests over more devices" in last.advice
    assert spot({"io.busy": [0.9, 0.2]}).causes == spot({"io.busy": [0.9, None]}).causes == ()


def test_a_cpu_that_computes_is_a_bottleneck_beside_a_hot_memory() -> None:
    both = {**HOT_MEMORY, **HOT_CPU}

    def classes(**stalls: list[float | None]) -> list[str]:
        return [s.component_class for s in spots_of(both | {f"cpu.{name}": shares for name, shares in stalls.items()})]

    assert classes(waiting=[None, None, 0.1, None, None, None]) == ["memory", "cpu"]
    assert classes(stalled=[None, None, 0.1, None, None, None]) == ["memory", "cpu"]  # it cannot wait for longer
    assert classes(stalled=[None, None, 0.9, None, None, None]) == ["memory"]
    assert classes(waiting=[0.1, 0.1, 0.3, 0.1, 0.1, 0.1]) == classes() == ["memory"]


def test_a_cpu_that_waits_for_memory_is_told_from_a_busy_one() -> None:
    waits = spot(
        {**HOT_CPU, "cpu.stalled": [None, None, 0.8, None, None, None], "cpu.waiting": [0.0, 0.0, 0.7, 0, 0, 0]}
    )
    assert waits.verdict == "CPU waits for memory" and "own node" in waits.advice
    assert waits.facts[0].replace("\u00a0", " ") == "stalled in 80 % and waiting for memory in 70 % of their cycles"
    works = spot({**HOT_CPU, "cpu.waiting": [0.0, 0.0, 0.1, 0.0, 0.0, 0.0]})
    assert works.verdict == "CPU bound" and spot(HOT_CPU).facts == ()


def test_the_share_of_remote_accesses_is_stated_where_counters_tell() -> None:
    busy: list[float | None] = [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    counted = spot({**HOT_MEMORY, "cpu.busy": busy, "cpu.remote": [0.2, 0.6, 1.0, 1.0, 1.0, None]})
    assert counted.facts[0].replace("\u00a0", " ") == "40 % of the loads are remote"
    monitored = spot({**HOT_MEMORY, "l3.total": [4e9, 1e9], "l3.local": [3e9, None]})
    assert monitored.facts[0].replace("\u00a0", " ") == "25 % of the memory traffic is remote"
    assert spot(HOT_MEMORY).facts == ()
