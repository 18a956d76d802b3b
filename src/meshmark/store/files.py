"""Writes files atomically, and reads files that a user names.

Writing replaces a regular file atomically (temporary file, fsync, rename) and keeps its mode, owner and attributes.
Folders of runs, stores and plans, and the files in them, are created for their owner only, since they hold command
lines and output of programs; see `private_mode`. Links are followed. Devices, FIFOs and open descriptors
(`/dev/stdout`) are opened for writing, as by a shell's `>`.
Reading accepts only regular files up to a size limit, so that `/dev/zero`, a FIFO without a writer or a file of 100 GB
is an error instead of a hang. All text is UTF-8, independent of the locale.
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
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MAX_TEXT_BYTES: Final = 16 << 20  # far above the size of any real specification, scenario or program
_MAX_LINKS: Final = 40  # as in the Linux kernel
_ABANDONED_S: Final = 3600.0  # a temporary file of this age is abandoned, on file systems without locks
_LOCKED_WITHIN_S: Final = 1.0  # time in which a writer locks the temporary file that it created
ASIDE: Final = re.compile(r"\..+\.[0-9a-f]{8,12}")  # temporary files, of active or killed writers


# ------------------------------------------------------------------ writing


def private_mode(folder: Path) -> int:
    """Return the mode of a new file in a folder of results: only the owner may access it.

    If the group may write the folder, it is shared on purpose: all who may read the folder may read its new files.
    """
    mode = folder.stat().st_mode
    return 0o600 | (mode & 0o044 if mode & stat.S_IWGRP else 0)


def make_folder(path: Path) -> None:
    """Create a folder of results and its missing parents, for their owner only, or with the mode of a shared parent.

    Raises:
        OSError: The folder cannot be created, or the path is a file.
    """
    missing = [path, *path.parents]
    missing = missing[: next((n for n, folder in enumerate(missing) if folder.is_dir()), len(missing))]
    for folder in reversed(missing):
        parent = folder.parent.stat().st_mode
        try:
            folder.mkdir(0o700)
        except FileExistsError:  # another process was faster, or there is a file
            if not folder.is_dir():
                raise
            continue
        if parent & stat.S_IWGRP and not parent & stat.S_ISVTX:  # /tmp is writable for all, but not shared on purpose
            folder.chmod(stat.S_IMODE(parent))


def open_private(path: Path, mode: str, buffering: int = -1) -> IO[bytes]:
    """Open a binary file of a run for writing; a new file gets the mode `private_mode`.

    Raises:
        OSError: The file cannot be opened.
    """

    def create(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_CLOEXEC, private_mode(path.parent))

    file: IO[bytes] = open(path, mode, buffering, opener=create)  # noqa: SIM115 (the caller closes it)
    return file


def write_file(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` to `path`; atomically if it is a regular file.

    Args:
        path: The file.
        data: Its new content.
        private: Create the file for its owner only, see `private_mode`.

    Raises:
        MeshmarkError: The file cannot be written, for example because the disk is full. No temporary file remains.
    """
    with written(path, private=private) as out:
        out.write(data)


def write_text(path: Path, text: str) -> None:
    """Write text to `path` like `write_file`, encoded by `utf8`."""
    write_file(path, utf8(text))


def write_json(path: Path, value: DataclassInstance | Mapping[str, Any] | Sequence[Any]) -> None:
    """Write a value as a JSON file for its owner only, see `private_mode`; otherwise like `write_file`."""
    content = asdict(value) if is_dataclass(value) else value
    write_file(path, json.dumps(content, indent=1).encode() + b"\n", private=True)


def utf8(text: str) -> bytes:
    """Encode `text` as UTF-8; lone surrogates, which JSON strings and file names may contain, become escapes."""
    return text.encode("utf-8", "backslashreplace")


