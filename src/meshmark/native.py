"""Locates the native programs, and calls the native library."""

from __future__ import annotations

import ctypes
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

from meshmark.errors import MeshmarkError, quoted


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


def call_library(function: str, *arguments: str | int, capacity: int = 1024) -> Any:
    """The JSON answer of a function of libmeshmark-values.so (native/values).

    Args:
        arguments: A text is passed as its bytes, an integer as size_t.
        capacity: Expected length of the answer, in bytes; the function is called again if it is longer.

    Raises:
        MeshmarkError: The library is missing or cannot be loaded.
    """
    library, path = _library()
    try:
        call = getattr(library, function)
    except AttributeError as why:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(why)}", "make setup builds it") from why
    call.restype = ctypes.c_size_t
    given = [
        ctypes.c_size_t(a) if isinstance(a, int) else ctypes.c_char_p(a.encode(errors="surrogatepass"))
        for a in arguments
    ]
    while True:
        out = ctypes.create_string_buffer(capacity)
        length = call(*given, out, ctypes.c_size_t(capacity))
        if length < capacity:
            return json.loads(out.raw[:length].decode(errors="replace"))
        capacity = length + 1


@cache
def _library() -> tuple[ctypes.CDLL, Path]:
    path = find_native("libmeshmark-values.so", "MESHMARK_VALUES", "lib")
    try:
        return ctypes.CDLL(str(path)), path
    except OSError as why:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(why)}", "make setup builds it") from why


def openmpi_unbound() -> dict[str, str]:
    """Variables with which Open MPI leaves its ranks on the CPUs of its launcher, which it ignores by itself, however
    many they are. The first two are of version 4, the others of 5."""
    return {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }


def openmpi_as_root() -> dict[str, str]:
    """Variables without which Open MPI does not run as root; the user who started Meshmark as root has decided that."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
