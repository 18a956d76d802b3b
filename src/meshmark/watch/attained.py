"""What this machine's memory attained in its own survey: the denominator that a wire's arithmetic cannot give."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from meshmark.describe import stream_kernels
from meshmark.store.record import Record
from meshmark.store.store import Store


def attained(records: Iterable[Record], nodes: int) -> dict[str, Any] | None:
    """Best bandwidth of every memory node for every mix of reads and writes, in B/s.

    Args:
        records: of one host; those of `bandwidth` with most threads count.
        nodes: how many memory nodes it has: traffic that was local to every node is shared out among them.

    Returns:
        As the sampler takes it: `memory`, by node a list of [share of reads, B/s], and `from` in words; None where no
        record says anything.
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
        one = isinstance(node, int) and not isinstance(node, bool)
        for n in [int(node)] if one else range(nodes):  # type: ignore[arg-type]
            mine = found.setdefault(str(n), {})
            mine[share] = max(mine.get(share, 0.0), r.value / (1 if one else nodes))
        when = max(when, str(r.provenance.get("start", ""))[:10])
    if not found:
        return None
    memory = {n: [[share, rate] for share, rate in sorted(by.items())] for n, by in found.items()}
    return {"from": f"the survey of {when}" if when else "a survey", "memory": memory}


def _of_memory(r: Record) -> bool:
    """Whether the arrays were too large for caches: their conditions say so, or it was the default footprint."""
    held = r.conditions.get("footprint_bytes")
    return isinstance(held, int) and held >= 128 << 20


def attained_here(store: Path, machine: str, nodes: int) -> dict[str, Any] | None:
    """The same from a store; None where there is none."""
    if not store.is_dir():
        return None
    return attained(Store(store).query(machine=machine, instrument="bandwidth", metric="bandwidth_gross"), nodes)
