"""Tests of files that users name: special files are written into and never read, and files keep their mode."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.store.files import check_writable, read_bytes, read_json, read_text, write_file, written


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """A rename would turn /dev/null into a regular file for every program of the machine.

    The test never writes to the real device: it inspects a link to it, and root creates a separate device node.
    """
    (tmp_path / "null").symlink_to("/dev/null")
    write_file(tmp_path / "null", b"gone")
    assert (tmp_path / "null").is_symlink()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    node = tmp_path / "node"
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        node.read_bytes()
    except OSError:
        pytest.skip("no device nodes may be made or opened here")
    write_file(node, b"gone")
    assert stat.S_ISCHR(node.stat().st_mode)


def test_a_full_device_is_an_error() -> None:
    with pytest.raises(MeshmarkError, match="cannot write /dev/full: No space left"):
        write_file(Path("/dev/full"), b"x")


def test_a_fifo_is_written_into(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    chunks: list[bytes] = []
    reader = threading.Thread(target=lambda: chunks.append(fifo.read_bytes()))
    reader.start()
    write_file(fifo, b"through")
    reader.join(20)
    assert chunks == [b"through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("where", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link"])
@pytest.mark.parametrize("into", ["pipe", "file"])
def test_an_open_descriptor_is_written_into(tmp_path: Path, where: str, into: str) -> None:
    """A file behind the descriptor is appended to, as the shell opened it, and not replaced."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    where = str(tmp_path / where) if where == "link" else where
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    program = (
        f"from meshmark.store.files import write_file; from pathlib import Path; write_file(Path({where!r}), b'x')"
    )
    with log.open("ab") as file:
        out = subprocess.PIPE if into == "pipe" else file
        completed = subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert completed.stdout == b"x" if into == "pipe" else log.read_bytes() == b"before\nx"
    assert names(tmp_path) == ["link", "log"]


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").symlink_to("deep/b")
    (tmp_path / "deep" / "b").symlink_to("c")  # the target does not exist yet
    write_file(tmp_path / "a", b"1")
    write_file(tmp_path / "a", b"2")
    assert (tmp_path / "deep" / "c").read_bytes() == b"2"
    assert names(tmp_path / "deep") == ["b", "c"]
    assert (tmp_path / "a").is_symlink()
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    with pytest.raises(MeshmarkError, match="symbolic links"):
        write_file(tmp_path / "x", b"1")


def test_mode_and_owner_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    with_attribute = True
    try:
        os.setxattr(path, "user.meshmark", b"kept")
    except OSError:
        with_attribute = False  # the file system has no extended attributes
    old_status = path.stat()
    write_file(path, b"new")
    new_status = path.stat()
    assert path.read_bytes() == b"new"
    assert (new_status.st_mode, new_status.st_uid, new_status.st_gid) == (
        old_status.st_mode,
        old_status.st_uid,
        old_status.st_gid,
    )
    assert new_status.st_ino != old_status.st_ino  # replaced, not overwritten
    assert not with_attribute or os.getxattr(path, "user.meshmark") == b"kept"


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    old_umask = os.umask(0o077)
    try:
        write_file(tmp_path / "new", b"")
    finally:
        os.umask(old_umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write_file(path, b"old")
    with pytest.raises(KeyboardInterrupt), written(path) as out:
        out.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["out"]
    with pytest.raises(MeshmarkError, match="directory"):
        write_file(tmp_path, b"x")


def test_a_prepared_name_beside_it_is_not_used(tmp_path: Path) -> None:
    """Names of temporary files are unpredictable, so nobody can create a link there first."""
    temporary_names = set()
    for _ in range(3):
        with written(tmp_path / "out") as out:
            out.write(b"x")
            temporary_names |= {n for n in names(tmp_path) if n != "out"}
    assert len(temporary_names) == 3


def test_long_names_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)  # 254 B
    write_file(path, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/null", "fifo", "folder", "missing", "large", "nul"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, what: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "large").write_bytes(b"x" * 2001)
    path = tmp_path / ("a\0b" if what == "nul" else what)
    with pytest.raises(UsageError) as error:
        read_bytes(path, 2000)
    messages = {"large": "more than 1 KiB", "missing": "No such file", "nul": "null"}
    assert messages.get(what, "a regular file is required") in str(error.value)
    assert "\n" not in str(error.value)


def test_text_and_json_name_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"\xff{}")
    with pytest.raises(UsageError, match="not UTF-8 text, at byte 0"):
        read_text(path)
    for content in (b"{", b"[" * 100_000, b"1" * 5000):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"x\.json: not JSON"):
            read_json(path)


def test_quotes_are_short_and_harmless() -> None:
    assert quoted("a\nb\x1b[31m\u202e") == "a b [31m "
    assert len(quoted("x" * 1000)) == 100


def test_an_interrupt_leaves_nothing_however_early_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises the exception after the system call has returned, so the result of the call is lost."""
    real_open = os.open

    def interrupted(*words: object, **more: object) -> int:
        handle = real_open(*words, **more)  # type: ignore[arg-type]
        if "x.json" in str(words[0]):
            os.close(handle)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "x.json", b"{}")
    assert not list(tmp_path.iterdir())


def test_an_interrupt_is_not_taken_for_an_error_of_closing(tmp_path: Path) -> None:
    """The signal's exception may leave the file half closed, so that closing it fails."""
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), written(tmp_path / "f") as out:
        out.write(b"new")
        os.close(out.fileno())
        raise KeyboardInterrupt
    assert names(tmp_path) == ["f"] and (tmp_path / "f").read_bytes() == b"old"


# ------------------------------------------------------------------ before work


@pytest.mark.parametrize("path", ["folder", "file/below", "/proc/x", "/dev/null/x", "a\0b"])
def test_a_path_that_cannot_be_written_is_refused_before_work(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^--out: cannot write "):
        check_writable("--out", tmp_path / path)


def test_a_check_of_a_path_leaves_everything_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in ("file", "new", "missing/folder/file"):
        check_writable("--out", tmp_path / path)
    check_writable("--out", Path("/dev/null"))
    check_writable("--out", Path("/dev/stdout"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "x"
