"""The OSU micro-benchmarks. The fixtures are outputs of version 7.4 for two ranks of Open MPI 4.1.4 on a busy host."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, reasons_of, records_of, results_of

TEXT = fixture("osu.txt")


def test_times_and_rates_are_those_printed() -> None:
    records = records_of(TEXT)
    latency = {r.conditions["message_bytes"]: r for r in records if r.instrument == "pingpong"}
    assert latency[1].value == pytest.approx(0.37e-6) and latency[4096].value == pytest.approx(1874.94e-6)
    assert latency[1].metric == "message_latency" and latency[1].provenance["tool_version"] == "7.4"
    assert latency[1].conditions["protocol"] == "send" and latency[1].conditions["ranks"] == 2
    rates = {r.conditions["message_bytes"]: r.value for r in records if r.metric == "bandwidth"}
    assert rates[128] == pytest.approx(424.37e6) and rates[65536] == pytest.approx(17.80e6)


def test_a_collective_has_the_mean_the_fastest_and_the_slowest_rank() -> None:
    latencies = {
        r.conditions["over_ranks"]: r.value
        for r in records_of(TEXT)
        if r.instrument == "allreduce" and r.conditions["message_bytes"] == 64
    }
    assert latencies == pytest.approx({"mean": 0.63e-6, "minimum": 0.56e-6, "maximum": 0.71e-6})


def test_other_programs_and_columns() -> None:
    records = records_of(fixture("osu-variants.txt"))
    barrier = next(r for r in records if r.instrument == "barrier")
    assert barrier.value == pytest.approx(88065.18e-6) and barrier.conditions["message_bytes"] == 0
    tail = [r for r in records if r.conditions.get("percentile") == 99 and r.conditions["message_bytes"] == 64]
    assert [r.value for r in tail] == pytest.approx([326695.69e-6])
    overlap = [r.value for r in records if r.metric == "overlap"]
    assert overlap == pytest.approx([0.6273, 0.1577, 0.0])
    assert [r.value for r in records if r.metric == "message_rate"][1] == pytest.approx(3964149.23)
    assert next(r for r in records if r.instrument == "alltoall").conditions["operation"] == "alltoall"


def test_pairs_window_and_other_header_lines_are_conditions() -> None:
    text = "".join(
        f"# OSU MPI Multiple Bandwidth / Message Rate Test v5.7\n# [ pairs: {n} ] [ window size: 64 ]\n"
        f"# Size                  MB/s        Messages/s\n1                       {n}.20        {n}200000.00\n\n"
        for n in (1, 15)
    )
    records = records_of(text)
    assert [(r.conditions["pairs"], r.conditions["window_messages"]) for r in records] == [(1, 64)] * 2 + [(15, 64)] * 2
    one_sided = records_of(
        "# OSU MPI_Put Bandwidth Test v5.8\n# Window creation: MPI_Win_allocate\n# Synchronization: MPI_Win_flush\n"
        "# Size      Bandwidth (MB/s)\n1                      28.56\n"
    )[0]
    assert one_sided.conditions["window_creation"] == "MPI_Win_allocate"
    assert one_sided.conditions["synchronization"] == "MPI_Win_flush"
    threads = records_of(
        "# OSU MPI Multi-threaded Latency Test v5.6\n# Number of Sender threads: 1 \n# Number of Receiver threads: 2\n"
        "# Size          Latency (us)\n0                       1.25\n"
    )[0]
    assert threads.conditions["number_of_receiver_threads"] == 2


def test_buffers_on_devices_are_told_from_those_of_the_host() -> None:
    text = (
        "# OSU MPI-CUDA Latency Test v5.9\n# Send Buffer on DEVICE (D) and Receive Buffer on HOST (H)\n"
        "# Size          Latency (us)\n0                       2.39\n"
    )
    (record,) = records_of(text)
    assert record.instrument == "pingpong" and record.conditions["buffers"] == "D H"
    assert record.conditions["device"] == "cuda" and "datatype" not in record.conditions


def test_sizes_need_not_double_and_lines_of_other_programs_are_passed_over() -> None:
    text = (
        "# OSU MPI Latency Test v7.3\n# Datatype: MPI_CHAR.\n# Size       Avg Latency(us)\n"
        "100                       0.25\n[n1:04711] 1 more process has sent help message\n3000             0.28"
    )
    results = results_of(text)
    assert [r.conditions["message_bytes"] for r in results.records] == [100, 3000]
    assert (results.left_out_count, results.other_lines) == (0, 1)
    assert reasons_of(text[:-1]) == ["line 6: found '0.2', a number with two decimals is required"]


def test_results_that_fail_validation_are_left_out_and_unknown_units_refused() -> None:
    text = "# OSU MPI Latency Test v7.4\n# Size    Avg Latency(us)   Validation\n64   0.46   Pass\n128  0.45   Fail\n"
    results = results_of(text)
    assert len(results.records) == 1 and "only results that pass" in str(results.left_out[0])
    with pytest.raises(FormatError, match="the unit is not known"):
        results_of(text.replace("(us)", "(lightyears)"))


def test_startup_and_rates_of_operations_are_read() -> None:
    records = records_of("# OSU MPI Init Test v5.6.3\nnprocs: 4, min: 13 ms, max: 15 ms, avg: 14 ms\n")
    times = {r.conditions["over_ranks"]: r.value for r in records}
    assert times == pytest.approx({"minimum": 0.013, "maximum": 0.015, "mean": 0.014})
    assert {r.conditions["ranks"] for r in records} == {4}
    atomics = records_of(
        "# OSU OpenSHMEM Atomic Operation Rate Test v5.6.3\n"
        "# Operation                     Million ops/s     Latency (us)\n"
        "shmem_int_fadd                           2.10             0.47\n"
    )
    assert [(r.metric, r.value, r.conditions["operation"]) for r in atomics] == [
        ("message_rate", pytest.approx(2.1e6), "shmem_int_fadd"),
        ("latency", pytest.approx(0.47e-6), "shmem_int_fadd"),
    ]


def test_column_names_without_a_mark_are_those_of_the_nonblocking_barrier() -> None:
    records = records_of(
        "# OSU MPI Non-blocking Barrier Latency Test v5.9\n# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        "           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"
        "                 7.56              4.18              3.31             12.00\n"
    )
    values = {r.metric: r.value for r in records}
    assert values == pytest.approx({"overall": 7.56e-6, "compute": 4.18e-6, "pure_comm": 3.31e-6, "overlap": 0.12})


def test_each_window_size_of_a_profile_is_a_condition() -> None:
    records = records_of(
        "# OSU MPI Multiple Bandwidth / Message Rate Test v5.9\n# [ pairs: 2 ] [ window size: varied ]\n\n"
        "# Uni-directional Bandwidth (MB/sec)\n#                 8           16\n1              1.97         2.91\n\n\n"
        "# Message Rate Profile\n#                 8           16\n1        1969711.73   2909711.73\n"
    )
    assert [(r.metric, r.value, r.conditions["window_messages"], r.conditions["pairs"]) for r in records] == [
        ("bandwidth", pytest.approx(1.97e6), 8, 2),
        ("bandwidth", pytest.approx(2.91e6), 16, 2),
        ("message_rate", pytest.approx(1969711.73), 8, 2),
        ("message_rate", pytest.approx(2909711.73), 16, 2),
    ]
