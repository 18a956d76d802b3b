"""Finds the native programs, and calls the native library."""

from __future__ import annotations

import ctypes
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError, quoted


def find_native(name: str, variable: str = "", folder: str = "bin") -> Path:
    """Return the path of a native program: from the environment, the installed package or the build folder.

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


def call_library(function: str, *arguments: str | int, capacity: int = 1024) -> Any:
    """Call a function of libmeshmark-values.so (native/values), and return its JSON answer.

    Args:
        function: Name of the function.
        arguments: Its arguments. A text is passed as bytes, an integer as size_t.
        capacity: Expected length of the answer, in bytes; the function is called again if it is longer.

    Raises:
        MeshmarkError: The library is missing or cannot be loaded.
    """
    library, path = _library()
    try:
        call = getattr(library, function)
    except AttributeError as error:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(error)}", "make setup builds it") from error
    call.restype = ctypes.c_size_t
    c_arguments = [
        ctypes.c_size_t(a) if isinstance(a, int) else ctypes.c_char_p(a.encode(errors="surrogatepass"))
        for a in arguments
    ]
    while True:
        out = ctypes.create_string_buffer(capacity)
        length = call(*c_arguments, out, ctypes.c_size_t(capacity))
        if length < capacity:
            return json.loads(out.raw[:length].decode(errors="replace"))
        capacity = length + 1


@cache
def _library() -> tuple[ctypes.CDLL, Path]:
    path = find_native("libmeshmark-values.so", "MESHMARK_VALUES", "lib")
    try:
        return ctypes.CDLL(str(path)), path
    except OSError as error:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(error)}", "make setup builds it") from error


def openmpi_unbound() -> dict[str, str]:
    """Return variables that let Open MPI run any number of ranks on the CPUs of its launcher.

    By default, Open MPI ignores the CPUs of the launcher. The first two variables are for version 4, the others for 5.
    """
    return {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def openmpi_as_root() -> dict[str, str]:
    """Return variables that Open MPI needs to run as root, if the user started Meshmark as root; otherwise none."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
