"""Judgements of a fleet: suspects of a campaign, and nodes named after fresh measurements.

judgements/CAMPAIGN.json    the judgement of a campaign, see `summary`
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
from meshmark.fleet.cases import CasesState, NamedNode, WorseMetric, follow
from meshmark.fleet.data.panel import NodePanel, of_what, read_panel
from meshmark.fleet.data.values import FleetPoint, flagged_results, node_rows
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.baseline import Baseline, fit
from meshmark.fleet.health.classes import NodeClass, classes
from meshmark.fleet.health.screening import CONTROLS, FRESH, Discoveries, Screening, fresh_count, fresh_evidence, screen
from meshmark.fleet.health.trends import worse_since
from meshmark.statistics.arrays import Array
from meshmark.statistics.estimates import nan_median
from meshmark.store.files import write_file
from meshmark.store.session import held
from meshmark.values.units import counted

_OTHERS: Final = ("confirm", "pairs")  # kinds of campaigns that are not judged here
WINDOW: Final = 7  # number of campaigns from which suspects are chosen
_VALUES: Final = 28  # largest number of values of a node in a baseline, and in a confirmation
_CONFIRM_S: Final = 900.0  # largest time of a node for its confirmation, unless `FRESH` values take longer
_SINCE: Final = 90  # number of campaigns in which the beginning of a fault is searched for
_NAMED_METRIC: Final = 0.05  # p-value, corrected for the node's metrics, up to which a metric is listed
SMALLEST: Final = 0.01  # least relative difference for which a node is named
_CLEAREST: Final = 5  # metrics that are listed if none is significant
_FEW: Final = 2  # even in the smallest fleets, this many nodes may be wrong for independent reasons
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Suspects:
    """The suspects of a class in a campaign, before fresh measurements.

    Attributes:
        of: The class.
        points: Indices of the points of the panel that are judged.
        screening: None if the class has too few nodes.
    """

    of: NodeClass
    points: list[int]
    screening: Screening | None


@dataclass(frozen=True, slots=True)
class FleetState:
    """The state of a fleet in its newest campaign.

    Attributes:
        campaign: The newest campaign.
        window: Campaigns whose values are in the panel, oldest first.
        wrong: Wrong results by node, without nodes that have an open case with wrong results.
        common: Programs and kernels whose results are wrong on most nodes, which is not a fault of a node.
        results, flagged: Number of results of the newest campaign, and number of flagged results.
    """

    panel: NodePanel
    campaign: str
    window: list[str]
    classes: list[Suspects]
    wrong: Mapping[str, list[str]]
    common: frozenset[str] = frozenset()
    results: int = 0
    flagged: int = 0

    def suspects(self) -> list[str]:
        """Return the names of all suspected nodes and of nodes with wrong results."""
        suspects = [
            self.panel.nodes[group.of.members[i]]
            for group in self.classes
            if group.screening
            for i in group.screening.suspects
        ]
        return sorted({*suspects, *self.wrong})

    def reason(self, suspects: Suspects) -> str:
        """Return why a class is not judged; "" if it is judged."""
        if suspects.screening is not None:
            return ""
        if not suspects.of.judged:
            return "too few to compare"
        if self.flagged:
            return f"not judged, since {self.flagged} of {counted(self.results, 'result')} are flagged"
        return "no metric that most of them have"

    def today(self) -> list[int]:
        """Return the indices of the values of the newest campaign in the panel."""
        return [k for k, campaign in enumerate(self.panel.of) if campaign == self.campaign]

    def newest(self) -> Array:
        """Return the values of the newest campaign, as medians of their repetitions, shape (nodes, points)."""
        return nan_median(self.panel.values[:, self.today()], axis=1)


def look(fleet: Fleet, cluster: str, kind: str = "", until: str = "") -> FleetState:
    """Read the newest campaign and the campaigns before it, and choose suspects.

    Args:
        fleet: Folder of the fleet.
        cluster: Name of the cluster.
        kind: check or survey; "": the kind of the newest campaign.
        until: The campaign that counts as the newest; "": the last one.

    Raises:
        AbsentError: No campaign has results.
    """
    window = campaigns_of(fleet, cluster, kind, until)[-WINDOW:]
    if not window:
        raise AbsentError(f"{fleet.root}: has no results to judge", f"meshmark fleet check {fleet.root}")
    panel = read_panel(fleet, window, cluster)
    state = CasesState.load(fleet, cluster)
    suspects = [_suspects(panel, node_class, window[-1], set(state.open)) for node_class in classes(panel.facts)]
    common = _common(panel.wrong, panel.verdicts)
    attributable = _without(panel.wrong, common)
    wrong = {n: texts for n, texts in attributable.items() if n in panel.nodes and not _open_wrong(state, n)}
    return FleetState(panel, window[-1], window, suspects, wrong, common, *flagged_results(fleet, window[-1], cluster))


def _common(wrong: Mapping[str, Sequence[str]], verdicts: Mapping[str, int]) -> frozenset[str]:
    """Return the programs and kernels whose results are wrong on most nodes that have a result.

    This is a fault of the program or of its expected value, not of these nodes.

    Args:
        wrong: `NodePanel.wrong`.
        verdicts: `NodePanel.verdicts`.
    """
    counts = Counter(name for texts in wrong.values() for name in {of_what(text) for text in texts})
    return frozenset(name for name, count in counts.items() if count > max(_FEW, verdicts[name] / 2))


def _without(wrong: Mapping[str, Sequence[str]], common: frozenset[str]) -> dict[str, list[str]]:
    """Return wrong results by node, without results of the programs and kernels `common`."""
    remaining = {node: [text for text in texts if of_what(text) not in common] for node, texts in wrong.items()}
    return {node: texts for node, texts in remaining.items() if texts}


def _open_wrong(state: CasesState, node: str) -> bool:
    return node in state.open and bool(state.open[node].wrong)


def campaigns_of(fleet: Fleet, cluster: str, kind: str = "", until: str = "") -> list[str]:
    """Return the campaigns of a kind that have results, oldest first. The arguments have the meaning as in `look`."""
    names = [n for n in fleet.campaigns() if not n.startswith(_OTHERS) and fleet.files_of("nodes", n, cluster)]
    if until:
        names = [name for name in names if name.partition("-")[2] <= until.partition("-")[2]]
    kind = kind or (names[-1].partition("-")[0] if names else "")
    return [name for name in names if name.partition("-")[0] == kind]


def _suspects(panel: NodePanel, node_class: NodeClass, newest: str, known: set[str]) -> Suspects:
    import numpy as np

    values = panel.values[node_class.members]
    # Metrics that most nodes have, in most values.
    is_common = (~np.isnan(values)).any(axis=1).mean(axis=0) > 0.5 if len(node_class.members) else np.zeros(0, bool)
    points = [int(i) for i in np.flatnonzero(is_common)]
    if not node_class.judged or not points:
        return Suspects(node_class, points, None)
    today = sum(campaign == newest for campaign in panel.of)
    skipped = {i for i, m in enumerate(node_class.members) if panel.nodes[m] in known}
    groups = groups_of([panel.points[i] for i in points])
    return Suspects(node_class, points, screen(values[:, :, points], today, groups, skipped))


def groups_of(points: Sequence[FleetPoint]) -> Array:
    """Return groups of metrics that one fault may shift together: the metrics of each instrument.

    The array has shape (points, groups) and type bool.
    """
    import numpy as np

    names = [p.instrument for p in points]
    grouped = [name for name in sorted(set(names)) if 1 < names.count(name) < len(names)]
    return np.array([[name == k for k in grouped] for name in names], bool).reshape(len(names), len(grouped))


def controls(seen: FleetState, seed: int = 0) -> list[str]:
    """Return healthy nodes that measure again together with the suspects.

    They are chosen at random from the healthier half of each class with suspects.
    """
    import numpy as np

    nodes: list[str] = []
    for group in seen.classes:
        if group.screening is None or not group.screening.suspects:
            continue
        healthy = np.flatnonzero(group.screening.p >= np.median(group.screening.p))
        chosen = np.random.default_rng(seed).permutation(healthy)[:CONTROLS]
        nodes += [seen.panel.nodes[group.of.members[int(i)]] for i in chosen]
    return nodes


def reference(fleet: Fleet, cluster: str, seen: FleetState) -> NodePanel:
    """Return the values that fresh values are compared with: as many as can be measured again in a quarter of an hour.

    Raises:
        MeshmarkError: A file cannot be read.
    """
    import numpy as np

    rows = node_rows(fleet, [seen.campaign], cluster)
    each_s = float(np.median([row["elapsed_s"] or 0.0 for row in rows])) / max(1, len(seen.today()))
    count = min(_VALUES, max(FRESH, int(_CONFIRM_S / max(each_s, 1e-3))))
    campaigns = campaigns_of(fleet, cluster, seen.campaign.partition("-")[0], seen.campaign)
    return read_panel(fleet, campaigns[-math.ceil(count / max(1, len(seen.today()))) :], cluster)


def fresh_values(against: NodePanel) -> int:
    """Return how many values of each node a confirmation needs."""
    return fresh_count(len(against.of))


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Fresh values of suspects and controls, measured after `against`."""

    fresh: NodePanel
    against: NodePanel


