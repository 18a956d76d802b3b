"""Simulated workloads that no instrument covers: hot spot, throughput jobs, message exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError, quoted
from meshmark.model.engine import Answer, ask, median_of
from meshmark.model.instruments import (
    POINTS,
    ModelPoint,
    fill_order,
    latency_and_rate,
    measure,
    nodes_and_cpus,
    simulate,
    thread_counts,
)
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import Run, random_reads, trial
from meshmark.store.files import open_regular
from meshmark.store.record import Metric, Record
from meshmark.values import grammar
from meshmark.values.numbers import decimal

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
METRICS: Final[Mapping[str, Metric]] = {
    m.name: m
    for m in (
        Metric("load_latency", "s", "lower", "time per load"),
        Metric("bandwidth_net", "B/s", "higher", "requested bytes over time"),
        Metric("elapsed", "s", "lower", "time until the last access completes"),
        Metric("slowdown", "1", "lower", "time of a program's cycle with the others over the time alone"),
        Metric("hit_share", "1", "higher", "cache hits over accesses"),
    )
}
MAX_ACCESSES: Final = 5_000_000
MAX_MESSAGE_ACCESSES: Final = 32_000_000  # about 30 s; larger messages reach the same bandwidth
STAGGER_NS: Final = 100.0  # time between the first and the last start of CPUs that exchange messages
STAGGER_PER_LINE_NS: Final = 0.1  # limits the stagger, which then takes no measurable part of a short message
GOLDEN: Final = 0.6180339887498949  # its multiples are spread evenly over the unit interval
_REPEATED: Final = 4_000_000  # accesses up to which messages are repeated
_MAX_TRACE_LINE: Final = 1000
BURST: Final = 256  # accesses per memory phase of a program: much longer than a latency, much shorter than a run
CYCLES: Final = 66  # simulated cycles of the slowest program: six per batch
MAX_GB_PER_S: Final = 1e4  # per program
MAX_WRITES: Final = 0.8  # share of a program's lines: four writes per read


@dataclass(frozen=True, slots=True)
class PatternRequest:
    """Options of `meshmark model measure`, unparsed."""

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
    in_step: bool = False


def run_pattern(
    machine: MachineFile, request: PatternRequest, command: str, progress: Progress | None = None
) -> tuple[list[Record], list[Answer]]:
    """Simulate a workload.

    Returns:
        The records, and the utilisation frames (empty unless `window_ns` is set).

    Raises:
        UsageError: The workload is unknown or a value is invalid.
    """
    name = request.workload
    if name in POINTS:
        return measure(name, machine, {}, command=command, progress=progress), []
    if name not in PATTERNS:
        raise UsageError(f"workload: found '{name}'; allowed: {', '.join((*PATTERNS, *POINTS))}")
    points = points_of(machine, request)
    return simulate(machine, name, METRICS, points, command, window_ns=request.window_ns, progress=progress)


def points_of(machine: MachineFile, request: PatternRequest) -> list[ModelPoint]:
    """Return the points of a workload.

    Raises:
        UsageError: The workload is unknown or a value is invalid.
    """
    if request.workload not in PATTERNS:
        raise UsageError(f"workload: found '{request.workload}'; allowed: {', '.join(PATTERNS)}")
    _, node_of = nodes_and_cpus(machine)
    return _MAKERS[request.workload](machine, request, node_of)


def _teams(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[list[int]]:
    order = fill_order(node_of, "cores")
    return [order[:n] for n in thread_counts(machine, "--threads", request.threads, len(node_of))]


def _hot_spot(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    return [
        ModelPoint(
            random_reads(machine, chains, cpus, [0]),
            {"chains": chains, "threads": len(cpus), "memory_node": 0},
            latency_and_rate,
        )
        for cpus in _teams(machine, request, node_of)
        for chains in grammar.integers("--chains", request.chains, 1024)
    ]


def _random_reads(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    return [
        ModelPoint(
            random_reads(machine, chains, cpus),
            {"chains": chains, "threads": len(cpus), "memory_node": "others"},
            latency_and_rate,
        )
        for cpus in _teams(machine, request, node_of)
        for chains in grammar.integers("--chains", request.chains, 1024)
    ]


@dataclass(frozen=True, slots=True)
class PatternProgram:
    """Copies of one program, one per CPU."""

    cpus: tuple[int, ...]
    gb_per_s: float
    write_share: float

    @property
    def name(self) -> str:
        """Return the program as it is typed: CPUs, bandwidth in GB/s and share of writes."""
        return f"{'+'.join(map(str, self.cpus))}={self.gb_per_s:g}:{self.write_share:g}"


def parse_programs(text: str, cpus: int) -> list[PatternProgram]:
    """Return the programs in a text such as `0-3=2.14:0.33,4+6=0.5`: CPUs, GB/s of each CPU, share of writes [0.33].

    Raises:
        UsageError: A part is malformed, or a CPU occurs twice.
    """
    programs: list[PatternProgram] = []
    used_cpus: set[int] = set()
    for part in text.split(","):
        cpus_text, equals, rates_text = part.partition("=")
        rate_text, colon, share_text = rates_text.partition(":")
        rate, share = decimal(rate_text), decimal(share_text) if colon else 0.33
        if not equals or rate is None or share is None or not (0 < rate < MAX_GB_PER_S and 0 <= share <= MAX_WRITES):
            raise UsageError(f"--programs: found '{part}', CPUS=GB/s[:WRITE SHARE to {MAX_WRITES}] is needed")
        program_cpus = grammar.integers("--programs", cpus_text.replace("+", ","), cpus - 1, 0)
        if duplicates := used_cpus & set(program_cpus):
            raise UsageError(f"--programs: found CPU {min(duplicates)} twice, only one program per CPU is allowed")
        used_cpus |= set(program_cpus)
        programs.append(PatternProgram(tuple(program_cpus), rate, share))
    return programs


def _programs(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    if not request.programs:
        raise UsageError("--programs: found nothing, CPUS=GB/s[:WRITE SHARE],… is needed")
    return programs_points(machine, parse_programs(request.programs, len(node_of)), request.in_step)


@dataclass(frozen=True, slots=True)
class Cycle:
    """A program that alternates between memory phases at the maximum rate of its CPU and computation.

    Alone, it moves `gb_per_s` on average. Next to other programs, only its memory phases take longer.
    """

    actor: Run
    phase_s: float
    rest_s: float

    @property
    def length_s(self) -> float:
        """Return the length of one computation and its pause in s."""
        return self.phase_s + self.rest_s

    def slowdowns(self, phases_s: Sequence[float]) -> list[float]:
        """Return the slowdown of the cycle for each duration of the memory phase."""
        return [(p + self.rest_s) / self.length_s for p in phases_s]


def program_cycles(machine: MachineFile, programs: Sequence[PatternProgram]) -> list[Cycle]:
    """Return the cycle of each program, calibrated by simulating its first CPU alone.

    Raises:
        UsageError: The CPU cannot reach the rate.
    """
    line = machine.number("memory.line_bytes")
    chains = int(machine.number("cpu.stream_outstanding", machine.number("cpu.outstanding")))
    actors: list[Run] = []
    for p in programs:
        writes = round(p.write_share / (1 - p.write_share) * 4)
        streams: list[Run] = []
        for i in range(4):
            streams.append({"op": "read", "homes": "local"})
            streams += [{"op": "write", "homes": "local"}] * ((i + 1) * writes // 4 - i * writes // 4)
        actors.append({"cpus": [p.cpus[0]], "chains": chains, "streams": streams, "burst": BURST})
    cycles = []
    runs = [trial([{**a, "accesses": 6 * BURST}], warm_ns=0, measure_ns=0) for a in actors]
    for p, actor, answer in zip(programs, actors, ask(machine, runs), strict=True):
        phase_s = median_of(answer["groups"][0]["phase_s"])
        rest_s = BURST * line / (p.gb_per_s * 1e9) - phase_s
        if rest_s < 0:
            limit = BURST * line / phase_s / 1e9
            raise UsageError(
                f"program: found {p.gb_per_s:g} GB/s, one CPU of {machine.name} reaches at most {limit:.3g}"
            )
        cycles.append(Cycle(actor, phase_s, rest_s))
    return cycles


def programs_run(cycles: Sequence[Cycle], programs: Sequence[PatternProgram], in_step: bool) -> Run:
    """Return a run of all programs at the same time, one group per program.

    Args:
        cycles: The cycle of each program.
        in_step: If true, all copies start together and compute equally long, like copies of one program that start
            together. If false, the computation of each copy lasts for exponentially distributed times.
    """
    actors: list[Run] = []
    for group, (p, c) in enumerate(zip(programs, cycles, strict=True)):
        for cpu in p.cpus:
            start_ns = 0.0 if in_step else c.length_s * 1e9 * (len(actors) * 0.618034 % 1)
            actors.append(
                {
                    **c.actor,
                    "cpus": [cpu],
                    "group": group,
                    "rest_ns": c.rest_s * 1e9,
                    "random_rest": not in_step,
                    "start_ns": start_ns,
                }
            )
    longest_ns = max(c.length_s for c in cycles) * 1e9
    return trial(actors, warm_ns=3 * longest_ns, measure_ns=CYCLES * longest_ns)


def programs_points(
    machine: MachineFile,
    programs: Sequence[PatternProgram],
    in_step: bool = False,
    more: Mapping[str, Any] | None = None,
) -> list[ModelPoint]:
    """Return points with the bandwidth of each program and its co-run slowdown."""
    cycles = program_cycles(machine, programs)
    run = programs_run(cycles, programs, in_step)
    phase_bytes = BURST * machine.number("memory.line_bytes")
    points = []
    for group, (p, cycle) in enumerate(zip(programs, cycles, strict=True)):

        def read(x: Answer, g: int = group, n: int = len(p.cpus), c: Cycle = cycle) -> Mapping[str, Sequence[float]]:
            slow = c.slowdowns(x["groups"][g].get("phase_s", ()))
            return {"bandwidth_net": [n * phase_bytes / (s * c.length_s) for s in slow], "slowdown": slow}

        conditions = {
            "program": p.name,
            "copies": len(p.cpus),
            "rate_bytes_per_s": round(p.gb_per_s * 1e9, 3),
            "write_share": p.write_share,
            "in_step": in_step,
        }
        points.append(ModelPoint(run, {**conditions, **(more or {})}, read))
    return points


def _throughput(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    if not 0 <= request.write_share <= MAX_WRITES:
        raise UsageError(f"--write-share: found {request.write_share:g}; allowed: 0 to {MAX_WRITES}")
    points = []
    for text in request.rate.split(","):
        rate = decimal(text)
        if rate is None or not 0 < rate < MAX_GB_PER_S:
            raise UsageError(f"--rate: found '{text.strip()}', needed: GB/s above 0, or a list of them")
        for cpus in _teams(machine, request, node_of):
            programs = [PatternProgram(tuple(cpus), rate, request.write_share)]
            points += programs_points(machine, programs, request.in_step, {"threads": len(cpus)})
    return points


Partners = Mapping[int, Sequence[int]]  # active CPU → the CPUs that it reads from


def message_point(machine: MachineFile, partners: Partners, block: int, more: Mapping[str, Any]) -> ModelPoint:
    """Return a point in which each CPU repeatedly reads `block` bytes from the node of each of its partners.

    All CPUs read at the same time and share the ports of their node. They start within `STAGGER_NS` of each other,
    because partners that start at exactly the same time can stay in step for ever, which never happens on a real
    machine. The time of a message is the transfer time of its lines, plus the software overhead of the machine file, if
    any. The bandwidth counts the bytes that arrive at all CPUs.
    """
    line = int(machine.number("memory.line_bytes"))
    _, node_of = nodes_and_cpus(machine)
    lines = max(1, block // line)
    chains = int(machine.number("cpu.outstanding"))
    messages = sum(map(len, partners.values()))
    if lines * messages > MAX_MESSAGE_ACCESSES:
        allowed = MAX_MESSAGE_ACCESSES // messages * line >> 10
        raise UsageError(f"--block: found {block} B; allowed: at most {allowed}KiB with this workload and machine")
    rounds = max(1, min(8, 4096 // lines, _REPEATED // (lines * messages)))
    stagger_ns = min(STAGGER_NS, lines * STAGGER_PER_LINE_NS)
    actors = [
        {
            "cpus": [cpu],
            "chains": chains,
            "start_ns": stagger_ns * (cpu * GOLDEN % 1.0),
            "accesses": lines * len(others) * rounds,
            "streams": [{"op": "read", "homes": [node_of[o]]} for o in others],
        }
        for cpu, others in partners.items()
    ]
    run = trial(actors, warm_ns=0, measure_ns=0)
    peers = max(map(len, partners.values()))
    overhead = machine.number("messages.overhead_us", 0.0) * 1e-6 * peers

    def read(x: Answer) -> Mapping[str, Sequence[float]]:
        elapsed = x["groups"][0]["ended_s"] / rounds + overhead
        return {"elapsed": [elapsed], "bandwidth_net": [block * messages / elapsed]}

    return ModelPoint(run, {"block_bytes": block, "threads": len(partners), "partners": peers, **more}, read)


def _message_points(
    machine: MachineFile,
    request: PatternRequest,
    node_of: Sequence[int],
    partners_of: Callable[[int, Sequence[int]], Sequence[int]],
    more: Mapping[str, Any],
) -> list[ModelPoint]:
    """Return the points of a workload in which CPUs exchange messages with CPUs of the same position on other nodes.

    Args:
        machine: The modelled machine.
        request: What was asked for.
        node_of: Node of each CPU.
        partners_of: Returns the partners of a node among the nodes that have an active CPU at this position.
        more: Further keys of every run.

    Raises:
        UsageError: No CPU has a partner.
    """
    order = fill_order(node_of, "spread")
    points = []
    for threads in thread_counts(machine, "--threads", request.threads, len(node_of)):
        rows: dict[int, dict[int, int]] = {}  # position within the node -> node -> CPU
        last_position: dict[int, int] = {}
        for cpu in order[:threads]:
            position = last_position[node_of[cpu]] = last_position.get(node_of[cpu], -1) + 1
            rows.setdefault(position, {})[node_of[cpu]] = cpu
        partners = {
            cpu: [row[n] for n in partner_nodes]
            for row in rows.values()
            for node, cpu in row.items()
            if (partner_nodes := partners_of(node, list(row)))
        }
        if not partners:
            nodes = max(node_of) + 1
            raise UsageError(
                f"--threads: found {threads}: no CPU has a partner on another node for {request.workload}; "
                f"{machine.name} has {nodes} node{'s' * (nodes > 1)} and {len(node_of)} CPUs"
            )
        points += [message_point(machine, partners, b, more) for b in grammar.sizes("--block", request.block)]
    return points


def _ring(node: int, nodes: Sequence[int]) -> list[int]:
    index = nodes.index(node)
    return sorted({nodes[index - 1], nodes[(index + 1) % len(nodes)]} - {node})


def _exchange(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    return _message_points(machine, request, node_of, _ring, {})


def _all_to_all(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    order = fill_order(node_of, "spread")
    points = []
    for threads in thread_counts(machine, "--threads", request.threads, len(node_of)):
        if threads < 2:
            raise UsageError(f"--threads: found {threads}; allowed: 2 to {len(node_of)} with all_to_all")
        partners = {c: [o for o in order[:threads] if o != c] for c in order[:threads]}
        points += [message_point(machine, partners, b, {}) for b in grammar.sizes("--block", request.block)]
    return points


def _halo(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    hops = ask(machine, [{"kind": "hops"}], threads=1)[0]["hops"]
    nearest = min((h for a, row in enumerate(hops) for b, h in enumerate(row) if a != b), default=0)

    def neighbours(node: int, nodes: Sequence[int]) -> list[int]:
        return [n for n in nodes if n != node and hops[node][n] == nearest][:8]

    return _message_points(machine, request, node_of, neighbours, {})


def _swap(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    """Return points at which the nodes n and n xor distance exchange blocks, all pairs at the same time."""
    points = []
    for distance in grammar.integers("--distance", request.distance, max(1, *node_of)):

        def partner(node: int, nodes: Sequence[int], distance: int = distance) -> list[int]:
            return [n for n in nodes if n == node ^ distance]

        points += _message_points(machine, request, node_of, partner, {"distance": distance})
    return points


def read_trace(path: Path, cpus: int) -> list[tuple[int, int, bool]]:
    """Return (CPU, address, is write) for each line `CPU ADDRESS r|w`. `#` starts a comment; 0x… is hexadecimal.

    Raises:
        UsageError: A line is malformed; the message has its number.
    """
    accesses: list[tuple[int, int, bool]] = []
    try:
        with open_regular(path) as file:
            number = 0
            while raw := file.readline(_MAX_TRACE_LINE + 1):
                number += 1
                if len(raw) > _MAX_TRACE_LINE:
                    raise UsageError(f"{path.name}: line {number}: found more than {_MAX_TRACE_LINE} characters")
                access = _access(raw.decode(), f"{path.name}: line {number}", cpus)
                if access is not None:
                    accesses.append(access)
                if len(accesses) > MAX_ACCESSES:
                    raise UsageError(f"{path.name}: more than {MAX_ACCESSES} accesses")
    except (OSError, ValueError) as error:
        raise UsageError(f"--trace: {quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
    if not accesses:
        raise UsageError(f"{path.name}: found no access")
    return accesses


def _access(text: str, where: str, cpus: int) -> tuple[int, int, bool] | None:
    """Return the access in one line of a trace; None if the line is empty or a comment."""
    fields = text.partition("#")[0].split()
    if not fields:
        return None
    try:
        cpu, address, operation = fields
        access = (int(cpu), int(address, 0), {"r": False, "w": True}[operation.lower()])
    except (ValueError, KeyError):
        raise UsageError(f"{where}: found '{quoted(text.strip(), 40)}', CPU ADDRESS r|w is needed") from None
    if not 0 <= access[0] < cpus or not 0 <= access[1] < 2**63:
        raise UsageError(f"{where}: found CPU {quoted(cpu)}, {quoted(address)}; allowed CPUs: 0 to {cpus - 1}")
    return access


def _trace(machine: MachineFile, request: PatternRequest, node_of: Sequence[int]) -> list[ModelPoint]:
    """Return points that replay a trace in the order of each CPU.

    The home of a page is the node of the CPU that accesses it first in the file.
    """
    if request.trace is None:
        raise UsageError("--trace: found nothing, a file of accesses is needed")
    line, page = int(machine.number("memory.line_bytes")), grammar.size("--page", request.page)
    if page < line:
        raise UsageError(f"--page: found '{quoted(request.page)}'; allowed: sizes from {line} B, the size of a line")
    home_of_page: dict[int, int] = {}
    accesses_of_cpu: dict[int, list[list[int]]] = {}
    for cpu, address, writes in read_trace(request.trace, len(node_of)):
        home = home_of_page.setdefault(address // page, node_of[cpu])
        accesses_of_cpu.setdefault(cpu, []).append([address // line, home, int(writes)])
    points = []
    for chains in grammar.integers("--chains", request.chains, 1024):
        actors = [
            {"cpus": [cpu], "chains": chains, "trace": accesses} for cpu, accesses in sorted(accesses_of_cpu.items())
        ]
        total = sum(map(len, accesses_of_cpu.values()))

        def read(x: Answer, total: int = total) -> Mapping[str, Sequence[float]]:
            group = x["groups"][0]
            return {"elapsed": [group["ended_s"]], "load_latency": group["latency_s"], "hit_share": [x["hits"] / total]}

        conditions = {
            "chains": chains,
            "threads": len(accesses_of_cpu),
            "accesses": total,
            "page_bytes": page,
            "trace": request.trace.name,
        }
        points.append(ModelPoint(trial(actors, warm_ns=0, measure_ns=0, check=True), conditions, read))
    return points


_MAKERS: Final[Mapping[str, Callable[[MachineFile, PatternRequest, Sequence[int]], list[ModelPoint]]]] = {
    "hot_spot": _hot_spot,
    "random_reads": _random_reads,
    "throughput": _throughput,
    "exchange": _exchange,
    "all_to_all": _all_to_all,
    "halo": _halo,
    "swap": _swap,
    "programs": _programs,
    "trace": _trace,
}
