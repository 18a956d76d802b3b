"""Intel MLC. The fixtures are written by hand after public outputs and field notes.

`snc` has the numbers of two Xeon 8269CY (complete), `one` those of a laptop (complete), `pair` those of two sockets,
`cxl` those of two EPYC 9224 (some made up within the published range).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.mlc import read, recognises
from meshmark.store.record import Record

FIXTURES = Path(__file__).parent / "fixtures"
SNC = (FIXTURES / "mlc-snc.txt").read_text(encoding="utf-8")
ONE = (FIXTURES / "mlc-one.txt").read_text(encoding="utf-8")
PAIR = (FIXTURES / "mlc-pair.txt").read_text(encoding="utf-8")
CXL = (FIXTURES / "mlc-cxl.txt").read_text(encoding="utf-8")


def among(records: list[Record], metric: str, **conditions: object) -> list[Record]:
    return [r for r in records if r.metric == metric and conditions.items() <= r.conditions.items()]


def test_all_sections_of_a_complete_run_are_read() -> None:
    assert recognises(SNC)
    records = read(SNC, "n042")
    assert len(records) == 16 + 5 + 16 + 2 * 19 + 2 + 2 * 12
    assert {r.provenance["tool_version"] for r in records} == {"3.9"}
    (idle,) = among(records, "load_latency", cpu_node=1, memory_node=3)
    assert idle.value == pytest.approx(137.6e-9) and idle.instrument == "latency" and "pattern" not in idle.conditions
    (own,) = among(records, "bandwidth_net", cpu_node=3, memory_node=2, kernel="read")
    assert own.value == pytest.approx(59171.9e6)


def test_mixes_are_gross_rates_and_reads_are_net() -> None:
    records = read(SNC, "n042")
    gross = {r.conditions["read_share"]: r.value for r in among(records, "bandwidth_gross")}
    assert gross == pytest.approx({0.75: 216680.7e6, 2 / 3: 213856.4e6, 0.5: 197430.7e6})
    (reads,) = among(records, "bandwidth_net", kernel="read", test="peak")
    (triad,) = among(records, "bandwidth_net", kernel="triad")
    assert [reads.value, triad.value] == pytest.approx([232777.7e6, 194310.3e6])


def test_a_loaded_latency_and_its_rate_share_the_delay() -> None:
    records = read(SNC, "n042")
    (latency,) = among(records, "load_latency", inject_delay=200)
    (rate,) = among(records, "bandwidth_net", inject_delay=200)
    assert latency.instrument == rate.instrument == "loaded" and latency.conditions["read_share"] == 1.0
    assert [latency.value, rate.value] == pytest.approx([109.72e-9, 183071.9e6])


def test_a_transfer_has_writer_reader_and_home() -> None:
    records = read(SNC, "n042")
    (writer,) = among(records, "line_latency", from_node=0, to_node=3, home_node=0)
    (reader,) = among(records, "line_latency", from_node=0, to_node=3, home_node=3)
    assert [writer.value, reader.value] == pytest.approx([109.2e-9, 175.0e-9])
    (clean,) = among(records, "line_latency", same_socket=True, state="clean")
    assert clean.value == pytest.approx(45.0e-9)


def test_nodes_without_cpus_have_columns_only_and_runs_follow_each_other() -> None:
    records = read(CXL, "n042")
    (far,) = among(records, "load_latency", cpu_node=2, memory_node=4)
    assert far.value == pytest.approx(363.8e-9) and far.conditions["footprint_bytes"] == 2048000000
    assert far.conditions["pattern"] == "stride" and far.provenance["command"] == "mlc --latency_matrix -b2000000"
    (rate,) = among(records, "bandwidth_net", cpu_node=0, memory_node=4)
    assert rate.value == pytest.approx(17611.3e6) and rate.conditions["thread_buffer_bytes"] == 100 * 2**20
    (single,) = among(records, "load_latency", footprint_bytes=10 * 2**20)
    assert single.value == pytest.approx(12.5e-9)


def test_one_node_has_no_remote_transfers() -> None:
    records = read(ONE, "n042")
    (idle,) = among(records, "load_latency", cpu_node=0, memory_node=0)
    assert idle.value == pytest.approx(163.3e-9) and idle.conditions["pattern"] == "random"
    assert [r.value for r in among(records, "line_latency")] == pytest.approx([45.3e-9, 47.7e-9])


def test_best_rates_and_mixes_between_nodes_are_apart() -> None:
    records = read(PAIR, "n042")
    (best,) = among(records, "bandwidth_net", kernel="read", statistic="best")
    assert best.value == pytest.approx(165400.60e6) and best.conditions["test"] == "maximum"
    (mixed,) = among(records, "bandwidth_gross", cpu_node=1, memory_node=0)
    assert mixed.value == pytest.approx(147842.0e6)
    assert mixed.conditions["traffic"] == "W5" and mixed.conditions["read_share"] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  77.3\t", "", "line 5: .*; required: a node of the columns and 4 numbers"),
        (" 129.8\t", " 12x9.8\t", "line 5: found '12x9.8'; required: a number with one decimal"),
        ("       3\t50526.3\t50492.4\t59171.9\t58701.5\t\n", "", "the same rows and columns in all matrices"),
        ("2:1 Reads-Writes :\t213856.4\t\n", "", "the rate of '2:1 Reads-Writes'"),
        (" 00700\t 83.74\t  58136.1\n", "", "19 delays; the list has 18"),
        ("Measuring Loaded", "Measured Loaded", "the title of a section above its numbers"),
        ("            3\t 169.7\t 173.6\t  45.1\t     -\t\n", "", "rows of a matrix with 4 columns; it has 3"),
        ("Using Read-only traffic type\n", "", "'Using Read-only traffic type' above the numbers, or -W"),
        ("HITM latency\t45.1", "HITM latency", "'Local Socket L2->L2 HITM latency' in ns"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read(SNC.replace(old, new, 1), "n042")


def test_a_number_that_is_cut_off_is_refused() -> None:
    with pytest.raises(FormatError, match="cut off"):
        read(ONE[:-1], "n042")
