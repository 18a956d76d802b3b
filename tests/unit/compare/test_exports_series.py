"""Tests of exports to other tools, each of which is read back by the parser of the tool if there is one."""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from prometheus_client.parser import text_string_to_metric_families

from meshmark.compare.exports.base import ExportMaterial
from meshmark.compare.exports.formats import write
from meshmark.compare.exports.series import name_of, point_of
from meshmark.errors import AbsentError, UsageError
from meshmark.measure.importers.memory.mess import recognises
from meshmark.store.record import Record
from support.imports import records_of
from support.made_matrix import bandwidth, latency, lines, material, topology
from support.made_run import record, the_rest

NUMA = topology("numa-2")
NS = {(0, 0): 95.0, (0, 1): 190.0, (1, 0): 185.0, (1, 1): 96.0}
GB = {(0, 0): 60.0, (0, 1): 30.0, (1, 0): 25.0, (1, 1): 60.0}


# ------------------------------------------------------------------ Mess


def loaded(threads: int = 4, mode: str = "paced", flags: Sequence[str] = ()) -> list[Record]:
    points = []
    for share in (1.0, 0.5):
        for pause in (0, 16, 256):
            c = {"mode": mode, "chains": 1, "threads": threads, "read_share": share, "pause": pause, "pages": "thp"}
            rate = threads * 1e10 / (1 + pause) ** 0.5
            points.append(record("loaded", "bandwidth_net", rate, flags, memory_node="local", **c))
            points.append(record("loaded", "load_latency", 1e-7 + rate * 1e-18, flags, memory_node="local", **c))
    return points


def test_mess_curves_come_back_through_the_importer() -> None:
    records = loaded()
    subject = material("", [*records, *loaded(threads=1)])
    text = write("mess", subject)
    assert recognises(text)
    imported_records = records_of(text)
    key = ("read_share", "injected_pause")

    def values(found: Sequence[Record], pause: str) -> dict[tuple[object, ...], float]:
        return {(r.metric, r.conditions["read_share"], r.conditions[pause]): r.value for r in found}

    assert values(imported_records, key[1]) == pytest.approx(values(records, "pause"), rel=1e-5)
    assert any("threads 4" in note for note in subject.notes)
    assert subject.left_out() == ["left out 12 results: points of another curve (mode, threads, memory node, pages)"]


def test_mess_needs_both_numbers_of_a_point() -> None:
    latencies = [r for r in loaded() if r.metric == "load_latency"]
    for records in (latencies, loaded(flags=["stolen"])):
        with pytest.raises(AbsentError, match="no measured latency under load") as error:
            write("mess", material("", records))
        assert error.value.hint.startswith("meshmark measure loaded --mode paced")


# ------------------------------------------------------------------ SimGrid


def simgrid_records() -> list[Record]:
    conditions = {"kernel": "copy", "store": "ordinary", "threads": 1, "footprint_bytes": 2**30}
    speed = record("peak", "flop_rate", 5e10, type="fp64", isa="avx2", threads=1, cpus="0")
    return [
        *lines(NUMA),
        *bandwidth(NUMA, GB),
        speed,
        record("bandwidth", "bandwidth_net", 12e9, cpus="0", **conditions),
    ]


def test_a_simgrid_platform_joins_all_cores() -> None:
    text = write("simgrid", material("numa-2", simgrid_records()))
    assert re.search(r"<!DOCTYPE platform\s+SYSTEM 'https://simgrid.org/simgrid.dtd'>", text)
    platform = ElementTree.fromstring(text)
    assert platform.get("version") == "4.1"
    (zone,) = platform.findall("zone")
    tags = [child.tag for child in zone]
    order = ["host", "router", "link", "route"]  # as the document type requires
    assert [t for i, t in enumerate(tags) if i == 0 or tags[i - 1] != t] == order
    links = {e.get("id"): e for e in zone.findall("link")}
    ends = {e.get("id") for e in [*zone.findall("host"), *zone.findall("router")]}
    targets: dict[str | None, set[str | None]] = {}
    for route in zone.findall("route"):
        assert {route.get("src"), route.get("dst")} <= ends
        assert {c.get("id") for c in route.findall("link_ctn")} <= links.keys() and len(route)
        targets.setdefault(route.get("src"), set()).add(route.get("dst"))
    assert targets == {**{f"cpu{c}": {f"node{c // 2}"} for c in range(4)}, "node0": {"node1"}}
    assert float(links["link_cpu0"].get("latency", "")[:-2]) == pytest.approx(20, rel=0.02)
    link = links["link_node0_node1"]
    assert float(link.get("latency", "")[:-2]) == pytest.approx(100, rel=0.03)
    assert float(link.get("bandwidth", "")[:-3]) == pytest.approx(25e9, rel=0.02), "the lower direction"


