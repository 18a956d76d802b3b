"""The OSU micro-benchmarks. The fixtures are runs of version 7.4 with two ranks of Open MPI 4.1.4 on a busy machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.osu import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "osu.txt").read_text(encoding="utf-8")


def test_times_and_rates_are_those_printed() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["osu"]
    records = read(TEXT, "n042")
    latency = {r.conditions["message_bytes"]: r for r in records if r.instrument == "pingpong"}
    assert latency[1].value == pytest.approx(0.37e-6) and latency[4096].value == pytest.approx(1874.94e-6)
    assert latency[1].metric == "message_latency" and latency[1].provenance["tool_version"] == "7.4"
    assert latency[1].conditions["protocol"] == "send" and latency[1].conditions["ranks"] == 2
    rates = {r.conditions["message_bytes"]: r.value for r in records if r.metric == "bandwidth"}
    assert rates[128] == pytest.approx(424.37e6) and rates[65536] == pytest.approx(17.80e6)


def test_a_collective_has_the_mean_the_fastest_and_the_slowest_rank() -> None:
    found = {
        r.conditions["over_ranks"]: r.value
        for r in read(TEXT, "n042")
        if r.instrument == "allreduce" and r.conditions["message_bytes"] == 64
    }
    assert found == pytest.approx({"mean": 0.63e-6, "minimum": 0.56e-6, "maximum": 0.71e-6})


def test_other_programs_and_columns() -> None:
    records = read((FIXTURES / "osu-variants.txt").read_text(encoding="utf-8"), "n042")
    barrier = next(r for r in records if r.instrument == "barrier")
    assert barrier.value == pytest.approx(88065.18e-6) and barrier.conditions["message_bytes"] == 0
    tail = [r for r in records if r.conditions.get("percentile") == 99 and r.conditions["message_bytes"] == 64]
    assert [r.value for r in tail] == pytest.approx([326695.69e-6])
    overlap = [r.value for r in records if r.metric == "overlap"]
    assert overlap == pytest.approx([0.6273, 0.1577, 0.0])
    assert [r.value for r in records if r.metric == "message_rate"][1] == pytest.approx(3964149.23)
    assert next(r for r in records if r.instrument == "alltoall").conditions["operation"] == "alltoall"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("424.37", "424..37", "line 29: Bandwidth .MB/s.: found '424..37'"),
        ("\n128                     424.37\n", "\n", "size: found 256 after 64"),
        (
            "             0.53                0.52                0.53         100",
            "             0.53",
            "found 2 cells, 5 are required",
        ),
        ("# OSU MPI Bandwidth Test v7.4\n", "", "a title and column names are required"),
        ("                3.18         100\n", "                3.1", "no end of the last line"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
