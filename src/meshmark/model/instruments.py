"""Runs instruments on a modelled machine, with the same options, metrics and conditions as on a host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark import native
from meshmark.describe import StreamKernel, description, stream_kernels
from meshmark.errors import AbsentError, UsageError, quoted
from meshmark.model.engine import Answer, ask
from meshmark.model.machine import MachineFile, MachineFileError
from meshmark.model.workloads import Run, chase, gups, stream_actor, stream_trial, trial
from meshmark.store.record import Metric, Record
from meshmark.store.run import Absence
from meshmark.values import grammar

Options = Mapping[str, str]
Progress = Callable[[int, int], None]
OnAbsence = Callable[[Absence], None]


@dataclass(frozen=True, slots=True)
class ModelPoint:
    """A run and how to read its answer."""

    run: Run | None  # None: the value has a closed form and `read` ignores its argument
    conditions: Mapping[str, Any]
    read: Callable[[Answer], Mapping[str, Sequence[float]]]  # returns the samples of each metric


def nodes_and_cpus(machine: MachineFile) -> tuple[int, list[int]]:
    """Return the number of nodes, and the node of each CPU."""
    return _nodes_and_cpus(ask(machine, [{"kind": "describe"}], threads=1)[0])


def _nodes_and_cpus(shape: Answer) -> tuple[int, list[int]]:
    node_of = [n["node"] for n in shape["nodes"] for _ in range(n["cpus"])]
    return len(shape["nodes"]), node_of


def measure(
    instrument: str,
    machine: MachineFile,
    options: Options,
    *,
    command: str = "",
    seed: int = 1,
    progress: Progress | None = None,
    threads: int | None = None,
    on_absence: OnAbsence = lambda _: None,
) -> list[Record]:
    """Measure a model with one instrument.

    Args:
        instrument: Name of the instrument.
        machine: The modelled machine.
        options: Options of the instrument by key (`footprint`, `memory_node` …), with values as on the command line.
        command: Command that repeats the measurement, for the records.
        seed: Seed of the simulation.
        progress: Function that is called with the progress; None: none is reported.
        threads: Concurrent simulations; None: one per CPU.
        on_absence: Called for each point that lacks numbers in the machine file.

    Raises:
        UsageError: A model does not support an option, or a value is invalid.
        AbsentError: The machine file lacks a number that the instrument needs.
    """
    if instrument not in POINTS:
        raise AbsentError(
            f"{quoted(instrument)}: not available on models, which support {', '.join(POINTS)}",
            "meshmark list instruments",
        )
    make, defaults = POINTS[instrument]
    for key in options:
        if key not in defaults and key != "seed":
            raise UsageError(
                f"{instrument}: --{key.replace('_', '-')}: not supported by models, which take "
                + ", ".join(f"--{supported.replace('_', '-')}" for supported in defaults)
            )
    metrics = {m.name: m for m in description(instrument).metrics}
    points_and_absences = make(machine, {**defaults, **options})
    points = [point for point in points_and_absences if isinstance(point, ModelPoint)]
    absences = [point for point in points_and_absences if isinstance(point, Absence)]
    if absences and not points:
        raise AbsentError(f"{instrument}: {machine.path.name}: {absences[0].reason}", absences[0].enable)
    for absence in absences:
        on_absence(absence)
    return simulate(machine, instrument, metrics, points, command, seed, progress=progress, threads=threads)[0]


def simulate(
    machine: MachineFile,
    name: str,
    metrics: Mapping[str, Metric],
    points: Sequence[ModelPoint],
    command: str,
    seed: int = 1,
    *,
    window_ns: float = 0.0,
    progress: Progress | None = None,
    threads: int | None = None,
) -> tuple[list[Record], list[Answer]]:
    """Simulate the points.

    Args:
        machine: The modelled machine.
        name: Name of the instrument.
        metrics: The metrics that `ModelPoint.read` returns, by name.
        points: The points; points without a run need no simulation.
        command: Command that repeats the measurement, for the records.
        seed: Seed of the simulation.
        window_ns: Length of a utilisation frame in ns; 0: there are no frames.
        progress: Function that is called with the progress; None: none is reported.
        threads: Concurrent simulations; None: one per CPU.

    Returns:
        The records, and the utilisation frames (empty unless `window_ns` is set).
    """
    runs = [{**p.run, "seed": seed, "window_ns": window_ns} for p in points if p.run is not None]
    frames: list[Answer] = []
    answered = 0

    def handle_line(line: Answer) -> None:
        nonlocal answered
        if line.get("type") == "frame":
            frames.append(line)
        elif line.get("type") == "answer":
            answered += 1
            if progress is not None:
                progress(answered, len(runs))

    answers = iter(ask(machine, runs, threads=threads, on_line=handle_line))
    records = []
    for point in points:
        answer = next(answers) if point.run is not None else {}
        for metric, samples in point.read(answer).items():
            if samples:
                records.append(make_record(machine, name, metrics[metric], samples, point.conditions, command, seed))
    return records, frames


def make_record(
    machine: MachineFile,
    instrument: str,
    metric: Metric,
    samples: Sequence[float],
    conditions: Mapping[str, Any],
    command: str,
    seed: int,
) -> Record:
    """Return a record of source `model`. Its provenance counts the assumed and unknown values of the machine file."""
    from datetime import UTC, datetime

    return Record.from_samples(
        metric,
        samples,
        source="model",
        machine=machine.label,
        instrument=instrument,
        conditions=dict(conditions),
        provenance={
            "build": native.VERSION,
            "command": command,
            "start": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seed": seed,
            "machine_file": machine.path.name,
            "assumed_numbers": len(machine.uncertain_keys()),
        },
    )


def _levels(machine: MachineFile) -> list[Mapping[str, Any]]:
    return list(machine.data.get("cache", []))


def _level_of(machine: MachineFile, footprint: int, sharers: int = 1) -> Mapping[str, Any] | None:
    """Return the smallest cache that holds a footprint, ignoring conflict misses; None if only memory holds it."""
    for level in _levels(machine):
        share = max(1, min(sharers, int(level.get("shared_by", 1))))
        if footprint <= float(level["size_kib"]) * 1024 / share:
            return level
    return None


def _level_name(level: Mapping[str, Any] | None) -> str:
    return "memory" if level is None else str(level.get("name", "cache"))


def _memory_nodes(options: Options, count: int) -> list[int]:
    """Return the nodes of `memory_node`; an empty list stands for the local node of each CPU."""
    text = options["memory_node"]
    if text == "local":
        return []
    return list(range(count)) if text == "all" else grammar.integers("memory_node", text, count - 1, 0)


def _sizes(instrument: str, options: Options, key: str) -> list[int]:
    """Return the sizes in an option, checked against the limits of the instrument on a host."""
    sizes, parameter = grammar.sizes(key, options[key]), description(instrument).parameter(key)
    if too_small := [n for n in sizes if n < (parameter.minimum or 1)]:
        raise UsageError(f"{key}: found '{too_small[0]}'; allowed: {parameter.minimum or 1:g} B or more")
    return sizes


def _latency(machine: MachineFile, options: Options) -> list[ModelPoint]:
    shape, hops_answer = ask(machine, [{"kind": "describe"}, {"kind": "hops"}], threads=1)
    count, node_of = _nodes_and_cpus(shape)
    hops = hops_answer["hops"]
    cpus = grammar.integers("cpus", options["cpus"], len(node_of) - 1, 0)
    line = int(machine.number("memory.line_bytes"))
    nodes = _memory_nodes(options, count)
    process_counts = thread_counts(machine, "processes", options["processes"], len(node_of))
    patterns = grammar.choices("pattern", options["pattern"], ("random", "stride"))
    strides = _sizes("latency", options, "stride")
    if invalid := [s for s in strides if s % 8]:
        raise UsageError(f"stride: found {invalid[0]}; allowed: multiples of 8")  # as on a host: a slot holds a pointer
    footprints = _sizes("latency", options, "footprint")
    return [
        _chase_point(machine, node_of, cpu, node, hops[node_of[cpu]][node], footprint, stride, pattern, processes, line)
        for cpu, node, footprint, stride, pattern, processes in itertools.product(
            cpus, nodes, footprints, strides, patterns, process_counts
        )
    ]


def _chase_point(
    machine: MachineFile,
    node_of: list[int],
    cpu: int,
    node: int,
    hops: int,
    footprint: int,
    stride: int,
    pattern: str,
    processes: int,
    line: int,
) -> ModelPoint:
    conditions = {
        "footprint_bytes": footprint,
        "stride_bytes": stride,
        "pattern": pattern,
        "cpu": cpu,
        "memory_node": node,
        "hops": hops,
        "processes": processes,
        "state": "clean",
    }
    level = _level_of(machine, footprint, processes)
    conditions["memory_level"] = _level_name(level)
    fastest = float(_levels(machine)[0]["latency_ns"]) * 1e-9 if _levels(machine) else 0.0
    # In address order, the other slots of a line hit. In random order, the chase visits them much later.
    miss = 1.0 if pattern == "random" else min(1.0, stride / line)
    if level is not None:
        if level.get("latency_ns") is None:
            raise MachineFileError(f"{machine.path.name}: cache: {level.get('name')}: latency_ns is needed")
        value = float(level["latency_ns"]) * 1e-9
        value = value * miss + fastest * (1 - miss)
        return ModelPoint(None, conditions, lambda _: {"load_latency": [value]})
    slots = max(1, footprint // max(stride, line))
    run = chase(cpu, [node], random=pattern == "random", stride_bytes=max(stride, line), span_lines=slots)
    if processes > 1:
        others = [c for c in range(len(node_of)) if c != cpu][: processes - 1]
        stream = {**run["actors"][0]["streams"][0], "homes": "local"}
        run["actors"].append({"cpus": others, "chains": 1, "group": 1, "streams": [stream]})

    def read(answer: Answer) -> Mapping[str, Sequence[float]]:
        return {"load_latency": [v * miss + fastest * (1 - miss) for v in answer["groups"][0]["latency_s"]]}

    return ModelPoint(run, conditions, read)


def _lines(machine: MachineFile, options: Options) -> list[ModelPoint]:
    _, node_of = nodes_and_cpus(machine)
    text = options["cpus"] or ("all" if len(node_of) <= 16 else "0")
    cpus = list(range(len(node_of))) if text == "all" else grammar.integers("cpus", text, len(node_of) - 1, 0)
    points = []
    for a in cpus:
        for b in range(len(node_of)) if len(cpus) == 1 else cpus:
            if a == b:
                continue
            run = chase(a, [node_of[b]], state="dirty", owner=node_of[b])
            conditions = {"from_cpu": b, "to_cpu": a, "state": "dirty", "trip": "round", "home_node": node_of[b]}
            points.append(ModelPoint(run, conditions, lambda x: {"line_latency": x["groups"][0]["latency_s"]}))
    return points


FILLS: Final = ("cores", "spread", "compact")  # cores of a model have one CPU: cores and compact are the same


def thread_counts(machine: MachineFile, field: str, text: str, cpus: int) -> list[int]:
    """Return the requested numbers of threads or processes, each of which has a core to itself.

    Raises:
        UsageError: A number exceeds the cores. The message states if the machine has more threads than the model.
    """
    try:
        return grammar.integers(field, text, cpus)
    except UsageError as error:
        threads = int(machine.number("cpu.smt", 1)) * cpus
        if threads == cpus:
            raise
        raise UsageError(
            f"{error}: {machine.name} has {threads} threads (SMT), but the model has one per core", error.hint
        ) from error


def fill_order(node_of: Sequence[int], how: str) -> list[int]:
    """Return the CPUs in the order of use: by number, or round-robin over the nodes if `how` is `spread`."""
    cpus = list(range(len(node_of)))
    if how != "spread":
        return cpus
    used_cpus: dict[int, int] = {}
    rank = []
    for c in cpus:
        rank.append((used_cpus.setdefault(node_of[c], 0), node_of[c], c))
        used_cpus[node_of[c]] += 1
    return [c for _, _, c in sorted(rank)]


def _bandwidth(machine: MachineFile, options: Options) -> list[ModelPoint | Absence]:
    count, node_of = nodes_and_cpus(machine)
    cpu_count = len(node_of)
    if (fill := options["fill"]) not in FILLS:
        raise UsageError(f"fill: found '{quoted(fill)}'; allowed: {', '.join(FILLS)}")
    order = fill_order(node_of, fill)
    homes: Any = _memory_nodes(options, count) or "local"
    points: list[ModelPoint | Absence] = []
    kernels = stream_kernels()
    for threads in thread_counts(machine, "threads", options["threads"], cpu_count):
        for kernel in grammar.choices("kernel", options["kernel"], tuple(kernels)):
            for store in grammar.choices("store", options["store"], ("ordinary", "streaming")):
                for footprint in _sizes("bandwidth", options, "footprint"):
                    conditions = {
                        "kernel": kernel,
                        "store": store,
                        "threads": threads,
                        "footprint_bytes": footprint,
                        "cpus": ",".join(map(str, order[:threads])),
                        "memory_node": options["memory_node"],
                    }
                    points.append(
                        _bandwidth_point(
                            machine, order[:threads], kernels[kernel], kernel, store, footprint, homes, conditions
                        )
                    )
    return points


def _bandwidth_point(
    machine: MachineFile,
    cpus: Sequence[int],
    operands: StreamKernel,
    kernel: str,
    store: str,
    footprint: int,
    homes: Any,
    conditions: Mapping[str, Any],
) -> ModelPoint | Absence:
    """Return one point of `bandwidth` at the level that holds the arrays, or an absence if the level has no rate.

    Streaming stores leave no line in a cache. The caches therefore hold only the arrays that are only read, and the
    stores reach the memory at any footprint.
    """
    writes_memory = store == "streaming" and operands.writes > 0
    in_caches = operands.only_read if writes_memory else operands.arrays
    share = footprint * in_caches // operands.arrays // len(cpus)
    level = _level_of(machine, share, len(cpus)) if in_caches else None
    conditions = {**conditions, "memory_level": _level_name(level)}
    if level is None:
        actor = stream_actor(machine, cpus, kernel, store, homes)
        return ModelPoint(stream_trial([actor]), conditions, _rates(operands, store, len(actor["streams"])))
    rate = _level_rate(machine, level)
    if rate is None:
        return Absence(
            instrument="bandwidth",
            reason="the cache that holds this footprint has neither copy_gb_per_s nor bandwidth_gb_per_s",
            conditions=conditions,
            enable="use a --footprint in memory, or add one of them to [[cache]]",
        )
    if writes_memory:
        read_ns = machine.number("memory.line_bytes") / rate * 1e9
        actor = stream_actor(machine, cpus, kernel, store, homes, cached_read_ns=read_ns)
        return ModelPoint(stream_trial([actor]), conditions, _rates(operands, store, len(actor["streams"])))
    gross = rate * len(cpus)
    net = gross if level is _levels(machine)[0] else gross * operands.net / operands.gross(store)
    return ModelPoint(None, conditions, lambda _: {"bandwidth_net": [net], "bandwidth_gross": [gross]})


def _level_rate(machine: MachineFile, level: Mapping[str, Any]) -> float | None:
    """Return the bandwidth of a cache for one core in B/s, including the lines that write-allocate stores read.

    In the first level, stores do not read a line first, as on a host.
    """
    if level.get("copy_gb_per_s") is None:
        gross = level.get("bandwidth_gb_per_s")
        return None if gross is None else float(gross) * 1e9
    copy = stream_kernels()["copy"]
    gross_factor = 1.0 if level is _levels(machine)[0] else copy.gross("ordinary") / copy.net
    return float(level["copy_gb_per_s"]) * 1e9 * gross_factor


def _rates(operands: StreamKernel, store: str, simulated: int) -> Callable[[Answer], Mapping[str, Sequence[float]]]:
    """Return a function that reads net and gross bandwidth of runs with `simulated` lines per line of each operand."""

    def read(answer: Answer) -> Mapping[str, Sequence[float]]:
        lines = [b / simulated for b in answer["groups"][0]["bytes_per_s"]]
        return {
            "bandwidth_net": [x * operands.net for x in lines],
            "bandwidth_gross": [x * operands.gross(store) for x in lines],
        }

    return read


def latency_and_rate(answer: Answer) -> Mapping[str, Sequence[float]]:
    """Return load latency and bandwidth of the first group."""
    group = answer["groups"][0]
    return {"load_latency": group["latency_s"], "bandwidth_net": group["bytes_per_s"]}


def steps_of(chains: int) -> Callable[[Answer], Mapping[str, Sequence[float]]]:
    """Return a function that reads the time per step of a chain by Little's law.

    As on a host, the time includes the wait for a miss buffer.
    """

    def read(answer: Answer) -> Mapping[str, Sequence[float]]:
        group = answer["groups"][0]
        steps = [chains / rate for rate in group["reads_per_s"] if rate > 0]
        return {"load_latency": steps, "bandwidth_net": group["bytes_per_s"]}

    return read


def _loaded(machine: MachineFile, options: Options) -> list[ModelPoint]:
    count, node_of = nodes_and_cpus(machine)
    homes: Any = _memory_nodes(options, count) or "local"
    outstanding = int(machine.number("cpu.outstanding"))
    grammar.choices("mode", options["mode"], ("chains",))
    points = []
    for threads in thread_counts(machine, "threads", options["threads"], len(node_of)):
        for chains in grammar.integers("chains", options["chains"], 1024):
            stream: dict[str, Any] = {"homes": homes, "random": True}
            run = trial(
                [
                    {
                        "cpus": fill_order(node_of, "cores")[:threads],
                        "chains": min(chains, outstanding),
                        "streams": [stream],
                    }
                ]
            )
            conditions = {
                "mode": "chains",
                "chains": chains,
                "threads": threads,
                "read_share": 1.0,
                "outstanding": min(chains, outstanding),
                "memory_node": options["memory_node"],
            }
            points.append(ModelPoint(run, conditions, steps_of(chains * threads)))
    return points


def _gups(machine: MachineFile, options: Options) -> list[ModelPoint]:
    _, node_of = nodes_and_cpus(machine)
    points = []
    for threads in thread_counts(machine, "threads", options["threads"], len(node_of)):
        run = gups(fill_order(node_of, "cores")[:threads], int(machine.number("cpu.outstanding")))
        conditions = {"threads": threads, "kernel": "plain", "memory_node": "all"}
        points.append(ModelPoint(run, conditions, lambda x: {"update_rate": x["groups"][0]["reads_per_s"]}))
    return points


def io_run(machine: MachineFile, ports: Sequence[int]) -> Run:
    """Return a run of raw device reads: each port writes lines to the memory of its node at the rate of its devices."""
    line = machine.number("memory.line_bytes")
    pace = line / machine.number("io.device_gb_per_s") if machine.number("io.device_gb_per_s", 0) else 0.0
    chains = int(machine.number("io.outstanding", 16))
    return trial(
        [{"io": list(ports), "chains": chains, "pace_ns": pace, "streams": [{"op": "write", "homes": "local"}]}]
    )


def _io(machine: MachineFile, options: Options) -> list[ModelPoint]:
    ports = ask(machine, [{"kind": "describe"}], threads=1)[0]["io_ports"]
    if not ports:
        raise AbsentError(f"io: {machine.name} has no [io]", "add [io] to the machine file")
    points = []
    for jobs in grammar.integers("jobs", options["jobs"], ports):
        conditions = {"target": "raw", "direction": "read", "block_bytes": 131072, "jobs": jobs}
        points.append(
            ModelPoint(
                io_run(machine, range(jobs)),
                conditions,
                lambda x: {"bandwidth_net": x["groups"][0]["bytes_per_s"]},
            )
        )
    return points


def _peak(machine: MachineFile, options: Options) -> list[ModelPoint]:
    _, node_of = nodes_and_cpus(machine)
    core_rate = machine.number("cpu.flops_per_cycle", 0.0) * machine.number("cpu.clock_ghz", 0.0) * 1e9
    if not core_rate:
        raise AbsentError(f"peak: {machine.path.name} has no cpu.flops_per_cycle", "add it to the machine file")
    return [
        ModelPoint(None, {"type": "fp64", "threads": n}, lambda _, n=n: {"flop_rate": [core_rate * n]})  # type: ignore[misc]
        for n in thread_counts(machine, "threads", options["threads"], len(node_of))
    ]


# Supported options and their defaults. The other options of a host control measurement quality, or concern pages and
# instruction sets, which models lack.
POINTS: Final[Mapping[str, tuple[Callable[[MachineFile, Options], Sequence[ModelPoint | Absence]], Options]]] = {
    "latency": (
        _latency,
        {
            "cpus": "0",
            "memory_node": "all",
            "footprint": "64MiB",
            "stride": "64",
            "pattern": "random",
            "processes": "1",
        },
    ),
    "lines": (_lines, {"cpus": ""}),
    "bandwidth": (
        _bandwidth,
        {
            "threads": "1,all",
            "kernel": "triad",
            "store": "ordinary",
            "footprint": "1GiB",
            "memory_node": "local",
            "fill": "cores",
        },
    ),
    "loaded": (
        _loaded,
        {"threads": "1,all", "mode": "chains", "chains": "1,2,3,4,5,6,8,10,12,16,20", "memory_node": "local"},
    ),
    "gups": (_gups, {"threads": "1,all"}),
    "io": (_io, {"jobs": "1,all"}),
    "peak": (_peak, {"threads": "1,all"}),
}
