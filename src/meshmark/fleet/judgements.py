"""Judgements of a fleet: suspects of a campaign, and nodes named after fresh measurements.

judgements/CAMPAIGN.json    what was found, see `summary`
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import Baseline, fit
from meshmark.fleet.cases import Named, State, Worse, follow
from meshmark.fleet.classes import Class, classes
from meshmark.fleet.estimates import nan_median
from meshmark.fleet.folder import Fleet
from meshmark.fleet.judging import CONTROLS, FRESH, Discoveries, Screening, fresh_count, fresh_evidence, screen
from meshmark.fleet.panel import Panel, of_what, read_panel
from meshmark.fleet.trends import worse_since
from meshmark.fleet.values import Point, flagged_results, node_rows
from meshmark.store.files import held, write_file
from meshmark.values.units import counted

_OTHERS: Final = ("confirm", "pairs")  # kinds of campaigns that are not judged here
WINDOW: Final = 7  # campaigns that suspects are chosen by
_VALUES: Final = 28  # of a node at most, that a baseline is made of and that confirm a suspect
_CONFIRM_S: Final = 900.0  # time of a node for its confirmation, if more than the fewest values take so long
_SINCE: Final = 90  # campaigns in which the beginning of a fault is looked for
_NAMED_METRIC: Final = 0.05  # p-value, corrected for the node's metrics, up to which a metric is listed
SMALLEST: Final = 0.01  # relative difference that is worth a name
_CLEAREST: Final = 5  # metrics
_FEW: Final = 2  # nodes that may be wrong for reasons of their own in the smallest fleets
_Z: Final = 1.959963984540054


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


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet as its newest campaign shows it.

    Attributes:
        wrong: Nodes whose kernels computed wrong results and whose case is not open, and which results.
        common: Programs and kernels whose results are wrong on most nodes, which says nothing about a node.
        results, flagged: Number of results of the newest campaign, and how many of them are flagged.
    """

    panel: Panel
    campaign: str
    window: list[str]
    classes: list[Suspects]
    wrong: Mapping[str, list[str]]
    common: frozenset[str] = frozenset()
    results: int = 0
    flagged: int = 0

    def suspects(self) -> list[str]:
        """Names of all suspected nodes, and of those with wrong results."""
        found = [self.panel.nodes[c.of.members[i]] for c in self.classes if c.screening for i in c.screening.suspects]
        return sorted({*found, *self.wrong})

    def reason(self, one: Suspects) -> str:
        """Return why a class is not judged; "" if it is."""
        if one.screening is not None:
            return ""
        if not one.of.judged:
            return "too few to compare"
        if self.flagged:
            return f"not judged, since {self.flagged} of {counted(self.results, 'result')} are flagged"
        return "no metric that most of them have"

    def today(self) -> list[int]:
        """Which of the panel's values are those of the newest campaign."""
        return [k for k, campaign in enumerate(self.panel.of) if campaign == self.campaign]

    def newest(self) -> Array:
        """The values of the newest campaign, medians of their repetitions, shape (nodes, points)."""
        return nan_median(self.panel.values[:, self.today()], axis=1)


def look(fleet: Fleet, cluster: str, kind: str = "", until: str = "") -> Look:
    """Read the newest campaign and those before it, and choose suspects.

    Args:
        kind: check or survey; "": that of the newest.
        until: A campaign; "": the newest.

    Raises:
        AbsentError: No campaign has results.
    """
    window = campaigns_of(fleet, cluster, kind, until)[-WINDOW:]
    if not window:
        raise AbsentError(f"{fleet.root}: has no results to judge", f"meshmark fleet check {fleet.root}")
    panel = read_panel(fleet, window, cluster)
    state = State.load(fleet, cluster)
    found = [_suspects(panel, one, window[-1], set(state.open)) for one in classes(panel.facts)]
    common = _common(panel.wrong, panel.verdicts)
    own = _without(panel.wrong, common)
    wrong = {n: texts for n, texts in own.items() if n in panel.nodes and not _open_wrong(state, n)}
    return Look(panel, window[-1], window, found, wrong, common, *flagged_results(fleet, window[-1], cluster))


