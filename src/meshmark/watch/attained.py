"""What this machine's memory attained in its own survey: the denominator that a wire's arithmetic cannot give."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from meshmark.store.record import Record
from meshmark.store.store import Store

# Share of reads among the bytes that really move, by kernel and kind of store: an ordinary store reads its line first.
READ_SHARE: Final = {
    ("read", "ordinary"): 1.0, ("read", "streaming"): 1.0,
    ("copy", "ordinary"): 2 / 3, ("copy", "streaming"): 1 / 2,
    ("scale", "ordinary"): 2 / 3, ("scale", "streaming"): 1 / 2,
    ("add", "ordinary"): 3 / 4, ("add", "streaming"): 2 / 3,
    ("triad", "ordinary"): 3 / 4, ("triad", "streaming"): 2 / 3,
    ("write", "ordinary"): 1 / 2, ("write", "streaming"): 0.0,
    ("update", "ordinary"): 1 / 2,
}  # fmt: skip


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
    when = ""
    for r in records:
        if r.instrument != "bandwidth" or r.metric != "bandwidth_gross" or r.source != "host":
            continue
        share = READ_SHARE.get((str(r.conditions.get("kernel")), str(r.conditions.get("store"))))
        if share is None or not _of_memory(r):
            continue
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