@pytest.mark.parametrize(
    ("without", "says", "hint"),
    [
        ("lines", "latency of the transfer of a line", "meshmark measure lines"),
        ("peak", "speed of a core", "meshmark measure peak"),
        ("bandwidth", "bandwidth of one thread", "meshmark measure bandwidth"),
    ],
)
def test_a_platform_needs_speed_lines_and_bandwidth(without: str, says: str, hint: str) -> None:
    records = [r for r in simgrid_records() if r.instrument != without]
    with pytest.raises(AbsentError, match=f"no measured {says}") as error:
        write("simgrid", material("numa-2", records))
    assert error.value.hint.startswith(hint)


def test_nodes_that_were_not_measured_have_no_link() -> None:
    subject = material("numa-2", [r for r in simgrid_records() if r.conditions.get("memory_node") != 1])
    text = write("simgrid", subject)
    assert "link_node0_node1" in text and "bus_node1" not in text
    assert any("node 1: bandwidth not measured" in note for note in subject.notes)


# ------------------------------------------------------------------ Prometheus


def test_prometheus_reads_every_result_and_its_interval() -> None:
    records = [*latency(NUMA, NS), *the_rest()]
    text = write("openmetrics", material("numa-2", records))
    families = {f.name: f for f in text_string_to_metric_families(text)}
    times = families["meshmark_result_latency_load_latency_seconds"]
    assert times.type == "gauge" and len(times.samples) == 4
    value_by_pair = {(s.labels["cpu"], s.labels["memory_node"]): s.value for s in times.samples}
    assert value_by_pair == {
        (str(r.conditions["cpu"]), str(r.conditions["memory_node"])): r.value for r in latency(NUMA, NS)
    }
    low = families["meshmark_result_latency_load_latency_low_seconds"].samples
    assert all(a.value <= b.value for a, b in zip(low, times.samples, strict=True))
    assert families["meshmark_result_io_bandwidth_net_bytes_per_second"].samples[0].labels["direction"] == "read"
    assert "meshmark_result_newest_timestamp_seconds" in families
    assert all(s.timestamp is None for f in families.values() for s in f.samples), "the collector refuses them"


def test_flags_are_a_label() -> None:
    records = latency(NUMA, NS, flags=["stolen", "disturbed"])
    text = write("openmetrics", material("numa-2", records, flagged=True))
    assert 'flags="disturbed,stolen"' in text
    with pytest.raises(AbsentError, match="found no measured result without flags"):
        write("openmetrics", material("numa-2", records))


# ------------------------------------------------------------------ NFD


