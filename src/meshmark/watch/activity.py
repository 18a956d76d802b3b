"""Observes what a machine does for a short time: runnable threads, use of CPUs and devices, the busiest programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from meshmark.errors import MeshmarkError
from meshmark.machine.activity import Activity, BusyProcess
from meshmark.watch.frames import Frame, Header
from meshmark.watch.live import LiveSampler

INTERVAL_S: Final = 2.0  # the sampler lists processes at most this often
_LONGEST_S: Final = 10.0  # the interval if listing processes takes so long that the sampler does it less often
_RATE_HZ: Final = 5.0
_IDLE: Final = 0.03  # CPUs in use; if fewer are in use, no program may be busy enough to be listed
_SOURCES: Final = ("cpu", "system", "processes", "io")


def observe() -> Activity:
    """Return what this machine does during the next two seconds, or longer if listing its processes takes long.

    Raises:
        MeshmarkError: The sampler failed.
    """
    with LiveSampler(_RATE_HZ, _LONGEST_S, sources=_SOURCES) as live:
        frames = _enough(live.frames())
        if not frames:
            raise MeshmarkError("the sampler ended before it wrote a frame")
        return activity_of(live.header, frames)


def _enough(frames: Iterable[Frame]) -> list[Frame]:
    """Return the frames of one interval: up to a frame that lists processes, or less if the machine is idle."""
    selected: list[Frame] = []
    for frame in frames:
        selected.append(frame)
        busy = sum(v for v in frame.values.get("cpu.busy", ()) if v is not None)
        if frame.t_s >= INTERVAL_S - 0.5 / _RATE_HZ and (frame.processes or busy < _IDLE):
            break
    return selected


def activity_of(header: Header, frames: Sequence[Frame]) -> Activity:
    """Return the means over consecutive frames, at least one, and the programs of the last frame."""

    def means(metric: str) -> list[float | None]:
        return [_mean(frames, metric, i) for i in range(header.count(metric.partition(".")[0]))]

    def by_cpu(metric: str) -> dict[int, float]:
        numbers = [int(c.get("number", i)) for i, c in enumerate(header.components.get("cpu", ()))]
        return {n: v for n, v in zip(numbers, means(metric), strict=True) if v is not None}

    names = [str(c.get("name", i)) for i, c in enumerate(header.components.get("io", ()))]
    running = _mean(frames, "host.running", 0)
    return Activity(
        interval_s=sum(f.window_s for f in frames),
        runnable=None if running is None else max(0.0, running - 1),
        busy=by_cpu("cpu.busy"),
        stolen=by_cpu("cpu.steal"),
        devices={n: v for n, v in zip(names, means("io.busy"), strict=True) if v is not None},
        programs=tuple(
            BusyProcess(str(p.get("name", "")), int(p["pid"]), float(p.get("cpu", 0))) for p in frames[-1].processes
        ),
    )


def _mean(frames: Iterable[Frame], metric: str, index: int) -> float | None:
    """Return the mean of a metric over the frames in which it is known, weighted by window; None if it is unknown."""
    samples = [(v, f.window_s) for f in frames if (v := f.value(metric, index)) is not None and f.window_s > 0]
    return sum(v * s for v, s in samples) / sum(s for _, s in samples) if samples else None
