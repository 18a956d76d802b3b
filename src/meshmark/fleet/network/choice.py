"""The nodes of a fleet that are chosen for a job, compared with other choices."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.errors import UsageError
from meshmark.fleet.cases import NETWORK, CasesState
from meshmark.fleet.engines.engine import Engine
from meshmark.fleet.folder import Fleet
from meshmark.fleet.network.links import fit_terms, without_noise
from meshmark.fleet.network.placing import Distances, Spread, choose, exported, random_spread
from meshmark.fleet.network.slow_links import newest_exchange, read_exchange
from meshmark.fleet.network.topology import SwitchTree, TreePlaces
from meshmark.fleet.nodesets import expand, fold, in_order
from meshmark.fleet.site import Site
from meshmark.values.units import counted, plain


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """A choice of nodes.

    Attributes:
        unit: Unit of the spreads: s, or levels.
        spreads: Spreads of the chosen nodes and of the first nodes by name, and the mean spread of random sets.
        options: Options of batch systems and launchers, see `placing.exported`.
        source: The origin of the times.
        avoided: Nodes with an open case.
    """

    nodes: list[str]
    unit: str
    spreads: dict[str, Spread]
    options: dict[str, str]
    source: str
    avoided: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a table of the spreads."""

        def text(value: float) -> str:
            return plain(value, "s") if self.unit == "s" else f"{value:.4g}"

        return [
            {
                "nodes": name if self.unit == "s" else f"{name}, levels",
                **{k: text(v) for k, v in dataclasses.asdict(spread).items()},
            }
            for name, spread in self.spreads.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON, of type `placement`."""
        return {"type": "placement", **dataclasses.asdict(self)}


def choose_nodes(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    tree: SwitchTree,
    count: int,
    among: str = "",
    idle_only: bool = False,
    size: int | None = None,
) -> NodeChoice:
    """Choose nodes near one another.

    Args:
        fleet: Folder of the fleet, with the times of messages.
        site: Settings of the site.
        engine: Engine that knows the states of nodes.
        tree: Tree of switches, whose levels are the distances if no messages were measured.
        count: Number of nodes.
        among: The set of nodes to choose from; "": all nodes that the engine knows.
        idle_only: Whether only idle nodes may be chosen.
        size: Size of messages in bytes; None: the smallest measured size.

    Raises:
        UsageError: There are fewer nodes, a node is unknown, or no messages of this size were measured.
        MeshmarkError: The engine does not answer, or a file cannot be read.
    """
    import numpy as np

    states = {node.name: node.state for node in engine.nodes()}
    names = in_order(expand(among, "--among") if among else states)
    if unknown := [name for name in names if name not in states]:
        raise UsageError(f"--among: found {fold(unknown)}, which {engine.name} does not list")
    usable = [name for name in names if states[name] == "idle" or (states[name] in {"off", "busy"} and not idle_only)]
    cases = {name for suffix in ("", NETWORK) for name in CasesState.load(fleet, site.cluster, suffix).open}
    healthy = [name for name in usable if name not in cases]
    if count > len(healthy):
        unusable = Counter(states[n] for n in names if n not in usable)
        reasons = [f"{k} {state}" for state, k in sorted(unusable.items())]
        reasons += [f"{len(usable) - len(healthy)} with an open case"] if len(usable) > len(healthy) else []
        suffix = f" of {counted(len(names), 'node')}" + (
            f" ({', '.join(reasons)})" if reasons else f", all that {engine.name} lists"
        )
        raise UsageError(f"--nodes: found {count}; allowed: at most {len(healthy)}{suffix}")
    distances, unit, source = _distances(fleet, site, tree, usable, size)
    index = {name: i for i, name in enumerate(usable)}
    candidates, everyone = np.array([index[name] for name in healthy]), np.arange(len(usable))
    chosen = choose(distances, candidates, count)
    spreads = {
        "chosen": distances.spread(chosen),
        "first by name": distances.spread(everyone[:count]),
        "random, mean": random_spread(distances, everyone, count),
    }
    nodes = [usable[i] for i in chosen]
    return NodeChoice(nodes, unit, spreads, exported(tree, nodes), source, [n for n in usable if n in cases])


def _distances(
    fleet: Fleet, site: Site, tree: SwitchTree, names: Sequence[str], size: int | None
) -> tuple[Distances, str, str]:
    """Return the distances between nodes, their unit, and their origin."""
    campaign = newest_exchange(fleet, site.cluster)
    if not campaign:
        if size is not None:
            raise UsageError(
                f"--bytes: found {size}, but no messages were measured", f"meshmark fleet pairs {fleet.root}"
            )
        basis = "by levels of the switches" if tree.switches else "all nodes are at one level"
        return Distances(tree, names, None, ()), "levels", f"no messages were measured: {basis}"
    exchange = read_exchange(fleet, campaign, site.cluster)
    sizes = [int(p.conditions["message_bytes"]) for p in exchange.points]
    if size is not None and size not in sizes:
        raise UsageError(f"--bytes: found {size}; allowed: {', '.join(map(str, sizes))}, which were measured")
    metric = sizes.index(size) if size is not None else 0
    places = TreePlaces.from_tree(tree, exchange.nodes)
    terms = without_noise(exchange.pair_times, places, fit_terms(exchange.pair_times, places, tree))
    unknown = len({*names} - {*exchange.nodes})
    source = (
        f"expected times of messages of {sizes[metric]} bytes, from {counted(exchange.pairs, 'pair')} of {campaign}"
    )
    if unknown:
        source += f"; messages of {counted(unknown, 'node')} were not measured, and are assumed to be average"
    return Distances(tree, names, terms, exchange.nodes, metric), "s", source
