"""perf stat. The fixtures are outputs of perf 6.1 on a machine without hardware counters."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.programs.perf_stat import READERS, recognises
from support.imports import fixture, results_of, taken_from

TEXT = fixture("perf_stat.json")
COUNTER = '{"counter-value" : "2000.0", "unit" : "", "event" : "%s", "event-runtime" : 100, "pcnt-running" : %s'


def values(text: str, *keys: str) -> dict[object, float]:
    """Return the values by metric and the named conditions."""
    return {
        (r.metric, *(r.conditions.get(k) for k in keys)) if keys else r.metric: r.value
        for r in results_of(text).records
    }


def test_json_of_repeated_runs() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["perf_stat"]
    results = results_of(TEXT)
    records = {r.metric: r for r in results.records}
    assert records["task-clock"].value == pytest.approx(0.761431e-3) and records["task-clock"].unit == "s"
    assert records["page-faults"].value == 75.0 and records["page-faults"].unit == "1"
    assert records["cpus_utilized"].value == pytest.approx(0.007210)
    assert records["task-clock"].conditions["statistic"] == "mean"
    assert records["task-clock"].provenance["start"] == "2026-11-25T18:02:43"
    assert "cycles" not in records
    assert str(results.left_out[0]) == "line 7: cycles: <not supported>"


def test_csv_of_cpus_and_of_repeated_runs() -> None:
    faults = {
        r.conditions["cpu"]: r.value for r in taken_from(fixture("perf_stat-cpus.csv")) if r.metric == "page-faults"
    }
    assert faults == {0: 9424.0, 1: 11085.0}
    clock = next(r for r in taken_from(fixture("perf_stat-repeated.csv")) if r.metric == "task-clock")
    assert clock.value == pytest.approx(1.11e-3) and clock.conditions["statistic"] == "mean"


def test_intervals_are_samples() -> None:
    faults = next(r for r in taken_from(fixture("perf_stat-interval.json")) if r.metric == "page-faults")
    assert faults.samples == (6465.0, 4068.0, 1757.0) and faults.conditions["per"] == "interval"


def test_derived_metrics_of_counters() -> None:
    text = COUNTER % ("instructions", "50.00") + ', "metric-value" : 1.25, "metric-unit" : "insn per cycle"}\n'
    text += COUNTER % ("cycles", "50.00") + ', "metric-value" : 2.5, "metric-unit" : "GHz"}\n'
    records = {r.metric: r for r in results_of(text).records}
    assert records["insn_per_cycle"].value == 1.25 and records["clock"].value == pytest.approx(2.5e9)
    assert records["instructions"].conditions["counted"] == "part"
    text = "2000,,cycles:u,100,100.00,,\n1000,,instructions:u,100,100.00,0.50,insn per cycle\n"
    text += ",,,,,0.25,stalled cycles per insn\n"
    measured = values(text, "event")
    assert (
        measured["insn_per_cycle", "instructions:u"] == 0.5
        and measured["stalled_cycles_per_insn", "instructions:u"] == 0.25
    )


@pytest.mark.parametrize(
    "name",
    [
        "of all branches",
        "of all L1-dcache accesses",
        "of all LL-cache hits",
        "of all cache refs",
        "frontend cycles idle",
        "backend cycles idle",
        "retiring",
        "bad speculation",
        "frontend bound",
        "branch mispredict",
        "transactional cycles",
        "SMI cycles%",
        "%  tma_backend_bound",
        "%  branch_miss_rate",
    ],
)
def test_shares_in_percent_are_shares(name: str) -> None:
    text = COUNTER % ("e", "100.00") + f', "metric-value" : 12.5, "metric-unit" : "{name}"}}\n'
    (record,) = [r for r in results_of(text).records if r.metric != "e"]
    assert record.value == 0.125 and record.unit == "1"
    csv = f"2000,,e,100,100.00,12.5,{name}\n"
    assert [r.value for r in results_of(csv).records if r.metric != "e"] == [0.125]


def test_units_of_metrics_are_those_stated() -> None:
    line = COUNTER % ("e", "100.00") + ', "metric-value" : "12.5", "metric-unit" : "%s"}\n'
    for unit, value, si in (
        ("GB/s  memory_bandwidth", 12.5e9, "B/s"),
        ("ns  load_miss_latency", 12.5e-9, "s"),
        ("instructions  insn_per_cycle", 12.5, "1"),
        ("W  power", 12.5, "W"),
    ):
        (record,) = [r for r in results_of(line % unit).records if r.metric != "e"]
        assert record.value == pytest.approx(value)
        assert (record.unit, record.metric) == (si, unit.split()[-1])
    assert [r.metric for r in results_of(line % "M/sec  branch_frequency").records] == ["e"], "a rate over time"


def test_a_metric_without_an_event_is_of_no_event() -> None:
    text = COUNTER % ("branch-misses", "100.00") + ', "metric-value" : 1, "metric-unit" : "of all branches"}\n'
    text += '{"event-runtime" : 9, "pcnt-running" : 100.00, "metricgroup" : "TopdownL1 (cpu_core)"}\n'
    text += '{"metric-value" : "15.0", "metric-unit" : "%  tma_retiring"}\n'
    text += '{"event-runtime" : 9, "pcnt-running" : 100.00, "metricgroup" : "TopdownL1 (cpu_atom)"}\n'
    text += '{"metric-value" : "25.0", "metric-unit" : "%  tma_retiring"}\n'
    measured = values(text, "event", "metric_group")
    assert measured["of_all_branches", "branch-misses", None] == 0.01
    assert measured["tma_retiring", None, "TopdownL1 (cpu_core)"] == 0.15
    assert measured["tma_retiring", None, "TopdownL1 (cpu_atom)"] == 0.25
    text = "7,,branches,100,100.00,,\n,9,100.00,,,,TopdownL1\n,,,,,15.00,%  tma_retiring\n"
    assert values(text, "event", "metric_group")["tma_retiring", None, "TopdownL1"] == 0.15


@pytest.mark.parametrize(
    ("place", "kind", "name"),
    [
        ("a.out-4711", "thread", "a.out-4711"),
        ("CPU12", "cpu", 12),
        ("S0,24", "socket", "S0"),
        ("S0-D1,24", "die", "S0-D1"),
        ("S0-D1-C5,2", "core", "S0-D1-C5"),
        ("S0-D1-L3-ID8,4", "cache", "S0-D1-L3-ID8"),
        ("S0-D1-CLS2,4", "cluster", "S0-D1-CLS2"),
        ("N1,24", "node", "N1"),
    ],
)
def test_every_place_of_aggregation_is_a_condition(place: str, kind: str, name: object) -> None:
    text = f"{place},7369473,,branches,1010000,100.00,7.296,G/sec\n{place},,,,,15.00,%  tma_retiring\n"
    records = results_of(text).records
    assert [(r.metric, r.conditions[kind]) for r in records] == [("branches", name), ("tma_retiring", name)]
    text = f'{{"{kind}" : "{name!s}", "counters" : 2, ' + COUNTER[1:] % ("e", "100.00") + "}\n"
    assert [r.conditions[kind] for r in results_of(text).records] == [name]


def test_a_key_that_is_not_known_is_a_condition() -> None:
    text = '{"tile" : "T3", ' + COUNTER[1:] % ("e", "100.00") + "}\n"
    assert [r.conditions["tile"] for r in results_of(text).records] == ["T3"]


def test_cgroups_of_csv_are_conditions() -> None:
    text = "100,,cycles,a.slice,10,100.00,,\n200,,cycles,b.slice,10,100.00,,\n"
    assert values(text, "cgroup") == {("cycles", "a.slice"): 100.0, ("cycles", "b.slice"): 200.0}


def test_numbers_by_the_locale() -> None:
    text = "# started on Mon Nov 25 10:00:00 2024\n\n1,01;msec;task-clock;1010000;100,00;0,900;CPUs utilized\n"
    assert values(text) == {"task-clock": pytest.approx(1.01e-3), "cpus_utilized": 0.9}
    text = COUNTER.replace("2000.0", "2000,5") % ("e", "100,00")
    text += ', "metric-value" : "0,74", "metric-unit" : "of all branches"}\n'
    assert values(text) == {"e": 2000.5, "of_all_branches": pytest.approx(0.0074)}


def test_commas_between_cells_and_in_numbers() -> None:
    text = "1,01,msec,task-clock,1010000,100,00,0,900,CPUs utilized\n7369473,,branches,1010000,100,00,7,296,G/sec\n"
    text += "CPU1,54747,,branch-misses,1,25%,1010000,100,00,0,74,of all branches\n"
    measured = values(text, "cpu")
    assert measured == {
        ("task-clock", None): pytest.approx(1.01e-3),
        ("cpus_utilized", None): 0.9,
        ("branches", None): 7369473.0,
        ("branch-misses", 1): 54747.0,
        ("of_all_branches", 1): pytest.approx(0.0074),
    }


def test_events_with_separators_in_their_names() -> None:
    text = "77,,cpu/event=0x3c,umask=0x1/,100,100.00,,\n"
    assert values(text) == {"cpu/event=0x3c,umask=0x1/": 77.0}


def test_what_was_not_counted_is_no_zero() -> None:
    lost = COUNTER.replace("2000.0", "<not counted>") % ("e", "0.00") + ', "metric-value" : 0.0, "metric-unit" : ""}\n'
    text = COUNTER % ("cycles", "100.00") + ', "metric-value" : nan, "metric-unit" : "GHz"}\n' + lost
    results = results_of(text)
    assert [r.metric for r in results.records] == ["cycles"]
    assert [str(item) for item in results.left_out] == ["line 2: e: <not counted>"]


def test_runs_that_were_appended_have_their_starts() -> None:
    run = "# started on Mon Nov 25 10:0%d:00 2024\n\n%d,,cycles,100,100.00,,\n"
    records = results_of(run % (1, 10) + run % (2, 20)).records
    assert [(r.provenance["start"], r.samples) for r in records] == [
        ("2024-11-25T10:01:00", (10.0,)),
        ("2024-11-25T10:02:00", (20.0,)),
    ]


def test_lines_of_the_program_and_damaged_lines_do_not_lose_the_others() -> None:
    text = "Copy: done\n" + COUNTER % ("a", "100.00") + "}\n[ok]\n" + COUNTER % ("b", "100.00") + '\n{"event" : 7}\n'
    results = results_of(text + COUNTER % ("c", "100.00") + "}")
    assert [r.metric for r in results.records] == ["a", "c"] and results.other_lines == 2
    assert [item.where for item in results.left_out] == ["line 4", "line 5"]


def test_a_line_that_ends_with_a_comma() -> None:
    assert values(COUNTER % ("topdown-retiring", "100.00") + ", }\n") == {"topdown-retiring": 2000.0}


def test_only_metrics() -> None:
    assert values('{"GHz" : "3.2", "insn per cycle" : "0.5", "branch-misses of all branches" : "1.0"}\n') == {
        "clock": pytest.approx(3.2e9),
        "insn_per_cycle": 0.5,
        "branch_misses_of_all_branches": 0.01,
    }


def test_a_file_of_which_nothing_was_counted_is_refused() -> None:
    with pytest.raises(FormatError, match="line 1: cycles: <not supported>"):
        results_of("<not supported>,,cycles,0,100.00,,\n")
