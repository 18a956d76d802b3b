"""fio. The fixtures are outputs of fio 3.33 for one job file, without and with --group_reporting."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.store.record import Record
from support.imports import fixture, formats_of, results_of

TEXT = fixture("fio.json")


def records_of(text: str, **conditions: object) -> list[Record]:
    return [r for r in results_of(text).records if conditions.items() <= r.conditions.items()]


def report(options: dict[str, str], **parts: Any) -> dict[str, Any]:
    """Return a report of one job with one second of reads; `parts` replaces fields of the job."""
    latency = {"min": 1000, "max": 9000, "mean": 4000.0, "stddev": 1.0, "N": 100}
    read: dict[str, Any] = {
        "io_bytes": 1,
        "bw_bytes": 4_096_000,
        "bw": 4000,
        "iops": 1000.0,
        "runtime": 1000,
        "total_ios": 1000,
    }
    read |= {"lat_ns": latency, "clat_ns": {**latency, "percentile": {"99.000000": 9000}}, "slat_ns": latency}
    job = {"jobname": "j", "groupid": 0, "error": 0, "elapsed": 2, "job options": options, "read": read}
    return {"fio version": "fio-3.28", "timestamp": 1691554888, "jobs": [{**job, "job_runtime": 1000, **parts}]}


def test_bandwidth_and_latency_are_those_stored() -> None:
    assert formats_of(TEXT) == ["fio"]
    records = [r for r in records_of(TEXT, job="read128") if "percentile" not in r.conditions]
    assert {r.metric: r.value for r in records} == pytest.approx(
        {"bandwidth_net": 1222946235.0, "operation_latency": 103230.420901e-9, "operation_rate": 9330.339321}
    )
    first = records[0]
    assert first.instrument == "io" and first.provenance["tool_version"] == "3.33"
    assert first.provenance["start"] == "2026-11-25T18:02:36+00:00"
    expected = {"direction": "read", "block_bytes": 131072, "queue_depth": 1, "jobs": 1, "size_bytes": 8 << 20}
    assert expected.items() <= first.conditions.items()


def test_percentiles_are_those_stored() -> None:
    latencies = [r for r in records_of(TEXT, job="read128") if r.metric == "completion_latency"]
    percentiles = {r.conditions["percentile"]: r.value for r in latencies}
    assert percentiles[50.0] == pytest.approx(10560e-9) and percentiles[99.9] == pytest.approx(5275648e-9)


def test_processes_of_a_job_are_summed_and_their_latencies_are_samples() -> None:
    processes = [j["write"] for j in json.loads(TEXT)["jobs"] if j["jobname"] == "rand4"]
    records = records_of(TEXT, job="rand4")
    rate = next(r for r in records if r.metric == "bandwidth_net")
    assert rate.value == sum(p["bw_bytes"] for p in processes) and rate.conditions["jobs"] == 2
    assert rate.conditions["direction"] == "randwrite" and rate.conditions["queue_depth"] == 4
    latency = next(r for r in records if r.metric == "operation_latency")
    assert latency.samples == pytest.approx([17989.058807e-9, 54253.682191e-9])
    percentile = next(r for r in records if r.conditions.get("percentile") == 99.0)
    assert percentile.samples == pytest.approx([144384e-9, 20608e-9])


def test_a_group_is_a_record() -> None:
    records = records_of(fixture("fio-grouped.json"), job="rand4")
    rate = next(r for r in records if r.metric == "bandwidth_net")
    assert rate.conditions["jobs"] == 2 and rate.value > 0


@pytest.mark.parametrize(
    ("options", "levels", "depth"),
    [
        ({"ioengine": "psync", "iodepth": "32"}, {}, 1),
        ({"ioengine": "mmap", "iodepth": "8"}, {}, 1),
        ({"iodepth": "32"}, {"1": 100.0, "2": 0.0, ">=64": 0.0}, 1),  # without an engine, psync
        ({"iodepth": "32"}, {"1": 0.1, "32": 99.9}, 32),  # the default of Windows
        ({"ioengine": "libaio", "iodepth": "32"}, {}, 32),
        ({"ioengine": "libaio", "iodepth": "100"}, {"1": 0.1, ">=64": 99.9}, 100),
        ({"ioengine": "libaio", "iodepth": "32"}, {"1": 100.0, "2": 0.0, "32": 0.0}, 1),
        ({"ioengine": "io_uring", "iodepth": "32"}, {"1": 0.1, "4": 99.9, "32": 0.0}, None),
    ],
)
def test_the_queue_depth_is_the_one_that_was_used(
    options: dict[str, str], levels: dict[str, float], depth: int | None
) -> None:
    records = records_of(json.dumps(report({"rw": "read", **options}, iodepth_level=levels)))
    assert {r.conditions.get("queue_depth") for r in records} == {depth}
    assert {r.conditions.get("requested_queue_depth") for r in records} == {None if depth else 32}


def test_a_group_of_several_jobs_has_the_processes_of_all_of_them() -> None:
    options = {"rw": "read", "numjobs": "2"}
    assert {r.conditions["jobs"] for r in records_of(json.dumps(report(options, job_runtime=1998)))} == {2}
    assert {r.conditions["jobs"] for r in records_of(json.dumps(report(options, job_runtime=5990)))} == {6}
    assert {r.conditions.get("jobs") for r in records_of(json.dumps(report(options, job_runtime=4500)))} == {None}


def test_latencies_that_were_not_measured_are_no_records() -> None:
    document = report({"rw": "read", "gtod_reduce": "1"})
    for name in ("lat_ns", "clat_ns", "slat_ns"):
        document["jobs"][0]["read"][name] = {"min": 0, "max": 0, "mean": 0.0, "N": 0, "percentile": {"50.000000": 0}}
    assert {r.metric for r in records_of(json.dumps(document))} == {"bandwidth_net", "operation_rate"}
    document = report({"rw": "read", "disable_lat": "1"})
    document["jobs"][0]["read"]["lat_ns"] = {"min": 0, "max": 0, "mean": 0.0, "N": 0}
    means = [r for r in records_of(json.dumps(document), statistic="mean") if r.unit == "s"]
    assert {r.metric: r.value for r in means} == {"completion_latency": pytest.approx(4e-6)}


def test_options_tell_results_apart() -> None:
    document = report({"rw": "randrw", "rwmixread": "70", "direct": "1", "bs": "4ki", "time_based": ""})
    record = records_of(json.dumps(document))[0]
    assert record.conditions["rwmixread"] == 70 and record.conditions["direct"] == 1
    assert record.conditions["time_based"] == 1
    assert record.conditions["block_bytes"] == 4000, "fio's ki is 1000 unless kb_base is 1000"
    jobs = [report({"rw": "read", "bssplit": split})["jobs"][0] for split in ("4k/50:8k/50", "4k/90:64k/10")]
    records = records_of(json.dumps({**document, "jobs": jobs}))
    assert len({(r.metric, *sorted(map(str, r.conditions.items()))) for r in records}) == len(records) == 8


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"bs": "4k-16k"}, {"bs": "4k-64k"}),
        ({"rw": "randread:8"}, {"rw": "randread"}),
        ({"size": "50%"}, {"size": "100%"}),
        ({"filename": "f", "directory": "/a"}, {"filename": "f", "directory": "/b"}),
        ({"rate_iops": "100"}, {"rate_iops": "200"}),
        ({"ioengine": "sync"}, {"ioengine": "mmap"}),
    ],
)
def test_jobs_of_other_options_have_other_conditions(first: dict[str, str], second: dict[str, str]) -> None:
    keys = [records_of(json.dumps(report({"rw": "read", **options})))[0].conditions for options in (first, second)]
    assert keys[0] != keys[1]


def test_a_repeated_file_name_adds_a_file_and_other_options_replace() -> None:
    text = json.dumps(report({"filename": "/dev/a", "bs": "4k"}))
    text = text.replace('"filename": "/dev/a"', '"filename": "/dev/a", "filename": "/dev/b", "bs": "8k"')
    conditions = records_of(text)[0].conditions
    assert conditions["target"] == "/dev/a:/dev/b" and conditions["block_bytes"] == 4096


def test_reads_and_writes_together() -> None:
    document = report({"rw": "randrw", "unified_rw_reporting": "mixed"})
    document["jobs"][0]["mixed"] = document["jobs"][0].pop("read")
    records = records_of(json.dumps(document), direction="randrw")
    assert {r.metric for r in records} >= {"bandwidth_net", "operation_latency", "operation_rate"}


def test_trims_and_syncs_are_read() -> None:
    document = report({"rw": "randtrim"})
    job = document["jobs"][0]
    job["trim"], job["sync"] = job.pop("read"), {"total_ios": 7, "lat_ns": {"mean": 2e6, "N": 7}}
    records = {(r.conditions["direction"], r.metric): r.value for r in records_of(json.dumps(document))}
    assert records["randtrim", "discard_rate"] == 4_096_000 and ("randtrim", "bandwidth_net") not in records
    assert records["sync", "sync_latency"] == pytest.approx(2e-3)


def test_fio_2_has_kibibytes_and_microseconds() -> None:
    document = report({"rw": "read"})
    read = document["jobs"][0]["read"]
    del read["bw_bytes"], read["lat_ns"], read["slat_ns"], read["clat_ns"]
    read |= {"lat": {"mean": 250.0}, "clat": {"mean": 249.0, "percentile": {"99.00": 900, "0.00": 0}}}
    records = {(r.metric, r.conditions["statistic"]): r.value for r in records_of(json.dumps(document))}
    assert records["bandwidth_net", "mean"] == 4000 * 1024
    assert records["operation_latency", "mean"] == pytest.approx(250e-6)
    assert records["completion_latency", "percentile"] == pytest.approx(900e-6)


def test_options_that_an_old_version_does_not_state_are_not_guessed() -> None:
    document = report({})
    job = document["jobs"][0]
    del job["job options"], job["read"]["total_ios"]
    conditions = records_of(json.dumps(document))[0].conditions
    assert conditions == {"job": "j", "statistic": "mean", "options": "not stated", "direction": "read"}
    document["jobs"] = [job, job]
    assert records_of(json.dumps(document))[0].conditions["jobs"] == 2


def test_a_sum_of_clients_alone_is_read() -> None:
    document = report({})
    (job,) = document.pop("jobs")
    job["mixed"] = job.pop("read")
    del job["job options"]
    document["client_stats"] = [{**job, "jobname": "All clients", "hostname": "n1"}]
    assert {r.conditions["direction"] for r in records_of(json.dumps(document))} == {"mixed"}


def test_each_server_of_a_client_is_a_condition() -> None:
    document = report({"rw": "read"})
    (job,) = document.pop("jobs")
    jobs = [{**job, "hostname": host, "port": 8765} for host in ("n1", "n2")]
    document["client_stats"] = [*jobs, {**job, "jobname": "All clients", "job options": {}}]
    document["global options"] = [{"hostname": "n1", "direct": "1"}, {"hostname": "n2", "direct": "0"}]
    results = results_of(json.dumps(document))
    assert {(r.conditions["client"], r.conditions["direct"]) for r in results.records} == {("n1", 1), ("n2", 0)}
    assert [item.where for item in results.left_out] == ["client_stats[2]"]


def test_several_runs_and_text_around_them_are_read() -> None:
    first, second = report({"rw": "read"}), report({"rw": "write"})
    text = f"{{host n042}}\n{json.dumps(first)}\nfio: {{note}}\n{json.dumps(second, indent=1)}\n"
    assert len(records_of(text)) == 8


def test_interim_reports_are_left_out() -> None:
    first, last = report({"rw": "read"}), report({"rw": "read"}, elapsed=12)
    last["timestamp"] += 10
    results = results_of(f"{json.dumps(first)}\n{json.dumps(last)}\n")
    assert len(results.records) == 4 and [item.where for item in results.left_out] == ["line 1"]


def test_a_job_that_failed_does_not_lose_the_others() -> None:
    document = report({"rw": "read"})
    document["jobs"].append({**copy.deepcopy(document["jobs"][0]), "jobname": "bad", "error": 5})
    results = results_of(json.dumps(document))
    assert len(results.records) == 4
    assert [str(item) for item in results.left_out] == ["jobs[1] 'bad': error: found 5, 0 is required; the job failed"]


def test_a_number_that_is_none_loses_itself_only() -> None:
    text = json.dumps(report({"rw": "read"})).replace('"lat_ns": {"min": 1000, "max": 9000, "mean": 4000.0', "%s", 1)
    results = results_of(text % '"lat_ns": {"min": 1000, "max": 9000, "mean": -nan')
    assert {r.metric for r in results.records} == {"bandwidth_net", "operation_rate", "completion_latency"}
    assert "mean" in results.left_out[0].reason


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"bw_bytes" : 1222946235', '"bw_bytes" : "fast"', "jobs[0]: read: bw_bytes: found 'fast'"),
        ('"bw_bytes" : 1222946235', '"bw_bytes" : -5', "jobs[0]: read: bw_bytes: found -5, a finite number"),
        ('"mean" : 103230.420901', '"mean" : 1e999', "mean: found inf, a finite number"),
        ('"error" : 0', '"error" : 5', "the job failed"),
        ('"numjobs" : "2"', '"numjobs" : "3"', "found 2 of 3 processes"),
    ],
)
def test_what_is_damaged_is_left_out(old: str, new: str, says: str) -> None:
    assert old in TEXT
    results = results_of(TEXT.replace(old, new, 2 if "numjobs" in old else 1))
    assert results.records and any(says in str(item) for item in results.left_out)


def test_a_file_of_which_nothing_is_certain_is_refused() -> None:
    with pytest.raises(FormatError, match="jobs: found None"):
        results_of(TEXT.replace('"jobs" : [', '"work" : ['))
    with pytest.raises(FormatError, match="the job failed"):
        results_of(json.dumps(report({"rw": "read"}, error=5)))
