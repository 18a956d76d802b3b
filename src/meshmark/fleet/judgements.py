"""Judgements of a fleet: suspects of a campaign, nodes named after fresh measurements, and the cases that stay open.

    judgements/CAMPAIGN.json      what was found, see `Judgement`
    judgements/CLUSTER.state.json the discoveries so far and the open cases

A node that is named is an open case until its fresh values are those of its class again; it is not suspected meanwhile.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.fleet.classes import Class, classes
from meshmark.fleet.folder import Fleet
from meshmark.fleet.judging import CONTROLS, Discoveries, Screening, fresh_count, fresh_evidence, screen
from meshmark.fleet.panel import Panel, Point, read_panel
from meshmark.store.files import read_json, write_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
else:
    Array = Any

WINDOW: Final = 7  # campaigns that a baseline is made of
_NAMED_METRIC: Final = 0.05  # p-value, corrected for the node's metrics, up to which a metric is listed
_SMALLEST: Final = 0.01  # relative difference that is worth a name
_CLEAREST: Final = 5  # metrics
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Worse:
    """A metric in which a node is worse than its class.

    Attributes:
        by: Relative difference, such as 0.05 for 5 % slower.
        low, high: Its 95 % interval.
        p: Of a healthy node.
    """

    instrument: str
    metric: str
    conditions: Mapping[str, Any]
    by: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Named:
    """A node that is worse than its class.

    Attributes:
        p: That a healthy node has such fresh values.
        metrics: The clearest first.
        wrong: Kernels that computed wrong results.
        differs: Facts that are not those of its class: the node's, the class's.
        since: The campaign in which it was named.
    """

    node: str
    kind: str
    p: float
    metrics: list[Worse]
    wrong: list[str]
    differs: Mapping[str, Sequence[str]]
    since: str


@dataclass(frozen=True, slots=True)
class Suspects:
    """What a campaign says about a class, before fresh measurements.

    Attributes:
        points: Indices of the panel's points that are judged.
        screening: None if the class has too few nodes.
    """

    of: Class
    points: list[int]
    screening: Screening | None


@dataclass
class State:
    """What lasts from day to day.

    Attributes:
        discoveries: Of `judging.Discoveries`; None before the first day.
        open: Cases by node.
        judged: Campaigns that were decided on; each is once.
    """

    discoveries: Mapping[str, Any] | None = None
    open: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    judged: list[str] = field(default_factory=list)

    @staticmethod
    def path(fleet: Fleet, cluster: str) -> Path:
        return fleet.root / "judgements" / f"{cluster}.state.json"

    @staticmethod
    def load(fleet: Fleet, cluster: str) -> State:
        """The state, which is empty at first.

        Raises:
            MeshmarkError: The file is damaged: deciding without it would forget what was decided.
        """
        path = State.path(fleet, cluster)
        if not path.exists():
            return State()
        raw = read_json(path)
        try:
            return State(raw["discoveries"], dict(raw["open"]), list(raw["judged"]))
        except (KeyError, TypeError, ValueError) as why:
            raise MeshmarkError(f"{path}: not the state of a fleet") from why

    def save(self, fleet: Fleet, cluster: str) -> None:
        write_file(State.path(fleet, cluster), json.dumps(dataclasses.asdict(self), indent=1).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet as its newest campaign shows it."""

    panel: Panel
    campaign: str
    window: list[str]
    classes: list[Suspects]

    def suspects(self) -> list[str]:
        """Names of all suspected nodes, and of those with wrong results."""
        found = [self.panel.nodes[c.of.members[i]] for c in self.classes if c.screening for i in c.screening.suspects]
        return sorted({*found, *(n for n in self.panel.wrong if n in self.panel.nodes)})


def look(fleet: Fleet, cluster: str, kind: str = "", until: str = "") -> Look:
    """Read the newest campaign and those before it, and choose suspects.

    Args:
        kind: check or survey; "": that of the newest.
        until: A campaign; "": the newest.

    Raises:
        AbsentError: No campaign has results.
    """
    done = [name for name in fleet.campaigns() if not name.startswith("confirm") and _has_results(fleet, name, cluster)]
    if until:
        done = [name for name in done if (name.partition("-")[2], name) <= (until.partition("-")[2], until)]
    kind = kind or (done[-1].partition("-")[0] if done else "")
    window = [name for name in done if name.partition("-")[0] == kind][-WINDOW:]
    if not window:
        raise AbsentError(f"{fleet.root}: has no results to judge", f"meshmark fleet check {fleet.root}")
    panel = read_panel(fleet, window, cluster)
    state = State.load(fleet, cluster)
    found = [_suspects(panel, one, window[-1], set(state.open)) for one in classes(panel.facts)]
    return Look(panel, window[-1], window, found)


def _has_results(fleet: Fleet, name: str, cluster: str) -> bool:
    return any(fleet.table("nodes", name, cluster).glob(f"{name}-*.parquet"))


def _suspects(panel: Panel, of: Class, newest: str, known: set[str]) -> Suspects:
    import numpy as np

    values = panel.values[of.members]
    # Metrics that most nodes have, in most values.
    enough = (~np.isnan(values)).any(axis=1).mean(axis=0) > 0.5 if len(of.members) else np.zeros(0, bool)
    points = [int(i) for i in np.flatnonzero(enough)]
    if not of.judged or not points:
        return Suspects(of, points, None)
    today = sum(campaign == newest for campaign in panel.of)
    skip = {i for i, m in enumerate(of.members) if panel.nodes[m] in known}
    groups = groups_of([panel.points[i] for i in points])
    return Suspects(of, points, screen(values[:, :, points], today, groups, skip))


