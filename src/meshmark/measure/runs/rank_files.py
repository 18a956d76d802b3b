"""Provides a folder for the shared memory and session files of the ranks of a launcher.

Open MPI leaves its files behind if a rank or its launcher is killed. The folder is removed at the end, or by the next
start or `meshmark store compact` if this process died. The owner holds a lock on a file in it, which the kernel
releases when the owner dies; a process ID would mean something else in another container that shares the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from meshmark.store.files import lock_file

SHARED_MEMORY: Final = Path("/dev/shm")
_OWNER: Final = "owner"
# Parameters of Open MPI 4 and 5 that name folders for its files.
_FOLDERS: Final = (
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
    "OMPI_MCA_osc_sm_backing_directory",
    "OMPI_MCA_orte_tmpdir_base",
    "PRTE_MCA_prte_tmpdir_base",
)


@contextlib.contextmanager
def rank_files(kind: str, hosts: int, base: Path = SHARED_MEMORY) -> Iterator[Mapping[str, str]]:
    """Provide a folder for the files of the ranks while they run, and remove the folders of dead owners.

    Args:
        kind: Kind of the launcher. Only Open MPI needs a folder.
        hosts: Number of hosts of the ranks. With several hosts, Open MPI uses its own folders, since this folder exists
            on this host only.
        base: Folder in shared memory.

    Yields:
        Environment variables for the launcher, except variables that the user has set.
    """
    folder = None
    if kind == "openmpi" and hosts == 1:
        remove_abandoned(base)
        with contextlib.suppress(OSError):  # without this folder, the ranks use their default folders
            folder = Path(tempfile.mkdtemp(prefix=_prefix(), dir=base))
    if folder is None:
        yield {}
        return
    with _owned(folder):
        try:
            yield {name: str(folder) for name in _FOLDERS if name not in os.environ}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def abandoned(base: Path = SHARED_MEMORY) -> list[Path]:
    """Return the folders of this user whose owner is dead."""
    folders = []
    for folder in sorted(base.glob(f"{_prefix()}*")):
        with contextlib.suppress(OSError), _without_owner(folder):
            folders.append(folder)
    return folders


def remove_abandoned(base: Path = SHARED_MEMORY) -> int:
    """Remove the folders of this user whose owner is dead, and return their number."""
    count = 0
    for folder in base.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError), _without_owner(folder):
            shutil.rmtree(folder, ignore_errors=True)
            count += 1
    return count


def _prefix() -> str:
    return f"meshmark-ranks-{os.getuid()}-"


@contextlib.contextmanager
def _without_owner(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder whose owner is dead.

    Raises:
        OSError: The owner is alive, or the folder belongs to another user.
    """
    if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
        raise PermissionError(folder)
    with open(os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as owner:
        if not lock_file(owner.fileno()):
            raise BlockingIOError(folder)
        yield


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. The file gets its final name only after it is locked."""
    with (folder / "new").open("wb") as owner:
        lock_file(owner.fileno(), wait=True)
        (folder / "new").rename(folder / _OWNER)
        yield
