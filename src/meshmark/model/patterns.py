"""Workloads of described machines beyond the instruments: hot spot, throughput jobs, exchanges of messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.model import words
from meshmark.model.engine import Answer, ask, median_of
from meshmark.model.instruments import POINTS, Point, fill_order, latency_and_rate, measure, nodes_and_cpus, simulate
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import Run, chase, random_reads, trial
from meshmark.store.record import Record

Progress = Callable[[int, int], None]
PATTERNS: Final = (
    "hot_spot",
    "random_reads",
    "throughput",
    "exchange",
    "all_to_all",
    "halo",
    "swap",
    "programs",
    "trace",
)
MOST_ACCESSES: Final = 5_000_000
LONG_NS: Final = 200_000.0  # programs with random work between reads need a longer look


@dataclass(frozen=True, slots=True)
class Request:
    """What `meshmark model measure` was asked, as written."""

    workload: str
    chains: str = "1..16"
    threads: str = "all"
    distance: str = "1"
    block: str = "64KiB"
    rate: str = "2"
    write_share: float = 0.33
    window_ns: float = 0.0
    trace: Path | None = None
    page: str = "8KiB"
    programs: str = ""


def run_pattern(
    machine: MachineFile, request: Request, command: str, progress: Progress | None = None
) -> tuple[list[Record], list[Answer]]:
    """Simulates one workload.

    Returns:
        the records, and the utilisation frames (none unless `window_ns` is set).

    Raises:
        UsageError: an unknown workload or a wrong value.
    """
    name = request.workload
    if name in POINTS:
        return measure(name, machine, {}, command=command, progress=progress), []
    if name not in PATTERNS:
        raise UsageError(f"workload: found '{name}', allowed are {', '.join((*PATTERNS, *POINTS))}")
    _, node_of = nodes_and_cpus(machine)
    points = _MAKERS[name](machine, request, node_of)
    return simulate(machine, name, points, command, window_ns=request.window_ns, progress=progress)


def _teams(request: Request, node_of: Sequence[int]) -> list[list[int]]:
    order = fill_order(node_of, "cores")
    return [order[:n] for n in words.integers("--threads", request.threads, len(node_of))]


def _hot_spot(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    return [
        Point(
            random_reads(machine, chains, cpus, [0]),
            {"chains": chains, "threads": len(cpus), "memory_node": 0},
            latency_and_rate,
        )
        for cpus in _teams(request, node_of)
        for chains in words.integers("--chains", request.chains, 1024)
    ]


def _random_reads(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    return [
        Point(
            random_reads(machine, chains, cpus),
            {"chains": chains, "threads": len(cpus), "memory_node": "others"},
            latency_and_rate,
        )
        for cpus in _teams(request, node_of)
        for chains in words.integers("--chains", request.chains, 1024)
    ]


def program_actors(
    machine: MachineFile, cpu: int, gb_per_s: float, write_share: float = 1 / 3, homes: Any = "local", group: int = 0
) -> list[Run]:
    """A program of given traffic when alone: dependent chains of reads, as few as reach it, with work between them.

    Its slowdown among others is how much later its reads come back. Writes follow the reads and are not waited for; the
    time between reads is exponential, as programs have no common beat.
    """
    line = machine.number("memory.line_bytes")
    alone = median_of(ask(machine, [chase(cpu, homes)], threads=1)[0]["groups"][0]["latency_s"]) * 1e9
    reads = gb_per_s * (1 - write_share) / line  # a ns
    chains = math.ceil(reads * alone)
    think = max(0.0, chains / reads - alone)
    writes = round(write_share / (1 - write_share) * 4)
    streams: list[Run] = []
    for i in range(4):
        streams.append({"op": "read", "homes": homes})
        streams += [{"op": "write", "homes": homes}] * ((i + 1) * writes // 4 - i * writes // 4)
    actor = {"cpus": [cpu], "chains": 1, "think_ns": think, "random_think": True, "streams": streams, "group": group}
    return [actor] * chains


@dataclass(frozen=True, slots=True)
class Program:
    """Copies of one program, one a CPU."""

    cpus: tuple[int, ...]
    gb_per_s: float
    write_share: float

    @property
    def name(self) -> str:
        return f"{'+'.join(map(str, self.cpus))}={self.gb_per_s:g}:{self.write_share:g}"


def parse_programs(text: str, cpus: int) -> list[Program]:
    """`0-3=2.14:0.33,4+6=0.5`: CPUs, GB/s of each, share of writes [0.33].

    Raises:
        UsageError: a part that is none, or a CPU named twice.
    """
    found: list[Program] = []
    taken: set[int] = set()
    for part in text.split(","):
        where, equals, what = part.partition("=")
        rate_text, colon, share_text = what.partition(":")
        try:
            rate, share = float(rate_text), float(share_text) if colon else 0.33
        except ValueError:
            rate, share = 0.0, 0.0
        if not equals or not 0 < rate < 1e4 or not 0 <= share <= 0.8:
            raise UsageError(f"--programs: found '{part}', CPUS=GB/s[:WRITE SHARE to 0.8] is needed")
        mine = words.integers("--programs", where.replace("+", ","), cpus - 1, 0)
        if twice := taken & set(mine):
            raise UsageError(f"--programs: found CPU {min(twice)} twice, one program a CPU is needed")
        taken |= set(mine)
        found.append(Program(tuple(mine), rate, share))
    return found


def _programs(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    if not request.programs:
        raise UsageError("--programs: found nothing, CPUS=GB/s[:WRITE SHARE],… is needed")
    return programs_points(machine, parse_programs(request.programs, len(node_of)))


def programs_points(
    machine: MachineFile, programs: Sequence[Program], more: Mapping[str, Any] | None = None
) -> list[Point]:
    """Each program's rate among the others, and its slowdown against one copy of it alone."""
    actors, alone = [], []
    for group, p in enumerate(programs):
        mine = [program_actors(machine, c, p.gb_per_s, p.write_share, group=group) for c in p.cpus]
        actors += [a for one in mine for a in one]
        alone.append([{**a, "group": 0} for a in mine[0]])
    answers = ask(machine, [trial(a, measure_ns=LONG_NS) for a in alone])
    bases = [median_of(x["groups"][0]["bytes_per_s"]) for x in answers]
    points = []
    run = trial(actors, measure_ns=LONG_NS)
    for group, (p, base) in enumerate(zip(programs, bases, strict=True)):

        def read(
            x: Answer, g: int = group, n: int = len(p.cpus), base: float = base
        ) -> Mapping[str, tuple[str, Sequence[float]]]:
            moved = x["groups"][g]["bytes_per_s"]
            return {"bandwidth_net": ("B/s", moved), "slowdown": ("1", [base * n / b for b in moved if b > 0])}

        conditions = {
            "program": p.name,
            "copies": len(p.cpus),
            "rate_bytes_per_s": p.gb_per_s * 1e9,
            "write_share": p.write_share,
        }
        points.append(Point(run, {**conditions, **(more or {})}, read))
    return points


