"""Findings about what slows the programs of a machine at this moment.

Checks that need two moments observe the live system for two seconds; for a recorded tree, they are unknown.

Sources: proc(5), the kernel's documentation (accounting/psi, admin-guide/pm/cpufreq, driver-api/thermal/sysfs-api) and,
for the counts of throttling, drivers/thermal/intel/therm_throt.c.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.doctor.counters import CPU, CounterHost, open_counter, unknown
from meshmark.doctor.finding import HostFinding, by_limits, in_order
from meshmark.doctor.strain import (
    LIMITS,
    TWO_MOMENTS,
    Counts,
    group_pressure,
    increases,
    percent,
    pressure,
    quota_throttling,
    throttle_counts,
)
from meshmark.machine.activity import Activity, user_of
from meshmark.machine.control_group import control_groups
from meshmark.machine.tree import FileTree, format_list, kilobytes
from meshmark.values.units import counted, plain

_CROWDED: Final = 1.1  # runnable threads per CPU above which CPUs are oversubscribed; more than 1 for brief threads
_FULL: Final = 0.9  # utilization of CPUs above which another program finds no free CPU
_STOLEN: Final = (0.02, 0.1)
_SWAPPED_BYTES_S: Final = (1.0, 4 << 20)
_SHOWN: Final = 3
_COOLING: Final = r"processor|intel_powerclamp|cpufreq.*|cpu.*|thermal-cpu.*"
_THERMAL: Final = "sys/class/thermal"
_PARTS: Final = ("core", "package")


@dataclass(frozen=True, slots=True)
class IntervalObservation:
    """Observations over an interval: the activity, and the increases of counts."""

    activity: Activity
    grown: Counts


def examine(
    observe: Callable[[], Activity], root: Path = Path("/"), *, host: CounterHost | None = None
) -> tuple[list[HostFinding], float]:
    """Return all findings, worst first, and the length of the interval in s; 0 for a recorded tree.

    Args:
        observe: Function that observes the live system for an interval; not called for a recorded tree.
        root: `/`, or a recorded tree with proc and sys.
        host: The machine below `root`; by default, it is read.

    Raises:
        MeshmarkError: The sampler failed.
    """
    host = host or CounterHost(root, shutil.which, open_counter)
    moments = None
    if host.live:
        first_counts = _counts(host.tree)
        activity = observe()
        moments = IntervalObservation(activity, increases(first_counts, _counts(host.tree)))
    findings = [finding for check in _CHECKS for finding in check(host, moments)]
    return in_order(findings), moments.activity.interval_s if moments else 0.0


def _counts(tree: FileTree) -> dict[str, int]:
    """Return counts that grow: swapped pages, `cpu.stat` of the control groups, and thermal throttling by CPU."""
    swapped = re.findall(r"^(pswpin|pswpout) (\d{1,19})$", tree.text("proc/vmstat") or "", re.M)
    counts = {key: int(value) for key, value in swapped} | throttle_counts(tree, control_groups(tree))
    for cpu in tree.numbered(CPU, "cpu"):
        for part in _PARTS:
            name = f"{CPU}/cpu{cpu}/thermal_throttle/{part}_throttle_count"
            if (count := tree.number(name)) is not None:
                counts[name] = count
    return counts


# ------------------------------------------------------------------ CPUs


def _load(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = "load", "threads that find no free CPU wait, and their programs take longer"
    averages = host.fact("load")
    average = "" if averages is None else "load average {1min:g}, {5min:g}, {15min:g} (1, 5, 15 min)".format(**averages)
    if not host.cpus:
        yield unknown(name, f"{CPU}/online", effect)
        return
    cpus = f"{counted(len(host.cpus), 'CPU')} ({format_list(host.cpus)})"
    if moments is None:
        if averages is None:
            yield unknown(name, "proc/loadavg", effect)
        else:
            judgement = by_limits(averages["1min"] / len(host.cpus), _FULL, _CROWDED)
            yield HostFinding(name, f"{average} on {cpus}; what runs now {TWO_MOMENTS}", judgement, effect)
        return
    activity = moments.activity
    if activity.runnable is None or not activity.busy:
        yield unknown(name, "proc/stat", effect)
        return
    utilization, threads_per_cpu = _mean(activity.busy.values()), activity.runnable / len(host.cpus)
    observation = f"{activity.runnable:.1f} runnable threads on {cpus}, {percent(utilization)} busy"
    if host.allowed is not None and len(host.allowed) < len(host.cpus):
        allowed_utilization = _mean(activity.busy.get(cpu, 0.0) for cpu in host.allowed)
        allowed = f"{counted(len(host.allowed), 'CPU')} ({format_list(host.allowed)})"
        observation += f"; the {allowed} that this process may use, {percent(allowed_utilization)} busy"
        utilization = max(utilization, allowed_utilization)
    observation += f"; {average}" if average else ""
    if threads_per_cpu > _CROWDED:
        yield HostFinding(name, observation, "slows", effect, _less_priority(host, activity))
    else:
        yield HostFinding(name, observation, "spoils-measurements" if utilization >= _FULL else "ok", effect)


def _less_priority(host: CounterHost, activity: Activity) -> str:
    """Return the command that lowers the priority of the busiest programs; "" if they have ended."""
    users = {program.pid: user_of(host.tree, program.pid) for program in activity.programs[:_SHOWN]}
    pids = [str(pid) for pid, user in users.items() if user]
    command = f"renice -n 10 -p {' '.join(pids)}" if pids else ""
    other_users = set(users.values()) - {"", user_of(host.tree, os.getpid())}
    return host.own_command(command) if command and other_users else command


def _busiest(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = "busiest programs", "they take the CPU time that others lack"
    if moments is None:
        yield HostFinding(name, f"the CPU time of programs {TWO_MOMENTS}", "unknown", effect)
        return
    activity = moments.activity
    top = activity.programs[:_SHOWN]
    if not top:
        text = f"none used 1 % of a CPU in {activity.interval_s:.1f} s"
        yield HostFinding(name, text, "ok", effect)
        return
    texts = [
        f"{p.name} ({percent(p.cpus)} of a CPU, pid {p.pid}, {f'user {user}' if user else 'ended'})"
        for p in top
        for user in (user_of(host.tree, p.pid),)
    ]
    oversubscribed = activity.runnable is not None and activity.runnable > _CROWDED * len(host.cpus)
    yield HostFinding(
        name, f"{', '.join(texts)}, in {activity.interval_s:.1f} s", "slows" if oversubscribed else "ok", effect
    )


def _steal(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = (
        "steal by the hypervisor",
        "other guests, or a limit of this one, take CPUs that threads need",
    )
    if moments is None:
        yield HostFinding(name, f"stolen time {TWO_MOMENTS}", "unknown", effect)
    elif not moments.activity.stolen:
        yield unknown(name, "proc/stat", effect)
    else:
        stolen = _mean(moments.activity.stolen.values())
        observation = f"{percent(stolen)} of the time of all CPUs in {moments.activity.interval_s:.1f} s"
        if not host.guest and not stolen:
            observation = "none; this is not a guest" if host.fact("virtual", "guest") is False else observation
        yield HostFinding(name, observation, by_limits(stolen, *_STOLEN), effect)


def _heat(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = (
        "throttling by heat or power",
        "processors that are too hot or use too much power lower their clock rate",
    )
    cooling = [
        (folder, state)
        for folder in sorted(host.tree.names(_THERMAL))
        if folder.startswith("cooling_device")
        and re.fullmatch(_COOLING, host.tree.text(f"{_THERMAL}/{folder}/type") or "", re.I)
        and (state := host.tree.number(f"{_THERMAL}/{folder}/cur_state")) is not None
    ]
    active_devices = [folder for folder, state in cooling if state > 0]
    cpus_with_counts = [n for n in host.cpus if host.exists(f"{CPU}/cpu{n}/thermal_throttle")]
    if not cooling and not cpus_with_counts:
        observation = (
            "not reported by the hypervisor" if host.guest else "this kernel reports neither throttling nor cooling"
        )
        yield HostFinding(name, observation, "hidden" if host.live or host.guest else "unknown", effect)
    elif active_devices:
        observation = (
            f"{counted(len(active_devices), 'cooling device')} of the processor active: "
            f"{', '.join(active_devices[:_SHOWN])}"
        )
        yield HostFinding(name, observation, "slows", effect)
    elif moments is None:
        yield HostFinding(name, f"throttling {TWO_MOMENTS}", "unknown", effect)
    else:
        counts = {
            cpu: max(moments.grown.get(f"{CPU}/cpu{cpu}/thermal_throttle/{part}_throttle_count", 0) for part in _PARTS)
            for cpu in cpus_with_counts
        }
        throttled_cpus = [cpu for cpu, count in counts.items() if count]
        interval = f"in {moments.activity.interval_s:.1f} s"
        if throttled_cpus:
            observation = (
                f"CPUs {format_list(throttled_cpus)}, up to {counted(max(counts.values()), 'time')} {interval}"
            )
            yield HostFinding(name, observation, "slows", effect)
        else:
            yield HostFinding(name, f"none {interval}", "ok", effect)


def _clock_limit(host: CounterHost, _: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = "limit of the clock rate", "a limit below the processor's own slows everything that computes"
    limits: dict[tuple[int, int], list[int]] = {}
    for cpu in host.cpus:
        limit_khz, max_khz = (host.tree.number(f"{CPU}/cpu{cpu}/cpufreq/{f}_max_freq") for f in ("scaling", "cpuinfo"))
        if limit_khz and max_khz:
            limits.setdefault((limit_khz, max_khz), []).append(cpu)
    lowered_limits = {key: cpus for key, cpus in limits.items() if key[0] < key[1]}
    if not limits:
        observation = "controlled by the hypervisor" if host.guest else "the kernel does not control it"
        yield HostFinding(name, observation, "hidden" if host.live or host.guest else "unknown", effect)
    elif lowered_limits:
        (limit_khz, max_khz), cpus = min(lowered_limits.items(), key=lambda item: item[0][0] / item[0][1])
        observation = f"{plain(1e3 * limit_khz, 'Hz')} of {plain(1e3 * max_khz, 'Hz')} on CPUs {format_list(cpus)}"
        folder = f"cpu{cpus[0]}" if len(cpus) == 1 else "cpu*"
        command = host.write(str(max_khz), f"{CPU}/{folder}/cpufreq/scaling_max_freq")
        yield HostFinding(name, observation, by_limits(1 - limit_khz / max_khz, 0.0, 0.1), effect, command)
    else:
        yield HostFinding(name, "none", "ok", effect)


def _quota(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    yield quota_throttling(host, moments.grown if moments else None, moments.activity.interval_s if moments else 0.0)


# ------------------------------------------------------------------ pressure and memory


def _pressures(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    effects = {
        "cpu": "threads wait for a CPU although they could run",
        "memory": "threads wait while the kernel reclaims or reads back pages, since memory is short",
        "io": "threads wait for disks or file systems",
    }
    devices = sorted(moments.activity.devices.items(), key=lambda item: -item[1]) if moments else []
    total, available = (kilobytes(host.tree.text("proc/meminfo"), f"Mem{key}") for key in ("Total", "Available"))
    details = {
        "memory": f"{plain(available, 'B')} of {plain(total, 'B')} available" if total and available else "",
        "io": f"busiest device: {devices[0][0]}, {percent(devices[0][1])} of the time in use" if devices else "",
    }
    for kind, effect in effects.items():
        name = {"cpu": "CPU pressure", "memory": "memory pressure", "io": "I/O pressure"}[kind]
        shares = pressure(host.tree, f"proc/pressure/{kind}")
        if shares is None:
            yield unknown(name, f"proc/pressure/{kind}", effect)
            continue
        # The whole machine always runs a thread, so its threads never all wait for a CPU.
        observation = str(shares if kind != "cpu" else type(shares)(shares.some, None))
        observation += f"; {details[kind]}" if details.get(kind) else ""
        yield HostFinding(name, observation, by_limits(shares.some[0], *LIMITS[kind]), effect)
    yield group_pressure(host)


def _swap(host: CounterHost, moments: IntervalObservation | None) -> Iterator[HostFinding]:
    name, effect = "swap activity", "reading a page back from swap takes thousands of times as long as from memory"
    total, free = (kilobytes(host.tree.text("proc/meminfo"), f"Swap{key}") for key in ("Total", "Free"))
    if total is None or free is None:
        yield unknown(name, "proc/meminfo", effect)
        return
    if not total:
        yield HostFinding(name, "this machine has no swap", "ok", effect)
        return
    usage = f"{plain(total - free, 'B')} of {plain(total, 'B')} in use"
    if moments is None:
        yield HostFinding(name, f"{usage}; what is swapped now {TWO_MOMENTS}", "unknown", effect)
    elif "pswpin" not in moments.grown or "pswpout" not in moments.grown:
        yield unknown(name, "proc/vmstat", effect)
    else:
        page = os.sysconf("SC_PAGE_SIZE") / moments.activity.interval_s
        read_bytes_s, written_bytes_s = (page * moments.grown[key] for key in ("pswpin", "pswpout"))
        observation = f"{plain(read_bytes_s, 'B')}/s read back, {plain(written_bytes_s, 'B')}/s swapped out, {usage}"
        yield HostFinding(name, observation, by_limits(max(read_bytes_s, written_bytes_s), *_SWAPPED_BYTES_S), effect)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / max(1, len(numbers))


_CHECKS: Final[tuple[Callable[[CounterHost, IntervalObservation | None], Iterator[HostFinding]], ...]] = (
    _load,
    _busiest,
    _steal,
    _heat,
    _clock_limit,
    _quota,
    _pressures,
    _swap,
)
