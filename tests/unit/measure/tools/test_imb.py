"""Intel MPI Benchmarks. The fixtures are runs of version 2021.11 with Open MPI 4.1.4, two and four ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.imb import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "imb.txt").read_text(encoding="utf-8")


def test_messages_are_those_printed() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["imb"]
    records = [r for r in read(TEXT, "n042") if r.instrument == "pingpong" and r.conditions["message_bytes"] == 64]
    assert {r.metric: r.value for r in records} == pytest.approx(
        {"message_latency": 0.15e-6, "bandwidth_net": 441.04e6}
    )
    assert records[0].conditions["ranks"] == 2 and records[0].provenance["tool_version"] == "2021.11"
    assert records[0].provenance["start"] == "2026-11-25T18:16:12"
    assert str(records[0].provenance["command"]).startswith("IMB-MPI1 PingPong Sendrecv")


def test_collectives_and_exchange_are_those_printed() -> None:
    records = read(TEXT, "n042")
    found = {
        r.conditions["over_ranks"]: r.value
        for r in records
        if r.instrument == "allreduce" and r.conditions["message_bytes"] == 16
    }
    assert found == pytest.approx({"minimum": 0.21e-6, "maximum": 0.24e-6, "mean": 0.22e-6})
    exchange = [r for r in records if r.instrument == "exchange" and r.conditions["message_bytes"] == 128]
    assert {r.metric: r.value for r in exchange} == pytest.approx(
        {"collective_time": 0.88e-6, "bandwidth_net": 580.43e6}
    )
    sendrecv = [r for r in records if r.conditions.get("benchmark") == "Sendrecv" and r.metric == "bandwidth"]
    assert sendrecv[-1].value == pytest.approx(1493.23e6)
    assert [r.value for r in records if r.instrument == "barrier"] == pytest.approx([0.19e-6] * 3)


def test_sections_with_waiting_ranks_are_told_apart() -> None:
    records = read((FIXTURES / "imb-waiting.txt").read_text(encoding="utf-8"), "n042")
    slowest = {
        r.conditions["ranks"]: r.value
        for r in records
        if r.instrument == "bcast" and r.conditions["message_bytes"] == 32 and r.conditions["over_ranks"] == "maximum"
    }
    assert slowest == pytest.approx({2: 5.65e-6, 4: 0.34e-6})


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("441.04", "441..4", "line 43: Mbytes/sec: found '441..4'"),
        ("# All processes entering MPI_Finalize", "", "the output is incomplete"),
        ("# Benchmarking Barrier", "# Benchmarking PingPong", "no results of Barrier"),
        ("2021.11", "4.1", "2018 or later"),
        (
            "           32           50         0.16       203.78",
            "           32           50         0.16",
            "found 3 cells, 4 are required",
        ),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
