"""Intel MLC. The fixtures are written by hand after public outputs and field notes.

`snc` has the numbers of two Xeon 8269CY (complete), `one` the numbers of a laptop (complete), `pair` the numbers of
two sockets, and `cxl` the numbers of two EPYC 9224 (some are invented within the published range).
"""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.store.record import Record
from support.imports import fixture, records_of, results_of

SNC = fixture("mlc-snc.txt")
ONE = fixture("mlc-one.txt")
PAIR = fixture("mlc-pair.txt")
CXL = fixture("mlc-cxl.txt")


def among(records: list[Record], metric: str, **conditions: object) -> list[Record]:
    return [r for r in records if r.metric == metric and conditions.items() <= r.conditions.items()]


def test_all_sections_of_a_complete_run_are_read() -> None:
    records = records_of(SNC)
    assert len(records) == 16 + 5 + 16 + 2 * 19 + 2 + 2 * 12
    assert {r.provenance["tool_version"] for r in records} == {"3.9"}
    (idle,) = among(records, "load_latency", cpu_node=1, memory_node=3)
    assert idle.value == pytest.approx(137.6e-9) and idle.instrument == "latency" and "pattern" not in idle.conditions
    (record,) = among(records, "bandwidth_net", cpu_node=3, memory_node=2, kernel="read")
    assert record.value == pytest.approx(59171.9e6)


def test_mixes_are_gross_rates_and_reads_are_net() -> None:
    records = records_of(SNC)
    gross = {r.conditions["read_share"]: r.value for r in among(records, "bandwidth_gross")}
    assert gross == pytest.approx({0.75: 216680.7e6, 2 / 3: 213856.4e6, 0.5: 197430.7e6})
    (read,) = among(records, "bandwidth_net", kernel="read", test="peak")
    (triad,) = among(records, "bandwidth_net", kernel="triad")
    assert [read.value, triad.value] == pytest.approx([232777.7e6, 194310.3e6])


def test_a_loaded_latency_and_its_rate_share_the_delay() -> None:
    records = records_of(SNC)
    (latency,) = among(records, "load_latency", inject_delay=200)
    (rate,) = among(records, "bandwidth_net", inject_delay=200)
    assert latency.instrument == rate.instrument == "loaded" and latency.conditions["read_share"] == 1.0
    assert [latency.value, rate.value] == pytest.approx([109.72e-9, 183071.9e6])


def test_a_transfer_has_writer_reader_and_home() -> None:
    records = records_of(SNC)
    (writer,) = among(records, "line_latency", from_node=0, to_node=3, home_node=0)
    (reader,) = among(records, "line_latency", from_node=0, to_node=3, home_node=3)
    assert [writer.value, reader.value] == pytest.approx([109.2e-9, 175.0e-9])
    (clean,) = among(records, "line_latency", same_socket=True, state="clean")
    assert clean.value == pytest.approx(45.0e-9)


def test_nodes_without_cpus_have_columns_only_and_runs_follow_each_other() -> None:
    records = records_of(CXL)
    (far,) = among(records, "load_latency", cpu_node=2, memory_node=4)
    assert far.value == pytest.approx(363.8e-9) and far.conditions["footprint_bytes"] == 2048000000
    assert far.conditions["pattern"] == "stride" and far.provenance["command"] == "mlc --latency_matrix -b2000000"
    (rate,) = among(records, "bandwidth_net", cpu_node=0, memory_node=4)
    assert rate.value == pytest.approx(17611.3e6) and rate.conditions["thread_buffer_bytes"] == 100 * 2**20
    (single,) = among(records, "load_latency", footprint_bytes=10 * 2**20)
    assert single.value == pytest.approx(12.5e-9)


def test_one_node_has_no_remote_transfers() -> None:
    records = records_of(ONE)
    (idle,) = among(records, "load_latency", cpu_node=0, memory_node=0)
    assert idle.value == pytest.approx(163.3e-9) and idle.conditions["pattern"] == "random"
    assert [r.value for r in among(records, "line_latency")] == pytest.approx([45.3e-9, 47.7e-9])


def test_best_rates_and_mixes_between_nodes_are_apart() -> None:
    records = records_of(PAIR)
    (best,) = among(records, "bandwidth_net", kernel="read", statistic="best")
    assert best.value == pytest.approx(165400.60e6) and best.conditions["test"] == "maximum"
    (mixed,) = among(records, "bandwidth_gross", cpu_node=1, memory_node=0)
    assert mixed.value == pytest.approx(147842.0e6)
    assert mixed.conditions["traffic"] == "W5" and mixed.conditions["read_share"] == 0.5


