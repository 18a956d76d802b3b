"""Judges counters by loads of prescribed rates: by which factor counted bytes differ from moved bytes.

The sampler runs each load at several rates in several rounds (`native/watch/traffic/audit.hpp`). In each round, the
slope of the counted over the moved bytes is the median of the slopes of all pairs of rates (Theil and Sen), so that the
background, which other programs cause, cancels. The rounds are independent repetitions: the factor is the
Hodges-Lehmann estimate of their slopes, with its exact 95 % interval.

Source: Sen, J. Amer. Statist. Assoc. 63 (1968), 1379-1389.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from typing import Any, Final, Literal

from meshmark.statistics.shift import shift
from meshmark.statistics.verdicts import Interval, alike
from meshmark.watch.frames import Header, Values

Kind = Literal["right", "wrong", "counts nothing", "could not tell"]

# Page walks, prefetches beyond the end of a block and the code of the loads themselves move bytes, too.
MARGIN: Final = 0.05
_CURVED: Final = 0.1  # change of the factor from the lowest to the highest rate, as a share of the factor
_SILENT: Final = 0.01  # share of the mean of its group below which a counter is silent
_LOADS: Final[Mapping[str, str]] = {
    "memory.read": "read",
    "memory.traffic": "read",
    "memory.write": "write",
    "link.out": "read",
    "link.in": "read",
    "l3.total": "read",
    "l3.local": "read",
}


@dataclass(frozen=True, slots=True)
class AuditSample:
    """Bytes that a load moved, and values of the counters meanwhile.

    Attributes:
        load: `read` or `write`.
        cpu_node: Component of the node whose CPUs ran the load.
        memory_node: Component of the node whose memory they accessed.
        round: Number of the repetition.
        rate: Number of the rate in ascending order; 0: the load moved nothing.
        moved: B/s.
        values: By metric, one value per component, in B/s.
    """

    load: str
    cpu_node: int
    memory_node: int
    round: int
    rate: int
    moved: float
    values: Values


@dataclass(frozen=True, slots=True)
class CounterAudit:
    """The judgement of the counters of one metric by one load.

    Attributes:
        counters: Names of the components whose counters were added.
        load: `read` or `write`.
        cpu_node: Name of the node whose CPUs ran the load.
        memory_node: Name of the node whose memory they accessed.
        factor: Counted divided by moved bytes; None if it is unknown.
        interval: 95 % interval of the factor; None if there are too few repetitions.
        background: Counted without the load, in B/s; None if it is unknown.
        points: Medians of moved and counted bytes at each rate, in B/s.
        reason: Why the verdict is `could not tell`.
        silent: Names of the counters that counted nothing while others did.
    """

    metric: str
    counters: tuple[str, ...]
    load: str
    cpu_node: str
    memory_node: str
    factor: float | None
    interval: Interval | None
    background: float | None
    points: tuple[tuple[float, float], ...]
    verdict: Kind
    reason: str = ""
    silent: tuple[str, ...] = ()

    @property
    def route(self) -> str:
        """Return where the traffic went: the node, or from the memory of one node to another."""
        same = self.cpu_node == self.memory_node
        return self.memory_node if same else f"{self.memory_node} to {self.cpu_node}"

    def to_json(self) -> dict[str, Any]:
        """Return the judgement as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the verdict as a phrase."""
        if self.verdict == "wrong" and self.factor is not None and self.interval is not None:
            low, high = self.interval
            return f"wrong by the factor {self.factor:.2f} [{low:.2f}, {high:.2f}]"
        return f"could not tell: {self.reason}" if self.verdict == "could not tell" else self.verdict


def judge_counters(header: Header, samples: Iterable[AuditSample]) -> list[CounterAudit]:
    """Judge every metric of memory and links by every load that determines its value.

    Args:
        header: Header of the sampler, which names the components.
        samples: All samples of an audit.
    """
    by_load: dict[tuple[str, int, int], list[AuditSample]] = defaultdict(list)
    for sample in samples:
        by_load[sample.load, sample.cpu_node, sample.memory_node].append(sample)
    metrics = [m.name for m in header.metrics if m.name in _LOADS]
    return [
        _judged(header, metric, components, group)
        for metric in metrics
        for (load, cpu_node, memory_node), group in by_load.items()
        if load == _LOADS[metric] and (components := _components(header, metric, cpu_node, memory_node))
    ]


def _components(header: Header, metric: str, cpu_node: int, memory_node: int) -> list[int]:
    """Return the components that together count a load; empty if the load does not determine the metric."""
    kind = metric.partition(".")[0]
    components = header.components.get(kind, ())
    if (kind == "link") != (cpu_node != memory_node):
        return []
    if kind == "memory":
        # Channels belong to a package, whose memory may be divided into several nodes.
        packages = {c.get("package") for c in header.components.get("cpu", ()) if c.get("node") == memory_node} - {None}
        return [i for i, c in enumerate(components) if c.get("package") in packages]
    if kind == "link":
        # Data travels from the memory to the CPUs.
        ends = (memory_node, cpu_node) if metric == "link.out" else (cpu_node, memory_node)
        return [i for i, c in enumerate(components) if (c.get("from"), c.get("to")) == ends]
    return list(range(len(components)))


def _judged(header: Header, metric: str, components: list[int], samples: Sequence[AuditSample]) -> CounterAudit:
    known = [i for i in components if any(_value(s, metric, i) is not None for s in samples)]
    rounds: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    for sample in samples:
        counts = [_value(sample, metric, i) for i in known]
        if known and None not in counts:
            rounds[sample.round][sample.rate] = sample.moved, sum(c for c in counts if c is not None)
    factors = [factor for points in rounds.values() if (factor := _slope(list(points.values()))) is not None]
    estimate, interval = shift(factors) if factors else (None, None)
    by_rate = {rate: [p[rate] for p in rounds.values() if rate in p] for rate in sorted({s.rate for s in samples})}
    points = tuple((median(m for m, _ in row), median(c for _, c in row)) for row in by_rate.values() if row)
    names = header.names(metric.partition(".")[0])
    nodes = header.names("node")
    first = samples[0]
    verdict: Kind
    if interval is None:
        moves = max((s.moved for s in samples), default=0.0) > 0
        missing = f"its value is known in {len(factors)} rounds, at least 6 are required"
        verdict, reason = "could not tell", missing if moves else "the load moved nothing"
    else:
        verdict, reason = _verdict(estimate or 0.0, interval, list(rounds.values()))
    return CounterAudit(
        metric,
        tuple(names[i] for i in known or components),
        first.load,
        nodes[first.cpu_node],
        nodes[first.memory_node],
        estimate,
        interval,
        median(c for _, c in by_rate[0]) if by_rate.get(0) else None,
        points,
        verdict,
        reason,
        tuple(names[i] for i in _silent(metric, known, samples)),
    )


def _verdict(
    factor: float, interval: Interval, rounds: Sequence[Mapping[int, tuple[float, float]]]
) -> tuple[Kind, str]:
    low, high = interval
    allowed = alike(MARGIN)
    if max(abs(low), abs(high)) < MARGIN:
        return "counts nothing", ""
    if (change := _change_with_rate(factor, rounds)) is not None:
        lowest, highest = change
        return (
            "could not tell",
            f"not proportional: the factor is {lowest:.2f} at the lowest rate, {highest:.2f} at the highest",
        )
    if allowed[0] <= low and high <= allowed[1]:
        return "right", ""
    if low > allowed[1] or (high < allowed[0] and low > 0):
        return "wrong", ""
    return "could not tell", f"the interval [{low:.2f}, {high:.2f}] is too wide; other programs may use the memory"


def _change_with_rate(factor: float, rounds: Sequence[Mapping[int, tuple[float, float]]]) -> tuple[float, float] | None:
    """Return the factors at the lowest and at the highest rate if they clearly differ."""
    pairs = [
        (low, high)
        for points in rounds
        if len(points) > 2
        and (low := _slope([points[r] for r in sorted(points)[:2]])) is not None
        and (high := _slope([points[sorted(points)[0]], points[max(points)]])) is not None
    ]
    _, interval = shift([high - low for low, high in pairs]) if pairs else (0.0, None)
    limit = _CURVED * abs(factor)
    if interval is None or (interval[0] <= limit and interval[1] >= -limit):
        return None
    return median(low for low, _ in pairs), median(high for _, high in pairs)


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median of the slopes of all pairs of points (moved, counted); None if nothing was moved."""
    span = max((m for m, _ in points), default=0.0)
    slopes = [(c2 - c1) / (m2 - m1) for (m1, c1), (m2, c2) in combinations(points, 2) if abs(m2 - m1) > 0.1 * span]
    return median(slopes) if slopes else None


def _silent(metric: str, components: Sequence[int], samples: Iterable[AuditSample]) -> Iterator[int]:
    """Yield the counters of memory channels that count almost nothing compared with the mean of all."""
    if not metric.startswith("memory.") or len(components) < 2:
        return
    means = {i: _mean([v for s in samples if s.rate and (v := _value(s, metric, i)) is not None]) for i in components}
    limit = _SILENT * _mean(list(means.values()))
    yield from (i for i in components if means[i] < limit)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _value(sample: AuditSample, metric: str, component: int) -> float | None:
    values = sample.values.get(metric, ())
    return values[component] if component < len(values) else None
