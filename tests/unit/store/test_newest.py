"""Tests of the search for the newest results of a machine and for runs in compacted files, without a full read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshmark.errors import UsageError
from meshmark.store.compaction import compact
from meshmark.store.layout import INDEX, result_files
from meshmark.store.newest import first_start, newest
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.made_run import bandwidth, everything


def at(records: Sequence[Record], day: int, **more: object) -> list[Record]:
    start = {"start": f"2026-10-{day:02}T10:00:00Z"}
    return [replace(r, conditions={**r.conditions, **more}, provenance={**r.provenance, **start}) for r in records]


def days(rows: Sequence[tuple[str, str, Record]]) -> set[str]:
    return {str(r.provenance["start"])[8:10] for _, _, r in rows}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with three runs, the last of which has only bandwidth."""
    new_store = Store(tmp_path / "store")
    for day, records in ((3, everything()), (5, everything()), (7, bandwidth())):
        new_store.add(f"run-202610{day:02}T1000", "all", at(records, day, steal_share=day / 100))
    return new_store


def test_each_point_is_of_the_newest_run_that_has_it(store: Store) -> None:
    result = newest(store, "made-up")
    assert result.runs == 3 and days(result.rows) == {"05", "07"}
    by_day = {day: {r.instrument for _, _, r in result.rows if days([("", "", r)]) == {day}} for day in ("05", "07")}
    assert by_day["07"] == {"bandwidth"} and "bandwidth" not in by_day["05"]
    assert len(result.rows) == len(everything())


def test_repetitions_within_the_newest_run_are_all_there(store: Store) -> None:
    store.add("run-20261007T1000", "all_2", at(bandwidth(), 7))
    rows = [row for row in newest(store, "made-up").rows if row[2].instrument == "bandwidth"]
    assert len(rows) == 2 * len(bandwidth())


def test_all_results_of_a_single_run_are_the_newest(tmp_path: Path) -> None:
    store = Store(tmp_path / "single")
    store.add("run-20261003T1000", "all", at(everything(), 3))
    store.add("run-20261003T1000", "all_2", at(bandwidth(), 4))
    result = newest(store, "made-up")
    assert result.runs == 1 and len(result.rows) == len(everything()) + len(bandwidth())


def test_a_point_that_only_json_tells_apart_is_not_lost(store: Store) -> None:
    store.add("run-20261009T1000", "all", at(bandwidth(), 9, own_condition="x"))
    assert days(newest(store, "made-up").rows) == {"05", "07", "09"}


def test_later_runs_can_be_left_out(store: Store) -> None:
    result = newest(store, "made-up", "2026-10-05")
    assert (result.runs, days(result.rows)) == (2, {"05"})
    assert newest(store, "made-up", "2026-10-01").rows == []
    assert first_start(store, "made-up") == "2026-10-03T10:00:00Z"
    assert (newest(store, "other").rows, first_start(store, "other")) == ([], "")


def test_a_run_that_ended_after_midnight_began_on_the_day_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "night")
    store.add("run-20261003T2358", "early", at(everything()[:3], 3))
    store.add("run-20261003T2358", "late", at(bandwidth(), 4))
    assert len(newest(store, "made-up", "2026-10-03").rows) == 3 + len(bandwidth())
    assert not newest(store, "made-up", "2026-10-02").rows


@pytest.mark.parametrize("until", ["yesterday", "2026-10-05' OR '1", "{rows}"])
def test_a_date_that_is_none_is_refused(store: Store, until: str) -> None:
    with pytest.raises(UsageError, match=r"date: found '.*'; allowed: a date and time or its first part"):
        newest(store, "made-up", until)


def test_conditions_that_are_no_json_do_not_hide_the_others(store: Store) -> None:
    (path,) = (p for p in store.files() if "20261003" in p.name)
    table = pq.read_table(path)
    broken = pa.array(["{"] * table.num_rows)
    store.write(path, table.set_column(table.column_names.index("conditions"), "conditions", broken))
    assert {"05", "07"} <= days(newest(store, "made-up").rows)
    assert next(iter(store.broken.values())).startswith("inconsistent row: ")


@pytest.fixture
def compacted(tmp_path: Path) -> Store:
    """Return a store of two machines, each with a compacted file of two runs."""
    new_store = Store(tmp_path / "store")
    for machine in ("a", "b"):
        for day in (3, 5):
            run = f"{machine}-202610{day:02}T1000"
            new_store.add(run, "all", [replace(r, machine=machine) for r in at(bandwidth()[:2], day)])
            new_store.finish(run)
    compact(new_store, "2026-11-01")
    return new_store


def test_a_run_is_sought_only_in_files_that_may_have_it(compacted: Store) -> None:
    assert [entry.path.parent.name for entry in result_files(compacted.folder, "a-20261003T1000")] == ["machine=a"]
    assert len(compacted.rows(run="a-20261003T1000")) == 2
    assert result_files(compacted.folder, "a-20261004T1000") == []


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"compacted~1.parquet": 1}'])
def test_a_damaged_index_hides_nothing(compacted: Store, damage: str) -> None:
    (index,) = compacted.folder.glob(f"*/{INDEX}")
    index.write_text(damage)
    assert len(compacted.rows(run="b-20261005T1000")) == 2
    assert {problem for _, problem in compacted.verify()} == {""}


def test_what_is_compacted_later_is_in_the_index_too(compacted: Store) -> None:
    compacted.add("a-20261009T1000", "all", [replace(r, machine="a") for r in at(bandwidth()[:2], 9)])
    compacted.finish("a-20261009T1000")
    compact(compacted, "2026-11-01")
    for run in ("a-20261003T1000", "a-20261009T1000"):
        assert len(compacted.rows(run=run)) == 2
    assert [entry.path.parent.name for entry in result_files(compacted.folder, "b-20261003T1000")] == ["machine=b"]
    assert compacted.remove("b-20261003T1000") == 1
    assert compacted.rows(run="b-20261003T1000") == [] and len(compacted.rows(run="b-20261005T1000")) == 2


@pytest.mark.parametrize("text", ["\udcff", "\ud800"])
def test_a_name_that_is_not_utf_8_has_no_results(store: Store, text: str) -> None:
    assert newest(store, text).rows == []
    assert store.rows(run=text) == store.rows(machine="made-up", metric=text) == []