def _common(wrong: Mapping[str, Sequence[str]], verdicts: Mapping[str, int]) -> frozenset[str]:
    """What is wrong on most nodes that have a result of it: a fault of the program or of its expected value, not of
    these nodes.

    Args:
        verdicts: As of `Panel`.
    """
    counts = Counter(what for texts in wrong.values() for what in {of_what(text) for text in texts})
    return frozenset(what for what, count in counts.items() if count > max(_FEW, verdicts[what] / 2))


def _without(wrong: Mapping[str, Sequence[str]], common: frozenset[str]) -> dict[str, list[str]]:
    """Nodes with other wrong results than those, and which."""
    kept = {node: [text for text in texts if of_what(text) not in common] for node, texts in wrong.items()}
    return {node: texts for node, texts in kept.items() if texts}


def _open_wrong(state: State, node: str) -> bool:
    return node in state.open and bool(state.open[node].wrong)


def campaigns_of(fleet: Fleet, cluster: str, kind: str = "", until: str = "") -> list[str]:
    """The campaigns of a kind that have results, oldest first. The arguments are those of `look`."""
    done = [n for n in fleet.campaigns() if not n.startswith(_OTHERS) and fleet.files_of("nodes", n, cluster)]
    if until:
        done = [name for name in done if name.partition("-")[2] <= until.partition("-")[2]]
    kind = kind or (done[-1].partition("-")[0] if done else "")
    return [name for name in done if name.partition("-")[0] == kind]


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


def reference(fleet: Fleet, cluster: str, seen: Look) -> Panel:
    """The values that fresh ones are compared with: as many as a confirmation of a quarter of an hour has time for.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    rows = node_rows(fleet, [seen.campaign], cluster)
    each_s = float(np.median([row["elapsed_s"] or 0.0 for row in rows])) / max(1, len(seen.today()))
    count = min(_VALUES, max(FRESH, int(_CONFIRM_S / max(each_s, 1e-3))))
    known = campaigns_of(fleet, cluster, seen.campaign.partition("-")[0], seen.campaign)
    return read_panel(fleet, known[-math.ceil(count / max(1, len(seen.today()))) :], cluster)


def fresh_values(against: Panel) -> int:
    """How many values of each node a confirmation needs."""
    return fresh_count(len(against.of))


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Fresh values of suspects and controls, measured after `against`."""

    fresh: Panel
    against: Panel


def decide(fleet: Fleet, cluster: str, seen: Look, confirmation: Confirmation | None) -> list[Named]:
    """Name nodes, and remember that this campaign has been decided on.

    Args:
        confirmation: None if there are no suspects.
    """
    with held(State.path(fleet, cluster).parent):
        state = State.load(fleet, cluster)
        if seen.campaign in state.judged:
            raise MeshmarkError(f"{seen.campaign}: was judged before", f"meshmark fleet check {fleet.root}")
        tests = [test for one in seen.classes for test in _tests(seen, one, confirmation)]
        nodes = sum(len(one.of.members) for one in seen.classes if one.screening)
        discoveries = Discoveries(state.discoveries)
        decisions = discoveries.decide([t.p for t in tests], max(nodes, len(tests), 1))
        positive = [t for t, yes in zip(tests, decisions, strict=True) if yes]
        found = _named(fleet, cluster, seen, positive, _wrong(seen, confirmation))
        follow(state, seen.campaign, _shifts(seen, set(state.open)))
        state.discoveries = discoveries.state()
        state.judged.append(seen.campaign)
        state.open |= {n.node: n for n in found}
        write_file(
            fleet.root / "judgements" / f"{seen.campaign}.json",
            json.dumps(summary(seen, found), indent=1).encode() + b"\n",
        )
        state.save(fleet, cluster)
    return found


def _named(
    fleet: Fleet, cluster: str, seen: Look, positive: Sequence[_Test], wrong: Mapping[str, list[str]]
) -> list[Named]:
    """The nodes that compute wrongly, and those that are worse by an amount that matters."""
    big = {t.node: [m for m in t.metrics if m.by >= SMALLEST] for t in positive}
    p = {t.node: t.p for t in positive if big[t.node]}
    class_of = {seen.panel.nodes[m]: one.of for one in seen.classes for m in one.of.members}
    facts = dict(zip(seen.panel.nodes, seen.panel.facts, strict=True))
    cases = {n: (big[n][0].key, [seen.panel.nodes[m] for m in class_of[n].members]) for n in p}
    until = campaigns_of(fleet, cluster, seen.campaign.partition("-")[0], seen.campaign)[-_SINCE:]
    since = worse_since(fleet, cluster, until, cases) if cases else {}
    return [
        Named(
            node=node,
            kind=class_of[node].name,
            p=0.0 if node in wrong else p[node],
            metrics=big.get(node, []),
            wrong=wrong.get(node, []),
            differs=class_of[node].deviations(facts[node]),
            campaign=seen.campaign,
            since=since.get(node, seen.campaign if node not in cases else ""),
        )
        for node in sorted({*p, *wrong}, key=lambda n: (n not in wrong, p.get(n, 0.0), n))
    ]


