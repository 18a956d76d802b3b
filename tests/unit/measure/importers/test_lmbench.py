"""lmbench.

The fixtures are written by hand from the formats in the program's source (intel/lmbench, version 3): curves of
lat_mem_rd, three calls of bw_mem, and the memory sections of a results file.
"""

from __future__ import annotations

import pytest

from support.imports import fixture, records_of, results_of

CURVES = fixture("lmbench.txt")
RATES = fixture("lmbench-bw_mem.txt")
RESULTS = fixture("lmbench-results.txt")


def test_footprints_are_exact_and_strides_apart() -> None:
    curve = {(r.conditions["stride_bytes"], r.conditions["footprint_bytes"]): r.value for r in records_of(CURVES)}
    assert len(curve) == 23 + 5
    assert curve[64, 512] == pytest.approx(1.103e-9) and curve[64, 24 * 1024] == pytest.approx(1.103e-9)
    assert curve[64, 64 * 2**20] == pytest.approx(88.302e-9) and curve[128, 2048] == pytest.approx(1.104e-9)


def test_rates_without_a_title_are_those_of_an_unknown_operation() -> None:
    records = records_of(RATES)
    assert [r.value for r in records] == pytest.approx([28541.37e6, 96512.40e6, 12904.18e6])
    assert [r.conditions["size_bytes"] for r in records] == [8_390_000, 512, 33_550_000]
    assert {r.instrument for r in records} == {"lmbench"}


def test_titles_of_a_results_file_tell_the_operation() -> None:
    records = records_of(RESULTS)
    assert {r.provenance["tool_version"] for r in records} == {"3.0"}
    rates = {r.conditions["footprint_bytes"]: r.value for r in records if r.conditions.get("kernel") == "read"}
    assert rates == pytest.approx({512: 27112.38e6, 1024: 28014.62e6, 524288: 25780.44e6, 1050000: 24990.13e6})
    random = [r for r in records if r.conditions.get("pattern") == "random"]
    assert [r.value for r in random] == pytest.approx([1.103e-9, 1.104e-9, 1.104e-9, 1.198e-9])
    copies = [r for r in records if r.conditions.get("operation") == "bcopy_unaligned"]
    assert copies[-1].value == pytest.approx(41206.55e6) and copies[-1].metric == "operation_bandwidth"


def test_other_times_of_a_results_file_are_read() -> None:
    (syscall,) = [r for r in records_of(RESULTS) if r.metric == "operation_time"]
    assert syscall.value == pytest.approx(0.0912e-6) and syscall.conditions["operation"] == "Simple syscall"


def test_a_curve_ends_with_the_text_and_several_calls_follow_each_other() -> None:
    curve = '"stride=64\n0.00049 1.187\n0.00098 1.188'
    assert [r.value for r in records_of(curve)] == pytest.approx([1.187e-9, 1.188e-9])
    assert len(records_of(curve + '\n\n"stride=128\n0.00049 1.187\n"stride=256\n0.00049 1.187\n')) == 4
    cut = results_of(curve[:-1])
    assert len(cut.records) == 1 and cut.left_out_count == 1


def test_context_switches_sockets_and_files_are_read() -> None:
    records = records_of(
        "[lmbench3.0 results for Linux n042 6.1 #1 SMP x86_64 GNU/Linux]\n"
        "File /tmp/XXX write bandwidth: 1780350 KB/sec\nSocket bandwidth using localhost\n0.000064 163.02 MB/sec\n"
        '10.000000 5817.34 MB/sec\n\n"read bandwidth\n0.000512 489.40\n\n'
        '"size=16k ovr=0.90\n2 1.45\n96 2.51\n\n'
    )
    values = {
        (r.conditions["operation"], *[r.conditions.get(k) for k in ("size_bytes", "processes")]): r.value
        for r in records
    }
    assert values == pytest.approx(
        {
            ("File /tmp/XXX write bandwidth", None, None): 1780350e3,
            ("socket", 64, None): 163.02e6,
            ("socket", 10000000, None): 5817.34e6,
            ("file_read", 512, None): 489.40e6,
            ("context switch", None, 2): 1.45e-6,
            ("context switch", None, 96): 2.51e-6,
        }
    )
    assert {r.conditions.get("process_bytes") for r in records} == {None, 16384}


def test_context_switches_alone_are_recognised() -> None:
    records = records_of('\n"size=0k ovr=0.86\n2 1.35\n8 1.80\n')
    assert [(r.conditions["processes"], r.value) for r in records] == [
        (2, pytest.approx(1.35e-6)),
        (8, pytest.approx(1.80e-6)),
    ]
