"""Workloads of described machines beyond the instruments: hot spot, throughput jobs, exchanges of messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.model import words
from meshmark.model.engine import Answer, ask
from meshmark.model.instruments import POINTS, fill_order, latency_and_rate, make_record, measure, nodes_and_cpus
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import Run, random_reads, trial
from meshmark.store.record import Record

Progress = Callable[[int, int], None]
PATTERNS: Final = ("hot_spot", "random_reads", "throughput", "exchange", "all_to_all", "halo", "swap", "trace")
MOST_ACCESSES: Final = 5_000_000


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


@dataclass(frozen=True, slots=True)
class _Point:
    run: Run
    conditions: Mapping[str, Any]
    read: Callable[[Answer], Mapping[str, tuple[str, Sequence[float]]]]


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
    runs = [{**p.run, "window_ns": request.window_ns} for p in points]
    frames: list[Answer] = []
    done = 0

    def hear(line: Answer) -> None:
        nonlocal done
        if line.get("type") == "frame":
            frames.append(line)
        elif line.get("type") == "answer":
            done += 1
            if progress is not None:
                progress(done, len(runs))

    records = []
    for point, answer in zip(points, ask(machine, runs, heard=hear), strict=True):
        for metric, (unit, samples) in point.read(answer).items():
            if samples:
                records.append(make_record(machine, name, metric, unit, samples, point.conditions, command, 1))
    return records, frames


def _teams(request: Request, node_of: Sequence[int]) -> list[list[int]]:
    order = fill_order(node_of, "cores")
    return [order[:n] for n in words.integers("--threads", request.threads, len(node_of))]


def _hot_spot(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    return [
        _Point(
            random_reads(machine, chains, cpus, [0]),
            {"chains": chains, "threads": len(cpus), "memory_node": 0},
            latency_and_rate,
        )
        for cpus in _teams(request, node_of)
        for chains in words.integers("--chains", request.chains, 1024)
    ]


def _random_reads(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    return [
        _Point(
            random_reads(machine, chains, cpus),
            {"chains": chains, "threads": len(cpus), "memory_node": "others"},
            latency_and_rate,
        )
        for cpus in _teams(request, node_of)
        for chains in words.integers("--chains", request.chains, 1024)
    ]


def program_actor(
    machine: MachineFile, cpus: Sequence[int], gb_per_s: float, write_share: float,
    homes: str | list[int] = "local", **more: Any,
) -> Run:  # fmt: skip
    """A program that asks for a given rate of memory traffic, a share of it writes, on each of `cpus`."""
    line = machine.number("memory.line_bytes")
    writes = round(12 * write_share)
    streams: list[dict[str, Any]] = []
    for i in range(12):  # writes spread among the reads
        write = (i + 1) * writes // 12 > i * writes // 12
        streams.append({"op": "write" if write else "read", "homes": homes})
    chains = int(machine.number("cpu.outstanding"))
    return {"cpus": list(cpus), "chains": chains, "pace_ns": line / gb_per_s, "streams": streams, **more}


def _throughput(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    points = []
    for text in request.rate.split(","):
        try:
            rate = float(text)
        except ValueError:
            rate = 0.0
        if not 0 < rate < 1e4:
            raise UsageError(f"--rate: found '{text}', GB/s above 0 and below 10000 are needed")
        for cpus in _teams(request, node_of):
            run = trial([program_actor(machine, cpus, rate, request.write_share)])
            asked = rate * 1e9 * len(cpus)

            def read(x: Answer, asked: float = asked) -> Mapping[str, tuple[str, Sequence[float]]]:
                moved = x["groups"][0]["bytes_per_s"]
                return {"bandwidth_net": ("B/s", moved), "slowdown": ("1", [asked / b for b in moved if b > 0])}

            points.append(
                _Point(
                    run,
                    {"threads": len(cpus), "rate_bytes_per_s": rate * 1e9, "write_share": request.write_share},
                    read,
                )
            )
    return points


def message_points(
    machine: MachineFile, partners: Mapping[int, Sequence[int]], block: int, more: Mapping[str, Any]
) -> _Point:
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

    return _Point(run, {"block_bytes": block, "partners": peers, **more}, read)


def _ring(count: int) -> dict[int, list[int]]:
    return {n: sorted({(n - 1) % count, (n + 1) % count} - {n}) for n in range(count)}


def _exchange(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    count = max(node_of) + 1
    return [message_points(machine, _ring(count), b, {}) for b in words.sizes("--block", request.block)]


def _all_to_all(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    count = max(node_of) + 1
    everyone = {n: [m for m in range(count) if m != n] for n in range(count)}
    return [message_points(machine, everyone, b, {}) for b in words.sizes("--block", request.block)]


def _halo(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
    shape = ask(machine, [{"kind": "hops"}], threads=1)[0]["hops"]
    near = min((h for a, row in enumerate(shape) for b, h in enumerate(row) if a != b), default=0)
    neighbours = {a: [b for b, h in enumerate(row) if b != a and h == near][:8] for a, row in enumerate(shape)}
    del node_of
    return [message_points(machine, neighbours, b, {}) for b in words.sizes("--block", request.block)]


def _swap(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
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


def _trace(machine: MachineFile, request: Request, node_of: Sequence[int]) -> list[_Point]:
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
        points.append(_Point(trial(actors, warm_ns=0, measure_ns=0, check=True), conditions, read))
    return points


_MAKERS: Final[Mapping[str, Callable[[MachineFile, Request, Sequence[int]], list[_Point]]]] = {
    "hot_spot": _hot_spot, "random_reads": _random_reads, "throughput": _throughput, "exchange": _exchange,
    "all_to_all": _all_to_all, "halo": _halo, "swap": _swap, "trace": _trace,
}  # fmt: skip
