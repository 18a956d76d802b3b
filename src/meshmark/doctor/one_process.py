"""Findings about what slows one process at this moment, observed for two seconds.

Sources: proc(5), proc_pid_stat(5), proc_pid_status(5), the kernel's documentation (scheduler/sched-stats).
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.doctor.counters import CounterHost
from meshmark.doctor.finding import HostFinding, by_limits, in_order
from meshmark.doctor.limits import raise_limit
from meshmark.doctor.strain import (
    Counts,
    group_pressure,
    increases,
    percent,
    quota_throttling,
    throttle_counts,
)
from meshmark.errors import MeshmarkError, UsageError
from meshmark.machine.activity import user_of, visible_process
from meshmark.machine.control_group import control_groups
from meshmark.machine.tree import FileTree, allowed_in_status, format_list, kilobytes
from meshmark.values.units import counted, number, plain

_WAITING: Final = (0.05, 0.2)  # shares of the time in which the threads of the process could run
_FAULTS_PER_S: Final = (1.0, 50.0)
_INTERRUPTED_PER_S: Final = 50.0
_ACTIVE: Final = 0.05  # share of the interval in which an active thread ran or waited
_STATES: Final = {
    "R": "running or runnable",
    "S": "sleeping",
    "D": "waiting uninterruptibly, usually for a disk or a file system",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "I": "idle thread of the kernel",
}


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """Counts of one thread since it started; times are None if the kernel does not report them."""

    ran_s: float | None
    waited_s: float | None
    voluntary: int
    involuntary: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment; `cpu_s` and `faults` are counted since it started."""

    name: str
    state: str
    started: int
    cpu_s: float
    faults: int
    nice: int
    swapped_bytes: int | None
    threads: Mapping[int, ThreadCounts]
    throttled: Counts


@dataclass(frozen=True, slots=True)
class ProcessObservation:
    """A process at the end of an interval, with its activity during the interval.

    Attributes:
        threads: Increases of the counts of its threads, without threads that ended.
    """

    host: CounterHost
    pid: int
    user: str
    interval_s: float
    end: Process
    cpus_used: float
    faults: int
    threads: Mapping[int, ThreadCounts]
    throttled: Counts

    @property
    def active(self) -> list[ThreadCounts]:
        """Return the threads that ran or waited for a CPU for a considerable share of the interval."""
        floor_s = _ACTIVE * self.interval_s
        return [t for t in self.threads.values() if (t.ran_s or 0.0) + (t.waited_s or 0.0) >= floor_s]

    @property
    def allowed(self) -> tuple[int, ...]:
        """Return the CPUs that the threads of the process may use."""
        return tuple(sorted({cpu for t in self.end.threads.values() for cpu in t.cpus} & set(self.host.cpus)))


def examine(host: CounterHost, pid: int, wait: Callable[[], float]) -> list[HostFinding]:
    """Return all findings about a process, worst first.

    Args:
        host: The live system.
        pid: The number of the process.
        wait: Function that lets an interval pass and returns its length in s.

    Raises:
        UsageError: There is no such process, or `pid` is the number of a thread.
        AbsentError: The kernel does not show the process to this user.
        MeshmarkError: The process ended while it was observed.
    """
    start, user = _read(host.tree, pid), user_of(host.tree, pid)
    interval_s = wait()
    try:
        end = _read(host.tree, pid)
    except UsageError:
        end = None
    if end is None or end.started != start.started or not end.threads:
        raise MeshmarkError(f"process {pid} ({start.name}) ended while it was observed, within {interval_s:.1f} s")
    threads = {tid: _since(start.threads.get(tid), thread) for tid, thread in end.threads.items()}
    observed = ProcessObservation(
        host,
        pid,
        user,
        interval_s,
        end,
        max(0.0, end.cpu_s - start.cpu_s) / interval_s,
        max(0, end.faults - start.faults),
        threads,
        increases(start.throttled, end.throttled),
    )
    return in_order(finding for check in _CHECKS for finding in check(observed))


def pause(interval_s: float) -> float:
    """Sleep for an interval and return how long it took, in s."""
    start_s = time.monotonic()
    time.sleep(interval_s)
    return time.monotonic() - start_s


