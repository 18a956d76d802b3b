"""Native programs: where they are (named by a variable, beside the package, or in the build folder of this checkout),
and that they do not outlive who started them."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

from meshmark.errors import MeshmarkError


def find_native(name: str, variable: str = "", folder: str = "bin") -> Path:
    """The program that the environment's `variable` names, that of the installed package, or that of the build folder.

    Args:
        folder: `bin`, or `lib` for a shared library.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    package = Path(__file__).resolve().parent
    named = os.environ.get(variable)
    places = (
        [Path(named)]
        if named
        else [
            package / folder / name,
            package.parents[1] / "build" / "release" / folder / name,
        ]
    )
    for place in places:
        if place.is_file() and (folder == "lib" or os.access(place, os.X_OK)):
            return place
    hint = "make setup builds it" + (f"; {variable} names another" if variable else "")
    raise MeshmarkError(f"{name} is not at {places[-1]}", hint=hint)


def die_with_parent() -> None:
    """In the child, before its program: SIGKILL of the parent must not leave what burns the machine."""
    _signal_with_parent(signal.SIGKILL)


def end_with_parent() -> None:
    """The same for what has something to end in order: a launcher its ranks on other hosts, a recorder its file."""
    _signal_with_parent(signal.SIGTERM)


def _signal_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