def test_labels_obey_kubernetes() -> None:
    records = [*latency(NUMA, NS), *lines(NUMA), *bandwidth(NUMA, GB), *the_rest()]
    text = write("nfd", material("numa-2", records))
    labels = dict(line.split("=") for line in text.splitlines() if not line.startswith("#"))
    names = re.compile(r"feature\.node\.kubernetes\.io/[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
    assert all(names.fullmatch(n) for n in labels)
    assert all(re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", v) for v in labels.values())
    prefix = "feature.node.kubernetes.io/meshmark-"
    assert float(labels[f"{prefix}latency-remote-ns"]) == 190 and float(labels[f"{prefix}latency-local-ns"]) in {95, 96}
    assert labels[f"{prefix}bandwidth-gbyte-per-s"] in {"60", "61"}
    assert len(text.encode()) < 65536


def test_without_a_topology_labels_have_no_latency() -> None:
    subject = material("", bandwidth(NUMA, GB))
    assert "latency" not in write("nfd", subject) and any("--topology FILE" in note for note in subject.notes)


# ------------------------------------------------------------------ Otava


def history(days: int = 3) -> ExportMaterial:
    rows = []
    for day in range(1, days + 1):
        for r in latency(NUMA, NS):
            start = f"2026-11-0{day}T10:00:00Z"
            rows.append((f"run-{day}", "latency.r1", replace(r, provenance={**r.provenance, "start": start})))
    gups = record("gups", "update_rate", 1e8, table_bytes=2**30, kernel="plain", threads=1, pages="thp")
    rows.append(("run-1", "gups.r1", replace(gups, provenance={"start": "2026-11-01T10:00:00Z"})))
    return replace(material("", latency(NUMA, NS)), rows=rows)


def test_otava_gets_a_row_for_each_run_without_empty_cells() -> None:
    subject = history()
    rows = list(csv.DictReader(write("otava", subject).splitlines()))
    assert [row["run"] for row in rows] == ["run-1", "run-2", "run-3"]
    assert [row["time"][:10] for row in rows] == ["2026-11-01", "2026-11-02", "2026-11-03"]
    columns = set(rows[0]) - {"time", "run"}
    assert columns == {name_of(r) for r in latency(NUMA, NS)} and all(
        float(row[c]) > 0 for row in rows for c in columns
    )
    assert subject.left_out() == [
        "left out 1 result: of a point that not all exported runs have, or of a run that lacks exported points"
    ]


def test_a_history_needs_two_runs_in_the_store() -> None:
    with pytest.raises(AbsentError, match="found 1 run of n042"):
        write("otava", history(days=1))
    with pytest.raises(UsageError, match="found no runs of n042 in the store"):
        write("otava", material("", latency(NUMA, NS)))


def test_a_history_ends_with_its_side() -> None:
    subject = history()
    subject.side = replace(subject.side, start="2026-11-02T10:00:00Z")
    assert len(write("otava", subject).splitlines()) == 3


# ------------------------------------------------------------------ ReFrame


def test_references_are_python_with_open_better_sides() -> None:
    records = [*latency(NUMA, {(0, 0): 95.0}), *bandwidth(NUMA, {(0, 0): 60.0})]
    single = record("latency", "load_latency", 1e-7, count=3, cpu=1, memory_node=1)
    subject = material("numa-2", [*records, single])
    text = write("reframe", subject)
    (assignment,) = ast.parse(text).body
    assert isinstance(assignment, ast.Assign)
    references = ast.literal_eval(assignment.value)["n042"]
    units = {unit: (low, high) for _, low, high, unit in references.values()}
    assert units["s"][0] is None and units["s"][1] >= 0.02 and units["B/s"][0] <= -0.02 and units["B/s"][1] is None
    assert subject.left_out() == ["left out 1 result: no interval (fewer than 6 samples), so no bounds"]


def test_the_bounds_of_a_reference_hold_the_interval() -> None:
    (r,) = latency(NUMA, {(0, 0): 95.0})
    wide = replace(r, interval=(80e-9, 110e-9))
    text = write("reframe", material("numa-2", [wide]))
    ((value, _, high, _),) = ast.literal_eval(text.partition("reference = ")[2])["n042"].values()
    assert value * (1 + high) >= 110e-9 > value * (1 + high - 1e-3)


# ------------------------------------------------------------------ names


def test_names_differ_where_points_do() -> None:
    sizes = [record("latency", "load_latency", 1e-9, footprint_bytes=b, cpu=0) for b in (2**30, 2**30 - 16, 1536)]
    names = [name_of(r) for r in sizes]
    assert names[0] == "latency.load_latency.cpu_0.footprint_1GiB" and len(set(names)) == 3
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+", n) for n in names)
    assert "observed_node" not in point_of(record("latency", "load_latency", 1e-9, cpu=0, observed_node=0))
