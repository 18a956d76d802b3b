"""Compaction of a fleet: at any moment, readers find each row exactly once, and also after a kill."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.fleet.data.compaction import compact
from meshmark.fleet.data.ingest import ingest, taken
from meshmark.fleet.data.values import node_rows, query, read_matrix
from meshmark.fleet.folder import Fleet
from meshmark.store.session import held
from support.cli import meshmark
from support.made_fleet import KERNELS, lines_of, write_result

NAME, CLUSTER = "check-20261126T060000-abcd", "hawk"


class Killed(BaseException):
    pass


def arrive(fleet: Fleet, *nodes: str) -> None:
    for node in nodes:
        write_result(fleet.campaign(NAME) / "inbox", node, lines_of(node))
    ingest(fleet, NAME, CLUSTER)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """Return a fleet with five nodes in three files of each kind."""
    new_fleet = Fleet(tmp_path / "fleet")
    for nodes in (["n1", "n2"], ["n3"], ["n4", "n5"]):
        arrive(new_fleet, *nodes)
    return new_fleet


def names(fleet: Fleet, kind: str) -> list[str]:
    return sorted(path.name for path in fleet.table(kind, NAME, CLUSTER).glob("*.parquet"))


def counts(fleet: Fleet) -> dict[str, Counter[str]]:
    """Return the number of rows of each node that readers find."""
    return {
        kind: Counter(
            node
            for path in fleet.files_of(kind, NAME, CLUSTER)
            for node in pq.ParquetFile(path).read(columns=["node"])["node"].to_pylist()
        )
        for kind in ("results", "nodes")
    }


def once(*nodes: str) -> dict[str, Counter[str]]:
    return {"results": Counter({n: len(KERNELS) for n in nodes}), "nodes": Counter(dict.fromkeys(nodes, 1))}


FIVE = once("n1", "n2", "n3", "n4", "n5")


def test_many_files_become_one_of_each_kind_again_and_again(fleet: Fleet) -> None:
    assert compact(fleet).files == {NAME: 6}
    assert len(names(fleet, "results")) == len(names(fleet, "nodes")) == 1 and counts(fleet) == FIVE
    assert compact(fleet).files == {}
    arrive(fleet, "n6")
    assert compact(fleet).files == {NAME: 4}
    assert len(names(fleet, "results")) == 1 and counts(fleet) == once(*FIVE["nodes"], "n6")


def test_values_are_kept_and_not_made_again(fleet: Fleet) -> None:
    before = read_matrix(fleet, NAME, CLUSTER)
    compact(fleet)
    results_folder = fleet.root / "results"
    results_folder.rename(fleet.root / "elsewhere")
    after = read_matrix(fleet, NAME, CLUSTER)
    assert after.points == before.points and np.array_equal(after.values, before.values)
    (fleet.root / "elsewhere").rename(results_folder)
    arrive(fleet, "n6")
    assert "n6" in read_matrix(fleet, NAME, CLUSTER).nodes


def killed_at(patched: pytest.MonkeyPatch, step: int, after: bool) -> None:
    """Patch renames and removals so that the given one is the last before a kill."""
    left = step

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0 or (left == 0 and not after):
                raise Killed
            result = real(*args, **options)
            if left == 0:
                raise Killed
            return result

        return call

    patched.setattr(Path, "replace", dying(Path.replace))
    patched.setattr(Path, "unlink", dying(Path.unlink))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", range(1, 9))  # two renames, six removals
def test_a_kill_at_any_moment_loses_nothing_and_counts_nothing_twice(fleet: Fleet, step: int, after: bool) -> None:
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, step, after)
        with pytest.raises(Killed):
            compact(fleet)
    assert counts(fleet) == FIVE
    assert taken(fleet, NAME, CLUSTER, "node") == {*FIVE["nodes"]}
    compact(fleet)
    assert counts(fleet) == FIVE and len(names(fleet, "results")) == len(names(fleet, "nodes")) == 1


def test_results_of_an_unfinished_ingestion_are_not_joined(fleet: Fleet) -> None:
    token = "0123456789ab"
    (fleet.campaign(NAME) / "taken" / token).mkdir(parents=True)
    (fleet.campaign(NAME) / "taken" / token / ".lock").touch()
    write_result(fleet.campaign(NAME) / "taken" / token, "n6", lines_of("n6"))
    results_folder = fleet.table("results", NAME, CLUSTER)
    shutil.copy(results_folder / names(fleet, "results")[0], results_folder / f"{NAME}--{token}~00000000.parquet")
    compact(fleet)
    assert len(names(fleet, "results")) == 2
    ingest(fleet, NAME, CLUSTER)
    compact(fleet)
    assert counts(fleet) == once(*FIVE["nodes"], "n6")


def test_nodes_that_arrive_between_any_two_steps_stay(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    late_nodes = [f"m{i}" for i in range(6)]
    files_of, nodes_to_come = Fleet.files_of, iter(late_nodes)

    def then_one_arrives(self: Fleet, kind: str, campaign: str, cluster: str) -> list[Path]:
        paths = files_of(self, kind, campaign, cluster)
        if not pending:
            pending.append(next(nodes_to_come, None))
            if pending[0]:
                arrive(fleet, pending[0])
            pending.clear()
        return paths

    pending = list[str | None]()
    monkeypatch.setattr(Fleet, "files_of", then_one_arrives)
    for _ in range(3):
        compact(fleet)
    assert counts(fleet) == once(*FIVE["nodes"], *late_nodes)


def test_readers_and_ingestions_are_not_disturbed(fleet: Fleet) -> None:
    errors, finished = list[object](), threading.Event()

    def read() -> None:
        table = query(fleet, "results", [NAME], CLUSTER, "SELECT node FROM read_parquet(?)")
        assert table is not None
        rows = Counter(table["node"].to_pylist())
        if any(rows[node] != len(KERNELS) for node in FIVE["nodes"]) or len(node_rows(fleet, [NAME], CLUSTER)) < 5:
            errors.append(rows)

    def repeat(work: Callable[[], object]) -> None:
        while not finished.is_set():
            try:
                work()
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=repeat, args=[work]) for work in (read, lambda: compact(fleet))]
    for thread in threads:
        thread.start()
    for i in range(12):
        arrive(fleet, f"m{i}")
    finished.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counts(fleet) == once(*FIVE["nodes"], *(f"m{i}" for i in range(12)))


def test_what_cannot_be_read_is_named_and_left(fleet: Fleet) -> None:
    path = fleet.table("nodes", NAME, CLUSTER) / names(fleet, "nodes")[1]
    path.write_bytes(path.read_bytes()[:100])
    before = names(fleet, "nodes")
    outcome = compact(fleet)
    assert outcome.files == {} and path.name in outcome.skipped[NAME]
    assert names(fleet, "nodes") == before


def test_two_at_once_are_refused(fleet: Fleet) -> None:
    with held(fleet.root / "nodes"), pytest.raises(MeshmarkError, match="in use by another measuring process"):
        compact(fleet)


def test_a_folder_that_does_not_exist_has_no_campaign(tmp_path: Path) -> None:
    completed = meshmark("fleet", "compact", str(tmp_path / "none"))
    assert completed.returncode == 77 and "has no campaign" in completed.stderr


def test_a_folder_that_is_no_fleet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    (file := tmp_path / "file").touch()
    for path in (Path("/dev/null"), file, file / "x", tmp_path / "other", Path("a\x00b")):
        for may_be_new in (True, False):
            with pytest.raises(UsageError, match="FOLDER: found "):
                Fleet(path).check(may_be_new)
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "none"):
        Fleet(path).check(may_be_new=True)
        with pytest.raises(AbsentError, match="has no campaign"):
            Fleet(path).check()
    for command in ("compact", "ingest", "serve"):
        completed = meshmark("fleet", command, "/dev/null", *(["--port", "0"] if command == "serve" else []))
        assert completed.returncode == 2 and "FOLDER: found /dev/null" in completed.stderr, completed.stderr


def test_a_joined_file_cannot_remove_other_files(fleet: Fleet) -> None:
    (settings_file := fleet.root / "fleet.toml").touch()
    table = pq.read_table(fleet.table("nodes", NAME, CLUSTER) / names(fleet, "nodes")[0], partitioning=None)
    for number, entry in enumerate([["../../../fleet.toml", str(settings_file), 7, None, []], 7, [["x"]]]):
        path = fleet.table("nodes", NAME, CLUSTER) / f"{NAME}--compacted~{number:012x}.parquet"
        pq.write_table(table.replace_schema_metadata({"meshmark.replaces": json.dumps(entry)}), path)
    compact(fleet)
    assert settings_file.exists()


def test_a_campaign_that_is_not_there_is_refused(fleet: Fleet) -> None:
    completed = meshmark("fleet", "compact", fleet.root, "--campaign", "check-20200101T000000-abcd")
    assert completed.returncode == 2 and "--campaign: found 'check-20200101T000000-abcd'" in completed.stderr


def test_the_command_says_what_it_joined(fleet: Fleet) -> None:
    completed = meshmark("fleet", "compact", str(fleet.root))
    assert completed.returncode == 0 and "joined 6 files of 1 campaign\n" in completed.stderr
