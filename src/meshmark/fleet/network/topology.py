"""The tree of switches of a network, and the distances between nodes in it.

Source:
    topology.conf(5) and `scontrol show topology` of Slurm (topology/tree and topology/block).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError, quoted
from meshmark.fleet.nodesets import MAX_NODES, expand
from meshmark.statistics.arrays import Ints
from meshmark.store.files import read_text

_LINE: Final = "lines such as SwitchName=s1 Nodes=n[1-16], or SwitchName=top Switches=s[1-4]"
_KEY: Final = re.compile(r"(\w+)=(\S*)")
_NAMES: Final = ("switchname", "blockname")
_ALONE: Final = ("blocksizes",)  # keys of lines that do not name a switch
_LEVELS: Final = 32  # largest number of levels of switches; real networks have up to six


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch, or a block of nodes.

    Attributes:
        height: 1 if only nodes are below it, otherwise one more than the height of the highest switch below.
        nodes: All nodes below it.
    """

    name: str
    height: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SwitchTree:
    """Switches, the lowest first; () if no switches are known, so that all nodes have the same distance."""

    switches: Sequence[Switch] = ()

    @property
    def height(self) -> int:
        """Return the number of levels of switches; 0 without switches."""
        return max((s.height for s in self.switches), default=0)

    def missing(self, nodes: Sequence[str]) -> list[str]:
        """Return nodes that are below no switch, if switches are known."""
        nodes_below = {node for switch in self.switches for node in switch.nodes}
        return [node for node in nodes if nodes_below and node not in nodes_below]


@dataclass(frozen=True, slots=True)
class TreePlaces:
    """The positions of nodes in a tree.

    Attributes:
        nodes: Names of nodes.
        above: The highest switch above each node up to each height, from 0 to one more than the height of the tree:
            number of the switch, or of the node itself, or -1 for the whole tree in the last column; integers of shape
            (nodes, heights).
        switches: Numbers of switches by name.
    """

    nodes: Sequence[str]
    above: Ints
    switches: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def from_tree(tree: SwitchTree, nodes: Sequence[str]) -> TreePlaces:
        """Return the places of nodes: for each node and level, the number of the switch above it."""
        import numpy as np

        n, index = len(nodes), {name: i for i, name in enumerate(nodes)}
        above = np.tile(np.arange(n)[:, None], (1, tree.height + 2))
        above[:, -1] = -1
        for number, switch in enumerate(tree.switches, n):
            rows = [index[name] for name in switch.nodes if name in index]
            above[rows, switch.height : -1] = number
        return TreePlaces(nodes, above, {switch.name: n + i for i, switch in enumerate(tree.switches)})

    def levels(self, a: Ints | int, b: Ints | int) -> Ints:
        """Return the distances of nodes given by their indices.

        The distance is the height of the lowest switch above both nodes, at least 1. Without such a switch, it is one
        more than the height of the tree.
        """
        import numpy as np

        return np.asarray((self.above[a] != self.above[b]).sum(axis=-1))

    def below(self, name: str) -> Ints:
        """Return the indices of the nodes below a switch."""
        import numpy as np

        return np.flatnonzero((self.above == self.switches[name]).any(axis=1))


def load_tree(path: Path) -> SwitchTree:
    """Return the tree that a file describes.

    Raises:
        UsageError: The file is invalid; the message names the line, what was found and what is allowed.
        MeshmarkError: The file cannot be read.
    """
    return read_tree(read_text(path), path.name)


def read_tree(text: str, where: str) -> SwitchTree:
    """Return the tree that a topology.conf, or the output of `scontrol show topology`, describes.

    Args:
        text: The lines.
        where: Name of the source in errors.

    Raises:
        UsageError: The text is invalid; the message names the line, what was found and what is allowed.
    """
    nodes: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    text = re.sub(r"\\\n", " ", text)
    count = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        keys = {key.lower(): value for key, value in _KEY.findall(line)}
        if any(key in keys for key in _ALONE):
            continue
        field = f"{where}: line {number}"
        name = next((keys[key] for key in _NAMES if keys.get(key)), "")
        if not name:
            raise UsageError(f"{field}: found '{quoted(line[:80])}'; allowed: {_LINE}")
        if name in nodes:
            raise UsageError(f"{field}: found a second {quoted(name)}; allowed: one line for each switch")
        if not keys.get("nodes") and not keys.get("switches"):
            raise UsageError(f"{field}: found {quoted(name)} without Nodes and Switches; allowed: {_LINE}")
        nodes[name] = expand(keys.get("nodes", ""), f"{field}: Nodes")
        switches = keys.get("switches", "")  # names of switches may have other characters than names of nodes
        children[name] = (
            expand(switches, f"{field}: Switches") if "[" in switches else list(filter(None, switches.split(",")))
        )
        count += len(nodes[name]) + len(children[name])
        if count > 4 * MAX_NODES:
            raise UsageError(f"{field}: found {count:,} names so far; allowed: up to {4 * MAX_NODES:,} in all lines")
    return _tree(nodes, children, where)


def _tree(nodes: Mapping[str, Sequence[str]], children: Mapping[str, Sequence[str]], where: str) -> SwitchTree:
    parents: dict[str, str] = {}
    for name, below in children.items():
        for child in below:
            if child not in nodes:
                switch_names = quoted(", ".join(nodes), 200)
                raise UsageError(
                    f"{where}: {name}: found Switches={quoted(child)}; allowed: its switches, {switch_names}"
                )
            if child in parents:
                raise UsageError(f"{where}: found {child} below {parents[child]} and below {name}; allowed: a tree")
            parents[child] = name
    switch_by_name: dict[str, Switch] = {}
    unbuilt = dict(nodes)
    for _ in range(_LEVELS):
        if not unbuilt:
            break
        ready = [name for name in unbuilt if all(child in switch_by_name for child in children[name])]
        if not ready:
            raise UsageError(f"{where}: found a loop of switches, {', '.join(sorted(unbuilt)[:8])}; allowed: a tree")
        for name in ready:
            lower = [switch_by_name[child] for child in children[name]]
            switch_nodes = dict.fromkeys(node for switch in lower for node in switch.nodes)
            switch_nodes.update(dict.fromkeys(unbuilt.pop(name)))  # scontrol repeats the nodes of the switches below
            switch_by_name[name] = Switch(name, 1 + max((s.height for s in lower), default=0), tuple(switch_nodes))
    if unbuilt:
        examples = ", ".join(sorted(unbuilt)[:8])
        raise UsageError(f"{where}: found switches above {_LEVELS} others, {examples}; allowed: up to {_LEVELS} levels")
    _check_disjoint(switch_by_name, parents, where)
    return SwitchTree(sorted(switch_by_name.values(), key=lambda switch: switch.height))


def _check_disjoint(switches: Mapping[str, Switch], parents: Mapping[str, str], where: str) -> None:
    """Raise UsageError if a node is below two switches, and neither of them is below the other."""
    lowest: dict[str, str] = {}
    for switch in sorted(switches.values(), key=lambda switch: switch.height):
        for node in switch.nodes:
            if node in lowest and parents.get(lowest[node]) != switch.name:
                other = lowest[node]
                raise UsageError(f"{where}: found {node} below {other} and below {switch.name}; allowed: a tree")
            lowest[node] = switch.name
