"""Where the native programs are: named by a variable, beside the package, or in the build folder of this checkout."""

from __future__ import annotations

import os
from pathlib import Path

from meshmark.errors import MeshmarkError


def find_native(program: str, variable: str) -> Path:
    """The program that `variable` names, that of the installed package, or that of the build folder.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    package = Path(__file__).resolve().parents[1]
    named = os.environ.get(variable)
    places = [Path(named)] if named else [
        package / "bin" / program,
        package.parents[1] / "build" / "release" / "bin" / program,
    ]  # fmt: skip
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise MeshmarkError(f"{program} is not at {places[-1]}", hint=f"make setup builds it; {variable} names another")