@contextlib.contextmanager
def written(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open `path` for output in pieces. The file is replaced when the `with` block ends without an exception.

    Otherwise this is like `write_file`. In a folder that only its owner may use, all new files are private.

    Raises:
        MeshmarkError: See `write_file`.
    """
    try:
        with _opened(path, private) as out:
            yield out
    except OSError as error:
        if (interrupt := _interrupt(error)) is not None:
            raise interrupt from None  # the interrupt left the file half closed, so that closing it failed
        raise MeshmarkError(f"cannot write {path}: {error.strerror or error}") from error


def _interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt during whose handling an exception was raised; None if there was no interrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


@contextlib.contextmanager
def _opened(path: Path, private: bool) -> Iterator[IO[bytes]]:
    target = _resolved(path)
    if isinstance(target, int):
        with os.fdopen(os.dup(target), "wb") as out:
            yield out
        return
    old_status = _stat(target)
    if old_status is not None and not stat.S_ISREG(old_status.st_mode):
        if stat.S_ISDIR(old_status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb") as out:
            yield out
        return
    if private:
        make_folder(target.parent)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
    private = private or not target.parent.stat().st_mode & 0o077
    # The Linux kernel applies the umask. The name stays below the 255 B that file systems allow.
    name = f".{os.fsdecode(os.fsencode(target.name)[:200])}.{secrets.token_hex(6)}"
    temporary_path = target.with_name(name)
    temporary_file: IO[bytes] | None = None
    try:  # begins before the file exists, because a signal may arrive at any time
        try:
            temporary_file = _aside(
                temporary_path, old_status, target, private_mode(target.parent) if private else 0o666
            )
        except PermissionError:
            if old_status is None:
                raise
        if temporary_file is not None:
            with temporary_file:
                yield temporary_file
                temporary_file.flush()
                os.fsync(temporary_file.fileno())
            temporary_path.replace(target)
            sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary_path.unlink()
        raise
    if temporary_file is None:
        # The folder is not writable or the owner cannot be preserved, but the file itself may be writable.
        whole = io.BytesIO()
        yield whole
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), "wb") as in_place:
            in_place.write(whole.getbuffer())
            in_place.flush()
            os.fsync(in_place.fileno())


def _aside(aside: Path, old: os.stat_result | None, target: Path, mode: int) -> IO[bytes]:
    """Create a file `aside` with the mode, owner and attributes of the `target` that it will replace.

    Args:
        aside: Path of the new file.
        old: Status of the target. None if the target does not exist; the new file then gets the mode `mode`.
        target: The file that it will replace.
        mode: Mode of the new file if the target does not exist.

    Raises:
        PermissionError: The folder is not writable, or the owner cannot be preserved.
    """
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with contextlib.suppress(OSError):  # the kernel releases the lock when this process ends, see `is_abandoned`
            lock_file(handle)
        if old is not None:
            status = os.fstat(handle)
            if (status.st_uid, status.st_gid) != (old.st_uid, old.st_gid):
                os.fchown(handle, old.st_uid, old.st_gid)
            os.fchmod(handle, stat.S_IMODE(old.st_mode))
            # Above all, access control lists are copied: without them, the group bits of the mode mean something else.
            with contextlib.suppress(OSError):
                for key in os.listxattr(target):
                    os.setxattr(handle, key, os.getxattr(target, key))
        return os.fdopen(handle, "wb")
    except BaseException:
        os.close(handle)
        with contextlib.suppress(OSError):
            aside.unlink()
        raise


def is_abandoned(path: Path) -> bool:
    """Return whether a file is a temporary file of `written` whose writer was killed.

    On a file system without locks, the file counts as abandoned if it is older than an hour.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if not ASIDE.fullmatch(path.name) or not stat.S_ISREG(status.st_mode):
            return False
        age_s = time.time() - status.st_mtime
        try:
            return lock_file(handle) and age_s > _LOCKED_WITHIN_S
        except OSError:
            return age_s > _ABANDONED_S
    finally:
        os.close(handle)


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary files in a store, or in a table of a fleet, whose writers were killed."""
    paths = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [Path(parent, name) for name in names if ASIDE.fullmatch(name) and is_abandoned(Path(parent, name))]
    return sorted(paths)


def lock_file(handle: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder exclusively until it is closed by all processes that have the descriptor.

    Args:
        handle: The descriptor.
        wait: Wait until no other process has the lock.

    Returns:
        Whether the file is locked now; False if another process has the lock.

    Raises:
        OSError: The file system does not support locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def _resolved(path: Path) -> Path | int:
    """Return the target of `path` after all links, or the number of an open descriptor if the links lead to one.

    The target need not exist. The descriptor is one of this process.

    Raises:
        OSError: The links form a cycle.
    """
    for _ in range(_MAX_LINKS):
        current = Path(os.path.realpath(path.parent)) / path.name
        descriptor = re.fullmatch(rf"/proc/{os.getpid()}/(?:task/\d+/)?fd/(\d+)", str(current))
        if descriptor:
            return int(descriptor[1])
        if not current.is_symlink():
            return current
        path = current.parent / current.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that a rename in it survives a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------ reading


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    Raises:
        OSError: The file cannot be opened, or is a folder, a device, a FIFO or a socket.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"is {_kind_of(mode)}; a regular file is required", str(path))
    return os.fdopen(handle, "rb")


def _kind_of(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for matches, name in kinds if matches(mode)), "a device")


def read_bytes(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the content of a regular file that a user named.

    Raises:
        UsageError: The file cannot be read, is not a regular file, or is larger than `max_bytes`.
    """
    try:
        with open_regular(path) as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > max_bytes:
        raise UsageError(f"cannot read {quoted(path)}: found more than {max_bytes >> 10} KiB, which is the limit")
    return data


def read_tail(descriptor: int, max_bytes: int) -> str:
    """Return the last bytes of an open file as text; invalid bytes become U+FFFD. Its position does not change."""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, max_bytes, max(0, size - max_bytes)).decode(errors="replace")


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Return the content of a UTF-8 file; otherwise like `read_bytes`.

    Raises:
        UsageError: See `read_bytes`; or the content is not UTF-8.
    """
    try:
        return read_bytes(path, max_bytes).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {quoted(path)}: not UTF-8 text, at byte {error.start}") from error


def read_json(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> Any:
    """Return the value of a JSON file; otherwise like `read_text`.

    Raises:
        UsageError: See `read_text`; or the content is not JSON.
    """
    return parse_json(read_text(path, max_bytes), path)


def parse_json(text: str, path: Path) -> Any:
    """Return the value of the text of a JSON file.

    Raises:
        UsageError: The text is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"cannot read {quoted(path)}: not JSON: {quoted(error)}") from error


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Parse TOML.

    Args:
        text: The TOML document.
        origin: The name of the document in error messages.

    Raises:
        UsageError: The text is not TOML.
    """
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise UsageError(f"{origin}: not TOML: {quoted(error)}") from error


# ------------------------------------------------------------------ checks


def check_writable(option: str, path: Path) -> None:
    """Raise if a file cannot be written at `path`. A command calls this before work that may take minutes.

    Args:
        option: The option that names the file, for the message.
        path: The file that will be written.

    Raises:
        UsageError: The path is a folder, or the file or its folder is not writable.
    """
    if problem := writing_problem(path):
        raise UsageError(f"{option}: cannot write {quoted(path)}: {problem}")


def writing_problem(path: Path) -> str:
    """Return why a file cannot be written at `path`; "" if it can. Everything created for the check is removed."""
    try:
        target = _resolved(path)
        if isinstance(target, int):
            return ""
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            target.lstat()  # raises for names that are too long or contain a null character
        folder = next(folder for folder in target.parents if folder.exists())
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if target.exists() and os.access(target, os.W_OK):
            return ""
        # Access rights are not enough: root cannot write to /proc, nor to a file system that is read-only or full.
        probe = folder / f".{secrets.token_hex(6)}.{secrets.token_hex(6)}"
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        probe.unlink()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def unlink(paths: Iterable[Path]) -> None:
    """Remove files. Files that do not exist any more are ignored.

    Raises:
        MeshmarkError: A file cannot be removed.
    """
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise MeshmarkError(f"cannot remove {path}: {error.strerror or error}") from error
