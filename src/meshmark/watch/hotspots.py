"""Detects hot spots: components whose use stands out from their class over several ticks.

For every class (CPUs, memory controllers, links, I/O), a component is hot at a tick if its use exceeds a minimum, the
median of the class by both a quarter of the capacity and four robust deviations, and its fair share of the class's
total. It is a hot spot if it was hot in most of the last ticks. A class of one or two components is judged by use
alone. Consequences of another hot spot are listed as evidence, not as hot spots: the links of a saturated memory, and
the memory of a node that only the node's own busy CPU uses.

After the rules of Carrefour (Dashti et al., ASPLOS 2013: imbalance of controllers and links) and the uses of Xmesh in
the GS1280's publication, section 5, which distinguish CPU, memory, link and I/O bound.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.values.units import plain
from meshmark.watch.frames import Frame, Header, check_places

CLASSES: Final = ("memory", "link", "io", "cpu")
MIN_USE: Final = {"memory": 0.35, "link": 0.45, "io": 0.6, "cpu": 0.5}  # of a hot component
FULL: Final = 0.85  # minimum use in a class of one or two
ABOVE: Final = 0.25  # minimum distance from the median of the class, as a share of capacity
DEVIATIONS: Final = 4.0
NEAR: Final = 0.1  # use of a node's links below which its memory serves only its own CPUs
SHARE: Final = 1.5  # minimum use relative to the mean of the class
KEPT: Final = 5  # number of recent ticks considered
HELD: Final = 4  # minimum number of them in which a hot spot is hot

ADVICE: Final = {
    "memory": "interleave its pages over more nodes, or move the threads that use them to this node",
    "link": "place communicating programs closer together, or spread their memory so that more links share traffic",
    "io": "spread the requests over more devices, or place the program near the device's node",
    "cpu": "use more threads, or move other programs away from this CPU",
}
VERDICT: Final = {"memory": "memory bound", "link": "link bound", "io": "I/O bound", "cpu": "CPU bound"}


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Components of one class that are hot together.

    Attributes:
        since_s: the tick at which it was first hot, in the frames' time.
        use: mean use of the components over the recent ticks.
        usual: median use of the class over the same ticks.
        share: share of the components in the class's total use.
        evidence: other hot components that are consequences, by class.
        culprits: the busiest processes there, if known, the busiest first.
        estimated: whether the use is inferred, not counted.
    """

    component_class: str
    components: tuple[int, ...]
    names: tuple[str, ...]
    node: int | None
    since_s: float
    use: float
    usual: float
    share: float
    evidence: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    culprits: tuple[str, ...] = ()
    estimated: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "class": self.component_class,
            "components": list(self.components),
            "verdict": self.verdict,
            "node": self.node,
            "since_s": self.since_s,
            "use": round(self.use, 4),
            "usual": round(self.usual, 4),
            "share": round(self.share, 4),
            "evidence": {k: list(v) for k, v in self.evidence.items()},
            "culprits": list(self.culprits),
            "estimated": self.estimated,
            "text": str(self),
        }

    @property
    def verdict(self) -> str:
        return VERDICT[self.component_class]

    @property
    def advice(self) -> str:
        return ADVICE[self.component_class]

    def __str__(self) -> str:
        seen = "".join(f"; {kind} {', '.join(names)} with it" for kind, names in self.evidence.items())
        names = ", ".join(self.names)
        use = f"{100 * self.use:.0f} % (median {100 * self.usual:.0f} %), {100 * self.share:.0f} % of all"
        who = f" by {', '.join(self.culprits)}" if self.culprits else ""
        since = plain(self.since_s, "s")
        verdict = self.verdict + (" (estimated)" if self.estimated else "")
        return f"{verdict}: {names} at {use}, since {since}{who}{seen}. Advice: {self.advice}"


def hot_now(values: Sequence[float | None], min_use: float) -> set[int]:
    """Indices of the components that are hot at one tick; unknown ones are not."""
    known = [v for v in values if v is not None]
    if not known or max(known) < min_use:
        return set()
    if len(known) <= 2:
        low = min(known)
        alone = len(known) == 1
        return {i for i, v in enumerate(values) if v is not None and v >= FULL and (alone or v >= 2 * low)}
    middle = statistics.median(known)
    deviation = 1.4826 * statistics.median(abs(v - middle) for v in known)
    bound = max(min_use, middle + max(ABOVE, DEVIATIONS * deviation))
    total = sum(known)
    return {i for i, v in enumerate(values) if v is not None and v >= bound and v * len(known) >= SHARE * total}