def _throughput(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    points = []
    for text in request.rate.split(","):
        for cpus in _teams(request, node_of):
            told = f"{'+'.join(map(str, cpus))}={text.strip()}:{request.write_share}"
            points += programs_points(machine, parse_programs(told, len(node_of)), {"threads": len(cpus)})
    return points


def message_points(
    machine: MachineFile, partners: Mapping[int, Sequence[int]], block: int, more: Mapping[str, Any]
) -> Point:
    """Every node reads `block` bytes from each of its partners, again and again; its CPUs' first does the work.

    The time of a message is the lines' own; software's share is added where the machine file gives it.
    """
    line = int(machine.number("memory.line_bytes"))
    _, node_of = nodes_and_cpus(machine)
    first = {n: c for c, n in reversed(list(enumerate(node_of)))}
    lines = max(1, block // line)
    chains = int(machine.number("cpu.outstanding"))
    rounds = max(1, min(8, 4096 // lines))
    actors = []
    for node, others in partners.items():
        streams = [{"op": "read", "homes": [o]} for o in others] or [{"op": "read", "homes": [node]}]
        actors.append(
            {"cpus": [first[node]], "chains": chains, "accesses": lines * len(streams) * rounds, "streams": streams}
        )
    run = trial(actors, warm_ns=0, measure_ns=0)
    overhead = machine.number("messages.overhead_us", 0.0) * 1e-6
    peers = max(len(o) for o in partners.values())
    sent = block * peers

    def read(x: Answer) -> Mapping[str, tuple[str, Sequence[float]]]:
        elapsed = x["groups"][0]["ended_s"] / rounds + overhead * peers
        return {"elapsed": ("s", [elapsed]), "bandwidth_net": ("B/s", [sent / elapsed])}

    return Point(run, {"block_bytes": block, "partners": peers, **more}, read)


def _ring(count: int) -> dict[int, list[int]]:
    return {n: sorted({(n - 1) % count, (n + 1) % count} - {n}) for n in range(count)}


def _exchange(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    count = max(node_of) + 1
    return [message_points(machine, _ring(count), b, {}) for b in words.sizes("--block", request.block)]


def _all_to_all(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    count = max(node_of) + 1
    everyone = {n: [m for m in range(count) if m != n] for n in range(count)}
    return [message_points(machine, everyone, b, {}) for b in words.sizes("--block", request.block)]


def _halo(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    shape = ask(machine, [{"kind": "hops"}], threads=1)[0]["hops"]
    near = min((h for a, row in enumerate(shape) for b, h in enumerate(row) if a != b), default=0)
    neighbours = {a: [b for b, h in enumerate(row) if b != a and h == near][:8] for a, row in enumerate(shape)}
    del node_of
    return [message_points(machine, neighbours, b, {}) for b in words.sizes("--block", request.block)]


def _swap(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    count = max(node_of) + 1
    # Node n changes places with n xor distance where that is a node: pairs, all at once.
    return [
        message_points(machine, {n: [n ^ d] for n in range(count) if n ^ d < count}, b, {"distance": d})
        for d in words.integers("--distance", request.distance, max(1, count - 1))
        for b in words.sizes("--block", request.block)
    ]


def read_trace(path: Path, cpus: int) -> list[tuple[int, int, bool]]:
    """(CPU, address, writes) of each line `CPU ADDRESS r|w`; `#` begins a comment; addresses may be hexadecimal (0x…).

    Raises:
        UsageError: a line is wrong; the message has its number.
    """
    found: list[tuple[int, int, bool]] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                fields = text.partition("#")[0].split()
                if not fields:
                    continue
                try:
                    cpu, address, operation = fields
                    one = (int(cpu), int(address, 0), {"r": False, "w": True}[operation.lower()])
                except (ValueError, KeyError):
                    raise UsageError(
                        f"{path.name}: line {number}: found '{text.strip()[:40]}', CPU ADDRESS r|w is needed"
                    ) from None
                if not 0 <= one[0] < cpus or not 0 <= one[1] < 2**63:
                    raise UsageError(
                        f"{path.name}: line {number}: found CPU {cpu}, {address}; CPUs are 0 to {cpus - 1}"
                    )
                found.append(one)
                if len(found) > MOST_ACCESSES:
                    raise UsageError(f"{path.name}: more than {MOST_ACCESSES} accesses")
    except (OSError, UnicodeDecodeError) as why:
        raise UsageError(f"--trace: {path}: {getattr(why, 'strerror', None) or why}") from why
    if not found:
        raise UsageError(f"{path.name}: found no access")
    return found


def _trace(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[Point]:
    """Accesses in each CPU's order; a page's home is the node of the CPU that the file names first with it."""
    if request.trace is None:
        raise UsageError("--trace: found nothing, a file of accesses is needed")
    line, page = int(machine.number("memory.line_bytes")), words.size("--page", request.page)
    home: dict[int, int] = {}
    of_cpu: dict[int, list[list[int]]] = {}
    for cpu, address, writes in read_trace(request.trace, len(node_of)):
        where = home.setdefault(address // page, node_of[cpu])
        of_cpu.setdefault(cpu, []).append([address // line, where, int(writes)])
    points = []
    for chains in words.integers("--chains", request.chains, 1024):
        actors = [{"cpus": [cpu], "chains": chains, "trace": accesses} for cpu, accesses in sorted(of_cpu.items())]
        total = sum(map(len, of_cpu.values()))

        def read(x: Answer, total: int = total) -> Mapping[str, tuple[str, Sequence[float]]]:
            group = x["groups"][0]
            return {"elapsed": ("s", [group["ended_s"]]), "load_latency": ("s", group["latency_s"]),
                    "hit_share": ("1", [x["hits"] / total])}  # fmt: skip

        conditions = {
            "chains": chains,
            "threads": len(of_cpu),
            "accesses": total,
            "page_bytes": page,
            "trace": request.trace.name,
        }
        points.append(Point(trial(actors, warm_ns=0, measure_ns=0, check=True), conditions, read))
    return points


_MAKERS: Final[Mapping[str, Callable[[MachineFile, Request, Sequence[int]], list[Point]]]] = {
    "hot_spot": _hot_spot, "random_reads": _random_reads, "throughput": _throughput, "exchange": _exchange,
    "all_to_all": _all_to_all, "halo": _halo, "swap": _swap, "programs": _programs, "trace": _trace,
}  # fmt: skip
