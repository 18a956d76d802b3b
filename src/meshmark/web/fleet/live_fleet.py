"""Holds what the nodes of a fleet report while they run: the newest values of each node, and a short history.

Memory is bounded by the number of nodes of the fleet and `MAX_UNKNOWN` others, by `MAX_METRICS` and by `KEPT`. Times
are the arrival times of values by the clock of this host, because clocks of nodes may be wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from meshmark.values.node_names import is_node_name

MAX_UNKNOWN: Final = 1000  # nodes that do not belong to the fleet
MAX_NODES: Final = 20_000  # nodes of a fleet that has no list of its nodes
MAX_METRICS: Final = 96
MAX_REFUSED: Final = 100  # names that are stored with the reason
KEPT: Final = 40  # values per node and metric
MISSED: Final = 3  # intervals without data after which a node is silent
CLOCK_S: Final = 5.0  # smallest difference of a clock that is reported
# The states of a node, in the order of the numbers in `LiveFleet.state`.
STATES: Final = {
    "never": "has not reported",
    "silent": "no longer reports",
    "live": "reports",
    "named": "reports; worse than its class",
    "wrong": "reports; computes wrongly",
}
_NEVER, _SILENT, _LIVE, _NAMED, _WRONG = range(5)
Cases = Mapping[str, tuple[bool, str]]  # by node: whether it computes wrongly, and what is wrong
_METRIC: Final = re.compile(r"[a-z0-9_]{1,40}\.[A-Za-z0-9_. ]{1,60}")
_MAX_VALUE: Final = 3e38  # limit of a 32-bit float
_HASH: Final = re.compile(r"-[0-9a-f]{8}")  # suffix of machine names


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One report of a node.

    Attributes:
        machine: Name of the machine, with or without the hash of its hardware.
        at: End of the interval by the node's clock, in s since 1970; 0: unknown.
        values: Values by metric.
        units: Units of all metrics that the node has.
    """

    machine: str
    at: float
    values: Mapping[str, float]
    units: Mapping[str, str]


