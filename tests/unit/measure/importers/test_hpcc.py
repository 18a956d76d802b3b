"""HPC Challenge.

`hpcc-one.txt` is the head and the summary of a real run of version 1.5.0f with one process (n = 200) on a busy virtual
machine; `hpcc-four.txt` is the same run with message results that are written by hand.
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

ONE = fixture("hpcc-one.txt")
FOUR = fixture("hpcc-four.txt")


def test_the_results_of_one_process_are_read_and_its_messages_were_not_run() -> None:
    records = records_of(ONE)
    assert not [r for r in records if r.instrument == "pingpong" or r.metric.startswith("ring")]
    (linpack,) = [r for r in records if r.instrument == "linpack"]
    assert linpack.value == pytest.approx(7.21504e7) and linpack.conditions["n"] == 200
    assert linpack.conditions["block"] == 80 and linpack.provenance["tool_version"] == "1.5.0f"
    dgemm = {r.conditions["running"]: r.value for r in records if r.instrument == "dgemm"}
    assert dgemm == pytest.approx({"all": 15.2345e9, "one": 45.2677e9})
    (gups,) = [r for r in records if r.instrument == "gups" and r.conditions["running"] == "one"]
    assert gups.value == pytest.approx(0.628371e9) and gups.conditions["table_bytes"] == 8 * 32768
    (add,) = [r for r in records if r.conditions.get("kernel") == "add" and r.conditions["running"] == "all"]
    assert add.value == pytest.approx(74.8169e9) and add.conditions["footprint_bytes"] == 3 * 8 * 13333
    assert {r.metric for r in records if r.instrument == "hpcc"} == {
        "transpose_rate",
        "distributed_update_rate",
        "fft_rate",
        "distributed_fft_rate",
    }


def test_messages_of_several_processes_are_read() -> None:
    records = records_of(FOUR)
    latencies = {r.conditions["statistic"]: r.value for r in records if r.metric == "message_latency"}
    assert latencies == pytest.approx({"minimum": 0.238419e-6, "mean": 0.441201e-6, "maximum": 0.612736e-6})
    rings = {r.conditions["order"]: r.value for r in records if r.metric == "ring_bandwidth"}
    assert rings == pytest.approx({"natural": 3.31257e9, "random": 3.10982e9})
    assert all(r.conditions["ranks"] == 4 for r in records)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("HPL_N=200", "HPL_N=2x0", "HPL_N: found '2x0', a number is required"),
        ("DGEMM_N=114", "DGEMM_N=1.5", "DGEMM_N: found 1.5, a count is required"),
        ("End of Summary section.", "End", "the run is not complete"),
        ("Success=1", "Success=0", "only results that validate are imported"),
    ],
)
def test_a_damaged_run_is_left_out_of_several(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError):
        results_of(ONE.replace(old, new))
    results = results_of(FOUR + ONE.replace(old, new))  # HPCC appends to its output file
    assert len(results.records) == len(records_of(FOUR))
    assert message in " ".join(map(str, results.left_out))


def test_a_damaged_line_is_left_out() -> None:
    missing = results_of(ONE.replace("StarFFT_Gflops", "StarFT_Gflops"))
    assert len(missing.records) == len(records_of(ONE)) - 1 and "no 'StarFFT_Gflops='" in str(missing.left_out[0])
    damaged = results_of(ONE.replace("FFTEnp=8", "FFTEnp"))
    assert len(damaged.records) == len(records_of(ONE)) and "found 'FFTEnp'" in str(damaged.left_out[0])
