"""Tests of the store: concurrent writers and readers, torn files, and foreign content."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meshmark.errors import MeshmarkError
from meshmark.store.export import to_csv
from meshmark.store.files import write_file
from meshmark.store.record import Record, median_interval
from meshmark.store.run import Absence
from meshmark.store.store import Store, StoreError
from support.cli import meshmark


def record(metric: str = "load_latency", n: int = 0) -> Record:
    samples = tuple(1e-9 * (n + 1) * (1 + i / 100) for i in range(7))
    return Record(
        source="host",
        machine="m",
        instrument="latency",
        metric=metric,
        unit="s",
        better="lower",
        samples=samples,
        value=sorted(samples)[3],
        interval=median_interval(samples),
        conditions={"n": n, "pages": "thp", "x": None},
        flags=frozenset({"disturbed"}),
        provenance={"start": "2026-11-21T00:00:00Z"},
    )


def file_of(store: Store, run: str, step: str = "", machine: str = "m") -> Path:
    """Return the path of the results of a step, or of a finished run if `step` is empty."""
    return (
        store.folder / f"date=2026-11-21/machine={machine}" / (f"{run}--{step}.parquet" if step else f"{run}.parquet")
    )


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.add("r1", "a", [record(n=1), record(n=2)], [Absence(instrument="io", reason="no fio", enable="fio")])
    store.add("r2", "a", [record("level_latency")])
    assert store.query(run="r1") == [record(n=1), record(n=2)]
    assert len(store.query(metric="load_latency")) == 2
    assert store.absences()[0].reason == "no fio"
    assert [r["run"] for r in store.runs()] == ["r1", "r2"]
    assert not [problem for _, problem in store.verify() if problem]
    assert "n,pages" in to_csv(store.rows()).splitlines()[0]


def test_a_file_has_the_columns_of_its_conditions_and_is_read_beside_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("one", "a", [record(n=1)])
    store.add("other", "a", [replace(record(), conditions={"threads": 2})])
    one, other = (set(pq.read_schema(file_of(store, run, "a")).names) for run in ("one", "other"))
    assert one - other == {"n", "pages"} and other - one == {"threads"}
    assert {run for run, _, _ in store.rows()} == {"one", "other"}
    rows = store.select("SELECT threads, stride_bytes FROM {rows}", run="one")
    assert rows == [{"threads": None, "stride_bytes": None}]
    file_of(store, "other", "a").unlink()
    assert store.query() == [record(n=1)] and not store.broken
    assert not [problem for _, problem in store.verify() if problem]


def test_adding_a_step_again_does_not_double_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for _ in range(3):
        store.add("r", "s", [record()])
    assert len(store.query()) == 1


def test_hostile_names_stay_in_the_folder(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.add("../../r", "/etc/x", [record()])
    assert len(list((tmp_path / "s").rglob("*.parquet"))) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]


def test_a_store_of_another_version_or_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meshmark-store.json").write_text('{"version": 99}')
    with pytest.raises(StoreError, match="found 99, this program reads 2"):
        Store(tmp_path)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="not a store"):
        Store(other_folder)


def test_a_torn_file_is_named_and_hides_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add("r", "a", [record(n=1)])
    store.add("r", "b", [record(n=2)])
    torn_file = file_of(store, "r", "b")
    torn_file.write_bytes(torn_file.read_bytes()[:100])
    assert [r.conditions["n"] for r in store.query()] == [1]
    for name in ("date=2026-11-21/machine=m/.x.parquet.abcd1234", ".meshmark-store.json.0123456789ab"):
        (tmp_path / name).write_bytes(b"PAR1 what a killed writer left aside")
    assert [p.name for p, problem in store.verify() if problem] == [torn_file.name]


def write_many(folder: str, writer: int) -> None:
    store = Store(Path(folder))
    for i in range(8):
        store.add(f"r{writer}", f"s{i}", [record(n=i)])


def test_many_writers_and_readers_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(tmp_path), w)) for w in range(3)]
    for w in writers:
        w.start()
    largest = 0
    while any(w.is_alive() for w in writers):
        count = len(Store(tmp_path).query())
        assert count >= largest, "a reader lost what was there"
        largest = count
    for w in writers:
        w.join()
        assert w.exitcode == 0
    assert len(Store(tmp_path).query()) == 24
    assert not list(tmp_path.glob(".*")), "nothing is left aside"


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    """RLIMIT_FSIZE simulates the full disk: the write fails in the middle."""
    code = f"""
import resource, signal
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from meshmark.errors import MeshmarkError
from meshmark.store.export import to_csv
from meshmark.store.files import write_file
try:
    write_file(Path({str(tmp_path)!r}) / "big", b"x" * 5000)
except MeshmarkError as why:
    print(why)
