"""Prints what a shared result contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from meshmark.store.record import Record
from meshmark.values.units import counted, percent, show, size
from meshmark.views.shared.check import SharedMachine
from meshmark.views.shared.texts import figure_interval, topology_text
from meshmark.views.tables import TextTable
from meshmark.views.terminal.screen import print_table, table_console


def print_shared(shared: SharedMachine, length: int, left_out: Mapping[str, int]) -> None:
    """Print the machine, the figures and the other content of a shared result.

    Args:
        shared: The result.
        length: Length of its file in bytes.
        left_out: Number of results of the run by the reason why they are not in the file.
    """
    result, host, console = shared.result, shared.result.host, table_console()
    console.print(f"{result.title}  ({size(length)}, form {result.shared})")
    console.print(f"{host.cpu.model} · {topology_text(host)}")
    settings = [
        f"Linux {host.kernel}" if host.kernel else "",
        size(host.memory_bytes) if host.memory_bytes else "",
        f"microcode {host.cpu.microcode}" if host.cpu.microcode else "",
        f"governor {host.governor}" if host.governor else "",
        f"transparent huge pages {host.thp}" if host.thp else "",
        "a guest of a hypervisor" if host.guest else "",
        f"measured {result.started} by Meshmark {result.version}",
    ]
    console.print(" · ".join(text for text in settings if text))
    console.print()
    rows: list[list[str]] = []
    for figure in result.figures.values():
        interval = figure_interval(figure) or "–"
        spread = "–" if figure.spread is None else percent(figure.spread)
        flags = ", ".join(figure.flags)
        rows.append([figure.title, show(figure.value, figure.unit), interval, spread, str(figure.samples), flags])
    print_table(console, TextTable(["figure", "median", "95 % interval", "spread", "samples", "flags"], rows))
    console.print()
    console.print(_content(shared.records))
    for left in result.left_out:
        console.print(
            f"Too large for a shared file: {counted(left.results, 'result')} of {left.instrument} {left.metric}"
        )
    for reason, count in left_out.items():
        console.print(f"Left out: {counted(count, 'result')}: {reason}")
    console.print("Not in it: names of hosts and users, serial numbers, addresses, paths, times of the day.")


def _content(records: Sequence[Record]) -> str:
    by_metric = Counter((r.instrument, r.metric) for r in records)
    names = [f"{metric.replace('_', ' ')} ({instrument}) {count}" for (instrument, metric), count in by_metric.items()]
    return f"{counted(len(records), 'result')}: {', '.join(names)}"
