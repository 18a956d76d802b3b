"""Tests that records in little memory are the same records in the same order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.measure.importers.importing import StepImport
from meshmark.measure.importers.packed import PackedRecords
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.made_run import everything

MANY = 20_007  # two parts are packed, and seven records are not


@pytest.fixture(scope="module")
def many() -> list[Record]:
    """Return more records than one part, which differ in conditions, machines and starts."""
    records = everything()
    return [
        replace(
            records[i % len(records)],
            machine=f"n{i % 3}",
            conditions={**records[i % len(records)].conditions, "index": i, "rare": "x" if i == 12_345 else None},
            provenance={"start": f"2026-10-{3 + i % 5:02}T10:00:00Z"},
        )
        for i in range(MANY)
    ]


@pytest.fixture(scope="module")
def packed(many: list[Record]) -> PackedRecords:
    return PackedRecords(many)


def test_records_and_their_order_are_kept(many: list[Record], packed: PackedRecords) -> None:
    assert len(packed) == MANY and [*packed] == many
    assert packed.first == many[0] == PackedRecords(many[:3]).first
    assert many[12_345] in packed and replace(many[0], machine="other") not in packed


def test_a_store_has_the_rows_that_it_would_have_without_packing(
    many: list[Record], packed: PackedRecords, tmp_path: Path
) -> None:
    stores = [Store(tmp_path / name) for name in ("records", "tables")]
    stores[0].add("run", "step", many)
    stores[1].add_tables("run", "step", packed.tables("run", "step"))
    rows = []
    for store in stores:
        store.finish("run")
        assert len(store.files()) == 3 and all(row[:2] == ("run", "step") for row in store.rows())
        rows.append(sorted(store.query(), key=lambda r: str(r.conditions["index"])))
    assert rows[0] == rows[1] == sorted(many, key=lambda r: str(r.conditions["index"]))


def test_a_step_is_named_by_its_content_in_any_order(many: list[Record]) -> None:
    step, reversed_step = StepImport(many), StepImport(many[::-1])
    assert step.digest == reversed_step.digest and step.start == "2026-10-03T10:00:00Z"
    assert step.name == f"n0-20261003T100000Z-{step.digest}"
    assert StepImport(many[1:]).digest != step.digest
