"""Tests of experiments without programs: order of runs, end, records and resumption."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.experiment import (
    INTERRUPTED,
    JOURNAL,
    Experiment,
    ExperimentPlan,
    ExperimentRun,
    Side,
    conduct,
    order,
    records,
    to_json,
)
from meshmark.experiments.figure import FigureOfMerit, FigureValue
from meshmark.store.record import Record
from meshmark.store.session import Journal
from meshmark.store.store import Store
from meshmark.views.terminal.experiments.experiment import notes
from support.cli import meshmark

PLAN = ExperimentPlan(
    a="same",
    b="N=2",
    command=["./a.out", "--fast"],
    seed=7,
    budget_s=1000.0,
    warmup=1,
    max_pairs=100,
    timeout_s=None,
    margin=0.02,
    pattern="",
    metric="",
    better="",
    restore="",
    run="experiment-1",
    started="2026-11-25T10:00:00Z",
)

Make = Callable[[int, Side, int], ExperimentRun]


def machine(b: float = 1.0, noise: float = 0.01, fails: Callable[[int, Side], bool] = lambda *_: False) -> Make:
    """Return a function that simulates runs: A takes 1 s, and B takes `b` seconds."""
    rng = random.Random(1)

    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        if fails(pair, side):
            return ExperimentRun(
                pair=pair, side=side, position=position, value=None, elapsed_s=0.5, spent_s=0.5, reason="ended badly"
            )
        s = (b if side == "b" else 1.0) * math.exp(rng.gauss(0, noise))
        return ExperimentRun(
            pair=pair, side=side, position=position, value=s, elapsed_s=s, spent_s=s, user_s=s, system_s=0.0
        )

    return run


def conducted(folder: Path, run: Make, **changes: Any) -> Experiment:
    return conduct(replace(PLAN, **changes), folder, run, lambda _: None)


def test_the_order_is_that_of_a_fair_coin_and_the_same_for_the_same_seed() -> None:
    first = [order(7, n)[0] for n in range(1000)]
    assert first == [order(7, n)[0] for n in range(1000)] != [order(8, n)[0] for n in range(1000)]
    assert 430 < first.count("a") < 570
    changes = sum(x != y for x, y in pairwise(first))
    assert 430 < changes < 570


@pytest.mark.parametrize(
    ("b", "word", "best", "why"),
    [
        (1.1, "higher", "a", "the interval excludes equality"),
        (0.9, "lower", "b", "the interval excludes equality"),
        (1.0, "equal", None, "the interval lies within the margin"),
    ],
)
def test_it_stops_when_it_can_tell(tmp_path: Path, b: float, word: str, best: str | None, why: str) -> None:
    experiment = conducted(tmp_path, machine(b))
    assert (experiment.word(), experiment.best(), experiment.stopped) == (word, best, why)
    low, high = experiment.interval() or (0.0, 0.0)
    assert low < b < high and 8 <= len(experiment.pairs) < 60


def test_of_a_figure_of_which_more_is_better_the_higher_one_is_best(tmp_path: Path) -> None:
    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        return replace(machine(1.2)(pair, side, position), unit="1", better="higher")

    experiment = conducted(tmp_path, run, pattern="x", better="higher")
    assert (experiment.word(), experiment.best()) == ("higher", "b")


def test_the_warm_up_pair_does_not_count(tmp_path: Path) -> None:
    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        outcome = machine()(pair, side, position)
        return replace(outcome, value=100.0, elapsed_s=100.0) if pair == 0 and side == "a" else outcome

    experiment = conducted(tmp_path, run, max_pairs=5)
    assert len(experiment.pairs) == 5 and experiment.runs == {"a": 6, "b": 6}
    assert all(0.5 < r < 2 for r in experiment.ratios)


def test_the_budget_ends_it_before_a_pair_that_would_exceed_it(tmp_path: Path) -> None:
    experiment = conducted(tmp_path, machine(noise=0.2), budget_s=11.0)
    assert experiment.stopped == "the budget ended" and experiment.spent_s <= 11.5 and 3 <= len(experiment.pairs) <= 5
    assert experiment.word() == "inconclusive" and experiment.interval() is None


def test_a_setting_that_fails_at_once_is_an_error_and_can_be_remedied(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match=r"^B: ended badly$"):
        conducted(tmp_path, machine(fails=lambda pair, side: side == "b"))
    assert conducted(tmp_path, machine(1.2)).word() == "higher"


def test_a_missing_figure_in_the_first_run_is_a_usage_error(tmp_path: Path) -> None:
    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        return replace(machine()(pair, side, position), value=None, reason="--pattern: found no match in the output")

    with pytest.raises(UsageError, match="--pattern: found no match"):
        conducted(tmp_path, run)


def test_pairs_with_a_failed_run_do_not_count_and_are_reported(tmp_path: Path) -> None:
    experiment = conducted(tmp_path, machine(1.2, fails=lambda pair, side: side == "b" and pair in {3, 5}))
    answer = to_json(experiment)
    assert experiment.word() == "higher" and answer["failed"] == {"a": 0, "b": 2}
    assert answer["failed_share"] == 2 / answer["runs"] and answer["failure"] == "B: ended badly"
    assert len(experiment.pairs) == experiment.next_pair - 3  # the warm-up pair and the two failed pairs


def test_the_first_run_of_a_pair_that_failed_is_no_part_of_the_next_pair(tmp_path: Path) -> None:
    experiment = conducted(
        tmp_path,
        machine(
            noise=0.3, fails=lambda pair, side: pair > 1 and side == "b" != order(7, pair)[0] != order(7, pair + 1)[0]
        ),
    )
    assert experiment.failures() > 1 and all(p["a"].pair == p["b"].pair for p in experiment.pairs)


def test_pairs_that_keep_failing_end_it(tmp_path: Path) -> None:
    experiment = conducted(tmp_path, machine(noise=0.3, fails=lambda pair, side: pair >= 4))
    assert experiment.stopped == "3 pairs in a row failed" and len(experiment.pairs) == 3


def test_runs_whose_records_differ_from_those_of_the_first_are_failures(tmp_path: Path) -> None:
    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        return replace(machine(1.2)(pair, side, position), points=3 if pair != 4 else 2)

    answer = to_json(conducted(tmp_path, run))
    assert "found 2 values in s, the first run had 3 in s" in answer["failure"]


# ------------------------------------------------------------------ journal


def test_an_interrupted_experiment_resumes_with_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    uninterrupted = conducted(tmp_path / "whole", machine(1.05, noise=0.03))
    journaled = [run for _, run in Journal(tmp_path / "whole" / JOURNAL).entries(ExperimentRun.from_json)]
    times = {(o.pair, o.side): o for o in journaled}
    left = 9

    def run(pair: int, side: Side, position: int) -> ExperimentRun:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return times[pair, side]

    interrupted = conducted(tmp_path, run)
    assert interrupted.stopped == INTERRUPTED and len(interrupted.pairs) == 3
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"type": "run", "pair": 4, "si')  # as if the process were killed while it wrote
    left = 1000
    resumed = conducted(tmp_path, run)
    assert resumed.ratios == uninterrupted.ratios and resumed.word() == uninterrupted.word() == "higher"
    # The pair that was interrupted after its first run is repeated as a whole, so its time counts twice.
    assert resumed.runs["a"] + resumed.runs["b"] == 1 + uninterrupted.runs["a"] + uninterrupted.runs["b"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"type": "run"}', "line 1 is not a run"),
        ("[]", "line 1 is not a run"),
        ("no JSON", "line 1 is not a run"),
        (json.dumps({**asdict(machine()(0, "a", 0)), "value": -1.0}), "line 1 is not a run"),
        (json.dumps({**asdict(machine()(0, "a", 0)), "side": "c"}), "belongs to another plan"),
        (json.dumps(asdict(machine()(0, order(7, 0)[1], 0))), "belongs to another plan"),
    ],
)
def test_a_journal_of_something_else_is_one_line(tmp_path: Path, line: str, why: str) -> None:
    (tmp_path / JOURNAL).write_text(line + "\n")
    with pytest.raises(MeshmarkError, match=why):
        conducted(tmp_path, machine())


def test_a_plan_survives_its_file_and_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"found no experiment\.json"):
        ExperimentPlan.load(tmp_path)
    PLAN.save(tmp_path)
    assert ExperimentPlan.load(tmp_path) == PLAN
    (tmp_path / "experiment.json").write_text('{"a": "same"}')
    with pytest.raises(MeshmarkError, match="not a plan of an experiment"):
        ExperimentPlan.load(tmp_path)


# ------------------------------------------------------------------ records


def test_records_hold_all_samples_with_their_setting_and_the_interval_of_any_time(tmp_path: Path) -> None:
    experiment = conducted(tmp_path, machine(1.1))
    rows = records(experiment, "n1", "experiment …", "0.1.0")
    assert [(r.metric, r.conditions.get("setting")) for r in rows] == [
        *((metric, setting) for setting in ("same", "N=2") for metric in ("elapsed", "user", "system")),
        ("ratio", None),
    ]
    assert {len(r.samples) for r in rows} == {len(experiment.pairs)}
    ratio = rows[-1]
    assert (ratio.better, ratio.unit, ratio.bounds) == ("none", "1", experiment.interval())
    assert ratio.provenance["seed"] == 7 and ratio.provenance["verdict"] == "slower"
    assert [Record.from_json(json.loads(json.dumps(r.to_json()))) for r in rows] == rows
    store = Store(tmp_path / "store")
    store.add("experiment-1", "experiment", rows)
    store.finish("experiment-1")
    assert len(store.query(run="experiment-1", instrument="experiment")) == len(rows)


def test_equal_settings_are_two_points_and_other_machines_have_their_name(tmp_path: Path) -> None:
    local_experiment = conducted(tmp_path, machine(noise=0.001), b="same")
    assert [r.conditions.get("side") for r in records(local_experiment, "n1", "", "")] == ["A"] * 3 + ["B"] * 3 + [None]
    remote_experiment = Experiment(replace(PLAN, b="ssh:n2"))
    remote_experiment.pairs = local_experiment.pairs
    assert [r.machine for r in records(remote_experiment, "n1", "", "")] == ["n1"] * 3 + ["n2"] * 3 + ["n1"]


def test_other_work_flags_the_result_if_it_disturbed_more_than_a_quarter_of_the_runs(tmp_path: Path) -> None:
    def beside(disturbed: int) -> Make:
        run, count = machine(b=1.2), itertools.count()

        def disturb(pair: int, side: Side, position: int) -> ExperimentRun:
            outcome = run(pair, side, position)
            busy = pair > 0 and next(count) % 10 < disturbed
            outcome.others_share, outcome.stolen_share = 0.3 if busy else 0.0, 0.01
            outcome.flags = ["disturbed"] if busy else []
            return outcome

        return disturb

    for name in ("seldom", "often"):
        (tmp_path / name).mkdir()
    seldom_disturbed, often_disturbed = (
        conducted(tmp_path / name, beside(n)) for name, n in (("seldom", 1), ("often", 6))
    )
    assert (to_json(seldom_disturbed)["flags"], to_json(seldom_disturbed)["disturbance"]) == ([], "")
    answer = to_json(often_disturbed)
    assert answer["flags"] == ["disturbed"] and answer["verdict"] == "slower"
    assert re.fullmatch(
        r"other programs used \d+ % \(disturbed\) of this machine's CPU time meanwhile", answer["disturbance"]
    )
    assert any("holds only beside such work" in line for line in notes(answer)) and not any(
        "flagged:" in line for line in notes(answer)
    )
    assert {r.flags for r in records(often_disturbed, "m", "experiment", "0")} == {frozenset({"disturbed"})}


def test_without_a_pair_there_are_no_records_and_no_verdict() -> None:
    experiment = Experiment(PLAN)
    assert records(experiment, "n1", "", "") == []
    answer = to_json(experiment)
    assert answer["ratio"] is None and answer["verdict"] == "inconclusive" and answer["failed_share"] == 0


def test_a_metric_is_read_from_the_lines_that_measure_prints(tmp_path: Path) -> None:
    out = tmp_path / "out"
    output = meshmark("measure", "latency", "--on", "gs1280-4", "--memory-node", "0", "--no-store", "--json").stdout
    out.write_text(output)
    value = FigureOfMerit(metric="load_latency").read(1.0, out, out)
    latencies = [json.loads(line)["value"] for line in output.splitlines()]
    assert isinstance(value, FigureValue)
    assert value.value == pytest.approx(math.prod(latencies) ** (1 / len(latencies)))
    assert (value.unit, value.better, value.points) == ("s", "lower", len(latencies))
