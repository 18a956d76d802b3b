"""Without `--budget`, a measurement of more points, or of more memory, may take longer."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import pytest

from meshmark.describe import Description, description
from meshmark.errors import UsageError
from meshmark.measure.runs import budget
from meshmark.measure.runs.budget import budget_s, memory_scale
from meshmark.measure.runs.plan import launched, make_plan, measurement
from meshmark.measure.runs.probe import RunPlan, planned
from meshmark.measure.runs.spec import parse_spec

CPUS = len(os.sched_getaffinity(0))
MAX_S = 600


@pytest.mark.parametrize(
    ("argv", "times"),
    [
        ("latency --footprint 1MiB", None),
        ("bandwidth --footprint 1KiB..8KiB", 4),
        ("bandwidth --footprint 1KiB..8KiB --threads 1,2 --kernel triad,read", 16),
        ("bandwidth --footprint 1MiB --threads 1,2,all", len({1, 2, CPUS})),
        ("gups --seed 5", 1),
        ("latency --cpus 0-1", 2),
        ("gups --cpus 0-1", 1),  # the CPUs of a team work together
    ],
)
def test_points_are_counted_by_lists_of_values(argv: str, times: int | None) -> None:
    name, *options = argv.split()
    d = description(name)
    plan, usual = planned(d, options), planned(d, [])
    if times is None:
        assert plan.relative_points < 1, "the curve of the default has more than one footprint"
        assert plan.budget_s == usual.budget_s, "fewer points do not shorten the budget"
    else:
        assert plan.relative_points == pytest.approx(times / _defaults(d, options))
        assert plan.budget_s == pytest.approx(10 * max(1, plan.relative_points))
    assert budget_s(d, options) == plan.budget_s
    assert budget_s(d, [*options, "--budget", "5s"]) == planned(d, [*options, "--budget", "5s"]).budget_s == 5


def _defaults(d: Description, options: Sequence[str]) -> int:
    """Return the number of points that the defaults of these options mean."""
    defaults = [p.default.split(",") for p in map(d.parameter, options[::2]) if p.kind in {"choices", "integers"}]
    return math.prod(len({str(CPUS) if word == "all" else word for word in words}) for words in defaults)


def test_no_budget_is_scaled_without_limit() -> None:
    d = description("bandwidth")
    assert planned(d, ["--footprint", "1KiB..1GiB/64"]).budget_s == MAX_S


def test_a_refused_argument_is_named_by_its_option() -> None:
    d = description("bandwidth")
    with pytest.raises(UsageError, match=r"^bandwidth: --footprint: found '1XiB'; allowed: a size"):
        planned(d, ["--footprint", "1XiB"])
    assert budget_s(d, ["--footprint", "1XiB"]) == 10, "the instrument refuses it"


def test_budgets_grow_with_what_memory_means(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(d: Description, argv: Sequence[str]) -> RunPlan:
        return RunPlan(37.5, 3.75, 1.0, 1920 << 20)

    monkeypatch.setattr(budget, "planned", plan)
    bandwidth = description("bandwidth")
    assert budget_s(bandwidth, []) == 37.5 and memory_scale(bandwidth, []) == 3.75
    assert budget_s(bandwidth, ["--budget", "3s"]) == 3
    assert memory_scale(bandwidth, ["--footprint", "1GiB"]) == 1
    steps = make_plan(parse_spec('name="x"\n[[step]]\ninstrument="bandwidth"\noptions={budget="2s"}\n', "x")).steps
    assert [s.budget_s for s in steps] == [7.5] and "7.5s" in steps[0].argv
    fixed = 'name="x"\n[[step]]\ninstrument="bandwidth"\noptions={budget="2s", footprint="1MiB"}\n'
    assert [s.budget_s for s in make_plan(parse_spec(fixed, "x")).steps] == [2]


def test_the_instrument_says_what_memory_means() -> None:
    d = description("bandwidth")
    plan = planned(d, ["--footprint", "memory"])
    assert plan.memory_bytes is not None
    assert plan.memory_bytes >= 64 << 20 and plan.memory_bytes % (1 << 20) == 0
    assert plan.memory_scale == max(1, plan.memory_bytes / (512 << 20))
    fixed = planned(d, ["--footprint", "1MiB"])
    assert fixed.memory_bytes is None and fixed.memory_scale == 1


def test_every_process_gets_its_share_of_a_scaled_budget() -> None:
    d = description("bandwidth")
    kernels = d.parameter("kernel")
    argv = ["--kernel", ",".join(dict.fromkeys([*kernels.choices]))]
    expected = planned(d, argv)
    plan = measurement(d, argv)
    times = expected.relative_points * expected.memory_scale
    assert times > 1 and plan.budget_s == pytest.approx(min(MAX_S, 10 * times))
    assert len({s.argv[s.argv.index("--budget") + 1] for s in plan.steps}) == 1
    (run,) = launched(d, argv)
    assert run.argv[-2] == "--budget" and run.budget_s == pytest.approx(plan.budget_s)
    (process,) = launched(d, ["--footprint", "1MiB"])
    assert process.argv == ("bandwidth", "--footprint", "1MiB"), "the default is left to the instrument"
