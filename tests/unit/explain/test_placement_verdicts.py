"""The verdict about a running program, and the command that would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.explain.access_cost import access_cost, joint, read_bandwidth, slowdown
from meshmark.explain.actions import command_of
from meshmark.explain.situation import Situation
from meshmark.explain.surroundings import Cpuset, Surroundings
from meshmark.explain.targets import Target
from meshmark.explain.verdict import judge
from meshmark.store.record import Metric, Record
from support.made_programs import CPUS_OF_NODE, GIB, cost, process, situation, topology

FIRST = tuple(range(CPUS_OF_NODE))
SECOND = tuple(range(CPUS_OF_NODE, 2 * CPUS_OF_NODE))

MISPLACED: dict[str, tuple[Situation, str, str]] = {
    "bound to one node, memory on the other": (
        situation(process({0: 1.0}, {1: 10}, allowed=FIRST)),
        "remote-memory",
        "meshmark migrate 4711 --to 0",
    ),
    "unbound, ran on one node, memory on the other": (
        situation(process({1: 0.9}, {0: 9, 1: 1})),
        "remote-memory",
        "meshmark migrate 4711 --to 1 --with-threads",
    ),
    "its node has no room for the memory, the other one has CPUs": (
        situation(process({0: 1.0}, {1: 10}), free={0: 2.0}),
        "remote-memory",
        "meshmark migrate 4711 --to 1 --with-threads",
    ),
    "its node has no CPU for it, the node of the memory has": (
        situation(process({0: 0.5, 1: 0.5}, {1: 10}), idle={0: 0.0, 1: 6.0}),
        "remote-memory",
        "meshmark migrate 4711 --to 1 --with-threads",
    ),
    "threads on both nodes, memory on one, fits one node": (
        situation(process({0: 1.5, 1: 1.5}, {0: 20}, threads=3)),
        "remote-memory",
        "meshmark migrate 4711 --to 0 --with-threads",
    ),
    "threads need both nodes, memory on one": (
        situation(process({0: 7.0, 1: 7.0}, {0: 20}, threads=14)),
        "first-touch",
        "meshmark migrate 4711 --to 0-1 --spread",
    ),
    "two processes on one node, both with memory on the other": (
        situation(process({0: 1.0}, {1: 4}), process({0: 1.0}, {1: 4}, number=4712)),
        "remote-memory",
        "meshmark migrate 4711 --to 0 --with-threads --children --shared",
    ),
    "half of the memory on another node": (
        situation(process({0: 1.0}, {0: 5, 1: 5}, allowed=FIRST)),
        "remote-memory",
        "meshmark migrate 4711 --to 0",
    ),
    "threads share one CPU while others are idle": (
        situation(process({0: 1.0}, {0: 1}, waited_s=2.0, allowed=(0,), threads=3)),
        "few-cpus",
        "taskset -acp 0-7 4711",
    ),
    "its control group permits the memory of the other node only": (
        situation(
            replace(process({0: 1.0}, {1: 10}, allowed=FIRST), allowed_nodes=(1,)),
            around=Surroundings(cpuset=Cpuset("/batch/job 7", FIRST, (1,))),
        ),
        "cpuset",
        "meshmark placed --cgroup '/batch/job 7' --fix",
    ),
    "its control group permits CPUs of the other node only": (
        situation(
            process({0: 1.0}, {1: 10}),
            around=Surroundings(cpuset=Cpuset("/batch", FIRST, (0, 1))),
            free={0: 1.0},
        ),
        "cpuset",
        "meshmark placed --cgroup /batch --fix",
    ),
    "its node has no room, and the other one no CPU": (
        situation(process({0: 1.0}, {1: 10}), idle={0: 7.0, 1: 0.2}, free={0: 1.0}),
        "no-room",
        "",
    ),
    "four nodes, memory on a far one": (
        situation(process({2: 1.0}, {0: 8}, allowed=range(16, 24)), nodes=4),
        "remote-memory",
        "meshmark migrate 4711 --to 2",
    ),
}

WELL_PLACED: dict[str, Situation] = {
    "one node, all local": situation(process({0: 1.0}, {0: 10}, allowed=FIRST)),
    "unbound, but it stayed": situation(process({1: 2.0}, {1: 10})),
    "a tenth of the memory elsewhere": situation(process({0: 1.0}, {0: 9, 1: 1}, allowed=FIRST)),
    "needs all CPUs, memory everywhere": situation(process({0: 8.0, 1: 8.0}, {0: 10, 1: 10}, threads=16)),
    "threads and memory on both nodes, each perhaps with its own": situation(
        process({0: 1.0, 1: 1.0}, {0: 5, 1: 5}, threads=2)
    ),
    "a worker on each node with its own memory": situation(
        process({0: 1.0}, {0: 4}, allowed=FIRST), process({1: 1.0}, {1: 4}, number=4712, allowed=SECOND)
    ),
    "nodes are equally near": situation(process({0: 1.0}, {1: 10}, allowed=FIRST), cost_of_access=cost(far=1.0)),
    "waits, although its own CPUs are idle": situation(
        process({0: 1.0}, {0: 1}, waited_s=2.0, allowed=FIRST, threads=3)
    ),
    "waits, but nothing is idle": situation(
        process({0: 1.0}, {0: 1}, waited_s=2.0, allowed=(0,), threads=3), idle={0: 0.1, 1: 0.2}
    ),
    "one thread waits a little": situation(process({0: 0.9}, {0: 1}, waited_s=0.1, allowed=(0,))),
    "one memory node": situation(process({0: 1.0}, {0: 10}, allowed=FIRST), nodes=1, cost_of_access=cost(1)),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_misplaced_program_gets_one_command(name: str) -> None:
    observed, cause, command = MISPLACED[name]
    verdict = judge(observed)
    assert (verdict.kind, verdict.cause) == ("badly placed", cause), verdict.sentence
    assert (command_of(verdict.action, observed.target, observed.process) if verdict.action else "") == command
    assert "\n" not in verdict.sentence and not verdict.sentence.endswith(".")


@pytest.mark.parametrize("name", WELL_PLACED)
def test_no_change_is_suggested_to_a_well_placed_program(name: str) -> None:
    verdict = judge(WELL_PLACED[name])
    assert (verdict.kind, verdict.action) == ("well placed", None), verdict.sentence
    assert verdict.sentence.startswith("no change suggested: ")


@pytest.mark.parametrize(
    ("observed", "cause", "reason"),
    [
        (situation(process({0: 0.001}, {1: 10})), "idle", "it used 0.1 % of a CPU in 1.0 s"),
        (
            situation(replace(process({0: 1.0}, {1: 1}), pages=None, pages_absent="not permitted")),
            "pages",
            "not permitted",
        ),
        (situation(process({0: 1.0}, {1: 1e-5}, sampled=3)), "pages", "only 3 of its pages are in memory"),
    ],
)
def test_what_says_too_little_gets_no_verdict(observed: Situation, cause: str, reason: str) -> None:
    verdict = judge(observed)
    assert (verdict.kind, verdict.cause, verdict.action) == ("could not tell", cause, None)
    assert reason in verdict.sentence


def bandwidth_of(node: int, rate: float, cpus: str, **conditions: object) -> Record:
    conditions = {"kernel": "read", "threads": CPUS_OF_NODE, "cpus": cpus, "memory_node": str(node), **conditions}
    return Record.from_samples(
        Metric("bandwidth_net", "B/s", "higher", ""),
        tuple(rate * (1 + 0.01 * (k - 4)) for k in range(9)),
        source="host",
        machine="m",
        instrument="bandwidth",
        conditions=conditions,
        provenance={"start": "2026-11-30T08:00:00Z"},
    )


def test_spreading_gains_the_bandwidth_of_the_other_nodes() -> None:
    records = [
        bandwidth_of(0, 40e9, "0-7"),
        bandwidth_of(0, 10e9, "0", threads=1),
        bandwidth_of(0, 90e9, "0-7", kernel="copy"),
        bandwidth_of(0, 20e9, "8-15"),
        bandwidth_of(1, 30e9, "8-15"),
    ]
    rates = read_bandwidth(topology(), records)
    assert {node: r.value for node, r in rates.items()} == {0: 40e9, 1: 30e9}
    observed = situation(process({0: 7.0, 1: 7.0}, {0: 18, 1: 2}, threads=14), bandwidth=rates)
    gain = judge(observed).gain
    assert gain is not None and gain.of == "bandwidth"
    # Now node 0 needs 0.9 / 40 per byte; afterwards node 1 needs 0.5 / 30.
    assert gain.ratio == pytest.approx(0.9 / 40 / (0.5 / 30)) and gain.low < gain.ratio < gain.high < 1.1 * gain.ratio
    assert judge(replace(observed, bandwidth={0: rates[0]})).gain is None


def test_pages_that_processes_share_move_with_a_privilege_only() -> None:
    observed, _, _ = MISPLACED["two processes on one node, both with memory on the other"]
    verdict = judge(replace(observed, privileged=False))
    assert verdict.action is not None and not verdict.action.shared
    assert verdict.notes == (
        "pages that its processes share stay where they are, unless root runs the command with --shared",
    )


def test_programs_of_a_manager_are_spread_without_it() -> None:
    observed, _, _ = MISPLACED["threads need both nodes, memory on one"]
    action = judge(observed).action
    assert action is not None
    unit = Target("unit", "a b", (1, 2))
    assert command_of(action, unit, 1) == "meshmark placed --unit 'a b' --fix"
    assert command_of(action, replace(unit, root=1), 1) == "meshmark migrate 1 --to 0-1 --spread --children"


def test_the_gain_has_an_interval_from_latencies_and_pages() -> None:
    observed, _, _ = MISPLACED["half of the memory on another node"]
    gain = judge(observed).gain
    assert gain is not None and gain.measured
    assert gain.ratio == pytest.approx(1.3) and gain.low < 1.3 < gain.high
    now, after = joint({0: 1.0}, {0: 5, 1: 5}), {(0, 0): 1.0}
    few = slowdown(cost(), now, after, sampled=20)
    many = slowdown(cost(error=1e-6), now, after, sampled=100_000)
    assert few.high - few.low > 3 * (gain.high - gain.low) > 3 * (many.high - many.low)


def latency(cpu: int, node: int, value: float, machine: str = "m") -> Record:
    return Record.from_samples(
        Metric("load_latency", "s", "lower", ""),
        tuple(value * (1 + 0.001 * k) for k in range(9)),
        source="host",
        machine=machine,
        instrument="latency",
        conditions={"cpu": cpu, "memory_node": node, "processes": 1, "footprint_bytes": GIB},
        provenance={"start": "2026-11-30T08:00:00Z"},
    )


def test_costs_are_measured_latencies_if_every_pair_has_one() -> None:
    records = [latency(8 * a, b, 1e-7 * (1 if a == b else 1.7)) for a in (0, 1) for b in (0, 1)]
    costs = access_cost(topology(), records)
    assert costs is not None and costs.measured
    assert costs.value[0, 1] / costs.value[0, 0] == pytest.approx(1.7) and costs.error[0, 1] > 0
    assert access_cost(topology(), records[:3]) is None, "a synthetic machine has no distances, either"


def test_threads_on_a_node_without_memory_need_no_cost_of_their_own_node() -> None:
    """The distance from such a node to itself is no cost of an access."""
    observed = situation(process({1: 1.0}, {0: 10}, allowed=SECOND))
    nodes = (observed.topology.nodes[0], replace(observed.topology.nodes[1], memory_bytes=0))
    both = {(0, 0): 1e-7, (1, 0): 1.5e-7}
    assert observed.cost is not None
    bare = replace(observed, topology=replace(observed.topology, nodes=nodes), cost=replace(observed.cost, value=both))
    assert judge(bare).cause == "one-node"
    third = topology(3)
    nodes = (third.nodes[0], replace(third.nodes[1], memory_bytes=0), third.nodes[2])
    costs = {(a, b): (1 if a == b else 2 if 1 in (a, b) else 4) * 1e-7 for a in range(3) for b in (0, 2)}
    cost_of_access = replace(observed.cost, value=costs, error=dict.fromkeys(costs, 0.0))
    bare = replace(observed, topology=replace(third, nodes=nodes), cost=cost_of_access)
    assert judge(bare).kind == "well placed", "node 0 is as near to node 1 as any memory"


def notes_with(around: Surroundings, **ran: float) -> list[str]:
    observed = situation(process({0: ran.get("first", 1.0), 1: ran.get("second", 0.0)}, {0: 5}), around=around)
    return list(judge(observed).notes)


def test_what_else_slows_a_program_is_noted() -> None:
    scheduling = {("normal", 0): 3, ("idle", 0): 2}
    around = Surroundings(scheduling, throttled_s=0.5, memory_limits={"memory.high": GIB}, reclaims=7)
    quota, memory, idle = notes_with(around)
    assert quota == "its CPU quota stopped it for 0.50 s of thread time: meshmark doctor --pid 4711"
    assert memory == "it reached memory.high 7 times in 1.0 s, and waited until memory was freed"
    assert idle.startswith("2 of its threads have the scheduling class idle")
    assert notes_with(Surroundings({("batch", 5): 3}, throttled_s=0.1)) == []


@pytest.mark.parametrize(
    ("interrupts", "second", "noted"),
    [
        ({0: 10, 1: 5000}, 0.0, True),
        ({0: 5000, 1: 10}, 0.0, False),  # where its threads run
        ({0: 3000, 1: 5000}, 0.0, False),  # both nodes handle them
        ({1: 500}, 0.0, False),  # too few to matter
        ({1: 5000}, 0.5, False),  # some threads run there
    ],
)
def test_interrupts_on_another_node_are_noted(interrupts: dict[int, int], second: float, noted: bool) -> None:
    notes = notes_with(Surroundings(interrupts={"eth0": interrupts}), second=second)
    expected = "node 1 handles the interrupts of eth0 (5010 per second), but its threads ran on node 0: "
    assert [n.startswith(expected) for n in notes] == [True] * noted
