"""Compiles the program of MPI ranks for the MPI library of this site, where that is installed.

The wheel contains the sources (native/mpi/sources.cmake), because MPI libraries have no common binary interface.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.describe import KINDS
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.measure.runs import launch
from meshmark.mpi_programs import DESCRIPTION, program_name, programs_folder
from meshmark.native import VERSION, find_native, openmpi_unbound, remedy
from meshmark.store.files import make_folder, write_file, write_json

WRAPPERS: Final = ("mpicxx", "mpic++", "mpiicpx", "CC")
_FLAGS: Final = "-O2 -DNDEBUG"
_OPTIONS: Final = ("-std=c++20", *_FLAGS.split(), "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", f'-DMM_FLAGS="{_FLAGS}"')
_PER_UNIT: Final = 12  # sources that are compiled at once, since they share most headers
_COMPILATION_S: Final = 1200.0
_START_S: Final = 60.0
_TRIAL: Final = ("barrier", "--budget", "100ms", "--interval", "50")


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of the program, and what the compiler needs besides the wrapper's options."""

    tree: Path
    sources: tuple[str, ...]  # relative to `tree`
    provenance: Path
    include: tuple[Path, ...]
    libraries: tuple[str, ...]


def read_sources() -> Sources:
    """Return the sources in the wheel or in the clone.

    Raises:
        MeshmarkError: They are missing or damaged.
    """
    path = find_native("sources.json", folder="mpi")
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        folder = path.parent
        return Sources(
            folder / content["tree"],
            tuple(content["sources"]),
            folder / content["provenance"],
            tuple(folder / name for name in content["include"]),
            tuple(str(folder / name) for name in content["libraries"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MeshmarkError(f"{path} cannot be read: {quoted(error)}", remedy()) from error


def find_wrapper(mpi: str = "any", compiler: str = "") -> Path:
    """Return the compiler wrapper of an MPI library for C++.

    Args:
        mpi: Kind of the library, or `any`.
        compiler: Name or path of the wrapper; "" to search for one.

    Raises:
        UsageError: The kind is unknown, or the named wrapper is not a program.
        AbsentError: There is no wrapper.
    """
    if mpi not in ("any", *KINDS):
        raise UsageError(f"--mpi: found '{quoted(mpi)}'; allowed: any, {', '.join(KINDS)}")
    folders = os.pathsep.join((str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)))
    of_kind = [f"{name}.{mpi}" for name in WRAPPERS[:2]] if mpi in {"openmpi", "mpich"} else []
    names = [compiler] if compiler else [*of_kind, *WRAPPERS]
    for name in names:
        if path := shutil.which(name, path=folders):
            return Path(path).absolute()
    if compiler:
        raise UsageError(
            f"--compiler: found '{quoted(compiler)}', which is not a program; allowed: the C++ compiler wrapper of an "
            "MPI library, such as mpicxx"
        )
    raise AbsentError(
        f"found no compiler wrapper of an MPI library ({', '.join(WRAPPERS)})",
        "load the module of the MPI library, install its development package, or name its wrapper: --compiler PATH",
    )


def check_compiler(wrapper: Path) -> None:
    """Check that the wrapper finds a C++ compiler.

    Raises:
        AbsentError: It does not.
    """
    try:
        completed = process.run_text([wrapper, "--version"], timeout_s=_START_S)
        reason = "" if completed.returncode == 0 else _first_line(completed.stderr or completed.stdout)
    except (OSError, subprocess.SubprocessError) as error:
        completed, reason = None, str(error)
    if reason or completed is None or completed.returncode != 0:
        raise AbsentError(
            f"{wrapper} finds no C++ compiler: {quoted(reason or 'it prints no version', 200)}",
            "install g++ 11 or later, or name a compiler by OMPI_CXX (Open MPI) or MPICH_CXX (MPICH)",
        )


def find_launcher(wrapper: Path) -> Path:
    """Return the launcher of the same MPI library: the one beside the wrapper, otherwise the first in PATH.

    Raises:
        AbsentError: There is no launcher.
    """
    suffix = wrapper.name.partition(".")[2]
    names = [f"{name}.{suffix}" if suffix else name for name in ("mpirun", "mpiexec")]
    for name, folders in [*((name, str(wrapper.parent)) for name in names), *((name, None) for name in names)]:
        if path := shutil.which(name, path=folders):
            return Path(path)
    if path := shutil.which("srun"):
        return Path(path)
    raise AbsentError(f"found no launcher ({', '.join(names)}) for {wrapper}", "load the module of the MPI library")


def build_program(
    wrapper: Path,
    mpi: str = "any",
    output: Path | None = None,
    *,
    is_tried: bool = True,
    notify: Callable[[str], None] = lambda text: None,
) -> Path:
    """Compile the program for the library of a wrapper, and start two ranks of it.

    Args:
        wrapper: The compiler wrapper, from `find_wrapper`.
        mpi: The kind of library that is expected, or `any`.
        output: Folder for the program; None: a folder of the user's data, in which measurements find it.
        is_tried: Whether to start two ranks, which login nodes may forbid.
        notify: Function that is called with messages for the user.

    Returns:
        The path of the program.

    Raises:
        AbsentError: The compiler or the launcher is missing.
        MeshmarkError: The program cannot be compiled, started or written. The message names the log of the compiler.
    """
    sources = read_sources()
    check_compiler(wrapper)
    launcher = find_launcher(wrapper)
    parent = output if output is not None else programs_folder()
    try:
        make_folder(parent)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=parent) as name:
            return _built(sources, wrapper, launcher, mpi, Path(name), output, is_tried, notify)
    except OSError as error:
        raise MeshmarkError(
            f"{parent}: cannot be written: {error.strerror or error}", "--output FOLDER, or set XDG_DATA_HOME"
        ) from error


def _built(
    sources: Sources,
    wrapper: Path,
    launcher: Path,
    mpi: str,
    aside: Path,
    output: Path | None,
    is_tried: bool,
    notify: Callable[[str], None],
) -> Path:
    """Compile and try the program in the folder `aside`, and move it to its place."""
    program = aside / "meshmark-comm"
    compile_sources(sources, wrapper, program, aside.parent / "build.log", notify)
    identity = _identity(program, wrapper)
    kind, library = identity["mpi"] if identity["mpi"] in KINDS else "mpi", identity["library"]
    if mpi not in ("any", kind):
        raise UsageError(f"--mpi: found '{mpi}', but {wrapper} compiles for {library}; allowed: {kind}, or --compiler")
    if is_tried:
        notify(f"starting two ranks by {launcher}")
        _try(launcher, program)
    folder = output or aside.parent / _folder_name(library, wrapper)
    make_folder(folder)
    path = folder / program_name(kind)
    os.replace(program, path)
    description = {"kind": kind, "library": library, "launcher": str(launcher), "meshmark": VERSION}
    write_json(folder / DESCRIPTION, {**description, "wrapper": str(wrapper)})
    return path


def compile_sources(
    sources: Sources, wrapper: Path, program: Path, log: Path, notify: Callable[[str], None] = lambda text: None
) -> None:
    """Compile and link a program, with one compiler per CPU.

    Args:
        sources: The sources.
        wrapper: The compiler.
        program: Path of the program. Its folder gets the object files.
        log: File for the commands and what they print.
        notify: Function that is called with messages for the user.

    Raises:
        MeshmarkError: The compiler reports an error; the message has its first line and names the log.
        OSError: The folder or the log cannot be written.
    """
    units = [sources.provenance, *_units(sources, program.parent)]
    options = [*_OPTIONS, f"-I{sources.tree}", *(f"-I{folder}" for folder in sources.include)]
    objects = [program.parent / f"{number}.o" for number in range(len(units))]
    commands = [
        [str(wrapper), *options, "-c", str(unit), "-o", str(made)] for unit, made in zip(units, objects, strict=True)
    ]
    jobs = len(os.sched_getaffinity(0))
    notify(f"compiling {len(sources.sources)} sources by {wrapper}, {jobs} at a time")
    link = [str(wrapper), *map(str, objects), *sources.libraries, "-ldl", "-lpthread", "-o", str(program)]
    with ThreadPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(_outcome, commands))
    if all(status == 0 for status, _ in outcomes):
        outcomes.append(_outcome(link))
    lines = [f"{' '.join(c)}\n{text}\n" for c, (_, text) in zip([*commands, link], outcomes, strict=False)]
    write_file(log, "".join(lines).encode("utf-8", "replace"), private=True)
    for status, text in outcomes:
        if status != 0:
            line = _error_line(text)
            hint = "a compiler of C++20 is required, such as g++ 11 or later" if "c++20" in text.lower() else ""
            raise MeshmarkError(f"{wrapper} cannot compile the program: {quoted(line, 200)}; log: {log}", hint)


