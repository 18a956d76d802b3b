"""Fits a machine file to key numbers of a machine: the simulated instruments then give these numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from meshmark.model.engine import ask, median_of
from meshmark.model.instruments import POINTS, Point
from meshmark.model.key_numbers import (
    LINE_BYTES,
    MOST_ACCESS,
    QUANTITIES,
    USUAL_CHANNELS,
    KeyNumbers,
    conflicts,
)
from meshmark.model.machine import MachineFile, read_machine
from meshmark.model.machine_text import Parameters, machine_text

Progress = Callable[[int, int], None]
Request = tuple[str, Mapping[str, str], str]  # instrument, options and metric
FOOTPRINT: Final = "16GiB"  # far above every cache
NEAR: Final = 0.002  # relative error at which the fit ends
OFF: Final = {"loaded": 0.05}  # relative error from which a number is not met, if it is not 2 %
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class Outcome:
    """A number of the machine and of the model in SI units. `given`: None if nobody stated it.

    `how`: how the model comes to its value. `warning`: why it differs from the given number; "" if it does not.
    """

    name: str
    given: float | None
    model: float
    how: str
    warning: str = ""

    @property
    def unit(self) -> str:
        return QUANTITIES[self.name].unit

    @property
    def error(self) -> float | None:
        """The relative error of the model; None without a given number."""
        return None if self.given is None else self.model / self.given - 1


@dataclass(frozen=True, slots=True)
class Fitted:
    """A machine file that was fitted to key numbers.

    Attributes:
        text: The machine file.
        machine: The machine of this text.
        outcomes: What the model gives for each number.
    """

    text: str
    machine: MachineFile
    outcomes: tuple[Outcome, ...]


def requests(numbers: KeyNumbers, outstanding: int) -> dict[str, Request]:
    """Return the instrument, options and metric that measure each number on the model."""
    cores = int(numbers.need("cores"))
    bandwidth = {"kernel": "read", "footprint": FOOTPRINT}
    latency = {"footprint": FOOTPRINT, "memory_node": "0"}
    asked: dict[str, Request] = {
        "idle-local": ("latency", latency, "load_latency"),
        "read": ("bandwidth", {**bandwidth, "threads": str(cores)}, "bandwidth_net"),
        "triad": (
            "bandwidth",
            {"kernel": "triad", "store": numbers.store, "footprint": FOOTPRINT, "threads": str(cores)},
            "bandwidth_net",
        ),
        "core-read": ("bandwidth", {**bandwidth, "threads": "1"}, "bandwidth_net"),
    }
    loaded = {"threads": str(cores), "chains": str(outstanding)}
    asked["loaded"] = ("loaded", loaded, "load_latency")
    if cores > 1:
        asked["transfer"] = ("lines", {"cpus": f"0,{cores - 1}"}, "line_latency")
    if numbers.sockets > 1:
        asked["idle-remote"] = ("latency", {**latency, "memory_node": "1"}, "load_latency")
        asked["link"] = (
            "bandwidth",
            {**bandwidth, "threads": str(cores // 2), "memory_node": "1"},
            "bandwidth_net",
        )
    return {name: asked[name] for name in QUANTITIES if name in asked}


def measured(
    machine: MachineFile,
    asked: Mapping[str, Request],
    on_line: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, float]:
    """Simulate instruments on a machine and return the median of each request, by its name."""
    points: dict[str, Point] = {}
    for name, (instrument, options, _) in asked.items():
        make, defaults = POINTS[instrument]
        found = next(p for p in make(machine, {**defaults, **options}) if isinstance(p, Point))
        points[name] = found
    answers = iter(ask(machine, [p.run for p in points.values() if p.run is not None], on_line=on_line))
    values = {}
    for name, point in points.items():
        answer = next(answers) if point.run is not None else {}
        values[name] = median_of(point.read(answer)[asked[name][2]])
    return values


def fit_numbers(
    numbers: KeyNumbers, name: str, folder: Path, progress: Progress | None = None, prefix: str = "--"
) -> Fitted:
    """Fit a machine file to the numbers, which `key_numbers.check` found possible.

    Args:
        folder: Folder for the intermediate machine file.
        prefix: What precedes the name of a number in warnings.

    Raises:
        MeshmarkError: The simulation failed.
    """
    path, chosen, turns = folder / f"{name}.toml", _first(numbers), _Turnaround()
    for turn in range(_ROUNDS):
        if progress is not None:
            progress(turn, _ROUNDS)
        text = machine_text(numbers, chosen, name)
        path.write_text(text, encoding="utf-8")
        machine = read_machine(path)
        values = measured(machine, requests(numbers, chosen.outstanding))
        better = _better(numbers, chosen, values, turns)
        if better == chosen:
            break
        chosen = better
    if progress is not None:
        progress(_ROUNDS, _ROUNDS)
    return Fitted(text, machine, tuple(_outcomes(numbers, values, prefix)))


class _Turnaround:
    """Finds the turnaround of the memory at which the triad has its rate, which falls as the turnaround grows."""

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None  # turnaround in ns and time per byte

    def better(self, now_ns: float, rate: float, target: float) -> float:
        before, self.before = self.before, (now_ns, 1 / rate)
        if before is None or before[0] == now_ns or before[1] == 1 / rate:
            return now_ns + 4.0 if rate > target else now_ns
        slope = (1 / rate - before[1]) / (now_ns - before[0])
        return min(1e3, max(0.0, now_ns + (1 / target - 1 / rate) / slope)) if slope > 0 else now_ns


def _first(numbers: KeyNumbers) -> Parameters:
    """Return the parameters that would be right if nothing waited for anything."""
    cores, sockets = int(numbers.need("cores")), numbers.sockets
    local, read = numbers.need("idle-local"), numbers.need("read")
    one, loaded, remote = numbers.value("core-read"), numbers.value("loaded"), numbers.value("idle-remote")
    needed = read * local / LINE_BYTES / cores
    stream = math.ceil(1.1 * one * local / LINE_BYTES) if one is not None else max(24, math.ceil(1.5 * needed))
    lines = min(16, stream) if loaded is None else max(1, round(read * loaded / LINE_BYTES / cores))
    channels = numbers.channels or USUAL_CHANNELS
    # A modified line comes from a core instead of the memory, so a fast transfer leaves little time for the ways.
    access = 0.5 * local
    if (transfer := numbers.value("transfer")) is not None:
        access = min(MOST_ACCESS * local, max(access, (remote or local) - 0.95 * transfer))
    link = numbers.value("link") or read / sockets / 2
    return Parameters(
        access_ns=1e9 * access,
        link_ns=1e9 * ((remote or local) - local) / 2,
        link_gb=1e-9 * link * 9 / 8,  # a line of eight flits has one more, its header
        channels=channels,
        channel_gb=1e-9 * read / sockets / channels,
        stream=stream,
        outstanding=lines,
        line_work_ns=0.0 if one is None else 1e9 * LINE_BYTES / one,
        turnaround_ns=0.0,
        probe_ns=0.05 * 1e9 * local,
    )


def _better(numbers: KeyNumbers, now: Parameters, values: Mapping[str, float], turns: _Turnaround) -> Parameters:
    """Return parameters that bring the model's values nearer to the given numbers."""

    def target(name: str) -> float | None:
        """The given number if the model misses it."""
        wanted, value = numbers.value(name), values.get(name)
        return None if wanted is None or value is None or abs(value / wanted - 1) <= NEAR else wanted

    more: dict[str, Any] = {}
    first = _first(numbers)
    if (wanted := target("idle-remote")) is not None:
        more["link_ns"] = max(0.0, now.link_ns + 1e9 * (wanted - values["idle-remote"]) / 2)
    if (wanted := target("read")) is not None:
        more["channel_gb"] = min(now.channel_gb * wanted / values["read"], 4 * first.channel_gb)
    elif (wanted := target("triad")) is not None:
        more["turnaround_ns"] = turns.better(now.turnaround_ns, values["triad"], wanted)
    if (wanted := target("link")) is not None:
        more["link_gb"] = min(now.link_gb * wanted / values["link"], 4 * first.link_gb)
    if (wanted := target("transfer")) is not None:
        more["probe_ns"] = max(0.0, now.probe_ns + 1e9 * (wanted - values["transfer"]))
    if (wanted := target("loaded")) is not None and "channel_gb" not in more:
        more["outstanding"] = max(1, round(now.outstanding * wanted / values["loaded"]))
    if (wanted := target("core-read")) is not None:
        if values["core-read"] < wanted:
            more["stream"] = now.stream + 1
        else:
            more["line_work_ns"] = now.line_work_ns * values["core-read"] / wanted
    return replace(now, **more)


