"""The plan of one measurement: it uses fresh processes, which share the budget."""

from __future__ import annotations

import itertools

import pytest

from meshmark.describe import description
from meshmark.errors import UsageError
from meshmark.machine.sources import from_synthetic
from meshmark.measure.runs import launch
from meshmark.measure.runs.plan import SurveyPlan, make_plan, measurement
from meshmark.measure.runs.spec import parse_spec
from support.mpi_here import installed


def options(plan: SurveyPlan) -> list[dict[str, str]]:
    return [dict(itertools.pairwise(step.argv)) for step in plan.steps]


def test_three_fresh_processes_share_the_budget() -> None:
    plan = measurement(description("latency"), ["--budget", "6s", "--cpus", "0"])
    assert [s.id for s in plan.steps] == ["latency.r1", "latency.r2", "latency.r3"]
    assert {s.repeats for s in plan.steps} == {"latency"} and plan.budget_s == pytest.approx(6)
    assert [o["--budget"] for o in options(plan)] == ["2s"] * 3
    assert [o.get("--seed") for o in options(plan)] == [None, "2", "3"]
    assert all(s.argv[0] == "latency" and "--cpus" in s.argv for s in plan.steps)
    default = measurement(description("latency"), [])
    assert len(default.steps) == 3 and default.budget_s == pytest.approx(10)


def test_a_seed_that_was_given_is_that_of_all() -> None:
    plan = measurement(description("latency"), ["--seed", "7", "--budget", "6s"])
    assert [o["--seed"] for o in options(plan)] == ["7"] * 3


@pytest.mark.parametrize(("budget", "steps"), [("2.9s", 1), ("3s", 3)])
def test_less_than_a_second_each_is_one_process(budget: str, steps: int) -> None:
    plan = measurement(description("latency"), ["--budget", budget])
    assert len(plan.steps) == steps
    if steps == 1:
        assert plan.steps[0].id == "latency" and plan.steps[0].argv == ("latency", "--budget", budget)


def test_a_number_that_was_asked_for_is_kept() -> None:
    plan = measurement(description("latency"), ["--budget", "1s"], 5)
    assert len(plan.steps) == 5 and plan.budget_s == pytest.approx(1)
    (step,) = measurement(description("latency"), ["--budget", "60s"], 1).steps
    assert step.id == "latency" and step.budget_s == 60
    assert len(measurement(description("linpack"), ["--budget", "60s"]).steps) == 1, "a solution may take minutes"
    assert len(measurement(description("linpack"), ["--budget", "60s"], 2).steps) == 2


def test_threads_of_a_library_are_measured_in_processes_of_their_own() -> None:
    plan = measurement(description("dgemm"), ["--threads", "1,2", "--n", "500", "--budget", "12s"])
    assert [s.id for s in plan.steps] == [f"dgemm-{t}.r{r}" for r in (1, 2, 3) for t in (1, 2)]
    assert [o["--threads"] for o in options(plan)] == ["1", "2"] * 3
    assert {o["--budget"] for o in options(plan)} == {"2s"} and plan.budget_s == pytest.approx(12)
    assert {s.repeats for s in plan.steps} == {"dgemm-1", "dgemm-2"}
    few = measurement(description("dgemm"), ["--threads", "1,2", "--budget", "3s"])
    assert [s.id for s in few.steps] == ["dgemm-1", "dgemm-2"], "not less than a second each"
    named = measurement(description("dgemm"), ["--threads", "1,2", "--cpus", "allowed"], 1)
    assert [s.id for s in named.steps] == ["dgemm-1", "dgemm-2"]
    all_threads = measurement(description("fft"), ["--threads", "1,all", "--cpus", "0"], 1)
    assert [s.id for s in all_threads.steps] == ["fft"], "all is one, too"
    (invalid_step,) = measurement(description("dgemm"), ["--threads", "many"], 1).steps
    assert "many" in invalid_step.argv, "the instrument says what is wrong"
    (combined_step,) = measurement(description("gups"), ["--threads", "1,2"], 1).steps
    assert "1,2" in combined_step.argv


def test_a_budget_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="--budget: found 'soon'"):
        measurement(description("latency"), ["--budget", "soon"])


@pytest.mark.skipif(len(installed()) < 2, reason="needs two MPI libraries")
def test_libraries_take_turns_in_each_repetition() -> None:
    plan = measurement(description("barrier"), ["--mpi", "all", "--ranks", "2", "--budget", "8s"], 2)
    a, b = installed()[:2]
    assert [s.mpi for s in plan.steps] == [a, b, b, a] * 2
    step_ids = [s.id for s in plan.steps if s.mpi == a]
    assert step_ids == [f"barrier-{a}-2.r{i}" for i in (1, 2, 3, 4)] and plan.budget_s == pytest.approx(2 * 8)


def test_ranks_are_started_several_times_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks keep their pages and the pairing of their CPUs until they exit: one start shows only one mode."""
    monkeypatch.setattr(launch, "chosen", lambda _: ["openmpi"])
    steps = measurement(description("exchange"), ["--ranks", "2"]).steps
    assert [s.id for s in steps] == [f"exchange-openmpi-2.r{i}" for i in (1, 2, 3)]
    assert len({s.repeats for s in steps}) == 1
    assert sum(s.budget_s for s in steps) == pytest.approx(10)
    assert [dict(itertools.pairwise(s.argv))["--seed"] for s in steps] == ["1", "2", "3"]
    assert len(measurement(description("exchange"), ["--ranks", "2", "--budget", "2s"]).steps) == 1
    assert len(measurement(description("pop"), ["--ranks", "2", "--budget", "20s"]).steps) == 1
    assert len(measurement(description("pop"), ["--ranks", "2", "--budget", "30s"]).steps) == 3


def test_libraries_that_take_turns_start_twice_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "chosen", lambda _: ["openmpi", "mpich"])
    steps = measurement(description("exchange"), ["--ranks", "2", "--mpi", "all"]).steps
    assert [s.mpi for s in steps] == ["openmpi", "mpich", "mpich", "openmpi"]


EACH_NODE = """name="x"
[[step]]
instrument="latency"
each_node=true
repetitions=2
options={budget="2s"}
[[step]]
name="read"
instrument="bandwidth"
each_node=true
options={kernel="read", budget="1s", footprint="1GiB"}
"""


def test_a_step_from_each_node_to_each_node_follows_the_topology() -> None:
    topology = from_synthetic("pack:2 [numa] core:4 pu:1")
    plan = make_plan(parse_spec(EACH_NODE, "x"), topology=topology)
    assert [s.id for s in plan.steps] == ["01-latency.r1", "02-read-0", "03-read-1", "04-latency.r2"]
    assert [(o["--cpus"], o["--memory-node"]) for o in options(plan)] == [
        ("0,4", "all"),
        ("0-3", "all"),
        ("4-7", "all"),
        ("0,4", "all"),
    ]
    assert make_plan(parse_spec(EACH_NODE, "x"), topology=from_synthetic("pack:1 [numa] core:4 pu:1")).steps == ()
    with pytest.raises(UsageError, match="latency: each_node: the nodes of the machine are not known here"):
        make_plan(parse_spec(EACH_NODE, "x"))


@pytest.mark.parametrize("key", ["cpus", "memory-node", "memory_node"])
def test_a_step_from_each_node_leaves_cpus_and_nodes_to_the_plan(key: str) -> None:
    with pytest.raises(UsageError, match=f"options.{key}: found with each_node, which sets it"):
        parse_spec(EACH_NODE.replace('budget="2s"', f'{key}="0"'), "x")
