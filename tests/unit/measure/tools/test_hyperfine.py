"""hyperfine. The fixtures are output of version 1.15.0 on this project's first machine."""

from __future__ import annotations

import json

import pytest

from meshmark.measure.tools.hyperfine import recognises
from support.imports import fixture, results_of, taken_from

TEXT = fixture("hyperfine.json")


def test_all_runs_are_samples() -> None:
    assert recognises(TEXT)
    records = taken_from(TEXT)
    elapsed = [r for r in records if r.metric == "elapsed"]
    assert [len(r.samples) for r in elapsed] == [8, 8]
    assert elapsed[0].value == pytest.approx(0.035235611) and elapsed[0].samples[1] == pytest.approx(0.011453001)
    assert elapsed[1].best == pytest.approx(0.043951272) and elapsed[1].conditions == {"benchmark": "sleep 0.02"}
    assert elapsed[1].provenance["command"] == "sleep 0.02" and elapsed[1].unit == "s"
    user = next(r for r in records if r.metric == "user_time")
    assert user.value == pytest.approx(0.00134375) and user.conditions["statistic"] == "mean"


def test_parameters_are_conditions() -> None:
    text = fixture("hyperfine-parameters.json")
    assert [r.conditions["n"] for r in taken_from(text) if r.metric == "elapsed"] == [1, 2]


def test_a_parameter_may_have_the_name_of_an_argument() -> None:
    text = fixture("hyperfine-parameters.json").replace('"n":', '"unit":')
    assert taken_from(text)[0].conditions["unit_"] == 1


def test_runs_that_failed_are_counted() -> None:
    failed = TEXT.replace("        0,", "        1,", 2)
    assert taken_from(failed)[0].conditions["failures"] == 2


def test_one_command_that_is_damaged_does_not_lose_the_others() -> None:
    results = results_of(TEXT.replace('"command": "sleep 0.02"', '"command": 7'))
    assert {r.conditions["benchmark"] for r in results.records} == {"sleep 0.01"}
    assert [item.where for item in results.left_out] == ["results 2"]


def test_versions_before_1_6_have_no_median() -> None:
    result = {"command": "c", "mean": 0.2, "stddev": 0.1, "user": 0.1, "system": 0.1, "min": 0.1, "max": 0.3}
    (elapsed, *_) = taken_from(json.dumps({"results": [{**result, "times": [0.1, 0.2, 0.3]}]}))
    assert elapsed.samples == (0.1, 0.2, 0.3)
    (elapsed, *_) = taken_from(json.dumps({"results": [result]}))
    assert elapsed.value == 0.2 and elapsed.conditions["statistic"] == "mean"


def test_the_parameter_of_versions_1_6_to_1_10_is_a_condition() -> None:
    result = {"mean": 0.2, "stddev": None, "median": 0.2, "user": 0.1, "system": 0.1, "min": 0.2, "max": 0.2}
    results = [{**result, "command": "c", "times": [0.2], "parameter": value} for value in (1, "2")]
    records = taken_from(json.dumps({"results": results}))
    assert [r.conditions["parameter"] for r in records if r.metric == "elapsed"] == [1, 2]


def test_csv_has_summaries() -> None:
    text = "command,mean,stddev,median,user,system,min,max,parameter_n\nsleep 1,1.2,0.1,1.1,0.01,0.02,1.0,1.4,4\n"
    records = taken_from(f"saved\n{text}sleep 2,-1,0,1,0,0,1,1,5\n")
    elapsed = {r.conditions["statistic"]: r.value for r in records if r.metric == "elapsed"}
    assert elapsed == {"mean": 1.2, "median": 1.1, "minimum": 1.0, "maximum": 1.4}
    assert {(r.conditions["benchmark"], r.conditions["n"]) for r in records} == {("sleep 1", 4)}


def test_keys_may_be_in_any_order_and_runs_may_be_appended() -> None:
    text = json.dumps(json.loads(TEXT), sort_keys=True, indent=1)
    reversed_keys = json.dumps({"results": [dict(reversed(r.items())) for r in json.loads(TEXT)["results"]]})
    assert len(taken_from(f"{text}\n{reversed_keys}\n")) == 2 * len(taken_from(TEXT))
