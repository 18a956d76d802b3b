"""Ingestion of node files: each counts once, also after a kill, and anything unusual about a node is reported."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from meshmark.fleet.campaigns.campaign import new_campaign
from meshmark.fleet.data.ingest import IngestResult, ingest, measured_nodes
from meshmark.fleet.data.values import is_sound, node_rows
from meshmark.fleet.folder import Fleet
from meshmark.store.compaction import QUIET_S, compact
from meshmark.store.session import lock
from meshmark.store.store import Store
from support.made_fleet import KERNELS, lines_of, write_result


@pytest.fixture
def name() -> str:
    return new_campaign("check")


def inbox(fleet: Fleet, name: str) -> Path:
    return fleet.campaign(name) / "inbox"


def rows(fleet: Fleet, kind: str) -> list[dict[str, object]]:
    return [
        row
        for path in sorted((fleet.root / kind).rglob("*.parquet"))
        for row in pq.read_table(path, partitioning=None).to_pylist()
    ]


def test_results_become_rows_of_the_store_with_their_node(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    for node in ("n1", "n2"):
        write_result(inbox(fleet, name), node, lines_of(node))
    ingested = ingest(fleet, name, "hawk")
    assert sorted(ingested.nodes) == ["n1", "n2"] and not ingested.skipped and not ingested.doubts
    result_rows = rows(fleet, "results")
    assert {(r["node"], r["kernel"]) for r in result_rows} == {(n, k) for n in ("n1", "n2") for k in KERNELS}
    assert {(r["campaign"], r["run"]) for r in result_rows} == {(name, name)}
    store = Store(fleet.root / "results")
    assert len(store.query(run=name)) == len(store.query()) == 2 * len(KERNELS)
    assert [problem for _, problem in store.verify()] == [""]
    for path in store.files():
        os.utime(path, (0, path.stat().st_mtime - 2 * QUIET_S))
    compact(store, "2999-01-01")
    assert [path.name for path in store.files()] == [p.name for p in fleet.files_of("nodes", name, "hawk")]
    assert sorted(p.name for p in fleet.campaign(name).rglob("*.gz")) == []


def test_the_same_file_counts_once(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    for expected in ([], ["n1"]):
        write_result(inbox(fleet, name), "n1", lines_of("n1"))
        assert ingest(fleet, name, "hawk").again == expected
    assert len(rows(fleet, "nodes")) == 1


def test_a_killed_ingestion_is_completed_by_the_next(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    claim = fleet.campaign(name) / "taken" / "0123456789ab"
    write_result(claim, "n1", lines_of("n1"))
    (claim / ".lock").touch()
    active = fleet.campaign(name) / "taken" / "ba9876543210"
    write_result(active, "n2", lines_of("n2"))
    (active / ".lock").touch()
    assert lock(active / ".lock") is not None  # another ingestion that is still running holds this lock
    write_result(inbox(fleet, name), "n3", lines_of("n3"))
    assert sorted(ingest(fleet, name, "hawk").nodes) == ["n1", "n3"]
    assert not claim.exists() and active.exists()


@pytest.mark.slow
def test_results_of_a_killed_ingestion_whose_nodes_are_missing_count_once(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    names = [f"n{i}" for i in range(6)]
    claim = fleet.campaign(name) / "taken" / "0123456789ab"
    for node in names:
        write_result(inbox(fleet, name), node, lines_of(node))
        write_result(claim, node, lines_of(node))
    (claim / ".lock").touch()
    ingest(fleet, name, "hawk", at_once=2)
    complete_file, *part = sorted(fleet.table("nodes", name, "hawk").iterdir())
    assert len(part) == 2
    # The state after another kill: one part is complete, and of the other parts only the results are written.
    stored_nodes = pq.ParquetFile(complete_file).read()["node"].to_pylist()
    for path in part:
        path.unlink()
    for node in set(names) - set(stored_nodes):
        write_result(claim, node, lines_of(node))
    (claim / ".lock").touch()
    assert len(ingest(fleet, name, "hawk", at_once=3).nodes) == 4
    assert sorted(str(row["node"]) for row in rows(fleet, "nodes")) == names
    assert len(rows(fleet, "results")) == 6 * len(KERNELS)


def test_a_node_with_another_name_is_refused_and_kept(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    write_result(inbox(fleet, name), "n1", lines_of("n9"))
    write_result(inbox(fleet, name), "n3", lines_of("n3"))
    ingested = ingest(fleet, name, "hawk", frozenset({"n1", "n2"}))
    assert ingested.nodes == [] and len(list((fleet.campaign(name) / "refused").iterdir())) == 2
    assert "the file names the node n9" in ingested.skipped["n1.jsonl.gz"]
    assert "no node of this campaign" in ingested.skipped["n3.jsonl.gz"]


def test_half_written_files_are_named_and_left(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    path = write_result(inbox(fleet, name), "n1", lines_of("n1", repetitions=2)[:-4])
    partial_file = path.with_name(f".{path.name}.0123456789ab")
    path.rename(partial_file)
    assert "half-written by n1, with 2 steps" in ingest(fleet, name, "hawk").skipped[partial_file.name]
    assert partial_file.exists()


def test_a_file_that_ends_in_the_middle_is_taken_in_until_there_and_named(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    path = write_result(inbox(fleet, name), "n1", lines_of("n1", repetitions=20))
    path.write_bytes(path.read_bytes()[:-300])
    ingested = ingest(fleet, name, "hawk")
    assert ingested.nodes == ["n1"] and "in the middle" in ingested.doubts["n1"]
    assert rows(fleet, "results") and {r["status"] for r in rows(fleet, "nodes")} == {"damaged"}


def test_what_is_strange_about_a_node_is_said(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    changes = {
        "n1": {"hostname": "n7"},
        "n2": {"boot": "same"},
        "n3": {"boot": "same"},
        "n4": {"started": "2011-01-01T00:00:00Z"},
        "n5": {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200))},
        "n6": {"build": "0.0.9"},
    }
    for node in [f"n{i}" for i in range(1, 12)]:
        write_result(inbox(fleet, name), node, lines_of(node, **changes.get(node, {})))
    ingested = ingest(fleet, name, "hawk")
    assert ingested.doubts.keys() == changes.keys()
    assert "its host is named n7" in ingested.doubts["n1"]
    assert "the same machine as n3" in ingested.doubts["n2"]
    assert "its clock differs by -" in ingested.doubts["n4"]
    assert "its clock differs by +7" in ingested.doubts["n5"]
    assert "another build, 0.0.9" in ingested.doubts["n6"]


def test_a_full_disk_loses_nothing(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tmp_path)
    write_result(inbox(fleet, name), "n1", lines_of("n1"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("meshmark.fleet.data.ingest.write_parquet", full)
        with pytest.raises(OSError, match="No space"):
            ingest(fleet, name, "hawk")
    assert ingest(fleet, name, "hawk").nodes == ["n1"]


def test_nodes_that_refused_are_told_apart(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    write_result(inbox(fleet, name), "n1", lines_of("n1"))
    write_result(inbox(fleet, name), "n2", lines_of("n2", status="refused: 2.0 CPUs are busy"))
    ingested = ingest(fleet, name, "hawk")
    assert sorted(ingested.nodes) == ["n1", "n2"] and ingested.refusals == {"n2": "2.0 CPUs are busy"}
    assert measured_nodes(fleet, name, "hawk") == {"n1"}  # a resumed campaign tries n2 again
    write_result(inbox(fleet, name), "n2", lines_of("n2"))
    ingest(fleet, name, "hawk")
    assert measured_nodes(fleet, name, "hawk") == {"n1", "n2"}


def test_what_an_interrupted_node_measured_counts_until_it_has_measured_all(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    write_result(inbox(fleet, name), "n1", lines_of("n1", status="interrupted"))
    assert ingest(fleet, name, "hawk").nodes == ["n1"]
    assert measured_nodes(fleet, name, "hawk") == set()  # a resumed campaign tries n1 again
    (row,) = node_rows(fleet, [name], "hawk")
    assert row["status"] == "interrupted" and is_sound(row)
    write_result(inbox(fleet, name), "n2", lines_of("n2", status="interrupted"))
    for node in ("n1", "n2"):
        write_result(inbox(fleet, name), node, lines_of(node, recorded={"etc/hostname": node}))
    assert sorted(ingest(fleet, name, "hawk").nodes) == ["n1", "n2"]
    assert measured_nodes(fleet, name, "hawk") == {"n1", "n2"}
    assert [row["status"] for row in node_rows(fleet, [name], "hawk")] == ["ok", "ok"]


def test_a_file_that_was_half_written_and_is_complete_now_is_no_trouble() -> None:
    first = IngestResult(["n1"], skipped={".n2.jsonl.gz.0123456789ab": "half-written by n2", "n3.jsonl.gz": "no name"})
    total = first.joined(IngestResult(["n2"]))
    assert total.nodes == ["n1", "n2"] and total.skipped == {"n3.jsonl.gz": "no name"}
