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

from meshmark.doctor.attempt import Tried
from meshmark.doctor.finding import Finding, Judged
from meshmark.doctor.tested import NAMESPACES, ROOT_VARIABLES, Tested, forbidden_namespaces, transport_of
from meshmark.values.units import plain

_CROWDED: Final = 3.0  # times as long as it should: beyond what noise makes of a crowded machine


_MESSAGE: Final = ("pingpong", "--protocol", "send", "--bytes", "8", "--budget", "500ms", "--interval", "10")


_NEAR_S: Final = 3e-6  # no network between two hosts answers sooner, and shared memory does


def as_root(tested: Tested) -> Iterator[Finding]:
    name, why = f"{tested.name}: started by root", "a launcher that refuses starts nothing in a container"
    if not tested.host.root:
        yield Finding(name, "not root here", "ok", why)
        return
    said = [v for v in ROOT_VARIABLES if v in tested.host.environment]
    true = [str(tested.launcher.path), "-n", "1", tested.host.which("true") or "true"]
    bare = tested.attempt(true, tested.host.environment)
    if not bare.why:
        yield Finding(name, f"starts, told by {' and '.join(said)}" if said else "starts", "ok", why)
        return
    told = tested.attempt(true, {**tested.host.environment, **dict.fromkeys(ROOT_VARIABLES, "1")})
    if told.why:
        yield Finding(name, f"does not start a program: {told.why}", "hidden", why)
    else:
        yield Finding(
            name,
            "refuses, unless it is told twice; Meshmark tells it",
            "hidden",
            why,
            f"export {' '.join(f'{v}=1' for v in ROOT_VARIABLES)}",
        )