def _read(tree: FileTree, pid: int) -> Process:
    """Return a process at this moment; raises like `examine`."""
    stat = visible_process(tree, pid, "--pid", f"meshmark doctor --pid {pid}")
    swap_match = re.search(r"^VmSwap:\s*(\d{1,18}) kB", tree.text(f"proc/{pid}/status") or "", re.M)
    fields = stat.fields
    return Process(
        name=stat.name,
        state=fields[0],
        started=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        faults=int(fields[9]),
        nice=int(fields[16]),
        swapped_bytes=1024 * int(swap_match[1]) if swap_match else None,
        threads={tid: _thread(tree, f"proc/{pid}/task/{tid}") for tid in tree.numbered(f"proc/{pid}/task", "")},
        throttled=throttle_counts(tree, control_groups(tree, str(pid))),
    )


def _thread(tree: FileTree, folder: str) -> ThreadCounts:
    status = tree.text(f"{folder}/status") or ""
    times = re.match(r"(\d{1,19}) (\d{1,19})", tree.text(f"{folder}/schedstat") or "")
    switches = dict(re.findall(r"^(voluntary|nonvoluntary)_ctxt_switches:\s*(\d{1,19})", status, re.M))
    return ThreadCounts(
        ran_s=1e-9 * int(times[1]) if times else None,
        waited_s=1e-9 * int(times[2]) if times else None,
        voluntary=int(switches.get("voluntary", 0)),
        involuntary=int(switches.get("nonvoluntary", 0)),
        cpus=allowed_in_status(status, "Cpus") or (),
    )


def _since(before: ThreadCounts | None, after: ThreadCounts) -> ThreadCounts:
    """Return the increases of a thread's counts since an earlier moment, or since its start if it is new."""
    if before is None:
        return after

    def increase(earlier: float | None, later: float | None) -> float | None:
        return None if earlier is None or later is None else max(0.0, later - earlier)

    return ThreadCounts(
        increase(before.ran_s, after.ran_s),
        increase(before.waited_s, after.waited_s),
        max(0, after.voluntary - before.voluntary),
        max(0, after.involuntary - before.involuntary),
        after.cpus,
    )


# ------------------------------------------------------------------ findings


