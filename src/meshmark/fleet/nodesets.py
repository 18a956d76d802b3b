"""Names of nodes, and node sets such as `n[1-16,20]` in the syntax of ClusterShell.

A name of a node becomes a word of commands and part of a path. It is checked where it is read: from the command line,
from fleet.toml, from a batch system, and from files of campaigns. The nodes of a set are counted before it is expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from meshmark.errors import UsageError, extra, quoted
from meshmark.values.node_names import MAX_CHARACTERS, NODE_NAME, is_node_name

MAX_NODES: Final = 200_000  # nodes in a set; the largest cluster by number of nodes, Fugaku, has 158,976
_EXAMPLE: Final = "a set such as n[1-16,20],gpu3"
_SET: Final = re.compile(r"[A-Za-z0-9._\-\[\],/!&^\s]*")
_RANGE: Final = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,9}))?)?", re.ASCII)
_RANGES: Final = re.compile(r"\[([^\]]*)\]?")
_PART: Final = re.compile(r"(?:[^,!&^\s\[]|\[[^\]]*\]?)+")  # part of a set, up to a separator outside brackets
_COUNTLESS: Final = 10**18  # nodes; larger numbers are neither computed nor printed
_MAX_TEXT: Final = 20 * MAX_NODES  # characters of a set; each name in a set that is not folded has some


def checked_names(names: Iterable[object], field: str = "nodes") -> list[str]:
    """Return names of nodes as they are.

    Raises:
        UsageError: A name is not a name of a node; the message begins with `field`.
    """
    checked = []
    for name in names:
        if not isinstance(name, str) or not is_node_name(name):
            raise UsageError(f"{field}: found '{quoted(name, 60)}'; a name of a node has {NODE_NAME}")
        checked.append(name)
    return checked


def own_node_name() -> str:
    """Return the name of this host, without its domain.

    Raises:
        UsageError: The name of the host is not a valid name of a node.
    """
    import socket

    name = socket.gethostname().partition(".")[0]
    if not is_node_name(name):
        raise UsageError(
            f"nodes: found this host's name '{quoted(name)}'; a name of a node has {NODE_NAME}", "--nodes NAME"
        )
    return name


def expand(text: str, field: str = "nodes") -> list[str]:
    """Return the names in a set, in natural order.

    Ranges may have leading zeros and steps (`n[01-16/2]`), and a name several ranges (`r[1-4]n[1-16]`). Sets are
    combined from left to right by `,` (union), `!` (difference), `&` (intersection) and `^` (either, not both).

    Raises:
        UsageError: The text is not a set, or the set has more than `MAX_NODES` nodes; the message begins with `field`.
    """
    with extra("fleet"):
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if "@" in text or "*" in text:
        hint = f"nodeset --fold {text} prints its nodes" if re.fullmatch(r"@[\w.:-]{1,60}", text, re.ASCII) else ""
        raise UsageError(f"{field}: found '{quoted(text)}'; groups and wildcards are not allowed, but {_EXAMPLE}", hint)
    if not _SET.fullmatch(text):
        raise UsageError(f"{field}: found '{quoted(text)}'; a name of a node has {NODE_NAME}")
    if len(text) > _MAX_TEXT or (count := _count(text)) > MAX_NODES:
        number = "too many" if len(text) > _MAX_TEXT or count >= _COUNTLESS else f"{count:,}"
        raise UsageError(f"{field}: found '{quoted(text, 60)}' with {number} nodes; allowed: up to {MAX_NODES:,}")
    # ClusterShell would take minutes for a longer name.
    if any(len(_RANGES.sub("0", part)) > MAX_CHARACTERS for part in _PART.findall(text)):
        raise UsageError(f"{field}: found '{quoted(text, 60)}'; a name of a node has {NODE_NAME}")
    try:
        names = list(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError) as error:
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: {_EXAMPLE}") from error
    return checked_names(names, field)


def _count(text: str) -> int:
    """Return an upper bound of the number of nodes in a set without expanding it; malformed ranges count as one."""
    total = 0
    for part in _PART.findall(text):
        count = 1
        for ranges in _RANGES.finditer(part):
            count *= sum(_count_range(text_range) for text_range in ranges[1].split(","))
            if count >= _COUNTLESS:  # the product of numbers with thousands of digits takes minutes
                return _COUNTLESS
        total += count
    return total


def _count_range(text: str) -> int:
    match = _RANGE.fullmatch(text.strip())
    if match is None:  # ClusterShell refuses it, unless it has more digits than any number of nodes
        return MAX_NODES + 1 if re.search(r"\d{19}", text) else 1
    first, last, step = (int(group) if group else None for group in match.groups())
    assert first is not None
    return 1 if last is None else max(0, last - first) // max(1, step or 1) + 1


def fold(names: Iterable[str]) -> str:
    """Return the set of these names; the inverse of `expand`."""
    with extra("fleet"):
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of their numbers: n2 before n10."""
    folded = fold(names)
    return expand(folded) if folded else []
