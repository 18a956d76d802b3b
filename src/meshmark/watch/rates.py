"""States what a component does in absolute terms, beside its share: rates in B/s, memory in use, kinds of CPU time.

`web/src/rates.ts` is the same for browsers; a browser test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshmark.values.units import NBSP, number, show
from meshmark.watch.frames import Frame, Header

# Verbs of the two directions of a device, by its kind.
_VERBS: Final[Mapping[str, tuple[str, str]]] = {"network": ("receives", "sends"), "disk": ("reads", "writes")}
_MEMORY: Final = (("memory.read", "reads"), ("memory.write", "writes"), ("memory.traffic", "moves"))


def rates(header: Header, frame: Frame, component_class: str, index: int) -> str:
    """Absolute values of a component: `reads 1.20 MB/s, writes 0 B/s`; "" if none is known."""

    def rate(metric: str, verb: str) -> list[str]:
        found = frame.value(metric, index)
        return [] if found is None else [f"{verb} {show(found, 'B/s')}"]

    about = header.components[component_class][index]
    if component_class == "cpu":
        parts = [("user", "cpu.user"), ("system", "cpu.system"), ("stolen", "cpu.steal")]
        found = [(name, share) for name, metric in parts if (share := frame.value(metric, index))]
        return ", ".join(f"{name} {number(100 * share, 2)}{NBSP}%" for name, share in found)
    if component_class == "io":
        into, out = _VERBS.get(str(about.get("kind")), ("in", "out"))
        return ", ".join(rate("io.in", into) + rate("io.out", out))
    if component_class == "link":
        return ", ".join(rate("link.out", "carries"))
    texts = [text for metric, verb in _MEMORY for text in rate(metric, verb)]
    texts += [f"~{text}" for text in rate("memory.moved", "others move")]
    node = about.get("node")
    alone = sum(m.get("node") == node for m in header.components["memory"]) == 1
    if isinstance(node, int) and alone:
        used, total = (frame.value(metric, node) for metric in ("node.used", "node.total"))
        if used is not None and total:
            texts.append(f"{show(used, 'B')} of {show(total, 'B')} used")
    return ", ".join(texts)
