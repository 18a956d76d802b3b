"""Frames: what a live machine, a recording and a simulated machine say of themselves, in one form.

A stream begins with a header that names components by class (cpu, memory, link, io, node …) and metrics over them; then
comes a frame a tick with one number a component. `None` is unknown, never zero. See docs/reference/frames.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from meshmark.errors import MeshmarkError

Values = dict[str, list[float | None]]
FORMAT: Final = 1
# The metric that colours a component of each class: a share of time or of capacity.
USE: Final = {"cpu": "cpu.busy", "memory": "memory.busy", "link": "link.busy", "io": "io.busy"}


class FrameError(MeshmarkError):
    """A stream that is none; the message says what was found."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number for each component of a class, at every tick."""

    name: str  # class.what
    unit: str
    what: str
    of: str = ""  # of a share: what 1 is
    estimated: bool = False  # inferred and not counted; NAME_low and NAME_high are its 95 % interval

    @property
    def component_class(self) -> str:
        return self.name.partition(".")[0]

    @property
    def is_share(self) -> bool:
        return self.unit == "1" and bool(self.of)


@dataclass(frozen=True, slots=True)
class Header:
    """Who speaks, of what, and what cannot be seen.

    Attributes:
        components: by class, what each is; a place in its list is its number in every frame.
        absent: `metric` (or class, or `metric:component`), `why`, and often a `hint` that would unlock it.
        more: whatever else the source said: kernel, tick, denominators, the map.
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
        """The metric that colours each class: `CLASS.busy`, or what the header's `use` names of that class instead."""
        said = self.more.get("use")
        pairs = said.items() if isinstance(said, dict) else ()
        return {**USE, **{k: str(v) for k, v in pairs if k in USE and str(v).startswith(f"{k}.")}}

    def count(self, component_class: str) -> int:
        return len(self.components.get(component_class, ()))

    def why_unknown(self, metric: str, component: int | None = None) -> str:
        """Why a metric (of a component) is not known; a general sentence where nobody said."""
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
    """Values of one tick.

    Attributes:
        t_s: when its window ended, s after the start.
        window_s: how long the window was; rates and shares are over it.
        at: the same by the clock on the wall, s since 1970; 0 where there is none (a model).
        cost_s: CPU time that the sampler itself took, s.
        processes: the busiest, as last seen: `pid`, `name`, `cpu` (share of one), `threads`, `rss` (B), `on` (CPU), and
            on machines of several nodes `nodes` (B on each).
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
    """The header that a line of JSON holds.

    Raises:
        FrameError: it is none, or one of a later format.
    """
    if line.get("type") != "header":
        raise FrameError(f"frames: found a {str(line.get('type', 'line without type'))[:40]}, a header is needed first")
    if line.get("format") != FORMAT:
        raise FrameError(f"frames: found format {str(line.get('format'))[:20]}, this version reads format {FORMAT}")
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
        raise FrameError(f"frames: the header lacks or spoils {why}") from why


def frame_of(line: Mapping[str, Any], header: Header) -> Frame:
    """The frame that a line of JSON holds; values of the wrong number become unknown.

    Raises:
        FrameError: it is no frame.
    """
    try:
        values: Values = {}
        for name, given in line["values"].items():
            wanted = header.count(name.partition(".")[0])
            mine = [None if v is None else float(v) for v in given]
            values[str(name)] = (mine + [None] * wanted)[:wanted] if len(mine) != wanted else mine
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
        raise FrameError(f"frames: a frame lacks or spoils {why}") from why


def parse_line(text: str) -> Mapping[str, Any]:
    """One line of a stream.

    Raises:
        FrameError: it is no JSON object.
    """
    try:
        line = json.loads(text)
    except ValueError as why:
        raise FrameError(f"frames: found '{text.strip()[:60]}', a line of JSON is needed") from why
    if not isinstance(line, dict):
        raise FrameError(f"frames: found '{text.strip()[:60]}', a JSON object is needed")
    return line
