"""ReFrame. The log and the report are the output of version 4.10.4 for a test of two cases, of which one misses its
reference; the log of version 3 is written by hand from that version's documentation.
"""

from __future__ import annotations

import json

import pytest

from meshmark.measure.importers.programs.reframe import recognises
from support.imports import fixture, problems_of, results_of, taken_from

TEXT = fixture("reframe.txt")


REPORT = fixture("reframe-report.json")
OLD = fixture("reframe-3.txt")


def test_a_log_with_a_header() -> None:
    assert recognises(TEXT)
    copy, elapsed, failure, _ = taken_from(TEXT)
    assert copy.metric == "copy" and copy.value == pytest.approx(41000.5e6) and copy.unit == "B/s"
    assert copy.conditions == {
        "test": "tiny",
        "n": 1,
        "system": "generic",
        "partition": "default",
        "environ": "builtin",
        "ranks": 1,
    }
    assert elapsed.value == pytest.approx(0.25) and elapsed.better == "lower"
    assert elapsed.provenance["start"] == "2026-11-25T18:05:41"
    assert failure.value == pytest.approx(82001.0e6) and failure.conditions["result"] == "fail"


def test_a_log_with_commas() -> None:
    text = TEXT.replace("|", ",")
    assert recognises(text) and [r.value for r in taken_from(text)] == [r.value for r in taken_from(TEXT)]


def test_the_report_has_the_values_of_the_log() -> None:
    assert recognises(REPORT)
    records = taken_from(REPORT)
    assert [(r.metric, r.value, r.conditions) for r in records] == [
        (r.metric, r.value, r.conditions) for r in taken_from(TEXT)
    ]
    assert records[0].provenance["tool_version"] == "4.10.4"


def test_a_log_of_version_3() -> None:
    assert recognises(OLD)
    records = taken_from(OLD)
    assert [r.value for r in records] == pytest.approx([18440.8e6, 14043.1e6, 18391.2e6, 14101.7e6])
    assert records[1].metric == "triad" and records[1].conditions["partition"] == "compute"
    assert records[1].provenance["tool_version"] == "3.10.1"


HEADER = "result|job_completion_time|version|name|system|partition|environ|jobid|num_tasks|"
START = "pass|2026-11-25T18:05:41|4.7.2|stream|s1|p1|gnu|11|1|"


def log(columns: str, *rows: str) -> str:
    return "\n".join((HEADER + columns, *(START + row for row in rows))) + "\n"


def test_runs_that_were_not_measured_do_not_lose_the_others() -> None:
    text = log("triad_value|triad_unit|triad_ref", "41000.5|MB/s|1", "null|MB/s|1", "42000.5|MB/s|1", "43000.5|MB/s")
    text += START.replace("pass", "abort") + "null|MB/s|1\n" + START.replace("pass", "skip") + "null|MB/s|1\n"
    results = results_of(text)
    assert [r.value for r in results.records] == pytest.approx([41000.5e6, 42000.5e6])
    assert [str(item) for item in results.left_out] == [
        "line 3: result pass: triad: found no value",
        "line 5: found 11 cells, 12 are required",
        "line 6: result: abort; the test was not measured",
        "line 7: result: skip; the test was not measured",
    ]


@pytest.mark.parametrize(("value", "unit"), [("-1.5", "s"), ("0", "s"), ("-41000", "MB/s"), ("1e308", "GB/s")])
def test_impossible_values_are_left_out(value: str, unit: str) -> None:
    results = results_of(log("a_value|a_unit|b_value|b_unit", f"{value}|{unit}|2|s"))
    assert [(r.metric, r.value) for r in results.records] == [("b", 2.0)] and results.left_out_count == 1


def test_prefixes_of_cells_are_no_part_of_them() -> None:
    row = "2023-03-08T17:38:06|reframe 4.1.0|Sombrero %n=2 /cc391b86 @sys:part+gnu|jobid=7|num_tasks=4|flops=1.05|ref=1"
    row += "|units=Gflops/seconds|spec=sombrero@2021\n"
    for header in (
        "job_completion_time|version|info|jobid|num_tasks|flops_var=flops_value|flops_ref|flops_unit|spec\n",
        "job_completion_time|reframe version|info|jobid=jobid|num_tasks=num_tasks|flops_var=flops_value|ref=flops_ref"
        "|units=flops_unit|spec=spec\n",
        "job_completion_time|version|info|jobid|num_tasks|perf_var=perf_value|perf_ref|perf_unit|spec\n",
    ):
        assert recognises(header + row)
        (record,) = taken_from(header + row)
        assert (record.metric, record.unit) == ("flops", "flop/s") and record.value == pytest.approx(1.05e9)
        expected = {"test": "Sombrero", "n": 2, "system": "sys", "partition": "part", "environ": "gnu", "ranks": 4}
        assert record.conditions == {**expected, "spec": "sombrero@2021"}
        assert record.provenance["tool_version"] == "4.1.0"


