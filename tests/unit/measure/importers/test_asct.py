"""The Arm System Characterization Tool. The fixtures are written by hand from its source and documentation (July 2026),
with the numbers of its documentation."""

from __future__ import annotations

import json

import pytest

from meshmark.measure.importers.memory.asct import READERS, recognises
from support.imports import fixture, results_of, taken_from

TEXT = fixture("asct.json")


def test_a_report_has_all_memory_benchmarks() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["asct"]
    records = taken_from(TEXT)
    levels = {r.conditions["level"]: r for r in records if r.instrument == "latency" and "level" in r.conditions}
    assert levels["DRAM"].value == pytest.approx(114.838327e-9)
    assert levels["DRAM"].conditions["footprint_bytes"] == 603979776
    assert levels["DRAM"].provenance["tool_version"] == "0.6.0"
    peak = {r.conditions["traffic"]: r for r in records if "traffic" in r.conditions and r.instrument == "bandwidth"}
    assert peak["3:1 Reads-Writes"].value == pytest.approx(868.8e9)
    assert peak["3:1 Reads-Writes"].conditions["read_share"] == 0.75
    lines = {(r.conditions["from_cpu"], r.conditions["to_cpu"]): r for r in records if r.instrument == "lines"}
    assert lines[0, 1].samples == pytest.approx([31.91e-9, 32.15e-9])
    assert lines[1, 2].value == pytest.approx(152.86e-9) and lines[1, 2].conditions["home_node"] == 1


def test_columns_of_a_matrix_are_nodes_of_memory() -> None:
    latencies = {
        (r.conditions["cpu_node"], r.conditions["memory_node"]): r.value
        for r in taken_from(TEXT)
        if r.instrument == "latency" and "cpu_node" in r.conditions
    }
    assert latencies == pytest.approx({(0, 0): 113.3e-9, (0, 1): 266.9e-9, (1, 0): 266.5e-9, (1, 1): 115.7e-9})


def test_a_benchmarks_csv_and_json() -> None:
    text = fixture("asct-loaded.csv")
    records = taken_from(text)
    point = {r.metric: r.value for r in records if r.conditions["injected_nops"] == 20}
    assert point == pytest.approx({"load_latency": 266.5e-9, "bandwidth_net": 918.3e9})
    single = json.dumps(json.loads(TEXT)["memory"]["peak-bandwidth"])
    assert recognises(single) and taken_from(single)[0].value == pytest.approx(918.9e9)


def test_rows_of_a_csv_that_are_damaged_are_left_out() -> None:
    text = fixture("asct-loaded.csv")
    assert len(taken_from(text.replace("3,180,122.2,175.3,18.0\n", ""))) == 16
    for old, new in (("35.2,", ""), ("35.2,", "-35.2,"), ("35.2,", "0,"), ("35.2,", "1e300,"), ("115.8", "x")):
        results = results_of(text.replace(old, new))
        assert len(results.records) == 16 and [item.where for item in results.left_out] == ["line 3"], new


def test_a_benchmark_that_is_not_known_does_not_lose_the_others() -> None:
    report = json.loads(TEXT)
    report["memory"]["stride-sweep"] = {"Stride": {"0": 64}}
    report["memory"]["idle-latency"]["Node 0"]["Node 1"] = None
    results = results_of("asct 0.6.0\n" + json.dumps(report))
    assert len(results.records) == len(taken_from(TEXT)) - 1
    assert sorted(item.where for item in results.left_out) == [
        "memory: idle-latency: row Node 1: Node 0",
        "memory: stride-sweep",
    ]
