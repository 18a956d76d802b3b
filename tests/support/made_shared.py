"""Undisturbed results of a made-up machine with private facts, and shared results of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshmark.store.record import Record, median, median_interval
from meshmark.store.run import RunInfo
from meshmark.views.shared.reduce import Shared, shared_result
from support import made_run

HOST: dict[str, Any] = {
    "machine": {"id": "kiwi-959f", "name": "kiwi", "hash": "959f"},
    "topology": {
        "summary": "2 packages",
        "packages": [{}, {}],
        "nodes": [{}, {}],
        "cores": [{}] * 4,
        "cpus": [{}] * 4,
        "distances": [[10, 21], [21, 10]],
        "doubts": ["none"],
    },
    "caches": [{"level": 1, "kind": "data", "size_bytes": 49152, "line_bytes": 64, "shared_by": 1, "count": 4}],
    "cpu": {
        "vendor": "GenuineIntel",
        "model": "Intel(R) Xeon(R) CPU E5-2640 v3 @ 2.60GHz",
        "family": "6",
        "model_number": "63",
        "stepping": "2",
        "microcode": "0x49",
        "isa": ["avx", "avx2"],
        "claimed_hz": 2.6e9,
    },
    "memory": {"total_bytes": 1 << 36, "channels": 8, "peak_bytes_per_s": {"absent": "the table does not exist"}},
    "kernel": {"release": "6.1.0-kiwi", "version": "#1 SMP", "options": ["root=/dev/kiwi"]},
    "pages": {"thp": "madvise"},
    "settings": {"governor": "performance", "boost": True, "numa_balancing": 0},
    "virtual": {"guest": False},
    "firmware": {"bios_version": "K1", "serial": "CZ20"},
}


def undisturbed(records: list[Record]) -> list[Record]:
    return [
        replace(r, source="host", flags=frozenset(), conditions={**r.conditions, "library": "OpenBLAS"})
        if "library" in r.conditions
        else replace(r, source="host", flags=frozenset())
        for r in records
    ]


def quiet_records() -> list[Record]:
    return undisturbed([*made_run.latency(), *made_run.bandwidth(4), *made_run.lines(2), *made_run.the_rest(4)])


def run(host: dict[str, Any] | None = None) -> RunInfo:
    return made_run.run_info(HOST if host is None else host)


def scaled(instrument: str, metric: str, factor: float) -> Shared:
    """Return a shared result in which the values of a metric are multiplied."""
    records = []
    for r in quiet_records():
        if (r.instrument, r.metric) == (instrument, metric):
            samples = tuple(s * factor for s in r.samples)
            records.append(replace(r, samples=samples, value=median(samples), interval=median_interval(samples)))
        else:
            records.append(r)
    return shared_result(records, run())
