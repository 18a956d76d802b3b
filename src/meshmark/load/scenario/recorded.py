"""Read CPU utilisation and memory bandwidth during a run from a recording of the machine.

A recording (`meshmark record`) and a run both contain their start in wall-clock time, to a millisecond, which aligns
them. Quantities that a recording lacks (no counter, no calibrated canary) are absent with a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.scenario.result import LoadRun
from meshmark.watch.frames import Frame, Header
from meshmark.watch.recording import RecordingFile

RECORDING: Final = "machine.parquet"  # in a run's folder
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class ValueStep:
    """A value over a time span, in s after the start of the run's clock. `interval`: 95 % interval of an estimate."""

    from_s: float
    to_s: float
    value: float
    interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUse:
    """The use of the machine during a run. Times at which a value is unknown have no step."""

    name: str  # file name of the recording
    cpu: tuple[ValueStep, ...] = ()  # utilisation of the run's CPUs by any process, 0 to 1
    memory: tuple[ValueStep, ...] = ()  # B/s over all memory controllers
    estimated: bool = False  # memory bandwidth is estimated by the canary, not counted
    cpu_absent: str = ""  # why `cpu` is empty
    memory_absent: str = ""


def recording_in(folder: Path) -> Path | None:
    """Return the recording that `load run --watch` wrote into a run's folder, complete or partial."""
    complete = folder / RECORDING
    return next((p for p in (complete, complete.with_name(complete.name + ".part")) if p.is_file()), None)


def machine_use(run: LoadRun, path: Path) -> MachineUse:
    """Return the use of the machine during a run from a recording.

    Raises:
        UsageError: the recording is from another machine or another time.
        RecordingError: the file is not a recording.
    """
    recording = RecordingFile(path)
    header = recording.header
    machine = str(run.header.get("machine", ""))
    if header.source != "host" or header.machine != machine:
        recorded_machine = header.machine if header.source == "host" else f"a {header.source}, {header.machine}"
        raise UsageError(
            f"--recording: {path} is from {recorded_machine}; the run was on {machine or 'an unnamed machine'}"
        )
    start_s = _clock_start(run)
    frames: list[Frame] = []
    first_s = last_s = math.nan
    is_after = False
    for frame in recording.frames():
        first_s = frame.at - frame.window_s if math.isnan(first_s) else first_s
        last_s = frame.at
        is_after = frame.at - frame.window_s >= start_s + run.bench_s
        if is_after:
            break
        if frame.at > start_s:
            frames.append(frame)
    if not frames:
        coverage = "contains no frame"
        if math.isfinite(last_s):
            coverage = f"begins at {_utc(first_s)}" if is_after else f"covers {_utc(first_s)} to {_utc(last_s)}"
        raise UsageError(
            f"--recording: {path} {coverage}; the run lasted from {_utc(start_s)} to {_utc(start_s + run.bench_s)}"
        )
    cpu, cpu_absent = _cpu(header, frames, start_s, run)
    memory, is_estimated, memory_absent = _memory(header, frames, start_s, run)
    return MachineUse(
        name=path.name,
        cpu=cpu,
        memory=memory,
        estimated=is_estimated,
        cpu_absent=cpu_absent,
        memory_absent=memory_absent,
    )


def _clock_start(run: LoadRun) -> float:
    """Return the start of the run's clock, in s since 1970."""
    start = str(run.header.get("start", ""))
    try:
        return datetime.fromisoformat(start).timestamp() + run.begin_s
    except ValueError as error:
        raise UsageError(
            f"--recording: the run's start is '{start[:40]}', not a time; a recording cannot be aligned with it"
        ) from error


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _steps(
    frames: Iterable[tuple[Frame, float | None, Interval | None]], begin: float, bench_s: float
) -> tuple[ValueStep, ...]:
    steps = []
    for frame, value, interval in frames:
        low, high = max(0.0, frame.at - frame.window_s - begin), min(bench_s, frame.at - begin)
        if value is not None and high > low:
            steps.append(ValueStep(low, high, value, interval))
    return tuple(steps)