class Detector:
    """Detects hot spots in a stream of frames.

    Raises:
        FrameError: A component refers to one that the header does not have.
    """

    def __init__(self, header: Header) -> None:
        check_places(header)
        self.header = header
        self._use = header.use
        self._estimated = {k for k, name in self._use.items() for m in header.metrics if m.name == name and m.estimated}
        self._past: deque[Frame] = deque(maxlen=KEPT)
        self._hot: dict[str, deque[set[int]]] = {c: deque(maxlen=KEPT) for c in CLASSES}
        self._since: dict[tuple[str, int], float] = {}

    def add(self, frame: Frame) -> list[HotSpot]:
        """Adds a frame and returns the current hot spots, likely causes first."""
        self._past.append(frame)
        held: dict[str, set[int]] = {}
        for kind in CLASSES:
            now = hot_now(frame.values.get(self._use[kind], ()), MIN_USE[kind])
            ticks = self._hot[kind]
            ticks.append(now)
            for i in now:
                self._since.setdefault((kind, i), frame.t_s)
            for known in [k for k in self._since if k[0] == kind and not any(k[1] in t for t in ticks)]:
                del self._since[known]
            held[kind] = {i for t in ticks for i in t if sum(i in u for u in ticks) >= HELD}
        return self._explain(held)

    def _explain(self, held: Mapping[str, set[int]]) -> list[HotSpot]:
        found: list[HotSpot] = []
        explained: set[tuple[str, int]] = set()
        local: dict[int, tuple[str, ...]] = {}  # memory used only by its own node
        for node, mine in self._by_node("memory", held["memory"]).items():
            # There is no remote traffic and a CPU of the node is hot, so this CPU causes the memory traffic.
            if node is not None and self._busiest_link(node) < NEAR and self._cpus_of(node) & held["cpu"]:
                local[node] = tuple(self._name("memory", i) for i in mine)
                explained |= {("memory", i) for i in mine}
        for kind in ("memory", "io", "link", "cpu"):
            left = {i for i in held[kind] if (kind, i) not in explained}
            if kind == "cpu" and any(s.component_class in {"memory", "link"} for s in found):
                continue  # the CPU is likely stalled on memory or links
            for node, mine in self._by_node(kind, left).items():
                evidence = {}
                if kind in {"memory", "io"} and node is not None:
                    near = tuple(sorted(i for i in held["link"] if self._touches(i, node)))
                    # All hot links carry this traffic, not only those of the node.
                    explained |= {("link", i) for i in held["link"]} if near else set()
                    if near:
                        evidence["link"] = tuple(self._name("link", i) for i in near)
                where = self.header.components[kind][mine[0]].get("node")
                if kind == "cpu" and where in local:
                    evidence["memory"] = local[int(where)]
                found.append(self._spot(kind, mine, node, evidence))
        return found

    def _cpus_of(self, node: int) -> set[int]:
        return {i for i, c in enumerate(self.header.components.get("cpu", ())) if c.get("node") == node}

    def _busiest_link(self, node: int) -> float:
        """Mean use of the busiest link of a node over the recent ticks; 0 if links are unknown."""
        highest = 0.0
        for i in range(self.header.count("link")):
            if self._touches(i, node):
                seen = [
                    v for f in self._past if (v := (f.values.get(self._use["link"]) or [None] * (i + 1))[i]) is not None
                ]
                highest = max(highest, sum(seen) / len(seen)) if seen else highest
        return highest

    def _by_node(self, kind: str, numbers: set[int]) -> dict[int | None, list[int]]:
        grouped: dict[int | None, list[int]] = {}
        for i in sorted(numbers):
            node = self.header.components[kind][i].get("node")
            key = int(node) if node is not None else None if kind == "link" else -1 - i
            grouped.setdefault(key, []).append(i)
        return grouped

    def _touches(self, link: int, node: int) -> bool:
        about = self.header.components["link"][link]
        router = self.header.components["node"][node].get("router", node)
        return router in {about.get("from_router", about.get("from")), about.get("to_router", about.get("to"))}

    def _name(self, kind: str, number: int) -> str:
        return str(self.header.components[kind][number].get("name", number))

    def _spot(
        self, kind: str, mine: Sequence[int], node: int | None, evidence: Mapping[str, tuple[str, ...]]
    ) -> HotSpot:
        sums = [0.0] * self.header.count(kind)
        ticks = [f.values[self._use[kind]] for f in self._past if self._use[kind] in f.values]
        for values in ticks:
            for i, v in enumerate(values):
                sums[i] += v or 0.0
        means = [s / max(1, len(ticks)) for s in sums]
        total = sum(means) or 1.0
        return HotSpot(
            kind,
            tuple(mine),
            tuple(self._name(kind, i) for i in mine),
            node if node is None or node >= 0 else None,
            min(self._since.get((kind, i), self._past[-1].t_s) for i in mine),
            sum(means[i] for i in mine) / len(mine),
            statistics.median(means),
            sum(means[i] for i in mine) / total,
            evidence,
            self._culprits(kind, mine, node),
            kind in self._estimated,
        )

    def _culprits(self, kind: str, mine: Sequence[int], node: int | None) -> tuple[str, ...]:
        """Up to three processes that run on the hot CPUs, or whose memory is on the hot node, busiest first."""
        weights: list[tuple[float, str]] = []
        for p in self._past[-1].processes:
            cpu = float(p.get("cpu") or 0)
            if kind == "cpu":
                numbers = {self.header.components["cpu"][i].get("number", i) for i in mine}
                weight = cpu if p.get("on") in numbers else 0.0
            elif kind == "memory" and node is not None and isinstance(p.get("nodes"), list) and node < len(p["nodes"]):
                weight = cpu * float(p["nodes"][node])
            else:
                weight = 0.0
            if weight > 0:
                weights.append((weight, f"{p.get('name')} ({p.get('pid')})"))
        return tuple(name for _, name in sorted(weights, reverse=True)[:3])