def _units(sources: Sources, folder: Path) -> list[Path]:
    """Write files that include several sources each, like the unity builds of CMake, and return their paths."""
    units: list[Path] = []
    for _, names in groupby(sources.sources, lambda name: name.partition("/")[0]):
        group = list(names)
        for first in range(0, len(group), _PER_UNIT):
            unit = folder / f"unit{len(units)}.cpp"
            lines = (f'#include "{name}"\n' for name in group[first : first + _PER_UNIT])
            unit.write_text("".join(lines), encoding="utf-8")
            units.append(unit)
    return units


def _outcome(command: Sequence[str]) -> tuple[int, str]:
    """Return the exit status of a command and what it printed."""
    try:
        completed = process.run_text(command, timeout_s=_COMPILATION_S)
    except (OSError, subprocess.SubprocessError) as error:
        return -1, str(error)
    return completed.returncode, completed.stdout + completed.stderr


def _identity(program: Path, wrapper: Path) -> Mapping[str, str]:
    status, text = _outcome([str(program), "--library"])
    try:
        identity: dict[str, str] = json.loads(text.splitlines()[-1])
        return {"mpi": identity["mpi"], "library": identity["library"]}
    except (ValueError, LookupError, TypeError):
        reason = _first_line(text) or f"exit status {status}"
        message = f"the program for {wrapper} cannot be started: {quoted(reason, 200)}"
        raise MeshmarkError(message, "load the module of the MPI library, whose libraries must be present") from None


