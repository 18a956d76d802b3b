"""The traffic that a recording states or a user names: what each node sends to each other one."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.store.files import read_text
from meshmark.values.numbers import decimal
from meshmark.watch.frames import Header

Floats = NDArray[np.float64]
WORKLOAD: Final = "workload"
_OPTION: Final = "--expected"
_EVEN: Final = 1e-3  # relative difference of volumes that count as equal


@dataclass(frozen=True, slots=True)
class NodeTraffic:
    """Volumes that the nodes send each other, in any unit.

    Attributes:
        name: Name of the pattern, of the workload or of the file.
        requests: `requests[a][b]` is sent from node a to node b on behalf of a, shape (nodes, nodes).
        answers: `answers[a][b]` is what node b sends to node a in return, shape (nodes, nodes).
    """

    name: str
    requests: Floats
    answers: Floats

    @property
    def volumes(self) -> Floats:
        """Return the total volume from each node (row) to each other one."""
        return self.requests + self.answers.T

    @property
    def is_even(self) -> bool:
        """Return whether every node sends every other node the same volume."""
        others = self.volumes[~np.eye(len(self.requests), dtype=bool)]
        return bool(others.size and others.min() > 0 and others.max() - others.min() <= _EVEN * others.max())


def _uniform(nodes: int) -> Floats:
    return np.ones((nodes, nodes))


def _hot_spot(nodes: int) -> Floats:
    volumes = np.zeros((nodes, nodes))
    volumes[:, 0] = 1.0
    return volumes


def _ring(nodes: int) -> Floats:
    volumes = np.zeros((nodes, nodes))
    for node in range(nodes):
        volumes[node, [(node - 1) % nodes, (node + 1) % nodes]] = 1.0
    return volumes


PATTERNS: Final[Mapping[str, Callable[[int], Floats]]] = {"uniform": _uniform, "hot_spot": _hot_spot, "ring": _ring}


def traffic_of(text: str, header: Header) -> NodeTraffic:
    """Return the traffic that `--expected` names: a pattern, a file, or the workload that the recording states.

    Raises:
        UsageError: The text names something else, or the file does not fit the machine.
        MeshmarkError: The recording does not state its traffic.
    """
    nodes = header.count("node")
    if text == WORKLOAD:
        return _stated(header, nodes)
    if text in PATTERNS:
        volumes = PATTERNS[text](nodes)
    elif text.endswith(".csv"):
        volumes = _read(Path(text), nodes)
    else:
        raise UsageError(f"{_OPTION}: found '{quoted(text)}'; allowed: {WORKLOAD}, {', '.join(PATTERNS)}, FILE.csv")
    np.fill_diagonal(volumes, 0.0)
    return NodeTraffic(Path(text).name, volumes, np.zeros((nodes, nodes)))


def _stated(header: Header, nodes: int) -> NodeTraffic:
    traffic: Any = header.more.get("volumes")
    remedy = f"name the traffic: {_OPTION} {', '.join(PATTERNS)} or a CSV file with a row per sending node"
    if not isinstance(traffic, dict):
        raise MeshmarkError(f"{_OPTION}: found {WORKLOAD}, but the recording does not state its traffic", remedy)
    if "why" in traffic:
        raise MeshmarkError(f"{_OPTION}: the traffic of this recording is unknown: {quoted(traffic['why'])}", remedy)
    try:
        parts = [np.array(traffic[key], dtype=np.float64) for key in ("requests", "answers")]
    except (LookupError, TypeError, ValueError) as error:
        raise MeshmarkError(f"{_OPTION}: the traffic in the header is damaged: {quoted(error)}", remedy) from error
    if any(p.shape != (nodes, nodes) or not np.all(np.isfinite(p)) or np.any(p < 0) for p in parts):
        raise MeshmarkError(f"{_OPTION}: the traffic in the header does not fit {nodes} nodes", remedy)
    return NodeTraffic(str(traffic.get(WORKLOAD, WORKLOAD)), *parts)


def _read(path: Path, nodes: int) -> Floats:
    """Return the volumes in a CSV file without a header: one row per sending node, one column per receiving node."""
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    if len(rows) != nodes or any(len(row) != nodes for row in rows):
        lengths = ", ".join(map(str, sorted({len(row) for row in rows})))
        size_text = f"{len(rows)} rows of {lengths} numbers"
        raise UsageError(
            f"{_OPTION}: {path.name}: found {size_text}; allowed: {nodes} rows of {nodes} numbers, a node each"
        )
    volumes = np.zeros((nodes, nodes))
    for i, row in enumerate(rows):
        for j, text in enumerate(row):
            value = decimal(text.strip())
            if value is None or not 0 <= value < np.inf:
                raise UsageError(f"{_OPTION}: {path.name}: row {i + 1}: found '{quoted(text)}'; allowed: 0 or more")
            volumes[i, j] = value
    return volumes
