"""Tests of the names that select the sides of a comparison."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.compare.sides import Sides, latest
from meshmark.errors import UsageError
from meshmark.measure.latest import newest_run
from meshmark.store.export import to_csv, to_jsonl
from meshmark.store.machines import add_machine
from meshmark.store.record import Record
from meshmark.store.store import Store
from support.made_run import bandwidth, latency, record


def at(records: Sequence[Record], start: str, machine: str = "n042") -> list[Record]:
    return [replace(r, machine=machine, provenance={**r.provenance, "start": start}) for r in records]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return a store with two runs of n042, one run of n043, and the software of n042."""
    new_store = Store(tmp_path / "store")
    new_store.add("first", "latency.r1", at(latency(), "2026-10-01T10:00:00Z"))
    new_store.add("first", "latency.r2", at(latency(), "2026-10-01T10:01:00Z"))
    new_store.add("second", "bandwidth.r1", at(bandwidth(), "2026-11-01T10:00:00Z"))
    new_store.add("third", "bandwidth.r1", at(bandwidth(), "2026-11-02T10:00:00Z", "n043"))
    add_machine(new_store, "n042", {"kernel": "6.1"}, "2026-09-01T00:00:00Z")
    add_machine(new_store, "n042", {"kernel": "6.12"}, "2026-10-20T00:00:00Z")
    return new_store


@pytest.fixture
def sides(store: Store, tmp_path: Path) -> Sides:
    return Sides(store, tmp_path / "runs", "n042")


def test_a_machine_is_the_newest_result_of_each_point(sides: Sides) -> None:
    host = sides.find("host")
    assert host.machine == "n042" and host.start == "2026-11-01T10:00:00Z" and host.facts == {"kernel": "6.12"}
    assert {r.instrument for r in host.points} == {"latency", "bandwidth"}
    assert "2 runs" in host.what and sides.find("n042").records == host.records


def test_a_run_has_its_repetitions_pooled_and_the_facts_of_its_time(sides: Sides) -> None:
    run = sides.find("first")
    assert {r.conditions.get("runs") for r in run.points} == {2} and run.facts == {"kernel": "6.1"}


def test_a_date_is_the_state_of_a_machine_at_that_time(sides: Sides) -> None:
    assert {r.instrument for r in sides.find("host@2026-10").points} == {"latency"}
    assert {r.instrument for r in sides.find("n042@2026-11").points} == {"latency", "bandwidth"}
    with pytest.raises(UsageError, match="no result up to '2025' in host@2025; the first is of 2026-10-01"):
        sides.find("host@2025")


def test_all_runs_of_a_machine_are_pooled(store: Store, sides: Sides) -> None:
    store.add("fourth", "bandwidth.r1", at(bandwidth(), "2026-11-05T10:00:00Z"))
    side = sides.find("n042@all")
    assert {r.conditions.get("runs") for r in side.points if r.instrument == "bandwidth"} == {2}


def test_latest_is_the_newest_run_of_this_machine_whichever_command_made_it(
    store: Store, sides: Sides, tmp_path: Path
) -> None:
    imported_records = [replace(r, source="tool") for r in at(bandwidth(), "2026-11-05T10:00:00Z")]
    store.add("imported", "bandwidth.r1", imported_records)
    newest = sides.find("latest")
    assert (newest.name, newest.what, newest.start) == ("latest", "run second", "2026-11-01T10:00:00Z")
    assert newest_run(store.folder, tmp_path / "runs", "n042") == "second"
    survey = tmp_path / "runs" / "survey"
    survey.mkdir(parents=True)
    for name in ("plan.json", "run.json"):
        (survey / name).write_text("{}")
    assert newest_run(store.folder, tmp_path / "runs", "n042") == survey, "its steps are not in the store yet"
    os.utime(survey / "plan.json", (0, 0))
    assert newest_run(store.folder, tmp_path / "runs", "n042") == "second"
    with pytest.raises(UsageError, match="latest: found no run of this machine"):
        newest_run(tmp_path / "nosuch", tmp_path / "nosuch", "n042")


@pytest.mark.parametrize(("name", "form"), [("one.jsonl", to_jsonl), ("one.csv", to_csv)])
def test_a_file_is_read_as_it_is(sides: Sides, tmp_path: Path, name: str, form: object) -> None:
    assert callable(form)
    rows = [("first", f"latency.r{i}", r) for i in (1, 2) for r in at(latency(), f"2026-10-0{i}")]
    (tmp_path / name).write_text(form(rows), encoding="utf-8")
    side = sides.find(str(tmp_path / name))
    assert side.machine == "n042" and {r.conditions.get("runs") for r in side.points} == {2}


def test_a_file_of_several_machines_is_refused(sides: Sides, tmp_path: Path) -> None:
    rows = [("r", "s", r) for machine in ("n1", "n2") for r in at(bandwidth(), "2026-10-01", machine)]
    (tmp_path / "two.jsonl").write_text(to_jsonl(rows), encoding="utf-8")
    with pytest.raises(UsageError, match=r"results of 2 machines \(n1, n2\), one is allowed"):
        sides.find(str(tmp_path / "two.jsonl"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("n04", "found no file, run or machine 'n04'"),
        ("./nothing", "compare: cannot read"),
    ],
)
def test_what_is_not_there_is_named(sides: Sides, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sides.find(name)


def test_a_name_that_is_close_is_offered(sides: Sides) -> None:
    with pytest.raises(UsageError) as error:
        sides.find("secnd")
    assert error.value.hint == "did you mean second?"


def test_a_host_without_results_says_how_to_get_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results of this host, n1") as error:
        Sides(Store(tmp_path / "store"), tmp_path, "n1").find("host")
    assert error.value.hint == "meshmark survey --quick"


def test_a_file_of_other_text_and_a_folder_are_refused(sides: Sides, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("STREAM version $Revision: 5.10 $\n", encoding="utf-8")
    for path in (tmp_path / "text", tmp_path):
        with pytest.raises(UsageError, match=r"^compare: "):
            sides.find(str(path))


def test_the_newest_result_takes_its_modes_along() -> None:
    old, new = (record("io", "bandwidth_net", v, target=".", direction="read") for v in (1e9, 2e9))
    modes = [replace(old, metric="bandwidth_net_mode", conditions={**old.conditions, "run_mode": i}) for i in (1, 2)]
    assert latest([[old, *modes], [new]]) == [new]
    assert latest([[new], [old, *modes]]) == [old, *modes]
