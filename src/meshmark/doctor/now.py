"""Findings about what slows the programs of a machine at this moment.

What needs two moments is observed for two seconds on the live system, and unknown for a recorded tree.

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

from meshmark.doctor.counters import CPU, Host, open_counter, unknown
from meshmark.doctor.finding import Finding, by_limits, in_order
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
from meshmark.machine.tree import Tree, format_list, kilobytes
from meshmark.values.units import counted, plain

_CROWDED: Final = 1.1  # runnable threads per CPU above which CPUs are oversubscribed; below, threads that start and end
_FULL: Final = 0.9  # use of CPUs above which another program finds no free one
_STOLEN: Final = (0.02, 0.1)
_SWAPPED_BYTES_S: Final = (1.0, 4 << 20)
_SHOWN: Final = 3
_COOLING: Final = r"processor|intel_powerclamp|cpufreq.*|cpu.*|thermal-cpu.*"
_THERMAL: Final = "sys/class/thermal"
_PARTS: Final = ("core", "package")


@dataclass(frozen=True, slots=True)
class Moments:
    """What was observed over an interval: the activity, and by how much counts have grown."""

    activity: Activity
    grown: Counts


def examine(
    observe: Callable[[], Activity], root: Path = Path("/"), *, host: Host | None = None
) -> tuple[list[Finding], float]:
    """All findings, worst first, and the length of the interval in s; 0 for a recorded tree.

    Args:
        observe: Observes the live system for an interval; not called for a recorded tree.
        root: `/`, or a recorded tree with proc and sys.
        host: The machine below `root`; None: it is read.

    Raises:
        MeshmarkError: The sampler failed.
    """
    host = host or Host(root, shutil.which, open_counter)
    moments = None
    if host.live:
        before = _counts(host.tree)
        activity = observe()
        moments = Moments(activity, increases(before, _counts(host.tree)))
    findings = [finding for check in _CHECKS for finding in check(host, moments)]
    return in_order(findings), moments.activity.interval_s if moments else 0.0


def _counts(tree: Tree) -> dict[str, int]:
    """Counts that grow: pages swapped, periods of the control group without quota, and thermal throttling by CPU."""
    swapped = re.findall(r"^(pswpin|pswpout) (\d{1,19})$", tree.text("proc/vmstat") or "", re.M)
    counts = {key: int(value) for key, value in swapped} | throttle_counts(tree, control_groups(tree))
    for cpu in tree.numbered(CPU, "cpu"):
        for part in _PARTS:
            name = f"{CPU}/cpu{cpu}/thermal_throttle/{part}_throttle_count"
            if (count := tree.number(name)) is not None:
                counts[name] = count
    return counts


# ------------------------------------------------------------------ CPUs


def _load(host: Host, moments: Moments | None) -> Iterator[Finding]:
    name, why = "load", "threads that find no free CPU wait, and their programs take longer"
    averages = host.fact("load")
    average = "" if averages is None else "load average {1min:g}, {5min:g}, {15min:g} (1, 5, 15 min)".format(**averages)
    if not host.cpus:
        yield unknown(name, f"{CPU}/online", why)
        return
    cpus = f"{counted(len(host.cpus), 'CPU')} ({format_list(host.cpus)})"
    if moments is None:
        if averages is None:
            yield unknown(name, "proc/loadavg", why)
        else:
            judged = by_limits(averages["1min"] / len(host.cpus), _FULL, _CROWDED)
            yield Finding(name, f"{average} on {cpus}; what runs now {TWO_MOMENTS}", judged, why)
        return
    activity = moments.activity
    if activity.runnable is None or not activity.busy:
        yield unknown(name, "proc/stat", why)
        return
    use, crowd = _mean(activity.busy.values()), activity.runnable / len(host.cpus)
    found = f"{activity.runnable:.1f} runnable threads on {cpus}, {percent(use)} busy"
    if host.allowed is not None and len(host.allowed) < len(host.cpus):
        mine = _mean(activity.busy.get(cpu, 0.0) for cpu in host.allowed)
        allowed = f"{counted(len(host.allowed), 'CPU')} ({format_list(host.allowed)})"
        found += f"; the {allowed} that this process may use, {percent(mine)} busy"
        use = max(use, mine)
    found += f"; {average}" if average else ""
    if crowd > _CROWDED:
        yield Finding(name, found, "slows", why, _less_priority(host, activity))
    else:
        yield Finding(name, found, "spoils-measurements" if use >= _FULL else "ok", why)


def _less_priority(host: Host, activity: Activity) -> str:
    """The command that lowers the priority of the busiest programs; "" if they have ended."""
    users = {program.pid: user_of(host.tree, program.pid) for program in activity.programs[:_SHOWN]}
    living = [str(pid) for pid, user in users.items() if user]
    command = f"renice -n 10 -p {' '.join(living)}" if living else ""
    others = set(users.values()) - {"", user_of(host.tree, os.getpid())}
    return host.own_command(command) if command and others else command


def _busiest(host: Host, moments: Moments | None) -> Iterator[Finding]:
    name, why = "busiest programs", "they take the CPU time that others lack"
    if moments is None:
        yield Finding(name, f"the CPU time of programs {TWO_MOMENTS}", "unknown", why)
        return
    activity = moments.activity
    top = activity.programs[:_SHOWN]
    if not top:
        text = f"none used 1 % of a CPU in {activity.interval_s:.1f} s"
        yield Finding(name, text, "ok", why)
        return
    texts = [
        f"{p.name} ({percent(p.cpus)} of a CPU, pid {p.pid}, {f'user {user}' if user else 'ended'})"
        for p in top
        for user in (user_of(host.tree, p.pid),)
    ]
    crowded = activity.runnable is not None and activity.runnable > _CROWDED * len(host.cpus)
    yield Finding(name, f"{', '.join(texts)}, in {activity.interval_s:.1f} s", "slows" if crowded else "ok", why)


def _steal(host: Host, moments: Moments | None) -> Iterator[Finding]:
    name, why = (
        "steal by the hypervisor",
        "other guests, or a limit of this one, take CPUs that threads need",
    )
    if moments is None:
        yield Finding(name, f"stolen time {TWO_MOMENTS}", "unknown", why)
    elif not moments.activity.stolen:
        yield unknown(name, "proc/stat", why)
    else:
        stolen = _mean(moments.activity.stolen.values())
        found = f"{percent(stolen)} of the time of all CPUs in {moments.activity.interval_s:.1f} s"
        if not host.guest and not stolen:
            found = "none; this is not a guest" if host.fact("virtual", "guest") is False else found
        yield Finding(name, found, by_limits(stolen, *_STOLEN), why)


def _heat(host: Host, moments: Moments | None) -> Iterator[Finding]:
    name, why = (
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
    active = [folder for folder, state in cooling if state > 0]
    counted_cpus = [n for n in host.cpus if host.exists(f"{CPU}/cpu{n}/thermal_throttle")]
    if not cooling and not counted_cpus:
        found = "not reported by the hypervisor" if host.guest else "this kernel reports neither throttling nor cooling"
        yield Finding(name, found, "hidden" if host.live or host.guest else "unknown", why)
    elif active:
        found = f"{counted(len(active), 'cooling device')} of the processor active: {', '.join(active[:_SHOWN])}"
        yield Finding(name, found, "slows", why)
    elif moments is None:
        yield Finding(name, f"throttling {TWO_MOMENTS}", "unknown", why)
    else:
        times = {
            cpu: max(moments.grown.get(f"{CPU}/cpu{cpu}/thermal_throttle/{part}_throttle_count", 0) for part in _PARTS)
            for cpu in counted_cpus
        }
        throttled = [cpu for cpu, count in times.items() if count]
        interval = f"in {moments.activity.interval_s:.1f} s"
        if throttled:
            found = f"CPUs {format_list(throttled)}, up to {counted(max(times.values()), 'time')} {interval}"
            yield Finding(name, found, "slows", why)
        else:
            yield Finding(name, f"none {interval}", "ok", why)


def _clock_limit(host: Host, _: Moments | None) -> Iterator[Finding]:
    name, why = "limit of the clock rate", "a limit below that of the processor slows everything that computes"
    limits: dict[tuple[int, int], list[int]] = {}
    for cpu in host.cpus:
        limit, most = (host.tree.number(f"{CPU}/cpu{cpu}/cpufreq/{f}_max_freq") for f in ("scaling", "cpuinfo"))
        if limit and most:
            limits.setdefault((limit, most), []).append(cpu)
    lowered = {key: cpus for key, cpus in limits.items() if key[0] < key[1]}
    if not limits:
        found = "controlled by the hypervisor" if host.guest else "the kernel does not control it"
        yield Finding(name, found, "hidden" if host.live or host.guest else "unknown", why)
    elif lowered:
        (limit, most), cpus = min(lowered.items(), key=lambda item: item[0][0] / item[0][1])
        found = f"{plain(1e3 * limit, 'Hz')} of {plain(1e3 * most, 'Hz')} on CPUs {format_list(cpus)}"
        folder = f"cpu{cpus[0]}" if len(cpus) == 1 else "cpu*"
        command = host.write(str(most), f"{CPU}/{folder}/cpufreq/scaling_max_freq")
        yield Finding(name, found, by_limits(1 - limit / most, 0.0, 0.1), why, command)
    else:
        yield Finding(name, "none", "ok", why)


def _quota(host: Host, moments: Moments | None) -> Iterator[Finding]:
    yield quota_throttling(host, moments.grown if moments else None, moments.activity.interval_s if moments else 0.0)


# ------------------------------------------------------------------ pressure and memory


def _pressures(host: Host, moments: Moments | None) -> Iterator[Finding]:
    reasons = {
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
    for kind, why in reasons.items():
        name = {"cpu": "CPU pressure", "memory": "memory pressure", "io": "I/O pressure"}[kind]
        share = pressure(host.tree, f"proc/pressure/{kind}")
        if share is None:
            yield unknown(name, f"proc/pressure/{kind}", why)
            continue
        # The whole machine always runs something, so that all never wait for a CPU.
        found = str(share if kind != "cpu" else type(share)(share.some, None))
        found += f"; {details[kind]}" if details.get(kind) else ""
        yield Finding(name, found, by_limits(share.some[0], *LIMITS[kind]), why)
    yield group_pressure(host)


def _swap(host: Host, moments: Moments | None) -> Iterator[Finding]:
    name, why = "swap activity", "reading a page back from swap takes thousands of times as long as from memory"
    total, free = (kilobytes(host.tree.text("proc/meminfo"), f"Swap{key}") for key in ("Total", "Free"))
    if total is None or free is None:
        yield unknown(name, "proc/meminfo", why)
        return
    if not total:
        yield Finding(name, "this machine has no swap", "ok", why)
        return
    used = f"{plain(total - free, 'B')} of {plain(total, 'B')} in use"
    if moments is None:
        yield Finding(name, f"{used}; what is swapped now {TWO_MOMENTS}", "unknown", why)
    elif "pswpin" not in moments.grown or "pswpout" not in moments.grown:
        yield unknown(name, "proc/vmstat", why)
    else:
        page = os.sysconf("SC_PAGE_SIZE") / moments.activity.interval_s
        into, out = (page * moments.grown[key] for key in ("pswpin", "pswpout"))
        found = f"{plain(into, 'B')}/s read back, {plain(out, 'B')}/s swapped out, {used}"
        yield Finding(name, found, by_limits(max(into, out), *_SWAPPED_BYTES_S), why)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / max(1, len(listed))


_CHECKS: Final[tuple[Callable[[Host, Moments | None], Iterator[Finding]], ...]] = (
    _load,
    _busiest,
    _steal,
    _heat,
    _clock_limit,
    _quota,
    _pressures,
    _swap,
)
