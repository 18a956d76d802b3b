"""Finds the native programs, and calls the native library."""

from __future__ import annotations

import ctypes
import errno
import json
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, quoted

VERSION: Final = "0.1.0"  # of the Python half; pyproject.toml has the version of the native half
_PACKAGE: Final = Path(__file__).resolve().parent


def is_checkout() -> bool:
    """Return whether this package is a part of a clone, rather than installed from a wheel."""
    return (_PACKAGE.parents[1] / "Makefile").is_file()


def remedy(target: str = "setup", in_wheel: bool = True) -> str:
    """Return what to do if a part is missing, damaged or of another version.

    Args:
        target: The target of make that builds the part.
        in_wheel: Whether a wheel contains the part.
    """
    if is_checkout():
        return f"make {target}"
    return "install Meshmark again" if in_wheel else f"make {target} in a clone of Meshmark"


def start_problem(program: Path, error: OSError) -> str:
    """Return in words why a program cannot be started."""
    if error.errno == errno.ENOEXEC:
        return f"{program.name} cannot be started: it was built for another kind of processor"
    if error.errno == errno.ENOENT and program.exists():
        return f"{program.name} cannot be started: this system lacks the C library glibc"
    return f"{program.name} cannot be started: {error.strerror or error}"


def find_native(name: str, variable: str = "", folder: str = "bin") -> Path:
    """Return the path of a native program: from the environment, the installed package or the build folder.

    Args:
        name: File name of the program or library.
        variable: Environment variable that overrides the path.
        folder: `bin`, or `lib` for a shared library.

    Raises:
        MeshmarkError: The file does not exist or is not executable.
    """
    override = os.environ.get(variable)
    places = (
        [Path(override)]
        if override
        else [
            _PACKAGE / folder / name,
            _PACKAGE.parents[1] / "build" / "release" / folder / name,
        ]
    )
    for place in places:
        if place.is_file() and (folder == "lib" or os.access(place, os.X_OK)):
            return place
    hint = remedy() + (f"; {variable} overrides its path" if variable else "")
    raise MeshmarkError(f"{name} not found at {places[-1 if is_checkout() else 0]}", hint=hint)


def call_library(function: str, *arguments: str | int, capacity: int = 1024) -> Any:
    """Call a function of libmeshmark-values.so (native/values), and return its JSON answer.

    Args:
        function: Name of the function.
        arguments: Its arguments. A text is passed as bytes, an integer as size_t.
        capacity: Expected length of the answer, in bytes; the function is called again if it is longer.

    Raises:
        MeshmarkError: The library is missing, cannot be loaded, or is of another version.
    """
    return _called(*_library(), function, *arguments, capacity=capacity)


def _called(library: ctypes.CDLL, path: Path, function: str, *arguments: str | int, capacity: int = 1024) -> Any:
    try:
        call = getattr(library, function)
    except AttributeError as error:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(error)}", remedy()) from error
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
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise MeshmarkError(f"{path.name} cannot be loaded: {quoted(error)}", remedy()) from error
    version = _called(library, path, "meshmark_version")["value"]
    if version != VERSION:
        raise MeshmarkError(f"{path.name} belongs to Meshmark {version}, the Python package is {VERSION}", remedy())
    return library, path


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
