"""The current state of a fleet: which nodes report, which have stopped, and which reports are rejected."""

from __future__ import annotations

import math

import pytest

from meshmark.web.fleet.live_fleet import KEPT, MAX_METRICS, MAX_UNKNOWN, MISSED, LiveFleet, NodeReport, grouped


def reading(machine: str, at: float = 1.7e9, **values: float) -> NodeReport:
    entries = {name.replace("_", "."): value for name, value in values.items()}
    return NodeReport(machine, at, entries, dict.fromkeys(entries, "1"))


def report(live: LiveFleet, machine: str, now: float, source: str = "10.0.0.1", **values: float) -> str:
    return live.add(reading(machine, 1.7e9 + now, **values), source, now, 1.7e9 + now)


def state(live: LiveFleet, name: str, now: float) -> object:
    live.tick(now)
    return live.node(name, now)["state"]


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("n1", "n1"),
        ("n1-0123abcd", "n1"),
        ("n1.cluster.site", "n1"),
        ("n1.cluster.site-0123abcd", "n1"),
        ("n-deadbeef", "n-deadbeef"),  # a name that only seems to have a hash
        ("other-0123abcd", "other"),
    ],
)
def test_a_machine_is_known_by_its_host(machine: str, name: str) -> None:
    assert LiveFleet(["n1", "n-deadbeef"], 10).name_of(machine) == name


def test_a_node_is_silent_after_some_intervals_and_live_when_it_returns() -> None:
    live = LiveFleet(["n1", "n2"], 10)
    assert state(live, "n1", 0) == "never"
    assert report(live, "n1", 0, cpu_busy=0.5) == ""
    assert state(live, "n1", MISSED * 10) == "live" and state(live, "n1", MISSED * 10 + 1) == "silent"
    assert live.counts() == {"never": 1, "silent": 1, "live": 0, "named": 0, "wrong": 0}
    report(live, "n1", 40, cpu_busy=0.5)
    assert state(live, "n1", 41) == "live"


def test_open_cases_are_shown_of_nodes_that_report() -> None:
    live = LiveFleet(["n1", "n2", "n3"], 10)
    live.open_cases({"n1": (True, "dgemm"), "n2": (False, "latency"), "n3": (True, "x"), "n9": (True, "x")})
    for name in ("n1", "n2"):
        report(live, name, 0, cpu_busy=0.5)
    assert [state(live, name, 1) for name in ("n1", "n2", "n3")] == ["wrong", "named", "never"]
    assert live.node("n3", 1)["case"] == "x"
    assert live.cases() == {0: "dgemm", 1: "latency", 2: "x"}  # includes nodes that do not report
    live.open_cases({})
    assert state(live, "n1", 2) == "live"


def test_changes_since_a_tick_are_all_there_is_to_send() -> None:
    live = LiveFleet([f"n{i}" for i in range(5)], 10)
    live.tick(0)
    assert live.since(0).tolist() == []  # nothing was reported, which is the initial state of a page
    report(live, "n3", 1, cpu_busy=0.25)
    live.tick(1)
    first = live.ticks
    assert live.since(first - 1).tolist() == [3] and live.since(first).tolist() == []
    live.tick(2)
    assert live.since(first).tolist() == []
    live.tick(1 + MISSED * 10 + 1)
    assert live.since(first).tolist() == [3]  # the node is silent


def test_the_history_is_bounded_and_in_order() -> None:
    live = LiveFleet(["n1"], 10)
    for n in range(KEPT + 5):
        values = {"io_in": float(n)} if n > KEPT else {}
        report(live, "n1", float(n), cpu_busy=n / 100, **values)
    times, past = live.history("n1")
    assert times == [1.7e9 + n for n in range(5, KEPT + 5)]
    assert past["cpu.busy"] == [n / 100 for n in range(5, KEPT + 5)]
    assert past["io.in"] == [None] * (KEPT - 4) + [float(n) for n in range(KEPT + 1, KEPT + 5)]
    assert live.node("n1", 100.0)["values"] == {"cpu.busy": (KEPT + 4) / 100, "io.in": KEPT + 4}


def test_a_value_that_is_missing_later_is_unknown() -> None:
    live = LiveFleet(["n1", "n2"], 10)
    report(live, "n1", 0, cpu_busy=0.5, io_in=1.0)
    report(live, "n2", 0, cpu_busy=0.5)
    report(live, "n1", 1, cpu_busy=0.6)
    assert live.node("n1", 1)["values"] == {"cpu.busy": 0.6}
    assert live.history("n2")[1] == {"cpu.busy": [0.5]}


