"""Tests of application measurements in rounds, without programs: order, failures, budget, and resumption."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshmark.applications.answer import answer
from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.configuration import Configuration, configurations
from meshmark.applications.records import absences, records
from meshmark.applications.trials import INTERRUPTED, JOURNAL, ApplicationPlan, Run, Trials, conduct
from meshmark.errors import MeshmarkError
from meshmark.experiments.trial import BUDGET
from meshmark.machine.sources import from_sysfs
from meshmark.store.record import Record

NO_FAILURE: Callable[[str, int], str] = lambda label, round_: ""  # noqa: E731


def plan(rounds: int = 6, **more: Any) -> ApplicationPlan:
    tables = {"application": {"command": "./a {n}"}, "dimensions": {"n": "1,2,3"}}
    settings = {"warmup": 1, "budget_s": 1e6, "seed": 7, "margin": 0.02, "run": "app-1", "started": "now"} | more
    return ApplicationPlan(tables=tables, source="/src", rounds=rounds, **settings)


def machine(fails: Callable[[str, int], str] = NO_FAILURE, ran: list[tuple[str, int]] | None = None) -> Run:
    """Return a function that simulates runs of about n seconds."""
    rng = random.Random(1)

    def run(one: Configuration, round_: int, observed: bool, most_s: float) -> ConfigurationRun:
        if ran is not None:
            ran.append((one.label, round_))
        time_s = int(one.values["n"]) * math.exp(rng.gauss(0, 0.01))
        if time_s > most_s:
            return ConfigurationRun(configuration=one.label, round=round_, reason=BUDGET)
        outcome = ConfigurationRun(configuration=one.label, round=round_, elapsed_s=time_s, spent_s=time_s)
        outcome.reason = fails(one.label, round_)
        outcome.value = None if outcome.reason else time_s
        outcome.times, outcome.peak_bytes = {"user": time_s, "system": 0.0, "waiting": 0.0}, 1e6
        outcome.seen = {"cpus": "0", "node_bytes": {"0": 4096.0}} if observed else {}
        return outcome

    return run


def conducted(folder: Path, asked: ApplicationPlan, run: Run) -> Trials:
    return conduct(asked, configurations(asked.application), folder, run, lambda _: None)


def test_all_run_once_in_each_round_in_random_order(tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    measurement = conducted(tmp_path, plan(), machine(ran=runs))
    assert measurement.stopped == "" and not measurement.excluded
    assert Counter(runs) == Counter({(f"n={n}", r): 1 for n in (1, 2, 3) for r in range(7)})
    orders = [tuple(label for label, r in runs if r == round_) for round_ in range(7)]
    assert len(set(orders)) > 2
    assert all(sorted(measurement.valid_runs(f"n={n}")) == [1, 2, 3, 4, 5, 6] for n in (1, 2, 3))  # without the warm-up
    assert measurement.warm("n=1") is not None


def test_a_configuration_that_fails_twice_is_left_out_and_one_that_fails_once_goes_on(tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []

    def fails(label: str, round_: int) -> str:
        fails_once = label == "n=2" and round_ == 3 and runs.count((label, round_)) == 1
        return "broken" if label == "n=3" or fails_once else ""

    trial_plan = plan()
    measurement = conducted(tmp_path, trial_plan, machine(fails, runs))
    assert measurement.excluded == {"n=3": "broken"} and measurement.failures == {"n=3": 2, "n=2": 1}
    assert sum(label == "n=3" for label, _ in runs) == 2
    assert sorted(measurement.valid_runs("n=2")) == [1, 2, 3, 4, 5, 6]
    assert [a.reason for a in absences(measurement, {"O9": "no such flag"})] == [
        "build=O9: no such flag",
        "n=3: broken",
    ]


def test_a_measurement_of_which_nothing_runs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match="n=1: broken"):
        conducted(tmp_path, plan(), machine(lambda *_: "broken"))


def test_the_budget_ends_it_before_it_is_exceeded(tmp_path: Path) -> None:
    measurement = conducted(tmp_path, plan(budget_s=20.0), machine())
    assert measurement.stopped == BUDGET and 15 < measurement.spent_s < 21  # runs take about as long as earlier runs


@pytest.mark.parametrize("after", [1, 5, 12])
def test_an_interrupted_one_goes_on_without_repeating_a_run(tmp_path: Path, after: int) -> None:
    uninterrupted = conducted(tmp_path / "a" if (tmp_path / "a").mkdir() is None else tmp_path, plan(), machine())
    runs: list[tuple[str, int]] = []
    succeed = machine(ran=runs)

    def run(one: Configuration, round_: int, observed: bool, most_s: float) -> ConfigurationRun:
        if len(runs) == after:
            raise KeyboardInterrupt
        return succeed(one, round_, observed, most_s)

    interrupted = conducted(tmp_path, plan(), run)
    assert interrupted.stopped == INTERRUPTED and len(interrupted.attempts) == after
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"type": "attempt", "conf')  # as after a power failure
    resumed = conducted(tmp_path, plan(), machine(ran=runs))
    assert (
        [(a.configuration, a.round) for a in resumed.attempts]
        == [(a.configuration, a.round) for a in uninterrupted.attempts]
        == runs
    )


def test_a_journal_of_another_plan_is_refused(tmp_path: Path) -> None:
    conducted(tmp_path, plan(), machine())
    other_plan = plan()
    other_plan.tables["dimensions"] = {"n": "4,5"}
    with pytest.raises(MeshmarkError, match="belongs to another plan: found a run of 'n="):
        conducted(tmp_path, other_plan, machine())
    (tmp_path / JOURNAL).write_text('{"type": "attempt", "configuration": "n=1", "round": 1, "value": -1}\n')
    with pytest.raises(MeshmarkError, match="line 1 is not a run: value -1"):
        conducted(tmp_path, plan(), machine())


def test_records_have_all_runs_that_count(tmp_path: Path) -> None:
    trial_plan = plan()
    measurement = conducted(tmp_path, trial_plan, machine())
    rows = records(measurement, trial_plan.application, "host", "measure app", "1")
    assert {r.metric for r in rows} == {
        "elapsed",
        "user",
        "system",
        "waiting",
        "waiting_share",
        "peak_memory",
        "node_memory",
    }
    elapsed = next(r for r in rows if r.metric == "elapsed" and r.conditions["n"] == "1")
    assert len(elapsed.samples) == 6 and elapsed.interval is not None and elapsed.unit == "s"
    assert elapsed.samples == tuple(a.elapsed_s for a in measurement.valid_runs("n=1").values())
    assert all(Record.from_json({"type": "result", "schema": 1, **r.to_json()}) == r for r in rows)


def test_the_answer_compares_with_the_first(tmp_path: Path) -> None:
    trial_plan = plan(rounds=9)
    report = answer(conducted(tmp_path, trial_plan, machine()), trial_plan.application, from_sysfs())
    assert [row["configuration"] for row in report["configurations"]] == ["n=1", "n=2", "n=3"]
    assert [(p["of"], p["word"], p["best"]) for p in report["pairs"]] == [
        ("n=2", "higher", "n=1"),
        ("n=3", "higher", "n=1"),
    ]
    assert report["pairs"][0]["text"].startswith("slower: 0.") and report["levels"] == []


def test_one_that_failed_before_an_interruption_is_repeated(tmp_path: Path) -> None:
    runs: list[tuple[str, int]] = []
    succeed, fail = machine(ran=runs), machine(lambda *_: "broken")

    def run(one: Configuration, round_: int, observed: bool, most_s: float) -> ConfigurationRun:
        if len(runs) == 5:
            runs.append((one.label, round_))
            return fail(one, round_, observed, most_s)
        if len(runs) == 6:
            raise KeyboardInterrupt
        return succeed(one, round_, observed, most_s)

    assert conducted(tmp_path, plan(), run).stopped == INTERRUPTED
    resumed = conducted(tmp_path, plan(), machine())
    assert not resumed.excluded
    assert all(sorted(resumed.valid_runs(f"n={n}")) == [1, 2, 3, 4, 5, 6] for n in (1, 2, 3))


def test_a_resumed_one_has_its_budget_once_more(tmp_path: Path) -> None:
    first = conducted(tmp_path, plan(budget_s=20.0), machine())
    second = conducted(tmp_path, plan(budget_s=20.0), machine())
    assert first.stopped == BUDGET == second.stopped and second.spent_s < 21
    assert len(second.attempts) >= 2 * len(first.attempts) - 3
    assert conducted(tmp_path, plan(budget_s=20.0), machine()).stopped == ""


def test_a_budget_that_ends_before_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match="the budget ended before a run that counts"):
        conducted(tmp_path, plan(budget_s=1.0), machine())


def test_a_run_that_takes_longer_than_the_budget_is_ended_and_no_failure(tmp_path: Path) -> None:
    run_usually, allowed_s = machine(), list[float]()

    def hangs(one: Configuration, round_: int, observed: bool, most_s: float) -> ConfigurationRun:
        allowed_s.append(most_s)
        if round_ == 2:
            return ConfigurationRun(configuration=one.label, round=round_, reason=BUDGET)
        return run_usually(one, round_, observed, most_s)

    measurement = conducted(tmp_path, plan(budget_s=100.0), hangs)
    assert (
        measurement.stopped == BUDGET
        and not measurement.failures
        and not any(a.round == 2 for a in measurement.attempts)
    )
    assert allowed_s == sorted(allowed_s, reverse=True) and 80 < allowed_s[-1] < 90, "what is left of the budget"
    # A run that is expected to end in time may take twice as long.
    limits_s: list[float] = []

    def watched(one: Configuration, round_: int, observed: bool, most_s: float) -> ConfigurationRun:
        limits_s.append(most_s)
        return machine()(one, round_, observed, most_s)

    other_folder = tmp_path / "other"
    other_folder.mkdir()
    assert conducted(other_folder, plan(budget_s=9.0), watched).stopped == BUDGET
    assert min(limits_s) >= 2 * 0.9


def test_what_was_seen_in_a_run_that_failed_is_not_shown(tmp_path: Path) -> None:
    labels: list[str] = []

    def fails(label: str, round_: int) -> str:
        labels.append(label)
        return "broken" if labels.count(label) == 1 else ""

    measurement = conducted(tmp_path, plan(), machine(fails))
    warm = measurement.warm("n=1")
    assert warm is not None and warm.reason == ""


def test_two_that_share_no_round_have_no_ratio_and_valid_json(tmp_path: Path) -> None:
    trial_plan = plan(rounds=2, warmup=0)
    measurement = Trials(trial_plan, configurations(trial_plan.application))
    for label, round_ in (("n=1", 1), ("n=2", 2)):
        measurement.add(ConfigurationRun(configuration=label, round=round_, value=1.0, elapsed_s=1.0))
    report = answer(measurement, trial_plan.application, from_sysfs())
    assert report["pairs"][0]["ratio"] is None and report["pairs"][0]["text"].startswith("too few rounds: 0")
    json.dumps(report, allow_nan=False)


def test_different_values_have_different_labels_of_one_line() -> None:
    values = [("1 b=2", "3"), ("1", "2 b=3"), ("x\ny", "1"), ('"1', "2")]
    labels = {Configuration({"a": a, "b": b}).label for a, b in values}
    assert len(labels) == len(values) and all(label.isprintable() for label in labels)
    assert Configuration({"size": "1", "dir": "/é"}).label == "size=1 dir=/é"
