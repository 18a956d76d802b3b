"""Classes of nodes that are meant to be equal, derived from their hardware and never declared.

Nodes with the same processor, memory and firmware are a class. A few nodes that differ from a large class with the same
processor are judged with it, so that a missing memory module or an old firmware is detected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.fleet.data.facts import HARDWARE
from meshmark.fleet.health.baseline import MIN_NODES


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that are meant to be equal.

    Attributes:
        members: Indices of nodes.
        common: The facts that most of them have.
    """

    members: list[int]
    common: Mapping[str, str]

    @property
    def judged(self) -> bool:
        """Return whether the class has enough nodes to compare them with one another."""
        return len(self.members) >= MIN_NODES

    @property
    def name(self) -> str:
        """Return the common hardware of the class in words, or `unknown hardware`."""
        return ", ".join(self.common[k] for k in HARDWARE if k in self.common) or "unknown hardware"

    def deviations(self, facts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the facts in which a node differs from most of its class: value of the node, value of the class."""
        keys = {*self.common, *facts}
        return {
            k: (facts.get(k, "unknown"), self.common.get(k, "unknown"))
            for k in sorted(keys)
            if facts.get(k) != self.common.get(k)
        }


def classes(facts: Sequence[Mapping[str, str]]) -> list[NodeClass]:
    """Return the classes of nodes, largest first; each node is in one class.

    Args:
        facts: Facts of each node, as `fleet.facts.node_facts` returns them.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, node_facts in enumerate(facts):
        groups.setdefault(tuple(node_facts.get(k, "") for k in HARDWARE), []).append(i)
    merged: dict[tuple[str, ...], list[int]] = {}
    large = [key for key, members in groups.items() if len(members) >= MIN_NODES]
    for key, members in groups.items():
        target = key
        if len(members) < MIN_NODES:
            similar = [k for k in large if k[_CPU] == key[_CPU]]
            # Without a large class, all small groups with the same processor are one class.
            best = max(similar, key=lambda k: (_alike(k, key), len(groups[k])), default=None)
            target = best if best is not None else ("", key[_CPU])
        merged.setdefault(target, []).extend(members)
    result = [NodeClass(sorted(members), _common([facts[i] for i in members])) for members in merged.values()]
    return sorted(result, key=lambda c: (-len(c.members), c.name))


_CPU: Final = HARDWARE.index("cpu")


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def _common(facts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the facts that more than half of the nodes have."""
    common = {}
    for key in sorted({k for node_facts in facts for k in node_facts}):
        value, count = Counter(node_facts[key] for node_facts in facts if key in node_facts).most_common(1)[0]
        if 2 * count > len(facts):
            common[key] = value
    return common
