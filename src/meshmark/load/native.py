"""The native program that runs loads: where it is, and what it counts of load kernels."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError
from meshmark.native import find_native


def find_load() -> Path:
    """The program of `MESHMARK_LOAD`, of the installed package, or of the build folder of this checkout.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    return find_native("meshmark-load", "MESHMARK_LOAD")


@dataclass(frozen=True, slots=True)
class Column:
    """A number of one unit of a load kernel."""

    name: str
    unit: str
    help: str


@dataclass(frozen=True, slots=True)
class Columns:
    """All of them, by name, in the order of the description."""

    counts: Mapping[str, Column]  # exact, stated by each load kernel
    counters: Mapping[str, Column]  # events that the instrument asks for; which of them count depends on the machine


def described_columns() -> Columns:
    """As the program describes itself.

    Raises:
        MeshmarkError: it does not answer.
    """
    return _described(find_load())


@cache
def _described(load: Path) -> Columns:
    try:
        done = subprocess.run([str(load), "describe"], capture_output=True, timeout=30, check=True)
        found = json.loads(done.stdout)
        return Columns(_columns(found["counts"]), _columns(found["counters"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as why:
        raise MeshmarkError(f"{load.name} does not describe itself: {why}", hint="make setup") from why


def _columns(raw: list[dict[str, Any]]) -> dict[str, Column]:
    return {c["name"]: Column(c["name"], c["unit"], c["help"]) for c in raw}
