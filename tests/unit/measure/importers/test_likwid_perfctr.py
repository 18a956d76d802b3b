"""likwid-perfctr. The fixtures are written by hand from the source and performance groups of LIKWID 5.2.2, with
invented numbers."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, records_of, results_of

TEXT = fixture("likwid_perfctr.csv")


def test_counters_and_metrics_are_those_printed() -> None:
    records = {(r.metric, r.conditions["cpu"]): r for r in records_of(TEXT)}
    assert records["INSTR_RETIRED_ANY", 1].value == 1601283401
    assert records["INSTR_RETIRED_ANY", 1].conditions["counter"] == "FIXC0"
    read_rate = records["memory_read_bandwidth", 0]
    assert read_rate.value == pytest.approx(6458.3733e6) and read_rate.unit == "B/s" and read_rate.better == "higher"
    assert records["memory_read_data_volume", 0].value == pytest.approx(6.7109e9)
    assert records["clock", 1].value == pytest.approx(3191.3605e6)
    assert read_rate.conditions["group"] == "MEM" and "region" not in read_rate.conditions
    assert ("uncore_clock", 0) not in records, "nan"


def test_regions_of_the_marker_api() -> None:
    records = records_of(fixture("likwid_perfctr-region.csv"))
    rate = next(r for r in records if r.unit == "flop/s")
    assert rate.value == pytest.approx(864.2489e6) and rate.conditions["region"] == "triad"
    assert len(records) == 8


def test_metrics_of_all_groups_have_their_units() -> None:
    units = {
        "Operational intensity [FLOP/Byte]": ("operational_intensity", "flop/B", 1.0),
        "Energy [J]": ("energy", "J", 1.0),
        "Temperature [C]": ("temperature", "1", 1.0),
        "L2D load data volume [GBytes]": ("l2d_load_data_volume", "B", 1e9),
        "L2 bandwidth [MBytes/s]": ("l2_bandwidth", "B/s", 1e6),
        "DP [GFLOP/s]": ("dp", "flop/s", 1e9),
        "Vectorization ratio [%]": ("vectorization_ratio", "1", 0.01),
        "Uncore Clock [GHz]": ("uncore_clock", "Hz", 1e9),
        "Stalls [ns]": ("stalls", "s", 1e-9),
        "Bandwidth [Bytes/cycle]": ("bandwidth", "Bytes/cycle", 1.0),
    }
    text = "STRUCT,Info,3,\nCPU name:,x,\nTABLE,Group 1 Metric,G,10,\nMetric,Core 0,\n" + "".join(
        f"{name},3.0000,\n" for name in units
    )
    assert {r.metric: (r.unit, r.value) for r in records_of(text)} == {
        metric: (unit, pytest.approx(3 * factor)) for metric, unit, factor in units.values()
    }


def test_columns_that_are_not_known_are_refused() -> None:
    with pytest.raises(FormatError, match="HWThread is required"):
        results_of(TEXT.replace("HWThread 0", "Thread"))


def test_appended_runs_are_all_read() -> None:
    assert len(records_of(TEXT + "next\n" + TEXT)) == 2 * len(records_of(TEXT))


def test_tables_that_are_drawn_with_lines_are_read() -> None:
    text = """CPU name:	Some CPU
Region triad, Group 1: MEM
+-------------------+------------+------------+
|    Region Info    | HWThread 0 | HWThread 4 |
+-------------------+------------+------------+
| RDTSC Runtime [s] |   1.0391   |   1.0391   |
+-------------------+------------+------------+

+-------------------+---------+------------+------------+
|       Event       | Counter | HWThread 0 | HWThread 4 |
+-------------------+---------+------------+------------+
| INSTR_RETIRED_ANY |  FIXC0  | 1604321758 |          - |
+-------------------+---------+------------+------------+

+------------------------+---------+-----+-----+-----+-----+
|          Event         | Counter | Sum | Min | Max | Avg |
+------------------------+---------+-----+-----+-----+-----+
| INSTR_RETIRED_ANY STAT |  FIXC0  | 7   | 7   |  7  | 7   |
+------------------------+---------+-----+-----+-----+-----+

+-----------------------------+------------+------------+
|            Metric           | HWThread 0 | HWThread 4 |
+-----------------------------+------------+------------+
| Memory bandwidth [MBytes/s] |  9687.6359 |     0.5000 |
| Memory bandwidth [acres]    |  9687.6359 |     0.5000 |
+-----------------------------+------------+------------+
"""
    results = results_of(text)
    values = {(r.metric, r.conditions["cpu"]): r.value for r in results.records}
    assert values == pytest.approx(
        {("INSTR_RETIRED_ANY", 0): 1604321758, ("memory_bandwidth", 0): 9687.6359e6, ("memory_bandwidth", 4): 0.5e6}
    )
    assert {r.conditions["region"] for r in results.records} == {"triad"} and results.left_out_count == 1
