"""hyperfine. The fixtures are the output of version 1.15.0 on this project's first machine."""

from __future__ import annotations

import json

import pytest

from meshmark.measure.importers.programs.hyperfine import recognises
from support.imports import fixture, reasons_of, records_of, results_of, taken_from

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
    document = json.dumps({"results": [dict(reversed(r.items())) for r in json.loads(TEXT)["results"]]})
    assert len(taken_from(f"{text}\n{document}\n")) == 2 * len(taken_from(TEXT))


def test_markdown_has_mean_and_extremes_in_the_unit_of_its_header() -> None:
    records = records_of(
        "# Results\n\n| Command | Mean [ms] | Min [ms] | Max [ms] | Relative |\n|:---|---:|---:|---:|---:|\n"
        "| `ls \\| wc` | 20.0 ± 0.4 | 19.4 | 22.3 | 7.44 ± 0.78 |\n\n"
        "| Command | Mean [s] | Min [s] | Max [s] |\n|:---|---:|---:|---:|\n"
        "| `sleep 1` | 1.001 ± 0.001 | 1.000 | 1.002 |\n"
    )
    assert {(r.conditions["benchmark"], r.conditions["statistic"]): pytest.approx(r.value) for r in records} == {
        ("ls | wc", "mean"): 0.02,
        ("ls | wc", "minimum"): 0.0194,
        ("ls | wc", "maximum"): 0.0223,
        ("sleep 1", "mean"): 1.001,
        ("sleep 1", "minimum"): 1.0,
        ("sleep 1", "maximum"): 1.002,
    }


def test_the_text_has_the_times_of_each_command() -> None:
    records = records_of(
        "Benchmark #1: sleep 1\n  Time (abs ≡):         1.002 s               [User: 0.8 ms, System: 1.1 ms]\n \n"
        "Benchmark 2: ls | wc\n  Time (mean ± σ):      12.1 µs ±   0.5 µs    [User: 8.0 µs, System: 1.1 µs]\n"
        "  Range (min … max):    11.1 µs …  13.5 µs    28 runs\n \nSummary\n  'ls | wc' ran\n"
    )
    times = {
        (r.conditions["benchmark"], r.conditions.get("statistic")): r.value for r in records if r.metric == "elapsed"
    }
    assert times == pytest.approx(
        {
            ("sleep 1", None): 1.002,
            ("ls | wc", "mean"): 12.1e-6,
            ("ls | wc", "minimum"): 11.1e-6,
            ("ls | wc", "maximum"): 13.5e-6,
        }
    )
    assert [r.value for r in records if r.metric == "user_time"] == pytest.approx([0.0008, 8e-6])


def test_damaged_rows_of_text_and_markdown_are_left_out() -> None:
    head = "| Command | Mean [ms] | Min [ms] | Max [ms] | Relative |\n|:---|---:|---:|---:|---:|\n"
    text = head + "| `a` | -2.0 ± 0.4 | 1.0 | 2.0 | 1.00 |\n| `b` | 2.0 ± 0.4 | 1.0 | 2.0 | 1.00 |\n"
    assert [reason.partition(":")[0] for reason in reasons_of(text)] == ["line 3"]
    text = "Benchmark 1: a\n  Time (mean ± σ):  nan ms ± 0.5 ms  [User: 0.8 ms, System: 1.1 ms]\n"
    text += "Benchmark 2: b\n  Time (mean ± σ):  1.5 ms ± 0.5 ms  [User: 0.8 ms, System: 1.1 ms]\n"
    assert [reason.partition(":")[0] for reason in reasons_of(text)] == ["line 2"]
