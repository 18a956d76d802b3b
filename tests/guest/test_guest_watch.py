"""The sampler in real kernels of several nodes: reports on nodes, pages, CPUs that go offline and clocks that step.

Each topology is booted once for many checks. No test depends on speed: the guest is emulated.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

import booted
import pytest
from booted import ROOT

WATCH = Path(os.environ.get("MESHMARK_WATCH", ROOT / "build" / "release" / "bin" / "meshmark-watch"))

pytestmark = pytest.mark.guest

PAGE: Final = 4096
HELD: Final = 64 << 20
STEP_S: Final = 3600
RATE: Final = 4.0
STAT: Final = ("cpu.busy", "cpu.user", "cpu.system", "cpu.interrupts", "cpu.steal")  # metrics of /proc/stat
# `far` holds the memory of a program on CPU 0; `unplug` is a CPU that goes offline and returns, in the second and third
# machine the only one of its node.
MACHINES: dict[str, dict[str, Any]] = {
    "numa-2": {"cpus": [[0, 1], [2, 3]], "memory": [0, 1], "far": 1, "unplug": 3, "links": [(0, 1)]},
    "ring-4": {
        "cpus": [[0], [1], [2], [3]],
        "memory": [0, 1, 2, 3],
        "far": 2,
        "unplug": 3,
        "links": [(0, 1), (1, 2), (2, 3), (0, 3)],
    },
    "memless-3": {
        "cpus": [[0], [1], [2]],
        "memory": [0, 2],
        "far": 2,
        "unplug": 1,
        "links": [(0, 1), (0, 2), (1, 2)],
    },
}


@cache
def gathered(name: str) -> dict[str, Any] | str:
    """Return the answers of one guest, or why there is no guest."""
    machine = MACHINES[name]
    plan = {
        "watch": str(WATCH),
        "far": machine["far"],
        "bytes": HELD,
        "unplug": machine["unplug"],
        "step_s": STEP_S,
        "rate": RATE,
    }
    return booted.gathered(name, "watch_inside.py", plan, 480)


class Watched:
    """One guest: the description of its machine, and the output of the sampler."""

    def __init__(self, name: str) -> None:
        answers = gathered(name)
        if isinstance(answers, str):
            pytest.skip(answers)
        assert "failed" not in answers, f"{name}: {answers['failed']}"
        self.name, self.machine, self.answers = name, MACHINES[name], answers
        self.header, *self.frames = answers["lines"]
        assert self.frames[-1]["dropped"] == 0, "the reader in the guest was too slow"
        self.nodes = range(len(self.machine["cpus"]))
        self.far: int = self.machine["far"]

    def between(self, first: str, last: str) -> list[dict[str, Any]]:
        """Return the frames after one mark, up to and including another."""
        marks = self.answers["marks"]
        return [f for f in self.frames if marks[first] < f["seq"] <= marks[last]]

    def at(self, mark: str) -> dict[str, list[float | None]]:
        values: dict[str, list[float | None]] = next(
            f["values"] for f in self.frames if f["seq"] == self.answers["marks"][mark]
        )
        return values

    def counted(self, metric: str, first: str, last: str) -> list[float]:
        """Return the increase of a counter of the nodes between two marks: rates times lengths of frames."""
        frames = self.between(first, last)
        return [sum((f["values"][metric][n] or 0) * f["window_s"] for f in frames) for n in self.nodes]


@pytest.fixture(params=booted.first_quick(MACHINES))
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(request.param)


def test_the_header_is_the_machine_that_was_booted(watched: Watched) -> None:
    parts, machine = watched.header["components"], watched.machine
    assert [n["number"] for n in parts["node"]] == list(watched.nodes)
    assert [[c["number"] for c in parts["cpu"] if c["node"] == n] for n in watched.nodes] == machine["cpus"]
    assert [m["node"] for m in parts["memory"]] == machine["memory"]
    # One link per direction; in a ring, opposite nodes have none.
    assert sorted((k["from"], k["to"]) for k in parts["link"]) == sorted(
        pair for a, b in machine["links"] for pair in ((a, b), (b, a))
    )


def test_a_program_is_told_with_its_pages_where_they_are(watched: Watched) -> None:
    pid = watched.answers["program"]
    periods = [p for f in watched.between("held", "seen") for p in f.get("processes", []) if p["pid"] == pid]
    assert periods, "the program is not among the processes"
    last = periods[-1]
    assert last["on"] == 0 and last["cpu"] > 0, last
    assert last["nodes"][watched.far] >= HELD, last
    assert sum(b for n, b in enumerate(last["nodes"]) if n != watched.far) < HELD / 2, last


def test_its_cpu_is_busy_and_no_other(watched: Watched) -> None:
    busy = [f["values"]["cpu.busy"] for f in watched.between("held", "seen")]
    # A frame that came late on a busy machine has no value for some CPUs.
    measured = [[v[c] for v in busy if v[c] is not None] for c in range(len(busy[0]))]
    assert all(measured), busy
    means = [sum(values) / len(values) for values in measured]
    assert means[0] > max(means[1:]), means


def test_memory_in_use_grows_on_its_node_and_goes_with_it(watched: Watched) -> None:
    before, while_held, after = (watched.at(m)["node.used"] for m in ("quiet", "held", "ended"))
    for n in watched.nodes:
        growth, freed = (b - a for a, b in ((before[n], while_held[n]), (after[n], while_held[n])))  # type: ignore[operator]
        if n == watched.far:
            # The kernel keeps some of the freed memory in lists of its CPUs, for the next request.
            assert 0.95 * HELD < growth < 1.3 * HELD and freed > HELD / 3, (n, growth, freed)
        else:
            assert abs(growth) < HELD / 2 and abs(freed) < HELD / 2, (n, growth, freed)


def test_pages_for_programs_of_other_nodes_are_counted_where_they_lie(watched: Watched) -> None:
    pages = watched.counted("node.other", "quiet", "held")
    assert HELD / PAGE <= pages[watched.far] < 1.2 * HELD / PAGE, pages
    # The pages of the programs of a node without memory are always on another node.
    others = [p for n, p in enumerate(pages) if n != watched.far and n in watched.machine["memory"]]
    assert max(others) < HELD / PAGE / 10, pages


def test_pages_that_find_no_room_are_missed_there_and_foreign_here(watched: Watched) -> None:
    miss, foreign_pages = (watched.counted(m, "ended", "overflowed") for m in ("node.miss", "node.foreign"))
    expected = HELD / 2 / PAGE  # pages that exceed the free memory of the node, up to what the kernel frees meanwhile
    assert foreign_pages[watched.far] > expected / 2, foreign_pages
    assert miss[watched.far] == 0, miss
    assert sum(miss) == pytest.approx(sum(foreign_pages), rel=0.01)
    assert sum(watched.counted("node.miss", "quiet", "ended")) == 0


def test_a_cpu_that_goes_is_unknown_and_comes_back(watched: Watched) -> None:
    cpu, cpus = watched.machine["unplug"], len(watched.header["components"]["cpu"])
    while_offline, back = watched.between("offline", "still_offline"), watched.between("online", "back")
    assert len(while_offline) >= 6 and len(back) >= 5
    for name in STAT:
        assert [f["values"][name][cpu] for f in while_offline] == [None] * len(while_offline), name
        for other in range(cpus):
            assert other == cpu or any(f["values"][name][other] is not None for f in while_offline), (name, other)
        # An emulated CPU on a busy machine may have had no tick of 10 ms within a window.
        valid_values = [v for f in back if (v := f["values"][name][cpu]) is not None]
        assert valid_values and all(0 <= v <= 1 for v in valid_values), (name, valid_values)


def test_counters_of_a_cpu_that_goes_are_unknown_and_come_back(watched: Watched) -> None:
    names = [m["name"] for m in watched.header["metrics"] if m["name"].startswith("cpu.") and m["name"] not in STAT]
    cpu = watched.machine["unplug"]
    quiet = watched.at("quiet")
    counted_names = [name for name in names if quiet[name][cpu] is not None]
    if not counted_names:
        pytest.skip("this kernel counts nothing on a CPU by perf events")
    # They are read once a second at most, and the last value is kept until then.
    while_offline = watched.between("offline", "still_offline")[-2:]
    # An emulated CPU on a busy host needs time to return.
    back = [f for f in watched.frames if f["seq"] > watched.answers["marks"]["online"]]
    for name in counted_names:
        assert [f["values"][name][cpu] for f in while_offline] == [None, None], name
        assert all(f["values"][name][0] is not None for f in while_offline), name
        assert any(f["values"][name][cpu] is not None for f in back), name


def test_a_step_of_the_wall_clock_moves_no_window(watched: Watched) -> None:
    wall_times = {f["seq"]: f["at"] for f in watched.frames}
    marks = watched.answers["marks"]
    for mark, step in (("ahead", STEP_S), ("back", -2 * STEP_S)):
        assert wall_times[marks[mark]] - wall_times[marks[f"before_{mark}"]] == pytest.approx(step, abs=30)
    start_s = 0.0
    for f in watched.frames:
        assert f["window_s"] == pytest.approx(f["t_s"] - start_s, abs=1e-5)
        assert 0 < f["window_s"] < STEP_S / 2  # a busy machine delays its guests, but not by an hour
        early_s = f["seq"] / RATE + f["late_s"] - f["t_s"]
        # The last frame ends when the sampler is stopped, which may be before it is due.
        assert abs(early_s) < 1e-4 or (f is watched.frames[-1] and 0 < early_s < 1 / RATE), f["seq"]
        start_s = f["t_s"]
    rates = [v for f in watched.between("before_ahead", "back") for v in f["values"]["host.switches"]]
    assert all(v is not None and v >= 0 for v in rates)


def test_the_canary_walks_on_every_memory(watched: Watched) -> None:
    absent_metrics = {a["metric"] for a in watched.header["absent"]}
    for n in watched.nodes:
        values = [f["values"]["node.latency"][n] for f in watched.frames]
        valid_values = [v for v in values if v is not None]
        if n not in watched.machine["memory"]:
            assert not valid_values and f"node.latency:node {n}" in absent_metrics, (n, valid_values)
            continue
        assert valid_values and min(valid_values) > 1e-9 and median(valid_values) < 1e-3, (n, valid_values)
        # If its node has lost its only CPU, the probe walks from another.
        assert any(f["values"]["node.latency"][n] is not None for f in watched.between("offline", "still_offline")), n


def test_the_sampler_outlives_it_all(watched: Watched) -> None:
    assert watched.answers["status"] == 0 and watched.answers["talk"] == "", watched.answers["talk"]
    assert watched.frames[-1]["seq"] >= watched.answers["marks"]["back"]
    numbers = [f["seq"] for f in watched.frames]
    assert numbers == sorted(set(numbers))
    # A reader on a busy machine may be late; frames that it lost are counted.
    assert watched.frames[-1]["dropped"] <= numbers[-1] + 1 - len(numbers)