def test_columns_that_are_not_known_are_conditions() -> None:
    text = log("a_value|a_unit|env_vars|num_tasks_per_node", '1|s|{"OMP_NUM_THREADS": "2"}|64', "2|s|{}|null")
    first, second = taken_from(text)
    assert first.conditions["env_vars"] == '{"OMP_NUM_THREADS": "2"}' and first.conditions["ranks_per_node"] == 64
    assert "env_vars" not in second.conditions and "ranks_per_node" not in second.conditions
    (flexible,) = taken_from(log("a_value|a_unit", "1|s").replace("|11|1|", "|11|0|"))
    assert "ranks" not in flexible.conditions, "as many as there were"


def test_a_column_without_a_unit_is_left_out() -> None:
    results = results_of(log("a_value|a_ref|b_value|b_unit", "1|1|2|s"))
    assert [r.metric for r in results.records] == ["b"]
    assert [str(item) for item in results.left_out] == ["line 1: a: found no column a_unit"]


@pytest.mark.parametrize("unit", ["null", "None"])
def test_a_figure_whose_unit_is_not_stated_is_left_out(unit: str) -> None:
    results = results_of(log("a_value|a_unit|b_value|b_unit|c_value|c_unit", f"1|{unit}|2|s|3|"))
    assert [(r.metric, r.unit) for r in results.records] == [("b", "s"), ("c", "1")], "an empty unit is stated"
    assert [str(item) for item in results.left_out] == ["line 2: a: found no unit, which is required"]
    report = REPORT.replace('"MB/s"', "null")
    assert report != REPORT and {r.metric for r in taken_from(report)} == {"elapsed"}
    assert all("copy: found no unit" in problem for problem in problems_of(report))


def test_columns_of_one_name_are_read_if_their_cells_are_alike() -> None:
    assert len(taken_from(log("a_value|a_unit|a_unit", "1|s|s"))) == 1
    assert "found columns of one name, a_unit" in problems_of(log("a_value|a_unit|a_unit", "1|s|ms"))[0]


def test_several_logs_in_one_file() -> None:
    text = "note\n" + log("a_value|a_unit", "1|s") + log("b_value|b_unit", "2|s")
    results = results_of(text)
    assert [r.metric for r in results.records] == ["a", "b"] and results.other_lines == 1


def test_a_log_that_is_cut_off_keeps_its_last_line_if_it_is_whole() -> None:
    assert len(taken_from(log("a_value|a_unit", "1|MB/s", "2|MB/s").rstrip("\n"))) == 2
    assert problems_of(log("a_value|a_unit", "1|MB/s", "2|MB/s")[:-3]) == [
        "line 3: a: found no end of the line; it is cut off"
    ]


def test_a_log_of_version_3_with_other_cells() -> None:
    row = "2022-10-18T21:41:25|reframe 3.10.1|stream on tresa:compute using gnu|jobid=1|num_tasks=4|copy=18440.8"
    results = results_of(f"{row}|ref=1|lower=-0.2|upper=0.2|units=MB/s\n{row.replace('18440.8', 'None')}|ref=1|MB/s\n")
    (record,) = results.records
    assert record.value == pytest.approx(18440.8e6) and record.conditions["ranks"] == 4
    assert [str(item) for item in results.left_out] == ["line 2: copy: found no value"]


def test_cases_of_a_report_that_were_aborted_do_not_lose_the_others() -> None:
    report = json.loads(REPORT)
    cases = report["runs"][0]["testcases"]
    cases.append({**cases[0], "result": "abort", "perfvalues": {}})
    cases.append({**cases[0], "result": "fail", "perfvalues": {"s:p:copy": [None, 1, None, None, "MB/s", "fail"]}})
    results = results_of(json.dumps(report))
    assert len(results.records) == len(taken_from(REPORT))
    assert [str(item) for item in results.left_out] == [
        "runs 1: testcases 3: result: abort; the test was not measured",
        "runs 1: testcases 4: result fail: copy: found no value",
    ]


def test_a_report_of_version_3() -> None:
    variable = {"name": "copy", "reference": 1, "thres_lower": None, "thres_upper": None, "unit": "MB/s", "value": 5}
    case = {"name": "t", "system": "s", "environment": "gnu", "num_tasks": 2, "result": "failure"}
    report = {"session_info": {"data_version": "2.0", "version": "3.12.0", "cmdline": "reframe -r"}}
    (record,) = taken_from(json.dumps({**report, "runs": [{"testcases": [{**case, "perfvars": [variable]}]}]}))
    expected = {"test": "t", "system": "s", "environ": "gnu", "ranks": 2, "result": "fail"}
    assert record.conditions == expected and record.value == 5e6


def test_a_damaged_line_of_version_3_is_left_out() -> None:
    results = results_of(OLD.replace("ref=17064", "17064"))
    assert len(results.records) == 2 and "cells with a test, jobid=, a value and ref=" in results.left_out[0].reason