def groups_of(points: Sequence[Point]) -> Array:
    """Metrics that one fault may shift together: those of an instrument, shape (points, groups), bool."""
    import numpy as np

    names = [p.instrument for p in points]
    kept = [name for name in sorted(set(names)) if 1 < names.count(name) < len(names)]
    return np.array([[name == k for k in kept] for name in names], bool).reshape(len(names), len(kept))


def controls(seen: Look, seed: int = 0) -> list[str]:
    """Healthy nodes that measure again beside the suspects: of each class with suspects, those that are most likely
    healthy, in a random order."""
    import numpy as np

    found: list[str] = []
    for one in seen.classes:
        if one.screening is None or not one.screening.suspects:
            continue
        healthy = np.flatnonzero(one.screening.p >= np.median(one.screening.p))
        chosen = np.random.default_rng(seed).permutation(healthy)[:CONTROLS]
        found += [seen.panel.nodes[one.of.members[int(i)]] for i in chosen]
    return found


def fresh_values(seen: Look) -> int:
    """How many values of each node a confirmation needs."""
    return fresh_count(seen.panel.values.shape[1])


def decide(fleet: Fleet, cluster: str, seen: Look, fresh: Panel | None) -> list[Named]:
    """Name nodes, and remember that this campaign has been decided on.

    Args:
        fresh: Values of suspects and controls, measured after `seen`; None if there are no suspects.
    """
    state = State.load(fleet, cluster)
    if seen.campaign in state.judged:
        raise MeshmarkError(f"{seen.campaign}: was judged before", f"meshmark fleet check {fleet.root}")
    tests: list[tuple[str, float, list[Worse], Class]] = []
    for one in seen.classes:
        tests += _tests(seen, one, fresh)
    nodes = sum(len(one.of.members) for one in seen.classes if one.screening)
    discoveries = Discoveries(state.discoveries)
    decisions = discoveries.decide([p for _, p, _, _ in tests], max(nodes, len(tests), 1))
    found = []
    for (node, p, metrics, of), yes in zip(tests, decisions, strict=True):
        wrong = list(fresh.wrong.get(node, ())) if fresh else []
        big = [m for m in metrics if m.by >= _SMALLEST]
        if wrong or (yes and big):
            facts = seen.panel.facts[seen.panel.nodes.index(node)]
            found.append(Named(node, of.name, p, big, wrong, of.deviations(facts), seen.campaign))
    found.sort(key=lambda n: (not n.wrong, n.p))
    state.discoveries = discoveries.state()
    state.judged.append(seen.campaign)
    state.open |= {n.node: dataclasses.asdict(n) for n in found}
    write_file(
        fleet.root / "judgements" / f"{seen.campaign}.json",
        json.dumps(summary(seen, found), indent=1).encode() + b"\n",
    )
    state.save(fleet, cluster)
    return found


def _tests(seen: Look, one: Suspects, fresh: Panel | None) -> list[tuple[str, float, list[Worse], Class]]:
    """Suspects of a class with their p-values from fresh values."""
    import numpy as np

    if one.screening is None or fresh is None:
        return []
    names = [seen.panel.nodes[m] for m in one.of.members]
    chosen = [i for i in one.screening.suspects if names[i] in fresh.nodes]
    chosen += [i for i, n in enumerate(names) if n in fresh.wrong and i not in chosen and n in fresh.nodes]
    if not chosen:
        return []
    healthy = [i for i, n in enumerate(names) if n in fresh.nodes and i not in chosen]
    points = [seen.panel.points[i] for i in one.points]
    values = {i: _aligned(fresh, names[i], points) for i in (*chosen, *healthy)}
    window = (
        seen.panel.values[np.array(one.of.members)[healthy]][:, :, one.points]
        if healthy
        else np.empty((0, 1, len(points)))
    )
    stacked = np.array([values[i] for i in healthy]) if healthy else np.empty((0, 1, len(points)))
    baseline = one.screening.baseline
    found = fresh_evidence(baseline, np.array([values[i] for i in chosen]), stacked, window)
    tests = []
    for row, i in enumerate(chosen):
        p = found.metrics[row]
        metrics = [
            _worse(points[k], float(found.shift[row, k]), float(baseline.scale[k]), float(p[k])) for k in np.argsort(p)
        ]
        # Of a node of which no metric is significant alone, the clearest are listed.
        clear = [m for m in metrics if m.p * len(points) <= _NAMED_METRIC] or metrics[:_CLEAREST]
        tests.append((names[i], float(found.node[row]), clear, one.of))
    return tests


def _worse(point: Point, shift: float, scale: float, p: float) -> Worse:
    low, high = (math.expm1(shift + side * _Z * scale) for side in (-1, 1))
    return Worse(point.instrument, point.metric, point.conditions, math.expm1(shift), low, high, p)


def _aligned(fresh: Panel, node: str, points: Sequence[Point]) -> Array:
    """Values of a node for these points, shape (r, points)."""
    import numpy as np

    at = {p.key: i for i, p in enumerate(fresh.points)}
    own = fresh.values[fresh.nodes.index(node)]
    missing = np.full(own.shape[0], np.nan)
    return np.stack([own[:, at[p.key]] if p.key in at else missing for p in points], axis=1)


def summary(seen: Look, named: Sequence[Named]) -> dict[str, Any]:
    """What was found, for files and programs."""
    return {
        "campaign": seen.campaign,
        "window": seen.window,
        "nodes": len(seen.panel.nodes),
        "classes": [
            {
                "name": one.of.name,
                "nodes": len(one.of.members),
                "metrics": len(one.points),
                "judged": one.screening is not None,
                "suspects": [seen.panel.nodes[one.of.members[i]] for i in one.screening.suspects]
                if one.screening
                else [],
            }
            for one in seen.classes
        ],
        "named": [dataclasses.asdict(n) for n in named],
    }
