"""Find the native program `meshmark-load` and read its description of counts and counters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meshmark import process
from meshmark.errors import MeshmarkError
from meshmark.native import find_native, remedy, start_error


def find_load() -> Path:
    """Return the path of the program from `MESHMARK_LOAD`, the installed package, or the build folder of this checkout.

    Raises:
        MeshmarkError: the program does not exist or is not executable.
    """
    return find_native("meshmark-load", "MESHMARK_LOAD")


@dataclass(frozen=True, slots=True)
class Column:
    """A quantity of one unit of a load kernel."""

    name: str
    unit: str
    help: str


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns by name, in the order of the description."""

    counts: Mapping[str, Column]  # exact, defined by each load kernel
    counters: Mapping[str, Column]  # events that the instrument requests; a machine may lack some events


def described_columns() -> Columns:
    """Return the columns that the native program describes.

    Raises:
        MeshmarkError: the program cannot be run, or its description cannot be read.
    """
    return _described(find_load())


@cache
def _described(load: Path) -> Columns:
    try:
        completed = process.run([load, "describe"], timeout_s=30)
        completed.check_returncode()
        description = json.loads(completed.stdout)
        return Columns(_columns(description["counts"]), _columns(description["counters"]))
    except OSError as error:
        raise start_error(load, error) from error
    except (subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise MeshmarkError(f"cannot read the description of {load.name}: {error}", hint=remedy()) from error


def _columns(raw: list[dict[str, Any]]) -> dict[str, Column]:
    return {c["name"]: Column(c["name"], c["unit"], c["help"]) for c in raw}
