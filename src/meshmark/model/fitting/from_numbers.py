"""Fits a machine file to key numbers of a machine, so that simulated instruments measure these numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from meshmark.model.engine import ask, median_of
from meshmark.model.fitting.key_numbers import (
    LINE_BYTES,
    MOST_ACCESS,
    QUANTITIES,
    USUAL_CHANNELS,
    KeyNumbers,
    conflicts,
)
from meshmark.model.fitting.machine_text import Parameters, machine_text
from meshmark.model.instruments import POINTS, ModelPoint
from meshmark.model.machine import MachineFile, read_machine

Progress = Callable[[int, int], None]
Request = tuple[str, Mapping[str, str], str]  # instrument, options and metric
FOOTPRINT: Final = "16GiB"  # far above every cache
NEAR: Final = 0.002  # relative error below which the fit ends
OFF: Final = {"loaded": 0.05}  # relative error above which the model misses a number, if it is not 2 %
_ROUNDS: Final = 12


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A number of the machine and of the model in SI units.

    Attributes:
        given: The stated number; None if it was not stated.
        how: How the value of the model is determined.
        warning: Why the value differs from the given number; "" if it does not differ.
    """

    name: str
    given: float | None
    model: float
    how: str
    warning: str = ""

    @property
    def unit(self) -> str:
        """Return the SI unit of its values."""
        return QUANTITIES[self.name].unit

    @property
    def error(self) -> float | None:
        """Return the relative error of the model; None if no number was given."""
        return None if self.given is None else self.model / self.given - 1


@dataclass(frozen=True, slots=True)
class KeyNumberFit:
    """A machine file that is fitted to key numbers.

    Attributes:
        text: The machine file.
        machine: The machine that `text` describes.
        outcomes: The given value and the value of the model for each number.
    """

    text: str
    machine: MachineFile
    outcomes: tuple[FittedNumber, ...]


