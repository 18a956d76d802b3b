"""How ranks are started: which MPI libraries this build knows, their launchers, and the words that each wants.

A launcher's own words differ, and so do its traps: as root it may refuse, with more ranks than CPUs it spins, and what
it binds is its own affair. Here is what each is told; `meshmark doctor mpi` says what it would do by itself.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from meshmark.describe import KINDS, find_comm
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.values import grammar

# Which program starts ranks, and what it says of itself with --version.
_NAMES: Final = {
    "openmpi": (("mpirun.openmpi", "mpirun", "mpiexec"), ("Open MPI", "OpenRTE")),
    "mpich": (("mpirun.mpich", "mpiexec.hydra", "mpirun", "mpiexec"), ("HYDRA", "MPICH")),
    "mpi": (("mpiexec", "mpirun"), ("",)),
}


@dataclass(frozen=True, slots=True)
class Launcher:
    kind: str
    path: Path
    program: Path  # of Meshmark's, built with this library


@cache
def launchers() -> dict[str, Launcher]:
    """Those whose program was built and whose launcher is here, by kind."""
    found: dict[str, Launcher] = {}
    for kind in KINDS:
        try:
            program = find_comm(kind)
        except MeshmarkError:
            continue
        names, says = _NAMES[kind]
        for name in names:
            path = shutil.which(name)
            if path is not None and any(word in version_output(path) for word in says):
                found[kind] = Launcher(kind, Path(path), program)
                break
    return found


@cache
def version_output(path: str) -> str:
    """What the launcher at `path` prints with --version; "" if it cannot be run."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment("openmpi"),
        )
        return done.stdout + done.stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def chosen(asked: str) -> list[str]:
    """Kinds of a word of `--mpi`: any is the first that is here, all are all of them.

    Raises:
        UsageError: no such kind. AbsentError: none is here.
    """
    known = launchers()
    if asked in {"any", "all"}:
        if not known:
            raise AbsentError(
                "no MPI library: neither launcher nor build is here",
                "install openmpi (or mpich) with its development package, then make setup",
            )
        return list(known)[: 1 if asked == "any" else None]
    kinds = asked.split(",")
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"mpi: found '{kind}', allowed are any, all, {', '.join(KINDS)}")
    return kinds


def cpus() -> int:
    """How many ranks may have one of their own: of this process, or of all nodes of the Slurm job that it is in."""
    nodes = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))  # 16(x3),8
    numbers = [int(each) for each, times in nodes for _ in range(int(times or 1))]
    return sum(numbers) if len(numbers) > 1 else len(os.sched_getaffinity(0))


def counts(asked: str, cpus: int) -> list[int]:
    """Numbers of ranks that `--ranks` asks for: all is one a CPU, at least two.

    Raises:
        UsageError: no number, or one out of reach.
    """
    return grammar.integers("ranks", asked, 1 << 16, all_=max(2, cpus))


def launcher(kind: str) -> Launcher:
    """
    Raises:
        AbsentError: not here.
    """
    known = launchers()
    if kind in known:
        return known[kind]
    here = f"; here is {', '.join(known)}" if known else ""
    raise AbsentError(
        f"{kind}: its launcher and a build for it are not both here{here}",
        "install its development package, then make setup",
    )


def words(with_: Launcher, ranks: int, cpus: int, more: Sequence[str] = ()) -> list[str]:
    """The command line that starts so many ranks of its program on a host that offers so many CPUs.

    Each rank has a core of its own where there are enough; else none is bound, and who waits lets the others run.
    """
    crowded = ranks > cpus
    if with_.kind == "openmpi":
        bound = (
            ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
            if crowded
            else ["--bind-to", "core"]
        )
        # OpenSHMEM's memory hooks crash at the end of every program of Open MPI 4.1 with UCX (open-mpi/ompi 11604).
        own = [*bound, "--mca", "opal_common_ucx_opal_mem_hooks", "0"]
    elif with_.kind == "mpich":
        own = [] if crowded else ["-bind-to", "core"]
    else:
        own = []
    return [str(with_.path), "-n", str(ranks), *own, *more, str(with_.program)]


# What launchers say of a process that died: Open MPI of a rank, MPICH's of a process of a host.
_RANK_DIED: Final = re.compile(r"process rank (\d+) with PID \d+ on node (\S+)\s+exited on signal (\d+)")
_PROCESS_DIED: Final = re.compile(r"PID (\d+) RUNNING AT (\S+)\s+=\s+EXIT CODE: (\d+)")
_BY_SIGNAL: Final = re.compile(r"EXIT STRING: .*\(signal (\d+)\)")
_OURS: Final = re.compile(r"^meshmark-comm: (?:error: |absent: )(.*)$", re.MULTILINE)


def complaint(talk: str, processes: Sequence[Mapping[str, Any]] = ()) -> str:
    """The one line that counts of all that a launcher and its ranks said on standard error, or ''.

    Args:
        processes: host and pid of each rank, as the header of their output has them.
    """
    ours = _OURS.search(talk)
    if ours is not None:
        return ours[1][:300]
    if died := _RANK_DIED.search(talk):
        return f"rank {died[1]} on {died[2]} died of {signal_name(int(died[3]))}"
    if died := _PROCESS_DIED.search(talk):
        pids = [str(p.get("pid")) for p in processes]
        who = f"rank {pids.index(died[1])}" if died[1] in pids else f"process {died[1]}"
        by = _BY_SIGNAL.search(talk)
        how = f"died of {signal_name(int(by[1]))}" if by else f"ended with status {died[3]}"
        return f"{who} on {died[2]} {how}"
    said = [line.strip() for line in talk.splitlines() if re.search(r"\w", line)]
    return said[-1][:300] if said else ""


def signal_name(number: int) -> str:
    """SIGKILL, …; "signal 77" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def environment(kind: str) -> Mapping[str, str]:
    """What the launcher finds around it."""
    found = dict(os.environ)
    if kind == "openmpi" and os.geteuid() == 0:
        # As root it runs only after being told twice; whoever started us as root has decided that.
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found
