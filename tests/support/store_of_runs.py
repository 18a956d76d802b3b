"""A store with hundreds of runs, as a machine has after a year.

An empty store hides faults: commands then start no threads of the libraries that read it, and search no other runs."""

from __future__ import annotations

from pathlib import Path

from meshmark.store.record import Metric, Record
from meshmark.store.store import Store

RUNS = 400


def fill(data_home: Path, machine: str, runs: int = RUNS) -> None:
    """Write that many runs of one record into the default store below a data home (`XDG_DATA_HOME`)."""
    store = Store(data_home / "meshmark" / "store")
    metric = Metric("load_latency", "s", "lower", "")
    for number in range(runs):
        start = f"2026-{1 + number // 40:02}-{1 + number % 28:02}T{number % 24:02}:00:00Z"
        record = Record.from_samples(
            metric,
            tuple(80e-9 + (number + k) % 7 * 1e-10 for k in range(7)),
            source="host",
            machine=machine,
            instrument="latency",
            conditions={"footprint_bytes": 1 << 26, "stride_bytes": 256, "pattern": "random", "cpu": 0, "processes": 1},
            provenance={"command": "latency --seed 1", "start": start, "version": "0.1.0"},
        )
        store.add(f"measure-{start[:19].replace('-', '').replace(':', '')}-{number:08x}", "latency", [record])
