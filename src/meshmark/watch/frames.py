"""Defines frames, the common format of live machines, recordings and simulated machines.

A stream begins with a header that lists components by class (cpu, memory, link, io, node …) and metrics. Each frame
then contains one number per metric and component; `None` is unknown, never zero. See docs/reference/frames.md.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from meshmark.errors import MeshmarkError, quoted
from meshmark.watch.marks import Mark, marks_of

Values = dict[str, list[float | None]]
FORMAT: Final = 1
MAX_COMPONENTS: Final = 100_000
MAX_METRICS: Final = 1000
MAX_TIME_S: Final = 1e11  # since 1970, in the year 5138
MAX_NUMBER: Final = 1e30  # in any unit; a larger number means that the data is damaged
_INVALID: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_VALUE_TYPES: Final = frozenset({int, float, type(None)})
# The default metric that colours the components of each class: a share of time or capacity.
USE: Final = {"cpu": "cpu.busy", "memory": "memory.busy", "link": "link.busy", "io": "io.busy"}


class FrameError(MeshmarkError):
    """Invalid input; the message says what was found."""


@dataclass(frozen=True, slots=True)
class FrameMetric:
    """A quantity with one value per component of a class and tick."""

    name: str  # class.what
    unit: str
    what: str
    of: str = ""  # what a share of 1 means
    estimated: bool = False  # inferred, not counted; NAME_low and NAME_high are the 95 % interval

    @property
    def component_class(self) -> str:
        """Return the class of the components that have the metric."""
        return self.name.partition(".")[0]

    @property
    def is_share(self) -> bool:
        """Return whether values are shares of a full scale."""
        return self.unit == "1" and bool(self.of)


@dataclass(frozen=True, slots=True)
class Header:
    """The source of a stream, its components and metrics, and what is absent.

    Attributes:
        components: descriptions by class; the position in a list is the component's index in every frame.
        absent: `metric` (or class, or `metric:component`), `why`, and optionally a `hint` how to enable it.
        more: further keys of the source: kernel, tick, full-scale values, the map.
        marks: events of a recording.
    """

    source: str  # host, model, recording
    machine: str
    started: str
    period_s: float
    components: Mapping[str, tuple[Mapping[str, Any], ...]]
    metrics: tuple[FrameMetric, ...]
    absent: tuple[Mapping[str, str], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()

    @property
    def use(self) -> dict[str, str]:
        """Return the metric that colours each class: `CLASS.busy`, unless the header's `use` names another."""
        named = self.more.get("use")
        pairs = named.items() if isinstance(named, dict) else ()
        return {**USE, **{k: str(v) for k, v in pairs if k in USE and str(v).startswith(f"{k}.")}}

    def count(self, component_class: str) -> int:
        """Return the number of components of a class."""
        return len(self.components.get(component_class, ()))

    def names(self, component_class: str) -> list[str]:
        """Return the names of the components of a class; equal names get a number."""
        names = [str(c.get("name", i)) for i, c in enumerate(self.components.get(component_class, ()))]
        count = Counter(names)
        return [name if count[name] == 1 else f"{name} ({i})" for i, name in enumerate(names)]

    def why_unknown(self, metric: str, component: int | None = None) -> str:
        """Return why a metric (of a component) is unknown; a general reason if the header states none."""
        names = [metric, metric.partition(".")[0]]
        if component is not None:
            components = self.components.get(names[1], ())
            if component < len(components):
                names.insert(0, f"{metric}:{components[component].get('name', '')}")
        for name in names:
            for absence in self.absent:
                if absence["metric"] == name:
                    return absence["why"]
        return "no source says it" if not any(m.name == metric for m in self.metrics) else "not known at this tick"

    def to_json(self) -> dict[str, Any]:
        """Return the header as JSON, of type `header`; `header_of` is the inverse."""
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
            **({"marks": [m.to_json() for m in self.marks]} if self.marks else {}),
            **self.more,
        }


