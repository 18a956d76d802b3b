"""Starts MPI ranks: finds the launchers of the supported MPI libraries and builds their command lines.

Launchers differ in their options and pitfalls: some refuse to run as root, some busy-wait when ranks outnumber CPUs,
and all have their own default binding. This module passes explicit options; `meshmark doctor mpi` reports what the
launchers do by default.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from meshmark import process
from meshmark.describe import KINDS, find_comm, starts
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.mpi_programs import built_program, program_name
from meshmark.native import is_checkout, mpi_remedy, openmpi_as_root
from meshmark.values import grammar

# Names of each launcher, and text that the output of its --version contains.
_NAMES: Final = {
    "openmpi": (("mpirun.openmpi", "mpirun", "mpiexec"), ("Open MPI", "OpenRTE")),
    "mpich": (("mpirun.mpich", "mpiexec.hydra", "mpirun", "mpiexec"), ("HYDRA", "MPICH")),
    "mpi": (("mpiexec", "mpirun"), ("",)),
}


# The libraries that the programs of the wheel load (native/mpi/prebuilt.cmake).
_LIBRARIES: Final = {program_name("openmpi"): "libmpi.so.40", program_name("mpich"): "libmpi.so.12"}


@dataclass(frozen=True, slots=True)
class Launcher:
    """An installed MPI launcher, and the `meshmark-comm` built with its library."""

    kind: str
    path: Path
    program: Path


@cache
def launchers() -> dict[str, Launcher]:
    """Return the usable launchers by kind: they are installed, and `meshmark-comm` was built for their library.

    The launcher of an MPI library that is a Python package of this environment comes first.

    Raises:
        AbsentError: The Python packages of two MPI libraries are installed, which overwrite each other's files.
    """
    check_packages()
    usable = [found for kind in KINDS if (found := _usable_launcher(kind)) is not None]
    return {x.kind: x for x in sorted(usable, key=lambda x: package_folders(x.program) is None)}


def _usable_launcher(kind: str) -> Launcher | None:
    try:
        program = find_comm(kind)
    except MeshmarkError:
        return None
    built = built_program(kind)
    if built is not None and built.program == program:
        return Launcher(kind, built.launcher, program)
    if not is_checkout() and not starts(program):  # the wheel has programs for libraries that may not be installed
        return None
    names, signatures = _NAMES[kind]
    folders = package_folders(program)
    for name in names:
        path = shutil.which(name, path=folders)
        if path is not None and any(word in version_output(path) for word in signatures):
            return Launcher(kind, Path(path), program)
    return None


def check_packages(names: Sequence[str] = ("openmpi", "mpich")) -> None:
    """Check that at most one of the Python packages of MPI libraries is installed.

    Raises:
        AbsentError: Both are installed. Each overwrites files of the other, such as `mpirun` and `libmpi.so`.
    """
    installed = [name for name in names if any(metadata.distributions(name=name))]
    if len(installed) > 1:
        raise AbsentError(
            f"the Python packages {' and '.join(installed)} overwrite each other's files",
            f"pip uninstall {' '.join(installed)}, then install one of them",
        )


def package_folders(program: Path) -> str | None:
    """Return where to search the launcher of a program, as in PATH; None for PATH itself.

    A program of the wheel loads the library of a Python package if one is installed in its environment, and only the
    launcher of that package belongs to it.
    """
    prefix = program.parent / "../../../../.."  # from lib/python3.x/site-packages/meshmark/bin
    library = prefix / "lib" / _LIBRARIES.get(program.name, "")
    return str((prefix / "bin").resolve()) if not is_checkout() and library.is_file() else None


@cache
def version_output(path: str) -> str:
    """Return the output of the launcher's --version; "" if it cannot be run."""
    try:
        completed = process.run_text([path, "--version"], timeout_s=20, env=environment("openmpi"))
        return completed.stdout + completed.stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def chosen(requested: str) -> list[str]:
    """Return the kinds of MPI library for a value of `--mpi`.

    Args:
        requested: `any` (the first usable kind), `all`, or a comma-separated list.

    Raises:
        UsageError: A kind is unknown.
        AbsentError: No MPI library is usable.
    """
    usable = launchers()
    if requested in {"any", "all"}:
        if not usable:
            raise AbsentError(
                "found no MPI library with both a launcher and a build of meshmark-comm",
                mpi_remedy(),
            )
        return list(usable)[: 1 if requested == "any" else None]
    kinds = requested.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"mpi: found '{kind}'; allowed: any, all, {', '.join(KINDS)}")
    return kinds


def cpus_of_hosts() -> list[int]:
    """Return the number of CPUs for ranks on each host: the nodes of the Slurm job, or only this process."""
    nodes = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))  # 16(x3),8
    numbers = [int(count) for count, times in nodes for _ in range(int(times or 1))]
    return numbers if len(numbers) > 1 else [len(os.sched_getaffinity(0))]


def cpus() -> int:
    """Return the number of CPUs for ranks on all hosts together."""
    return sum(cpus_of_hosts())


