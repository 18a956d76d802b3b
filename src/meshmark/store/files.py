"""The one way to write a file, to read one that a user names, and to hold a folder.

Writing: a regular file is replaced whole (written aside, fsynced, renamed) and keeps its mode, owner and attributes;
links are followed; a device, a FIFO or an open descriptor (`/dev/stdout`) is written into, as a shell's `>` does.
Reading: regular files up to a named limit, so that `/dev/zero`, a FIFO without a writer or a file of 100 GB is one
line at once. All text is UTF-8, whatever the locale says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted

MAX_TEXT_BYTES: Final = 16 << 20  # a specification, a scenario, a program: none that is meant comes near
_MAX_LINKS: Final = 40  # as the kernel
ASIDE: Final = re.compile(r"\..+\.[0-9a-f]{8,12}")  # a file that is being written, or whose writer was killed


# ------------------------------------------------------------------ writing


def write_file(path: Path, data: bytes) -> None:
    """Writes `path` as a whole, or not at all where it is a regular file.

    Raises:
        MeshmarkError: the disk is full or the file cannot be written; nothing is left behind.
    """
    with written(path) as out:
        out.write(data)


def write_text(path: Path, text: str) -> None:
    """The same for text that people look at, whatever names and command lines are in it."""
    write_file(path, utf8(text))


def utf8(text: str) -> bytes:
    """Text as bytes; half characters, which JSON and names of files can hold, become escapes."""
    return text.encode("utf-8", "backslashreplace")


@contextlib.contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """The same for what is written in pieces: takes the place of `path` when the `with` ends without an exception.

    Raises:
        MeshmarkError: as `write_file`.
    """
    try:
        with _opened(path) as out:
            yield out
    except OSError as why:
        raise MeshmarkError(f"cannot write {path}: {why.strerror or why}") from why


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    target = _followed(path)
    if isinstance(target, int):
        with os.fdopen(os.dup(target), "wb") as out:
            yield out
        return
    old = _stat(target)
    if old is not None and not stat.S_ISREG(old.st_mode):
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb") as out:
            yield out
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    # The kernel applies the umask; the name stays below the 255 B that file systems allow.
    name = f".{os.fsdecode(os.fsencode(target.name)[:200])}.{secrets.token_hex(6)}"
    aside = target.with_name(name)
    beside: IO[bytes] | None = None
    try:  # from before there is a file on: a signal may come at any moment
        try:
            beside = _aside(aside, target, old)
        except PermissionError:
            if old is None:
                raise
        if beside is not None:
            with beside:
                yield beside
                beside.flush()
                os.fsync(beside.fileno())
            aside.replace(target)
            sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    if beside is None:
        # The folder is not ours, or the owner cannot be kept. The file itself may still be ours to write.
        whole = io.BytesIO()
        yield whole
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb") as in_place:
            in_place.write(whole.getbuffer())
            in_place.flush()
            os.fsync(in_place.fileno())


def _aside(aside: Path, target: Path, old: os.stat_result | None) -> IO[bytes]:
    """A new file with a name that nobody can have prepared, which looks like the `target` that it is to replace.

    Raises:
        PermissionError: none may be made there, or its owner cannot be that of the old one.
    """
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        if old is not None:
            made = os.fstat(handle)
            if (made.st_uid, made.st_gid) != (old.st_uid, old.st_gid):
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
            # Access lists, above all: without them the mode's group bits would mean another group.
            with contextlib.suppress(OSError):
                for key in os.listxattr(target):
                    os.setxattr(handle, key, os.getxattr(target, key))
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def _followed(path: Path) -> Path | int:
    """Where links lead, though nothing may be there yet; an open descriptor of ours, where they lead to one.

    Raises:
        OSError: they lead in a circle.
    """
    for _ in range(_MAX_LINKS):
        here = Path(os.path.realpath(path.parent)) / path.name
        descriptor = re.fullmatch(rf"/proc/{os.getpid()}/(?:task/\d+/)?fd/(\d+)", str(here))
        if descriptor:
            return int(descriptor[1])
        if not here.is_symlink():
            return here
        path = here.parent / here.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """What was renamed in a folder survives a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------ reading


def open_regular(path: Path) -> IO[bytes]:
    """A regular file, opened to be read.

    Raises:
        OSError: it cannot be opened, or is a folder, a device, a FIFO or a socket.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"is {_kind(mode)}; a regular file is needed", str(path))
    return os.fdopen(handle, "rb")


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_it, name in kinds if is_it(mode)), "a device")


def read_bytes(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """A regular file that a user named, as a whole.

    Raises:
        UsageError: it cannot be read, is no regular file, or holds more than `max_bytes`.
    """
    try:
        with open_regular(path) as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as why:
        raise UsageError(f"cannot read {quoted(path)}: {getattr(why, 'strerror', None) or why}") from why
    if len(data) > max_bytes:
        raise UsageError(f"cannot read {quoted(path)}: found more than {max_bytes >> 10} KiB, which is the limit")
    return data


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """The same as UTF-8 text.

    Raises:
        UsageError: as `read_bytes`, or it is no such text.
    """
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as why:
        raise UsageError(f"cannot read {quoted(path)}: no UTF-8 text, at byte {why.start}") from why


def read_json(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> Any:
    """The same as JSON.

    Raises:
        UsageError: as `read_text`, or it is no JSON.
    """
    try:
        return json.loads(read_text(path, max_bytes))
    except (ValueError, RecursionError) as why:
        raise UsageError(f"cannot read {quoted(path)}: no JSON: {quoted(why)}") from why


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Tables of TOML text.

    Args:
        origin: what errors call the text.

    Raises:
        UsageError: it is no TOML.
    """
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as why:  # TOMLDecodeError, or an integer of thousands of digits
        raise UsageError(f"{origin}: not TOML: {quoted(why)}") from why


# ------------------------------------------------------------------ holding


class NoLocksError(MeshmarkError):
    """A file system without locks."""


def lock(path: Path, wait: bool = False) -> int | None:
    """An exclusive lock of a file that is there, which the kernel takes back from a process that dies.

    Args:
        wait: for one that only looks, and gives it back at once.

    Returns:
        A descriptor: closing it releases the lock. None: somebody has it, or the file has gone.

    Raises:
        NoLocksError: this file system has none.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as why:  # as Lustre's without its option flock
        os.close(handle)
        raise NoLocksError(
            f"{path.parent} has no locks ({why.strerror}): whether another process works there is not known",
            "name a folder on another file system",
        ) from why
    return handle


@contextlib.contextmanager
def held(folder: Path, resumed: bool = False) -> Iterator[None]:
    """A folder of results, made if it is missing, for this process alone.

    Args:
        resumed: others may be at it; then a file system without locks is refused.

    Raises:
        MeshmarkError: another process is at it, or it cannot be written.
        NoLocksError: see `resumed`.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
    except OSError as why:
        raise MeshmarkError(f"cannot write {folder}: {why.strerror or why}") from why
    handle: int | None = None
    try:
        handle = lock(path)
        if handle is None:
            raise MeshmarkError(f"{folder}: another process is measuring there", "wait for its end, or end it")
    except NoLocksError:
        if resumed:
            raise
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)