def test_a_matrix_whose_title_is_damaged_is_not_taken_for_the_one_above() -> None:
    start = SNC.index("Measuring Memory Bandwidths between nodes")
    damaged = results_of(SNC[:start].rstrip("\n") + "\nMeasured\n" + SNC[start:].partition("\n")[2])
    assert len(among(damaged.records, "load_latency", cpu_node=0)) == 4
    assert not among(damaged.records, "bandwidth_net", cpu_node=0) and damaged.left_out_count >= 4


def test_a_number_that_is_cut_off_is_left_out_and_one_that_is_not_is_taken() -> None:
    assert [r.value for r in records_of(ONE.rstrip("\n"))] == [r.value for r in records_of(ONE)]
    results = results_of(ONE.rstrip("\n")[:-1])
    assert results.left_out_count == 1 and len(results.records) == len(records_of(ONE)) - 1


MIXES = """Intel(R) Memory Latency Checker - v3.11
Command line parameters: --peak_injection_bandwidth -Z -X

Measuring Peak Injection Memory Bandwidths for the system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
Using only one thread from each core if Hyper-threading is enabled
ALL Reads        :      87100.0
1:1 Reads-Writes :      92200.0
All NT writes    :      47700.0
1:1 Read-NT write:      76900.0
9 parts whatever :      76900.0
"""


def test_non_temporal_stores_and_options_are_told_apart() -> None:
    results = results_of(MIXES)
    rates = {(r.conditions["kernel"], r.conditions["read_share"], r.metric): r for r in results.records}
    assert {k: r.value for k, r in rates.items()} == pytest.approx(
        {
            ("read", 1.0, "bandwidth_net"): 87100e6,
            ("mix", 0.5, "bandwidth_gross"): 92200e6,
            ("write", 0.0, "bandwidth_net"): 47700e6,
            ("mix", 0.5, "bandwidth_net"): 76900e6,
        }
    )
    assert {r.conditions["options"] for r in results.records} == {"-X -Z"}
    assert {r.conditions["core_threads"] for r in results.records} == {"one"}
    assert "found '9 parts whatever', a known mix" in str(results.left_out[0])


def test_other_lists_of_delays_and_small_pages_are_read() -> None:
    delays = SNC.replace(" 00700\t 83.74\t  58136.1\n", " 00701\t 83.74\t  58136.1\n 99999\t 80.00\t  100.0\n")
    assert len(among(records_of(delays), "load_latency", inject_delay=99999)) == 1
    text = "Using small pages for allocating buffers\nLocal Socket L2->L2 HIT  latency"
    small = records_of(SNC.replace("Local Socket L2->L2 HIT  latency", text))
    assert len(among(small, "line_latency", pages="small")) == 2 + 2 * 12


def test_units_that_are_not_known_are_refused() -> None:
    with pytest.raises(FormatError, match="found times in 'furlongs', ns is required"):
        results_of(SNC.replace("(in ns)", "(in furlongs)", 1))
    with pytest.raises(FormatError, match="MB/sec are required"):
        results_of(MIXES.replace("in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)", "in bushels"))


@pytest.mark.parametrize(
    ("command", "title", "note", "pattern"),
    [
        ("--latency_matrix -r", "", "", "random"),
        ("--latency_matrix", "", "", None),
        ("--latency_matrix", "", "*** So, enabling random access for latency measurements\n", "random"),
        ("--latency_matrix", " for sequential access", "", "stride"),
        ("--latency_matrix", " for random access", "", "random"),
    ],
)
def test_the_order_of_idle_latencies_is_told(command: str, title: str, note: str, pattern: str | None) -> None:
    text = (
        f"Intel(R) Memory Latency Checker - v3.9a\nCommand line parameters: {command} \n\n"
        f"Using buffer size of 2000.000MiB\n{note}Measuring idle latencies{title} (in ns)...\n"
        "\t\tNuma node\nNuma node\t     0\t     1\t     2\n       0\t 117.4\t 184.3\t 561.7\n"
    )
    records = records_of(text)
    assert {r.conditions.get("pattern") for r in records} == {pattern} and len(records) == 3
    assert {r.conditions["footprint_bytes"] for r in records} == {2000 * 2**20}


def test_single_latencies_have_the_cpu_and_the_node_of_the_command() -> None:
    text = "".join(
        f"Intel(R) Memory Latency Checker - v3.10\nCommand line parameters: --idle_latency -c{cpu} -j1 -r\n\n"
        f"Using buffer size of 200.000MiB\nEach iteration took 256.4 base frequency clocks (\t{cpu}09.9\tns)\n"
        for cpu in (1, 2)
    )
    assert [(r.conditions["cpu"], r.conditions["memory_node"], r.value) for r in records_of(text)] == [
        (1, 1, pytest.approx(109.9e-9)),
        (2, 1, pytest.approx(209.9e-9)),
    ]
