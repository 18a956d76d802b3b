"""SPEC. The fixtures are written by hand from the published layout of SPEC CPU 2017's result files, with rates of an
estimate that a parser's documentation quotes and others made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.spec import recognises, recognises_raw
from support.imports import problems_of, results_of, taken_from

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "spec.csv").read_text(encoding="utf-8")


RAW = (FIXTURES / "spec_raw.txt").read_text(encoding="utf-8")


def test_all_runs_of_a_program_are_samples() -> None:
    assert recognises(TEXT) and not recognises_raw(TEXT)
    records = taken_from(TEXT)
    of = {(r.conditions.get("benchmark"), r.conditions["tune"], r.metric): r for r in records}
    waves = of["503.bwaves_r", "base", "elapsed"]
    assert waves.samples == pytest.approx([775.120334, 774.54528]) and waves.unit == "s"
    assert waves.conditions["copies"] == 8 and waves.conditions["estimated"] is True
    assert waves.conditions["suite"] == "CPU2017 Floating Point Rate"
    assert of["519.lbm_r", "peak", "ratio"].samples == pytest.approx([13.998704, 13.980676])
    assert ("503.bwaves_r", "peak", "elapsed") not in of
    score = of[None, "base", "score"]
    assert score.value == pytest.approx(30.082246) and score.conditions["suite"] == "SPECrate2017_fp"


def test_threads_and_ranks() -> None:
    for kind, name in (("Threads", "threads"), ("Ranks", "ranks")):
        assert taken_from(TEXT.replace("# Copies", f"# {kind}"))[0].conditions[name] == 8


def test_a_run_that_failed_is_left_out() -> None:
    failed = TEXT.replace("503.bwaves_r,8,775.120334,103.49871,0,S", "503.bwaves_r,8,,,0,RE")
    assert taken_from(failed)[0].samples == pytest.approx([774.54528])
    assert problems_of(failed) == ["line 8: 503.bwaves_r: base: status RE; the run is not valid"]


def test_a_score_of_estimates_is_an_estimate() -> None:
    scores = [r for r in taken_from(TEXT) if r.metric == "score"]
    assert [(r.conditions["estimated"], r.conditions["valid"]) for r in scores] == [(True, False)]
    measured = TEXT.replace("Est. ", "").replace("valid,0", "valid,1")
    (score,) = [r for r in taken_from(measured) if r.metric == "score"]
    assert not {"estimated", "valid"} & score.conditions.keys()


@pytest.mark.parametrize("time", ["-775.1", "0", "nan", "1e999"])
def test_impossible_times_are_left_out(time: str) -> None:
    results = results_of(TEXT.replace("775.120334", time))
    assert results.records[0].samples == pytest.approx([774.54528])
    assert [item.where for item in results.left_out] == ["line 8"]


def test_a_file_that_is_cut_off_keeps_its_runs() -> None:
    text = TEXT[: TEXT.index('"Selected Results Table"')]
    assert taken_from(text)[0].samples == pytest.approx([775.120334, 774.54528])
    assert "the file is cut off" in problems_of(text)[0]


def test_suites_that_state_times_of_reference_have_no_count() -> None:
    records = taken_from(TEXT.replace('"Base # Copies"', '"Base Ref. Time"'))
    assert records[0].samples == pytest.approx([775.120334, 774.54528]) and "copies" not in records[0].conditions


def test_workloads_that_are_not_of_a_score_are_told_apart() -> None:
    assert taken_from(RAW.replace("size: refrate", "size: test"))[0].conditions["workload"] == "test"
    assert "workload" not in taken_from(RAW)[0].conditions


def test_a_raw_file() -> None:
    assert recognises_raw(RAW) and not recognises(RAW)
    of = {(r.conditions.get("benchmark"), r.metric): r for r in taken_from(RAW)}
    assert of["519.lbm_r", "elapsed"].samples == pytest.approx([612.88711, 613.604624])
    assert of["505.mcf_r", "ratio"].samples == pytest.approx([15.726, 15.770707])
    assert of["505.mcf_r", "ratio"].conditions["copies"] == 8 and of[None, "score"].value == pytest.approx(14.7)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("reported_time: 819.773002", "reported_time: 8l9", "505_mcf_r: base: 001: base: reported_time: found '8l9'"),
        ("base.001.valid: S", "base.001.state: S", "base: 001: found no valid"),
        ("505_mcf_r.base.001", "505_mcf_r.base.000", "found 1 of 2 runs of a program"),
        ("reported_time: 819.773002", "reported_time 819.773002", "spec.….results.….KEY: VALUE is required"),
    ],
)
def test_what_is_damaged_in_a_raw_file_is_left_out(old: str, new: str, says: str) -> None:
    assert old in RAW
    assert any(says in reason for reason in problems_of(RAW.replace(old, new))), problems_of(RAW.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "774.54528,103.575608,1,S,,,,,NR,\n",
            "7s,103.575608,1,S,,,,,NR,\n",
            "line 9: base: reported_time: found '7s', a number is required",
        ),
        (
            '507.cactuBSSN_r,8,529.532167,19.12632,1,S,,,,,NR,"S',
            '507.x_r,8,529.532167,19.12632,1,S,,,,,NR,"S',
            "in one of the tables, both are required",
        ),
        ('"Selected Results Table"', '"Results Table"', '"Selected Results Table": found none'),
        (
            "SPECrate2017_fp_base,30.082246",
            "SPECrate2017_fp_base,31.0",
            "score: found 31.0 and 30.082246, one is required",
        ),
        ("519.lbm_r,8,612.88711,", "519.lbm_r,8,", "line 12: found 11 cells, 12 are required"),
    ],
)
def test_what_is_damaged_is_left_out(old: str, new: str, says: str) -> None:
    assert old in TEXT
    assert any(says in reason for reason in problems_of(TEXT.replace(old, new))), problems_of(TEXT.replace(old, new))
