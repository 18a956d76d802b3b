"""Which nodes are meant to be equal: found from their hardware, never declared.

Nodes with the same processor, memory and firmware are a class. A few that differ from a large class of the same
processor are judged with it, since a missing memory module or an old firmware is what one looks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.baseline import MIN_NODES
from meshmark.fleet.facts import HARDWARE


@dataclass(frozen=True, slots=True)
class Class:
    """Nodes that are meant to be equal.

    Attributes:
        members: Indices of nodes.
        common: The facts that most of them have.
    """

    members: list[int]
    common: Mapping[str, str]

    @property
    def judged(self) -> bool:
        """Whether it has enough nodes to compare with."""
        return len(self.members) >= MIN_NODES

    @property
    def name(self) -> str:
        return ", ".join(self.common[k] for k in HARDWARE if k in self.common) or "unknown hardware"

    def deviations(self, facts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The facts in which a node differs from most of its class: the node's, the class's."""
        keys = {*self.common, *facts}
        return {
            k: (facts.get(k, "unknown"), self.common.get(k, "unknown"))
            for k in sorted(keys)
            if facts.get(k) != self.common.get(k)
        }


def classes(facts: Sequence[Mapping[str, str]]) -> list[Class]:
    """The classes of nodes, largest first; each node is in one.

    Args:
        facts: Of each node, as of `fleet.facts.node_facts`.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, of in enumerate(facts):
        groups.setdefault(tuple(of.get(k, "") for k in HARDWARE), []).append(i)
    merged: dict[tuple[str, ...], list[int]] = {}
    large = [key for key, members in groups.items() if len(members) >= MIN_NODES]
    for key, members in groups.items():
        target = key
        if len(members) < MIN_NODES:
            near = [k for k in large if k[_CPU] == key[_CPU]]
            # Without a large class, all small groups of a processor are one.
            best = max(near, key=lambda k: (_alike(k, key), len(groups[k])), default=None)
            target = best if best is not None else ("", key[_CPU])
        merged.setdefault(target, []).extend(members)
    found = [Class(sorted(members), _common([facts[i] for i in members])) for members in merged.values()]
    return sorted(found, key=lambda c: (-len(c.members), c.name))


_CPU: Final = HARDWARE.index("cpu")


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def _common(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The facts that more than half of the nodes have."""
    found = {}
    for key in sorted({k for of in facts for k in of}):
        value, count = Counter(of[key] for of in facts if key in of).most_common(1)[0]
        if 2 * count > len(facts):
            found[key] = value
    return found
