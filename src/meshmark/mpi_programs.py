"""Finds the programs that `meshmark mpi build` compiled for the MPI libraries of this site."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError
from meshmark.native import VERSION
from meshmark.values.paths import data_home

DESCRIPTION: Final = "build.json"  # in the folder of each program


@dataclass(frozen=True, slots=True)
class BuiltProgram:
    """A program for one MPI library.

    Attributes:
        kind: Kind of the library, as in `--mpi`: `openmpi`, `mpich` or `mpi`.
        library: The library with its version, as it reports itself.
        launcher: The launcher of the library.
        program: The program, `meshmark-comm-KIND`.
        meshmark: Version of Meshmark whose sources were compiled.
    """

    kind: str
    library: str
    launcher: Path
    program: Path
    meshmark: str = VERSION


def programs_folder() -> Path:
    """Return the folder that has a folder for each program.

    Raises:
        MeshmarkError: The user has no home directory.
    """
    return data_home() / "mpi"


def program_name(kind: str) -> str:
    """Return the file name of the program for this kind of library."""
    return f"meshmark-comm-{kind}"


def built_program(kind: str) -> BuiltProgram | None:
    """Return the program for this kind of library, if this version of Meshmark built one; otherwise None.

    Of several, the program is returned whose launcher precedes in PATH, then the newest.
    """
    folders = [str(Path(folder)) for folder in os.environ.get("PATH", "").split(os.pathsep)]

    def rank(built: BuiltProgram) -> tuple[int, float]:
        folder = str(built.launcher.parent)
        return folders.index(folder) if folder in folders else len(folders), -built.program.stat().st_mtime

    usable = [b for b in _all_built() if b.kind == kind and b.meshmark == VERSION and os.access(b.launcher, os.X_OK)]
    return min(usable, key=rank, default=None)


def other_version(kind: str) -> str:
    """Return the version of Meshmark that built a program for this kind of library, if it is another one; or ""."""
    return next((b.meshmark for b in _all_built() if b.kind == kind and b.meshmark != VERSION), "")


def _all_built() -> list[BuiltProgram]:
    try:
        paths = sorted(programs_folder().glob(f"*/{DESCRIPTION}"))
    except (MeshmarkError, OSError):
        return []
    return [built for path in paths if (built := _read(path)) is not None]


def _read(path: Path) -> BuiltProgram | None:
    """Return the program that a file describes; None if the file or the program is missing or damaged."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        kind = str(content["kind"])
        program = path.parent / program_name(kind)
        if not os.access(program, os.X_OK):
            return None
        return BuiltProgram(kind, str(content["library"]), Path(content["launcher"]), program, str(content["meshmark"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
