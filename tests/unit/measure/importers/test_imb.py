"""Intel MPI Benchmarks. The fixtures are outputs of version 2021.11 with Open MPI 4.1.4 and two or four ranks."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("imb.txt")


def test_messages_are_those_printed() -> None:
    records = [r for r in records_of(TEXT) if r.instrument == "pingpong" and r.conditions["message_bytes"] == 64]
    assert {r.metric: r.value for r in records} == pytest.approx(
        {"message_latency": 0.15e-6, "bandwidth_net": 441.04e6}
    )
    assert records[0].conditions["ranks"] == 2 and records[0].provenance["tool_version"] == "2021.11"
    assert records[0].provenance["start"] == "2026-11-25T18:16:12"
    assert str(records[0].provenance["command"]).startswith("IMB-MPI1 PingPong Sendrecv")


def test_collectives_and_exchange_are_those_printed() -> None:
    records = records_of(TEXT)
    latencies = {
        r.conditions["over_ranks"]: r.value
        for r in records
        if r.instrument == "allreduce" and r.conditions["message_bytes"] == 16
    }
    assert latencies == pytest.approx({"minimum": 0.21e-6, "maximum": 0.24e-6, "mean": 0.22e-6})
    exchange = [r for r in records if r.instrument == "exchange" and r.conditions["message_bytes"] == 128]
    assert {r.metric: r.value for r in exchange} == pytest.approx(
        {"collective_time": 0.88e-6, "bandwidth_net": 580.43e6}
    )
    sendrecv = [r for r in records if r.conditions.get("benchmark") == "Sendrecv" and r.metric == "bandwidth"]
    assert sendrecv[-1].value == pytest.approx(1493.23e6)
    assert [r.value for r in records if r.instrument == "barrier"] == pytest.approx([0.19e-6] * 3)


def test_sections_with_waiting_ranks_are_told_apart() -> None:
    records = records_of(fixture("imb-waiting.txt"))
    slowest = {
        r.conditions["ranks"]: r.value
        for r in records
        if r.instrument == "bcast" and r.conditions["message_bytes"] == 32 and r.conditions["over_ranks"] == "maximum"
    }
    assert slowest == pytest.approx({2: 5.65e-6, 4: 0.34e-6})


def run(body: str, part: str = "MPI-1", version: str = "2021.3", command: str = "IMB-MPI1") -> str:
    return (
        f"#    Intel(R) MPI Benchmarks {version}, {part} part\n# Date                  : Mon Jul  5 17:04:56 2021\n"
        f"# Calling sequence was: \n\n# {command} \n\n{body}\n# All processes entering MPI_Finalize\n"
    )


PAIR = """# Benchmarking PingPong
# #processes = 2
       #bytes #repetitions      t[usec]   Mbytes/sec
         1024          100         2.00       512.00