class LiveFleet:
    """The current state of all nodes.

    Args:
        nodes: Names of the fleet's nodes; empty if it has no list, so that every node belongs to the fleet.
        interval_s: Expected time between two reports of a node.

    Attributes:
        names: Names of all nodes, those in the fleet first; the position is the node's number everywhere.
        metrics: Units by name, in the order of the columns of `values`.
        state: Number of each node's state, see `STATES`.
        values: Newest value of each node and metric; NaN: unknown.
        changed: Number of the last `tick` in which a node changed.
        refused: Reasons why data were not accepted, by name.
    """

    def __init__(self, nodes: Sequence[str], interval_s: float) -> None:
        self.names = list(dict.fromkeys(nodes))
        self.of_fleet = len(self.names)
        self.interval_s = interval_s
        capacity = len(self.names) + MAX_UNKNOWN if nodes else MAX_NODES
        self.metrics: dict[str, str] = {}
        self.state = np.zeros(capacity, np.int8)
        self.values = np.full((capacity, MAX_METRICS), np.nan, np.float32)
        self.changed = np.zeros(capacity, np.int64)
        self.refused: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.ticks = 0
        self.reports = 0
        self._cases: Cases = {}
        self._number = {name: i for i, name in enumerate(self.names)}
        self._seen = np.full(capacity, -np.inf)  # s, monotonic
        self._fresh: set[int] = set()  # changed since the last tick
        self._ahead = np.zeros(capacity, np.float32)  # s by which the node's clock is ahead
        self._source: dict[int, str] = {}
        # Pages of zeros take memory only once they are written.
        self._past = np.zeros((capacity, MAX_METRICS, KEPT), np.float32)
        self._past_at = np.zeros((capacity, KEPT))
        self._count = np.zeros(capacity, np.int64)

    # -------------------------------------------------------------- names

    def name_of(self, machine: str) -> str:
        """Return the name of the node with this machine: the name in the fleet if there is one, else the host name.

        Machines are named `HOST-HASH`; the host may include its domain.
        """
        host = _HASH.sub("", machine) if _HASH.fullmatch(machine[-9:]) else machine
        for name in (machine, host, host.partition(".")[0]):
            if name in self._number:
                return name
        return host

    def number(self, name: str) -> int | None:
        """Return the number of a node; None if the node has not reported."""
        return self._number.get(name)

    def source(self, name: str) -> str:
        """Return the address that a node reports from; "" if it has not reported."""
        return self._source.get(self._number.get(name, -1), "")

    # -------------------------------------------------------------- data

    def add(self, reading: NodeReport, source: str, now: float, wall: float, name: str = "") -> str:
        """Store what a node reported.

        Args:
            reading: The report.
            source: Address that the report came from. A name belongs to one address until the node is silent.
            now: Monotonic time in s.
            wall: Time since 1970 in s.
            name: Name of the node, if it is known; otherwise it is derived from the name of the machine.

        Returns:
            Why the data were not accepted; "" if they were accepted.
        """
        name = name or self.name_of(reading.machine)
        number = self._number.get(name)
        if number is None:
            if rejection := self._enter(name):
                return self.refuse(name, rejection)
            number = self._number[name]
        owner = self._source.get(number, source)
        if owner != source and now - self._seen[number] <= self.silent_s:
            return self.refuse(name, f"{source} reports as {name}, which is {owner}")
        self._source[number] = source
        self._seen[number], self._ahead[number] = now, reading.at - wall if reading.at else 0.0
        for metric in sorted(reading.units.keys() - self.metrics.keys()):
            if _METRIC.fullmatch(metric):
                self._column(metric, reading.units[metric][:20])
        count, slot = len(self.metrics), int(self._count[number]) % KEPT
        numbers = np.array([reading.values.get(metric, np.nan) for metric in self.metrics])
        row = np.where(np.abs(numbers) < _MAX_VALUE, numbers, np.nan).astype(np.float32)
        self.values[number, :count] = self._past[number, :count, slot] = row
        self._past_at[number, slot] = wall
        self._count[number] += 1
        self.reports += 1
        self._fresh.add(number)
        self.why.pop(name, None)
        return ""

    def _enter(self, name: str) -> str:
        if not is_node_name(name):
            return "not the name of a node"
        if len(self.names) == len(self.state):
            limit = f"{MAX_UNKNOWN} nodes that are not of the fleet" if self.of_fleet else f"{MAX_NODES} nodes"
            return f"more than {limit} report"
        self._number[name] = len(self.names)
        self.names.append(name)
        return ""

    def _column(self, metric: str, unit: str) -> None:
        if len(self.metrics) == MAX_METRICS:
            self.refuse(metric, f"more than {MAX_METRICS} metrics")
            return
        self._past[self._count > 0, len(self.metrics)] = np.nan
        self.metrics[metric] = unit

    def refuse(self, name: str, reason: str) -> str:
        """Store why data under a name were not accepted, and return the reason."""
        name = "".join(c if c.isprintable() else "?" for c in name[:100])
        if name in self.refused or len(self.refused) < MAX_REFUSED:
            self.refused[name] = reason
        return reason

    def failed(self, name: str, reason: str) -> None:
        """Store why a node could not be polled."""
        self.why[name] = reason
        number = self._number.get(name)
        if number is not None:
            self._fresh.add(number)

    # -------------------------------------------------------------- states

    @property
    def silent_s(self) -> float:
        """Return the time in s after which a node that does not report is silent."""
        return MISSED * self.interval_s

    def open_cases(self, cases: Cases) -> None:
        """Replace the open cases."""
        self._cases = dict(cases)

    def tick(self, now: float) -> None:
        """Update the states and `changed`."""
        self.ticks += 1
        count = len(self.names)
        age = now - self._seen[:count]
        state = np.where(np.isinf(age), _NEVER, np.where(age > self.silent_s, _SILENT, _LIVE)).astype(np.int8)
        for name, (computes_wrongly, _) in self._cases.items():
            number = self._number.get(name)
            if number is not None and state[number] == _LIVE:
                state[number] = _WRONG if computes_wrongly else _NAMED
        self.changed[:count][state != self.state[:count]] = self.ticks
        self.state[:count] = state
        if self._fresh:
            self.changed[list(self._fresh)] = self.ticks
            self._fresh.clear()

    def counts(self) -> dict[str, int]:
        """Return the numbers of nodes by state, at the last tick."""
        counts = np.bincount(self.state[: len(self.names)], minlength=len(STATES))
        return dict(zip(STATES, counts.tolist(), strict=True))

    def cases(self) -> dict[int, str]:
        """Return what is wrong with each node that has an open case, by number; includes nodes that do not report."""
        return {self._number[name]: problem for name, (_, problem) in self._cases.items() if name in self._number}

    def since(self, tick: int) -> NDArray[np.intp]:
        """Return the numbers of the nodes that changed after a tick."""
        return np.flatnonzero(self.changed[: len(self.names)] > tick)

    # -------------------------------------------------------------- for views

    def node(self, name: str, now: float) -> dict[str, object]:
        """Return everything about a node except its history.

        Raises:
            KeyError: There is no such node.
        """
        number = self._number[name]
        row = self.values[number, : len(self.metrics)].tolist()
        age = now - float(self._seen[number])
        ahead = float(self._ahead[number])
        return {
            "node": name,
            "state": tuple(STATES)[self.state[number]],
            "of_fleet": number < self.of_fleet or not self.of_fleet,
            "age_s": None if age == np.inf else round(age, 3),
            "source": self._source.get(number, ""),
            "clock_ahead_s": round(ahead, 3) if abs(ahead) > CLOCK_S + self.interval_s else 0.0,
            "case": self._cases.get(name, (False, ""))[1],
            "why": self.why.get(name, "") or self.refused.get(name, ""),
            "values": {m: _short(v) for m, v in zip(self.metrics, row, strict=True) if not math.isnan(v)},
        }

    def history(self, name: str) -> tuple[list[float], dict[str, list[float | None]]]:
        """Return the times at which a node reported, in s since 1970, and its values at these times by metric.

        Raises:
            KeyError: There is no such node.
        """
        number = self._number[name]
        count = int(self._count[number])
        order = np.arange(max(0, count - KEPT), count) % KEPT
        times, past = self._past_at[number, order], self._past[number, : len(self.metrics), order].T
        values_by_metric = {
            m: shortened(row) for m, row in zip(self.metrics, past, strict=True) if not np.isnan(row).all()
        }
        return [round(t, 3) for t in times.tolist()], values_by_metric


def shortened(values: NDArray[np.float32]) -> list[float | None]:
    """Return the values with four significant digits; None: unknown."""
    return [None if math.isnan(v) else _short(v) for v in values.tolist()]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Return racks by the names of nodes: the name up to the second-last number, such as `r12` for `r12n3`.

    If there is only one group, or fewer than two nodes per group on average, return a single rack with the name "".
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        match = re.fullmatch(r"(.*\d)[^0-9]+\d+", name)
        groups.setdefault(match[1] if match else "", []).append(name)
    total = sum(map(len, groups.values()))
    if len(groups) < 2 or total < 2 * len(groups):
        return {"": [name for group in groups.values() for name in group]} if groups else {}
    return groups