# How the model comes to the value of each number: the keys of the machine file that decide it.
_KEYS: Final = {
    "idle-local": "cpu.request_ns, memory.access_ns, cpu.fill_ns",
    "idle-remote": "links.socket.latency_ns",
    "read": "memory.channel_gb_per_s",
    "triad": "memory.turnaround_ns",
    "core-read": "cpu.stream_outstanding, cpu.line_work_ns",
    "link": "links.socket.bandwidth_gb_per_s",
    "transfer": "cpu.probe_ns",
    "loaded": "cpu.outstanding",
}


def _outcomes(numbers: KeyNumbers, values: Mapping[str, float], prefix: str) -> list[Outcome]:
    reasons = conflicts(numbers, prefix)
    outcomes = []
    for name in QUANTITIES:
        given = numbers.given.get(name)
        if name in values:
            how = ("assumed: " if given is None or given.assumed else "fitted: ") + _KEYS[name]
            outcome = Outcome(name, None if given is None else given.value, values[name], how)
            if outcome.error is not None and abs(outcome.error) > OFF.get(name, 0.02):
                reason = reasons.get(name) or _MISSED.get(name, "it contradicts the other numbers")
                outcome = replace(outcome, warning=reason, how=f"nearest: {_KEYS[name]}")
            outcomes.append(outcome)
        elif given is not None:
            outcomes.append(Outcome(name, given.value, given.value, "assumed" if given.assumed else "given"))
    return outcomes


_MISSED: Final = {
    "loaded": "the model's cores wait for a whole number of lines each",
}
