"""Prints the verdict about a running program, and the table on which it rests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshmark.applications.effects.profile import Profile
from meshmark.doctor.strain import percent
from meshmark.explain.actions import command_of
from meshmark.explain.observation import ObservedProcess
from meshmark.explain.situation import Situation
from meshmark.explain.verdict import PlacementVerdict
from meshmark.machine.tree import format_list
from meshmark.values.units import counted, number, plain
from meshmark.views.content.functions import HotFunction, function_table
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console

_PIPE_COLUMNS: Final = 200  # width if standard output is not a terminal
_MEASURABLE: Final = {"remote-memory", "cpuset", "first-touch"}  # causes whose cost a survey measures
_FUNCTIONS: Final = 10
_ROWS: Final = 12  # processes that are shown: those that ran most


def print_verdict(situation: Situation, verdict: PlacementVerdict) -> None:
    """Print the sentence, the command, the expected gain, and a table of the processes."""
    console, observation = table_console(_PIPE_COLUMNS), situation.observation
    print(verdict.sentence[:1].upper() + verdict.sentence[1:])
    if verdict.action:
        print(f"to change that: {command_of(verdict.action, situation.target, situation.process)}")
        print(f"expected gain:  {_gain_text(verdict)}")
    for note in verdict.notes:
        print(f"note: {note}")
    if verdict.cause == "one-node":
        return
    _, traffic = situation.traffic()
    if traffic is not None:
        bounds = f"{100 * traffic.remote_low:.0f} to {100 * traffic.remote_high:.0f} %"
        print(f"remote accesses: {100 * traffic.remote:.0f} %, estimated from threads and pages; bounds: {bounds}")
    print()
    shown = sorted(observation.processes, key=lambda p: (-p.ran_s, -p.resident_bytes, p.process))[:_ROWS]
    print_table(console, _table(situation, shown))
    if len(observation.processes) > len(shown):
        rest = counted(len(observation.processes) - len(shown), "process", "processes")
        console.print(f"and {rest} that ran less", style="dim")
    console.print()
    print_table(console, _surroundings(situation))


def _surroundings(situation: Situation) -> TextTable:
    """Return what acts on the program, one row for each setting that is known."""
    around, seconds = situation.observation.surroundings, situation.observation.seconds
    rows: list[list[str]] = []
    classes = [
        f"{counted(n, 'thread')} {kind}" + (f", nice {nice}" if nice else "")
        for (kind, nice), n in sorted(around.scheduling.items())
    ]
    rows += [["scheduling", "; ".join(classes)]] if classes else []
    policies = sorted({policy for p in situation.judged if p.pages for policy in p.pages.policies})
    rows += [["memory policy", ", ".join(policies)]] if policies else []
    memory = sum(sum(p.own_pages.values()) for p in situation.judged)
    if memory and around.huge_pages:
        huge = sum(p.pages.huge_bytes for p in situation.judged if p.pages)
        rows.append(
            ["huge pages", f"{percent(huge / memory)} of its memory; the kernel's setting is {around.huge_pages}"]
        )
    if around.balancing is not None:
        moved = f", moved {around.balanced_pages} pages on this machine" if around.balanced_pages else ""
        rows.append(["NUMA balancing", ("on" if around.balancing else "off") + moved])
    if around.cpuset:
        limits = f"CPUs {format_list(around.cpuset.cpus)}, memory of nodes {format_list(around.cpuset.nodes)}"
        rows.append(["control group", f"{around.cpuset.path}: {limits}"])
    if around.cpu_quota is not None:
        stopped = f", stopped its threads for {around.throttled_s:.2f} s" if around.throttled_s else ", not used up"
        rows.append(["CPU quota", f"{number(around.cpu_quota)} CPUs{stopped}"])
    for name, limit in around.memory_limits.items():
        used = f", {plain(around.memory_used, 'B')} used" if around.memory_used is not None else ""
        rows.append([name, plain(limit, "B") + used])
    if around.tiers:
        rows.append(["memory tiers", ", then ".join(f"nodes {format_list(nodes)}" for nodes in around.tiers)])
    for device, by_node in sorted(around.interrupts.items()):
        rates = ", ".join(f"{number(n / seconds)} per second on node {node}" for node, n in sorted(by_node.items()))
        rows.append([f"interrupts of {device}", rates])
    return TextTable(["setting", "observed"], rows, [])


def print_profile(profile: Profile) -> None:
    """Print the hottest functions of a process, or why they are unknown."""
    print()
    if profile.reason:
        print(f"no profile of {profile.configuration}: {'; '.join(filter(None, (profile.reason, profile.enable)))}")
        return
    functions = [HotFunction(f.function, f.object, f.share, f.interval) for f in profile.functions]
    print_table(
        table_console(_PIPE_COLUMNS), function_table([(profile.configuration, functions)], _FUNCTIONS, "process")
    )
    lost = f", {profile.lost:,} more were lost" if profile.lost else ""
    print(f"{profile.samples:,} samples of {profile.event} by {profile.tool}{lost}")


def _gain_text(verdict: PlacementVerdict) -> str:
    gain = verdict.gain
    if gain is not None and gain.measured:
        interval = f"({number(gain.low)} to {number(gain.high)})"
        if gain.of == "bandwidth":
            return f"up to {number(gain.ratio)} times the memory bandwidth {interval}, as measured on this machine"
        latencies = "from the latencies that were measured on this machine"
        return f"up to {number(gain.ratio)} times faster memory access {interval}, {latencies}"
    return "not measured: run meshmark survey" if verdict.cause in _MEASURABLE else "not predicted"


def _table(situation: Situation, processes: list[ObservedProcess]) -> TextTable:
    seconds = situation.observation.seconds
    names = [
        "process",
        "command",
        "threads",
        "CPUs used",
        "waited",
        "may run on",
        "ran on node",
        "pages on node",
        "memory",
    ]
    rows = [
        [
            str(p.process),
            p.command,
            str(p.threads),
            f"{p.ran_s / seconds:.2f}",
            f"{p.waited_s / seconds:.2f}",
            "; ".join(format_list(m.cpus) for m in p.masks[:3]) + (" …" if len(p.masks) > 3 else ""),
            _shares(p.ran_by_node),
            _shares(p.pages.own) if p.pages else "–",
            plain(p.resident_bytes, "B"),
        ]
        for p in processes
    ]
    return TextTable(names, rows, [0, 2, 3, 4, 8])


def _shares(by_node: Mapping[int, float]) -> str:
    """Return the share of each node, such as `0: 91 %, 1: 9 %`."""
    whole = sum(by_node.values())
    if not whole:
        return "–"
    return ", ".join(f"{node}: {100 * value / whole:.0f} %" for node, value in sorted(by_node.items()))
