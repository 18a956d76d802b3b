"""Judges the messages between nodes: names nodes, and switches, whose messages are slow with any partner.

    judgements/CAMPAIGN.json    what was found, see `summary`

As for nodes alone, the values of a campaign choose suspects, and only fresh values, measured with other partners, name
them. The values of a node are what its messages take beyond the terms of the distance, of its partners and of switches.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError
from meshmark.fleet.arrays import Array
from meshmark.fleet.baseline import MIN_NODES, Baseline, fit
from meshmark.fleet.campaign import Campaign
from meshmark.fleet.cases import NETWORK, SWITCH, Named, State, Worse, follow
from meshmark.fleet.estimates import location, nan_median
from meshmark.fleet.folder import Fleet
from meshmark.fleet.judgements import SMALLEST, clear_metrics
from meshmark.fleet.judging import CONTROLS, Discoveries, Screening, fresh_evidence, screen
from meshmark.fleet.links import Meetings, SlowSwitch, Terms, fit_terms, own_times, slow_switches
from meshmark.fleet.nodesets import expand
from meshmark.fleet.pairs import KIND, pairs_of
from meshmark.fleet.rounds import Pair, draw_confirmation, preferred
from meshmark.fleet.topology import Places, Tree
from meshmark.fleet.values import Point, query
from meshmark.store.files import held, write_file

_SUSPECT_Z: Final = 3.0  # of a switch
_MEMBERS: Final = 8  # nodes of a suspected switch that measure again
_AT_EACH: Final = 2  # healthy nodes that measure again, at each distance of a suspect
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a campaign of pairs has measured.

    Attributes:
        nodes: Names; those that measured nothing are left out.
        points: Metrics: the time of messages of each size, the smallest first.
        pairs: Number of pairs that measured.
    """

    campaign: str
    nodes: list[str]
    points: list[Point]
    met: Meetings
    pairs: int


@dataclass(frozen=True, slots=True)
class NetworkLook:
    """A network as a campaign shows it.

    Attributes:
        values: Of each node in each round, see the module, shape (nodes, rounds, points).
        offsets: What was subtracted from the values of all nodes below a slow switch.
        screening: None if there are too few nodes.
        slow: Suspected switches.
    """

    seen: Exchange
    tree: Tree
    places: Places
    terms: Terms
    values: Array
    offsets: dict[str, Array]
    screening: Screening | None
    slow: list[SlowSwitch]

    def suspects(self) -> list[str]:
        """Names of nodes, and of switches."""
        nodes = [self.seen.nodes[i] for i in self.screening.suspects] if self.screening else []
        return [*nodes, *(SWITCH + s.name for s in self.slow)]


