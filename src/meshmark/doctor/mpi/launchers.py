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

from meshmark.doctor.finding import HostFinding, Judgement
from meshmark.doctor.mpi.attempt import CommandResult
from meshmark.doctor.mpi.tested import NAMESPACES, ROOT_VARIABLES, TestedLauncher, forbidden_namespaces, transport_of
from meshmark.values.units import plain

_SLOWDOWN: Final = 3.0  # ratio of times that noise on an oversubscribed machine does not reach


_MESSAGE: Final = ("pingpong", "--protocol", "send", "--bytes", "8", "--budget", "500ms", "--interval", "10")


_NEAR_S: Final = 3e-6  # less than the latency of any network between hosts, more than the latency of shared memory


def as_root(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether the launcher starts programs for root, and with which variables."""
    name, effect = f"{tested.name}: started by root", "a launcher that refuses root starts nothing in a container"
    if not tested.host.root:
        yield HostFinding(name, "not running as root", "ok", effect)
        return
    variables = [v for v in ROOT_VARIABLES if v in tested.host.environment]
    command = [str(tested.launcher.path), "-n", "1", tested.host.which("true") or "true"]
    plain_run = tested.attempt(command, tested.host.environment)
    if not plain_run.why:
        yield HostFinding(
            name, f"starts, allowed by {' and '.join(variables)}" if variables else "starts", "ok", effect
        )
        return
    permitted_run = tested.attempt(command, {**tested.host.environment, **dict.fromkeys(ROOT_VARIABLES, "1")})
    if permitted_run.why:
        yield HostFinding(name, f"cannot start a program: {permitted_run.why}", "hidden", effect)
    else:
        yield HostFinding(
            name,
            "refuses unless two variables are set; Meshmark sets them",
            "hidden",
            effect,
            f"export {' '.join(f'{v}=1' for v in ROOT_VARIABLES)}",
        )


def oversubscribed(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about more ranks than CPUs, by halo exchanges with and without yielding."""
    name = f"{tested.name}: more ranks than CPUs"
    effect = "a rank that busy-waits blocks the CPU of the rank it waits for, and times measure the scheduler"
    cpus = tested.host.cpus[:2]
    ranks = 2 * len(cpus)
    # A halo exchange of small messages.
    argv = ["halo", "--protocol", "irecv_isend", "--words", "8", "--budget", "500ms", "--interval", "10"]
    if tested.kind == "openmpi":
        default_options = ["--oversubscribe", "--bind-to", "none"]
        yielding_options, setting = [*default_options, "--mca", "mpi_yield_when_idle", "1"], {}
        command = "mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 …"
    else:
        default_options = yielding_options = []
        setting = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "16"}
        command = "export MPIR_CVAR_POLLS_BEFORE_YIELD=16"
    program = str(tested.launcher.program)
    launch_argv = [str(tested.launcher.path), "-n"]
    room_options = tested.room() if len(cpus) < 2 else []
    dedicated_run = tested.attempt(
        [*launch_argv, str(max(2, len(cpus))), *room_options, program, *argv], tested.environment, cpus
    )
    plain_run = tested.attempt([*launch_argv, str(ranks), *default_options, program, *argv], tested.environment, cpus)
    yielding_run = tested.attempt(
        [*launch_argv, str(ranks), *yielding_options, program, *argv], {**tested.environment, **setting}, cpus
    )
    dedicated_s, default_s, yielding_s = (t.value("exchange_time") for t in (dedicated_run, plain_run, yielding_run))
    scope = f"{ranks} ranks on {len(cpus)} CPUs" if len(cpus) > 1 else f"{ranks} ranks on one CPU"
    if yielding_s is None:
        yield HostFinding(name, f"{scope}: {yielding_run.why or yielding_run.absent or 'no result'}", "unknown", effect)
        return
    dedicated_text = (
        f", {_time(dedicated_s)} with one CPU per rank" if dedicated_s is not None and len(cpus) > 1 else ""
    )
    if default_s is None:
        failure = plain_run.why or plain_run.absent or "no result"
        observation = f"{scope}: {failure}; {_time(yielding_s)} per exchange when yielding"
        yield HostFinding(name, observation + dedicated_text, "spoils-measurements", effect, command)
        return
    observation = (
        f"{scope}: {_time(default_s)} per exchange by default, {_time(yielding_s)} when yielding{dedicated_text}"
    )
    yielding_helps = default_s > _SLOWDOWN * yielding_s
    # Ranks take turns, which multiplies the time by their number. The scheduler causes any further increase, which
    # yielding may not remove.
    time_lost = (
        dedicated_s is not None and len(cpus) > 1 and min(default_s, yielding_s) > _SLOWDOWN * ranks * dedicated_s
    )
    judgement: Judgement = "spoils-measurements" if yielding_helps or time_lost else "ok"
    yield HostFinding(name, observation, judgement, effect, command if yielding_helps else "")


