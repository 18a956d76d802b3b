"""Sets of nodes as administrators write them, such as `n[1-16,20]`, by ClusterShell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from meshmark.errors import UsageError, quoted

_MAX: Final = 1_000_000  # nodes in a set


def expand(text: str, field: str = "nodes") -> list[str]:
    """The names in a set, in natural order.

    Raises:
        UsageError: It is not a set.
    """
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        found = NodeSet(text, resolver=None)
        if len(found) > _MAX:
            raise UsageError(f"{field}: found {len(found)} nodes; allowed: up to {_MAX}")
        return list(found)
    except (NodeSetException, ValueError) as why:
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: a set such as n[1-16,20],gpu3") from why


def fold(names: Iterable[str]) -> str:
    """The inverse of `expand`."""
    from ClusterShell.NodeSet import NodeSet

    return str(NodeSet.fromlist(list(names), resolver=None))


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order of their numbers."""
    folded = fold(names)
    return expand(folded) if folded else []
