"""Summarises the components of a machine: one value per metric for all of them, and that of the one in use most.

Shares, latencies and rates of clocks are averaged; amounts, traffic and events are added up. A fleet needs no more of
each node, and a node of 256 CPUs sends a hundredth of the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from meshmark.watch.frames import Frame, Header

ALL: Final = "all"
HIGHEST: Final = "highest"
_ADDED: Final = frozenset({"B", "B/s", "1/s", "W"})


class Components:
    """The values of components by metric, given in any order."""

    def __init__(self) -> None:
        self._units: dict[str, str] = {}
        self._values: dict[str, list[float]] = {}
        self._whole: dict[str, float] = {}

    def add(self, metric: str, unit: str, component: str, value: float) -> None:
        """Add a value of a component, or of all if it is called `ALL`, or of the highest, `HIGHEST`."""
        self._units[metric] = unit
        if component == ALL:
            self._whole[metric] = value
        elif component == HIGHEST:
            self._whole[f"{metric} {HIGHEST}"] = value
            self._units[f"{metric} {HIGHEST}"] = unit
        else:
            self._values.setdefault(metric, []).append(value)

    def whole(self) -> tuple[dict[str, float], dict[str, str]]:
        """Values of the machine, and units, by metric; the highest component has ` highest` behind its metric."""
        for metric, values in self._values.items():
            unit = self._units[metric]
            self._whole.setdefault(metric, whole_of(values, unit))
            if unit == "1" and len(values) > 1:
                self._whole.setdefault(f"{metric} {HIGHEST}", max(values))
                self._units[f"{metric} {HIGHEST}"] = unit
        return self._whole, self._units


def whole_of(values: list[float], unit: str) -> float:
    """The value of a machine by those of its components, at least one."""
    total = sum(values)
    return total if unit in _ADDED else total / len(values)


def whole_header(header: Header) -> Header:
    """The header of the machine as a whole: each class has the components `ALL` and, if it has several, `HIGHEST`."""
    names = {kind: (ALL, HIGHEST) if len(of) > 1 else (ALL,) for kind, of in header.components.items() if of}
    components = {kind: tuple({"name": name} for name in of) for kind, of in names.items()}
    return dataclasses.replace(header, components=components)


def whole_frame(header: Header, frame: Frame) -> Frame:
    """A frame of the machine as a whole; `header` is that of the frame."""
    values: dict[str, list[float | None]] = {}
    for metric in header.metrics:
        known = [v for v in frame.values.get(metric.name, ()) if v is not None]
        if not known:
            continue
        row: list[float | None] = [whole_of(known, metric.unit)]
        if header.count(metric.component_class) > 1:
            row.append(max(known) if metric.unit == "1" else None)
        values[metric.name] = row
    return dataclasses.replace(frame, values=values, processes=[])


def whole_frames(header: Header, frames: Iterator[Frame]) -> Iterator[Frame]:
    """Frames of the machine as a whole."""
    return (whole_frame(header, frame) for frame in frames)