def read_exchange(fleet: Fleet, campaign: str, cluster: str) -> Exchange:
    """The times of a campaign of pairs.

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
    rows = answer.to_pylist() if answer else []
    if not rows:
        raise AbsentError(f"{campaign}: no pair has measured", f"meshmark fleet pairs {fleet.root}")
    points = {r["point"]: Point(r["point"], r["instrument"], r["metric"], r["unit"], r["better"]) for r in rows}
    column = {key: i for i, key in enumerate(points)}
    known = pairs_of(Campaign.load(fleet, campaign).begun)
    times: dict[str, list[float]] = {}
    for row in rows:
        if row["pair"] in known:
            times.setdefault(row["pair"], [math.nan] * len(points))[column[row["point"]]] = math.log(row["value"])
    there = {node for pair in times for node in known[pair][1:]}
    nodes = [node for node in expand(str(Campaign.load(fleet, campaign).begun["nodes"])) if node in there]
    at = {node: i for i, node in enumerate(nodes)}
    rounds = 1 + max(r for r, _, _ in known.values())
    met = [(r, at[a], at[b], times[pair]) for pair, (r, a, b) in known.items() if pair in times]
    return Exchange(campaign, nodes, list(points.values()), Meetings.of(len(nodes), rounds, len(points), met), len(met))


def newest_exchange(fleet: Fleet, cluster: str) -> str:
    """The newest campaign of pairs that has results; "" if there is none."""
    names = [n for n in fleet.campaigns() if n.startswith(f"{KIND}-") and fleet.files_of("nodes", n, cluster)]
    return names[-1] if names else ""


def look_at_network(fleet: Fleet, cluster: str, campaign: str, tree: Tree) -> NetworkLook:
    """Choose suspects.

    Raises:
        AbsentError: No pair has measured.
    """
    seen = read_exchange(fleet, campaign, cluster)
    return judge_exchange(seen, tree, set(State.load(fleet, cluster, NETWORK).open))


def judge_exchange(seen: Exchange, tree: Tree, known: set[str]) -> NetworkLook:
    """As `look_at_network`.

    Args:
        known: Nodes and switches with an open case, which are not suspected again.
    """
    import numpy as np

    places = Places.of(tree, seen.nodes)
    terms = fit_terms(seen.met, places, tree)
    values = own_times(seen.met, places, terms)
    offsets = {}
    for name in terms.switches:  # its nodes are compared with one another
        below = places.below(name)
        offsets[name] = np.nan_to_num(nan_median(location(values[below]), axis=0))
        values[below] -= offsets[name]
    screening = None
    if len(seen.nodes) >= MIN_NODES:
        skip = {i for i, node in enumerate(seen.nodes) if node in known}
        screening = screen(values, values.shape[1], known=skip)
    slow = [s for s in slow_switches(seen.met, places, tree, terms) if s.z.max() >= _SUSPECT_Z]
    return NetworkLook(
        seen, tree, places, terms, values, offsets, screening, [s for s in slow if SWITCH + s.name not in known][:3]
    )


# ------------------------------------------------------------------ confirmation


@dataclass(frozen=True, slots=True)
class Roles:
    """Who measures again, by indices of nodes.

    Attributes:
        suspects: Suspected nodes.
        members: Nodes below each suspected switch.
        healthy: Partners and controls, controls first.
    """

    suspects: list[int]
    members: dict[str, list[int]]
    healthy: list[int]

    @property
    def judged(self) -> list[int]:
        return list(dict.fromkeys([*self.suspects, *(i for of in self.members.values() for i in of)]))


def roles(seen: NetworkLook, seed: int = 0) -> Roles:
    """Who measures again."""
    import numpy as np

    dice = np.random.default_rng(seed)
    assert seen.screening is not None
    suspects = list(seen.screening.suspects)
    below = {s.name: seen.places.below(s.name).tolist() for s in seen.slow}
    members = {name: dice.permutation(of)[:_MEMBERS].tolist() for name, of in below.items()}
    out = {*suspects, *(i for of in below.values() for i in of)}
    p = seen.screening.p
    order = [int(i) for i in dice.permutation(len(p)) if int(i) not in out]
    order = [i for i in order if p[i] >= np.median(p)] + [i for i in order if p[i] < np.median(p)]
    chosen = order[:CONTROLS]
    judged = Roles(suspects, members, []).judged
    rest = np.array(order[CONTROLS:], int)
    for suspect in judged:
        levels = seen.places.levels(rest, suspect)
        for level in set(preferred(seen.places, seen.values.shape[1])):
            near = [int(i) for i in rest[levels == level] if i not in chosen]
            chosen += near[:_AT_EACH]
    chosen += [i for i in order if i not in set(chosen)][: max(0, CONTROLS + len(judged) - len(chosen))]
    return Roles(suspects, members, chosen)


def draw_fresh(seen: NetworkLook, who: Roles, names: Sequence[str], seed: int) -> list[list[Pair]]:
    """Pairs for the confirmation, as indices of names."""
    at = {name: i for i, name in enumerate(names)}

    def there(of: Sequence[int]) -> list[int]:
        return [at[seen.seen.nodes[i]] for i in of if seen.seen.nodes[i] in at]

    return draw_confirmation(
        Places.of(seen.tree, names), there(who.judged), there(who.healthy), CONTROLS, seen.values.shape[1], seed
    )


@dataclass(frozen=True, slots=True)
class Test:
    """A suspect with its fresh values: their p-value and the metrics that are worse."""

    name: str
    p: float
    metrics: list[Worse]


def tests(seen: NetworkLook, who: Roles, fresh: Exchange) -> list[Test]:
    """Suspects with their p-values from fresh values."""
    import numpy as np

    place, met = _as_before(seen, fresh)
    places = Places.of(seen.tree, fresh.nodes)
    at = {i: k for k, i in enumerate(place)}
    suspects = [i for i in who.suspects if i in at]
    members = {name: [at[i] for i in of if i in at] for name, of in who.members.items()}
    switches = {name: term for name, term in seen.terms.switches.items() if name not in members}
    own = own_times(met, places, Terms(seen.terms.levels, seen.terms.nodes[place], switches))
    met_judged = np.isin(met.partner, [at[i] for i in who.judged if i in at]) & (met.partner >= 0)
    left = np.where(met_judged[:, :, None], np.nan, own)
    healthy = [i for i in who.healthy if i in at and not np.isnan(left[at[i]]).all()]
    controls = left[[at[i] for i in healthy]]
    baseline = fit(seen.values)
    drift = nan_median(location(controls) - baseline.own[healthy], axis=0) if healthy else baseline.level
    found = [
        _switch_test(seen, switch, location(own[members[switch.name]]) - drift, baseline)
        for switch in seen.slow
        if members[switch.name]
    ]
    for name, of in members.items():  # a node below a suspected switch is compared with others there
        if of:
            own[places.below(name)] -= nan_median(location(own[of]), axis=0) - drift - baseline.centre
    for name in switches:
        own[places.below(name)] -= seen.offsets[name]
    evidence = fresh_evidence(baseline, own[[at[i] for i in suspects]], controls, healthy)
    points = seen.seen.points
    return [
        *(
            Test(
                seen.seen.nodes[i],
                float(evidence.node[k]),
                clear_metrics(points, evidence.shift[k], baseline, evidence.metrics[k]),
            )
            for k, i in enumerate(suspects)
        ),
        *found,
    ]


def _as_before(seen: NetworkLook, fresh: Exchange) -> tuple[list[int], Meetings]:
    """The indices of the nodes that measured again, and their times of the points that are judged."""
    import numpy as np

    rows = {node: i for i, node in enumerate(seen.seen.nodes)}
    known = {p.key: i for i, p in enumerate(fresh.points)}
    columns = np.array([known.get(p.key, -1) for p in seen.seen.points])
    times = np.where(columns >= 0, fresh.met.times[:, :, columns], np.nan)
    return [rows[node] for node in fresh.nodes], Meetings(fresh.met.partner, times)


def _switch_test(seen: NetworkLook, switch: SlowSwitch, own: Array, baseline: Baseline) -> Test:
    """The p-value of a switch, from locations of the nodes below it."""
    import numpy as np
    from scipy.stats import norm

    by = np.nan_to_num(nan_median(own, axis=0) - baseline.centre)
    count = np.maximum((~np.isnan(own)).sum(axis=0), 1)
    # By as much as at first, switches differ without a fault.
    before = np.abs(switch.by) / np.maximum(np.abs(switch.z), 1e-9)
    scale = np.sqrt(before**2 + baseline.scale**2 * np.pi / 2 * (1 / count + 1 / CONTROLS))
    p = norm.sf(by / scale)
    metrics = []
    for k in np.argsort(p):
        point = seen.seen.points[k]
        low, middle, high = (math.expm1(by[k] + side * _Z * scale[k]) for side in (-1, 0, 1))
        metrics.append(
            Worse(point.key, point.instrument, point.metric, point.conditions, middle, low, high, float(p[k]))
        )
    whole = min(1.0, float(p.min()) * len(p))
    return Test(SWITCH + switch.name, whole, [m for m in metrics if m.p <= 0.05] or metrics[:1])


def decide_network(fleet: Fleet, cluster: str, seen: NetworkLook, found: Sequence[Test]) -> list[Named]:
    """Name nodes and switches, and remember that this campaign has been decided on.

    Raises:
        MeshmarkError: It was before, or another process judges the fleet.
    """
    campaign = seen.seen.campaign
    with held(State.path(fleet, cluster, NETWORK).parent):
        state = State.load(fleet, cluster, NETWORK)
        if campaign in state.judged:
            raise MeshmarkError(f"{campaign}: was judged before", f"meshmark fleet pairs {fleet.root}")
        discoveries = Discoveries(state.discoveries)
        looked = len(seen.seen.nodes) + len(seen.tree.switches)
        decisions = discoveries.decide([t.p for t in found], max(looked, len(found), 1))
        named = []
        for test, yes in zip(found, decisions, strict=True):
            big = [m for m in test.metrics if m.by >= SMALLEST]
            if yes and big:
                kind = "switch" if test.name.startswith(SWITCH) else "network"
                named.append(Named(test.name, kind, test.p, big, [], {}, campaign, campaign))
        follow(state, campaign, shifts(seen))
        state.discoveries = discoveries.state()
        state.judged.append(campaign)
        state.open |= {n.node: n for n in named}
        text = json.dumps(summary(seen, named), indent=1)
        write_file(fleet.root / "judgements" / f"{campaign}.json", text.encode() + b"\n")
        state.save(fleet, cluster, NETWORK)
    return named


def shifts(seen: NetworkLook) -> dict[str, dict[str, float]]:
    """By how much each node and each suspected switch is slower, by the keys of points."""
    own = location(seen.values) - nan_median(location(seen.values), axis=0)
    rows = dict(zip(seen.seen.nodes, own, strict=True))
    for switch in slow_switches(seen.seen.met, seen.places, seen.tree, seen.terms):
        rows[SWITCH + switch.name] = switch.by
    keys = [p.key for p in seen.seen.points]
    return {
        name: {key: math.expm1(by) for key, by in zip(keys, row, strict=True) if not math.isnan(by)}
        for name, row in rows.items()
    }


def levels(seen: NetworkLook) -> list[dict[str, Any]]:
    """The median times of messages at each distance, in s."""
    import numpy as np

    met = seen.seen.met
    level = seen.places.levels(np.arange(len(met.partner))[:, None], met.partner)
    found = []
    for h in np.unique(level[met.partner >= 0]):
        here = (level == h) & (met.partner >= 0)
        times = np.exp(nan_median(met.times[here], axis=0))
        sizes = [p.conditions["message_bytes"] for p in seen.seen.points]
        found.append(
            {"level": int(h), "pairs": int(here.sum() // 2), "times": dict(zip(sizes, times.tolist(), strict=True))}
        )
    return found


def summary(seen: NetworkLook, named: Sequence[Named]) -> dict[str, Any]:
    """What was found, for files and programs."""
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
