"""Locates the native programs and ends them when their parent process ends."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from meshmark.errors import MeshmarkError


def find_native(name: str, variable: str = "", folder: str = "bin") -> Path:
    """Path of a native program: from the environment, the installed package or the checkout's build folder.

    Args:
        name: File name of the program or library.
        variable: Environment variable that overrides the path.
        folder: `bin`, or `lib` for a shared library.

    Raises:
        MeshmarkError: The file does not exist or is not executable.
    """
    package = Path(__file__).resolve().parent
    override = os.environ.get(variable)
    places = (
        [Path(override)]
        if override
        else [
            package / folder / name,
            package.parents[1] / "build" / "release" / folder / name,
        ]
    )
    for place in places:
        if place.is_file() and (folder == "lib" or os.access(place, os.X_OK)):
            return place
    hint = "make setup builds it" + (f"; {variable} overrides its path" if variable else "")
    raise MeshmarkError(f"{name} not found at {places[-1]}", hint=hint)


def die_with_parent() -> None:
    """Make the calling child process die with its parent, even if the parent is killed by SIGKILL.

    Call it between fork and exec. A measuring process that outlives its parent would keep the machine busy.
    """
    _signal_with_parent(signal.SIGKILL)


def end_with_parent() -> None:
    """Like `die_with_parent`, but by SIGTERM, for processes that must clean up: launchers end their ranks on other
    hosts, and recorders complete their file."""
    _signal_with_parent(signal.SIGTERM)


def _signal_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
