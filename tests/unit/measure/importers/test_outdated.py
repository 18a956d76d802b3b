"""Runs that an earlier reader imported are found and replaced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.measure.importers.importing import StepImport, add_to, read_output
from meshmark.measure.importers.outdated import outdated_runs, superseded
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.cli import meshmark

FIXTURES = Path(__file__).parent / "fixtures"


def as_imported_before(record: Record) -> Record:
    """Return the record as the first version of the readers imported it: without a version, and with one thread."""
    provenance = {k: v for k, v in record.provenance.items() if k not in {"reader", "reader_version", "output"}}
    return replace(record, conditions={**record.conditions, "threads": 1}, provenance=provenance)


def filled(store: Store, file: Path) -> list[Record]:
    """Return the records of the file; store them as an earlier version imported them, and a run of Meshmark."""
    records = [*read_output(file).parts[0].records]
    store.add("old", "import", [as_imported_before(r) for r in records])
    store.add("other", "import", [replace(records[0], source="host", provenance={})])
    return records


def test_verify_finds_runs_of_earlier_readers_and_importing_again_replaces_them(tmp_path: Path) -> None:
    file = tmp_path / "n042.txt"
    file.write_bytes((FIXTURES / "stream.txt").read_bytes())
    store = Store(tmp_path / "s")
    records = filled(store, file)
    completed = meshmark("store", "verify", "--store", tmp_path / "s")
    assert completed.returncode == 1 and completed.stdout.startswith(
        "old: imported by version 1 of the reader of stream"
    )
    assert "meshmark store import FILE replaces them" in completed.stderr
    reimport = meshmark("store", "import", file, "--store", tmp_path / "s")
    assert reimport.returncode == 0 and reimport.stderr.splitlines() == [f"imported {len(records)}", "replaced old"]
    assert meshmark("store", "verify", "--store", tmp_path / "s").returncode == 0
    rows = [json.loads(line) for line in meshmark("store", "export", "--store", tmp_path / "s").stdout.splitlines()]
    assert [row["conditions"]["threads"] for row in rows if row["run"] != "other"] == [
        r.conditions["threads"] for r in records
    ]


def test_a_run_keeps_its_name_and_other_outputs_are_not_replaced(tmp_path: Path) -> None:
    file, other = tmp_path / "n042.txt", tmp_path / "b" / "n042.txt"
    file.write_bytes((FIXTURES / "stream.txt").read_bytes())
    other.parent.mkdir()
    other.write_text(file.read_text().replace("Copy:    ", "Copy:   1").replace("Add:     ", "Add:    1"))
    store = Store(tmp_path / "s")
    records = filled(store, file)
    assert superseded(store, read_output(other).parts) == []
    parts = read_output(file).parts
    assert superseded(store, parts) == ["old"]
    assert add_to(store, parts, "old", ["old"]) == [("old", len(records))]
    assert outdated_runs(store) == [] and len(store.query(run="old")) == len(records)


def stored(record: Record, **provenance: Any) -> Record:
    return replace(record, provenance={**record.provenance, **provenance})


def read_stream(folder: Path, name: str = "n042") -> StepImport:
    file = folder / f"{name}.txt"
    file.write_bytes((FIXTURES / "stream.txt").read_bytes())
    return read_output(file).parts[0]


@pytest.mark.parametrize(("version", "is_outdated"), [(1, True), (10**6, False), ("1", False), (None, False)])
def test_a_run_of_an_earlier_version_is_outdated(tmp_path: Path, version: Any, is_outdated: bool) -> None:
    store, part = Store(tmp_path / "s"), read_stream(tmp_path)
    store.add("old", "import", [stored(record, reader_version=version) for record in part.records])
    store.add("new", "import", list(part.records))
    store.add("unknown", "import", [stored(part.records.first, reader="nosuch", reader_version=1)])
    runs = outdated_runs(store)
    assert [run.run for run in runs] == ["old"] * is_outdated
    for run in runs:
        digest = part.records.first.provenance["output"]
        assert (run.machine, run.tool, run.version, run.output) == (part.machine, "stream", 1, digest)
        assert str(run).startswith(f"old: imported by version 1 of the reader of stream, now {run.current}: ")


def test_the_digest_of_the_output_tells_whether_a_run_is_replaced(tmp_path: Path) -> None:
    store, part = Store(tmp_path / "s"), read_stream(tmp_path)
    store.add("same", "import", [stored(record, reader_version=1) for record in part.records])
    store.add("other", "import", [stored(record, reader_version=1, output="0123") for record in part.records])
    assert superseded(store, [part, part]) == ["same"]
    assert superseded(store, [read_stream(tmp_path, "n043")]) == []
    assert superseded(store, []) == []
    host = StepImport(replace(record, source="host") for record in part.records)
    assert superseded(store, [host]) == []


def test_without_a_digest_half_of_the_values_are_the_same(tmp_path: Path) -> None:
    part = read_stream(tmp_path)
    values = [record.value for record in part.records]
    assert len(set(values)) >= 4
    old_records = [as_imported_before(record) for record in part.records]

    def others(count: int) -> list[Record]:
        return [replace(old_records[0], value=1.5 + i, samples=(1.5 + i,), conditions={"i": i}) for i in range(count)]

    for name, records, is_replaced in [
        ("two", old_records[:2], False),
        ("three", old_records[:3], True),
        ("half", old_records[:4] + others(4), True),
        ("less", old_records[:4] + others(5), False),
    ]:
        store = Store(tmp_path / name)
        store.add(name, "import", records)
        assert superseded(store, [part]) == [name] * is_replaced, name