@dataclass(slots=True)
class Frame:
    """The values of one tick.

    Attributes:
        t_s: end of the window, in s after the start.
        window_s: length of the window; rates and shares refer to it.
        at: end of the window as wall-clock time, in s since 1970; 0 if the frame has no wall-clock time (a model).
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
        """Return a component's value of a metric; None if it is unknown."""
        values = self.values.get(metric, ())
        return values[index] if index < len(values) else None

    def to_json(self) -> dict[str, Any]:
        """Return the frame as JSON, of type `frame`; times are in s."""
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
    def header(self) -> Header:
        """Return the header, which describes all frames."""
        ...

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in the order of time."""
        ...


_HEADER_KEYS: Final = frozenset(
    ("type", "format", "source", "machine", "started", "period_s", "components", "metrics", "absent", "marks")
)


def header_of(line: Mapping[str, Any]) -> Header:
    """Read a header from a parsed line.

    Raises:
        FrameError: the line is not a header, or has another format.
    """
    if line.get("type") != "header":
        kind = quoted(line.get("type", "line without type"), 40)
        raise FrameError(f"frames: found a {kind}; the first line must be a header")
    if line.get("format") != FORMAT:
        raise FrameError(f"frames: found format {quoted(line.get('format'), 20)}; this version reads format {FORMAT}")
    try:
        header = Header(
            source=str(line["source"]),
            machine=str(line["machine"]),
            started=str(line["started"]),
            period_s=_number(line, "period_s"),
            components={str(k): tuple(dict(c) for c in v) for k, v in line["components"].items()},
            metrics=tuple(
                FrameMetric(
                    str(m["name"]), str(m["unit"]), str(m["what"]), str(m.get("of", "")), m.get("estimated") is True
                )
                for m in line["metrics"]
            ),
            absent=tuple(
                {str(k): str(v) for k, v in a.items()} for a in line.get("absent", ()) if "why" in a and "metric" in a
            ),
            more={k: v for k, v in line.items() if k not in _HEADER_KEYS},
            marks=marks_of(line.get("marks", ())),
        )
    except _INVALID as error:
        raise FrameError(f"frames: the header has a missing or invalid value: {quoted(error)}") from error
    if sum(map(len, header.components.values())) > MAX_COMPONENTS or len(header.metrics) > MAX_METRICS:
        raise FrameError(
            f"frames: found more than {MAX_COMPONENTS} components or {MAX_METRICS} metrics, which is the limit"
        )
    for component_class, components in header.components.items():
        for number, component in enumerate(components):
            _check_types(component_class, number, component)
    return header


def _number(line: Mapping[str, Any], key: str, default: float | None = None, limit: float = MAX_NUMBER) -> float:
    """Return a number of a line, which is finite and below a limit.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: It is missing or another value.
    """
    value = line[key] if default is None else line.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key}: found {quoted(value, 40)}; allowed: a number")
    if not -limit < value < limit:
        raise ValueError(f"{key}: found {quoted(value, 40)}; allowed: a number below {limit:g}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MAX_NUMBER < value < MAX_NUMBER


def _is_index(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -1 <= value < MAX_COMPONENTS


# Keys of a component that the layout and the detector of hot spots read.
_TYPES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "name": (lambda v: isinstance(v, str) or _is_number(v), "a text"),
    "number": (lambda v: v is None or isinstance(v, str) or _is_number(v), "a number"),
    **dict.fromkeys(("node", "router", "from", "to", "from_router", "to_router"), (_is_index, "an index")),
    "place": (lambda v: isinstance(v, list | tuple) and len(v) > 1 and all(map(_is_number, v)), "two coordinates"),
    "level": (_is_index, "an index"),
    "cpus": (lambda v: isinstance(v, list | tuple) and all(map(_is_index, v)), "a list of indices"),
    "size_bytes": (lambda v: _is_number(v) and v >= 0, "a number"),
}


def _check_types(component_class: str, number: int, component: Mapping[str, Any]) -> None:
    for key, (is_valid, allowed) in _TYPES.items():
        if key in component and not is_valid(component[key]):
            component_text = f"{quoted(component_class, 40)} {number}: {key}"
            raise FrameError(f"frames: {component_text}: found {quoted(component[key], 40)}; allowed: {allowed}")


def check_places(header: Header) -> None:
    """Check that the components of a header refer to nodes, routers and caches that it has.

    Raises:
        FrameError: A component refers to something that the header does not have; the message names it.
    """
    nodes, routers = header.count("node"), header.count("router")
    required_keys = {
        "router": ("place",),
        "node": ("router",) if routers else (),
        "link": () if routers else ("from", "to"),
        "cache": ("level", "size_bytes"),
    }
    limits = {"router": routers or nodes, "from_router": routers or nodes, "to_router": routers or nodes}
    limits |= {"node": max(1, nodes), "from": max(1, nodes, routers), "to": max(1, nodes, routers)}
    for component_class, components in header.components.items():
        for number, component in enumerate(components):
            component_text = f"frames: {quoted(component_class, 40)} {number}"
            for key in required_keys.get(component_class, ()):
                if component.get(key) is None:
                    raise FrameError(f"{component_text}: {key}: found nothing")
            for key, limit in limits.items():
                least = -1 if key == "node" else 0
                if key in component and component[key] is not None and not least <= component[key] < limit:
                    raise FrameError(
                        f"{component_text}: {key}: found {component[key]}; allowed: {least} to {limit - 1}"
                    )


def frame_of(line: Mapping[str, Any], header: Header) -> Frame:
    """Read a frame from a parsed line; lists of values with another length are truncated or padded with None.

    Raises:
        FrameError: the line is not a frame.
    """
    try:
        values: Values = {}
        for name, row in line["values"].items():
            count = header.count(name.partition(".")[0])
            if not _VALUE_TYPES.issuperset(map(type, row)):
                raise TypeError(f"{name}: found other values than numbers")
            numbers = [None if v is None or v != v else float(v) for v in row]  # noqa: PLR0124 (NaN)
            if not all(v is None or -MAX_NUMBER < v < MAX_NUMBER for v in numbers):
                raise ValueError(f"{name}: found a number that is not finite")
            values[str(name)] = (numbers + [None] * count)[:count] if len(numbers) != count else numbers
        return Frame(
            int(_number(line, "seq")),
            _number(line, "t_s"),
            _number(line, "window_s"),
            values,
            _number(line, "at", 0, MAX_TIME_S),
            _number(line, "late_s", 0),
            _number(line, "cost_s", 0),
            int(_number(line, "dropped", 0)),
            [_process(p) for p in line.get("processes", ())],
        )
    except _INVALID as error:
        raise FrameError(f"frames: a frame has a missing or invalid value: {quoted(error)}") from error


def _process(line: Mapping[str, Any]) -> dict[str, Any]:
    process = dict(line)
    for key in ("pid", "cpu", "threads", "rss", "on"):
        if process.get(key) is not None:
            _number(process, key)
    if "nodes" in process and not (isinstance(process["nodes"], list) and all(map(_is_number, process["nodes"]))):
        raise TypeError("processes: nodes: found another value than a list of numbers")
    return process


def parse_line(text: str | bytes, constants: bool = True) -> Mapping[str, Any]:
    """Parse one line of a stream.

    Args:
        text: the line.
        constants: Whether NaN and infinity are allowed, which are not part of JSON.

    Raises:
        FrameError: the line is not a JSON object.
    """
    try:
        line = json.loads(text, parse_constant=None if constants else _refused)
    except (ValueError, TypeError, RecursionError) as error:
        reason = "it is too deeply nested" if isinstance(error, RecursionError) else "each line must be JSON"
        raise FrameError(f"frames: found '{_begin(text)}'; {reason}") from error
    if not isinstance(line, dict):
        raise FrameError(f"frames: found '{_begin(text)}'; each line must be a JSON object")
    return line


def _refused(constant: str) -> float:
    raise ValueError(f"found {constant}")


def _begin(text: object) -> str:
    return quoted(str(text.decode("utf-8", "replace") if isinstance(text, bytes) else text).strip(), 60)
