"""Fits latency as a base and a time per hop, as publications on meshes state it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.statistics.verdicts import Interval
from meshmark.store.record import Record

MIN_HOPS: Final = 2  # different numbers of hops that a line needs to have a slope
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class HopFit:
    """A least-squares line through the remote latencies.

    Attributes:
        base_s: Latency that the line predicts without hops. It is above the latency of local memory, because a router
            is entered and left.
        interval: 95 % interval of `per_hop_s`; None if there are fewer than 3 points.
        points: Number of latencies.
    """

    base_s: float
    per_hop_s: float
    interval: Interval | None
    points: int


def by_hops(records: Sequence[Record], like: Sequence[Record] = ()) -> list[Record]:
    """Return the idle latencies of memory with a known number of hops, measured by one CPU.

    Args:
        records: Results of a machine, of any instruments.
        like: Latencies of another machine, whose access pattern is preferred. If there are none, the pattern with the
            most points is preferred.
    """
    pattern = like[0].conditions.get("pattern") if like else None
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        c = r.conditions
        idle = r.metric == "load_latency" and r.instrument == "latency" and c.get("processes") in {None, 1}
        if idle and isinstance(c.get("hops"), int) and not r.flags:
            groups.setdefault(
                tuple(c.get(k) for k in ("pattern", "cpu", "footprint_bytes", "stride_bytes")), []
            ).append(r)
    return max(
        groups.values(), key=lambda group: (group[0].conditions.get("pattern") == pattern, len(group)), default=[]
    )


def fit(records: Sequence[Record]) -> HopFit | None:
    """Return the line through latencies of memory that is at least one hop away; None if all are equally far away."""
    import scipy.stats

    remote = [(int(str(r.conditions["hops"])), r.value) for r in records if r.conditions["hops"]]
    if len({hops for hops, _ in remote}) < MIN_HOPS:
        return None
    line = scipy.stats.linregress([hops for hops, _ in remote], [value for _, value in remote])
    n, interval = len(remote), None
    if n > 2:
        half_width = float(scipy.stats.t.ppf((1 + _CONFIDENCE) / 2, n - 2)) * float(line.stderr)
        interval = float(line.slope) - half_width, float(line.slope) + half_width
    return HopFit(base_s=float(line.intercept), per_hop_s=float(line.slope), interval=interval, points=n)
