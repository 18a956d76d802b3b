"""Detects hot spots: components whose use stands out from their class over several ticks.

For every class (CPUs, memory controllers, links, I/O), a component is hot at a tick if its use exceeds a minimum, the
median of the class by both a quarter of the capacity and four robust deviations, and its fair share of the class's
total. A class of one or two components is judged by use alone. A component is a hot spot if it was hot in most of the
last ticks, and for so long that turns do not explain it. Consequences of another hot spot are listed as evidence, not
as hot spots: the links of a saturated memory, and the memory of a node that only the node's own busy CPU uses.

A balanced load has no hot spot, but its components take turns: at any moment some are in a memory phase, and the
others are idle. If the times for which components stay hot were drawn from an exponential distribution with mean b, a
turn would last L ticks or more with probability exp(-L / b), and N exp(-L / b) of N turns are expected to last that
long. N and b, with its standard error, come from the turns of other components that ended in the last `REACH` L
ticks, so N grows with the number of components that are compared. A component is a hot spot only if it has been hot
for so long that fewer than `CHANCE` such turns are expected. If no other component became hot after it, there is
nothing to compare with, and the component is a hot spot. If others did but no turn has ended yet, the first turns
decide, for which the detector waits up to `WAIT` ticks.

The rules follow Carrefour (Dashti et al., ASPLOS 2013: imbalance of controllers and links); the distinction between
CPU, memory, link and I/O bound follows Xmesh in section 5 of the GS1280 paper.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.values.units import plain
from meshmark.watch.frames import Frame, Header, check_places

CLASSES: Final = ("memory", "link", "io", "cpu")
MIN_USE: Final = {"memory": 0.35, "link": 0.45, "io": 0.6, "cpu": 0.5}  # minimum use of a hot component
FULL: Final = 0.85  # minimum use in a class of one or two
ABOVE: Final = 0.25  # minimum distance from the median of the class, as a share of capacity
DEVIATIONS: Final = 4.0
NEAR: Final = 0.1  # use of a node's links below which its memory serves only its own CPUs
SHARE: Final = 1.5  # minimum use relative to the mean of the class
KEPT: Final = 5  # number of recent ticks considered
HELD: Final = 4  # minimum number of recent ticks at which a hot spot is hot
CHANCE: Final = 1e-3  # largest expected number of turns as long as a hot spot
REACH: Final = 6  # turns of others count if they ended within this many times the ticks for which it has been hot
GOES_ON: Final = 0.75  # minimum use in a run, as a share of the use at its first tick
WAIT: Final = 20  # ticks to see whether components that became hot one after another take turns
MAX_TURNS: Final = 4096  # per class; older ones are dropped

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
        since_s: the first tick at which a component was hot, in the frames' time.
        use: mean use of the components over the recent ticks.
        usual: median use of the class over the same ticks.
        share: share of the components in the class's total use.
        evidence: other hot components that are consequences, by class.
        culprits: the busiest processes on these components, if known, the busiest first.
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
            "estimated": self.estimated,
            "text": str(self),
        }

    @property
    def verdict(self) -> str:
        """Return what a hot spot of this class means, in a few words."""
        return VERDICT[self.component_class]

    @property
    def advice(self) -> str:
        """Return what can be done about a hot spot of this class."""
        return ADVICE[self.component_class]

    def __str__(self) -> str:
        consequences = "".join(f"; {kind} {', '.join(names)} with it" for kind, names in self.evidence.items())
        names = ", ".join(self.names)
        use = f"{100 * self.use:.0f} % (median {100 * self.usual:.0f} %), {100 * self.share:.0f} % of all"
        causes = f" by {', '.join(self.culprits)}" if self.culprits else ""
        since = plain(self.since_s, "s")
        verdict = self.verdict + (" (estimated)" if self.estimated else "")
        return f"{verdict}: {names} at {use}, since {since}{causes}{consequences}. Advice: {self.advice}"


def hot_now(values: Sequence[float | None], min_use: float) -> set[int]:
    """Return the indices of the components that are hot at one tick; a component with an unknown value is not hot."""
    known_values = [v for v in values if v is not None]
    if not known_values or max(known_values) < min_use:
        return set()
    if len(known_values) <= 2:
        low = min(known_values)
        is_alone = len(known_values) == 1
        return {i for i, v in enumerate(values) if v is not None and v >= FULL and (is_alone or v >= 2 * low)}
    median = statistics.median(known_values)
    deviation = 1.4826 * statistics.median(abs(v - median) for v in known_values)
    threshold = max(min_use, median + max(ABOVE, DEVIATIONS * deviation))
    total = sum(known_values)
    return {
        i for i, v in enumerate(values) if v is not None and v >= threshold and v * len(known_values) >= SHARE * total
    }


@dataclass(slots=True)
class HotPeriod:
    """The time for which a component has been hot, with gaps of at most one tick.

    Attributes:
        start: number of the first tick.
        last: number of the last tick at which the component was hot.
        since_s: time of the first tick.
        use: use at the first tick.
        stands_out: whether the run was once longer than the turns of others explain, which remains so until it ends.
    """

    start: int
    last: int
    since_s: float
    use: float
    stands_out: bool = False

    @property
    def ticks(self) -> int:
        """Return the length of the period in ticks."""
        return self.last - self.start + 1


@dataclass(frozen=True, slots=True)
class HotPeriodEnd:
    """A run that has ended."""

    end: int  # number of the first tick after the run
    ticks: int
    place: tuple[str, int]  # the node of memory controllers, or the component itself


def lasts_longer(ticks: int, turns: Sequence[int]) -> bool:
    """Return whether a component that has been hot for some ticks outlasts what the turns of others explain.

    Args:
        ticks: Time for which the component has been hot.
        turns: Lengths of the turns of other components in ticks.
    """
    if not turns:
        return True
    count = len(turns)
    # One standard error is added, because few turns say little about the mean.
    mean = sum(turns) / count * (1 + 1 / math.sqrt(count))
    return count * math.exp(-ticks / mean) < CHANCE


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
        self._runs: dict[str, dict[int, HotPeriod]] = {c: {} for c in CLASSES}
        self._turns: dict[str, deque[HotPeriodEnd]] = {c: deque(maxlen=MAX_TURNS) for c in CLASSES}
        self._tick = 0

    def add(self, frame: Frame) -> list[HotSpot]:
        """Add a frame and return the current hot spots, likely causes first."""
        self._past.append(frame)
        self._tick += 1
        persistent: dict[str, set[int]] = {}
        for kind in CLASSES:
            hot_indices = hot_now(frame.values.get(self._use[kind], ()), MIN_USE[kind])
            ticks = self._hot[kind]
            ticks.append(hot_indices)
            self._follow(kind, hot_indices, frame)
            persistent[kind] = {i for t in ticks for i in t if sum(i in u for u in ticks) >= HELD}
        return self._explain(persistent)

    def _follow(self, kind: str, now: set[int], frame: Frame) -> None:
        """Begin and continue the runs of hot components, and end runs after two ticks at which they were not hot.

        A run also continues while others become as busy, because the component then does not stand out but is not idle.
        """
        runs, metric = self._runs[kind], self._use[kind]
        for i in now:
            if i not in runs:
                runs[i] = HotPeriod(self._tick, self._tick, frame.t_s, frame.value(metric, i) or 0.0)
        for i, run in list(runs.items()):
            if i in now or (frame.value(metric, i) or 0.0) >= GOES_ON * run.use:
                run.last = self._tick
            elif self._tick - run.last > 1:
                del runs[i]
                self._turns[kind].append(HotPeriodEnd(run.last + 1, run.ticks, self._place(kind, i)))

    def _stands_out(self, kind: str, number: int) -> bool:
        """Return whether a component has been hot for longer than the turns of other places explain."""
        run = self._runs[kind].get(number)
        if run is None:
            return False
        if not run.stands_out:
            first_tick, place = self._tick - REACH * run.ticks, self._place(kind, number)
            turn_ticks = [t.ticks for t in self._turns[kind] if t.end > first_tick and t.place != place]
            later_runs = [
                i for i, r in self._runs[kind].items() if r.start > run.start and self._place(kind, i) != place
            ]
            run.stands_out = lasts_longer(run.ticks, turn_ticks) and (
                bool(turn_ticks) or not later_runs or run.ticks >= WAIT
            )
        return run.stands_out

    def _place(self, kind: str, number: int) -> tuple[str, int]:
        """Return the place that takes a turn as a whole: the controllers of a node, or one component."""
        node = self.header.components[kind][number].get("node")
        return ("node", int(node)) if kind == "memory" and node is not None else ("component", number)

    def _explain(self, held: Mapping[str, set[int]]) -> list[HotSpot]:
        """Return the hot spots among the components that were hot in most of the recent ticks."""
        steady = {kind: {i for i in held[kind] if self._stands_out(kind, i)} for kind in CLASSES}
        spots: list[HotSpot] = []
        explained: set[tuple[str, int]] = set()
        local_memory: dict[int, tuple[str, ...]] = {}  # memory used only by its own node
        for node, indices in self._by_node("memory", steady["memory"]).items():
            # There is no remote traffic and a CPU of the node is hot, so this CPU causes the memory traffic.
            if node is not None and self._busiest_link(node) < NEAR and self._cpus_of(node) & steady["cpu"]:
                local_memory[node] = tuple(self._name("memory", i) for i in indices)
                explained |= {("memory", i) for i in indices}
        for kind in ("memory", "io", "link", "cpu"):
            unexplained = {i for i in steady[kind] if (kind, i) not in explained}
            if kind == "cpu" and any(s.component_class in {"memory", "link"} for s in spots):
                continue  # the CPU is likely stalled on memory or links
            for node, indices in self._by_node(kind, unexplained).items():
                evidence = {}
                if kind in {"memory", "io"} and node is not None:
                    hot_links = tuple(sorted(i for i in held["link"] if self._touches(i, node)))
                    # All hot links carry this traffic, not only the links of the node.
                    explained |= {("link", i) for i in held["link"]} if hot_links else set()
                    if hot_links:
                        evidence["link"] = tuple(self._name("link", i) for i in hot_links)
                cpu_node = self.header.components[kind][indices[0]].get("node")
                if kind == "cpu" and cpu_node in local_memory:
                    evidence["memory"] = local_memory[int(cpu_node)]
                spots.append(self._spot(kind, indices, node, evidence))
        return spots

    def _cpus_of(self, node: int) -> set[int]:
        return {i for i, c in enumerate(self.header.components.get("cpu", ())) if c.get("node") == node}

    def _busiest_link(self, node: int) -> float:
        """Return the mean use of the busiest link of a node over the recent ticks; 0 if links are unknown."""
        highest = 0.0
        for i in range(self.header.count("link")):
            if self._touches(i, node):
                known_values = [
                    v for f in self._past if (v := (f.values.get(self._use["link"]) or [None] * (i + 1))[i]) is not None
                ]
                highest = max(highest, sum(known_values) / len(known_values)) if known_values else highest
        return highest

    def _by_node(self, kind: str, numbers: set[int]) -> dict[int | None, list[int]]:
        grouped: dict[int | None, list[int]] = {}
        for i in sorted(numbers):
            node = self.header.components[kind][i].get("node")
            key = int(node) if node is not None else None if kind == "link" else -1 - i
            grouped.setdefault(key, []).append(i)
        return grouped

    def _touches(self, link: int, node: int) -> bool:
        ends = self.header.components["link"][link]
        router = self.header.components["node"][node].get("router", node)
        return router in {ends.get("from_router", ends.get("from")), ends.get("to_router", ends.get("to"))}

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
            min(self._runs[kind][i].since_s for i in mine),
            sum(means[i] for i in mine) / len(mine),
            statistics.median(means),
            sum(means[i] for i in mine) / total,
            evidence,
            self._culprits(kind, mine, node),
            kind in self._estimated,
        )

    def _culprits(self, kind: str, mine: Sequence[int], node: int | None) -> tuple[str, ...]:
        """Return up to three processes that run on the hot CPUs or whose memory is on the hot node, busiest first."""
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