def _wrong(seen: Look, confirmation: Confirmation | None) -> dict[str, list[str]]:
    """Nodes whose kernels computed wrong results, and which: no healthy node ever does, so that once is enough."""
    again = _without(confirmation.fresh.wrong, seen.common) if confirmation else {}
    found = {n: [f"{text} (not again)" for text in texts] for n, texts in seen.wrong.items() if n not in again}
    return found | {n: list(texts) for n, texts in again.items() if n in seen.panel.nodes}


def _shifts(seen: Look, nodes: set[str]) -> dict[str, dict[str, float]]:
    """By how much nodes are worse than their class in the newest campaign, by the keys of points."""
    import numpy as np

    newest = seen.newest()
    found = {}
    for one in seen.classes:
        for i in one.of.members if one.screening else ():
            if seen.panel.nodes[i] in nodes:
                assert one.screening is not None
                shift = newest[i, one.points] - one.screening.baseline.middle
                found[seen.panel.nodes[i]] = {
                    seen.panel.points[k].key: math.expm1(by)
                    for k, by in zip(one.points, shift, strict=True)
                    if not np.isnan(by)
                }
    return found


@dataclass(frozen=True, slots=True)
class _Test:
    """A suspect with its fresh values: their p-value and the metrics that are worse, the clearest first."""

    node: str
    p: float
    metrics: list[Worse]


def _tests(seen: Look, one: Suspects, confirmation: Confirmation | None) -> list[_Test]:
    """Suspects of a class with their p-values from fresh values."""

    if one.screening is None or confirmation is None:
        return []
    fresh, against = confirmation.fresh, confirmation.against
    names = [seen.panel.nodes[m] for m in one.of.members]
    suspects = [names[i] for i in one.screening.suspects if names[i] in fresh.nodes]
    if not suspects:
        return []
    points = [seen.panel.points[i] for i in one.points]
    members = [n for n in against.nodes if n in set(names)]
    baseline = fit(_of(against, members, points), groups_of(points))
    controls = [n for n in members if n in fresh.nodes and n not in suspects]
    rows = [members.index(n) for n in controls]
    found = fresh_evidence(baseline, _of(fresh, suspects, points), _of(fresh, controls, points), rows)
    return [
        _Test(name, float(found.node[i]), clear_metrics(points, found.shift[i], baseline, found.metrics[i]))
        for i, name in enumerate(suspects)
    ]


def clear_metrics(points: Sequence[Point], shift: Array, baseline: Baseline, p: Array) -> list[Worse]:
    """The metrics in which a node is worse, the clearest first; if none is significant alone, the clearest."""
    import numpy as np

    found = [_worse(points[k], float(shift[k]), float(baseline.scale[k]), float(p[k])) for k in np.argsort(p)]
    return [m for m in found if m.p * len(points) <= _NAMED_METRIC] or found[:_CLEAREST]


def _worse(point: Point, shift: float, scale: float, p: float) -> Worse:
    low, high = (math.expm1(shift + side * _Z * scale) for side in (-1, 1))
    return Worse(point.key, point.instrument, point.metric, point.conditions, math.expm1(shift), low, high, p)


def _of(panel: Panel, nodes: Sequence[str], points: Sequence[Point]) -> Array:
    """Values of these nodes and points, shape (nodes, k, points)."""
    import numpy as np

    row_of = {name: i for i, name in enumerate(panel.nodes)}
    column_of = {p.key: i for i, p in enumerate(panel.points)}
    found = np.full((len(nodes), panel.values.shape[1], len(points)), np.nan)
    known = [k for k, p in enumerate(points) if p.key in column_of]
    columns = [column_of[points[k].key] for k in known]
    for i, name in enumerate(nodes):
        found[i][:, known] = panel.values[row_of[name]][:, columns]
    return found


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
