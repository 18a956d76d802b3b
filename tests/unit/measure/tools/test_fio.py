"""fio. The fixtures are runs of fio 3.33 of one job file, without and with --group_reporting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.fio import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "fio.json").read_text(encoding="utf-8")


def test_bandwidth_and_latency_are_those_stored() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["fio"]
    records = [r for r in read(TEXT, "n042") if r.conditions["job"] == "read128" and "percentile" not in r.conditions]
    assert {r.metric: r.value for r in records} == pytest.approx(
        {"bandwidth_net": 1222946235.0, "operation_latency": 103230.420901e-9, "operation_rate": 9330.339321}
    )
    first = records[0]
    assert first.instrument == "io" and first.provenance["tool_version"] == "3.33"
    assert first.provenance["start"] == "2026-11-25T18:02:36+00:00"
    stated = {"direction": "read", "block_bytes": 131072, "queue_depth": 1, "jobs": 1, "size_bytes": 8 << 20}
    assert stated.items() <= first.conditions.items()


def test_percentiles_are_those_stored() -> None:
    found = {r.conditions["percentile"]: r.value for r in read(TEXT, "n042") if r.metric == "completion_latency"}
    assert found[50.0] == pytest.approx(10560e-9) and found[99.9] == pytest.approx(5275648e-9)


def test_processes_of_a_job_are_summed_and_their_latencies_are_samples() -> None:
    processes = [j["write"] for j in json.loads(TEXT)["jobs"] if j["jobname"] == "rand4"]
    records = [r for r in read(TEXT, "n042") if r.conditions["job"] == "rand4"]
    rate = next(r for r in records if r.metric == "bandwidth_net")
    assert rate.value == sum(p["bw_bytes"] for p in processes) and rate.conditions["jobs"] == 2
    assert rate.conditions["direction"] == "randwrite" and rate.conditions["queue_depth"] == 4
    latency = next(r for r in records if r.metric == "operation_latency")
    assert latency.samples == pytest.approx([17989.058807e-9, 54253.682191e-9])


def test_a_group_is_a_record() -> None:
    records = read((FIXTURES / "fio-grouped.json").read_text(encoding="utf-8"), "n042")
    rate = next(r for r in records if r.conditions["job"] == "rand4" and r.metric == "bandwidth_net")
    assert rate.conditions["jobs"] == 2 and rate.value > 0


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"bw_bytes" : 1222946235', '"bw_bytes" : "fast"', "jobs\\[0\\]: read: bw_bytes: found 'fast'"),
        ('"mean" : 103230.420901', '"mean" : 1e999', "mean: found inf, a finite number"),
        ('"error" : 0', '"error" : 5', "jobs that failed are not imported"),
        ('"numjobs" : "2"', '"numjobs" : "3"', "found 2 of 3 processes"),
        ('"jobs" : [', '"work" : [', "jobs: found None"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
