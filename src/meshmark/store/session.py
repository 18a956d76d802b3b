"""Folders of runs that can be resumed: their locks, the plans that state the requests, and journals of what happened.

A process locks the folder of its session through the file `.lock`, writes the plan before the first measurement, and
appends a line to a journal for everything that a resumed session must not repeat. A line counts as soon as it is
complete and on the disk. The kernel releases the lock when the process dies, whatever the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.store.files import (
    lock_file,
    make_folder,
    open_private,
    open_regular,
    private_mode,
    read_json,
    sync_folder,
)
from meshmark.values.inputs import quoted_value

LOCK: Final = ".lock"  # file in the folder of a session
MAX_LINE_BYTES: Final = 16 << 20

Plan = TypeVar("Plan")
Entry = TypeVar("Entry")


# ------------------------------------------------------------------ locks


class NoLocksError(MeshmarkError):
    """The file system does not support locks."""


def lock(path: Path) -> int | None:
    """Acquire an exclusive lock on an existing file. The Linux kernel releases it if the process dies.

    Returns:
        A descriptor, which releases the lock when closed. None if another process has the lock or the file does not
        exist.

    Raises:
        NoLocksError: The file system does not support locks.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if lock_file(handle):
            return handle
        os.close(handle)
        return None
    except OSError as error:  # for example Lustre without its mount option flock
        os.close(handle)
        raise NoLocksError(
            f"{path.parent}: the file system has no locks ({error.strerror}), "
            "so another process may be using the folder",
            "use a folder on another file system",
        ) from error


@contextlib.contextmanager
def held(folder: Path, resumed: bool = False) -> Iterator[None]:
    """Create a folder of results if necessary and lock it for this process.

    If the block raises, a folder that this call created is removed if the request was refused or nothing was written.

    Args:
        resumed: The folder contains an earlier run, which may still be running; a file system without locks is then
            an error.

    Raises:
        MeshmarkError: Another process uses the folder, or the folder is not writable.
        NoLocksError: The file system does not support locks, and `resumed` is set.
    """
    path = folder / LOCK
    is_new = not folder.exists()
    try:
        make_folder(folder)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, private_mode(folder)))
    except OSError as failure:
        if is_new:
            _remove_unused(folder, refused=False)
        raise MeshmarkError(f"cannot write {folder}: {failure.strerror or failure}") from failure
    handle: int | None = None
    try:
        handle = lock(path)
        if handle is None:
            raise MeshmarkError(f"{folder}: in use by another measuring process", "wait for that process or end it")
    except NoLocksError:
        if resumed:
            raise
    try:
        yield
    except BaseException as error:
        if is_new:
            _remove_unused(folder, refused=isinstance(error, UsageError | AbsentError))
        raise
    finally:
        if handle is not None:
            os.close(handle)


def _remove_unused(folder: Path, *, refused: bool) -> None:
    with contextlib.suppress(OSError):
        if refused or {path.name for path in folder.iterdir()} <= {LOCK}:
            shutil.rmtree(folder)


def unlocked_sessions(folder: Path, pattern: str) -> Generator[Path, None, None]:
    """Yield the sessions that no process uses, the newest first.

    Each session is locked until the next one is requested or the iterator is closed.

    Args:
        folder: The folder that contains the folders of the sessions.
        pattern: Pattern of a file that every session has. Sessions are ordered by its modification time.

    Raises:
        NoLocksError: The file system does not support locks.
    """
    sessions = []
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # removed in the meantime
            sessions.append((path.stat().st_mtime, path.parent))
    for _, session in sorted(sessions, reverse=True):
        handle = lock(session / LOCK)
        if handle is not None:
            try:
                yield session
            finally:
                os.close(handle)


# ------------------------------------------------------------------ plans


