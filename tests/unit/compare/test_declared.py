"""Tests of declared properties of a machine beside measured ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from meshmark.compare.declared import Declaration, absent, declarations
from meshmark.compare.exports.base import ExportMaterial
from meshmark.compare.sides import ResultSide
from meshmark.errors import UsageError
from meshmark.machine.capture import open_machine
from meshmark.machine.facts import node_performance
from meshmark.machine.topology import Cache
from meshmark.machine.tree import FileTree
from meshmark.store.record import Record
from support.cli import meshmark
from support.made_matrix import bandwidth, latency, machine
from support.made_run import record


def material(name: str, records: list[Record], **facts: Any) -> ExportMaterial:
    opened_machine = open_machine(str(machine(name)))
    side = ResultSide(name=name, what="made", machine="made-up", start="", records=records)
    return ExportMaterial(side=side, opened=replace(opened_machine, facts={**opened_machine.facts, **facts}))


def found(rows: list[Declaration], part: str, quantity: str) -> Declaration:
    (row,) = (r for r in rows if (r.part, r.quantity) == (part, quantity))
    return row


@pytest.fixture
def cxl() -> ExportMaterial:
    """Return a machine that declares latencies of 80 ns, 240 ns from the memory-only node, and distances 10, 21, 30."""
    topology = open_machine(str(machine("cxl-2+1"))).topology
    ns = {(0, 0): 81.0, (0, 1): 170.0, (0, 2): 400.0, (1, 1): 80.0, (1, 0): 130.0, (1, 2): 300.0}
    records = [*latency(topology, ns), *bandwidth(topology, {(0, 0): 20.0, (1, 1): 30.0}, footprint_bytes=2**36)]
    return material("cxl-2+1", records)


def test_distances_are_judged_pair_by_pair(cxl: ExportMaterial) -> None:
    rows = declarations(cxl)
    near, short = (
        found(rows, "node 0 to node 1", "relative latency"),
        found(rows, "node 1 to node 0", "relative latency"),
    )
    assert near.declared == short.declared == 2.1
    assert (near.word, short.word) == ("agrees", "measured lower")
    assert near.value == pytest.approx(170 / 81, rel=1e-2) and near.ratio is not None
    assert near.ratio.value == pytest.approx(170 / 81 / 2.1, rel=1e-2)
    far = found(rows, "node 0 to node 2", "relative latency")
    assert far.declared == 3 and far.word == "measured higher"
    assert not [r for r in rows if r.part.startswith("node 2") and r.source == "SLIT"], "it has no CPUs"


def test_latency_and_bandwidth_of_the_firmware_are_judged(cxl: ExportMaterial) -> None:
    rows = declarations(cxl)
    assert found(rows, "node 0 to node 0", "latency").word == "agrees"
    assert found(rows, "node 0 to node 0", "latency").declared == pytest.approx(80e-9)
    (memory,) = (r for r in rows if r.part.endswith("to node 2") and r.quantity == "latency")
    assert memory.declared == pytest.approx(240e-9) and memory.word == "measured higher"
    local = found(rows, "node 1 to node 1", "bandwidth")
    assert local.declared == pytest.approx(20000 * 2**20) and local.word == "measured higher"


def test_what_was_not_measured_says_so(cxl: ExportMaterial) -> None:
    (unmeasured,) = (r for r in declarations(cxl) if r.part.endswith("to node 2") and r.quantity == "bandwidth")
    assert (unmeasured.word, unmeasured.value, unmeasured.ratio) == ("not measured", None, None)


def capacity(level: int, size: float, after: int | None, count: int = 1) -> Record:
    c = {"level": level, "kind": "cache", "pages": "thp", "next_bytes": after}
    return record("latency", "level_capacity", size, count=count, **c)


@pytest.mark.parametrize(
    ("size", "after", "word", "reason"),
    [
        (2**20, 2**21, "agrees", ""),
        (2**19, 2**20, "agrees", ""),
        (2**18, 2**19, "measured lower", ""),
        (2**22, 2**23, "measured higher", ""),
        (2**20, None, "inconclusive", "the curve ends in this cache"),
    ],
)
def test_a_cache_agrees_if_it_ends_between_two_footprints(
    size: float, after: int | None, word: str, reason: str
) -> None:
    subject = material("numa-2", [capacity(2, size, after)])
    assert subject.opened is not None
    cache = Cache(level=2, kind="unified", size_bytes=2**20, line_bytes=64, ways=8, cpus=(0,))
    subject.opened = replace(subject.opened, topology=replace(subject.opened.topology, caches=(cache,)))
    row = found(declarations(subject), "L2", "capacity")
    assert (row.word, row.reason) == (word, reason)


@pytest.mark.parametrize(("gb", "word"), [(90, "within"), (30, "within"), (140, "measured higher")])
def test_a_peak_is_a_limit(gb: float, word: str) -> None:
    gross = record("bandwidth", "bandwidth_gross", gb * 1e9, kernel="triad", footprint_bytes=2**40, threads=2)
    subject = material("numa-2", [gross], memory={"peak_bytes_per_s": 100_000_000_000})
    assert found(declarations(subject), "memory", "bandwidth").word == word


def test_flagged_results_are_shown_and_judged_on_request_only(cxl: ExportMaterial) -> None:
    """An earlier version reported them as "not measured", with an empty reason."""
    flagged_records = [replace(r, flags=frozenset({"stolen"})) for r in [*cxl.side.records, capacity(2, 2**20, 2**21)]]
    flagged_only = ExportMaterial(side=replace(cxl.side, records=flagged_records), opened=cxl.opened)
    default_rows, judged_rows = declarations(flagged_only), declarations(flagged_only, flagged=True)
    clean_rows = declarations(cxl)
    by_part = {(r.part, r.quantity, r.source): r for r in clean_rows}
    for row, judged_row in zip(default_rows, judged_rows, strict=True):
        assert row.value == judged_row.value
        if row.value is None:
            assert (row.word, judged_row.word) == ("not measured", "not measured")
        else:
            assert (row.word, row.reason) == ("inconclusive", "flagged; --flagged judges it")
            if row.quantity != "capacity":
                assert judged_row.word == by_part[row.part, row.quantity, row.source].word
    assert {r.word for r in judged_rows} > {"agrees", "measured higher", "measured lower"}


def test_what_is_missing_names_the_command_that_measures_it(cxl: ExportMaterial) -> None:
    commands = {r.quantity: r.command for r in declarations(cxl)}
    assert commands["capacity"] == "meshmark measure latency"
    assert commands["relative latency"] == commands["latency"] and "--memory-node all" in commands["latency"]
    assert commands["bandwidth"].startswith("meshmark measure bandwidth")


def test_what_is_not_declared_is_named() -> None:
    lines = absent(material("uma-2", []))
    assert "SLIT: the machine has one memory node" in lines
    assert any(line.startswith("peak of the memory: ") for line in lines)


def test_the_kernel_is_read_in_si_units(tmp_path: Any) -> None:
    initiators = tmp_path / "sys/devices/system/node/node1/access0/initiators"
    (initiators / "node0").mkdir(parents=True)
    for name, text in (("read_latency", "120"), ("read_bandwidth", "1000"), ("write_latency", "what")):
        (initiators / name).write_text(f"{text}\n")
    (row,) = node_performance(FileTree(tmp_path))  # type: ignore[misc]
    assert row == {
        "target": 1,
        "initiators": [0],
        "access": 0,
        "read_latency_s": pytest.approx(120e-9),
        "read_bytes_per_s": 1000 * 2**20,
    }


def test_another_machine_needs_its_topology(tmp_path: Any) -> None:
    file = tmp_path / "n.jsonl"
    file.write_text(json.dumps({"type": "result", "schema": 1, **capacity(2, 2**20, 2**21).to_json()}) + "\n")
    completed = meshmark("machine", "declared", str(file))
    assert completed.returncode == 2 and "found no topology of made-up" in completed.stderr
    completed = meshmark("machine", "declared", str(file), "--topology", str(machine("numa-2")))
    assert completed.returncode == 2 and "the results are of made-up" in completed.stderr
    completed = meshmark("machine", "declared", str(file), "--topology", "pack:2 [numa] l2:1(size=1MB) pu:1", "--json")
    assert completed.returncode == 0, completed.stderr
    assert next(json.loads(line)["part"] for line in completed.stdout.splitlines()) == "L2"
    with pytest.raises(UsageError):
        declarations(ExportMaterial(side=ResultSide(name="x", what="", machine="x", start="", records=[])))
