"""Summarises the components of a machine: one value per metric for all components, and the value of the busiest one.

Shares, latencies and clock rates are averaged; amounts, traffic and events are added up. A fleet needs no more than
this from each node, and a node with 256 CPUs then sends a hundredth of the data.
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
    """The values of components by metric, in any order."""

    def __init__(self) -> None:
        self._units: dict[str, str] = {}
        self._values: dict[str, list[float]] = {}
        self._whole: dict[str, float] = {}

    def add(self, metric: str, unit: str, component: str, value: float) -> None:
        """Add the value of a component; `ALL` is the whole machine, `HIGHEST` the busiest component."""
        self._units[metric] = unit
        if component == ALL:
            self._whole[metric] = value
        elif component == HIGHEST:
            self._whole[f"{metric} {HIGHEST}"] = value
            self._units[f"{metric} {HIGHEST}"] = unit
        else:
            self._values.setdefault(metric, []).append(value)

    def whole(self) -> tuple[dict[str, float], dict[str, str]]:
        """Return values and units of the machine by metric; the highest component has ` highest` behind its metric."""
        for metric, values in self._values.items():
            unit = self._units[metric]
            self._whole.setdefault(metric, whole_of(values, unit))
            if unit == "1" and len(values) > 1:
                self._whole.setdefault(f"{metric} {HIGHEST}", max(values))
                self._units[f"{metric} {HIGHEST}"] = unit
        return self._whole, self._units


def whole_of(values: list[float], unit: str) -> float:
    """Return the value of a machine from the values of its components, at least one."""
    total = sum(values)
    return total if unit in _ADDED else total / len(values)


def whole_header(header: Header) -> Header:
    """Return the header of the whole machine: each class has the component `ALL` and, if it has several, `HIGHEST`."""
    names = {
        kind: (ALL, HIGHEST) if len(members) > 1 else (ALL,) for kind, members in header.components.items() if members
    }
    components = {kind: tuple({"name": name} for name in members) for kind, members in names.items()}
    return dataclasses.replace(header, components=components)


def whole_frame(header: Header, frame: Frame) -> Frame:
    """Return a frame of the whole machine; `header` describes `frame`."""
    values: dict[str, list[float | None]] = {}
    for metric in header.metrics:
        known_values = [v for v in frame.values.get(metric.name, ()) if v is not None]
        if not known_values:
            continue
        row: list[float | None] = [whole_of(known_values, metric.unit)]
        if header.count(metric.component_class) > 1:
            row.append(max(known_values) if metric.unit == "1" else None)
        values[metric.name] = row
    return dataclasses.replace(frame, values=values, processes=[])


def whole_frames(header: Header, frames: Iterator[Frame]) -> Iterator[Frame]:
    """Return the frames of the whole machine."""
    return (whole_frame(header, frame) for frame in frames)