def ranks_of_host(ranks: int) -> int:
    """Return the largest number of ranks on a host if ranks are distributed round-robin over the hosts."""
    return -(-ranks // len(cpus_of_hosts()))


def cpus_of_rank(ranks: int) -> int:
    """Return the number of CPUs for the threads of each rank, at least 1."""
    return max(1, min(cpus_of_hosts()) // ranks_of_host(ranks))


def counts(requested: str, cpus: int) -> list[int]:
    """Return the numbers of ranks for a value of `--ranks`; `all` is one rank per CPU, but at least two.

    Raises:
        UsageError: The value is not a list of numbers, or is out of range.
    """
    return grammar.integers("ranks", requested, 1 << 16, all_=max(2, cpus))


def launcher(kind: str) -> Launcher:
    """Return the usable launcher of this kind.

    Raises:
        AbsentError: The launcher is not installed, or `meshmark-comm` was not built for its library.
    """
    usable = launchers()
    if kind in usable:
        return usable[kind]
    available_text = f"; available: {', '.join(usable)}" if usable else ""
    raise AbsentError(
        f"{kind}: found no launcher with a build of meshmark-comm{available_text}",
        mpi_remedy(),
    )


def launch_argv(launcher_: Launcher, ranks: int, cpus: int, more: Sequence[str] = (), *, threads: int = 1) -> list[str]:
    """Return the command line that starts `ranks` ranks on a host with `cpus` CPUs, with the launcher options `more`.

    Ranks are bound to one core each if there are enough CPUs. Ranks with several threads are not bound, since they
    divide the CPUs among themselves. If all threads together outnumber the CPUs, ranks are not bound either, and yield
    while they wait.
    """
    oversubscribed = ranks * threads > cpus
    passive = "OMP_WAIT_POLICY=passive"  # a spinning thread would occupy a CPU that another rank needs
    if launcher_.kind == "openmpi":
        binding = ["--bind-to", "none" if oversubscribed or threads > 1 else "core"]
        binding += ["--map-by", "node"] if threads > 1 else []  # a host has CPUs for the threads of only some ranks
        if oversubscribed:
            binding += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
            binding += ["-x", passive] if threads > 1 else []
        # With UCX, OpenSHMEM memory hooks crash every program of Open MPI 4.1 as it ends (open-mpi/ompi issue 11604).
        options = [*binding, "--mca", "opal_common_ucx_opal_mem_hooks", "0"]
    elif launcher_.kind == "mpich":
        options = [] if oversubscribed or threads > 1 else ["-bind-to", "core"]
        options += ["-ppn", str(ranks_of_host(ranks))] if threads > 1 else []
        options += ["-genv", *passive.split("=")] if oversubscribed and threads > 1 else []
    else:
        options = []
    return [str(launcher_.path), "-n", str(ranks), *options, *more, str(launcher_.program)]


# Messages about processes that died: Open MPI names the rank, MPICH the process ID and the host.
_RANK_DIED: Final = re.compile(r"process rank (\d+) with PID \d+ on node (\S+)\s+exited on signal (\d+)")
_PROCESS_DIED: Final = re.compile(r"PID (\d+) RUNNING AT (\S+)\s+=\s+EXIT CODE: (\d+)")
_BY_SIGNAL: Final = re.compile(r"EXIT STRING: .*\(signal (\d+)\)")
_MESHMARK_MESSAGE: Final = re.compile(r"^meshmark-comm: (?:error: |absent: )(.*)$", re.MULTILINE)


def failure_message(stderr: str, processes: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the most relevant line in the standard error of a launcher and its ranks; "" if it is empty.

    Args:
        stderr: The text.
        processes: Host and process ID of each rank, from the header line of their output.
    """
    message = _MESHMARK_MESSAGE.search(stderr)
    if message is not None:
        return message[1][:300]
    if death := _RANK_DIED.search(stderr):
        return f"rank {death[1]} on {death[2]} was terminated by {process.signal_name(int(death[3]))}"
    if death := _PROCESS_DIED.search(stderr):
        pids = [str(p.get("pid")) for p in processes]
        name = f"rank {pids.index(death[1])}" if death[1] in pids else f"process {death[1]}"
        by_signal = _BY_SIGNAL.search(stderr)
        outcome = (
            f"was terminated by {process.signal_name(int(by_signal[1]))}"
            if by_signal
            else f"ended with status {death[3]}"
        )
        return f"{name} on {death[2]} {outcome}"
    lines = [line.strip() for line in stderr.splitlines() if re.search(r"\w", line)]
    return lines[-1][:300] if lines else ""


# These make OpenMP bind a process when it starts: all ranks that are not bound would get the same CPU.
_OPENMP_BINDING: Final = frozenset({"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"})


def environment(kind: str) -> Mapping[str, str]:
    """Return the environment variables for a launcher of this kind."""
    variables = {name: value for name, value in os.environ.items() if name not in _OPENMP_BINDING}
    return {**variables, **(openmpi_as_root() if kind == "openmpi" else {})}
