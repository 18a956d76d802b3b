"""Makes changes of the machine for one run at a time, and undoes them when the run ends, even if it is killed.

A helper process undoes the changes as soon as this process closes a pipe to it. If this process is killed, the kernel
closes the pipe.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from meshmark import process
from meshmark.errors import MeshmarkError
from meshmark.store.files import lock_file

Step = tuple[Literal["write", "remove", "register"], Path, str]
_UNDO_S: Final = 10.0
# Waits for the end of its input, then writes texts into files, removes groups and writes registers.
_UNDO: Final = """
trap '' TERM INT HUP QUIT
while read -r _; do :; done
failed=0
while [ $# -ge 3 ]; do
  case $1 in
    write) printf '%s\\n' "$3" > "$2" || failed=1 ;;
    remove) [ ! -d "$2" ] || rmdir "$2" || failed=1 ;;
    register)
      printf "${3#* }" |
        dd of="$2" bs=8 count=1 iflag=fullblock oflag=seek_bytes seek="${3%% *}" conv=notrunc,nocreat 2>/dev/null ||
        failed=1
      ;;
  esac
  shift 3
done
exit $failed
"""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[int | None]:
    """Wait until no other run that varies the same limit is active, and yield the lock.

    A run that leaves the limit unchanged holds the lock, too. The lock is None if the folder does not exist.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # without the folder, nothing can be changed
        yield None
        return
    try:
        lock_file(handle, wait=True)
        yield handle
    finally:
        os.close(handle)


def register_step(device: Path, number: int, value: int) -> Step:
    """Return the step that writes a 64-bit value into a model-specific register through its device."""
    octal = "".join(f"\\{byte:03o}" for byte in value.to_bytes(8, "little"))
    return ("register", device, f"{number} {octal}")


@contextlib.contextmanager
def undone(steps: Sequence[Step], lock: int | None) -> Iterator[None]:
    """Take these steps when the context or this process ends.

    A step is to `write` a text into a file, to `remove` a group, or to write a `register`, see `register_step`. The
    helper process that takes the steps keeps the lock until then.
    """
    words = [word for kind, path, text in steps for word in (kind, str(path), text)]
    helper = process.start(
        ["sh", "-c", _UNDO, "sh", *words],
        process.OUTLIVES_PARENT,
        pass_fds=() if lock is None else (lock,),
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert helper.stdin is not None
        helper.stdin.close()
        try:
            status = helper.wait(_UNDO_S)
        except subprocess.TimeoutExpired:
            helper.kill()
            status = helper.wait()
        if status:
            raise MeshmarkError(f"cannot undo a limit: {', '.join(str(path) for _, path, _ in steps)}")
