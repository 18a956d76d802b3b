"""Known pitfalls of launchers, each tested live."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from meshmark.doctor.attempt import Attempt
from meshmark.doctor.finding import Finding, Judged
from meshmark.doctor.tested import NAMESPACES, ROOT_VARIABLES, Tested, forbidden_namespaces, transport_of
from meshmark.values.units import plain

_SLOWDOWN: Final = 3.0  # ratio of times that noise on an oversubscribed machine does not reach


_MESSAGE: Final = ("pingpong", "--protocol", "send", "--bytes", "8", "--budget", "500ms", "--interval", "10")


_NEAR_S: Final = 3e-6  # below the latency of any network between hosts, above that of shared memory


def as_root(tested: Tested) -> Iterator[Finding]:
    name, why = f"{tested.name}: started by root", "a launcher that refuses root starts nothing in a container"
    if not tested.host.root:
        yield Finding(name, "not running as root", "ok", why)
        return
    variables = [v for v in ROOT_VARIABLES if v in tested.host.environment]
    true = [str(tested.launcher.path), "-n", "1", tested.host.which("true") or "true"]
    plain_run = tested.attempt(true, tested.host.environment)
    if not plain_run.why:
        yield Finding(name, f"starts, allowed by {' and '.join(variables)}" if variables else "starts", "ok", why)
        return
    allowed = tested.attempt(true, {**tested.host.environment, **dict.fromkeys(ROOT_VARIABLES, "1")})
    if allowed.why:
        yield Finding(name, f"cannot start a program: {allowed.why}", "hidden", why)
    else:
        yield Finding(
            name,
            "refuses unless two variables are set; Meshmark sets them",
            "hidden",
            why,
            f"export {' '.join(f'{v}=1' for v in ROOT_VARIABLES)}",
        )


def oversubscribed(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: more ranks than CPUs"
    why = "a rank that busy-waits blocks the CPU of the rank it waits for, and times are those of the scheduler"
    cpus = tested.host.cpus[:2]
    ranks = 2 * len(cpus)
    # A halo exchange of small messages.
    argv = ["halo", "--protocol", "irecv_isend", "--words", "8", "--budget", "500ms", "--interval", "10"]
    if tested.kind == "openmpi":
        spinning = ["--oversubscribe", "--bind-to", "none"]
        yielding, setting = [*spinning, "--mca", "mpi_yield_when_idle", "1"], {}
        command = "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 …"
    else:
        spinning = yielding = []
        setting = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "16"}
        command = "export MPIR_CVAR_POLLS_BEFORE_YIELD=16"
    program = str(tested.launcher.program)
    start = [str(tested.launcher.path), "-n"]
    room = tested.room() if len(cpus) < 2 else []
    dedicated = tested.attempt([*start, str(max(2, len(cpus))), *room, program, *argv], tested.environment, cpus)
    plain_run = tested.attempt([*start, str(ranks), *spinning, program, *argv], tested.environment, cpus)
    yielding_run = tested.attempt(
        [*start, str(ranks), *yielding, program, *argv], {**tested.environment, **setting}, cpus
    )
    dedicated_s, default_s, yielding_s = (t.value("exchange_time") for t in (dedicated, plain_run, yielding_run))
    where = f"{ranks} ranks on {len(cpus)} CPUs" if len(cpus) > 1 else f"{ranks} ranks on one CPU"
    if yielding_s is None:
        yield Finding(name, f"{where}: {yielding_run.why or yielding_run.absent or 'no result'}", "unknown", why)
        return
    beside = f", {_time(dedicated_s)} with one CPU per rank" if dedicated_s is not None and len(cpus) > 1 else ""
    if default_s is None:
        failure = plain_run.why or plain_run.absent or "no result"
        found = f"{where}: {failure}; {_time(yielding_s)} per exchange when yielding"
        yield Finding(name, found + beside, "spoils-measurements", why, command)
        return
    found = f"{where}: {_time(default_s)} per exchange by default, {_time(yielding_s)} when yielding{beside}"
    helps = default_s > _SLOWDOWN * yielding_s
    # Ranks take turns, which multiplies the time by their number; more is the scheduler's, which yielding may not fix.
    lost = dedicated_s is not None and len(cpus) > 1 and min(default_s, yielding_s) > _SLOWDOWN * ranks * dedicated_s
    judged: Judged = "spoils-measurements" if helps or lost else "ok"
    yield Finding(name, found, judged, why, command if helps else "")


def overlapping_bindings(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: two ranks on one CPU"
    why = "launchers bind independently of each other: ranks that share a CPU take turns of milliseconds"
    if len(tested.host.cpus) < 2:
        yield Finding(name, "only one CPU", "ok", why)
        return
    query = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep 0.5"]

    def job(ranks: int) -> Attempt:
        return tested.attempt([str(tested.launcher.path), "-n", str(ranks), *query], tested.environment)

    one = job(2)
    with ThreadPoolExecutor(2) as pool:
        two = list(pool.map(job, (1, 1)))
    inside = _allowed(one)
    between = [lists[0] for lists in map(_allowed, two) if lists]
    if len(inside) != 2 or len(between) != 2:
        wrong = next((t.why for t in (one, *two) if t.why), "unexpected output of the ranks")
        yield Finding(name, wrong, "unknown", why)
        return
    command = {"openmpi": "mpirun --bind-to none …   # or --cpu-set LIST, with a different list per job"}.get(
        tested.kind, "mpiexec -bind-to none …   # or -bind-to user:LIST, with a different list per job"
    )
    if inside[0] == inside[1] and inside[0].isdigit():
        found = f"both ranks of one job are bound to CPU {inside[0]}"
        yield Finding(name, found, "spoils-measurements", why, command)
    elif between[0] == between[1] and between[0].isdigit():
        found = f"two concurrent jobs are both bound to CPU {between[0]} of {len(tested.host.cpus)} CPUs"
        yield Finding(name, found, "spoils-measurements", why, command)
    else:
        found = f"ranks of one job may use {' and '.join(inside)}, two concurrent jobs {' and '.join(between)}"
        yield Finding(name, found, "ok", why)


def namespaces(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: hosts with a common kernel"
    why = "between containers, a library may use shared memory, so that times are not those of a network"
    if tested.kind not in NAMESPACES:
        yield Finding(name, "it is unknown how it starts ranks on another host", "unknown", why)
        return
    plain_run = tested.between_hosts(_MESSAGE)
    if forbidden := forbidden_namespaces(plain_run):
        yield Finding(name, forbidden, "unknown", why, tested.more_rights)
        return
    seen = transport_of(plain_run)
    if seen is None:
        yield Finding(name, f"two hosts in namespaces: {plain_run.why or 'no result'}", "unknown", why)
        return
    transport, latency_s = seen
    found = f"between two hosts in namespaces: {transport}, {_time(latency_s)} per message"
    if "shared memory" not in transport and latency_s > _NEAR_S:
        yield Finding(name, found, "ok", why)
        return
    argv = NAMESPACES[tested.kind]
    cured = transport_of(tested.between_hosts(_MESSAGE, argv.cure, argv.setting))
    if cured and "shared memory" not in cured[0]:
        found += f"; with the remedy: {cured[0]}, {_time(cured[1])}"
        yield Finding(name, found, "spoils-measurements", why, argv.command)
    else:
        yield Finding(name, found, "spoils-measurements", why)


def stale_shared_memory(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: stale shared memory"
    why = "a killed launcher removes nothing, so the shared memory of its ranks stays allocated until the next boot"
    if tested.kind not in _SHARED_FILES:
        yield Finding(name, "the names of its files are unknown", "unknown", why)
        return
    folder = tested.host.shared_memory
    left = _unused_files(folder, _SHARED_FILES[tested.kind])
    if not left:
        yield Finding(name, f"none in {folder}", "ok", why)
        return
    mib = sum(taken for _, taken in left) / (1 << 20)
    found = f"{len(left)} file{'s' if len(left) > 1 else ''} in {folder} that no process uses, {mib:.3g} MiB"
    unused = {path for path, _ in left}
    jobs = {path: path.with_name(re.sub(r"\.\d+$", ".*", path.name)) for path in unused}
    # One pattern for all files of a job, unless it would match other files.
    patterns = {str(job if {*folder.glob(job.name)} <= unused else path) for path, job in jobs.items()}
    yield Finding(name, found, "spoils-measurements", why, f"rm {' '.join(sorted(patterns))}")


# Names that the libraries use, restricted to characters that a shell does not interpret.
_SHARED_FILES: Final = {
    "openmpi": re.compile(r"(?:vader_segment|sm_segment|osc_rdma|osc_sm)\.[\w.-]+"),
    "mpich": re.compile(r"mpich_shar_tmp\w+"),
}


def _unused_files(folder: Path, names: re.Pattern[str]) -> list[tuple[Path, int]]:
    """Files with such names that no process maps or has open, with their memory in bytes.

    Files of other users are excluded unless this process is root, because their processes are not visible. So are files
    younger than a minute, because a job may be starting.
    """
    user, old = os.geteuid(), time.time() - 60
    found: dict[str, tuple[Path, int]] = {}
    for path in sorted(p for p in folder.glob("*") if names.fullmatch(p.name)):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and user in {0, about.st_uid} and about.st_mtime < old:
                found[path.name] = path, 512 * about.st_blocks
    for process in Path("/proc").glob("[0-9]*") if found else ():
        used = _names_in_use(process)
        found = {name: each for name, each in found.items() if name not in used}
    return list(found.values())


def _names_in_use(process: Path) -> str:
    """Names of the files that a process maps or has open; "" if it has ended or belongs to another user."""
    names = ""
    with contextlib.suppress(OSError):
        names = (process / "maps").read_text(encoding="utf-8", errors="replace")
        for each in process.glob("fd/*"):
            with contextlib.suppress(FileNotFoundError):
                names += f"{each.readlink()}\n"
    return names


def _time(value_s: float) -> str:
    return plain(value_s, "s", 3)


def _allowed(tried: Attempt) -> list[str]:
    """The allowed CPUs of each rank, as Linux lists them."""
    return sorted(re.findall(r"Cpus_allowed_list:\s*([\d,-]+)", tried.out))
