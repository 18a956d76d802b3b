"""Draws the pairs of nodes that exchange messages: in each round, every node has one partner, chosen at random.

Each round prefers one distance, so that each node has partners at all distances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from meshmark.fleet.network.topology import TreePlaces
from meshmark.statistics.arrays import Ints

if TYPE_CHECKING:
    from numpy.random import Generator

Pair = tuple[int, int]
_TRIES: Final = 50  # attempts to exchange a pair that was drawn before


def draw_rounds(places: TreePlaces, count: int, seed: int) -> list[list[Pair]]:
    """Draw pairs of all nodes.

    Returns:
        For each round, pairs of indices; one node is left out if their number is odd.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    all_nodes = np.arange(len(places.nodes))
    partner_counts, earlier_pairs = Counter[int](), set[Pair]()
    return [_fresh(rng, places, all_nodes, level, partner_counts, earlier_pairs) for level in preferred(places, count)]


def draw_confirmation(
    places: TreePlaces, suspects: Sequence[int], healthy: Sequence[int], controls: int, count: int, seed: int
) -> list[list[Pair]]:
    """Draw pairs of each suspect with a healthy node, and pairs of healthy nodes.

    Args:
        places: Places of the nodes in the tree.
        suspects: Indices of suspected nodes.
        healthy: Healthy nodes in the order of preference.
        controls: Number of nodes that are paired with healthy nodes only, if there are enough.
        count: Number of rounds.
        seed: Seed of the draws.

    Returns:
        For each round, pairs of indices; the first of a pair with a suspect is the suspect.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    control_nodes = list(healthy[:controls])
    partners = list(healthy[controls:]) if len(healthy) >= controls + len(suspects) else list(healthy)
    partner_counts, earlier_pairs = Counter[int](), set[Pair]()
    rounds = []
    for level in preferred(places, count):
        pairs: list[Pair] = []
        free = [int(i) for i in rng.permutation(partners)]
        for suspect in rng.permutation(list(suspects)):
            if not free:
                break
            cost = (places.levels(np.array(free), int(suspect)) != level) * 1.0
            cost += [2.0 * (_ordered(int(suspect), i) in earlier_pairs) for i in free]
            partner = free.pop(int(np.argmin(cost)))
            pairs.append((int(suspect), partner))
            earlier_pairs.add(_ordered(int(suspect), partner))
        used = {i for _, i in pairs}
        remaining = np.array([i for i in control_nodes if i not in used], int)
        rounds.append(pairs + _fresh(rng, places, remaining, level, partner_counts, earlier_pairs))
    return rounds


def preferred(places: TreePlaces, count: int) -> list[int]:
    """Return the distance that each round prefers, among the distances that occur."""
    import numpy as np

    heights = places.above.shape[1]
    sizes = [len(np.unique(places.above[:, h])) for h in range(heights)]
    distances = [h + 1 for h, (fine, coarse) in enumerate(pairwise(sizes)) if coarse < fine] or [1]
    return [distances[r % len(distances)] for r in range(count)]


def _ordered(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _fresh(
    rng: Generator, places: TreePlaces, nodes: Ints, level: int, counts: Counter[int], seen: set[Pair]
) -> list[Pair]:
    """Draw a round that repeats few earlier pairs, and add its pairs to `counts` and `seen`."""
    pairs = _round(rng, places, nodes, level, counts)
    for k, pair in enumerate(pairs):
        if _ordered(*pair) not in seen:
            continue
        for other in rng.permutation(len(pairs))[:_TRIES].tolist():
            (a, b), (c, d) = pair, pairs[other]
            old, new = (pair, (c, d)), ((a, d), (c, b))
            if (
                other != k
                and not any(_ordered(*p) in seen for p in new)
                and _distances(places, old) == _distances(places, new)
            ):
                pairs[k], pairs[other] = new
                break
    seen.update(_ordered(*pair) for pair in pairs)
    counts.update(i for pair in pairs for i in pair)
    return pairs


def _distances(places: TreePlaces, pairs: Sequence[Pair]) -> list[int]:
    import numpy as np

    a, b = np.array(pairs).T
    return sorted(places.levels(a, b).tolist())


def _round(rng: Generator, places: TreePlaces, nodes: Ints, level: int, counts: Counter[int]) -> list[Pair]:
    """Draw a random matching of nodes: as many pairs as possible at this distance, the others at any distance."""
    pools: dict[int, list[int]] = {}
    for i in _mixed(rng, nodes, counts):
        pools.setdefault(int(places.above[i, level]), []).append(i)
    pairs: list[Pair] = []
    unmatched: list[int] = []
    for pool in pools.values():
        matched, rest = _across(rng, pool, places.above[pool, level - 1])
        pairs += matched
        unmatched += rest
    unmatched = _mixed(rng, unmatched, counts)[len(unmatched) % 2 :]
    return pairs + list(zip(unmatched[::2], unmatched[1::2], strict=True))


def _mixed(rng: Generator, nodes: Collection[int] | Ints, counts: Counter[int]) -> list[int]:
    """Return nodes in random order, nodes with the most partners so far first, since the first may be left out."""
    return sorted((int(i) for i in rng.permutation(list(nodes))), key=lambda i: -counts[i])


def _across(rng: Generator, pool: Sequence[int], parts: Ints) -> tuple[list[Pair], list[int]]:
    """Return pairs of nodes of different parts, and the unmatched nodes.

    Nodes are ordered by part, and each is paired with the node at half the length further. That node is in another part
    if no part has more than half of the nodes.
    """
    import numpy as np

    _, part_index, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    surplus = 2 * int(sizes.max()) - len(pool)
    eligible = np.flatnonzero(part_index == sizes.argmax()) if surplus > 0 else np.arange(len(pool))
    excluded = set(eligible[: surplus if surplus > 0 else len(pool) % 2].tolist())
    order = rng.permutation(len(sizes))
    retained = [int(i) for i in rng.permutation(len(pool)) if int(i) not in excluded]
    retained.sort(key=lambda i: int(order[part_index[i]]))
    half = len(retained) // 2
    pairs = [(pool[a], pool[b]) for a, b in zip(retained[:half], retained[half:], strict=True)]
    return pairs, [pool[i] for i in excluded]
