"""A session folder has one user at a time, and its plan and journal say what a resumed session must not repeat."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.store.files import write_json
from meshmark.store.session import (
    MAX_LINE_BYTES,
    Journal,
    NoLocksError,
    check_same,
    held,
    load_plan,
    lock,
    open_for_append,
    unlocked_sessions,
    whole_lines,
)

# ------------------------------------------------------------------ locks


def test_a_folder_is_held_by_one(tmp_path: Path) -> None:
    with held(tmp_path / "run"):
        with pytest.raises(MeshmarkError, match="in use by another measuring process"), held(tmp_path / "run"):
            pass
        assert lock(tmp_path / "run" / ".lock") is None
    with held(tmp_path / "run", resumed=True):
        pass


def test_the_folder_of_a_refused_request_is_removed(tmp_path: Path) -> None:
    for error in (UsageError("x"), AbsentError("x")):
        with pytest.raises(MeshmarkError), held(tmp_path / "run"):
            (tmp_path / "run" / "plan.json").write_text("{}")
            raise error
        assert not (tmp_path / "run").exists()


def test_the_folder_of_a_request_that_failed_stays_with_its_results(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError), held(tmp_path / "run"):
        (tmp_path / "run" / "journal.jsonl").write_text("{}")
        raise MeshmarkError("x")
    assert (tmp_path / "run" / "journal.jsonl").exists()
    with pytest.raises(UsageError), held(tmp_path / "run"):
        raise UsageError("x")
    assert (tmp_path / "run" / "journal.jsonl").exists(), "it existed before"


def test_a_failure_without_results_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError), held(tmp_path / "run"):
        raise MeshmarkError("the disk is full")
    assert not (tmp_path / "run").exists()


def sessions(folder: Path, count: int) -> None:
    for age in range(count):
        with held(folder / f"s{age}"):
            (folder / f"s{age}" / "run.json").write_text("{}")
        os.utime(folder / f"s{age}" / "run.json", (age, age))


def test_interrupted_sessions_are_newest_first_and_locked_one_at_a_time(tmp_path: Path) -> None:
    sessions(tmp_path, 4)
    (tmp_path / "other").mkdir()
    with held(tmp_path / "s2"):
        remaining = unlocked_sessions(tmp_path, "*/run.json")
        assert next(remaining) == tmp_path / "s3" and lock(tmp_path / "s3" / ".lock") is None
        assert next(remaining) == tmp_path / "s1", "the session s2 is in use"
        remaining.close()
        with held(tmp_path / "s3"), held(tmp_path / "s1"):
            pass


def test_without_locks_a_session_starts_and_does_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_handle: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    sessions(tmp_path, 1)
    monkeypatch.setattr("fcntl.flock", none)
    with held(tmp_path / "new"):
        Journal(tmp_path / "new" / "journal.jsonl").append({})
    with pytest.raises(NoLocksError, match="the file system has no locks"), held(tmp_path / "new", resumed=True):
        pass
    with pytest.raises(NoLocksError):
        next(unlocked_sessions(tmp_path, "*/run.json"))


# ------------------------------------------------------------------ plans


def test_a_plan_is_read_back_and_anything_else_is_not_a_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(UsageError, match=rf"^--resume: found no plan.json in {tmp_path}$") as missing:
        load_plan(path, int, "numbers", "start one")
    assert missing.value.hint == "start one"
    write_json(path, {"n": 3})
    assert load_plan(path, lambda content: content["n"], "numbers") == 3
    for text in ("{", "[]", '{"m": 3}', "\0"):
        path.write_text(text)
        with pytest.raises(MeshmarkError, match=f"^{path}: not a plan of numbers: ") as damaged:
            load_plan(path, lambda content: content["n"], "numbers")
        assert damaged.value.status == 1, "the user did not write the file"


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({"a": 1, "b": [2]}, ""),
        ({"a": 1, "b": [2], "c": None}, ""),
        ({"a": 1, "b": [3]}, "S: contains a study with b = [3]; requested: [2]"),
        ({"a": 1}, "S: contains a study with b = None; requested: [2]"),
        ({"a": 1, "b": [2], "c": "x"}, "S: contains a study with c = 'x'; requested: None"),
        ([], "S: contains a study with a = None; requested: 1"),
    ],
)
def test_other_parameters_are_refused_by_name(recorded: Any, message: str) -> None:
    try:
        check_same(Path("S"), "a study", recorded, {"a": 1, "b": [2]}, "use the original options")
    except UsageError as error:
        assert (str(error), error.hint) == (message, "use the original options")
    else:
        assert not message


# ------------------------------------------------------------------ journals


def entry(value: Any) -> int:
    if value["type"] != "run":
        raise ValueError("not a run")
    return int(value["n"])


def test_a_journal_returns_what_was_appended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    assert list(journal.entries(entry)) == []
    for n in range(3):
        journal.append({"type": "run", "n": n})
    assert list(journal.entries(entry, "a run")) == [(1, 0), (2, 1), (3, 2)]


@pytest.mark.parametrize("torn", [b'{"type": "run", "n"', b'{"type": "run", "n": 1}', b"\xff", b"x" * 5000])
def test_a_torn_line_never_counted_and_the_next_one_replaces_it(tmp_path: Path, torn: bytes) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append({"type": "run", "n": 0})
    with journal.path.open("ab") as file:
        file.write(torn)
    before = journal.path.read_bytes()
    assert list(journal.entries(entry, "a run")) == [(1, 0)]
    assert journal.path.read_bytes() == before, "reading changes nothing"
    journal.append({"type": "run", "n": 1})
    assert list(journal.entries(entry, "a run")) == [(1, 0), (2, 1)]


@pytest.mark.parametrize("line", ["nonsense", "[]", '{"type": "note"}', '{"type": "run"}', "[" * 10_000])
def test_a_line_that_is_not_an_entry_is_left_out_or_an_error(tmp_path: Path, line: str) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.path.write_text(f'{line}\n{{"type": "run", "n": 7}}\n')
    assert list(journal.entries(entry)) == [(2, 7)]
    with pytest.raises(MeshmarkError, match=f"^{journal.path}: line 1 is not a run: "):
        list(journal.entries(entry, "a run"))


def test_a_journal_that_cannot_be_used_is_an_error_in_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "folder")
    journal.path.mkdir()
    with pytest.raises(MeshmarkError, match=f"^cannot write {journal.path}: Is a directory$"):
        journal.append({})
    with pytest.raises(MeshmarkError, match=f"^cannot read {journal.path}: is a folder; a regular file is required$"):
        list(journal.entries(entry))
    with pytest.raises(MeshmarkError, match=r"^cannot write /dev/full: "):
        Journal(Path("/dev/full")).append({})


def test_appending_processes_take_turns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    writer = threading.Thread(target=journal.append, args=({"n": 1},))
    with open_for_append(journal.path) as file:
        writer.start()
        file.write(json.dumps({"n": 0}).encode())
        file.flush()
        writer.join(0.05)
        assert journal.path.read_bytes() == b'{"n": 0}', "the other line is not removed as torn, nor joined"
        file.write(b"\n")
    writer.join()
    assert journal.path.read_bytes() == b'{"n": 0}\n{"n": 1}\n'


def test_a_line_beyond_the_limit_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE_BYTES + 5) + b"\nb\ntorn")
    assert list(whole_lines(path)) == [b"a\n", b"\n", b"b\n"]
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="a pipe"):
        list(whole_lines(tmp_path / "fifo"))
