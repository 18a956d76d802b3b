"""Finds the sustained memory bandwidth of this machine in the records of its survey."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshmark.describe import stream_kernels
from meshmark.store.record import Record
from meshmark.store.store import Store


def sustained_bandwidth(records: Iterable[Record], nodes: int) -> dict[str, Any] | None:
    """Return the highest bandwidth of every memory node for every mix of reads and writes, in B/s.

    Args:
        records: records of one host.
        nodes: number of memory nodes; bandwidth measured on all nodes is divided by it.

    Returns:
        Input for the sampler: `memory` maps each node to a list of [share of reads, B/s], and `from` describes the
        source; None if there are no suitable records.
    """
    best_rates: dict[str, dict[float, float]] = {}
    kernels = stream_kernels()
    date = ""
    for r in records:
        if r.instrument != "bandwidth" or r.metric != "bandwidth_gross" or r.source != "host":
            continue
        kernel = kernels.get(str(r.conditions.get("kernel")))
        if kernel is None or not _of_memory(r):
            continue
        share = kernel.read_share(str(r.conditions.get("store")))
        node = r.conditions.get("memory_node")
        is_one_node = isinstance(node, int) and not isinstance(node, bool)
        for n in [int(node)] if is_one_node else range(nodes):  # type: ignore[arg-type]
            rates = best_rates.setdefault(str(n), {})
            rates[share] = max(rates.get(share, 0.0), r.value / (1 if is_one_node else nodes))
        date = max(date, str(r.provenance.get("start", ""))[:10])
    if not best_rates:
        return None
    memory = {n: [[share, rate] for share, rate in sorted(shares.items())] for n, shares in best_rates.items()}
    return {"from": f"the survey of {date}" if date else "a survey", "memory": memory}


def _of_memory(r: Record) -> bool:
    """Return whether the arrays exceed the caches, that is, have 128 MiB or more."""
    footprint = r.conditions.get("footprint_bytes")
    return isinstance(footprint, int) and footprint >= 128 << 20


def sustained_in_store(store: Path, machine: str, nodes: int) -> dict[str, Any] | None:
    """Return the result of `sustained_bandwidth` for the records in a store; None if there is no store."""
    if not store.is_dir():
        return None
    return sustained_bandwidth(
        Store(store).query(machine=machine, instrument="bandwidth", metric="bandwidth_gross"), nodes
    )