def requests(numbers: KeyNumbers, outstanding: int) -> dict[str, Request]:
    """Return the instrument, options and metric that measure each number on the model."""
    cores = int(numbers.need("cores"))
    bandwidth = {"kernel": "read", "footprint": FOOTPRINT}
    latency = {"footprint": FOOTPRINT, "memory_node": "0"}
    requests: dict[str, Request] = {
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
    requests["loaded"] = ("loaded", loaded, "load_latency")
    if cores > 1:
        requests["transfer"] = ("lines", {"cpus": f"0,{cores - 1}"}, "line_latency")
    if numbers.sockets > 1:
        requests["idle-remote"] = ("latency", {**latency, "memory_node": "1"}, "load_latency")
        requests["link"] = (
            "bandwidth",
            {**bandwidth, "threads": str(cores // 2), "memory_node": "1"},
            "bandwidth_net",
        )
    return {name: requests[name] for name in QUANTITIES if name in requests}


def measured(
    machine: MachineFile,
    asked: Mapping[str, Request],
    on_line: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, float]:
    """Simulate instruments on a machine and return the median of each request by name."""
    points: dict[str, ModelPoint] = {}
    for name, (instrument, options, _) in asked.items():
        make, defaults = POINTS[instrument]
        requested_point = next(p for p in make(machine, {**defaults, **options}) if isinstance(p, ModelPoint))
        points[name] = requested_point
    answers = iter(ask(machine, [p.run for p in points.values() if p.run is not None], on_line=on_line))
    values = {}
    for name, point in points.items():
        answer = next(answers) if point.run is not None else {}
        values[name] = median_of(point.read(answer)[asked[name][2]])
    return values


def fit_numbers(
    numbers: KeyNumbers, name: str, folder: Path, progress: Progress | None = None, prefix: str = "--"
) -> KeyNumberFit:
    """Fit a machine file to numbers that passed `key_numbers.check`.

    Args:
        numbers: The key numbers.
        name: Name of the new machine.
        folder: Folder for the intermediate machine file.
        progress: Function that is called with the progress; None: none is reported.
        prefix: Text before the name of a number in warnings.

    Raises:
        MeshmarkError: The simulation failed.
    """
    path, parameters, turnaround = folder / f"{name}.toml", _first(numbers), _Turnaround()
    for round_number in range(_ROUNDS):
        if progress is not None:
            progress(round_number, _ROUNDS)
        text = machine_text(numbers, parameters, name)
        path.write_text(text, encoding="utf-8")
        machine = read_machine(path)
        values = measured(machine, requests(numbers, parameters.outstanding))
        improved = _better(numbers, parameters, values, turnaround)
        if improved == parameters:
            break
        parameters = improved
    if progress is not None:
        progress(_ROUNDS, _ROUNDS)
    return KeyNumberFit(text, machine, tuple(_outcomes(numbers, values, prefix)))


class _Turnaround:
    """Finds the memory turnaround at which the triad reaches its rate. A longer turnaround lowers the rate."""

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None  # previous turnaround in ns and time per byte

    def better(self, now_ns: float, rate: float, target: float) -> float:
        previous, self.before = self.before, (now_ns, 1 / rate)
        if previous is None or previous[0] == now_ns or previous[1] == 1 / rate:
            return now_ns + 4.0 if rate > target else now_ns
        slope = (1 / rate - previous[1]) / (now_ns - previous[0])
        return min(1e3, max(0.0, now_ns + (1 / target - 1 / rate) / slope)) if slope > 0 else now_ns


def _first(numbers: KeyNumbers) -> Parameters:
    """Return the parameters that would be exact on a machine without contention."""
    cores, sockets = int(numbers.need("cores")), numbers.sockets
    local, read = numbers.need("idle-local"), numbers.need("read")
    per_core, loaded, remote = numbers.value("core-read"), numbers.value("loaded"), numbers.value("idle-remote")
    busy_lines = read * local / LINE_BYTES / cores
    stream = (
        math.ceil(1.1 * per_core * local / LINE_BYTES) if per_core is not None else max(24, math.ceil(1.5 * busy_lines))
    )
    lines = min(16, stream) if loaded is None else max(1, round(read * loaded / LINE_BYTES / cores))
    channels = numbers.channels or USUAL_CHANNELS
    # A modified line comes from a core, not from the memory: a fast transfer leaves little time for the network.
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
        line_work_ns=0.0 if per_core is None else 1e9 * LINE_BYTES / per_core,
        turnaround_ns=0.0,
        probe_ns=0.05 * 1e9 * local,
    )


def _better(numbers: KeyNumbers, now: Parameters, values: Mapping[str, float], turns: _Turnaround) -> Parameters:
    """Return parameters that bring the values of the model closer to the given numbers."""

    def target(name: str) -> float | None:
        """Return the given number; None if it is not given or the model meets it."""
        number, value = numbers.value(name), values.get(name)
        return None if number is None or value is None or abs(value / number - 1) <= NEAR else number

    changes: dict[str, Any] = {}
    initial = _first(numbers)
    if (goal := target("idle-remote")) is not None:
        changes["link_ns"] = max(0.0, now.link_ns + 1e9 * (goal - values["idle-remote"]) / 2)
    if (goal := target("read")) is not None:
        changes["channel_gb"] = min(now.channel_gb * goal / values["read"], 4 * initial.channel_gb)
    elif (goal := target("triad")) is not None:
        changes["turnaround_ns"] = turns.better(now.turnaround_ns, values["triad"], goal)
    if (goal := target("link")) is not None:
        changes["link_gb"] = min(now.link_gb * goal / values["link"], 4 * initial.link_gb)
    if (goal := target("transfer")) is not None:
        changes["probe_ns"] = max(0.0, now.probe_ns + 1e9 * (goal - values["transfer"]))
    if (goal := target("loaded")) is not None and "channel_gb" not in changes:
        changes["outstanding"] = max(1, round(now.outstanding * goal / values["loaded"]))
    if (goal := target("core-read")) is not None:
        if values["core-read"] < goal:
            changes["stream"] = now.stream + 1
        else:
            changes["line_work_ns"] = now.line_work_ns * values["core-read"] / goal
    return replace(now, **changes)


# Keys of the machine file that determine the value of each number.
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


def _outcomes(numbers: KeyNumbers, values: Mapping[str, float], prefix: str) -> list[FittedNumber]:
    reasons = conflicts(numbers, prefix)
    outcomes = []
    for name in QUANTITIES:
        number = numbers.given.get(name)
        if name in values:
            how = ("assumed: " if number is None or number.assumed else "fitted: ") + _KEYS[name]
            outcome = FittedNumber(name, None if number is None else number.value, values[name], how)
            if outcome.error is not None and abs(outcome.error) > OFF.get(name, 0.02):
                reason = reasons.get(name) or _MISSED.get(name, "it contradicts the other numbers")
                outcome = replace(outcome, warning=reason, how=f"nearest: {_KEYS[name]}")
            outcomes.append(outcome)
        elif number is not None:
            outcomes.append(FittedNumber(name, number.value, number.value, "assumed" if number.assumed else "given"))
    return outcomes


_MISSED: Final = {
    "loaded": "the model's cores wait for a whole number of lines each",
}
