"""Determines the user's folders for results and for files that can be created again."""

from __future__ import annotations

import os
from pathlib import Path

from meshmark.errors import MeshmarkError


def find_home() -> bool:
    """Return whether this user has a home directory.

    If not (no passwd entry and no HOME, as in some containers), set HOME to a path that cannot be written, because
    some libraries fail to load without it.
    """
    if os.path.expanduser("~") == "~":  # noqa: PTH111 (`Path.expanduser` raises)
        os.environ["HOME"] = os.devnull
    return os.environ.get("HOME") != os.devnull


def data_home() -> Path:
    """Return the default folder of stores and runs.

    Raises:
        MeshmarkError: The user has no home directory.
    """
    base = os.environ.get("XDG_DATA_HOME")
    if not base and not find_home():
        raise MeshmarkError("found no home directory for results", "set HOME or XDG_DATA_HOME")
    return Path(base or Path.home() / ".local" / "share") / "meshmark"


def default_store() -> Path:
    """Return the folder of the store that commands use unless another one is named.

    Raises:
        MeshmarkError: The user has no home directory.
    """
    return data_home() / "store"


def run_folder(run: str) -> Path:
    """Return the folder of a run by its name, or the folder itself if it is a path.

    Raises:
        MeshmarkError: The user has no home directory.
    """
    return Path(run) if "/" in run else data_home() / "runs" / run
