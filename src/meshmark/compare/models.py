"""Simulates a model as a side: with the default options, and with the options of the sides it is compared with."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from meshmark.errors import AbsentError, UsageError
from meshmark.measure.repetitions import point_key
from meshmark.model.instruments import POINTS, measure, nodes_and_cpus
from meshmark.model.machine import MachineFile, MachineFileError
from meshmark.store.record import Record

# Conditions of the other sides with which a model is simulated, by instrument; sizes are matched by their role instead.
_CHOSEN: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("pattern", "processes"),
    "bandwidth": ("kernel", "store", "threads"),
    "loaded": ("mode", "threads"),
    "gups": ("threads",),
    "peak": ("threads",),
}


def simulated(machine: MachineFile, others: Sequence[Record] = (), instrument: str = "") -> list[Record]:
    """Return results of a model, one per point and metric.

    Args:
        machine: The model.
        others: Results of the sides that it is compared with; options that the model does not support are left out.
        instrument: Instrument to simulate; "": all instruments for which the machine file has the numbers.
    """
    record_by_point: dict[str, Record] = {}
    for name in POINTS if not instrument else {instrument} & POINTS.keys():
        for options in [{}, *_choices(name, others)]:
            words = [word for k, v in options.items() for word in (f"--{k}", v)]
            command = shlex.join([name, "--on", machine.name, *words])
            try:
                records = measure(name, machine, options, command=command)
            except (UsageError, AbsentError):
                continue
            record_by_point |= {point_key(r): r for r in records}
    return [*record_by_point.values()]


def _choices(name: str, others: Sequence[Record]) -> list[dict[str, str]]:
    """Return the options with which the other results of an instrument were measured, each combination once."""
    conditions = [r.conditions for r in others if r.instrument == name]
    combinations = {tuple((k, str(c[k])) for k in _CHOSEN.get(name, ()) if c.get(k) is not None) for c in conditions}
    return [dict(combination) for combination in sorted(combinations) if combination]


def memory_peak(machine: MachineFile) -> float | None:
    """Return the theoretical peak of all memory channels of a model in B/s; None if its file lacks a number."""
    try:
        nodes, controllers = nodes_and_cpus(machine)[0], machine.number("node.controllers")
    except MachineFileError:
        return None
    memory = machine.resolved()["memory"]
    if "channel_gb_per_s" not in memory:
        return None
    channels = memory.get("node_channels") or [memory.get("channels", 1)] * nodes
    return controllers * math.fsum(channels) * float(memory["channel_gb_per_s"]) * 1e9