def _program(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "process state", "the process that the other findings describe"
    state = _STATES.get(p.end.state, p.end.state)
    owner = f"user {p.user}" if p.user else "an unknown user"
    nice = f", nice {p.end.nice}" if p.end.nice else ""
    observation = f"{p.end.name} (pid {p.pid}, {owner}), {counted(len(p.threads), 'thread')}{nice}, {state}"
    if p.end.state == "T":
        effect = "a stopped process does nothing until it is continued"
        yield HostFinding(name, observation, "slows", effect, _as_owner(p, f"kill -CONT {p.pid}"))
    elif p.end.state in {"D", "t"}:
        yield HostFinding(name, observation, "slows", "it does nothing until that ends")
    else:
        yield HostFinding(name, observation, "ok", effect)


def _cpu_share(p: ProcessObservation) -> Iterator[HostFinding]:
    usage = f"{percent(p.cpus_used)} of a CPU" if p.cpus_used < 1 else f"{number(p.cpus_used)} CPUs"
    effect = "a program that needs CPUs and uses few of them waits for something: see the other findings"
    yield HostFinding("CPU share", f"{usage} in {p.interval_s:.1f} s", "ok", effect)


def _waiting(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "waiting for a CPU", "its threads could run, but others have their CPUs"
    times = [(t.ran_s, t.waited_s) for t in p.threads.values() if t.ran_s is not None and t.waited_s is not None]
    if not times:
        yield HostFinding(
            name, f"/proc/{p.pid}/task/*/schedstat is not readable or not in this kernel", "unknown", effect
        )
        return
    ran_s, waited_s = (sum(column) for column in zip(*times, strict=True))
    if ran_s + waited_s < _ACTIVE * p.interval_s:
        yield HostFinding(name, f"no: its threads were hardly runnable in {p.interval_s:.1f} s", "ok", effect)
        return
    share = waited_s / (ran_s + waited_s)
    observation = (
        f"{percent(share)} of the time in which its threads could run ({waited_s:.2f} of {ran_s + waited_s:.2f} s)"
    )
    judgement = by_limits(share, *_WAITING)
    command = "" if judgement == "ok" else _wider_mask(p, p.allowed)
    if judgement != "ok" and p.end.nice > 0:
        command = p.host.own_command(f"renice -n 0 -p {p.pid}")
    yield HostFinding(name, observation, judgement, effect, command)


def _threads(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "threads and CPUs", "threads that share a CPU run in alternation"
    cpus = p.allowed
    if not cpus:
        yield HostFinding(name, f"/proc/{p.pid}/task/*/status does not state the allowed CPUs", "unknown", effect)
        return
    active_threads = p.active
    observation = (
        f"{counted(len(active_threads), 'active thread')} on {counted(len(cpus), 'allowed CPU')} ({format_list(cpus)})"
    )
    crowded_masks = [
        (count, mask) for mask, count in Counter(t.cpus for t in active_threads).items() if mask and count > len(mask)
    ]
    if len(active_threads) <= len(cpus) and not crowded_masks:
        yield HostFinding(name, observation, "ok", effect)
        return
    if len(active_threads) <= len(cpus):
        count, mask = max(crowded_masks, key=lambda one: one[0] / len(one[1]))
        observation += f", {count} of them bound to {counted(len(mask), 'CPU')} ({format_list(mask)})"
    yield HostFinding(
        name, observation, "slows", effect, _wider_mask(p, cpus if len(active_threads) > len(cpus) else ())
    )


def _wider_mask(p: ProcessObservation, mask: tuple[int, ...]) -> str:
    """Return the command that lets all threads use more CPUs than a mask; "" if there are no more CPUs."""
    tree, host = p.host.tree, p.host
    folders = control_groups(tree, str(p.pid)).folders("cpuset")
    names = [f"{folder}/{file}" for folder in folders for file in ("cpuset.cpus.effective", "cpuset.cpus")]
    group = next((cpus for name in names if (cpus := tree.cpus(name))), host.cpus)
    possible = sorted(set(group) & set(host.cpus))
    if set(possible) > set(mask):
        return _as_owner(p, f"taskset -acp {format_list(possible)} {p.pid}")
    if set(host.cpus) > set(possible):
        all_cpus = format_list(host.cpus)
        return raise_limit(host, f'--cpuset-cpus "{all_cpus}"', "cpuset.cpus", all_cpus, str(p.pid))
    return ""


def _quota(p: ProcessObservation) -> Iterator[HostFinding]:
    yield quota_throttling(p.host, p.throttled, p.interval_s, str(p.pid))


def _pressure(p: ProcessObservation) -> Iterator[HostFinding]:
    yield group_pressure(p.host, str(p.pid))


def _faults(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "major page faults", "each waits for a page to be read from a disk or from swap"
    rate = p.faults / p.interval_s
    yield HostFinding(name, f"{p.faults} in {p.interval_s:.1f} s", by_limits(rate, *_FAULTS_PER_S), effect)


def _swapped(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "memory in swap", "touching these pages again waits for a disk"
    if kilobytes(p.host.tree.text("proc/meminfo"), "SwapTotal") == 0:
        yield HostFinding(name, "this machine has no swap", "ok", effect)
    elif p.end.swapped_bytes is None:
        yield HostFinding(
            name, f"/proc/{p.pid}/status does not report it, as for threads of the kernel", "unknown", effect
        )
    else:
        yield HostFinding(name, plain(p.end.swapped_bytes, "B"), by_limits(p.end.swapped_bytes, 1, math.inf), effect)


def _switches(p: ProcessObservation) -> Iterator[HostFinding]:
    name, effect = "context switches", "involuntary: another thread takes the CPU; voluntary: it waits for something"
    voluntary, involuntary = (
        sum(counts) / p.interval_s
        for counts in zip(*((t.voluntary, t.involuntary) for t in p.threads.values()), strict=True)
    )
    observation = f"{number(voluntary)}/s voluntary, {number(involuntary)}/s involuntary"
    yield HostFinding(name, observation, by_limits(involuntary, _INTERRUPTED_PER_S, math.inf), effect)


def _as_owner(p: ProcessObservation, command: str) -> str:
    """Return a command that the owner of the process may run; for other users, it begins with `sudo`."""
    return command if p.user and p.user == user_of(p.host.tree, os.getpid()) else p.host.own_command(command)


_CHECKS: Final[tuple[Callable[[ProcessObservation], Iterator[HostFinding]], ...]] = (
    _program,
    _cpu_share,
    _waiting,
    _threads,
    _quota,
    _pressure,
    _faults,
    _swapped,
    _switches,
)
