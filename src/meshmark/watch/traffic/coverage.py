"""States which components a recording used, and how near each came to its maximum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from meshmark.watch.frames import USE, Frame, Header

LIMIT: Final = 0.9  # share of its maximum from which a component is saturated
_QUIET: Final = 0.01  # use below which a component of a host is not used: a machine at rest is not quite idle


@dataclass(frozen=True, slots=True)
class ComponentUse:
    """Use of a component, as shares of its maximum.

    Attributes:
        at_limit: Share of the time in which it was used to at least `LIMIT`.
    """

    name: str
    mean: float
    peak: float
    at_limit: float


@dataclass(frozen=True, slots=True)
class ClassCoverage:
    """Use of the components of one class.

    Attributes:
        maximum: What the maximum is, as text.
        components: Those whose use is known, in the order of the header.
        unknown: Number of the others.
        why_unknown: Why they are not known; "" if all are.
        quiet: Use from which a component counts as used; 0: any use.
        is_estimated: Whether the use is inferred rather than counted.
    """

    component_class: str
    maximum: str
    components: Sequence[ComponentUse]
    unknown: int
    why_unknown: str
    quiet: float
    is_estimated: bool

    @property
    def used(self) -> int:
        """Return the number of components that were used."""
        return sum(c.peak > 0 and c.peak >= self.quiet for c in self.components)

    @property
    def saturated(self) -> int:
        """Return the number of components that reached `LIMIT`."""
        return sum(c.peak >= LIMIT for c in self.components)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The use of all classes of components in `seconds`, in `frames` frames."""

    seconds: float
    frames: int
    classes: Sequence[ClassCoverage]

    def to_json(self) -> Mapping[str, Any]:
        """Return one JSON object of type `coverage`; uses are shares of the maximum."""
        return {
            "type": "coverage",
            "format": 1,
            "seconds": self.seconds,
            "frames": self.frames,
            "limit": LIMIT,
            "classes": [
                {
                    "class": c.component_class,
                    "maximum": c.maximum,
                    "estimated": c.is_estimated,
                    "components": len(c.components) + c.unknown,
                    "used": c.used,
                    "saturated": c.saturated,
                    "unknown": c.unknown,
                    **({"why": c.why_unknown} if c.why_unknown else {}),
                    "use": [
                        {"name": u.name, "mean": u.mean, "peak": u.peak, "at_limit": u.at_limit} for u in c.components
                    ],
                }
                for c in self.classes
            ],
        }


def coverage(header: Header, frames: Iterable[Frame]) -> Coverage:
    """Return the use of every CPU, memory, link and I/O device of a machine."""
    metrics = {kind: header.use[kind] for kind in USE if header.count(kind)}
    seconds, count = 0.0, 0
    known = {k: np.zeros(header.count(k)) for k in metrics}
    amount, peak, limit = ({k: np.zeros(header.count(k)) for k in metrics} for _ in range(3))
    for frame in frames:
        seconds, count = seconds + frame.window_s, count + 1
        for kind, metric in metrics.items():
            row = frame.values.get(metric)
            if row is None:
                continue
            values = np.array(row, dtype=float)
            is_known = ~np.isnan(values)
            values = np.where(is_known, values, 0.0)
            known[kind] += frame.window_s * is_known
            amount[kind] += frame.window_s * values
            limit[kind] += frame.window_s * (values >= LIMIT)
            peak[kind] = np.maximum(peak[kind], values)
    classes = []
    for kind, metric in metrics.items():
        names = header.names(kind)
        is_seen = known[kind] > 0
        uses = [
            ComponentUse(
                names[i],
                float(amount[kind][i] / known[kind][i]),
                float(peak[kind][i]),
                float(limit[kind][i] / known[kind][i]),
            )
            for i in np.flatnonzero(is_seen)
        ]
        unknown = [int(i) for i in np.flatnonzero(~is_seen)]
        described = next((m for m in header.metrics if m.name == metric), None)
        classes.append(
            ClassCoverage(
                kind,
                _maximum(header, kind, described.of if described else ""),
                uses,
                len(unknown),
                header.why_unknown(metric, unknown[0]) if unknown else "",
                0.0 if header.source == "model" else _QUIET,
                described is not None and described.estimated,
            )
        )
    return Coverage(seconds, count, classes)


def _maximum(header: Header, kind: str, of: str) -> str:
    """Return what a use of 1 means: the sustained bandwidth of a survey, the theoretical peak, or a share of time."""
    denominators = header.more.get("denominators")
    denominator = denominators.get(kind) if isinstance(denominators, dict) else None
    if not isinstance(denominator, dict):
        return of or "not known"
    used = str(denominator.get("used"))
    origin = denominator.get("from")
    text = {"attained": "sustained bandwidth", "wire": "theoretical peak"}.get(used, used)
    return f"{text} ({origin[used]})" if isinstance(origin, dict) and used in origin else text
