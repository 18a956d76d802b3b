"""Computes key figures of a modelled machine, in closed form if it is idle and by simulation under load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.model.engine import Answer, ask, median_of
from meshmark.model.instruments import fill_order, nodes_and_cpus
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import gups, random_reads, stream_actor, stream_trial

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class MachineFigure:
    """One figure of a machine in `unit` (SI). `how` is "closed form" or "simulated"."""

    name: str
    value: float
    unit: str
    how: str
    lower_is_better: bool = False

    def shown(self) -> str:
        """Return the value as text in the unit that people use for it, such as ns or GB/s."""
        factors: Final = {"s": (1e9, "ns"), "B/s": (1e-9, "GB/s"), "op/s": (1e-6, "M/s"), "1": (1, "")}
        factor, unit = factors.get(self.unit, (1, self.unit))
        return f"{self.value * factor:.4g} {unit}".strip()

    def to_json(self) -> dict[str, Any]:
        """Return the figure as JSON; the value is in `unit`, an SI unit."""
        return {"name": self.name, "value": self.value, "unit": self.unit, "how": self.how}


def matrix_figures(matrix: Sequence[Sequence[float]], what: str) -> list[MachineFigure]:
    """Return the local, mean remote and worst latency of a square matrix of latencies in seconds."""
    n = len(matrix)
    remote = [matrix[a][b] for a in range(n) for b in range(n) if a != b]
    figures = [MachineFigure(f"{what}, local", math.fsum(matrix[a][a] for a in range(n)) / n, "s", "closed form", True)]
    if remote:
        figures.append(MachineFigure(f"{what}, mean remote", math.fsum(remote) / len(remote), "s", "closed form", True))
        figures.append(MachineFigure(f"{what}, worst", max(remote), "s", "closed form", True))
    return figures


def figures(machine: MachineFile, simulate: bool = True, progress: Progress | None = None) -> list[MachineFigure]:
    """Return the figures of one machine; without the simulated ones if `simulate` is false."""
    answers = ask(
        machine,
        [
            {"kind": "matrix"},
            {"kind": "matrix", "state": "dirty"},
            {"kind": "hops"},
            {"kind": "loads"},
            {"kind": "describe"},
        ],
        threads=1,
    )
    clean, dirty, hops, loads, shape = answers
    results = matrix_figures(clean["latency_s"], "load latency")
    if len(dirty["latency_s"]) > 1:
        results += [
            f for f in matrix_figures(dirty["latency_s"], "latency, dirty in the home's cache") if "local" not in f.name
        ]
    remote_hops = [h for a, row in enumerate(hops["hops"]) for b, h in enumerate(row) if a != b]
    if remote_hops:
        results.append(
            MachineFigure("hops, mean remote", sum(remote_hops) / len(remote_hops), "1", "closed form", True)
        )
    peak = (
        sum(n["memories"] for n in shape["nodes"])
        * machine.number("memory.channels", 1)
        * machine.number("memory.channel_gb_per_s", math.nan)
        * 1e9
    )
    if not math.isnan(peak):
        results.append(MachineFigure("memory peak, all nodes", peak, "B/s", "closed form"))
    if loads["links"]:
        # Rate at which uniform reads between all nodes saturate the first link. Every read sends a request one way and
        # a line the other way. Over all pairs of nodes, each link carries the same share of requests and lines.
        flits = machine.number("packets.data_flits", 9) + machine.number("packets.request_flits", 1)
        packets = flits * machine.number("router.flit_bytes", 8)
        line = machine.number("memory.line_bytes", 64)
        rate = {k: v["bandwidth_gb_per_s"] * 1e9 for k, v in machine.data.get("links", {}).items()}
        bound = min(
            (rate[x["kind"]] / (x["share"] * packets) for x in loads["links"] if x["share"] > 0 and x["kind"] in rate),
            default=math.inf,
        )
        if math.isfinite(bound):
            results.append(MachineFigure("network bound, uniform reads", bound * line, "B/s", "closed form"))
    if not simulate:
        return results
    _, node_of = nodes_and_cpus(machine)
    order = fill_order(node_of, "cores")
    chains = int(machine.number("cpu.outstanding"))
    runs = [
        stream_trial([stream_actor(machine, order[:1], "triad", "ordinary", "local")]),
        stream_trial([stream_actor(machine, order, "triad", "ordinary", "local")]),
        random_reads(machine, 1),
        random_reads(machine, min(chains, 16)),
        random_reads(machine, chains, homes=[0]),
        gups("all", chains),
    ]
    done = 0

    def handle_line(line: Answer) -> None:
        nonlocal done
        done += line.get("type") == "answer"
        if progress is not None:
            progress(done, len(runs))

    one_cpu, all_cpus, idle, loaded, hot_spot, updates = ask(machine, runs, on_line=handle_line)

    def group(x: Answer, key: str) -> float:
        return median_of(x["groups"][0][key])

    results += [
        MachineFigure("triad, one CPU, net", group(one_cpu, "bytes_per_s") * 3 / 4, "B/s", "simulated"),
        MachineFigure("triad, all CPUs, net", group(all_cpus, "bytes_per_s") * 3 / 4, "B/s", "simulated"),
        MachineFigure("reads of random CPUs, 1 each: latency", group(idle, "latency_s"), "s", "simulated", True),
        MachineFigure(
            f"reads of random CPUs, {min(chains, 16)} each: latency",
            group(loaded, "latency_s"),
            "s",
            "simulated",
            True,
        ),
        MachineFigure(
            f"reads of random CPUs, {min(chains, 16)} each: bandwidth",
            group(loaded, "bytes_per_s"),
            "B/s",
            "simulated",
        ),
        MachineFigure("hot spot, all read node 0: bandwidth", group(hot_spot, "bytes_per_s"), "B/s", "simulated"),
        MachineFigure("random updates, all CPUs", group(updates, "reads_per_s"), "op/s", "simulated"),
    ]
    return results


@dataclass(frozen=True, slots=True)
class FigureComparison:
    """One figure of several machines, the first of which is the baseline; None for a machine that lacks the figure."""

    base: MachineFigure
    values: dict[str, MachineFigure | None]  # label of the machine → its figure

    def gain(self, label: str) -> float | None:
        """Return the gain (+) or loss (-) against the baseline as a share of 1; None if it is unknown."""
        figure = self.values[label]
        if figure is None or not self.base.value or not figure.value:
            return None
        better, worse = (self.base, figure) if self.base.lower_is_better else (figure, self.base)
        return better.value / worse.value - 1

    def to_json(self) -> dict[str, Any]:
        """Return values and gains by machine as JSON; values are in `unit`, an SI unit."""
        baseline, *other_labels = self.values
        return {
            "figure": self.base.name,
            "unit": self.base.unit,
            "better": "lower" if self.base.lower_is_better else "higher",
            "baseline": baseline,
            "values": {label: f.value if f else None for label, f in self.values.items()},
            "gains": {label: self.gain(label) for label in other_labels},
        }

    def row(self) -> dict[str, str]:
        """Return the row of a table: each value, followed by its gain."""
        baseline, *other_labels = self.values
        row = {"figure": self.base.name, baseline: self.base.shown()}
        for label in other_labels:
            figure, gain = self.values[label], self.gain(label)
            row[label] = figure.shown() if figure else "-"
            row[label] += "" if gain is None else f" ({100 * gain:+.1f} %)"
        return row


def comparison(machines: Sequence[MachineFile], progress: Progress | None = None) -> list[FigureComparison]:
    """Return each figure of the first machine beside the same figure of the other machines."""
    tables = [{f.name: f for f in figures(m, progress=progress)} for m in machines]
    labels: list[str] = []
    for m in machines:
        labels.append(m.label if m.label not in labels else f"{m.label} ({len(labels)})")
    return [
        FigureComparison(base, {label: table.get(name) for label, table in zip(labels, tables, strict=True)})
        for name, base in tables[0].items()
    ]
