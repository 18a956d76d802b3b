"""Prints the verdict about a running program, and the table on which it rests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshmark.explain.actions import command_of
from meshmark.explain.observation import ObservedProcess
from meshmark.explain.situation import Situation
from meshmark.explain.verdict import PlacementVerdict
from meshmark.machine.tree import format_list
from meshmark.values.units import counted, number, plain
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console

_PIPE_COLUMNS: Final = 200  # width if standard output is not a terminal
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


def _gain_text(verdict: PlacementVerdict) -> str:
    gain = verdict.gain
    if gain is not None and gain.measured:
        return (
            f"up to {number(gain.ratio)} times faster memory access ({number(gain.low)} to {number(gain.high)}), "
            "from the latencies that were measured on this machine"
        )
    return "not measured: run meshmark survey" if verdict.cause == "remote-memory" else "not predicted"


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