"""
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot write" in completed.stdout and "File too large" in completed.stdout
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(MeshmarkError, match="cannot write"):
        write_file(tmp_path / "file" / "below", json.dumps({}).encode())


def test_what_cannot_be_read_does_not_hide_the_rest(tmp_path: Path) -> None:
    """A damaged page shows only when it is read, a FIFO would block the reader, and a recording has other columns."""
    store = Store(tmp_path / "s")
    for run in ("good", "page", "end"):
        store.add(run, "a", [record(n=n) for n in range(50)])
    page, end = (file_of(store, run, "a") for run in ("page", "end"))
    data = page.read_bytes()
    page.write_bytes(data[:40] + bytes(200) + data[240:])
    end.write_bytes(end.read_bytes()[:-20])
    (page.parent / "folder.parquet").mkdir()
    (page.parent / "loop.parquet").symlink_to("loop.parquet")
    os.mkfifo(page.parent / "fifo.parquet")
    pq.write_table(pa.table({"t_s": [1.0]}), page.parent / "night.parquet")
    # Columns with these names and other types; the files sort before and after a valid file.
    for name, column, values in (("a", "samples", [[1]]), ("z", "value", ["1"])):
        table = pq.ParquetFile(file_of(store, "good", "a")).read().slice(0, 1)
        changed_table = table.set_column(table.column_names.index(column), column, pa.array(values))
        pq.write_table(changed_table, page.parent / f"{name}.parquet")
    assert len(store.query()) == 50
    assert [r["run"] for r in store.runs()] == ["good"]
    damaged = {"page--a", "end--a", "folder", "loop", "fifo", "night", "a", "z"}
    assert {p.stem for p in store.broken} == damaged
    assert {p.stem for p, problem in store.verify() if problem} == damaged
    assert not any("\n" in reason or len(reason) > 200 for reason in store.broken.values())


def test_an_absence_that_cannot_be_read_does_not_hide_the_rest(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    for run in ("good", "none", "odd"):
        store.add(run, "a", [], [Absence(instrument="io", reason="no fio")], "m")
    for run, column, value in (("odd", "conditions", "{x"), ("none", "reason", None)):
        path = store.folder / f"date=unknown/machine=m/{run}--a.parquet"
        table = pq.ParquetFile(path).read()
        changed_table = table.set_column(table.column_names.index(column), column, pa.array([value], pa.string()))
        pq.write_table(changed_table, path)
    assert len(store.absences()) == 1 and len(store.broken) == 2
    assert {p.name[:4] for p, problem in store.verify() if problem} == {"odd-", "none"}


def test_a_signal_while_the_database_works_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB checks for signals and reports them with its own error."""
    store = Store(tmp_path / "s")
    store.add("good", "a", [record()])

    def interrupted(*_: object) -> None:
        raise RuntimeError("Query interrupted")

    with monkeypatch.context() as patched:
        patched.setattr("duckdb.DuckDBPyRelation.__arrow_c_stream__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.query()
    assert store.query() == [record()]


def test_half_a_character_hides_one_record_alone(tmp_path: Path) -> None:
    """An older version accepted such records."""
    store = Store(tmp_path)
    store.add("odd", "a", [replace(record(), provenance={"start": "2026-11-20T00:00:00Z", "command": "\ud800"})])
    store.add("good", "a", [record()])
    assert [(r["run"], r["start"]) for r in store.runs()] == [
        ("odd", "2026-11-20T00:00:00Z"),
        ("good", "2026-11-21T00:00:00Z"),
    ]
    assert len(store.query()) == 1 and len(store.broken) == 1


def test_a_removed_run_takes_its_files_along_and_no_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for run in ("r", "r-1", "r--a"):
        store.add(run, "a", [record()], [Absence(instrument="io", reason="no fio", enable="fio")])
        store.add(run, "b", [record(n=1)])
    assert store.remove("r") == 2
    assert [r["run"] for r in store.runs()] == ["r--a", "r-1"] and len(store.absences()) == 2
    assert store.remove("r") == 0


def test_old_runs_are_listed_and_then_removed(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.add("old", "a", [replace(record(), provenance={"start": "2001-01-01T00:00:00Z"})])
    store.add("epoch", "a", [replace(record(), provenance={"start": "1000000"})])
    store.add("future", "a", [replace(record(), provenance={"start": "2999-01-01T00:00:00Z"})])
    words = ("store", "prune", "--older-than", "1", "--store", store.folder)
    completed = meshmark(*words)
    assert (
        "old" in completed.stdout
        and "future" not in completed.stdout
        and "1 run; remove with --yes" in completed.stderr
    )
    assert len(store.runs()) == 3
    assert "removed 1 run (1 file)" in meshmark(*words, "--yes").stderr
    assert [r["run"] for r in store.runs()] == ["epoch", "future"], "a start that is no time is not old"
    assert "removed 1 run (1 file)" in meshmark("store", "rm", "future", "--store", store.folder).stderr
    assert [r["run"] for r in store.runs()] == ["epoch"]
