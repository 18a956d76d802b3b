"""Determines the kind of thing that a result measured, in words that have the same meaning for every source.

Two results are compared only if they are of one kind: the level of the memory hierarchy, where the memory is, the part
of the machine that worked, and the state of a line. Meshmark's instruments record these (`memory_level`,
`memory_place`, `cpus_fill`, `cpus_within`). For other sources they are derived from the footprint and from what the
tool is known to do; what cannot be derived stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

from meshmark.store.record import Record

_K = TypeVar("_K")
Words = Mapping[str, frozenset[str]]  # possible words by aspect; one word: it is known; no word: it is unknown
LEVEL: Final = "level"
MEMORY: Final = "memory"
CPUS: Final = "CPUs"
LOAD: Final = "load"
_SIZED: Final = frozenset({"latency", "bandwidth", "loaded", "gups"})
_DETECTED: Final = frozenset({"level_latency", "level_capacity"})  # the conditions name their level and kind
_MPI: Final = frozenset({"pingpong", "exchange", "allreduce", "alltoall", "barrier", "bcast"})
# Tools that measure memory, unless the user requests a smaller buffer, which they print.
_OF_MEMORY: Final = frozenset({"mlc", "asct", "mess"})
_OF_ALL_CPUS: Final = frozenset({"mlc", "asct", "mess", "babelstream"})  # if they state no threads
_WITH_CPUS: Final = ("cpu_node", "from_node", "to_node")  # conditions that name nodes with CPUs
_DELAYS: Final = ("pause", "inject_delay", "injected_nops", "injected_pause")
_NOT_TINY: Final = 64 << 20
# No processor has larger caches: 504 MiB that one core can use (Xeon 6), 48 MiB for each core if all are busy (EPYC
# 7373X), 1152 MiB in a socket (EPYC 9684X).
_BEYOND_ANY_CACHE: Final = 2 * 504 << 20
_BEYOND_EACH_SHARE: Final = 2 * 48 << 20
_BEYOND_ALL_CACHES: Final = 2 * 2 * 1152 << 20  # of two sockets
_IN_ANY_L1: Final = 16 << 10
_REMOTE: Final = frozenset({"same socket", "other socket"})
_WITHIN: Final = {  # `cpus_within` of two CPUs that exchange a line
    "core": "one core",
    "cache": "one cache",
    "node": "one socket",
    "socket": "one socket",
    "machine": "two sockets",
}
_IN_ONE_SOCKET: Final = frozenset({"one cache", "one socket"})
_LEVELS: Final = {"DRAM": frozenset({"memory"}), "LLC": frozenset({"L3", "L4"})}


@dataclass(frozen=True, slots=True)
class Workers:
    """The CPUs that worked.

    Attributes:
        count: Number of threads or processes; None: unknown.
        part: The part of the machine that they fill: machine, socket, node; "": no such part, or unknown. `each of N`
            marks the result of one of N ranks that all ran.
    """

    count: int | None = None
    part: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ResultKind:
    """A kind of results. `workers` is None if the instrument has no number of workers."""

    words: Words
    workers: Workers | None


def source(record: Record) -> str:
    """Return the source of a record: a tool with its name, or host, model, paper."""
    return f"tool {record.provenance.get('tool', '')}" if record.source == "tool" else record.source


def grouped(records: Iterable[Record], key: Callable[[Record], _K]) -> dict[_K, list[Record]]:
    """Return the records by a key; the records of a key keep their order."""
    groups: dict[_K, list[Record]] = {}
    for r in records:
        groups.setdefault(key(r), []).append(r)
    return groups


def kinds(records: Sequence[Record]) -> dict[int, ResultKind]:
    """Return the kind of each record of a side, by its `id`. Records of one kind share it."""
    groups = grouped(records, lambda r: (source(r), r.instrument, r.metric))
    spans = [span for r in records if (span := _span(r)) is not None]
    kind_by_id: dict[int, ResultKind] = {}
    kind_by_content: dict[tuple[Any, ...], ResultKind] = {}
    for group in groups.values():
        largest_count = max((count for r in group if (count := _count(r)) is not None), default=0)
        nodes = {n for r in group for name in _WITH_CPUS if isinstance(n := r.conditions.get(name), int)}
        for r in group:
            words, workers = _words(r, spans, nodes), _workers(r, largest_count)
            content = (*words.items(), workers)
            if (kind := kind_by_content.get(content)) is None:
                kind = kind_by_content[content] = ResultKind(words, workers)
            kind_by_id[id(r)] = kind
    return kind_by_id


def known_words(kinds_of_metric: Iterable[ResultKind]) -> dict[str, set[str]]:
    """Return, by aspect, the words that are known of the results of a metric."""
    words_by_aspect: dict[str, set[str]] = {}
    for kind in set(kinds_of_metric):
        for aspect, words in kind.words.items():
            if len(words) == 1:
                words_by_aspect.setdefault(aspect, set()).update(words)
    return words_by_aspect


def resolved(words: Words, known: Mapping[str, Set[str]]) -> dict[str, str]:
    """Return one word for each aspect, "" where it is unknown.

    If a source only states that memory is remote, the one kind of remote memory that the other side has is meant.

    Args:
        words: The possible words of each aspect of a result.
        known: `known_words` of the other side's results of the metric.
    """
    return {aspect: _one(may_be, known.get(aspect, frozenset())) for aspect, may_be in words.items()}


def _one(may_be: frozenset[str], known: Set[str]) -> str:
    if len(may_be) < 2:
        return next(iter(may_be), "")
    common = may_be & known
    return " or ".join(sorted(may_be)) if not common else next(iter(common)) if len(common) == 1 else ""


@lru_cache(maxsize=4096, typed=True)
def _known(word: object) -> frozenset[str]:
    return frozenset({str(word)}) if word not in {None, ""} else frozenset()


def _words(record: Record, spans: Sequence[tuple[float, float, str]], nodes: Set[int]) -> dict[str, frozenset[str]]:
    """Return the possible words of each aspect of a record.

    Args:
        spans: Smallest and largest footprint in bytes of each level of the hierarchy, and its word.
        nodes: Nodes on whose CPUs the source has results of the metric.
    """
    c = record.conditions
    words: dict[str, frozenset[str]] = {}
    if record.metric in _DETECTED:
        return words
    if record.instrument in _SIZED:
        words[LEVEL], words[MEMORY] = _level(record, spans), _place(record, nodes)
    if record.instrument == "loaded" and "mode" in c:
        words[LOAD] = _load(record)
    if record.instrument == "bandwidth":
        words["kernel"] = _known(c.get("kernel", "read" if c.get("read_share") == 1 else None))
    if record.instrument == "lines":
        words |= {CPUS: _between(record, nodes), "state": _known(c.get("state")), "home": _known(_home(record))}
    if record.instrument in _MPI:
        names = str(c.get("host_names") or "")
        words["hosts"] = _known("several hosts" if "," in names else "one host" if names else "")
    return words


# ------------------------------------------------------------------ level and place of memory


def _number(record: Record, *names: str) -> float | None:
    return next((float(v) for n in names if isinstance(v := record.conditions.get(n), int | float)), None)


def _span(record: Record) -> tuple[float, float, str] | None:
    """Return the footprints and the name of a level that a latency curve shows; None for other records."""
    if record.metric != "level_latency":
        return None
    low, high, level = (_number(record, n) for n in ("from_bytes", "to_bytes", "level"))
    if low is None or high is None or level is None:
        return None
    if record.conditions.get("kind") == "memory":
        return low, high, "memory"
    return (low, high, f"L{level:.0f}") if record.conditions.get("claimed_bytes") else None


def _level(record: Record, spans: Sequence[tuple[float, float, str]]) -> frozenset[str]:
    c = record.conditions
    if "memory_level" in c or record.source in {"model", "paper"}:
        return _known(c.get("memory_level", "memory"))  # publications that state no level measured memory
    if isinstance(c.get("level"), str):
        return _LEVELS.get(str(c["level"]), _known(c["level"]))
    size = _number(record, "footprint_bytes", "table_bytes")
    tool = source(record).removeprefix("tool ")
    if tool in _OF_MEMORY and (size is None or size >= _NOT_TINY):
        return _known("memory")
    if size is None:
        return frozenset()
    count = _count(record) or 1
    share_bytes = size / count if record.instrument == "bandwidth" else size
    curve_levels = {name for low, high, name in spans if low <= share_bytes <= high} if count == 1 else set()
    if len(curve_levels) == 1:
        return frozenset(curve_levels)
    if share_bytes <= _IN_ANY_L1:
        return _known("L1")
    if record.instrument == "bandwidth":
        is_memory = size >= _BEYOND_ANY_CACHE and share_bytes >= _BEYOND_EACH_SHARE
    else:  # the threads of `gups` and `loaded` share their memory
        is_memory = size >= (_BEYOND_ANY_CACHE if count == 1 else _BEYOND_ALL_CACHES)
    return _known("memory") if is_memory else frozenset()


def _place(record: Record, nodes: Set[int]) -> frozenset[str]:
    c = record.conditions
    if word := c.get("memory_place"):
        return _known(word)
    node, cpu_node, hops = c.get("memory_node"), c.get("cpu_node"), c.get("hops")
    if hops is not None:
        return _known("local" if hops == 0 else f"{hops} hop{'s' * (hops != 1)} away")
    if node in {None, "local"}:  # Linux allocates memory on the node that first touches it
        return _known("local")
    if not isinstance(node, int):
        return _known("interleaved")
    if cpu_node is None:
        return _known("local") if node == c.get("cpu") == 0 else frozenset()  # CPU 0 is on node 0
    if cpu_node == node:
        return _known("local")
    # Tools that have a row for each node with CPUs also have columns for nodes without CPUs. If several other nodes
    # have CPUs, some of them may be in the same socket.
    return _known("without CPUs") if node not in nodes else _REMOTE if len(nodes) <= 2 else frozenset()


def _load(record: Record) -> frozenset[str]:
    """Return what loads the memory. Each tool counts delays in a unit of its own."""
    c = record.conditions
    if c["mode"] == "chains":
        return _known(f"{c.get('chains')} chains")
    unit = next((name for name in (*_DELAYS, "point") if name in c), "")
    return _known(f"{source(record)}, {unit.replace('_', ' ')} {c[unit]}" if unit else "")


# ------------------------------------------------------------------ CPUs


def _count(record: Record) -> int | None:
    count = _number(record, "threads", "processes")
    return None if count is None or not math.isfinite(count) else int(count)


def _workers(record: Record, most: int) -> Workers | None:
    """Return the workers of a record; None if the instrument has no number of workers.

    Args:
        most: The largest number of workers in the source's results of the metric. Unless a result states which CPUs
            worked, this many workers are assumed to fill the machine.
    """
    c, tool = record.conditions, source(record).removeprefix("tool ")
    count = _count(record)
    if record.instrument == "latency" and count is None:
        count = 1
    if c.get("running") == "all":  # the rate of one rank while all run, or their mean: not their sum
        return Workers(None, f"each of {c.get('ranks')}")
    if count is None:
        if record.instrument not in {"bandwidth", "loaded"}:
            return None
        if tool == "lmbench":
            return Workers(1)
        part = "node" if c.get("cpu_node") is not None else "machine"
        return Workers(None, part if tool in _OF_ALL_CPUS else "")
    if count == 1:
        return Workers(1)
    if record.source == "host" and "cpus_within" in c:
        return Workers(count, str(c.get("cpus_fill") or ""))
    return Workers(count, "machine" if count == most else "")


def _between(record: Record, all_nodes: Set[int]) -> frozenset[str]:
    """Return where the two CPUs that exchange a line are."""
    c = record.conditions
    if c.get("cpus_within") in _WITHIN:
        return _known(_WITHIN[str(c["cpus_within"])])
    if c.get("same_socket"):
        return _IN_ONE_SOCKET
    nodes = c.get("from_node"), c.get("to_node")
    in_two_sockets = None not in nodes and nodes[0] != nodes[1] and len(all_nodes) <= 2  # more nodes may share a socket
    return _known("two sockets") if in_two_sockets else frozenset()


def _home(record: Record) -> str:
    """Return the CPU whose node is the home of a line: `from`, which wrote it, or `to`, which loads it."""
    c = record.conditions
    if "from_node" not in c:
        return str(c.get("home", "any"))
    return "from" if c.get("home_node") == c["from_node"] else "to" if c.get("home_node") == c.get("to_node") else ""
