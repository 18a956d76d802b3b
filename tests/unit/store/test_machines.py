"""Tests of the table of machines: the software and settings under which results were measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from meshmark.cli.results.store import app
from meshmark.machine.boot import boot_facts, remember
from meshmark.machine.facts import host_id
from meshmark.store.machines import FACTS, add_machine, changes, machines, without_facts
from meshmark.store.record import Metric, Record
from meshmark.store.store import Store

A = {"boot": "b1", "kernel": "6.1", "thp": "madvise"}
B = {**A, "thp": "always"}


def test_a_row_is_added_only_for_what_changed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for day, facts in enumerate((A, A, B, B, A)):
        add_machine(store, "n042", facts, f"2026-11-2{day}T00:00:00+00:00")
    add_machine(store, "n043", A, "2026-11-20T12:00:00+00:00")
    rows = machines(store, "n042")
    assert [(row["seen"][:10], row["thp"]) for row in rows] == [
        ("2026-11-20", "madvise"),
        ("2026-11-22", "always"),
        ("2026-11-24", "madvise"),
    ]
    assert "governor" not in rows[0], "what is unknown is left out"
    assert {row["machine"] for row in machines(store)} == {"n042", "n043"}
    assert not [problem for _, problem in store.verify() if problem]


def test_what_changed_since_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    later_facts = {"boot": "b2", "kernel": "6.12", "thp": "always", "governor": "performance"}
    for day, facts in ((10, A), (12, B), (14, later_facts), (16, {**later_facts, "boot": "b3"})):
        add_machine(store, "m", facts, f"2026-11-{day}")
    rows = machines(store, "m")
    expected = ["kernel 6.1 → 6.12", "governor unknown → performance"]
    assert changes(rows, "2026-11-12T03") == expected
    assert changes(rows, "2026-11-11") == [*expected, "thp madvise → always"] == changes(rows, "2026-01-01")
    assert changes(rows, "2026-11-14") == ["a new boot"]
    assert changes(rows, "2026-11-16") == [] == changes([], "2026-11-16")


def test_this_host_is_remembered_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(2):
        remember(store)
    (row,) = machines(store)
    assert row["machine"] == host_id() and row["kernel"] and row["boot"]
    assert {k: row[k] for k in FACTS if k in row} == boot_facts()


def test_facts_hold_from_the_results_that_were_made_under_them(tmp_path: Path) -> None:
    record = Record.from_samples(
        Metric("x", "s", "lower", ""), (1.0,), source="host", machine="m", instrument="i", conditions={}, provenance={}
    )
    starts = ("2026-11-20T01:02:03.5Z", "", "2026-11-20T01:02:04Z")
    remember(Store(tmp_path), [replace(record, provenance={"start": s} if s else {}) for s in starts])
    assert [row["seen"] for row in machines(Store(tmp_path))] == [starts[0]]


def test_a_tree_without_facts_has_none(tmp_path: Path) -> None:
    assert boot_facts(tmp_path) == {}


def test_damaged_rows_are_skipped_and_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    add_machine(store, "m", A, "2026-11-20")
    (path,) = (tmp_path / "machines").iterdir()
    (path.parent / "torn.machine.parquet").write_bytes(path.read_bytes()[:100])
    table = pq.read_table(path)
    pq.write_table(table.set_column(1, "seen", pa.array([None], pa.string())), path.parent / "x.machine.parquet")
    assert [row["thp"] for row in machines(store)] == ["madvise"]
    assert {p.name for p in store.broken} == {"torn.machine.parquet", "m"}
    assert {p.name for p, problem in store.verify() if problem} == {"torn.machine.parquet", "x.machine.parquet"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command_lists_machines(tmp_path: Path, form: list[str]) -> None:
    add_machine(Store(tmp_path), "n042", A, "2026-11-20T00:00:00+00:00")
    completed = CliRunner().invoke(app, ["machines", "--store", str(tmp_path), *form])
    assert completed.exit_code == 0 and "n042" in completed.output and "madvise" in completed.output


def test_machines_of_imported_results_are_listed_with_their_source(tmp_path: Path) -> None:
    store = Store(tmp_path)
    metric = Metric("load_latency", "time", "s", "lower")
    for machine, source in (("colleague", "tool"), ("here", "host")):
        record = Record.from_samples(
            metric, [1e-7], source=source, machine=machine, instrument="latency", conditions={}, provenance={}
        )
        store.add(f"run-{machine}", "step", [record])
        store.finish(f"run-{machine}")
    add_machine(store, "here", A, "2026-11-20T00:00:00+00:00")
    (row,) = without_facts(Store(tmp_path))
    assert {k: row[k] for k in ("machine", "source", "records")} == {
        "machine": "colleague",
        "source": "tool",
        "records": "1",
    }
    completed = CliRunner().invoke(app, ["machines", "--store", str(tmp_path)])
    assert (
        completed.exit_code == 0
        and "colleague from an unknown time" in completed.output
        and "source" in completed.output
    )
