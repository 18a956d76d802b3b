"""Detects hot spots: components whose use stands out from their class for longer than a phase of a balanced load.

`periods` contains the test. It is applied to every class (CPUs, memory controllers, links, I/O) separately. This module
turns components that stand out into findings. If several components are hot together, the primary one is reported, and
the consequences are listed as evidence: the links that lead to a saturated memory, the memory behind a saturated link,
and the memory of a node that only the node's own busy CPU uses. If all memories are as busy, there is no hot spot, but
the memory of the machine may be saturated.

The rules follow Carrefour (Dashti et al., ASPLOS 2013: imbalance of controllers and links); the distinction between
CPU, memory, link and I/O bound follows Xmesh in section 5 of the GS1280 paper.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from meshmark.values.units import NBSP, percent, plain
from meshmark.watch.findings.causes import (
    WAITING,
    RecentFrames,
    cpu_causes,
    io_causes,
    is_computing,
    memory_causes,
    remote_text,
    stalls_text,
    waiting_share,
)
from meshmark.watch.findings.periods import ALONE, SHORTEST, Periods
from meshmark.watch.frames import Frame, Header, check_places

CLASSES: Final = ("memory", "link", "io", "cpu")
MIN_USE: Final = {"memory": 0.35, "link": 0.45, "io": 0.6, "cpu": 0.5}  # minimum use of a hot component
FULL: Final = ALONE  # minimum use of a saturated component
NEAR: Final = 0.1  # use of a node's links below which its memory serves only its own CPUs

ADVICE: Final = {
    "memory": "interleave its pages over more nodes, or move the threads that use them to this node",
    "link": "place communicating programs closer together, or spread their memory so that more links share traffic",
    "io": "spread the requests over more devices, or place the program near the device's node",
    "cpu": "use more threads, or move other programs away from this CPU",
}
WAITING_ADVICE: Final = "place its pages on its own node, or make more of its accesses hit the caches"
SATURATED_ADVICE: Final = (
    "use fewer threads, or make more of the accesses hit the caches; moving pages between nodes cannot help"
)
VERDICT: Final = {"memory": "memory bound", "link": "link bound", "io": "I/O bound", "cpu": "CPU bound"}


@dataclass(frozen=True, slots=True)
class HotSpot:
    """Components of one class that are hot together.

    Attributes:
        node: the node of the components; of links, the node whose saturated links they are, if there is one.
        since_s: the first tick at which a component was hot, in the frames' time.
        use: mean use of the components over the recent ticks.
        usual: median use of the class over the same ticks.
        share: share of the components in the class's total use.
        evidence: other hot components that are consequences, by class.
        culprits: the busiest processes on these components, if known, the busiest first.
        estimated: whether the use is inferred, not counted.
        causes: likely causes, each with its evidence.
        facts: further figures from counters: stalls, and the share of remote accesses.
        is_waiting: whether these are CPUs that wait for memory in most of their cycles.
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
    causes: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    is_waiting: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the hot spot as JSON; shares are rounded to four digits."""
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
            "causes": list(self.causes),
            "facts": list(self.facts),
            "estimated": self.estimated,
            "text": str(self),
        }

    @property
    def verdict(self) -> str:
        """Return what a hot spot of this class means, in a few words."""
        return "CPU waits for memory" if self.is_waiting else VERDICT[self.component_class]

    @property
    def advice(self) -> str:
        """Return what can be done about a hot spot of this class."""
        if self.component_class == "link" and self.node is not None:
            return ADVICE["memory"]
        return WAITING_ADVICE if self.is_waiting else ADVICE[self.component_class]

    def __str__(self) -> str:
        consequences = "".join(f"; {kind} {', '.join(names)} with it" for kind, names in self.evidence.items())
        names = ", ".join(self.names)
        use = f"{100 * self.use:.0f} % (median {100 * self.usual:.0f} %), {100 * self.share:.0f} % of all"
        processes = f" by {', '.join(self.culprits)}" if self.culprits else ""
        since = plain(self.since_s, "s")
        verdict = self.verdict + (" (estimated)" if self.estimated else "")
        facts = "".join(f"; {fact}" for fact in self.facts)
        causes = f". Likely cause: {'; '.join(self.causes)}" if self.causes else ""
        text = f"{verdict}: {names} at {use}, since {since}{processes}{consequences}{facts}{causes}"
        return f"{text}. Advice: {self.advice}".replace(NBSP, " ")


@dataclass(frozen=True, slots=True)
class SaturatedMemory:
    """All memories of a machine are at their limit, so that no other one could take over some of the load.

    Attributes:
        count: number of memory controllers.
        use: mean use of the controllers over the recent frames.
        estimated: whether the use is inferred, not counted.
    """

    count: int
    since_s: float
    use: float
    estimated: bool = False
    facts: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON, with the keys of a hot spot; the empty list of components means all."""
        return {
            "class": "memory",
            "components": [],
            "verdict": "memory saturated",
            "since_s": self.since_s,
            "use": round(self.use, 4),
            "estimated": self.estimated,
            "text": str(self),
        }

    def __str__(self) -> str:
        verdict = "memory saturated" + (" (estimated)" if self.estimated else "")
        subject = f"all {self.count} memory controllers are" if self.count > 1 else "the memory controller is"
        facts = "".join(f"; {fact}" for fact in self.facts)
        text = f"{verdict}: {subject} at {percent(self.use)}, since {plain(self.since_s, 's')}{facts}"
        return f"{text}. Advice: {SATURATED_ADVICE}".replace(NBSP, " ")


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
        self._past: deque[Frame] = deque(maxlen=SHORTEST)
        self._periods = {c: Periods(self._places(c), MIN_USE[c], len(CLASSES), alone=c != "memory") for c in CLASSES}
        self._saturated_since_s: float | None = None
        self._links_by_router: dict[int, list[int]] = {}
        for i, link in enumerate(header.components.get("link", ())):
            for end in {link.get("from_router", link.get("from")), link.get("to_router", link.get("to"))}:
                self._links_by_router.setdefault(end, []).append(i)

    def add(self, frame: Frame) -> list[HotSpot]:
        """Add a frame and return the current hot spots, likely causes first."""
        self._past.append(frame)
        for kind, periods in self._periods.items():
            periods.add(frame.values.get(self._use[kind], ()), frame.t_s)
        if not any(np.any(p.standing) for p in self._periods.values()):
            return []
        return self._explain(RecentFrames(self.header, self._past))

    @property
    def saturated(self) -> SaturatedMemory | None:
        """Return the finding that all memories are at their limit; None if one of them is not, or is unknown."""
        means = self._periods["memory"].mean_use()
        if len(self._past) < SHORTEST or not len(means) or np.min(means) < FULL:
            self._saturated_since_s = None
            return None
        if self._saturated_since_s is None:
            self._saturated_since_s = self._past[0].t_s
        remote = remote_text(RecentFrames(self.header, self._past))
        return SaturatedMemory(
            self.header.count("memory"),
            self._saturated_since_s,
            float(means.mean()),
            "memory" in self._estimated,
            (remote,) if remote else (),
        )

    def _places(self, kind: str) -> list[list[int]]:
        """Return the components of each place: the controllers of a node, or one component."""
        places: dict[tuple[str, int], list[int]] = {}
        for i, component in enumerate(self.header.components.get(kind, ())):
            node = component.get("node")
            key = ("node", int(node)) if kind == "memory" and node is not None else ("component", i)
            places.setdefault(key, []).append(i)
        return list(places.values())

    def _explain(self, recent: RecentFrames) -> list[HotSpot]:
        """Return the hot spots among the components that stand out."""
        steady = {kind: p.components(p.standing) for kind, p in self._periods.items()}
        links, memories = self._periods["link"], self._periods["memory"]
        hot_links = links.components(links.recently_high | links.standing)
        spots: list[HotSpot] = []
        explained: set[tuple[str, int]] = set()
        # A memory that has been high for almost as long explains its links and busy CPUs, once it stands out too.
        undecided = self._by_node("memory", memories.components(memories.recently_high & ~memories.standing))
        for node in undecided:
            explained |= {("link", i) for i in self._links(node)} if node is not None else set()
        local_memory: dict[int, tuple[str, ...]] = {}  # memory used only by its own node
        for node, indices in self._by_node("memory", steady["memory"]).items():
            # There is no remote traffic and a CPU of the node is hot, so this CPU causes the memory traffic.
            if node is not None and self._has_quiet_links(node) and self._cpus_of(node) & steady["cpu"]:
                local_memory[node] = tuple(self._name("memory", i) for i in indices)
                explained |= {("memory", i) for i in indices}
        for kind in ("memory", "io", "link", "cpu"):
            unexplained = {i for i in steady[kind] if (kind, i) not in explained}
            if kind == "cpu" and (undecided or any(s.component_class in {"memory", "link"} for s in spots)):
                # The CPU is likely stalled on memory or links, unless counters state that it is not.
                unexplained = {i for i in unexplained if is_computing(recent, i)}
            for node, indices in self._by_node(kind, unexplained).items():
                consequences = {}
                if kind in {"memory", "io"} and node is not None:
                    near_links = tuple(i for i in self._links(node) if i in hot_links)
                    # All hot links carry this traffic, not only the links of the node.
                    explained |= {("link", i) for i in hot_links} if near_links else set()
                    if kind == "memory" and (limits := self._limiting_links(indices, near_links)):
                        behind = {"memory": tuple(self._name("memory", i) for i in indices)}
                        spots.append(self._spot("link", limits, node, behind, recent))
                        continue
                    if near_links:
                        consequences["link"] = tuple(self._name("link", i) for i in near_links)
                cpu_node = self.header.components[kind][indices[0]].get("node")
                if kind == "cpu" and cpu_node in local_memory:
                    consequences["memory"] = local_memory[int(cpu_node)]
                spots.append(self._spot(kind, indices, node, consequences, recent))
        return spots

    def _limiting_links(self, memories: Sequence[int], links: Sequence[int]) -> tuple[int, ...]:
        """Return the saturated links of a node whose memory is not saturated: they, not the memory, are the limit."""
        if self._means("memory")[list(memories)].mean() >= FULL:
            return ()
        return tuple(i for i in links if self._means("link")[i] >= FULL)

    def _means(self, kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self._periods[kind].mean_by_component(self.header.count(kind))

    def _cpus_of(self, node: int) -> set[int]:
        return {i for i, c in enumerate(self.header.components.get("cpu", ())) if c.get("node") == node}

    def _has_quiet_links(self, node: int) -> bool:
        """Return whether the links of a node were almost idle in the recent frames; False if their use is unknown."""
        means = self._means("link")
        near = self._links(node)
        known = any(f.value(self._use["link"], i) is not None for f in self._past for i in near)
        return known and max(float(means[i]) for i in near) < NEAR

    def _by_node(self, kind: str, numbers: set[int]) -> dict[int | None, list[int]]:
        grouped: dict[int | None, list[int]] = {}
        for i in sorted(numbers):
            node = self.header.components[kind][i].get("node")
            key = int(node) if node is not None else None if kind == "link" else -1 - i
            grouped.setdefault(key, []).append(i)
        return grouped

    def _links(self, node: int) -> list[int]:
        """Return the links that lead to the router of a node or from it."""
        nodes = self.header.components.get("node", ())
        router = nodes[node].get("router", node) if node < len(nodes) else node
        return self._links_by_router.get(router, [])

    def _name(self, kind: str, number: int) -> str:
        return str(self.header.components[kind][number].get("name", number))

    def _spot(
        self,
        kind: str,
        mine: Sequence[int],
        node: int | None,
        consequences: Mapping[str, tuple[str, ...]],
        recent: RecentFrames,
    ) -> HotSpot:
        periods, means = self._periods[kind], self._means(kind)
        known_node = node if node is None or node >= 0 else None
        causes: list[str] = []
        facts: list[str] = []
        waiting: float | None = None
        if kind == "cpu":
            causes = cpu_causes(recent, mine)
            waiting = waiting_share(recent, mine)
            facts.append(stalls_text(recent, mine))
        elif kind == "io":
            causes = io_causes(recent, mine)
        elif known_node is not None:
            causes = memory_causes(recent, known_node)
        if kind in {"memory", "link"}:
            facts.append(remote_text(recent))
        return HotSpot(
            kind,
            tuple(mine),
            tuple(self._name(kind, i) for i in mine),
            known_node,
            periods.since(mine),
            float(means[list(mine)].mean()),
            float(np.median(means)),
            float(means[list(mine)].sum()) / (float(means.sum()) or 1.0),
            consequences,
            self._culprits(kind, mine, node),
            kind in self._estimated,
            tuple(causes),
            tuple(fact for fact in facts if fact),
            waiting is not None and waiting >= WAITING,
        )

    def _culprits(self, kind: str, mine: Sequence[int], node: int | None) -> tuple[str, ...]:
        """Return up to three processes that run on the hot CPUs or whose memory is on the hot node, busiest first."""
        weights: list[tuple[float, str]] = []
        for p in self._past[-1].processes:
            cpu = float(p.get("cpu") or 0)
            if kind == "cpu":
                numbers = {self.header.components["cpu"][i].get("number", i) for i in mine}
                weight = cpu if p.get("on") in numbers else 0.0
            elif (
                kind in {"memory", "link"}
                and node is not None
                and isinstance(p.get("nodes"), list)
                and 0 <= node < len(p["nodes"])
            ):
                weight = cpu * float(p["nodes"][node])
            else:
                weight = 0.0
            if weight > 0:
                weights.append((weight, f"{p.get('name')} ({p.get('pid')})"))
        return tuple(name for _, name in sorted(weights, reverse=True)[:3])
