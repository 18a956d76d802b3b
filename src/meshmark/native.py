"""Locates the native programs, calls the native library, and says how programs are started and end."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
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


def die_with_parent() -> None:
    """Make the calling child process die with its parent, even if the parent is killed by SIGKILL.

    Call it between fork and exec. A measuring process that outlives its parent would keep the machine busy.
    """
    _signal_with_parent(signal.SIGKILL)


def end_with_parent() -> None:
    """Like `die_with_parent`, but by SIGTERM, for processes that must clean up: launchers end their ranks on other
    hosts, and recorders complete their file."""
    _signal_with_parent(signal.SIGTERM)


def _signal_with_parent(number: int) -> None:
    if number != signal.SIGKILL:  # a handler of the parent would take the signal until exec, which would lose it
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG
    if _forked_by[0] and os.getppid() != _forked_by[0]:  # it died before that call
        os.kill(os.getpid(), number)


_forked_by = [0]  # the process whose child this is; 0 if Python did not fork it


def _remember_parent() -> None:
    _forked_by[0] = os.getpid()


os.register_at_fork(before=_remember_parent)


def within(limit: int, wanted: int) -> tuple[int, int]:
    """Soft and hard value for `resource.setrlimit`: what is wanted, or less if this process may not have as much."""
    hard = resource.getrlimit(limit)[1]
    least = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return least, least


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
