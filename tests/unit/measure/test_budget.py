"""Without `--budget`, a measurement of more points may take longer."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from meshmark.describe import Description, Parameter, description
from meshmark.measure.runs import budget
from meshmark.measure.runs.budget import MAX_S, budget_s, memory_scale, more, relative_points
from meshmark.measure.runs.plan import launched, make_plan, measurement
from meshmark.measure.runs.probe import check
from meshmark.measure.runs.spec import parse_spec


def option(name: str, kind: str, default: str, maximum: float | None = None) -> Parameter:
    return Parameter(name, f"--{name}", "", "", kind, default, (), None, maximum)


MADE = Description(
    "made",
    "",
    "",
    "",
    (
        option("budget", "time", "10s"),
        option("footprint", "sizes", "1KiB,2KiB"),
        option("threads", "integers", "1", 64),
        option("state", "choices", "clean"),
        option("cpus", "cpus", "all"),
        option("seed", "integer", "1"),
    ),
    (),
    (),
    {},
)


@pytest.mark.parametrize(
    ("argv", "times"),
    [
        ([], 1),
        (["--footprint", "1KiB..8KiB"], 2),
        (["--footprint", "1KiB"], 0.5),
        (["--footprint", "1KiB..8KiB", "--threads", "1,2,4", "--state", "clean,dirty"], 12),
        (["--threads", "1,2,all"], len({1, 2, len(os.sched_getaffinity(0))})),
        (["--threads", "many", "--footprint", "1XiB"], 0.5),  # the instrument refuses these values
        (["--cpus", "0-7", "--seed", "5"], 1),
    ],
)
def test_points_are_counted_by_lists_of_values(argv: list[str], times: float) -> None:
    assert relative_points(MADE, dict(itertools.pairwise(argv))) == pytest.approx(times)
    assert budget_s(MADE, argv) == pytest.approx(10 * max(1, times))
    assert budget_s(MADE, [*argv, "--budget", "5s"]) == 5


def test_no_budget_is_scaled_without_limit() -> None:
    assert budget_s(MADE, ["--footprint", "1KiB..4GiB/64"]) == MAX_S
    long = replace(MADE, parameters=(option("budget", "time", "900s"), *MADE.parameters[1:]))
    assert budget_s(long, ["--footprint", "1KiB..4GiB/64"]) == 900


def test_budgets_grow_with_what_memory_means(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def answer(_: str, argv: Sequence[str]) -> dict[str, int]:
        calls.append(tuple(argv))
        return {"memory_bytes": 1920 << 20}

    monkeypatch.setattr(budget, "check", answer)
    memory_instrument = replace(MADE, parameters=(MADE.parameters[0], option("footprint", "sizes", "memory")))
    assert budget_s(memory_instrument, []) == pytest.approx(37.5) == 10 * more(memory_instrument, [])
    assert budget_s(memory_instrument, ["--budget", "3s"]) == 3
    assert budget_s(memory_instrument, ["--footprint", "1GiB"]) == 10 and calls == [(), ()]
    steps = make_plan(parse_spec('name="x"\n[[step]]\ninstrument="bandwidth"\noptions={budget="2s"}\n', "x")).steps
    assert [s.budget_s for s in steps] == [7.5] and "7.5s" in steps[0].argv
    fixed = 'name="x"\n[[step]]\ninstrument="bandwidth"\noptions={budget="2s", footprint="1MiB"}\n'
    assert [s.budget_s for s in make_plan(parse_spec(fixed, "x")).steps] == [2]


def test_the_instrument_says_what_memory_means() -> None:
    memory_bytes = check("bandwidth", ["--footprint", "memory"])["memory_bytes"]
    assert memory_bytes >= 64 << 20 and memory_bytes % (1 << 20) == 0
    assert check("bandwidth", ["--footprint", "1MiB"]) == {}


def test_every_process_gets_its_share_of_a_scaled_budget() -> None:
    d = description("bandwidth")
    kernels = d.parameter("kernel")
    argv = ["--kernel", ",".join(dict.fromkeys([*kernels.choices]))]
    times = relative_points(d, dict(itertools.pairwise(argv)))
    plan = measurement(d, argv)
    times *= memory_scale(d, argv)
    assert times > 1 and plan.budget_s == pytest.approx(min(budget.MAX_S, 10 * times))
    assert len({dict(itertools.pairwise(s.argv))["--budget"] for s in plan.steps}) == 1
    (run,) = launched(d, argv)
    assert run.argv[-2] == "--budget" and run.budget_s == pytest.approx(plan.budget_s)
    (process,) = launched(d, ["--footprint", "1MiB"])
    assert process.argv == ("bandwidth", "--footprint", "1MiB"), "the default is left to the instrument"


def test_every_named_cpu_has_time_where_each_is_measured_alone() -> None:
    latency, gups = description("latency"), description("gups")
    assert relative_points(latency, {"--cpus": "0,8"}) == 2 * relative_points(latency, {})
    assert relative_points(latency, {"--cpus": "0-3"}) == 4 * relative_points(latency, {})
    assert relative_points(gups, {"--cpus": "0,8"}) == relative_points(gups, {}), "the CPUs of a team work together"
    assert relative_points(latency, {"--cpus": "x"}) == relative_points(latency, {}), "the instrument refuses it"
