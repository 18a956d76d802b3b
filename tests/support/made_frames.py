"""Frames of a simulated host with one node."""

from __future__ import annotations

from typing import Any

from meshmark.watch.frames import Frame, FrameMetric, Header


def header(cpus: int = 4, metrics: int = 2, **more: Any) -> Header:
    return Header(
        "host",
        "test",
        "2026-01-01T00:00:00Z",
        0.1,
        {"node": ({"name": "node 0"},), "cpu": tuple({"name": f"CPU {i}", "node": 0} for i in range(cpus))},
        (
            FrameMetric("cpu.busy", "1", "busy", "time"),
            *(FrameMetric(f"cpu.m{i}", "B/s", "moved") for i in range(metrics - 1)),
        ),
        **more,
    )


def frame(n: int, *values: float | None) -> Frame:
    return Frame(n, 0.1 * n, 0.1, {"cpu.busy": list(values), "cpu.m0": [1e9 * (v or 0) for v in values]}, at=1e9 + n)
