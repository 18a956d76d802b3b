"""Recordings of a simulated host with one memory, and what a page packs of them."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.recording import Recorder
from support.cli import meshmark


def header(cpus: int = 4, machine: str = "test", **more: Any) -> Header:
    return Header(
        "host",
        machine,
        "2026-01-01T00:00:00Z",
        0.1,
        {
            "node": ({"name": "node 0"},),
            "cpu": tuple({"name": f"CPU {i}", "node": 0} for i in range(cpus)),
            "memory": ({"name": "memory 0", "node": 0},),
        },
        (FrameMetric("cpu.busy", "1", "busy", "time"), FrameMetric("cpu.user", "1", "in programs", "time")),
        ({"metric": "memory", "why": "no counters here"},),
        more,
    )


def frames(uses: Sequence[Sequence[float | None]]) -> list[Frame]:
    return [Frame(n, 0.1 * n, 0.1, {"cpu.busy": list(u), "cpu.user": list(u)}, at=1e9 + n) for n, u in enumerate(uses)]


def record(path: Path, of: Header, made: Sequence[Frame]) -> Path:
    with Recorder(path, of) as recorder:
        for frame in made:
            recorder.add(frame)
    return path


def unpacked(packed: bytes) -> tuple[dict[str, Any], bytes]:
    data = gzip.decompress(packed)
    size = struct.unpack("<I", data[:4])[0]
    return json.loads(data[4 : 4 + size]), data[4 + size :]


def said(*words: str) -> tuple[int, str, str]:
    completed = meshmark(*words)
    return completed.returncode, completed.stdout, completed.stderr
