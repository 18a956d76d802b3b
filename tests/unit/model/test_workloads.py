"""Workloads in the form that the simulator accepts; nothing is simulated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meshmark.model.machine import find_machine, read_machine
from meshmark.model.workloads import chase, gups, random_reads, stream_actor, trial


def actor_of(run: dict[str, Any]) -> dict[str, Any]:
    (actor,) = run["actors"]
    return dict(actor)


def test_a_trial_measures_eleven_batches_over_30_us_after_4_us() -> None:
    window = {"kind": "trial", "warm_ns": 4000.0, "measure_ns": 30_000.0, "batches": 11}
    assert trial(({"cpus": [1]},)) == {**window, "actors": [{"cpus": [1]}]}
    assert trial([], warm_ns=1, measure_ns=0, links=True) == {
        **window,
        "actors": [],
        "warm_ns": 1,
        "measure_ns": 0,
        "links": True,
    }


def test_a_chase_is_one_dependent_load_at_a_time() -> None:
    run = chase(3, [1, 2])
    assert (run["warm_ns"], run["measure_ns"]) == (2000, 20_000)
    stream = {"homes": [1, 2], "state": "clean", "random": False, "span_lines": 1 << 24}
    assert actor_of(run) == {"cpus": [3], "chains": 1, "streams": [{**stream, "stride_bytes": 64}]}
    dirty = chase(0, "local", state="dirty", owner=0, random=True, span_lines=8)
    assert actor_of(dirty)["streams"] == [
        {"homes": "local", "state": "dirty", "owner": 0, "random": True, "span_lines": 8}
    ]
    assert actor_of(chase(0, "local", stride_bytes=256))["streams"][0]["stride_bytes"] == 256


@pytest.mark.parametrize(
    ("kernel", "store", "ops"),
    [
        ("triad", "ordinary", {"read": 2, "own": 1, "write": 1}),
        ("triad", "streaming", {"read": 2, "write": 1}),
        ("copy", "ordinary", {"read": 1, "own": 1, "write": 1}),
        ("copy", "streaming", {"read": 1, "write": 1}),
        ("read", "ordinary", {"read": 1}),
        ("write", "ordinary", {"own": 1, "write": 1}),
        ("update", "ordinary", {"own": 1, "write": 1}),  # the line that is read is also written
    ],
)
def test_ordinary_stores_own_a_line_and_write_it_back_and_streaming_ones_only_write(
    kernel: str, store: str, ops: dict[str, int]
) -> None:
    machine = find_machine("gs1280-4")
    actor = stream_actor(machine, (0, 1), kernel, store, "local", links=True)
    assert Counter(s["op"] for s in actor["streams"]) == ops
    assert {s["homes"] for s in actor["streams"]} == {"local"}
    assert (actor["cpus"], actor["links"]) == ([0, 1], True)
    assert actor["chains"] == machine.number("cpu.stream_outstanding")
    assert stream_actor(machine, "all", kernel, store, "local")["cpus"] == "all"


def test_the_core_works_on_lines_that_it_reads_or_stores_past_its_caches() -> None:
    machine = find_machine("xeon5500")
    line, store = machine.number("cpu.line_work_ns"), machine.number("cpu.streaming_store_ns")
    work = [(s["op"], s.get("work_ns")) for s in stream_actor(machine, [0], "copy", "ordinary", "local")["streams"]]
    assert work == [("read", line), ("own", line), ("write", None)]
    work = [(s["op"], s.get("work_ns")) for s in stream_actor(machine, [0], "copy", "streaming", "local")["streams"]]
    assert work == [("read", line), ("write", store)]


def test_work_in_cycles_adds_to_that_in_ns_and_a_streaming_store_costs_a_line_by_default(tmp_path: Path) -> None:
    text = find_machine("xeon5500").path.read_text()
    lines = [x for x in text.splitlines() if not x.startswith(("line_work_", "streaming_store_", "clock_ghz"))]
    index = lines.index("[cpu]") + 1
    lines[index:index] = [
        'line_work_ns = { value = 3, assumed = "made up" }',
        'line_work_cycles = { value = 10, assumed = "made up" }',
        'clock_ghz = { value = 2.5, assumed = "made up" }',
    ]
    path = tmp_path / "made.toml"
    path.write_text("\n".join(lines))
    streams = stream_actor(read_machine(path), [0], "copy", "streaming", "local")["streams"]
    assert [s["work_ns"] for s in streams] == [7, 7]


def test_random_reads_have_as_many_on_their_way_as_a_core_can() -> None:
    machine = find_machine("gs1280-4")
    limit = int(machine.number("cpu.outstanding"))
    actor = actor_of(random_reads(machine, 2))
    assert actor == {"cpus": "all", "chains": 2, "streams": [{"homes": "others", "random": False}]}
    actor = actor_of(random_reads(machine, limit + 1, (0, 2), [3], random=True))
    assert actor == {"cpus": [0, 2], "chains": limit, "streams": [{"homes": [3], "random": True}]}
    assert random_reads(machine, 2, links=True)["links"] is True


def test_random_updates_own_a_line_of_a_table_on_all_nodes_and_write_it_back() -> None:
    fields = {"homes": "uniform", "random": True}
    streams = [{"op": "own", **fields}, {"op": "write", **fields}]
    assert actor_of(gups((0, 1), 4)) == {"cpus": [0, 1], "chains": 4, "streams": streams}
    assert actor_of(gups("all", 4))["cpus"] == "all"
    assert gups("all", 4, links=True)["links"] is True
