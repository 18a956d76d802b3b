"""perf stat. The fixtures are runs of perf 6.1 on a machine without hardware counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.perf_stat import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "perf_stat.json").read_text(encoding="utf-8")


def test_json_of_repeated_runs() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["perf_stat"]
    records = {r.metric: r for r in read(TEXT, "n042")}
    assert records["task-clock"].value == pytest.approx(0.761431e-3) and records["task-clock"].unit == "s"
    assert records["page-faults"].value == 75.0 and records["page-faults"].unit == "1"
    assert records["cpus_utilized"].value == pytest.approx(0.007210)
    assert records["task-clock"].conditions["statistic"] == "mean"
    assert records["task-clock"].provenance["start"] == "2026-11-25T18:02:43"
    assert "cycles" not in records, "not supported"


def test_csv_of_cpus_and_of_repeated_runs() -> None:
    text = (FIXTURES / "perf_stat-cpus.csv").read_text(encoding="utf-8")
    faults = {r.conditions["cpu"]: r.value for r in read(text, "n042") if r.metric == "page-faults"}
    assert faults == {0: 9424.0, 1: 11085.0}
    text = (FIXTURES / "perf_stat-repeated.csv").read_text(encoding="utf-8")
    clock = next(r for r in read(text, "n042") if r.metric == "task-clock")
    assert clock.value == pytest.approx(1.11e-3) and clock.conditions["statistic"] == "mean"
    with pytest.raises(FormatError, match="line 4: found 8 cells"):
        read(text.replace("1;;context-switches;0.00%;", "1;;;context-switches;0.00%;").replace(";/sec", "", 1), "n042")


def test_intervals_are_samples() -> None:
    text = (FIXTURES / "perf_stat-interval.json").read_text(encoding="utf-8")
    faults = next(r for r in read(text, "n042") if r.metric == "page-faults")
    assert faults.samples == (6465.0, 4068.0, 1757.0) and faults.conditions["per"] == "interval"


def test_derived_metrics_of_counters() -> None:
    line = '{"counter-value" : "2000.0", "unit" : "", "event" : "%s", "event-runtime" : 100, "pcnt-running" : 50.00, '
    text = line % "instructions" + '"metric-value" : 1.25, "metric-unit" : "insn per cycle"}\n'
    text += line % "cycles" + '"metric-value" : 2.5, "metric-unit" : "GHz"}\n'
    records = {r.metric: r for r in read(text, "n042")}
    assert records["insn_per_cycle"].value == 1.25 and records["clock"].value == pytest.approx(2.5e9)
    assert records["instructions"].conditions["counted"] == "part"
    text = "2000,,cycles:u,100,100.00,,\n1000,,instructions:u,100,100.00,0.50,insn per cycle\n"
    text += ",,,,,0.25,stalled cycles per insn\n"
    found = {r.metric: r.value for r in read(text, "n042")}
    assert found["insn_per_cycle"] == 0.5 and found["stalled_cycles_per_insn"] == 0.25


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"75.000000"', '"many"', "line 6: page-faults: found 'many'"),
        ('"event" : "page-faults", ', "", "line 6: found no event"),
        ('"page-faults"', '"page-faults', "line 6: found '.*an object of JSON is required"),
        ('"variance"', '"deviation"', "the unknown key 'deviation'"),
        ('"metric-unit" : ""}\n', '"metric-unit" : ""}', "no end of the last line"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