def crowded(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: more ranks than CPUs"
    why = "a rank that spins keeps the one it waits for from its CPU, and times are those of the scheduler"
    cpus = tested.host.cpus[:2]
    ranks = 2 * len(cpus)
    # An exchange of small messages, each rank with its neighbours.
    words = ["halo", "--protocol", "irecv_isend", "--words", "8", "--budget", "500ms", "--interval", "10"]
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
    alone = tested.attempt([*start, str(max(2, len(cpus))), *room, program, *words], tested.environment, cpus)
    bare = tested.attempt([*start, str(ranks), *spinning, program, *words], tested.environment, cpus)
    cured = tested.attempt([*start, str(ranks), *yielding, program, *words], {**tested.environment, **setting}, cpus)
    own, slow, quick = (t.value("exchange_time") for t in (alone, bare, cured))
    where = f"{ranks} ranks on {len(cpus)} CPUs" if len(cpus) > 1 else f"{ranks} ranks on one CPU"
    if quick is None:
        yield Finding(name, f"{where}: {cured.why or cured.absent or 'no result'}", "unknown", why)
        return
    beside = f", {_time(own)} with a CPU for each" if own is not None and len(cpus) > 1 else ""
    if slow is None:
        found = f"{where}: {bare.why or bare.absent or 'no result'}; {_time(quick)} an exchange when told to yield"
        yield Finding(name, found + beside, "spoils-measurements", why, command)
        return
    found = f"{where}: {_time(slow)} an exchange as started, {_time(quick)} when told to yield{beside}"
    helps = slow > _CROWDED * quick
    # A turn of each rank takes its time; beyond that it is the scheduler's, which yielding may not mend.
    lost = own is not None and len(cpus) > 1 and min(slow, quick) > _CROWDED * ranks * own
    judged: Judged = "spoils-measurements" if helps or lost else "ok"
    yield Finding(name, found, judged, why, command if helps else "")


def bound(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: two ranks on one CPU"
    why = "launchers bind without knowing of one another: ranks that share a CPU take turns of milliseconds"
    if len(tested.host.cpus) < 2:
        yield Finding(name, "one CPU only", "ok", why)
        return
    look = ["sh", "-c", "grep Cpus_allowed_list /proc/tested/status; sleep 0.5"]

    def job(ranks: int) -> Tried:
        return tested.attempt([str(tested.launcher.path), "-n", str(ranks), *look], tested.environment)

    one = job(2)
    with ThreadPoolExecutor(2) as both:
        two = list(both.map(job, (1, 1)))
    inside = _allowed(one)
    between = [lists[0] for lists in map(_allowed, two) if lists]
    if len(inside) != 2 or len(between) != 2:
        wrong = next((t.why for t in (one, *two) if t.why), "what ranks said was not understood")
        yield Finding(name, wrong, "unknown", why)
        return
    command = {"openmpi": "mpirun --bind-to none …   # or --cpu-set LIST, another one for each job"}.get(
        tested.kind, "mpiexec -bind-to none …   # or -bind-to user:LIST, another one for each job"
    )
    if inside[0] == inside[1] and inside[0].isdigit():
        found = f"both ranks of one job are bound to CPU {inside[0]}"
        yield Finding(name, found, "spoils-measurements", why, command)
    elif between[0] == between[1] and between[0].isdigit():
        found = f"two jobs at once are both bound to CPU {between[0]}, with {len(tested.host.cpus)} there"
        yield Finding(name, found, "spoils-measurements", why, command)
    else:
        found = f"ranks of one job may use {' and '.join(inside)}, two jobs at once {' and '.join(between)}"
        yield Finding(name, found, "ok", why)


def namespaces(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: hosts that are one kernel"
    why = "between containers a library may take memory that real hosts do not share: figures of no network"
    if tested.kind not in NAMESPACES:
        yield Finding(name, "how it starts ranks elsewhere is not known", "unknown", why)
        return
    bare = tested.between_hosts(_MESSAGE)
    if forbidden := forbidden_namespaces(bare):
        yield Finding(name, forbidden, "unknown", why, tested.more_rights)
        return
    seen = transport_of(bare)
    if seen is None:
        yield Finding(name, f"two hosts in namespaces: {bare.why or 'no result'}", "unknown", why)
        return
    transport, latency_s = seen
    found = f"between two hosts in namespaces: {transport}, {_time(latency_s)} a message"
    if "shared memory" not in transport and latency_s > _NEAR_S:
        yield Finding(name, found, "ok", why)
        return
    words = NAMESPACES[tested.kind]
    cured = transport_of(tested.between_hosts(_MESSAGE, words.cure, words.setting))
    if cured and "shared memory" not in cured[0]:
        found += f"; when told: {cured[0]}, {_time(cured[1])}"
        yield Finding(name, found, "spoils-measurements", why, words.command)
    else:
        yield Finding(name, found, "spoils-measurements", why)


def left_behind(tested: Tested) -> Iterator[Finding]:
    name = f"{tested.name}: shared memory of dead jobs"
    why = "a launcher that is killed removes nothing: what its ranks shared takes memory until the next boot"
    if tested.kind not in _SHARED_FILES:
        yield Finding(name, "what it would leave is not known", "unknown", why)
        return
    left = _unused(tested.host.shared, _SHARED_FILES[tested.kind])
    if not left:
        yield Finding(name, f"none in {tested.host.shared}", "ok", why)
        return
    mib = sum(taken for _, taken in left) / (1 << 20)
    found = (
        f"{len(left)} file{'s' if len(left) > 1 else ''} in {tested.host.shared} that no process uses, {mib:.3g} MiB"
    )
    unused = {path for path, _ in left}
    jobs = {path: path.with_name(re.sub(r"\.\d+$", ".*", path.name)) for path in unused}
    # A word for all files of a job, unless others have such names too.
    words = {str(job if {*tested.host.shared.glob(job.name)} <= unused else path) for path, job in jobs.items()}
    yield Finding(name, found, "spoils-measurements", why, f"rm {' '.join(sorted(words))}")


# By the names that the libraries give them; only such as a shell takes as they are.
_SHARED_FILES: Final = {
    "openmpi": re.compile(r"(?:vader_segment|sm_segment|osc_rdma|osc_sm)\.[\w.-]+"),
    "mpich": re.compile(r"mpich_shar_tmp\w+"),
}


def _unused(folder: Path, names: re.Pattern[str]) -> list[tuple[Path, int]]:
    """Files with such names that nobody maps or holds open, and the memory that they take in bytes.

    Only those whose users this process may see, and none that is younger than a minute: a job may be about to start.
    """
    me, old = os.geteuid(), time.time() - 60
    found: dict[str, tuple[Path, int]] = {}
    for path in sorted(p for p in folder.glob("*") if names.fullmatch(p.name)):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode) and me in {0, about.st_uid} and about.st_mtime < old:
                found[path.name] = path, 512 * about.st_blocks
    for process in Path("/proc").glob("[0-9]*") if found else ():
        used = _used(process)
        found = {name: each for name, each in found.items() if name not in used}
    return list(found.values())


def _used(process: Path) -> str:
    """The names of what a process maps or holds open; '' of one that ended, or is another user's."""
    names = ""
    with contextlib.suppress(OSError):
        names = (process / "maps").read_text(encoding="utf-8", errors="replace")
        for each in process.glob("fd/*"):
            with contextlib.suppress(FileNotFoundError):
                names += f"{each.readlink()}\n"
    return names


def _time(value_s: float) -> str:
    return plain(value_s, "s", 3)


def _allowed(tried: Tried) -> list[str]:
    """The CPUs of each rank as the kernel lists them."""
    return sorted(re.findall(r"Cpus_allowed_list:\s*([\d,-]+)", tried.out))
