"""Which nodes exchange messages with which: in each round, every node has one partner, chosen at random.

A round prefers one distance, so that each node gets partners at all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from meshmark.fleet.arrays import Ints
from meshmark.fleet.topology import Places

if TYPE_CHECKING:
    from numpy.random import Generator

Pair = tuple[int, int]
_TRIES: Final = 50  # to exchange a pair that there was before


def draw_rounds(places: Places, count: int, seed: int) -> list[list[Pair]]:
    """Pairs of all nodes.

    Returns:
        For each round, pairs of indices; of an odd number of nodes, one is left out.
    """
    import numpy as np

    dice = np.random.default_rng(seed)
    everyone = np.arange(len(places.nodes))
    met, seen = Counter[int](), set[Pair]()
    return [_fresh(dice, places, everyone, level, met, seen) for level in preferred(places, count)]


def draw_confirmation(
    places: Places, suspects: Sequence[int], healthy: Sequence[int], controls: int, count: int, seed: int
) -> list[list[Pair]]:
    """Pairs of each suspect with a healthy node, and of healthy nodes.

    Args:
        healthy: In the order in which they are wanted.
        controls: Number of nodes that meet healthy ones only, if there are enough.

    Returns:
        For each round, pairs of indices; the first of a pair with a suspect is the suspect.
    """
    import numpy as np

    dice = np.random.default_rng(seed)
    among = list(healthy[:controls])
    partners = list(healthy[controls:]) if len(healthy) >= controls + len(suspects) else list(healthy)
    met, seen = Counter[int](), set[Pair]()
    rounds = []
    for level in preferred(places, count):
        pairs: list[Pair] = []
        free = [int(i) for i in dice.permutation(partners)]
        for suspect in dice.permutation(list(suspects)):
            if not free:
                break
            cost = (places.levels(np.array(free), int(suspect)) != level) * 1.0
            cost += [2.0 * (_ordered(int(suspect), i) in seen) for i in free]
            partner = free.pop(int(np.argmin(cost)))
            pairs.append((int(suspect), partner))
            seen.add(_ordered(int(suspect), partner))
        used = {i for _, i in pairs}
        rest = np.array([i for i in among if i not in used], int)
        rounds.append(pairs + _fresh(dice, places, rest, level, met, seen))
    return rounds


def preferred(places: Places, count: int) -> list[int]:
    """The distance that each round prefers, of those that occur."""
    import numpy as np

    heights = places.above.shape[1]
    sizes = [len(np.unique(places.above[:, h])) for h in range(heights)]
    found = [h + 1 for h, (fine, coarse) in enumerate(pairwise(sizes)) if coarse < fine] or [1]
    return [found[r % len(found)] for r in range(count)]


def _ordered(a: int, b: int) -> Pair:
    return (a, b) if a < b else (b, a)


def _fresh(dice: Generator, places: Places, nodes: Ints, level: int, met: Counter[int], seen: set[Pair]) -> list[Pair]:
    """A round with few pairs that there were before; notes its pairs."""
    pairs = _round(dice, places, nodes, level, met)
    for k, pair in enumerate(pairs):
        if _ordered(*pair) not in seen:
            continue
        for other in dice.permutation(len(pairs))[:_TRIES].tolist():
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
    met.update(i for pair in pairs for i in pair)
    return pairs


def _distances(places: Places, pairs: Sequence[Pair]) -> list[int]:
    import numpy as np

    a, b = np.array(pairs).T
    return sorted(places.levels(a, b).tolist())


def _round(dice: Generator, places: Places, nodes: Ints, level: int, met: Counter[int]) -> list[Pair]:
    """A random matching of nodes, as many as possible at this distance, the others at any."""
    pools: dict[int, list[int]] = {}
    for i in _mixed(dice, nodes, met):
        pools.setdefault(int(places.above[i, level]), []).append(i)
    pairs: list[Pair] = []
    left: list[int] = []
    for pool in pools.values():
        ours, others = _across(dice, pool, places.above[pool, level - 1])
        pairs += ours
        left += others
    left = _mixed(dice, left, met)[len(left) % 2 :]
    return pairs + list(zip(left[::2], left[1::2], strict=True))


def _mixed(dice: Generator, nodes: Collection[int] | Ints, met: Counter[int]) -> list[int]:
    """Nodes in random order, those with the most partners so far first: they are left out if some must be."""
    return sorted((int(i) for i in dice.permutation(list(nodes))), key=lambda i: -met[i])


def _across(dice: Generator, pool: Sequence[int], parts: Ints) -> tuple[list[Pair], list[int]]:
    """Pairs of nodes of different parts, and the nodes that are left.

    Nodes are ordered by part, and each is matched with the one half of them further: of another part, if no part has
    more than half of the nodes.
    """
    import numpy as np

    _, own, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    surplus = 2 * int(sizes.max()) - len(pool)
    eligible = np.flatnonzero(own == sizes.argmax()) if surplus > 0 else np.arange(len(pool))
    away = set(eligible[: surplus if surplus > 0 else len(pool) % 2].tolist())
    order = dice.permutation(len(sizes))
    kept = [int(i) for i in dice.permutation(len(pool)) if int(i) not in away]
    kept.sort(key=lambda i: int(order[own[i]]))
    half = len(kept) // 2
    pairs = [(pool[a], pool[b]) for a, b in zip(kept[:half], kept[half:], strict=True)]
    return pairs, [pool[i] for i in away]
