"""Findings that a machine and a process have in common: pressure, and throttling by the quota of a control group.

Sources: the kernel's documentation (accounting/psi, admin-guide/cgroup-v2, scheduler/sched-bwc).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.doctor.counters import CounterHost, unknown
from meshmark.doctor.finding import ORDER, HostFinding, by_limits
from meshmark.doctor.limits import raise_limit
from meshmark.machine.control_group import ControlGroups, control_groups, cpu_quota
from meshmark.machine.tree import Files
from meshmark.values.units import number

Counts = Mapping[str, int]
# Shares of the last 10 s in which some thread waited: the lowest share that spoils measurements, and the lowest that
# slows programs.
LIMITS: Final = {"cpu": (0.1, 0.5), "memory": (0.01, 0.1), "io": (0.05, 0.3)}
TITLES: Final = {"cpu": "CPU", "memory": "memory", "io": "I/O"}
TWO_MOMENTS: Final = "needs two moments, and a recorded tree has one"
_THROTTLED: Final = (0.0005, 0.1)  # shares of the periods in which the quota was used up, with the same two limits


@dataclass(frozen=True, slots=True)
class Pressure:
    """Shares of the last 10, 60 and 300 s in which some or all threads waited; None if not reported."""

    some: tuple[float, ...]
    full: tuple[float, ...] | None

    def __str__(self) -> str:
        ten, minute, five = (percent(share) for share in self.some)
        full_text = "" if self.full is None else f"; all waited {percent(self.full[0])} of the last 10 s"
        return f"some waited {ten} of the last 10 s, {minute} of 60 s, {five} of 300 s{full_text}"


def percent(share: float) -> str:
    """Return a share as a percentage with an ordinary space; small percentages have one decimal."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def pressure(tree: Files, name: str) -> Pressure | None:
    """Return the content of a pressure file (PSI); None if it does not exist or is malformed."""
    numbers = r"avg10=(\d{1,3}\.\d\d) avg60=(\d{1,3}\.\d\d) avg300=(\d{1,3}\.\d\d)"
    rows = {
        match[1]: tuple(float(share) / 100 for share in match.groups()[1:])
        for match in re.finditer(rf"^(some|full) {numbers}", tree.text(name) or "", re.M)
    }
    return Pressure(rows["some"], rows.get("full")) if "some" in rows else None


def group_pressure(host: CounterHost, process: str = "self") -> HostFinding:
    """Check how long the threads of the control group of a process waited for CPUs, memory and I/O."""
    name, effect = "pressure in the control group", "its programs wait, whatever the rest of the machine does"
    groups = control_groups(host.tree, process)
    if not groups.paths:
        return unknown(name, f"proc/{process}/cgroup", effect)
    if not groups.unified:
        return HostFinding(name, "control groups of version 1 do not report it", "hidden", effect)
    path, folder = groups.path(""), groups.folders("")[0]
    shares = {kind: pressure(host.tree, f"{folder}/{kind}.pressure") for kind in LIMITS}
    location = path
    if not any(shares.values()) and path == "/":  # the group of all processes
        shares = {kind: pressure(host.tree, f"proc/pressure/{kind}") for kind in LIMITS}
        location = "/, the whole machine"
    pressures = {kind: value for kind, value in shares.items() if value is not None}
    if not pressures:
        return unknown(name, f"{folder}/cpu.pressure", effect)
    text = ", ".join(f"{TITLES[kind]} {percent(value.some[0])}" for kind, value in pressures.items())
    judgement = min(
        (by_limits(value.some[0], *LIMITS[kind]) for kind, value in pressures.items()),
        key=ORDER.index,
    )
    return HostFinding(name, f"some waited, in the last 10 s: {text} (group {location})", judgement, effect)


def throttle_counts(tree: Files, groups: ControlGroups) -> dict[str, int]:
    """Return the counts of `cpu.stat` of a control group and its ancestors, by folder and name."""
    return group_counts(tree, groups, "cpu", "cpu.stat")


def group_counts(tree: Files, groups: ControlGroups, controller: str, file: str) -> dict[str, int]:
    """Return the counts in a file of a control group and its ancestors, by folder and name."""
    return {
        f"{folder}/{key}": int(value)
        for folder in groups.folders(controller)
        for key, value in re.findall(r"^(\w+) (\d{1,19})$", tree.text(f"{folder}/{file}") or "", re.M)
    }


def stopped_s(grown: Counts, folder: str) -> float:
    """Return for how long the quota of a folder stopped threads, s; `grown` has the increases of `throttle_counts`."""
    return grown.get(f"{folder}/throttled_usec", 0) * 1e-6 + grown.get(f"{folder}/throttled_time", 0) * 1e-9


def increases(before: Counts, after: Counts) -> dict[str, int]:
    """Return the increase of each count that is both in `before` and in `after`."""
    return {key: max(0, after[key] - before[key]) for key in after if key in before}


def quota_throttling(host: CounterHost, grown: Counts | None, interval_s: float, process: str = "self") -> HostFinding:
    """Check whether threads of a control group stopped because its CPU quota was used up.

    Args:
        host: The host, or its recorded tree.
        grown: Increases of `throttle_counts` over the interval; None for a recorded tree.
        interval_s: Length of the interval in s.
        process: Number of a process in the control group, or `self`.
    """
    name, effect = "throttling by CPU quota", "when it is used up, all threads stop for the rest of the period"
    groups = control_groups(host.tree, process)
    quota = cpu_quota(host.tree, groups)
    if not groups.paths:
        return unknown(name, f"proc/{process}/cgroup", effect)
    if quota is None and not any(host.tree.names("sys/fs/cgroup")):
        return unknown(name, "sys/fs/cgroup", effect)
    if quota is None:
        return HostFinding(name, "no quota", "ok", effect)
    limit = f"{number(quota[0])} CPUs (/{quota[1]})"
    if grown is None:
        return HostFinding(name, f"{limit}; how often it stops threads {TWO_MOMENTS}", "unknown", effect)
    stops = {folder: stopped_s(grown, folder) for folder in groups.folders("cpu") if f"{folder}/nr_throttled" in grown}
    if not stops:
        return HostFinding(name, f"{limit}; cpu.stat does not report how often it stops threads", "unknown", effect)
    folder = max(stops, key=lambda one: (grown[f"{one}/nr_throttled"], stops[one]))
    periods, throttled_periods = grown.get(f"{folder}/nr_periods", 0), grown[f"{folder}/nr_throttled"]
    if not throttled_periods:
        return HostFinding(name, f"{limit}; not used up in {interval_s:.1f} s", "ok", effect)
    stop_text = f"{stops[folder]:.2f} s summed over CPUs"
    observation = (
        f"{limit}; used up in {throttled_periods} of {periods} periods in {interval_s:.1f} s: stopped for {stop_text}"
    )
    judgement = by_limits(throttled_periods / max(1, periods), *_THROTTLED)
    return HostFinding(
        name, observation, judgement, effect, raise_limit(host, "--cpu-quota -1", "cpu.max", "max", process)
    )
