"""Findings that a machine and a process have in common: pressure, and throttling by the quota of a control group.

Sources: the kernel's documentation (accounting/psi, admin-guide/cgroup-v2, scheduler/sched-bwc).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.doctor.counters import Host, unknown
from meshmark.doctor.finding import ORDER, Finding, by_limits
from meshmark.doctor.limits import raise_limit
from meshmark.machine.control_group import ControlGroups, control_groups, cpu_quota
from meshmark.machine.tree import Files
from meshmark.values.units import number

Counts = Mapping[str, int]
# Shares of the last 10 s in which some thread waited: the lowest that spoils measurements, and that slows programs.
LIMITS: Final = {"cpu": (0.1, 0.5), "memory": (0.01, 0.1), "io": (0.05, 0.3)}
TITLES: Final = {"cpu": "CPU", "memory": "memory", "io": "I/O"}
TWO_MOMENTS: Final = "needs two moments, and a recorded tree has one"
_THROTTLED: Final = (0.0005, 0.1)  # shares of the periods


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shares of the last 10, 60 and 300 s in which some thread waited, and in which all did; None: not reported."""

    some: tuple[float, ...]
    full: tuple[float, ...] | None

    def __str__(self) -> str:
        ten, minute, five = (percent(share) for share in self.some)
        everyone = "" if self.full is None else f"; all waited {percent(self.full[0])} of the last 10 s"
        return f"some waited {ten} of the last 10 s, {minute} of 60 s, {five} of 300 s{everyone}"


def percent(share: float) -> str:
    """A share as a percentage with an ordinary space; small ones with one digit behind the point."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def pressure(tree: Files, name: str) -> Pressure | None:
    """The content of a file of pressure (PSI); None if it does not exist or is malformed."""
    numbers = r"avg10=(\d{1,3}\.\d\d) avg60=(\d{1,3}\.\d\d) avg300=(\d{1,3}\.\d\d)"
    rows = {
        match[1]: tuple(float(share) / 100 for share in match.groups()[1:])
        for match in re.finditer(rf"^(some|full) {numbers}", tree.text(name) or "", re.M)
    }
    return Pressure(rows["some"], rows.get("full")) if "some" in rows else None


def group_pressure(host: Host, process: str = "self") -> Finding:
    """How long the threads of the control group of a process waited for CPUs, memory and I/O."""
    name, why = "pressure in the control group", "its programs wait, whatever the rest of the machine does"
    groups = control_groups(host.tree, process)
    if not groups.paths:
        return unknown(name, f"proc/{process}/cgroup", why)
    if not groups.unified:
        return Finding(name, "control groups of version 1 do not report it", "hidden", why)
    path, folder = groups.path(""), groups.folders("")[0]
    shares = {kind: pressure(host.tree, f"{folder}/{kind}.pressure") for kind in LIMITS}
    where = path
    if not any(shares.values()) and path == "/":  # the group of all processes
        shares = {kind: pressure(host.tree, f"proc/pressure/{kind}") for kind in LIMITS}
        where = "/, the whole machine"
    known = {kind: share for kind, share in shares.items() if share is not None}
    if not known:
        return unknown(name, f"{folder}/cpu.pressure", why)
    text = ", ".join(f"{TITLES[kind]} {percent(share.some[0])}" for kind, share in known.items())
    judged = min((by_limits(share.some[0], *LIMITS[kind]) for kind, share in known.items()), key=ORDER.index)
    return Finding(name, f"some waited, in the last 10 s: {text} (group {where})", judged, why)


def throttle_counts(tree: Files, groups: ControlGroups) -> dict[str, int]:
    """The counts of `cpu.stat` of a control group and its ancestors, by folder and name."""
    return {
        f"{folder}/{key}": int(value)
        for folder in groups.folders("cpu")
        for key, value in re.findall(r"^(\w+) (\d{1,19})$", tree.text(f"{folder}/cpu.stat") or "", re.M)
    }


def increases(before: Counts, after: Counts) -> dict[str, int]:
    """By how much each count that both have has grown."""
    return {key: max(0, after[key] - before[key]) for key in after if key in before}


def quota_throttling(host: Host, grown: Counts | None, interval_s: float, process: str = "self") -> Finding:
    """Whether threads of a control group stopped because its CPU quota was used up.

    Args:
        grown: Increases of `throttle_counts` over the interval; None for a recorded tree.
    """
    name, why = "throttling by CPU quota", "when it is used up, all threads stop for the rest of the period"
    groups = control_groups(host.tree, process)
    quota = cpu_quota(host.tree, groups)
    if not groups.paths:
        return unknown(name, f"proc/{process}/cgroup", why)
    if quota is None and not any(host.tree.names("sys/fs/cgroup")):
        return unknown(name, "sys/fs/cgroup", why)
    if quota is None:
        return Finding(name, "no quota", "ok", why)
    limit = f"{number(quota[0])} CPUs (/{quota[1]})"
    if grown is None:
        return Finding(name, f"{limit}; how often it stops threads {TWO_MOMENTS}", "unknown", why)
    stopped = {
        folder: grown.get(f"{folder}/throttled_usec", 0) * 1e-6 + grown.get(f"{folder}/throttled_time", 0) * 1e-9
        for folder in groups.folders("cpu")
        if f"{folder}/nr_throttled" in grown
    }
    if not stopped:
        return Finding(name, f"{limit}; cpu.stat does not report how often it stops threads", "unknown", why)
    folder = max(stopped, key=lambda one: (grown[f"{one}/nr_throttled"], stopped[one]))
    periods, throttled = grown.get(f"{folder}/nr_periods", 0), grown[f"{folder}/nr_throttled"]
    if not throttled:
        return Finding(name, f"{limit}; not used up in {interval_s:.1f} s", "ok", why)
    lost = f"{stopped[folder]:.2f} s summed over CPUs"
    found = f"{limit}; used up in {throttled} of {periods} periods in {interval_s:.1f} s: stopped for {lost}"
    judged = by_limits(throttled / max(1, periods), *_THROTTLED)
    return Finding(name, found, judged, why, raise_limit(host, "--cpu-quota -1", "cpu.max", "max", process))
