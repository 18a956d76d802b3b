"""Identifies a machine by its host name and a hash of its hardware, as all records do.

The native half computes both (native/base/topology/readers/identity.cpp), so that every command names a machine alike.
"""

from __future__ import annotations

import os
from pathlib import Path

from meshmark.native import call_library


def identity(root: Path = Path("/")) -> dict[str, str]:
    """Return the identity of the machine whose /proc and /sys are below `root`.

    Args:
        root: `/`, or a recorded tree.

    Returns:
        `name` (the host name, sanitized for file names), `hash` (12 hexadecimal digits; empty if no CPU is known), and
        `id`, which combines both.

    Raises:
        MeshmarkError: The native library is missing.
    """
    fields = call_library("meshmark_identity", os.fspath(root).rstrip("/"))
    return {k: str(fields[k]) for k in ("id", "name", "hash")}
