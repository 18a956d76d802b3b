"""Results of two simulated hosts with all conditions that distinguish results: one socket, and two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from meshmark.store.record import Record
from support.made_run import record, repeated

_RING = {"stride_bytes": 64, "pattern": "random", "locality_bytes": 0, "cpu": 0, "processes": 1, "state": "clean"}
_LEVELS = {"L1": 1 << 14, "L2": 1 << 19, "L3": 1 << 23, "memory": 1 << 30}
_TIMES = {"L1": 1.5e-9, "L2": 4e-9, "L3": 15e-9, "memory": 100e-9}


def one_socket() -> list[Record]:
    """Return results of four cores of one node with one last-level cache."""
    lines = _lines({(0, 1): "cache", (0, 2): "cache"})
    return repeated([*_latencies("local"), *_rates(4, "machine"), *lines, *_loaded(4)])


def two_sockets() -> list[Record]:
    """Return results of two nodes of eight cores; CPUs 0 and 16 belong to one core."""
    relations = {(0, 16): "core", (0, 1): "cache", (0, 8): "machine"}
    of_both = [
        *_latencies("local", 1.2),
        *_latencies("other socket", 1.2, node=1),
        *_rates(8, "socket"),
        *_rates(16, "machine"),
        *_lines(relations, 1.2),
        *_loaded(16, 1.2),
    ]
    return repeated(of_both)


def _latencies(place: str, factor: float = 1.0, node: int = 0) -> Iterator[Record]:
    remote = 1.7 if place != "local" else 1.0
    for level, footprint in _LEVELS.items():
        time = _TIMES[level] * factor * (remote if level == "memory" else 1)
        conditions: dict[str, Any] = {"memory_node": node, "memory_place": place, "memory_level": level, "pages": "thp"}
        yield record("latency", "load_latency", time, footprint_bytes=footprint, **conditions, **_RING)


def _rates(threads: int, part: str) -> Iterator[Record]:
    for count, fills in ((1, "core"), (threads, part)):
        for level in ("L1", "memory"):
            for kernel in ("copy", "triad", "read"):
                conditions = {
                    "kernel": kernel,
                    "store": "ordinary",
                    "threads": count,
                    "cpus": "0" if count == 1 else f"0-{count - 1}",
                    "isa": "best",
                    "fill": "cores",
                    "footprint_bytes": _LEVELS[level] * count,
                    "memory_node": "local",
                    "memory_place": "local",
                    "memory_level": level,
                    "cpus_within": "cpu" if count == 1 else part,
                    "cpus_fill": fills,
                    "pages": "thp",
                }
                rate = (
                    (20e9 if level == "memory" else 200e9) * count**0.7 * {"copy": 0.9, "triad": 1, "read": 1.2}[kernel]
                )
                yield record("bandwidth", "bandwidth_net", rate, **conditions)
        yield record("peak", "flop_rate", 5e10 * count, type="fp64", threads=count, cpus_fill=fills, cpus_within=part)


def _lines(relations: dict[tuple[int, int], str], factor: float = 1.0) -> Iterator[Record]:
    times = {"core": 10e-9, "cache": 30e-9, "machine": 110e-9}
    for (a, b), within in relations.items():
        for state, trip in (("clean", "round"), ("dirty", "round"), ("swap", "one_way")):
            for home in ("from", "to") if within == "machine" else ("",):
                pair = {"from_cpu": a, "to_cpu": b, "home_node": 1 if home == "to" else 0, "cpus_within": within}
                conditions = {"home": home} if home else {}
                yield record(
                    "lines",
                    "line_latency",
                    times[within] * factor,
                    state=state,
                    trip=trip,
                    pages="thp",
                    **pair,
                    **conditions,
                )


def _loaded(threads: int, factor: float = 1.0) -> Iterator[Record]:
    for chains in (1, 8, 32):
        conditions: dict[str, Any] = {
            "mode": "chains",
            "chains": chains,
            "threads": threads,
            "read_share": 1.0,
            "pause": 0,
            "footprint_bytes": 1 << 28,
            "memory_node": "local",
            "memory_place": "local",
            "memory_level": "memory",
            "cpus_within": "machine",
            "cpus_fill": "machine",
            "pages": "thp",
        }
        yield record("loaded", "load_latency", (100 + 3 * chains) * factor * 1e-9, **conditions)
        yield record("loaded", "bandwidth_net", 64 * chains * threads / (100 + 3 * chains) / factor * 1e9, **conditions)