def _try(launcher: Path, program: Path) -> None:
    """Start two ranks.

    Raises:
        MeshmarkError: They do not start, or cannot communicate.
    """
    environment = {**launch.environment("openmpi"), **openmpi_unbound()}
    argv = [str(launcher), "-n", "2", str(program), *_TRIAL]
    try:
        completed = process.run_text(argv, timeout_s=_START_S, env=environment, start_new_session=True)
        status, reason = completed.returncode, launch.failure_message(completed.stderr)
        reason = reason or _first_line(completed.stdout)
    except (OSError, subprocess.SubprocessError) as error:
        status, reason = -1, str(error)
    if status != 0:
        raise MeshmarkError(
            f"{launcher} cannot run two ranks of the program: {quoted(reason, 200)}",
            "--untried builds it where ranks must not be started, as on a login node",
        )


def _folder_name(library: str, wrapper: Path) -> str:
    """Return the name of the folder for a library: the version of Meshmark, the library, and where it is installed."""
    from hashlib import sha256

    words = re.sub(r"[^a-z0-9.]+", "-", library.lower()).strip("-")[:60]
    return f"{VERSION}-{words}-{sha256(os.fsencode(wrapper)).hexdigest()[:8]}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if re.search(r"\w", line)), "")


def _error_line(text: str) -> str:
    """Return the first line of a compiler's output that reports an error, otherwise the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b|undefined reference|cannot find", line, re.IGNORECASE)]
    return errors[0] if errors else lines[-1] if lines else "it ended without a message"