def test_a_name_belongs_to_one_address_until_it_is_silent() -> None:
    live = LiveFleet(["n1"], 10)
    assert report(live, "n1", 0, "10.0.0.1", cpu_busy=0.5) == ""
    message = report(live, "n1-0123abcd", 5, "10.0.0.9", cpu_busy=0.9)
    assert message == "10.0.0.9 reports as n1, which is 10.0.0.1" and live.refused == {"n1": message}
    assert live.node("n1", 5)["values"] == {"cpu.busy": 0.5} and live.node("n1", 5)["why"] == message
    assert report(live, "n1", 100, "10.0.0.9", cpu_busy=0.9) == ""


def test_strangers_are_counted_and_bounded() -> None:
    live = LiveFleet(["n1"], 10)
    for i in range(MAX_UNKNOWN):
        assert report(live, f"x{i}", 0) == ""
    assert live.node("x0", 0)["of_fleet"] is False and live.node("n1", 0)["of_fleet"] is True
    for i in range(300):
        assert "not of the fleet" in report(live, f"y{i}", 0)
    assert len(live.names) == MAX_UNKNOWN + 1 and len(live.refused) == 100
    assert report(live, "n1", 0) == "" and live.node("n1", 0)["state"] == "never"  # until the next tick
    assert state(live, "n1", 0) == "live"


@pytest.mark.parametrize("name", ["", "a b", "../etc", "n" * 201, "n\n1", "<b>", "-n", "n\u00e9"])
def test_what_is_no_name_is_refused(name: str) -> None:
    live = LiveFleet([], 10)
    assert report(live, name, 0) == "not the name of a node" and live.names == []
    assert all(text.isprintable() for text in live.refused)


def test_every_node_is_of_a_fleet_without_a_list() -> None:
    live = LiveFleet([], 10)
    report(live, "n1", 0)
    assert live.node("n1", 0)["of_fleet"] is True


def test_metrics_are_bounded() -> None:
    live = LiveFleet(["n1"], 10)
    report(live, "n1", 0, **{f"cpu_m{i}": float(i) for i in range(MAX_METRICS + 50)})
    assert len(live.metrics) == MAX_METRICS and len(live.refused) == 50
    assert len(live.node("n1", 0)["values"]) == MAX_METRICS  # type: ignore[arg-type]


def test_values_and_names_that_no_page_could_show_are_left_out() -> None:
    live = LiveFleet(["n1"], 10)
    values = {"cpu.busy": 1e300, "cpu.user": -math.inf, "io.in": 1e30, "<b>.x": 1.0, "m." + "x" * 200: 1.0}
    live.add(NodeReport("n1", 0, values, dict.fromkeys(values, "1" * 1000)), "a", 0, 0)
    assert live.node("n1", 0)["values"] == {"io.in": 1e30} and list(live.metrics) == ["cpu.busy", "cpu.user", "io.in"]
    assert live.history("n1")[1] == {"io.in": [1e30]} and len(live.metrics["io.in"]) == 20


def test_a_clock_that_is_wrong_is_named() -> None:
    live = LiveFleet(["n1", "n2"], 10)
    live.add(reading("n1", 1.7e9 + 3600, cpu_busy=0.1), "a", 0, 1.7e9)
    live.add(reading("n2", 1.7e9 - 10, cpu_busy=0.1), "a", 0, 1.7e9)
    assert live.node("n1", 1)["clock_ahead_s"] == pytest.approx(3600, rel=1e-3)
    assert live.node("n2", 1)["clock_ahead_s"] == 0.0 and not math.isnan(live.values[0, 0])


def test_names_with_two_numbers_tell_the_rack() -> None:
    nodes = [f"r{r}n{n}" for r in (1, 2, 10) for n in (1, 2, 3)]
    assert grouped(nodes) == {f"r{r}": [f"r{r}n{n}" for n in (1, 2, 3)] for r in (1, 2, 10)}
    assert grouped(["n1", "n2", "gpu3"]) == {"": ["n1", "n2", "gpu3"]} and grouped([]) == {}
    assert grouped(["a1-n1", "a2-n1", "a3-n1"]) == {"": ["a1-n1", "a2-n1", "a3-n1"]}  # a rack per node is not a group
