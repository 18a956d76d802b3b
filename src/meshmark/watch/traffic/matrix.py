"""Defines the traffic between nodes as a matrix, with its source and its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError

Floats = NDArray[np.float64]

COUNTED: Final = "counted"
REBUILT: Final = "rebuilt"
ESTIMATED: Final = "estimated"
SOURCES: Final = (COUNTED, REBUILT, ESTIMATED)  # the most exact first


class TrafficAbsent(MeshmarkError):
    """The traffic between nodes cannot be told from this recording; the message says why."""


@dataclass(frozen=True, slots=True)
class RemoteShare:
    """Share of all traffic that goes to the memory of another node, with the lowest and the highest possible share."""

    value: float
    low: float
    high: float

    @property
    def local_to_remote(self) -> float:
        """Return the ratio of local to remote traffic; infinite if nothing is remote."""
        return (1 - self.value) / self.value if self.value > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class TrafficMatrix:
    """Traffic between nodes during a time.

    Attributes:
        source: `counted`, `rebuilt` or `estimated`.
        nodes: Names of the nodes.
        unit: `B`, or `1` if only shares of all traffic are known.
        seconds: Length of the time.
        value: Array of shape (nodes, nodes), row = node of the CPUs, column = memory node.
        low, high: Bounds of each value, likewise.
        remote: Share of the traffic that is remote.
        notes: On what the values rest, and what is not known; sentences.
    """

    source: str
    nodes: Sequence[str]
    unit: str
    seconds: float
    value: Floats
    low: Floats
    high: Floats
    remote: RemoteShare
    notes: Sequence[str] = ()

    @property
    def total(self) -> float:
        """Return the sum of all values."""
        return float(self.value.sum())

    def to_json(self) -> Mapping[str, Any]:
        """Return one JSON object of type `traffic`."""
        return {
            "type": "traffic",
            "format": 1,
            "source": self.source,
            "unit": self.unit,
            "seconds": self.seconds,
            "nodes": list(self.nodes),
            "value": _rows(self.value),
            "low": _rows(self.low),
            "high": _rows(self.high),
            "remote": {"value": self.remote.value, "low": self.remote.low, "high": self.remote.high},
            "notes": list(self.notes),
        }


def exact(
    source: str, nodes: Sequence[str], unit: str, seconds: float, value: Floats, notes: Sequence[str] = ()
) -> TrafficMatrix:
    """Return a matrix without uncertainty."""
    share = remote_share(value)
    return TrafficMatrix(source, nodes, unit, seconds, value, value, value, RemoteShare(share, share, share), notes)


def remote_share(value: Floats) -> float:
    """Return the share of a matrix that is not on its diagonal; 0 without traffic."""
    total = float(value.sum())
    return float(1 - np.trace(value) / total) if total > 0 else 0.0


def grouped(matrix: Floats, groups: Sequence[Sequence[int]]) -> Floats:
    """Return the sums of a matrix over groups of nodes, shape (groups, groups)."""
    member = np.zeros((len(groups), len(matrix)))
    for number, nodes in enumerate(groups):
        member[number, list(nodes)] = 1.0
    return np.asarray(member @ matrix @ member.T)


def _rows(values: Floats) -> list[list[float]]:
    return [[float(f"{v:.6g}") for v in row] for row in values]