def decide(fleet: Fleet, cluster: str, seen: FleetState, confirmation: Confirmation | None) -> list[NamedNode]:
    """Name nodes, and remember that this campaign has been decided on.

    Args:
        fleet: Folder of the fleet.
        cluster: Name of the cluster.
        seen: State of the fleet with its suspects.
        confirmation: None if there are no suspects.
    """
    with held(CasesState.path(fleet, cluster).parent):
        state = CasesState.load(fleet, cluster)
        if seen.campaign in state.judged:
            raise MeshmarkError(f"{seen.campaign}: was judged before", f"meshmark fleet check {fleet.root}")
        tests = [test for group in seen.classes for test in _tests(seen, group, confirmation)]
        nodes = sum(len(group.of.members) for group in seen.classes if group.screening)
        discoveries = Discoveries(state.discoveries)
        decisions = discoveries.decide([t.p for t in tests], max(nodes, len(tests), 1))
        positive = [t for t, is_named in zip(tests, decisions, strict=True) if is_named]
        named = _named(fleet, cluster, seen, positive, _wrong(seen, confirmation))
        follow(state, seen.campaign, _shifts(seen, set(state.open)))
        state.discoveries = discoveries.state()
        state.judged.append(seen.campaign)
        state.open |= {case.node: case for case in named}
        write_file(
            fleet.root / "judgements" / f"{seen.campaign}.json",
            json.dumps(summary(seen, named), indent=1).encode() + b"\n",
        )
        state.save(fleet, cluster)
    return named


