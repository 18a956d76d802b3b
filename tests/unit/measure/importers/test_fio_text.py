"""The text output of fio. The examples are written by hand in the layout of fio 2.2 and 3.36."""

from __future__ import annotations

import pytest

from support.imports import fixture, formats_of, reasons_of, records_of, taken_from

OPTIONS = (
    "seq: (g=0): rw=read, bs=(R) 128KiB-128KiB, (W) 128KiB-128KiB, (T) 128KiB-128KiB, ioengine=psync, iodepth=16\n"
)


def job(rate: str = "1000MiB/s", *, processes: int = 1, pid: int = 42, error: int = 0, operations: str = "8000") -> str:
    """Return the report of a job with a mean latency of 145.05 us."""
    return (
        f"seq: (groupid=0, jobs={processes}): err= {error}: pid={pid}: Wed May 12 11:01:45 2021\n"
        f"  read: IOPS={operations}, BW={rate} (1049MB/s)(97.7GiB/100000msec)\n"
        "     lat (usec): min=17, max=12159, avg=145.05, stdev=161.23\n"
        "  IO depths    : 1=100.0%, 2=0.0%, 4=0.0%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%\n"
    )


def test_rates_latencies_and_percentiles_are_those_of_the_json() -> None:
    records = records_of(fixture("fio_text.txt"))
    values = {(r.metric, r.conditions["direction"], r.conditions.get("percentile")): r.value for r in records}
    assert values["bandwidth_net", "randread", None] == pytest.approx(59.7 * 2**20)
    assert values["operation_rate", "randwrite", None] == pytest.approx(15200)
    assert values["operation_latency", "randread", None] == pytest.approx(29524.96e-6)
    assert values["operation_latency", "randwrite", None] == pytest.approx(37.47e-3)
    assert values["completion_latency", "randread", 99.99] == pytest.approx(3.674211)
    assert len(values) == len(records) == 10
    expected = {
        "job": "mixed",
        "jobs": 4,
        "queue_depth": 256,
        "engine": "io_uring",
        "block_bytes": 4096,
        "mixed": "randrw",
    }
    assert all(expected.items() <= r.conditions.items() for r in records)
    assert {r.provenance["tool"] for r in records} == {"fio"}
    assert {(r.provenance["tool_version"], r.provenance["start"]) for r in records} == {("3.36", "2023-11-16T08:35:05")}


def test_a_synchronous_engine_has_one_request_at_a_time() -> None:
    record = records_of(OPTIONS + "fio-3.18\n" + job())[0]
    assert record.conditions["queue_depth"] == 1 and record.conditions["block_bytes"] == 128 << 10


def test_processes_of_one_job_are_added_and_runs_are_not() -> None:
    run = OPTIONS + "...\nfio-3.18\nStarting 2 processes\n" + job(pid=1) + job("500MiB/s", pid=2)
    rates = [r for r in records_of(run + run) if r.metric == "bandwidth_net"]
    assert [(r.value, r.conditions["jobs"]) for r in rates] == [(pytest.approx(1500 * 2**20), 2)] * 2
    latency = next(r for r in records_of(run) if r.metric == "operation_latency")
    assert list(latency.samples) == pytest.approx([145.05e-6] * 2)


def test_the_last_of_several_reports_of_a_process_is_read() -> None:
    rates = [r.value for r in records_of(OPTIONS + job("10MiB/s") + job("20MiB/s")) if r.metric == "bandwidth_net"]
    assert rates == [20 * 2**20]


def test_an_excerpt_without_options_states_its_processes_only() -> None:
    record = records_of(job(processes=10))[0]
    assert record.conditions["jobs"] == 10 and record.conditions["options"] == "not stated"
    assert "queue_depth" not in record.conditions and "engine" not in record.conditions


def test_rates_of_fio_2_are_read() -> None:
    records = records_of(
        "w: (g=0): rw=write, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=8\nfio-2.2.10\n"
        "w: (groupid=0, jobs=1): err= 0: pid=4242: Sun Dec 13 09:46:40 2015\n"
        "  write: io=409600KB, bw=4000.0KB/s, iops=1000, runtime=102400msec\n"
        "  IO depths    : 1=0.1%, 2=0.1%, 4=0.1%, 8=99.9%, 16=0.0%, 32=0.0%, >=64=0.0%\n"
    )
    assert [r.value for r in records] == [4000 * 1024, 1000]
    assert records[0].conditions["block_bytes"] == 4096 and records[0].conditions["queue_depth"] == 8


def test_a_failed_job_and_a_damaged_rate_are_left_out() -> None:
    other = job().replace("seq:", "other:")
    assert reasons_of(job(error=28) + other) == ["line 1 'seq': error: found 28, 0 is required; the job failed"]
    damaged = job(operations="nan") + other
    assert {r.conditions["job"] for r in taken_from(damaged)} == {"other"}
    assert reasons_of(damaged)[0].startswith("line 2: found 'read: IOPS=nan")


def test_a_report_that_is_cut_off_is_taken_as_far_as_it_goes() -> None:
    text = OPTIONS + job().partition("  IO depths")[0]
    assert len(taken_from(text)) == 3
    assert reasons_of(text) == ["line 2: the report of the job ends before 'IO depths'; more of it is missing"]


def test_json_of_the_same_run_is_read_instead() -> None:
    assert formats_of(fixture("fio_text.txt") + fixture("fio.json")) == ["fio"]
