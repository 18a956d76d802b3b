"""HPL. The fixture is written by hand in the layout of version 2.3, with invented numbers."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("hpl.txt")


def test_rate_and_time_of_each_problem_are_read() -> None:
    records = records_of(TEXT)
    rates = {r.conditions["n"]: r for r in records if r.metric == "flop_rate"}
    assert {n: r.value for n, r in rates.items()} == pytest.approx({2000: 25.421e9, 4000: 30.053e9})
    assert rates[2000].instrument == "linpack" and rates[2000].provenance["tool_version"] == "2.3"
    assert rates[2000].conditions == {"n": 2000, "block": 128, "grid": "2x2", "ranks": 4, "variant": "WR11C2R4"}
    assert [r.value for r in records if r.metric == "elapsed"] == [0.21, 1.42]


def test_a_problem_whose_residual_is_missing_is_left_out() -> None:
    results = results_of(TEXT[: TEXT.index("||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=   4.02")])
    assert len(results.records) == 2 and "no residual with PASSED" in str(results.left_out[0])


def test_appended_runs_and_rates_per_gpu_are_read_and_other_units_refused() -> None:
    assert len(records_of(TEXT + "job 2\n" + TEXT)) == 8
    gpus = TEXT.replace("Gflops", "Gflops (   per GPU)").replace("e+01", "e+01 ( 1.2e+01)")
    assert [r.value for r in records_of(gpus)] == [r.value for r in records_of(TEXT)]
    with pytest.raises(FormatError, match="Gflops are required"):
        results_of(TEXT.replace("Gflops", "Tflops"))
