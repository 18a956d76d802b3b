"""Summarises the window of a command in a recording: mean and peak of the machine's metrics, programs, own cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.values.units import counted, duration, percent, plain
from meshmark.watch.frames import USE, Frame, FrameMetric, Header
from meshmark.watch.recorder.window import CommandWindow
from meshmark.watch.whole import whole_of

# Metrics that are summarised beside the use of each class, if the recording has them.
_AMOUNTS: Final = (
    "memory.read",
    "memory.write",
    "memory.moved",
    "link.out",
    "io.in",
    "io.out",
    "power.drawn",
    "node.used",
)
_MAX_PROGRAMS: Final = 5


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """Mean and peak of a metric of the whole machine over a window.

    Shares are means over the components of the class, amounts are sums. `peak_at_s` is the end of the frame with the
    peak, in s after the begin of the window.
    """

    metric: FrameMetric
    mean: float
    peak: float
    peak_at_s: float


@dataclass(frozen=True, slots=True)
class ProgramShare:
    """What the processes with one name used on average: CPUs, and the peak of their resident memory in B."""

    name: str
    cpus: float
    peak_bytes: float
    processes: int


@dataclass(frozen=True, slots=True)
class RecorderCost:
    """CPU time of the sampler and of the recorder, both in s."""

    sampler_s: float
    recorder_s: float
    elapsed_s: float
    cpus: int

    def __str__(self) -> str:
        if self.elapsed_s <= 0 or not self.cpus:
            return "the recorder's own CPU time is unknown: there is no frame"
        share = (self.sampler_s + self.recorder_s) / (self.elapsed_s * self.cpus)
        text = percent(share).replace("\u00a0", " ")
        return f"the recorder used {text} of {counted(self.cpus, 'CPU')}"


@dataclass(slots=True)
class _Sums:
    weighted: float = 0.0
    seconds: float = 0.0
    peak: tuple[bool, float, float] = (False, -math.inf, 0.0)  # whether it is of a whole frame, value, end in s

    def add(self, value: float, overlap_s: float, at_s: float, is_whole: bool) -> None:
        """Add a value. If there are whole frames, only they count for the peak, since short frames are inaccurate."""
        self.weighted += value * overlap_s
        self.seconds += overlap_s
        if (is_whole, value) > self.peak[:2]:
            self.peak = is_whole, value, at_s


@dataclass(slots=True)
class _ProgramSums:
    cpu_s: float = 0.0
    peak_bytes: float = 0.0
    pids: set[int] = field(default_factory=set)


@dataclass(slots=True)
class WindowSummary:
    """What the machine did in a window.

    Attributes:
        frames: Number of frames in the window.
        metrics: Metrics that are known.
        absent: Reasons by class of components whose use is unknown.
        programs: Programs with the largest use of CPUs, at most five.
        programs_absent: Why there are none; "" if there are.
    """

    frames: int
    metrics: list[MetricSummary]
    absent: dict[str, str]
    programs: list[ProgramShare]
    programs_absent: str


def summarise(header: Header, frames: Iterable[Frame], window: CommandWindow) -> WindowSummary:
    """Summarise the frames of a window.

    Args:
        header: Header of the recording.
        frames: Its frames.
        window: The window; frames that it covers partly count by their part.
    """
    names = {*header.use.values(), *_AMOUNTS}
    metrics = [m for m in header.metrics if m.name in names]
    sums = {m.name: _Sums() for m in metrics}
    programs: dict[str, _ProgramSums] = {}
    count, process_s = 0, 0.0
    for frame in frames:
        overlap_s = window.overlap_s(frame)
        if overlap_s <= 0:
            continue
        count += 1
        is_whole = frame.window_s >= header.period_s / 2
        for metric in metrics:
            known = [v for v in frame.values.get(metric.name, ()) if v is not None]
            if known:
                at_s = frame.at - window.begin
                sums[metric.name].add(whole_of(known, metric.unit), overlap_s, at_s, is_whole)
        if frame.processes:
            process_s += overlap_s
            _add_programs(programs, frame.processes, overlap_s)
    known_metrics = [m for m in metrics if sums[m.name].seconds > 0]
    summaries = [_summary(m, sums[m.name]) for m in sorted(known_metrics, key=lambda m: (_place(m), m.name))]
    absent = {
        kind: header.why_unknown(header.use[kind])
        for kind in USE
        if count and header.count(kind) and not any(m.name == header.use[kind] for m in known_metrics)
    }
    uses = [
        ProgramShare(name, s.cpu_s / process_s, s.peak_bytes, len(s.pids))
        for name, s in sorted(programs.items(), key=lambda item: -item[1].cpu_s)[:_MAX_PROGRAMS]
    ]
    why = "" if uses else "no process was read in this time; the sampler reads them every 2 s"
    return WindowSummary(count, summaries, absent, uses, why)


def _add_programs(programs: dict[str, _ProgramSums], processes: Sequence[dict[str, Any]], overlap_s: float) -> None:
    bytes_by_name: dict[str, float] = {}
    for entry in processes:
        name = str(entry.get("name", "?"))
        program = programs.setdefault(name, _ProgramSums())
        program.cpu_s += float(entry.get("cpu") or 0) * overlap_s
        program.pids.add(int(entry.get("pid") or 0))
        bytes_by_name[name] = bytes_by_name.get(name, 0.0) + float(entry.get("rss") or 0)
    for name, resident_bytes in bytes_by_name.items():
        programs[name].peak_bytes = max(programs[name].peak_bytes, resident_bytes)


def _summary(metric: FrameMetric, sums: _Sums) -> MetricSummary:
    _, peak, peak_at_s = sums.peak
    return MetricSummary(metric, sums.weighted / sums.seconds, peak, peak_at_s)


def _place(metric: FrameMetric) -> int:
    classes = [*USE, "node", "power"]
    return classes.index(metric.component_class) if metric.component_class in classes else len(classes)


def value_text(metric: FrameMetric, value: float) -> str:
    """Return a value with its unit: a share in per cent, other values with a prefix; `~` marks estimates."""
    text = percent(value).replace("\u00a0", " ") if metric.is_share else plain(value, metric.unit, 3)
    return f"~{text}" if metric.estimated else text


def command_text(window: CommandWindow) -> Iterator[str]:
    """Yield the lines that state how the command ended, and what it used."""
    end = window.end_mark
    if end is None:
        yield "the end of the command is not marked: the recorder was killed"
        return
    elapsed_s, user_s, system_s = (end.number(key) or 0.0 for key in ("elapsed_s", "user_s", "system_s"))
    peak, below = end.number("peak_bytes"), end.number("peak_below_bytes")
    memory = f", largest process {plain(peak, 'B', 3)}" if peak else f", no process above {plain(below or 0, 'B', 3)}"
    cpus = f" ({(user_s + system_s) / elapsed_s:.2f} CPUs on average)" if elapsed_s > 0 else ""
    yield f"the command took {duration(elapsed_s)}, status {end.number('status') or 0:.0f}"
    yield f"CPU time {duration(user_s)} user, {duration(system_s)} system{cpus}{memory}"
