"""The text output of perf stat. The examples are written by hand in the layout of Linux 4.4 to 6.8."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, reasons_of, records_of, taken_from

TITLE = " Performance counter stats for './solve 100':\n\n"


def values_of(text: str) -> dict[str, float]:
    return {record.metric: record.value for record in taken_from(text)}


def test_counters_metrics_and_times_are_those_printed() -> None:
    records = taken_from(fixture("perf_stat_text.txt"))
    values = {record.metric: (record.value, record.unit) for record in records}
    assert values["task-clock"] == (pytest.approx(0.00105), "s")
    assert values["cycles"] == (3245671, "1") and values["clock"] == (pytest.approx(3.091e9), "Hz")
    assert values["of_all_branches"] == (pytest.approx(0.0074), "1")
    assert values["insn_per_cycle"][0] == pytest.approx(1.27)
    assert values["elapsed"] == (pytest.approx(0.001620434), "s") and values["user_time"][0] == pytest.approx(0.001687)
    cycles = next(record for record in records if record.metric == "cycles")
    assert cycles.instrument == "perf_stat" and cycles.provenance["command"] == "./solve 100"
    assert cycles.conditions == {"counted": "all"}
    branches = next(record for record in records if record.metric == "branch-misses")
    assert branches.conditions == {"counted": "part"}
    assert reasons_of(fixture("perf_stat_text.txt")) == ["line 10: LLC-load-misses: <not supported>"]


@pytest.mark.parametrize(
    ("thousands", "mark"), [(",", "."), (".", ","), (" ", ","), ("\u202f", ","), ("\u00a0", ","), ("'", "."), ("", ".")]
)
def test_separators_of_any_locale_are_read(thousands: str, mark: str) -> None:
    values = values_of(
        f"{TITLE}          26{mark}55 msec task-clock     #    0{mark}965 CPUs utilized\n"
        f"   77{thousands}375{thousands}671      cycles     #    2{mark}914 GHz\n"
        f"   1{thousands}024{mark}50 MiB  uncore_imc/data_reads/\n\n       0{mark}027517434 seconds time elapsed\n"
    )
    assert values["cycles"] == 77375671 and values["task-clock"] == pytest.approx(0.02655)
    assert values["cpus_utilized"] == pytest.approx(0.965) and values["clock"] == pytest.approx(2.914e9)
    assert values["uncore_imc/data_reads/"] == pytest.approx(1024.5 * 2**20)
    assert values["elapsed"] == pytest.approx(0.027517434)


def test_six_decimals_of_older_versions_are_milliseconds() -> None:
    values = values_of(f"{TITLE}         26.554473      task-clock (msec)         #    0.965 CPUs utilized\n")
    assert values["task-clock"] == pytest.approx(0.026554473)
    assert values_of(f"{TITLE}  1255.538611 task-clock   #  10.1 CPUs utilized\n")["task-clock"] == pytest.approx(
        1.255538611
    )


def test_repeated_runs_are_means() -> None:
    records = records_of(
        " Performance counter stats for 'sleep 1' (5 runs):\n\n"
        "           651,214      cycles       #    1.104 GHz        ( +-  2.54% )  (49.77%)\n\n"
        "           1.00114 +- 0.00013 seconds time elapsed  ( +-  0.01% )\n"
    )
    assert {record.conditions["statistic"] for record in records} == {"mean"} and len(records) == 3
    assert {record.metric: record.value for record in records}["elapsed"] == pytest.approx(1.00114)


def test_intervals_are_samples_and_places_are_conditions() -> None:
    text = (
        "#           time socket cpus             counts unit events\n"
        "     1.001085024 S0        4          9,615      cycles\n"
        "     1.001085024 S1        4          9,614      cycles\n"
        "42 solutions found\n     2.001085024 S0        4          9,617      cycles\n"
    )
    samples = {record.conditions["socket"]: list(record.samples) for record in records_of(text)}
    assert samples == {"S0": [9615, 9617], "S1": [9614]}
    cores = records_of(f"{TITLE}S0-D0-C0   2   1,234,567   cycles\nCPU3      2,234,567   cycles\n")
    assert [(r.conditions.get("core"), r.conditions.get("cpu")) for r in cores] == [("S0-D0-C0", None), (None, 3)]


def test_metrics_without_an_event_belong_to_their_group() -> None:
    records = records_of(
        f"{TITLE}   418,955,116   cpu_atom/cpu-cycles/   #    0.9 GHz  cycles_frequency    (49.77%)\n"
        "              TopdownL1 (cpu_core)                 #     10.3 %  tma_bad_speculation\n"
        "                                                   #     17.3 %  tma_frontend_bound\n"
    )
    shares = {r.metric: (r.value, r.conditions.get("metric_group")) for r in records if r.metric.startswith("tma")}
    assert shares["tma_frontend_bound"] == (pytest.approx(0.173), "TopdownL1 (cpu_core)")
    assert shares["tma_bad_speculation"] == (pytest.approx(0.103), "TopdownL1 (cpu_core)")


def test_what_is_not_certain_is_left_out() -> None:
    rows = (
        "   1,234      cycles\n   12.34      instructions\n   1,234 msec task-clock\n"
        "   12 context switches\n   1,2.3  branches\n"
    )
    assert values_of(TITLE + rows) == {"cycles": 1234}
    assert [reason.partition(":")[0] for reason in reasons_of(TITLE + rows)] == [f"line {n}" for n in (4, 5, 6, 7)]
    with pytest.raises(FormatError, match="line 3"):
        records_of(f"{TITLE}  1255.538611  task clock ticks     #      10.143 CPU utilization factor\n")


def test_output_of_the_program_below_the_times_is_no_counter() -> None:
    text = f"{TITLE}   1,234      cycles\n\n   0.012860349 seconds time elapsed\n\n   5 apples\n"
    assert sorted(values_of(text)) == ["cycles", "elapsed"]