def _named(
    fleet: Fleet, cluster: str, seen: FleetState, positive: Sequence[_SuspectTest], wrong: Mapping[str, list[str]]
) -> list[NamedNode]:
    """Return the nodes that compute wrongly, and the nodes that are worse by a relevant amount."""
    relevant = {t.node: [m for m in t.metrics if m.by >= SMALLEST] for t in positive}
    p = {t.node: t.p for t in positive if relevant[t.node]}
    class_of = {seen.panel.nodes[m]: group.of for group in seen.classes for m in group.of.members}
    facts = dict(zip(seen.panel.nodes, seen.panel.facts, strict=True))
    cases = {n: (relevant[n][0].key, [seen.panel.nodes[m] for m in class_of[n].members]) for n in p}
    until = campaigns_of(fleet, cluster, seen.campaign.partition("-")[0], seen.campaign)[-_SINCE:]
    since = worse_since(fleet, cluster, until, cases) if cases else {}
    return [
        NamedNode(
            node=node,
            kind=class_of[node].name,
            p=0.0 if node in wrong else p[node],
            metrics=relevant.get(node, []),
            wrong=wrong.get(node, []),
            differs=class_of[node].deviations(facts[node]),
            campaign=seen.campaign,
            since=since.get(node, seen.campaign if node not in cases else ""),
        )
        for node in sorted({*p, *wrong}, key=lambda n: (n not in wrong, p.get(n, 0.0), n))
    ]


