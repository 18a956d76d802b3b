"""BabelStream.

`babelstream.txt` and `babelstream-csv.csv` are real runs of a commit after version 5.0 (OpenMP, one thread, three
repetitions, on a busy virtual machine); `babelstream-4.txt` is written by hand in the layout of version 4.0.
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("babelstream.txt")
CSV = fixture("babelstream-csv.csv")
OLD = fixture("babelstream-4.txt")


def test_the_text_of_version_5_is_read() -> None:
    rates = {r.conditions["kernel"]: r for r in records_of(TEXT) if r.metric == "bandwidth_net"}
    assert {k: r.value for k, r in rates.items()} == pytest.approx(
        {"copy": 26980.260e6, "scale": 141.615e6, "add": 22991.810e6, "triad": 24771.511e6, "dot": 18663.851e6}
    )
    add = rates["add"]
    assert add.conditions["footprint_bytes"] == 3 * 8 * 1048576 and add.conditions["statistic"] == "best"
    assert add.conditions["implementation"] == "OpenMP" and add.provenance["tool_version"] == "5.0"


def test_the_csv_has_the_same_and_more_digits() -> None:
    records = records_of(CSV)
    triad = {(r.metric, r.conditions["statistic"]): r.value for r in records if r.conditions["kernel"] == "triad"}
    assert triad == pytest.approx(
        {("bandwidth_net", "best"): 386.349e6, ("kernel_time", "best"): 0.0651376, ("kernel_time", "mean"): 0.10509}
    )
    assert all(r.conditions["repetitions"] == 3 for r in records)


def test_version_4_states_the_size_of_an_array_only() -> None:
    (dot,) = [r for r in records_of(OLD) if r.conditions["kernel"] == "dot" and r.metric == "bandwidth_net"]
    assert dot.value == pytest.approx(231200.518e6) and dot.conditions["footprint_bytes"] == 2 * 268_400_000
    assert dot.provenance["tool_version"] == "4.0"


def test_binary_prefixes_are_binary() -> None:
    (copy,) = [r for r in records_of(TEXT.replace("MB/s", "MiB/s")) if r.conditions["kernel"] == "copy"][:1]
    assert copy.value == pytest.approx(26980.260 * 2**20)


def test_results_that_do_not_validate_and_unknown_columns_are_refused() -> None:
    with pytest.raises(FormatError, match="validat"):
        results_of("Validation failed on a[]. Average error 0.1\n" + CSV)
    with pytest.raises(FormatError, match="valid ones"):
        results_of(TEXT + "Validation failed on a[]. Average error 0.1\n")
    with pytest.raises(FormatError, match="found the columns"):
        results_of(TEXT.replace("MB/s", "laps"))


def test_a_run_that_was_cut_and_runs_that_were_appended_are_read() -> None:
    cut = results_of(TEXT[: TEXT.index("Dot")])
    assert {r.conditions["kernel"] for r in cut.records} == {"copy", "scale", "add", "triad"}
    assert len(records_of(TEXT + "again\n" + TEXT.replace("1048576", "2097152"))) == 2 * len(records_of(TEXT))
    assert len(records_of(CSV + CSV)) == 2 * len(records_of(CSV))


def test_a_run_of_triads_only_has_their_mean_rate() -> None:
    record = records_of(
        "BabelStream\nVersion: 4.0\nImplementation: OpenMP\nRunning triad 100 times\nNumber of elements: 33554432\n"
        "Precision: double\nArray size: 262144.0 KB (=262.1 MB)\nTotal size: 786432.0 KB (=786.4 MB)\n"
        "--------------------------------\nRuntime (seconds): 0.80112\nBandwidth (GB/s):  100.52\n"
    )[0]
    assert record.value == pytest.approx(100.52e9) and record.conditions["kernel"] == "triad"
    assert record.conditions["statistic"] == "mean" and record.conditions["repetitions"] == 100
    assert record.conditions["footprint_bytes"] == 3 * 8 * 33554432