def overlapping_bindings(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether two jobs that start together bind their ranks to the same CPUs."""
    name = f"{tested.name}: two ranks on one CPU"
    effect = "launchers bind independently of each other: ranks that share a CPU alternate every few milliseconds"
    if len(tested.host.cpus) < 2:
        yield HostFinding(name, "only one CPU", "ok", effect)
        return
    query = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status; sleep 0.5"]

    def job(ranks: int) -> CommandResult:
        return tested.attempt([str(tested.launcher.path), "-n", str(ranks), *query], tested.environment)

    single_job = job(2)
    with ThreadPoolExecutor(2) as pool:
        two_jobs = list(pool.map(job, (1, 1)))
    cpus_in_job = _allowed(single_job)
    cpus_of_jobs = [lists[0] for lists in map(_allowed, two_jobs) if lists]
    if len(cpus_in_job) != 2 or len(cpus_of_jobs) != 2:
        reason = next((t.why for t in (single_job, *two_jobs) if t.why), "unexpected output of the ranks")
        yield HostFinding(name, reason, "unknown", effect)
        return
    command = {"openmpi": "mpirun --bind-to none …   # or --cpu-set LIST, with a different list per job"}.get(
        tested.kind, "mpiexec -bind-to none …   # or -bind-to user:LIST, with a different list per job"
    )
    if cpus_in_job[0] == cpus_in_job[1] and cpus_in_job[0].isdigit():
        observation = f"both ranks of one job are bound to CPU {cpus_in_job[0]}"
        yield HostFinding(name, observation, "spoils-measurements", effect, command)
    elif cpus_of_jobs[0] == cpus_of_jobs[1] and cpus_of_jobs[0].isdigit():
        observation = f"two concurrent jobs are both bound to CPU {cpus_of_jobs[0]} of {len(tested.host.cpus)} CPUs"
        yield HostFinding(name, observation, "spoils-measurements", effect, command)
    else:
        observation = (
            f"ranks of one job may use {' and '.join(cpus_in_job)}, two concurrent jobs {' and '.join(cpus_of_jobs)}"
        )
        yield HostFinding(name, observation, "ok", effect)


def namespaces(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about whether messages between two hosts with a common kernel use shared memory."""
    name = f"{tested.name}: hosts with a common kernel"
    effect = "between containers, a library may use shared memory, so that times do not measure a network"
    if tested.kind not in NAMESPACES:
        yield HostFinding(name, "it is unknown how it starts ranks on another host", "unknown", effect)
        return
    plain_run = tested.between_hosts(_MESSAGE)
    if refusal := forbidden_namespaces(plain_run):
        yield HostFinding(name, refusal, "unknown", effect, tested.more_rights)
        return
    transport_latency = transport_of(plain_run)
    if transport_latency is None:
        yield HostFinding(name, f"two hosts in namespaces: {plain_run.why or 'no result'}", "unknown", effect)
        return
    transport, latency_s = transport_latency
    observation = f"between two hosts in namespaces: {transport}, {_time(latency_s)} per message"
    if "shared memory" not in transport and latency_s > _NEAR_S:
        yield HostFinding(name, observation, "ok", effect)
        return
    argv = NAMESPACES[tested.kind]
    remedy_result = transport_of(tested.between_hosts(_MESSAGE, argv.cure, argv.setting))
    if remedy_result and "shared memory" not in remedy_result[0]:
        observation += f"; with the remedy: {remedy_result[0]}, {_time(remedy_result[1])}"
        yield HostFinding(name, observation, "spoils-measurements", effect, argv.command)
    else:
        yield HostFinding(name, observation, "spoils-measurements", effect)


def stale_shared_memory(tested: TestedLauncher) -> Iterator[HostFinding]:
    """Yield a finding about files of shared memory that no process uses, with the command that removes them."""
    name = f"{tested.name}: stale shared memory"
    effect = "a killed launcher removes nothing, so the shared memory of its ranks stays allocated until the next boot"
    if tested.kind not in _SHARED_FILES:
        yield HostFinding(name, "the names of its files are unknown", "unknown", effect)
        return
    folder = tested.host.shared_memory
    files = _unused_files(folder, _SHARED_FILES[tested.kind])
    if not files:
        yield HostFinding(name, f"none in {folder}", "ok", effect)
        return
    mib = sum(size_bytes for _, size_bytes in files) / (1 << 20)
    observation = f"{len(files)} file{'s' if len(files) > 1 else ''} in {folder} that no process uses, {mib:.3g} MiB"
    unused_paths = {path for path, _ in files}
    jobs = {path: path.with_name(re.sub(r"\.\d+$", ".*", path.name)) for path in unused_paths}
    # One pattern for all files of a job, unless it would match other files.
    patterns = {str(job if {*folder.glob(job.name)} <= unused_paths else path) for path, job in jobs.items()}
    yield HostFinding(name, observation, "spoils-measurements", effect, f"rm {' '.join(sorted(patterns))}")


# Names that the libraries use, restricted to characters that a shell does not interpret.
_SHARED_FILES: Final = {
    "openmpi": re.compile(r"(?:vader_segment|sm_segment|osc_rdma|osc_sm)\.[\w.-]+"),
    "mpich": re.compile(r"mpich_shar_tmp\w+"),
}


def _unused_files(folder: Path, names: re.Pattern[str]) -> list[tuple[Path, int]]:
    """Return the files with matching names that no process maps or has open, with their memory in bytes.

    Files of other users are excluded unless this process is root, because their processes are not visible. Files
    younger than a minute are excluded, too, because a job may be starting.
    """
    user, max_mtime_s = os.geteuid(), time.time() - 60
    files: dict[str, tuple[Path, int]] = {}
    for path in sorted(p for p in folder.glob("*") if names.fullmatch(p.name)):
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and user in {0, status.st_uid} and status.st_mtime < max_mtime_s:
                files[path.name] = path, 512 * status.st_blocks
    for process in Path("/proc").glob("[0-9]*") if files else ():
        names_in_use = _names_in_use(process)
        files = {name: file for name, file in files.items() if name not in names_in_use}
    return list(files.values())


def _names_in_use(process: Path) -> str:
    """Return the names of the files that a process maps or has open; "" if it has ended or belongs to another user."""
    names = ""
    with contextlib.suppress(OSError):
        names = (process / "maps").read_text(encoding="utf-8", errors="replace")
        for link in process.glob("fd/*"):
            with contextlib.suppress(FileNotFoundError):
                names += f"{link.readlink()}\n"
    return names


def _time(value_s: float) -> str:
    return plain(value_s, "s", 3)


def _allowed(tried: CommandResult) -> list[str]:
    """Return the allowed CPUs of each rank in the format of Linux, sorted."""
    return sorted(re.findall(r"Cpus_allowed_list:\s*([\d,-]+)", tried.out))
