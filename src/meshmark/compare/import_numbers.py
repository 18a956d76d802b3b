"""Finds the key numbers of a machine in results of other tools, by what each result measured (`compare.kinds`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.compare.kinds import CPUS, LEVEL, MEMORY, ResultKind, kinds, source
from meshmark.errors import AbsentError
from meshmark.model.fitting.key_numbers import KeyNumber, KeyNumbers
from meshmark.store.record import Record
from meshmark.values.units import counted

ASSUMED_LATENCY: Final = 100e-9  # latency of idle memory, if the results do not state it
_FULL: Final = 0.7  # share of the read bandwidth from which a loaded point shows the full load
_REMOTE: Final = frozenset({"same socket", "other socket", "1 hop away"})


@dataclass(frozen=True, slots=True)
class LoadedPoint:
    """A latency and the bandwidth at the same load."""

    latency: Record
    bandwidth: Record


@dataclass(slots=True)
class ImportNumbers:
    """The key numbers that results determine.

    Attributes:
        numbers: The numbers; assumed ones are marked.
        used: The results from which each number was computed, by the name of the number.
        curve: The loaded points, from the lowest bandwidth to the highest.
        kinds: The kind of each result, by its `id`.
        nodes: The number of nodes with CPUs that the results name.
        notes: What was assumed or merged.
    """

    numbers: KeyNumbers
    used: Mapping[str, Sequence[Record]]
    curve: Sequence[LoadedPoint]
    kinds: Mapping[int, ResultKind]
    nodes: int
    notes: list[str] = field(default_factory=list)


def is_of_memory(kind: ResultKind) -> bool:
    """Return whether a result is of memory and not of a cache."""
    return kind.words.get(LEVEL) == frozenset({"memory"})


def is_of_machine(kind: ResultKind) -> bool:
    """Return whether all CPUs of the machine worked."""
    return kind.workers is not None and kind.workers.part == "machine"


def find_numbers(records: Sequence[Record], cores: int | None = None, idle_local: float | None = None) -> ImportNumbers:
    """Find the key numbers in results of one machine.

    Args:
        records: Results of one machine.
        cores: Number of cores; None: the largest number of threads in the results.
        idle_local: Latency of idle memory in s; None: the latency in the results, or an assumed latency.

    Raises:
        AbsentError: The results do not determine the number of cores or a bandwidth of memory, or are of more than two
            sockets.
    """
    finder = _NumberFinder(records)
    finder.latencies(idle_local)
    store = finder.bandwidths()
    finder.cores(cores)
    curve = finder.loaded()
    finder.transfers()
    numbers = KeyNumbers(finder.sockets, finder.given, store)
    return ImportNumbers(numbers, finder.used, curve, finder.kinds, len(finder.socket_of), finder.notes)


class _NumberFinder:
    def __init__(self, records: Sequence[Record]) -> None:
        self.records, self.kinds = records, kinds(records)
        self.given: dict[str, KeyNumber] = {}
        self.used: dict[str, Sequence[Record]] = {}
        self.notes: list[str] = []
        self.socket_of = _sockets(records)
        self.sockets = len(set(self.socket_of.values())) or 1

    def select(self, metric: str, test: Callable[[Record, ResultKind], bool]) -> list[Record]:
        instrument, _, name = metric.partition(".")
        candidates = [r for r in self.records if r.instrument == instrument and r.metric == name]
        return [r for r in candidates if test(r, self.kinds[id(r)])]

    def take(self, name: str, records: Sequence[Record], value: float, how: str) -> None:
        """Add a number with the results that it was computed from."""
        self.used[name] = records
        tool = source(records[0]).removeprefix("tool ")
        self.given[name] = KeyNumber(value, f"{tool}: {how}")

    def place(self, record: Record, kind: ResultKind) -> str:
        """Return `local`, `remote` or, if the place is unknown or a node without CPUs, an empty string."""
        cpu_node, memory_node = record.conditions.get("cpu_node"), record.conditions.get("memory_node")
        if cpu_node in self.socket_of and isinstance(memory_node, int):
            if memory_node not in self.socket_of:
                return ""
            return "local" if self.socket_of[cpu_node] == self.socket_of[memory_node] else "remote"
        words = kind.words.get(MEMORY, frozenset())
        return "local" if words == {"local"} else "remote" if words and words <= _REMOTE else ""

    def latencies(self, idle_local: float | None) -> None:
        idle = self.select(
            "latency.load_latency", lambda _, k: is_of_memory(k) and k.workers is not None and k.workers.count == 1
        )
        # If there are several patterns, random addresses are preferred, because they are not prefetched.
        preferred = [r for r in idle if r.conditions.get("pattern") == "random"] or idle
        by_place: dict[str, list[Record]] = {}
        for r in preferred:
            by_place.setdefault(self.place(r, self.kinds[id(r)]), []).append(r)
        local, remote = by_place.get("local", []), by_place.get("remote", [])
        if idle_local is not None:
            self.given["idle-local"] = KeyNumber(idle_local, "--idle-local")
        elif local:
            self.take(
                "idle-local", local, _mean(local), f"mean of {counted(len(local), 'idle latency', 'idle latencies')}"
            )
        else:
            self.given["idle-local"] = KeyNumber(
                ASSUMED_LATENCY, "typical of servers; the results have none", assumed=True
            )
            self.notes.append(
                "idle-local 100 ns is assumed, since the results have no latency of idle memory; --idle-local sets it"
            )
        if remote:
            self.sockets = 2
            description = f"mean of {counted(len(remote), 'idle latency', 'idle latencies')}"
            self.take("idle-remote", remote, _mean(remote), description)
        elif self.sockets == 2:
            value = 1.7 * self.given["idle-local"].value
            self.given["idle-remote"] = KeyNumber(value, "1.7 times the local one; the results have none", assumed=True)
            self.notes.append("idle-remote is assumed, since the results have no latency of the other socket")
        if len(self.socket_of) > self.sockets:
            self.notes.append(
                f"the {len(self.socket_of)} nodes of the results are {self.sockets} sockets, by their latencies"
            )

    def bandwidths(self) -> str:
        """Find read, triad, core-read and link; return how the triad writes."""

        def rate(kernel: str) -> Callable[[Record, ResultKind], bool]:
            return lambda r, k: r.conditions.get("kernel") == kernel and is_of_memory(k) and self.place(r, k) == "local"

        reads, triads = (self.select("bandwidth.bandwidth_net", rate(kernel)) for kernel in ("read", "triad"))
        read, triad = _best(reads, self.kinds, is_of_machine), _best(triads, self.kinds, is_of_machine)
        local_reads = [r for r in reads if r.conditions.get("cpu_node") is not None and _is_diagonal(r)]
        if read is not None:
            self.take("read", [read], read.value, "reads of all CPUs")
        elif local_reads and len({r.conditions["cpu_node"] for r in local_reads}) == len(self.socket_of):
            self.take(
                "read",
                local_reads,
                math.fsum(r.value for r in local_reads),
                "sum of the nodes that read their own memory",
            )
        store = "ordinary"
        if triad is not None:
            self.take("triad", [triad], triad.value, "triad of all CPUs")
            store = self.store_of(triad)
        if "read" not in self.given:
            if triad is None:
                raise AbsentError(
                    "fit: the results have no read or triad bandwidth of memory by all CPUs",
                    "import results of STREAM, likwid-bench or MLC, too",
                )
            factor = 4 / 3 if store == "ordinary" else 1.0
            self.given["read"] = KeyNumber(triad.value * factor, f"triad with {store} stores at no loss", assumed=True)
            self.notes.append(
                f"read is assumed to be {factor:.3g} times the triad, since the results have no read bandwidth"
            )
        core_read = _best(reads, self.kinds, lambda k: k.workers is not None and k.workers.count == 1)
        if core_read is not None and core_read is not read:
            self.take("core-read", [core_read], core_read.value, "reads of one CPU")
        remote_reads = self.select(
            "bandwidth.bandwidth_net",
            lambda r, k: r.conditions.get("kernel") == "read" and is_of_memory(k) and self.place(r, k) == "remote",
        )
        if remote_reads and len(self.socket_of) == self.sockets == 2:
            self.take("link", remote_reads, _mean(remote_reads), f"mean of {counted(len(remote_reads), 'direction')}")
        return store

    def store_of(self, triad: Record) -> str:
        """Return how a triad writes: as the results state it, or as its rate suggests."""
        if (stated_store := triad.conditions.get("store")) in {"ordinary", "streaming"}:
            return str(stated_store)
        read = self.given.get("read")
        if source(triad) == "tool mlc":
            store = "streaming"
        else:
            store = "streaming" if read is not None and triad.value > 0.75 * read.value else "ordinary"
        self.notes.append(f"triad: {store} stores are assumed, since the results do not state how it writes")
        return store

    def cores(self, cores: int | None) -> None:
        if cores is not None:
            self.given["cores"] = KeyNumber(cores, "--cores")
            return
        counts = [k.workers.count for k in self.kinds.values() if k.workers is not None and k.workers.count is not None]
        cpus = {r.conditions.get(end) for r in self.records for end in ("from_cpu", "to_cpu")} - {None}
        largest = max(*counts, len(cpus), 0) if counts else len(cpus)
        if largest < 2:
            raise AbsentError("fit: the results do not state the number of cores of the machine", "--cores N")
        self.given["cores"] = KeyNumber(largest, "the largest number of threads of the results", assumed=True)
        self.notes.append(f"cores {largest} is assumed: the largest number of threads in the results; --cores sets it")

    def loaded(self) -> list[LoadedPoint]:
        """Find and return the loaded curve of reads of all CPUs; its highest point has the latency under full load."""
        by_load: dict[str, dict[str, Record]] = {}
        for metric in ("load_latency", "bandwidth_net"):
            for r in self.select(
                f"loaded.{metric}", lambda r, k: is_of_memory(k) and r.conditions.get("mode") == "paced"
            ):
                if r.conditions.get("read_share", 1.0) == 1.0:
                    load = {n: v for n, v in r.conditions.items() if n != "kernel"}
                    by_load.setdefault(repr(sorted(load.items())), {})[metric] = r
        points = [LoadedPoint(p["load_latency"], p["bandwidth_net"]) for p in by_load.values() if len(p) == 2]
        points.sort(key=lambda p: (p.bandwidth.value, p.latency.value))
        if points:
            top = points[-1]
            is_full, idle = top.bandwidth.value >= _FULL * self.given["read"].value, self.given["idle-local"].value
            if is_full and top.latency.value >= idle:
                self.take("loaded", [top.latency, top.bandwidth], top.latency.value, "latency at the highest bandwidth")
        return points

    def transfers(self) -> None:
        span = "two sockets" if self.sockets == 2 else "one socket"

        def fits(r: Record, k: ResultKind) -> bool:
            dirty = k.words.get("state") == frozenset({"dirty"}) and "cache" not in r.conditions
            home_fits = k.words.get("home", frozenset()) <= {"from", "any"}
            places = k.words.get(CPUS, frozenset())
            return dirty and home_fits and (span in places or (not places and self.sockets == 1))

        if (lines := self.select("lines.line_latency", fits)) and self.given["cores"].value > 1:
            description = f"mean of {counted(len(lines), 'modified line')} of {span}"
            self.take("transfer", lines, _mean(lines), description)


def _is_diagonal(record: Record) -> bool:
    return record.conditions.get("cpu_node") == record.conditions.get("memory_node")


def _mean(records: Sequence[Record]) -> float:
    return math.fsum(r.value for r in records) / len(records)


def _best(
    records: Sequence[Record], kind_of: Mapping[int, ResultKind], test: Callable[[ResultKind], bool]
) -> Record | None:
    """Return the largest result whose kind passes: the best, if there are best, mean and worst repetitions.

    Return None if no kind passes.
    """
    return max((r for r in records if test(kind_of[id(r)])), key=lambda r: r.value, default=None)


def _sockets(records: Sequence[Record]) -> dict[object, int]:
    """Return the socket of each node with CPUs.

    If there are more than two nodes, nodes with short latencies between them are in one socket.

    Raises:
        AbsentError: There are more than two sockets.
    """
    cells: dict[tuple[object, object], float] = {
        (r.conditions["cpu_node"], r.conditions["memory_node"]): r.value
        for r in records
        if r.metric == "load_latency" and {"cpu_node", "memory_node"} <= r.conditions.keys()
    }
    ends = ("cpu_node", "from_node", "to_node")
    nodes = sorted({int(n) for r in records for end in ends if isinstance(n := r.conditions.get(end), int)})
    if len(nodes) < 3:
        return {node: number for number, node in enumerate(nodes)}
    remote_latencies = sorted(v for (a, b), v in cells.items() if a != b and {a, b} <= set(nodes))
    gaps = [(b / a, math.sqrt(a * b)) for a, b in itertools.pairwise(remote_latencies)]
    widest, limit = max(gaps, default=(1.0, math.inf))
    if widest < 1.15:
        limit = 0.0  # all nodes are equally far from each other
    socket: dict[object, int] = {}
    for node in nodes:
        near_socket = next((s for other, s in socket.items() if cells.get((node, other), math.inf) < limit), None)
        socket[node] = len(set(socket.values())) if near_socket is None else near_socket
    if (count := len(set(socket.values()))) > 2:
        raise AbsentError(
            f"fit: found results of {count} sockets; a model is fitted to one or two", "meshmark model init"
        )
    return socket
