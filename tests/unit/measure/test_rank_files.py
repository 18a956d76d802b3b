"""Files of ranks are in a separate folder, which the next start removes if the owner has died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from meshmark.measure.runs.rank_files import abandoned, rank_files, remove_abandoned

OWNER = """
import sys
from pathlib import Path
from meshmark.measure.runs.rank_files import rank_files

with rank_files("openmpi", 1, Path(sys.argv[1])) as variables:
    Path(next(iter(variables.values())), "segment").write_bytes(b"x")
    print("ready", flush=True)
    sys.stdin.read()
"""


def owner(base: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    return child


def test_a_folder_lasts_as_long_as_its_ranks(tmp_path: Path) -> None:
    with rank_files("openmpi", 1, tmp_path) as variables:
        (folder,) = {*variables.values()}
        assert Path(folder).parent == tmp_path and Path(folder).stat().st_mode & 0o777 == 0o700
        assert "OMPI_MCA_btl_vader_backing_directory" in variables and "PRTE_MCA_prte_tmpdir_base" in variables
    assert [*tmp_path.iterdir()] == []


def test_the_next_start_removes_the_folder_of_a_killed_owner_and_no_other(tmp_path: Path) -> None:
    dead, alive = owner(tmp_path), owner(tmp_path)
    os.kill(dead.pid, signal.SIGKILL)
    dead.communicate()
    (tmp_path / f"meshmark-ranks-{os.getuid()}-link").symlink_to(tmp_path)
    (tmp_path / f"meshmark-ranks-{os.getuid()}-new").mkdir()  # the owner has not locked the folder yet
    with rank_files("openmpi", 1, tmp_path):
        pass
    remaining = {path.name.rpartition("-")[2] for path in tmp_path.iterdir()}
    assert {"link", "new"} < remaining and len(remaining) == 3
    alive.communicate(b"")
    assert {path.name.rpartition("-")[2] for path in tmp_path.iterdir()} == {"link", "new"}


def test_a_folder_of_a_killed_owner_is_listed_and_removed_without_a_start(tmp_path: Path) -> None:
    dead, alive = owner(tmp_path), owner(tmp_path)
    assert abandoned(tmp_path) == [] and remove_abandoned(tmp_path) == 0
    os.kill(dead.pid, signal.SIGKILL)
    dead.communicate()
    (folder,) = abandoned(tmp_path)
    assert remove_abandoned(tmp_path) == 1 and not folder.exists() and abandoned(tmp_path) == []
    assert len([*tmp_path.iterdir()]) == 1
    alive.communicate(b"")


def test_other_libraries_several_hosts_and_a_missing_folder_change_nothing(tmp_path: Path) -> None:
    for kind, hosts, base in (("mpich", 1, tmp_path), ("openmpi", 2, tmp_path), ("openmpi", 1, tmp_path / "none")):
        with rank_files(kind, hosts, base) as variables:
            assert variables == {} and [*tmp_path.iterdir()] == []
