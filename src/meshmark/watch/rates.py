"""States what a component does in absolute terms, beside its share: rates in B/s, memory in use, kinds of CPU time.

`web/src/rates.ts` does the same for browsers; a browser test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshmark.values.units import NBSP, number, show
from meshmark.watch.frames import Frame, Header

# Verbs of the two directions of a device, by its kind.
_VERBS: Final[Mapping[str, tuple[str, str]]] = {"network": ("receives", "sends"), "disk": ("reads", "writes")}
_MEMORY: Final = (("memory.read", "reads"), ("memory.write", "writes"), ("memory.traffic", "moves"))
# Shares of the time of a CPU, and of the cycles in which it is not idle.
_CPU: Final = (
    *(("user", "cpu.user"), ("system", "cpu.system"), ("stolen", "cpu.steal")),
    *(("stalled", "cpu.stalled"), ("waiting for memory", "cpu.waiting"), ("remote loads", "cpu.remote")),
)
# Metrics of the share of cycles in which a CPU is stalled, the most general first.
STALLS: Final = ("cpu.stalled", "cpu.waiting")


def counts_stalls(header: Header) -> bool:
    """Return whether the CPUs of a machine count the cycles in which they are stalled."""
    return any(m.name in STALLS for m in header.metrics)


def stalled_share(frame: Frame, cpu: int) -> float | None:
    """Return the share of cycles in which a CPU, given by its index, is stalled; None if unknown."""
    return next((share for metric in STALLS if (share := frame.value(metric, cpu)) is not None), None)


def rates(header: Header, frame: Frame, component_class: str, index: int) -> str:
    """Return the absolute values of a component: `reads 1.20 MB/s, writes 0 B/s`; "" if no value is known."""

    def rate(metric: str, verb: str) -> list[str]:
        value = frame.value(metric, index)
        return [] if value is None else [f"{verb} {show(value, 'B/s')}"]

    component = header.components[component_class][index]
    if component_class == "cpu":
        shares = [(name, share) for name, metric in _CPU if (share := frame.value(metric, index))]
        return ", ".join(f"{name} {number(100 * share, 2)}{NBSP}%" for name, share in shares)
    if component_class == "io":
        in_verb, out_verb = _VERBS.get(str(component.get("kind")), ("in", "out"))
        return ", ".join(rate("io.in", in_verb) + rate("io.out", out_verb))
    if component_class == "link":
        return ", ".join(rate("link.out", "carries"))
    texts = [text for metric, verb in _MEMORY for text in rate(metric, verb)]
    texts += [f"~{text}" for text in rate("memory.moved", "others move")]
    node = component.get("node")
    is_only = sum(m.get("node") == node for m in header.components["memory"]) == 1
    if isinstance(node, int) and is_only:
        used_bytes, total_bytes = (frame.value(metric, node) for metric in ("node.used", "node.total"))
        if used_bytes is not None and total_bytes:
            texts.append(f"{show(used_bytes, 'B')} of {show(total_bytes, 'B')} used")
    return ", ".join(texts)
