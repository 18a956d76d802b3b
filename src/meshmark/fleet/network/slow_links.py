"""Judges the messages between nodes: names nodes and switches whose messages are slow with any partner.

    judgements/CAMPAIGN.json    the judgement of a campaign, see `summary`

As for nodes alone, suspects are chosen by the values of a campaign, and only fresh values, measured with other
partners, name them. The values of a node are the times of its messages without the terms of distances, partners and
switches.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.fleet.campaigns.campaign import Campaign
from meshmark.fleet.cases import NETWORK, SWITCH, CasesState, NamedNode, WorseMetric, follow
from meshmark.fleet.data.values import FleetPoint, query
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import SMALLEST, clear_metrics
from meshmark.fleet.health.baseline import MIN_NODES, Baseline, fit
from meshmark.fleet.health.screening import CONTROLS, Discoveries, Screening, fresh_evidence, screen
from meshmark.fleet.network.links import PairTimes, SlowSwitch, TimeTerms, fit_terms, own_times, slow_switches
from meshmark.fleet.network.pairs import KIND, pairs_of
from meshmark.fleet.network.rounds import Pair, draw_confirmation, preferred
from meshmark.fleet.network.topology import SwitchTree, TreePlaces
from meshmark.fleet.nodesets import expand
from meshmark.statistics.arrays import Array
from meshmark.statistics.estimates import location, nan_median
from meshmark.store.files import write_file
from meshmark.store.session import held
from meshmark.values.arrow import rows_of

_SUSPECT_Z: Final = 3.0  # standard deviations from which a switch is suspected
_MEMBERS: Final = 8  # nodes below a suspected switch that measure again
_AT_EACH: Final = 2  # healthy nodes that measure again, at each distance from a suspect
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class PairCampaign:
    """The measurements of a campaign of pairs.

    Attributes:
        nodes: Names of nodes; nodes that measured nothing are left out.
        points: Metrics: the time of messages of each size, the smallest first.
        pair_times: The times of messages.
        pairs: Number of pairs that measured.
    """

    campaign: str
    nodes: list[str]
    points: list[FleetPoint]
    pair_times: PairTimes
    pairs: int


@dataclass(frozen=True, slots=True)
class NetworkState:
    """The state of a network in a campaign.

    Attributes:
        values: Values of each node in each round, see the module, shape (nodes, rounds, points).
        offsets: For each switch with a term, the offset that was subtracted from the values of all nodes below it.
        screening: Screening of the nodes; None if there are too few nodes.
        slow: Suspected switches.
    """

    seen: PairCampaign
    tree: SwitchTree
    places: TreePlaces
    terms: TimeTerms
    values: Array
    offsets: dict[str, Array]
    screening: Screening | None
    slow: list[SlowSwitch]

    def suspects(self) -> list[str]:
        """Return the names of suspected nodes and switches."""
        nodes = [self.seen.nodes[i] for i in self.screening.suspects] if self.screening else []
        return [*nodes, *(SWITCH + s.name for s in self.slow)]


def read_exchange(fleet: Fleet, campaign: str, cluster: str) -> PairCampaign:
    """Return the times of a campaign of pairs.

    Raises:
        AbsentError: No pair has measured.
        MeshmarkError: A file cannot be read.
    """
    answer = query(
        fleet,
        "results",
        [campaign],
        cluster,
        """SELECT node AS pair, point, any_value(instrument) AS instrument, any_value(metric) AS metric,
                  any_value(unit) AS unit, any_value(better) AS better, any_value(message_bytes) AS size,
                  median(value) AS value
           FROM read_parquet(?) WHERE status = 'measured' AND metric = 'message_latency' AND value > 0
           GROUP BY node, point ORDER BY size, point""",
    )
    rows = rows_of(answer) if answer is not None else []
    if not rows:
        raise AbsentError(f"{campaign}: no pair was measured", f"meshmark fleet pairs {fleet.root}")
    points = {r["point"]: FleetPoint(r["point"], r["instrument"], r["metric"], r["unit"], r["better"]) for r in rows}
    column = {key: i for i, key in enumerate(points)}
    pair_by_name = pairs_of(Campaign.load(fleet, campaign).begun)
    times: dict[str, list[float]] = {}
    for row in rows:
        if row["pair"] in pair_by_name:
            times.setdefault(row["pair"], [math.nan] * len(points))[column[row["point"]]] = math.log(row["value"])
    measured = {node for pair in times for node in pair_by_name[pair][1:]}
    nodes = [node for node in expand(str(Campaign.load(fleet, campaign).begun["nodes"])) if node in measured]
    index = {node: i for i, node in enumerate(nodes)}
    rounds = 1 + max(r for r, _, _ in pair_by_name.values())
    records = [(r, index[a], index[b], times[pair]) for pair, (r, a, b) in pair_by_name.items() if pair in times]
    return PairCampaign(
        campaign,
        nodes,
        list(points.values()),
        PairTimes.from_pairs(len(nodes), rounds, len(points), records),
        len(records),
    )


def newest_exchange(fleet: Fleet, cluster: str) -> str:
    """Return the newest campaign of pairs that has results; "" if no campaign has."""
    names = [n for n in fleet.campaigns() if n.startswith(f"{KIND}-") and fleet.files_of("nodes", n, cluster)]
    return names[-1] if names else ""


def look_at_network(fleet: Fleet, cluster: str, campaign: str, tree: SwitchTree) -> NetworkState:
    """Read a campaign of pairs and choose suspects.

    Raises:
        AbsentError: No pair has measured.
        MeshmarkError: A file cannot be read.
    """
    exchange = read_exchange(fleet, campaign, cluster)
    return judge_exchange(exchange, tree, set(CasesState.load(fleet, cluster, NETWORK).open))


def judge_exchange(seen: PairCampaign, tree: SwitchTree, known: set[str]) -> NetworkState:
    """Choose suspects by the measurements of a campaign.

    Args:
        seen: Measurements of the campaign.
        tree: Tree of switches.
        known: Nodes and switches with an open case, which are not suspected again.
    """
    import numpy as np

    places = TreePlaces.from_tree(tree, seen.nodes)
    terms = fit_terms(seen.pair_times, places, tree)
    values = own_times(seen.pair_times, places, terms)
    offsets = {}
    for name in terms.switches:  # the nodes below it are compared with one another
        below = places.below(name)
        offsets[name] = np.nan_to_num(nan_median(location(values[below]), axis=0))
        values[below] -= offsets[name]
    screening = None
    if len(seen.nodes) >= MIN_NODES:
        skipped = {i for i, node in enumerate(seen.nodes) if node in known}
        screening = screen(values, values.shape[1], known=skipped)
    slow = [s for s in slow_switches(seen.pair_times, places, tree, terms) if s.z.max() >= _SUSPECT_Z]
    return NetworkState(
        seen,
        tree,
        places,
        terms,
        values,
        offsets,
        screening,
        [s for s in slow if SWITCH + s.name not in known][:3],
    )


# ------------------------------------------------------------------ confirmation


@dataclass(frozen=True, slots=True)
class RepeatRoles:
    """The nodes that measure again, by their indices.

    Attributes:
        suspects: Suspected nodes.
        members: Nodes below each suspected switch.
        healthy: Controls, and then partners.
    """

    suspects: list[int]
    members: dict[str, list[int]]
    healthy: list[int]

    @property
    def judged(self) -> list[int]:
        """Return the indices of all nodes that are judged: suspects, and members of suspected switches."""
        return list(dict.fromkeys([*self.suspects, *(i for members in self.members.values() for i in members)]))


def roles(seen: NetworkState, seed: int = 0) -> RepeatRoles:
    """Choose the nodes that measure again."""
    import numpy as np

    rng = np.random.default_rng(seed)
    assert seen.screening is not None
    suspects = list(seen.screening.suspects)
    nodes_by_switch = {s.name: seen.places.below(s.name).tolist() for s in seen.slow}
    members = {name: rng.permutation(nodes)[:_MEMBERS].tolist() for name, nodes in nodes_by_switch.items()}
    excluded = {*suspects, *(i for nodes in nodes_by_switch.values() for i in nodes)}
    p = seen.screening.p
    order = [int(i) for i in rng.permutation(len(p)) if int(i) not in excluded]
    order = [i for i in order if p[i] >= np.median(p)] + [i for i in order if p[i] < np.median(p)]
    chosen = order[:CONTROLS]
    judged = RepeatRoles(suspects, members, []).judged
    remaining = np.array(order[CONTROLS:], int)
    for suspect in judged:
        levels = seen.places.levels(remaining, suspect)
        for level in set(preferred(seen.places, seen.values.shape[1])):
            candidates = [int(i) for i in remaining[levels == level] if i not in chosen]
            chosen += candidates[:_AT_EACH]
    chosen += [i for i in order if i not in set(chosen)][: max(0, CONTROLS + len(judged) - len(chosen))]
    return RepeatRoles(suspects, members, chosen)


def draw_fresh(seen: NetworkState, who: RepeatRoles, names: Sequence[str], seed: int) -> list[list[Pair]]:
    """Return the pairs of each round of the confirmation, as indices of `names`."""
    index = {name: i for i, name in enumerate(names)}

    def there(of: Sequence[int]) -> list[int]:
        return [index[seen.seen.nodes[i]] for i in of if seen.seen.nodes[i] in index]

    return draw_confirmation(
        TreePlaces.from_tree(seen.tree, names),
        there(who.judged),
        there(who.healthy),
        CONTROLS,
        seen.values.shape[1],
        seed,
    )


@dataclass(frozen=True, slots=True)
class NetworkTest:
    """The test of a suspect by its fresh values: the p-value and the metrics that are worse."""

    name: str
    p: float
    metrics: list[WorseMetric]


def tests(seen: NetworkState, who: RepeatRoles, fresh: PairCampaign) -> list[NetworkTest]:
    """Return the tests of all suspects by their fresh values."""
    import numpy as np

    node_rows, meetings = _as_before(seen, fresh)
    places = TreePlaces.from_tree(seen.tree, fresh.nodes)
    index = {i: k for k, i in enumerate(node_rows)}
    suspects = [i for i in who.suspects if i in index]
    members = {name: [index[i] for i in rows if i in index] for name, rows in who.members.items()}
    switches = {name: term for name, term in seen.terms.switches.items() if name not in members}
    residuals = own_times(meetings, places, TimeTerms(seen.terms.levels, seen.terms.nodes[node_rows], switches))
    is_with_judged = np.isin(meetings.partner, [index[i] for i in who.judged if i in index]) & (meetings.partner >= 0)
    undisturbed = np.where(is_with_judged[:, :, None], np.nan, residuals)
    healthy = [i for i in who.healthy if i in index and not np.isnan(undisturbed[index[i]]).all()]
    controls = undisturbed[[index[i] for i in healthy]]
    baseline = fit(seen.values)
    drift = nan_median(location(controls) - baseline.own[healthy], axis=0) if healthy else baseline.level
    switch_tests = [
        _switch_test(seen, switch, location(residuals[members[switch.name]]) - drift, baseline)
        for switch in seen.slow
        if members[switch.name]
    ]
    for name, rows in members.items():  # nodes below a suspected switch are compared with one another
        if rows:
            residuals[places.below(name)] -= nan_median(location(residuals[rows]), axis=0) - drift - baseline.centre
    for name in switches:
        residuals[places.below(name)] -= seen.offsets[name]
    evidence = fresh_evidence(baseline, residuals[[index[i] for i in suspects]], controls, healthy)
    points = seen.seen.points
    return [
        *(
            NetworkTest(
                seen.seen.nodes[i],
                float(evidence.node[k]),
                clear_metrics(points, evidence.shift[k], baseline, evidence.metrics[k]),
            )
            for k, i in enumerate(suspects)
        ),
        *switch_tests,
    ]


def _as_before(seen: NetworkState, fresh: PairCampaign) -> tuple[list[int], PairTimes]:
    """Return the earlier indices of the nodes that measured again, and their times at the judged points."""
    import numpy as np

    rows = {node: i for i, node in enumerate(seen.seen.nodes)}
    column_by_key = {p.key: i for i, p in enumerate(fresh.points)}
    columns = np.array([column_by_key.get(p.key, -1) for p in seen.seen.points])
    times = np.where(columns >= 0, fresh.pair_times.times[:, :, columns], np.nan)
    return [rows[node] for node in fresh.nodes], PairTimes(fresh.pair_times.partner, times)


def _switch_test(seen: NetworkState, switch: SlowSwitch, own: Array, baseline: Baseline) -> NetworkTest:
    """Return the test of a switch, from the locations of the nodes below it."""
    import numpy as np
    from scipy.stats import norm

    by = np.nan_to_num(nan_median(own, axis=0) - baseline.centre)
    count = np.maximum((~np.isnan(own)).sum(axis=0), 1)
    # The differences between switches without a fault are as large as in the first measurement.
    first_scale = np.abs(switch.by) / np.maximum(np.abs(switch.z), 1e-9)
    scale = np.sqrt(first_scale**2 + baseline.scale**2 * np.pi / 2 * (1 / count + 1 / CONTROLS))
    p = norm.sf(by / scale)
    metrics = []
    for k in np.argsort(p):
        point = seen.seen.points[k]
        low, middle, high = (math.expm1(by[k] + side * _Z * scale[k]) for side in (-1, 0, 1))
        metrics.append(
            WorseMetric(point.key, point.instrument, point.metric, point.conditions, middle, low, high, float(p[k]))
        )
    combined = min(1.0, float(p.min()) * len(p))
    return NetworkTest(SWITCH + switch.name, combined, [m for m in metrics if m.p <= 0.05] or metrics[:1])


def decide_network(fleet: Fleet, cluster: str, seen: NetworkState, tests: Sequence[NetworkTest]) -> list[NamedNode]:
    """Name nodes and switches, and remember that this campaign has been decided on.

    Raises:
        MeshmarkError: The campaign was decided on before, or another process judges the fleet.
    """
    campaign = seen.seen.campaign
    with held(CasesState.path(fleet, cluster, NETWORK).parent):
        state = CasesState.load(fleet, cluster, NETWORK)
        if campaign in state.judged:
            raise MeshmarkError(f"{campaign}: was judged before", f"meshmark fleet pairs {fleet.root}")
        discoveries = Discoveries(state.discoveries)
        tested = len(seen.seen.nodes) + len(seen.tree.switches)
        decisions = discoveries.decide([t.p for t in tests], max(tested, len(tests), 1))
        named = []
        for test, is_named in zip(tests, decisions, strict=True):
            relevant = [m for m in test.metrics if m.by >= SMALLEST]
            if is_named and relevant:
                kind = "switch" if test.name.startswith(SWITCH) else "network"
                named.append(NamedNode(test.name, kind, test.p, relevant, [], {}, campaign, campaign))
        follow(state, campaign, shifts(seen))
        state.discoveries = discoveries.state()
        state.judged.append(campaign)
        state.open |= {n.node: n for n in named}
        text = json.dumps(summary(seen, named), indent=1)
        write_file(fleet.root / "judgements" / f"{campaign}.json", text.encode() + b"\n")
        state.save(fleet, cluster, NETWORK)
    return named


def shifts(seen: NetworkState) -> dict[str, dict[str, float]]:
    """Return by how much each node and each switch that can be judged is slower, by the keys of points."""
    node_shifts = location(seen.values) - nan_median(location(seen.values), axis=0)
    rows = dict(zip(seen.seen.nodes, node_shifts, strict=True))
    for switch in slow_switches(seen.seen.pair_times, seen.places, seen.tree, seen.terms):
        rows[SWITCH + switch.name] = switch.by
    keys = [p.key for p in seen.seen.points]
    return {
        name: {key: math.expm1(by) for key, by in zip(keys, row, strict=True) if not math.isnan(by)}
        for name, row in rows.items()
    }


def levels(seen: NetworkState) -> list[dict[str, Any]]:
    """Return the median times of messages at each distance, in s."""
    import numpy as np

    meetings = seen.seen.pair_times
    level = seen.places.levels(np.arange(len(meetings.partner))[:, None], meetings.partner)
    result = []
    for h in np.unique(level[meetings.partner >= 0]):
        at_level = (level == h) & (meetings.partner >= 0)
        times = np.exp(nan_median(meetings.times[at_level], axis=0))
        sizes = [p.conditions["message_bytes"] for p in seen.seen.points]
        result.append(
            {"level": int(h), "pairs": int(at_level.sum() // 2), "times": dict(zip(sizes, times.tolist(), strict=True))}
        )
    return result


def summary(seen: NetworkState, named: Sequence[NamedNode]) -> dict[str, Any]:
    """Return the judgement for files and programs."""
    return {
        "campaign": seen.seen.campaign,
        "nodes": len(seen.seen.nodes),
        "pairs": seen.seen.pairs,
        "levels": levels(seen),
        "judged": seen.screening is not None,
        "suspects": seen.suspects(),
        "slower_by": shifts(seen),
        "named": [dataclasses.asdict(n) for n in named],
    }