def load_plan(path: Path, parse: Callable[[Any], Plan], what: str, hint: str = "") -> Plan:
    """Return the plan that `write_json` wrote into the folder of a session.

    Args:
        path: The file of the plan.
        parse: Function that makes a plan from the content of the file.
        what: Kind of the plan, for errors.
        hint: Hint of the error about a missing plan.

    Raises:
        UsageError: The file does not exist.
        MeshmarkError: The plan cannot be read.
    """
    if not path.exists():
        raise UsageError(f"--resume: found no {path.name} in {path.parent}", hint)
    try:
        return parse(read_json(path))
    except (UsageError, TypeError, ValueError, KeyError, AttributeError) as error:
        # Meshmark wrote the file, so this is not a usage error.
        raise MeshmarkError(f"{path}: not a plan of {what}: {error}") from error


def check_same(folder: Path, what: str, recorded: Any, requested: Mapping[str, Any], hint: str) -> None:
    """Raise UsageError if a session has different parameters from a request; the message names the first that differs.

    Args:
        folder: The folder of the session.
        what: Kind of the session.
        recorded: The parameters in the plan of the session.
        requested: The parameters of the request, as JSON would return them. A missing parameter equals None.
        hint: What to do instead.
    """
    values = recorded if isinstance(recorded, dict) else {}
    for name in {**requested, **values}:
        if (value := values.get(name)) != (requested_value := requested.get(name)):
            raise UsageError(
                f"{folder}: contains {what} with {name} = {quoted_value(value)}; "
                f"requested: {quoted_value(requested_value)}",
                hint,
            )


# ------------------------------------------------------------------ journals


class Journal:
    """A file with one JSON object on each line. A line counts once it is complete and on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: Mapping[str, Any]) -> None:
        """Append a line, and return when it is on the disk.

        Raises:
            MeshmarkError: The file cannot be written.
        """
        try:
            with open_for_append(self.path) as file:
                is_new = file.seek(0, os.SEEK_END) == 0
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                sync_folder(self.path.parent)
        except OSError as error:
            raise MeshmarkError(f"cannot write {self.path}: {error.strerror or error}") from error

    def entries(self, parse: Callable[[Any], Entry], what: str = "") -> Iterator[tuple[int, Entry]]:
        """Yield the entries, each with the number of its line, from 1. An incomplete last line is left out.

        Args:
            parse: Function that makes an entry from the value of a line; it raises ValueError, TypeError, KeyError or
                AttributeError if the line is not an entry.
            what: What an entry is called in the error for a line that is not one; "" to leave out such lines.

        Raises:
            MeshmarkError: The file cannot be read, or a line is not an entry.
        """
        try:
            for number, raw in enumerate(whole_lines(self.path), 1):
                try:
                    entry = parse(json.loads(raw))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    if what:
                        raise MeshmarkError(f"{self.path}: line {number} is not {what}: {error}") from error
                    continue
                yield number, entry
        except OSError as error:
            raise MeshmarkError(f"cannot read {self.path}: {error.strerror or error}") from error


@contextlib.contextmanager
def open_for_append(path: Path) -> Iterator[IO[bytes]]:
    """Open a journal for one writer, after cutting off an incomplete last line that a killed writer left.

    Raises:
        OSError: The file cannot be written.
    """
    make_folder(path.parent)
    with open_private(path, "ab") as file:
        with contextlib.suppress(OSError):  # no locks: `held` has refused to resume here
            lock_file(file.fileno(), wait=True)
        _cut_torn_end(path)
        yield file


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, including the newline; no lines if the file does not exist.

    A line longer than `MAX_LINE_BYTES` is replaced by an empty line, which is not a valid entry.

    Raises:
        OSError: The file cannot be read or is not a regular file.
    """
    try:
        lines = open_regular(path)
    except FileNotFoundError:
        return
    with lines:
        too_long = False
        while line := lines.readline(MAX_LINE_BYTES + 1):
            if not line.endswith(b"\n"):
                too_long = True  # or the incomplete end of the file
            elif too_long:
                too_long = False
                yield b"\n"
            else:
                yield line


def _cut_torn_end(path: Path) -> None:
    with path.open("r+b") as file:
        if not (size := file.seek(0, os.SEEK_END)):
            return
        tail = min(size, MAX_LINE_BYTES)
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(size - tail)
            file.truncate(size - tail + file.read(tail).rfind(b"\n") + 1)
