"""Defines frames, the common format of live machines, recordings and simulated machines.

A stream begins with a header that lists components by class (cpu, memory, link, io, node …) and metrics. Each frame
then contains one number per metric and component; `None` is unknown, never zero. See docs/reference/frames.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from meshmark.errors import MeshmarkError

Values = dict[str, list[float | None]]
FORMAT: Final = 1
# The default metric that colours the components of each class: a share of time or capacity.
USE: Final = {"cpu": "cpu.busy", "memory": "memory.busy", "link": "link.busy", "io": "io.busy"}


class FrameError(MeshmarkError):
    """Invalid input; the message says what was found."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A quantity with one value per component of a class and tick."""

    name: str  # class.what
    unit: str
    what: str
    of: str = ""  # what a share of 1 means
    estimated: bool = False  # inferred, not counted; NAME_low and NAME_high are the 95 % interval

    @property
    def component_class(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_share(self) -> bool:
        return self.unit == "1" and bool(self.of)


@dataclass(frozen=True, slots=True)
class Header:
    """The source of a stream, its components and metrics, and what is absent.

    Attributes:
        components: descriptions by class; the position in a list is the component's index in every frame.
        absent: `metric` (or class, or `metric:component`), `why`, and optionally a `hint` how to enable it.
        more: further keys of the source: kernel, tick, full-scale values, the map.
    """

    source: str  # host, model, recording
    machine: str
    started: str
    period_s: float
    components: Mapping[str, tuple[Mapping[str, Any], ...]]
    metrics: tuple[Metric, ...]
    absent: tuple[Mapping[str, str], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def use(self) -> dict[str, str]:
        """The metric that colours each class: `CLASS.busy`, unless the header's `use` names another."""
        named = self.more.get("use")
        pairs = named.items() if isinstance(named, dict) else ()
        return {**USE, **{k: str(v) for k, v in pairs if k in USE and str(v).startswith(f"{k}.")}}

    def count(self, component_class: str) -> int:
        return len(self.components.get(component_class, ()))

    def why_unknown(self, metric: str, component: int | None = None) -> str:
        """Why a metric (of a component) is unknown; a general reason if the header has none."""
        names = [metric, metric.partition(".")[0]]
        if component is not None:
            about = self.components.get(names[1], ())
            if component < len(about):
                names.insert(0, f"{metric}:{about[component].get('name', '')}")
        for name in names:
            for one in self.absent:
                if one["metric"] == name:
                    return one["why"]
        return "no source says it" if not any(m.name == metric for m in self.metrics) else "not known at this tick"

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "header",
            "format": FORMAT,
            "source": self.source,
            "machine": self.machine,
            "started": self.started,
            "period_s": self.period_s,
            "components": {k: [dict(c) for c in v] for k, v in self.components.items()},
            "metrics": [
                {
                    "name": m.name,
                    "unit": m.unit,
                    "what": m.what,
                    **({"of": m.of} if m.of else {}),
                    **({"estimated": True} if m.estimated else {}),
                }
                for m in self.metrics
            ],
            "absent": [dict(a) for a in self.absent],
            **self.more,
        }


@dataclass(slots=True)
class Frame:
    """The values of one tick.

    Attributes:
        t_s: end of the window, in s after the start.
        window_s: length of the window; rates and shares refer to it.
        at: end of the window as wall-clock time, in s since 1970; 0 if there is none (a model).
        cost_s: CPU time of the sampler, in s.
        processes: the busiest processes: `pid`, `name`, `cpu` (share of one CPU), `threads`, `rss` (B), `on` (CPU) and,
            if there are several nodes, `nodes` (B on each).
    """

    seq: int
    t_s: float
    window_s: float
    values: Values
    at: float = 0.0
    late_s: float = 0.0
    cost_s: float = 0.0
    dropped: int = 0
    processes: list[dict[str, Any]] = field(default_factory=list)

    def value(self, metric: str, index: int) -> float | None:
        """A component's value of a metric; None if it is unknown."""
        values = self.values.get(metric, ())
        return values[index] if index < len(values) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "frame",
            "seq": self.seq,
            "t_s": self.t_s,
            "window_s": self.window_s,
            "at": self.at,
            "late_s": self.late_s,
            "cost_s": self.cost_s,
            "dropped": self.dropped,
            "values": self.values,
            **({"processes": self.processes} if self.processes else {}),
        }


class Stream(Protocol):
    """A source of frames."""

    @property
    def header(self) -> Header: ...

    def frames(self) -> Iterator[Frame]: ...


_HEADER_KEYS: Final = {"type", "format", "source", "machine", "started", "period_s", "components", "metrics", "absent"}


def header_of(line: Mapping[str, Any]) -> Header:
    """Reads a header from a parsed line.

    Raises:
        FrameError: the line is not a header, or has another format.
    """
    if line.get("type") != "header":
        raise FrameError(
            f"frames: found a {str(line.get('type', 'line without type'))[:40]}; the first line must be a header"
        )
    if line.get("format") != FORMAT:
        raise FrameError(f"frames: found format {str(line.get('format'))[:20]}; this version reads format {FORMAT}")
    try:
        return Header(
            source=str(line["source"]),
            machine=str(line["machine"]),
            started=str(line["started"]),
            period_s=float(line["period_s"]),
            components={str(k): tuple(dict(c) for c in v) for k, v in line["components"].items()},
            metrics=tuple(
                Metric(str(m["name"]), str(m["unit"]), str(m["what"]), str(m.get("of", "")), m.get("estimated") is True)
                for m in line["metrics"]
            ),
            absent=tuple({str(k): str(v) for k, v in a.items()} for a in line.get("absent", ()) if "why" in a),
            more={k: v for k, v in line.items() if k not in _HEADER_KEYS},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise FrameError(f"frames: the header has a missing or invalid value: {why}") from why


def frame_of(line: Mapping[str, Any], header: Header) -> Frame:
    """Reads a frame from a parsed line; lists of values with another length are truncated or padded with None.

    Raises:
        FrameError: the line is not a frame.
    """
    try:
        values: Values = {}
        for name, given in line["values"].items():
            count = header.count(name.partition(".")[0])
            read = [None if v is None else float(v) for v in given]
            values[str(name)] = (read + [None] * count)[:count] if len(read) != count else read
        return Frame(
            int(line["seq"]),
            float(line["t_s"]),
            float(line["window_s"]),
            values,
            float(line.get("at", 0)),
            float(line.get("late_s", 0)),
            float(line.get("cost_s", 0)),
            int(line.get("dropped", 0)),
            [dict(p) for p in line.get("processes", ())],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as why:
        raise FrameError(f"frames: a frame has a missing or invalid value: {why}") from why


def parse_line(text: str) -> Mapping[str, Any]:
    """Parses one line of a stream.

    Raises:
        FrameError: the line is not a JSON object.
    """
    try:
        line = json.loads(text)
    except ValueError as why:
        raise FrameError(f"frames: found '{text.strip()[:60]}'; each line must be JSON") from why
    if not isinstance(line, dict):
        raise FrameError(f"frames: found '{text.strip()[:60]}'; each line must be a JSON object")
    return line