def _wrong(seen: FleetState, confirmation: Confirmation | None) -> dict[str, list[str]]:
    """Return wrong results by node; one is enough, since a healthy node never computes a wrong result."""
    repeated = _without(confirmation.fresh.wrong, seen.common) if confirmation else {}
    not_repeated = {
        n: [f"{text} (not again)" for text in texts] for n, texts in seen.wrong.items() if n not in repeated
    }
    return not_repeated | {n: list(texts) for n, texts in repeated.items() if n in seen.panel.nodes}


def _shifts(seen: FleetState, nodes: set[str]) -> dict[str, dict[str, float]]:
    """Return by how much nodes are worse than their class in the newest campaign, by the keys of points."""
    import numpy as np

    newest = seen.newest()
    shifts = {}
    for group in seen.classes:
        for i in group.of.members if group.screening else ():
            if seen.panel.nodes[i] in nodes:
                assert group.screening is not None
                shift = newest[i, group.points] - group.screening.baseline.middle
                shifts[seen.panel.nodes[i]] = {
                    seen.panel.points[k].key: math.expm1(by)
                    for k, by in zip(group.points, shift, strict=True)
                    if not np.isnan(by)
                }
    return shifts


@dataclass(frozen=True, slots=True)
class _SuspectTest:
    """The test of a suspect by its fresh values: the p-value and the metrics that are worse, the clearest first."""

    node: str
    p: float
    metrics: list[WorseMetric]


def _tests(seen: FleetState, one: Suspects, confirmation: Confirmation | None) -> list[_SuspectTest]:
    """Return the tests of the suspects of a class."""
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
    result = fresh_evidence(baseline, _of(fresh, suspects, points), _of(fresh, controls, points), rows)
    return [
        _SuspectTest(name, float(result.node[i]), clear_metrics(points, result.shift[i], baseline, result.metrics[i]))
        for i, name in enumerate(suspects)
    ]


def clear_metrics(points: Sequence[FleetPoint], shift: Array, baseline: Baseline, p: Array) -> list[WorseMetric]:
    """Return the metrics in which a node is significantly worse, the clearest first.

    If no metric is significant alone, the clearest metrics are returned.
    """
    import numpy as np

    metrics = [_worse(points[k], float(shift[k]), float(baseline.scale[k]), float(p[k])) for k in np.argsort(p)]
    return [m for m in metrics if m.p * len(points) <= _NAMED_METRIC] or metrics[:_CLEAREST]


def _worse(point: FleetPoint, shift: float, scale: float, p: float) -> WorseMetric:
    low, high = (math.expm1(shift + side * _Z * scale) for side in (-1, 1))
    return WorseMetric(point.key, point.instrument, point.metric, point.conditions, math.expm1(shift), low, high, p)


def _of(panel: NodePanel, nodes: Sequence[str], points: Sequence[FleetPoint]) -> Array:
    """Return the values of these nodes and points, shape (nodes, k, points)."""
    import numpy as np

    row_of = {name: i for i, name in enumerate(panel.nodes)}
    column_of = {p.key: i for i, p in enumerate(panel.points)}
    values = np.full((len(nodes), panel.values.shape[1], len(points)), np.nan)
    places = [k for k, p in enumerate(points) if p.key in column_of]
    columns = [column_of[points[k].key] for k in places]
    for i, name in enumerate(nodes):
        values[i][:, places] = panel.values[row_of[name]][:, columns]
    return values


def summary(seen: FleetState, named: Sequence[NamedNode]) -> dict[str, Any]:
    """Return the judgement for files and programs."""
    return {
        "campaign": seen.campaign,
        "window": seen.window,
        "nodes": len(seen.panel.nodes),
        "classes": [
            {
                "name": group.of.name,
                "nodes": len(group.of.members),
                "metrics": len(group.points),
                "judged": group.screening is not None,
                "suspects": [seen.panel.nodes[group.of.members[i]] for i in group.screening.suspects]
                if group.screening
                else [],
            }
            for group in seen.classes
        ],
        "named": [dataclasses.asdict(n) for n in named],
    }
