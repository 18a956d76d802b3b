"""Tests of the values of points by run, as the store pools them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from meshmark.describe import descriptions
from meshmark.measure.repetitions import point_key, pool
from meshmark.store.record import Record, median, median_interval
from meshmark.store.series import Series, series
from meshmark.store.store import Store
from support.made_run import bandwidth, latency, record

IDENTITY = sorted({name for d in descriptions().values() for name in d.identity})


def at(records: Iterable[Record], start: str, factor: float = 1.0, **conditions: object) -> list[Record]:
    copies = []
    for r in records:
        samples = tuple(factor * s for s in r.samples)
        summary = {"samples": samples, "value": median(samples), "interval": median_interval(samples)}
        context = {"conditions": {**r.conditions, **conditions}, "provenance": {**r.provenance, "start": start}}
        copies.append(replace(r, machine="n042", **summary, **context))
    return copies


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with two runs; the first has two repetitions under different loads."""
    new_store = Store(tmp_path / "store")
    for i, load in ((1, 0.1), (2, 0.7)):
        new_store.add(
            "first", f"r{i}", at([*bandwidth(), *latency()], f"2026-10-01T10:0{i}:00Z", 1 + i / 100, load_1min=load)
        )
    new_store.add("second", "r1", at(bandwidth(), "2026-11-01T10:00:00Z", 2.0))
    return new_store


def by_key(found: Iterable[Series]) -> dict[str, Series]:
    return {point_key(s.record): s for s in found}


def test_repetitions_are_pooled_as_elsewhere(store: Store) -> None:
    series_by_key = by_key(series(store, "n042", IDENTITY))
    steps = [store.query(run="first", step=f"r{i}") for i in (1, 2)]
    pooled_by_key = {point_key(r): r for r in pool(steps)}
    assert series_by_key.keys() == pooled_by_key.keys()
    for key, pooled_record in pooled_by_key.items():
        first = next(r for r in series_by_key[key].runs if r.run == "first")
        assert first.value == pooled_record.value and first.start == "2026-10-01T10:02:00Z"
        intervals = [sorted(r.interval or r.ends) for step in steps for r in step if point_key(r) == key]
        assert (first.low, first.high) == (min(i[0] for i in intervals), max(i[1] for i in intervals))
        assert first.made_by == {"build": "0", "compiler": "none"} and first.flags == ()
    assert sum(len(s.runs) for s in series_by_key.values()) == len(pooled_by_key) + len(bandwidth())


def test_columns_select(store: Store) -> None:
    assert {s.record.metric for s in series(store, "n042", IDENTITY, metric="bandwidth_net")} == {"bandwidth_net"}
    assert {s.record.instrument for s in series(store, "n042", IDENTITY, instrument="latency")} == {"latency"}
    assert series(store, "n043", IDENTITY) == [] == series(Store(store.folder / "none"), "n042", IDENTITY)


def test_flags_of_any_repetition_count(store: Store) -> None:
    records = at([record("io", "bandwidth_net", 1e9, target=".", direction="read")], "2026-10-01T10:00:00Z")
    for i, flags in enumerate(({"stolen"}, set(), {"disturbed", "stolen"})):
        store.add("flagged", f"r{i}", [replace(r, flags=frozenset(flags)) for r in records])
    (point,) = series(store, "n042", IDENTITY, instrument="io")
    assert [r.flags for r in point.runs] == [("disturbed", "stolen")]


def test_modes_are_left_out_and_quotes_and_braces_in_names_stay(store: Store) -> None:
    (base,) = at([record("io", "bandwidth_net", 1e9, target="it's", direction="read")], "2026-10-01")
    base = replace(base, provenance={**base.provenance, "build": 'a "b" \\ ü'})
    store.add("it's a {run} of {rows}", "r1", [base, replace(base, metric="bandwidth_net_mode")])
    (point,) = series(store, "n042", IDENTITY, instrument="io")
    assert point.record.metric == "bandwidth_net" and point.runs[0].run == "it's a {run} of {rows}"
    assert point.runs[0].made_by["build"] == 'a "b" \\ ü'


def test_a_corrupt_row_is_skipped_and_named(store: Store) -> None:
    (path,) = [p for p in store.folder.rglob("*.parquet") if "second" in p.name]
    table = pq.read_table(path)
    index = table.column_names.index("conditions")
    import pyarrow as pa

    pq.write_table(table.set_column(index, "conditions", pa.array(["{"] * table.num_rows)), path)
    all_series = series(store, "n042", IDENTITY)
    assert {r.run for s in all_series for r in s.runs} == {"first"}
    assert any("inconsistent row" in problem for problem in store.broken.values())