"""


def test_groups_and_the_times_of_ranks_are_told_apart() -> None:
    text = run(
        "# Benchmarking Multi-PingPong \n# ( 2 groups of 2 processes each running simultaneous ) \n"
        "# Group  0:     0    1\n"
        "#\n# Group  1:     2    3\n"
        "        Group       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec\n"
        "            0         1024          100        56.00        61.00        59.00        16.79\n"
        "            1         1024          100        57.00        62.00        60.00        16.79\n"
    )
    records = records_of(text)
    keys = {(r.metric, *sorted((k, str(v)) for k, v in r.conditions.items())) for r in records}
    assert len(records) == len(keys) == 8
    assert {(r.conditions["groups"], r.conditions["ranks"]) for r in records} == {(2, 2)}
    slowest = [r.value for r in records if r.conditions.get("over_ranks") == "maximum"]
    assert slowest == pytest.approx([61e-6, 62e-6])


def test_other_parts_have_their_columns() -> None:
    nbc = run(
        "# Benchmarking Ibcast\n# #processes = 4 \n"
        "       #bytes #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]\n"
        "         1024          100         3.00         2.00         2.50        75.00\n",
        "NBC",
    )
    assert {r.metric: r.value for r in records_of(nbc)} == pytest.approx(
        {"overlapped_time": 3e-6, "pure_time": 2e-6, "compute_time": 2.5e-6, "overlap": 0.75}
    )
    rma = run(
        "# Benchmarking Unidir_put \n# #processes = 2 \n#\n#    MODE: AGGREGATE \n#\n"
        "       #bytes #repetitions      t[usec]   Mbytes/sec\n         1024          100         2.00       512.00\n"
        "#\n# Benchmarking Unidir_put \n# #processes = 2 \n#\n#    MODE: NON-AGGREGATE \n#\n"
        "       #bytes #repetitions      t[usec]   Mbytes/sec\n         1024          100         3.00       341.00\n",
        "RMA",
    )
    times = {r.conditions["setting"]: r.value for r in records_of(rma) if r.metric == "operation_time"}
    assert times == pytest.approx({"MODE: AGGREGATE": 2e-6, "MODE: NON-AGGREGATE": 3e-6})


def test_the_part_of_point_to_point_benchmarks_prints_a_time_and_two_rates() -> None:
    text = (
        "#------------\n#    Intel(R) MPI Benchmarks 2021.11, IMB-P2P part\n#------------\n#\n"
        "# Calling sequence was:\n#\n# IMB-P2P -msglen sizes stencil2d\n#\n# List of Benchmarks to run:\n#\n"
        "# PingPong\n# Stencil2D\n#\n# Minimum message length in bytes:   0\n#\n\n#------------\n"
        "# Benchmarking Stencil2D (2 x 2)\n# #processes = 4\n#------------\n"
        "       #bytes #repetitions      t[usec]   Mbytes/sec      Msg/sec\n"
        "            0       100000         2.45         0.00       816270\n"
        "         1024       100000         4.95       413.70       404040\n\n"
        "# !! Benchmark PingPong is invalid for 3 processes !!\n\n\n# All processes entering MPI_Finalize\n\n"
    )
    results = results_of(text)
    values = {(r.metric, r.conditions["message_bytes"]): r.value for r in results.records}
    assert values == pytest.approx(
        {
            ("operation_time", 0): 2.45e-6,
            ("message_rate", 0): 816270,
            ("operation_time", 1024): 4.95e-6,
            ("bandwidth", 1024): 413.7e6,
            ("message_rate", 1024): 404040,
        }
    )
    assert {(r.conditions["part"], r.conditions["benchmark"]) for r in results.records} == {("P2P", "Stencil2D")}
    assert results.records[0].provenance["command"] == "IMB-P2P -msglen sizes stencil2d"
    assert [str(item) for item in results.left_out] == [
        "line 11: PingPong is in the list of benchmarks, but has no results"
    ]


def test_threads_of_ranks_and_buffers_on_gpus_are_told_apart() -> None:
    body = "# Benchmarking PingPongMT\n# #processes = 2 (threads: {})\n# window_size = 64\n       #bytes #repetitions"
    body += (
        "  t_max[usec]  t_avg[usec]   Mbytes/sec\n         1024          100         2.00         1.50       512.00\n"
    )
    records = records_of(run(body.format(1), "MT") + run(body.format(4), "MT"))
    assert [r.conditions["threads"] for r in records] == [1] * 3 + [4] * 3
    assert {r.conditions["setting"] for r in records} == {"window_size = 64"}
    devices = [r.conditions.get("device") for r in records_of(run(PAIR) + run(PAIR, "MPI-1"))]
    gpu = records_of(run(PAIR).replace("MPI-1 part", "MPI-1 part (GPU)"))
    assert {*devices} == {None} and {r.conditions["device"] for r in gpu} == {"gpu"}


def test_versions_before_3_and_those_of_vendors_are_read() -> None:
    for title in ("Intel (R) MPI Benchmark Suite V2.3", "Intel (R) MPI Benchmark Suite V3.0v modified by a vendor"):
        text = run(PAIR.replace("= 2\n", "= 2\n# ( 58 additional processes waiting in MPI_Barrier)\n"))
        text = text.replace("Intel(R) MPI Benchmarks 2021.3", title).replace(
            "# Calling", "# Minimum message\n# Calling"
        )
        assert [r.value for r in records_of(text)] == pytest.approx([2e-6, 512 * 2**20])


def test_a_damaged_count_of_defects_is_left_out() -> None:
    text = PAIR.replace("Mbytes/sec", "Mbytes/sec  defects").replace("512.00", "512.00  {}")
    assert len(records_of(run(text.format("0.00")))) == 2
    for defects, reason in (("x", "defects: found 'x', a number is required"), ("1.00", "defects: found some")):
        with pytest.raises(FormatError, match=reason):
            results_of(run(text.format(defects)))


def test_appended_runs_and_the_megabytes_of_former_versions() -> None:
    text = run(PAIR) + run(PAIR, version="4.1", command="IMB-MPI1 -off_cache -1 PingPong")
    rates = [r for r in records_of(text) if r.metric == "bandwidth_net"]
    assert [r.value for r in rates] == [512e6, 512.0 * 2**20]
    assert [r.conditions.get("off_cache") for r in rates] == [None, True]
    assert [r.provenance["tool_version"] for r in rates] == ["2021.3", "4.1"]


def test_a_run_that_was_killed_gives_the_rows_it_printed_and_unknown_columns_are_refused() -> None:
    text = run(PAIR).partition("# All")[0] + "# Benchmarking Barrier\n# #processes = 2\n"
    results = results_of(text)
    assert len(results.records) == 2 and "found no rows of Barrier above" in str(results.left_out[0])
    with pytest.raises(FormatError, match=r"the column 't\[fortnight\]' is not known"):
        results_of(run(PAIR.replace("t[usec]", "t[fortnight]")))