def _cpu(header: Header, frames: Sequence[Frame], begin: float, run: LoadRun) -> tuple[tuple[ValueStep, ...], str]:
    metric = header.use["cpu"]
    indices = [i for i, c in enumerate(header.components.get("cpu", ())) if c.get("number") in run.cpus]

    def busy(frame: Frame) -> float | None:
        values = frame.values.get(metric, [])
        known_values = [v for i in indices if i < len(values) and (v := values[i]) is not None]
        return sum(known_values) / len(known_values) if known_values else None

    steps = _steps(((f, busy(f), None) for f in frames), begin, run.bench_s)
    return steps, "" if steps else header.why_unknown(metric, indices[0] if indices else None)


def _memory(
    header: Header, frames: Sequence[Frame], begin: float, run: LoadRun
) -> tuple[tuple[ValueStep, ...], bool, str]:
    """Return the traffic in B/s over all memory controllers: from their counters, or estimated by the canary."""
    names = {m.name for m in header.metrics}
    is_counted = {"memory.read", "memory.write"} <= names

    def total(frame: Frame, *metrics: str) -> float | None:
        values = [v for m in metrics for v in frame.values.get(m, [])]
        known_values = [v for v in values if v is not None]
        return sum(known_values) if known_values and len(known_values) == len(values) else None

    def moved(frame: Frame) -> tuple[Frame, float | None, Interval | None]:
        if is_counted:
            return frame, total(frame, "memory.read", "memory.write"), None
        low, high = total(frame, "memory.moved_low"), total(frame, "memory.moved_high")
        return frame, total(frame, "memory.moved"), None if low is None or high is None else (low, high)

    steps = _steps(map(moved, frames), begin, run.bench_s)
    metric = "memory.read" if is_counted else "memory.moved" if "memory.moved" in names else header.use["memory"]
    return steps, bool(steps) and not is_counted, "" if steps else header.why_unknown(metric)


def traffic(run: LoadRun) -> tuple[ValueStep, ...]:
    """Return the memory bandwidth of synthetic programs in B/s, from their own counts; empty if none ran."""
    edges: list[tuple[float, float]] = []  # time, change of the rate
    for windows in run.windows.values():
        for w in windows:
            begin, end = float(w["from_s"]), float(w["to_s"])
            traffic_bytes = float(w.get("memory_read_bytes", 0.0)) + float(w.get("memory_write_bytes", 0.0))
            if end > begin and traffic_bytes > 0:
                edges += [(begin, traffic_bytes / (end - begin)), (end, -traffic_bytes / (end - begin))]
    steps, rate, since_s = [], 0.0, 0.0
    for time_s, change in sorted(edges):
        if time_s > since_s and rate > 1.0:
            steps.append(ValueStep(since_s, time_s, rate))
        since_s, rate = time_s, rate + change
    return tuple(steps)


def binned(steps: Sequence[ValueStep], end_s: float, bins: int) -> list[ValueStep | None]:
    """Return the means over bins of equal width from 0 to `end_s`; None if less than half of a bin is known."""
    width = end_s / bins
    sums = [[0.0, 0.0, 0.0, 0.0] for _ in range(bins)]  # s, value, low, high
    for s in steps:
        low, high = s.interval or (s.value, s.value)
        for i in range(max(0, int(s.from_s / width)), bins):
            part = min(s.to_s, (i + 1) * width) - max(s.from_s, i * width)
            if part <= 0:
                if s.to_s <= i * width:
                    break
                continue
            for k, v in enumerate((1.0, s.value, low, high)):
                sums[i][k] += v * part
    has_interval = any(s.interval for s in steps)
    return [
        None
        if t < 0.5 * width
        else ValueStep(i * width, (i + 1) * width, v / t, (a / t, b / t) if has_interval else None)
        for i, (t, v, a, b) in enumerate(sums)
    ]


def recorded_use(run: LoadRun, path: Path | None) -> tuple[MachineUse | None, str]:
    """Return the use from the recording of a run, or why it cannot be drawn; the run is shown in both cases."""
    if path is None:
        return None, ""
    try:
        return machine_use(run, path), ""
    except MeshmarkError as error:
        return None, f"{path.name}: not drawn: {error}"
