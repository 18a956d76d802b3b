"""SPEC. The fixtures are written by hand from the published layout of SPEC CPU 2017's result files, with rates of an
estimate that the documentation of a parser quotes, and with invented rates.
"""

from __future__ import annotations

import pytest

from support.imports import fixture, formats_of, problems_of, results_of, taken_from

TEXT = fixture("spec.csv")


RAW = fixture("spec_raw.txt")


def test_all_runs_of_a_program_are_samples() -> None:
    assert formats_of(TEXT) == ["spec"]
    records = taken_from(TEXT)
    results = {(r.conditions.get("benchmark"), r.conditions["tune"], r.metric): r for r in records}
    waves = results["503.bwaves_r", "base", "elapsed"]
    assert waves.samples == pytest.approx([775.120334, 774.54528]) and waves.unit == "s"
    assert waves.conditions["copies"] == 8 and waves.conditions["estimated"] is True
    assert waves.conditions["suite"] == "CPU2017 Floating Point Rate"
    assert results["519.lbm_r", "peak", "ratio"].samples == pytest.approx([13.998704, 13.980676])
    assert ("503.bwaves_r", "peak", "elapsed") not in results
    score = results[None, "base", "score"]
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
    assert formats_of(RAW) == ["spec_raw"]
    results = {(r.conditions.get("benchmark"), r.metric): r for r in taken_from(RAW)}
    assert results["519.lbm_r", "elapsed"].samples == pytest.approx([612.88711, 613.604624])
    assert results["505.mcf_r", "ratio"].samples == pytest.approx([15.726, 15.770707])
    assert results["505.mcf_r", "ratio"].conditions["copies"] == 8 and results[None, "score"].value == pytest.approx(
        14.7
    )
