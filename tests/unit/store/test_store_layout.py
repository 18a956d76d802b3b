"""Tests of the files of a store: their paths, how they are joined, and how other programs read them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshmark.describe import descriptions
from meshmark.measure.repetitions import PLATEAU
from meshmark.store import compaction
from meshmark.store.columns import POINT
from meshmark.store.compaction import compact
from meshmark.store.export import started_between
from meshmark.store.layout import date_of, file_name
from meshmark.store.record import Record
from meshmark.store.run import Absence
from meshmark.store.store import Store
from support.cli import meshmark
from support.made_run import communication, everything

LACKS = Absence(instrument="io", reason="no fio", enable="fio", conditions={"threads": 2, "odd": None})


def on(records: Sequence[Record], machine: str, start: str = "2026-11-21T10:00:00Z") -> list[Record]:
    return [replace(r, machine=machine, provenance={**r.provenance, "start": start}) for r in records]


def alike(records: Sequence[Record]) -> list[str]:
    """Return the records in a form that ignores the order of records and of conditions."""
    return sorted(json.dumps(r.to_json(), sort_keys=True) for r in records)


def names(store: Store) -> set[str]:
    return {str(p.relative_to(store.folder)) for p in store.files()}


def test_each_column_is_of_a_condition_that_identifies_points() -> None:
    identity = {k for d in descriptions().values() for k in d.identity} | {"level", "kind", *PLATEAU}
    assert identity >= POINT.keys()


@pytest.mark.parametrize("records", [everything(), communication()], ids=["host", "ranks"])
def test_records_come_out_as_they_went_in(tmp_path: Path, records: list[Record]) -> None:
    """Values that do not fit the type of a column are kept, too."""
    values = [2**70, True, None, 1.5, "text", float("inf"), "\ud800"]
    odd_records = [replace(records[0], conditions={"threads": v, "pages": v, "latency_factor": v}) for v in values]
    store = Store(tmp_path)
    store.add("r", "s", on([*records, *odd_records], "m"), [LACKS], "m")
    store.finish("r")
    rows = store.query(run="r")
    assert alike(rows) == alike(on([*records, *odd_records[:-1]], "m"))
    assert len(store.broken) == 1, "half a character"
    assert store.absences() == [replace(LACKS, step="s")]


def test_a_finished_run_is_one_file_under_its_date_and_machine(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = "n042-20261124T235959Z-12ab"
    for step in ("a", "b"):
        store.add(run, step, on(everything()[:3], "n042"), [LACKS], "n042")
    assert names(store) == {f"date=2026-11-24/machine=n042/{run}--{step}.parquet" for step in ("a", "b")}
    store.finish(run)
    assert names(store) == {f"date=2026-11-24/machine=n042/{run}.parquet"}
    assert len(store.query(run=run)) == 6 and len(store.absences()) == 2
    # Finishing a run again or an unknown run has no effect.
    store.finish(run)
    store.finish("nothing")
    assert len(store.query()) == 6


def test_a_run_of_several_machines_has_a_file_of_each(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("r", "a", [*on(everything()[:2], "m1"), *on(everything()[:3], "m2")])
    store.finish("r")
    assert len(names(store)) == 2 and len(store.query(run="r")) == 5 and len(store.query(machine="m2")) == 3
    assert store.remove("r") == 2 and not store.files()


def test_a_step_that_was_added_again_replaces_that_of_its_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step in ("a", "b"):
        store.add("r", step, on(everything()[:3], "m"))
    store.finish("r")
    store.add("r", "b", on(everything()[:1], "m"))
    assert len(store.query(run="r")) == 4 and store.runs()[0]["records"] == 4
    store.finish("r")
    assert len(store.query(run="r")) == 4 and len(store.files()) == 1


def test_a_writer_killed_before_it_removed_the_steps_doubles_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("r", "a", on(everything()[:3], "m"))
    (step,) = store.files()
    content = step.read_bytes()
    store.finish("r")
    step.write_bytes(content)
    assert len(store.query()) == 3
    store.finish("r")
    assert len(store.query()) == 3 and not step.exists()


def test_a_step_that_cannot_be_read_stays_when_its_run_is_finished(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step in ("a", "b", "c"):
        store.add("r", step, on(everything()[:3], "m"))
    torn_path = next(p for p in store.files() if p.stem == "r--b")
    torn_path.write_bytes(torn_path.read_bytes()[:99])
    store.finish("r")
    assert {p.stem for p in store.files()} == {"r", "r--b"} and len(store.query()) == 6
    assert store.unreadable("r", "b") and not store.unreadable("r", "a")


def test_a_damaged_run_is_left_in_place(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("r", "a", on(everything()[:3], "m"))
    store.finish("r")
    (run,) = store.files()
    run.write_bytes(torn_bytes := run.read_bytes()[:99])
    store.add("r", "b", on(everything()[:3], "m"))
    store.finish("r")
    assert run.read_bytes() == torn_bytes and len(store.query()) == 3


def filled(folder: Path) -> Store:
    """Return a store with four runs of two machines in October and one run in November."""
    store = Store(folder)
    for machine in ("m1", "m2"):
        for day in ("02", "17"):
            run = f"{machine}-202610{day}T000000Z-0"
            store.add(run, "a", on(everything()[:5], machine, f"2026-10-{day}T00:00:00Z"), [LACKS], machine)
            store.finish(run)
    store.add("m1-20261103T000000Z-0", "a", on(everything()[:5], "m1", "2026-11-03T00:00:00Z"))
    store.finish("m1-20261103T000000Z-0")
    return store


def test_compaction_joins_months_and_changes_no_result(tmp_path: Path) -> None:
    store = filled(tmp_path)
    old_content = sorted(map(repr, store.rows())), store.runs(), sorted(map(repr, store.absences()))
    result = compact(store, "2026-11-01")
    assert (result.joined, result.unreadable) == (4, 0) and len(store.files()) == 3
    assert (sorted(map(repr, store.rows())), store.runs(), sorted(map(repr, store.absences()))) == old_content
    assert len(store.query(run="m1-20261017T000000Z-0")) == 5 and len(store.query(machine="m2")) == 10
    assert not [problem for _, problem in store.verify() if problem]
    assert compact(store, "2026-11-01").joined == 0, "nothing is left to do"
    assert compact(store, "2026-12-01").joined == 0, "one file of a month stays"


def test_a_compaction_that_was_killed_before_it_removed_an_older_one_doubles_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path)
    compact(store, "2026-11-01")
    (older_file,) = (tmp_path / "date=2026-10-01" / "machine=m1").iterdir()
    content = older_file.read_bytes()
    store.add("m1-20261020T000000Z-0", "a", on(everything()[:5], "m1", "2026-10-20T00:00:00Z"))
    store.finish("m1-20261020T000000Z-0")
    compact(store, "2026-11-01")
    for _ in range(2):
        older_file.write_bytes(content)
        assert len(store.query(machine="m1")) == 20 and older_file not in store.files()
        compact(store, "2026-11-01")
        assert not older_file.exists()
    older_file.write_bytes(content)
    for run in {run["run"] for run in store.runs() if run["machine"] == "m1"}:
        store.remove(run)
    assert store.query(machine="m1") == []


def test_a_run_is_removed_from_a_compacted_file(tmp_path: Path) -> None:
    store = filled(tmp_path)
    compact(store, "2026-11-01")
    assert store.remove("m1-20261017T000000Z-0") == 1
    assert {r["run"] for r in store.runs()} == {
        "m1-20261002T000000Z-0",
        "m2-20261002T000000Z-0",
        "m2-20261017T000000Z-0",
        "m1-20261103T000000Z-0",
    }
    assert store.remove("m1-20261002T000000Z-0") == 1 and len(store.files()) == 2, "an empty file is removed"


def test_what_is_added_to_a_compacted_run_replaces_its_step(tmp_path: Path) -> None:
    store = filled(tmp_path)
    compact(store, "2026-11-01")
    run = "m1-20261017T000000Z-0"
    store.add(run, "b", on(everything()[:2], "m1"))
    assert len(store.query(run=run)) == 7
    store.finish(run)
    assert len(store.query(run=run)) == 7
    store.add(run, "a", on(everything()[:1], "m1"))
    assert len(store.query(run=run)) == 3
    store.finish(run)
    assert len(store.query(run=run)) == 3
    compact(store, "2026-11-01")
    assert len(store.query(run=run)) == 3 and len(store.query(machine="m1")) == 13


def test_compaction_finishes_runs_that_nobody_adds_to(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for step in ("a", "b"):
        store.add("r", step, on(everything()[:3], "m"))
    assert compact(store, "2020-01-01").finished == 0, "it may go on"
    for path in store.files():
        os.utime(path, (0, path.stat().st_mtime - 2 * compaction.QUIET_S))
    assert compact(store, "2020-01-01").finished == 2 and len(store.files()) == 1 and len(store.query()) == 6


def test_the_command_compacts(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    completed = meshmark("store", "compact", "--older-than", "0", "--store", tmp_path / "s")
    assert completed.returncode == 0 and "4 of months joined" in completed.stderr and completed.stdout == ""


def test_other_engines_read_the_files(tmp_path: Path) -> None:
    """The queries follow docs/reference/survey.md."""
    filled(tmp_path)
    query = f"""SELECT machine, count(*) AS n, max(footprint_bytes) AS most
                FROM read_parquet('{tmp_path}/date=*/**/*.parquet', union_by_name = true, hive_partitioning = false)
                WHERE status = 'measured' GROUP BY machine ORDER BY machine"""
    rows = duckdb.sql(query).fetchall()
    assert [(m, n) for m, n, _ in rows] == [("m1", 15), ("m2", 10)] and all(largest > 0 for _, _, largest in rows)


@pytest.mark.parametrize(
    ("run", "start", "date"),
    [
        ("n042-20261124T235959Z-12ab", "2020-01-01", "2026-11-24"),
        ("measure-20261124T235959-12ab", "", "2026-11-24"),
        ("old", "2025-03-04T00:00:00Z", "2025-03-04"),
        ("n-20269924T235959Z", "2025-03-04T00:00:00Z", "2025-03-04"),
        ("120261124T2359", "1000000", "unknown"),
    ],
)
def test_a_run_is_filed_under_the_date_in_its_name_or_of_its_start(run: str, start: str, date: str) -> None:
    assert date_of(run, start) == date


def test_names_of_files_have_no_mark_of_ours() -> None:
    for name in ("compacted~1", "a--b", "-", "../x", ".hidden", "ä" * 300, ""):
        stem = file_name(name)
        assert (
            "~" not in stem and "--" not in stem and "/" not in stem and stem[:1] not in {".", ""} and len(stem) < 120
        )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("value", 1.0),
        ("low", None),
        ("high", 1e9),
        ("samples", []),
        ("samples", [1.0, float("nan")]),
        ("samples", [1.0, None]),
        ("flags", ["odd"]),
        ("source", "elsewhere"),
        ("source", None),
        ("better", "larger"),
        ("unit", ""),
        ("machine", None),
        ("conditions", "[1]"),
        ("conditions", "{"),
        ("conditions", '{"x": [1]}'),
        ("provenance", '{"x": "\\ud800"}'),
        ("status", "odd"),
        ("step", None),
    ],
)
def test_any_cell_that_is_wrong_is_found(tmp_path: Path, column: str, value: object) -> None:
    """Files are checked by columns, and by rows only if that fails; both checks must agree on which files are valid."""
    store = Store(tmp_path)
    store.add("r", "s", on(everything(), "m"), [LACKS], "m")
    (path,) = store.files()
    assert [problem for _, problem in store.verify()] == [""]
    table = pq.ParquetFile(path).read()
    index = next(i for i, status in enumerate(table["status"].to_pylist()) if status == "measured") + 3
    cells = table[column].to_pylist()
    changed_column = pa.array([*cells[:index], value, *cells[index + 1 :]], table[column].type)
    pq.write_table(table.set_column(table.column_names.index(column), column, changed_column), path)
    assert [problem for _, problem in store.verify() if problem]


def test_a_stored_duration_below_zero_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("r", "s", [r for r in on(everything(), "m") if r.unit == "s" and len(r.samples) < 6], machine="m")
    (path,) = store.files()
    table = pq.ParquetFile(path).read()
    for column in ("value", "samples"):
        cells = table[column].to_pylist()
        cells[0] = -1.0 if column == "value" else [-1.0]
        table = table.set_column(table.column_names.index(column), column, pa.array(cells, table[column].type))
    pq.write_table(table, path)
    assert [problem for _, problem in store.verify() if "at least 0 is required" in problem]


def test_a_sound_file_needs_no_check_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.add("r", "s", on([*everything(), *communication()], "m"), [LACKS], "m")
    monkeypatch.setattr("meshmark.store.store.record_of", None)
    assert [problem for _, problem in store.verify()] == [""]


def test_records_by_columns_are_those_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    records = on([*everything(), *communication()], "m")
    store.add("r", "s", [*records, replace(records[0], flags=frozenset({"disturbed", "stolen"}))], [LACKS], "m")
    by_columns = store.rows()
    with monkeypatch.context() as patch:
        patch.setattr("meshmark.store.store.record_of", None)
        assert store.rows() == by_columns, "no row was read alone"
    monkeypatch.setattr("meshmark.store.store.records_of", lambda _: None)
    by_rows = store.rows()
    assert by_columns == by_rows and len(by_rows) == len(records) + 1
    for (_, _, a), (_, _, b) in zip(by_columns, by_rows, strict=True):
        assert [*a.conditions.items()] == [*b.conditions.items()] and a.to_json() == b.to_json()


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("--machine", "m2"), 2),
        (("--since", "2026-11"), 1),
        (("--until", "2026-10-02"), 2),
        (("--since", "2026-10-10", "--until", "2026-10"), 2),
        (("--machine", "m1", "--metric", "load_latency"), 3),
        (("--metric", "store_ratio"), 0),
    ],
)
def test_an_export_is_chosen_by_machine_time_and_metric(tmp_path: Path, words: tuple[str, ...], runs: int) -> None:
    filled(tmp_path / "s")
    completed = meshmark("store", "export", *words, "--store", tmp_path / "s")
    assert completed.returncode == 0 and len({json.loads(x)["run"] for x in completed.stdout.splitlines()}) == runs


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s")
    completed = meshmark("store", "export", "--since", "yesterday", "--store", tmp_path / "s")
    assert (
        completed.returncode == 2
        and "--since: found 'yesterday', a date such as 2026-11-25 is required" in completed.stderr
    )


def test_a_time_with_a_letter_z_includes_its_minute() -> None:
    row = ("r", "s", replace(everything()[0], provenance={"start": "2026-11-25T10:00:30.5Z"}))
    for time in ("2026-11-25T10:00Z", "2026-11-25T10:00:30Z", "2026-11-25T10Z", "2026-11"):
        assert started_between(row, since=time) and started_between(row, until=time), time
    assert not started_between(row, since="2026-11-25T10:01Z") and not started_between(row, until="2026-11-25T09:59Z")
