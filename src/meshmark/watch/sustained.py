"""Finds the sustained memory bandwidth of this machine in the records of its survey."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshmark.describe import stream_kernels
from meshmark.store.record import Record
from meshmark.store.store import Store


def sustained_bandwidth(records: Iterable[Record], nodes: int) -> dict[str, Any] | None:
    """The highest bandwidth of every memory node for every mix of reads and writes, in B/s.

    Args:
        records: records of one host.
        nodes: number of memory nodes; bandwidth measured on all nodes is divided by it.

    Returns:
        Input for the sampler: `memory`, by node a list of [share of reads, B/s], and `from`, a description of the
        source; None if there are no suitable records.
    """
    found: dict[str, dict[float, float]] = {}
    kernels = stream_kernels()
    when = ""
    for r in records:
        if r.instrument != "bandwidth" or r.metric != "bandwidth_gross" or r.source != "host":
            continue
        kernel = kernels.get(str(r.conditions.get("kernel")))
        if kernel is None or not _of_memory(r):
            continue
        share = kernel.read_share(str(r.conditions.get("store")))
        node = r.conditions.get("memory_node")
        single = isinstance(node, int) and not isinstance(node, bool)
        for n in [int(node)] if single else range(nodes):  # type: ignore[arg-type]
            rates = found.setdefault(str(n), {})
            rates[share] = max(rates.get(share, 0.0), r.value / (1 if single else nodes))
        when = max(when, str(r.provenance.get("start", ""))[:10])
    if not found:
        return None
    memory = {n: [[share, rate] for share, rate in sorted(by.items())] for n, by in found.items()}
    return {"from": f"the survey of {when}" if when else "a survey", "memory": memory}


def _of_memory(r: Record) -> bool:
    """Whether the arrays exceed the caches: 128 MiB or more."""
    footprint = r.conditions.get("footprint_bytes")
    return isinstance(footprint, int) and footprint >= 128 << 20


def sustained_in_store(store: Path, machine: str, nodes: int) -> dict[str, Any] | None:
    """As `sustained_bandwidth`, from the records in a store; None if there is no store."""
    if not store.is_dir():
        return None
    return sustained_bandwidth(
        Store(store).query(machine=machine, instrument="bandwidth", metric="bandwidth_gross"), nodes
    )
