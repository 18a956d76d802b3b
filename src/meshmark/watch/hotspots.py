"""Hot spots: components that are used far more than their like, for longer than a moment.

For every class (CPUs, memory controllers, links, I/O) a component is hot at a tick when it is used a good deal, and
by far more than the class as a whole: above the median by a quarter of its capacity and by four robust deviations,
and with more than its share of all that the class does. It is a hot spot when that held in most of the last ticks. A
class of one or two is judged by how full it is. What follows from another hot spot is evidence, not a verdict of its
own: the links around a crowded memory, and the memory of a node whose own busy CPU is all that uses it.

After the rules of Carrefour (Dashti et al., ASPLOS 2013: imbalance of controllers and links) and the uses of Xmesh in
the GS1280's publication, section 5: tell CPU, memory, link and I/O bound apart.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.values.units import plain
from meshmark.watch.frames import Frame, Header

CLASSES: Final = ("memory", "link", "io", "cpu")
LEAST: Final = {"memory": 0.35, "link": 0.45, "io": 0.6, "cpu": 0.5}  # use below this is never hot
FULL: Final = 0.85  # of a class of one or two
ABOVE: Final = 0.25  # of the capacity, above the median of the class
DEVIATIONS: Final = 4.0
NEAR: Final = 0.1  # use of a node's links below which its memory serves its own CPUs
SHARE: Final = 1.5  # times what each would have of an even use
KEPT: Final = 5  # ticks that are looked at
HELD: Final = 4  # of them, in which it must be hot

ADVICE: Final = {
    "memory": "spread its pages over more nodes (interleave), or move the threads that use them to their node",
    "link": "bring the programs that talk over it closer, or spread their memory so that other links share the traffic",
    "io": "spread the requests over more devices, or place the program near the device's node",
    "cpu": "the program is bound by this CPU: give it more threads, or move what shares the CPU with it",
}
VERDICT: Final = {"memory": "memory bound", "link": "link bound", "io": "I/O bound", "cpu": "CPU bound"}


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Components of one class that are hot together.

    Attributes:
        since_s: the tick at which it was first hot, by the frames' clock.
        use: mean use of its components over the ticks that were looked at.
        usual: the class's median meanwhile.
        share: of all use of the class, how much is theirs.
        evidence: other hot components that follow from it, by class.
        culprits: processes that were busy there as last seen, the busiest first; none where none is known.
        estimated: the use was inferred and not counted.
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


def hot_now(values: Sequence[float | None], least: float) -> set[int]:
    """Numbers of the components that are hot at one tick; those that are not known are not."""
    known = [v for v in values if v is not None]
    if not known or max(known) < least:
        return set()
    if len(known) <= 2:
        low = min(known)
        alone = len(known) == 1
        return {i for i, v in enumerate(values) if v is not None and v >= FULL and (alone or v >= 2 * low)}
    middle = statistics.median(known)
    deviation = 1.4826 * statistics.median(abs(v - middle) for v in known)
    bound = max(least, middle + max(ABOVE, DEVIATIONS * deviation))
    total = sum(known)
    return {i for i, v in enumerate(values) if v is not None and v >= bound and v * len(known) >= SHARE * total}


class Detector:
    """Watches frames as they come.

    Args:
        header: of the stream.
    """

    def __init__(self, header: Header) -> None:
        self.header = header
        self._use = header.use
        self._estimated = {k for k, name in self._use.items() for m in header.metrics if m.name == name and m.estimated}
        self._past: deque[Frame] = deque(maxlen=KEPT)
        self._hot: dict[str, deque[set[int]]] = {c: deque(maxlen=KEPT) for c in CLASSES}
        self._since: dict[tuple[str, int], float] = {}

    def add(self, frame: Frame) -> list[HotSpot]:
        """Takes a frame; answers the hot spots that stand now, the first being the cause of most."""
        self._past.append(frame)
        held: dict[str, set[int]] = {}
        for kind in CLASSES:
            now = hot_now(frame.values.get(self._use[kind], ()), LEAST[kind])
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
        own: dict[int, tuple[str, ...]] = {}
        for node, mine in self._by_node("memory", held["memory"]).items():
            # Nobody comes from afar, and a CPU of the node is busy beyond its like: it is what keeps the memory busy.
            if node is not None and self._busiest_link(node) < NEAR and self._cpus_of(node) & held["cpu"]:
                own[node] = tuple(self._name("memory", i) for i in mine)
                explained |= {("memory", i) for i in mine}
        for kind in ("memory", "io", "link", "cpu"):
            left = {i for i in held[kind] if (kind, i) not in explained}
            if kind == "cpu" and any(s.component_class in {"memory", "link"} for s in found):
                continue  # busy with waiting: a CPU whose loads do not come back is no cause
            for node, mine in self._by_node(kind, left).items():
                evidence = {}
                if kind in {"memory", "io"} and node is not None:
                    near = tuple(sorted(i for i in held["link"] if self._touches(i, node)))
                    # What carries the traffic further is as little a cause as the links next to it.
                    explained |= {("link", i) for i in held["link"]} if near else set()
                    if near:
                        evidence["link"] = tuple(self._name("link", i) for i in near)
                where = self.header.components[kind][mine[0]].get("node")
                if kind == "cpu" and where in own:
                    evidence["memory"] = own[int(where)]
                found.append(self._spot(kind, mine, node, evidence))
        return found

    def _cpus_of(self, node: int) -> set[int]:
        return {i for i, c in enumerate(self.header.components.get("cpu", ())) if c.get("node") == node}

    def _busiest_link(self, node: int) -> float:
        """Mean use, over the ticks that are kept, of the busiest link of a node; 0 where links are not known."""
        most = 0.0
        for i in range(self.header.count("link")):
            if self._touches(i, node):
                seen = [
                    v for f in self._past if (v := (f.values.get(self._use["link"]) or [None] * (i + 1))[i]) is not None
                ]
                most = max(most, sum(seen) / len(seen)) if seen else most
        return most

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
        """Up to three processes: those that run on hot CPUs, or whose memory on the hot node is in most use."""
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
