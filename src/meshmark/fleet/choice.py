"""The nodes of a fleet that are chosen for a job, compared with other choices."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshmark.errors import UsageError
from meshmark.fleet.cases import NETWORK, State
from meshmark.fleet.engines.engine import Engine
from meshmark.fleet.folder import Fleet
from meshmark.fleet.links import fit_terms, without_noise
from meshmark.fleet.network import newest_exchange, read_exchange
from meshmark.fleet.nodesets import expand, fold, in_order
from meshmark.fleet.placing import Distances, Spread, choose, exported, random_spread
from meshmark.fleet.site import Site
from meshmark.fleet.topology import Places, Tree
from meshmark.values.units import counted, plain


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of nodes.

    Attributes:
        unit: Of the spreads: s, or levels.
        spreads: Of the chosen nodes, of the first ones by name, and the mean of random sets.
        options: See `placing.exported`.
        source: What the times are from.
        avoided: Nodes with an open case.
    """

    nodes: list[str]
    unit: str
    spreads: dict[str, Spread]
    options: dict[str, str]
    source: str
    avoided: list[str]

    def rows(self) -> list[dict[str, Any]]:
        """A table for people."""

        def text(value: float) -> str:
            return plain(value, "s") if self.unit == "s" else f"{value:.4g}"

        return [
            {
                "nodes": name if self.unit == "s" else f"{name}, levels",
                **{k: text(v) for k, v in dataclasses.asdict(of).items()},
            }
            for name, of in self.spreads.items()
        ]

    def to_json(self) -> dict[str, Any]:
        return {"type": "placement", **dataclasses.asdict(self)}


def choose_nodes(
    fleet: Fleet,
    site: Site,
    engine: Engine,
    tree: Tree,
    count: int,
    among: str = "",
    idle_only: bool = False,
    size: int | None = None,
) -> Choice:
    """Choose nodes near one another.

    Args:
        among: A set of nodes; "": all that the engine knows.
        size: Of messages, in bytes; None: the smallest that was measured.

    Raises:
        UsageError: There are not so many nodes, one is unknown, or no messages of this size were measured.
        MeshmarkError: The engine does not answer, or a file cannot be read.
    """
    import numpy as np

    states = {node.name: node.state for node in engine.nodes()}
    names = in_order(expand(among, "--among") if among else states)
    if unknown := [name for name in names if name not in states]:
        raise UsageError(f"--among: found {fold(unknown)}, which {engine.name} does not know")
    usable = [name for name in names if states[name] == "idle" or (states[name] in {"off", "busy"} and not idle_only)]
    cases = {name for of in ("", NETWORK) for name in State.load(fleet, site.cluster, of).open}
    healthy = [name for name in usable if name not in cases]
    if count > len(healthy):
        left = Counter(states[n] for n in names if n not in usable)
        why = [f"{k} {state}" for state, k in sorted(left.items())]
        why += [f"{len(usable) - len(healthy)} with an open case"] if len(usable) > len(healthy) else []
        of = f" of {counted(len(names), 'node')}" + (
            f" ({', '.join(why)})" if why else f", all that {engine.name} knows"
        )
        raise UsageError(f"--nodes: found {count}; allowed: at most {len(healthy)}{of}")
    distances, unit, source = _distances(fleet, site, tree, usable, size)
    at = {name: i for i, name in enumerate(usable)}
    able, everyone = np.array([at[name] for name in healthy]), np.arange(len(usable))
    chosen = choose(distances, able, count)
    spreads = {
        "chosen": distances.spread(chosen),
        "first by name": distances.spread(everyone[:count]),
        "random, mean": random_spread(distances, everyone, count),
    }
    nodes = [usable[i] for i in chosen]
    return Choice(nodes, unit, spreads, exported(tree, nodes), source, [n for n in usable if n in cases])


def _distances(
    fleet: Fleet, site: Site, tree: Tree, names: Sequence[str], size: int | None
) -> tuple[Distances, str, str]:
    """Distances, their unit, and what they are from."""
    campaign = newest_exchange(fleet, site.cluster)
    if not campaign:
        if size is not None:
            raise UsageError(
                f"--bytes: found {size}, but no messages were measured", f"meshmark fleet pairs {fleet.root}"
            )
        what = "by levels of the switches" if tree.switches else "all nodes are at one level"
        return Distances(tree, names, None, ()), "levels", f"no messages were measured: {what}"
    seen = read_exchange(fleet, campaign, site.cluster)
    sizes = [int(p.conditions["message_bytes"]) for p in seen.points]
    if size is not None and size not in sizes:
        raise UsageError(f"--bytes: found {size}; allowed: {', '.join(map(str, sizes))}, which were measured")
    metric = sizes.index(size) if size is not None else 0
    places = Places.of(tree, seen.nodes)
    terms = without_noise(seen.met, places, fit_terms(seen.met, places, tree))
    unknown = len({*names} - {*seen.nodes})
    source = f"expected times of messages of {sizes[metric]} bytes, from {counted(seen.pairs, 'pair')} of {campaign}"
    if unknown:
        source += f"; messages of {counted(unknown, 'node')} were not measured, and are taken as average"
    return Distances(tree, names, terms, seen.nodes, metric), "s", source
