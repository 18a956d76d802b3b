"""Where results of this user lie."""

from __future__ import annotations

import os
from pathlib import Path

from meshmark.errors import MeshmarkError


def find_home() -> bool:
    """Whether this user has a home. One in no list and without HOME, as in a container, is given one where nothing can
    be written: libraries that ask for it as they are loaded would fail."""
    if os.path.expanduser("~") == "~":  # noqa: PTH111 (which raises)
        os.environ["HOME"] = os.devnull
    return os.environ.get("HOME") != os.devnull


def data_home() -> Path:
    """Where stores and runs lie by default.

    Raises:
        MeshmarkError: this user has no home.
    """
    base = os.environ.get("XDG_DATA_HOME")
    if not base and not find_home():
        raise MeshmarkError("this user has no home for results", "set HOME, or XDG_DATA_HOME")
    return Path(base or Path.home() / ".local" / "share") / "meshmark"
