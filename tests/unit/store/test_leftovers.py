"""Tests of temporary files of killed writers: `store verify` names them, and `store compact` removes them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.store.files import is_abandoned
from meshmark.store.store import Store
from support.cli import meshmark
from support.waiting import until

WRITER = """
import sys, time
from pathlib import Path
from meshmark.store.files import written
with written(Path(sys.argv[1])) as out:
    out.write(b"x")
    out.flush()
    time.sleep(600)
"""


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".run")]


@pytest.fixture
def writer(tmp_path: Path) -> subprocess.Popen[bytes]:
    """Start a process that writes a file of a store."""
    Store(tmp_path / "store").add_machine_row({"machine": "m", "seen": "2026-01-01T00:00:00Z"}, "1")
    process = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "store" / "run.parquet"])
    assert until(lambda: temporary_files(tmp_path / "store"))
    return process


def test_a_file_that_is_being_written_is_not_touched(tmp_path: Path, writer: subprocess.Popen[bytes]) -> None:
    try:
        (path,) = temporary_files(tmp_path / "store")
        os.utime(path, (0, 0))
        completed = meshmark("store", "compact", "--store", tmp_path / "store")
        assert completed.returncode == 0 and "killed writers" not in completed.stderr
        assert path.exists() and not is_abandoned(path)
    finally:
        writer.kill()
        writer.wait()


def test_a_file_of_a_killed_writer_is_named_and_removed(tmp_path: Path, writer: subprocess.Popen[bytes]) -> None:
    writer.kill()
    writer.wait()
    (path,) = temporary_files(tmp_path / "store")
    assert until(lambda: is_abandoned(path))
    verification = meshmark("store", "verify", "--store", tmp_path / "store")
    assert verification.returncode == 0, "nothing is lost or wrong"
    assert "1 temporary files of writers that were killed" in verification.stderr and path.name in verification.stderr
    completed = meshmark("store", "compact", "--store", tmp_path / "store")
    assert "1 temporary files of killed writers removed" in completed.stderr
    assert not path.exists()


def test_other_files_are_no_leftovers(tmp_path: Path) -> None:
    for name in (".hidden", "run.parquet", ".run.parquet.0123", "link"):
        (tmp_path / name).write_bytes(b"")
        os.utime(tmp_path / name, (0, 0))
        assert not is_abandoned(tmp_path / name)
    (tmp_path / ".run.0123456789ab").mkdir()
    assert not is_abandoned(tmp_path / ".run.0123456789ab")
    assert not is_abandoned(tmp_path / "missing")
