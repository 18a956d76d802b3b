"""The instruments on a described machine: the same words, metrics and conditions as on a host, source `model`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.errors import AbsentError, UsageError
from meshmark.model import words
from meshmark.model.engine import Answer, ask
from meshmark.model.machine import MachineFile, MachineFileError
from meshmark.model.workloads import KERNELS, Run, chase, gups, stream_actor, trial
from meshmark.store.record import Record, median, median_interval

Options = Mapping[str, str]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Point:
    """One run and what its answer means."""

    run: Run | None  # None: nothing to simulate, `read` knows
    conditions: Mapping[str, Any]
    read: Callable[[Answer], Mapping[str, tuple[str, Sequence[float]]]]  # metric: unit, samples


def nodes_and_cpus(machine: MachineFile) -> tuple[int, list[int]]:
    """Number of nodes, and the node of each CPU."""
    shape = ask(machine, [{"kind": "describe"}], threads=1)[0]
    node_of = [n["node"] for n in shape["nodes"] for _ in range(n["cpus"])]
    return len(shape["nodes"]), node_of


def measure(instrument: str, machine: MachineFile, options: Options, *, command: str = "", seed: int = 1,
            progress: Progress | None = None, threads: int | None = None) -> list[Record]:  # fmt: skip
    """Measures a model with one instrument.

    Args:
        options: the instrument's own, by their word (`footprint`, `memory_node` …), as a user would write them.
        threads: simulations at once; None: as many as there are CPUs.

    Raises:
        UsageError: an option that a model does not take, or a wrong value.
        AbsentError: the machine file does not say what this instrument needs.
    """
    if instrument not in POINTS:
        raise AbsentError(f"{instrument}: a model answers {', '.join(POINTS)}", "meshmark list instruments")
    make, known = POINTS[instrument]
    for word in options:
        if word not in known and word not in _IGNORED:
            raise UsageError(f"{instrument}: --{word.replace('_', '-')}: a model takes {', '.join(sorted(known))}")
    return simulate(machine, instrument, make(machine, options), command, seed, progress=progress, threads=threads)[0]


def simulate(machine: MachineFile, name: str, points: Sequence[Point], command: str, seed: int = 1, *,
             window_ns: float = 0.0, progress: Progress | None = None,
             threads: int | None = None) -> tuple[list[Record], list[Answer]]:  # fmt: skip
    """Runs the points.

    Returns:
        their records, and the utilisation frames (none unless `window_ns` is set).
    """
    runs = [{**p.run, "seed": seed, "window_ns": window_ns} for p in points if p.run is not None]
    frames: list[Answer] = []
    heard = 0

    def hear(line: Answer) -> None:
        nonlocal heard
        if line.get("type") == "frame":
            frames.append(line)
        elif line.get("type") == "answer":
            heard += 1
            if progress is not None:
                progress(heard, len(runs))

    answers = iter(ask(machine, runs, threads=threads, heard=hear))
    records = []
    for point in points:
        answer = next(answers) if point.run is not None else {}
        for metric, (unit, samples) in point.read(answer).items():
            if samples:
                records.append(make_record(machine, name, metric, unit, samples, point.conditions, command, seed))
    return records, frames


def make_record(machine: MachineFile, instrument: str, metric: str, unit: str, samples: Sequence[float],
                conditions: Mapping[str, Any], command: str, seed: int) -> Record:  # fmt: skip
    """A record of source `model`; its provenance counts the numbers that the machine file guesses."""
    from importlib.metadata import version

    weak = machine.weak()
    return Record(
        source="model", machine=machine.label, instrument=instrument, metric=metric, unit=unit,
        samples=tuple(samples), value=median(samples), interval=median_interval(samples),
        conditions=dict(conditions),
        provenance={"build": version("meshmark"), "command": command, "seed": seed, "machine_file": machine.path.name,
                    "assumed_numbers": len(weak)},
    )  # fmt: skip


# Options that say how to measure well on a host; a model needs none of them.
_IGNORED: Final = {
    "budget",
    "interval",
    "shield",
    "pages",
    "machine",
    "resume",
    "isa",
    "diagnose",
    "seed",
    "fill",
    "mode",
}


def _levels(machine: MachineFile) -> list[Mapping[str, Any]]:
    return list(machine.data.get("cache", []))


def _level_of(machine: MachineFile, footprint: int, sharers: int = 1) -> Mapping[str, Any] | None:
    """The smallest cache that holds a footprint; None: memory. Caches are ideal: no conflicts."""
    for level in _levels(machine):
        share = max(1, min(sharers, int(level.get("shared_by", 1))))
        if footprint <= float(level["size_kib"]) * 1024 / share:
            return level
    return None


def _memory_nodes(options: Options, count: int, field: str) -> list[int]:
    text = options.get("memory_node", "")
    return list(range(count)) if text == "all" else words.integers(field, text, count - 1, 0) if text else []


def _latency(machine: MachineFile, options: Options) -> list[Point]:
    count, node_of = nodes_and_cpus(machine)
    cpus = words.integers("cpus", options.get("cpus", "0"), len(node_of) - 1, 0)
    line = int(machine.number("memory.line_bytes"))
    nodes = _memory_nodes(options, count, "memory_node") or list(range(count))
    crowd = words.integers("processes", options.get("processes", "1"), len(node_of))
    patterns = words.choice("pattern", options.get("pattern", "random"), ("random", "stride"))
    strides = words.sizes("stride", options.get("stride", "64"))
    if wrong := [s for s in strides if s % 8]:
        raise UsageError(f"stride: found {wrong[0]}, multiples of 8 are needed")  # as on a host: a slot holds a pointer
    footprints = words.sizes("footprint", options.get("footprint", "64MiB"))
    return [
        _chase_point(machine, node_of, cpu, node, footprint, stride, pattern, processes, line)
        for cpu, node, footprint, stride, pattern, processes in itertools.product(
            cpus, nodes, footprints, strides, patterns, crowd
        )
    ]


def _chase_point(
    machine: MachineFile, node_of: list[int], cpu: int, node: int, footprint: int, stride: int, pattern: str,
    processes: int, line: int,
) -> Point:  # fmt: skip
    conditions = {
        "footprint_bytes": footprint, "stride_bytes": stride, "pattern": pattern, "cpu": cpu, "memory_node": node,
        "processes": processes, "state": "clean",
    }  # fmt: skip
    level = _level_of(machine, footprint, processes)
    fastest = float(_levels(machine)[0]["latency_ns"]) * 1e-9 if _levels(machine) else 0.0
    miss = min(1.0, stride / line)
    if level is not None:
        if level.get("latency_ns") is None:
            raise MachineFileError(f"{machine.path.name}: cache: {level.get('name')}: latency_ns is needed")
        value = float(level["latency_ns"]) * 1e-9
        value = value * miss + fastest * (1 - miss)
        return Point(None, conditions, lambda _: {"load_latency": ("s", [value])})
    slots = max(1, footprint // max(stride, line))
    run = chase(cpu, [node], random=pattern == "random", stride_bytes=max(stride, line), span_lines=slots)
    if processes > 1:
        others = [c for c in range(len(node_of)) if c != cpu][: processes - 1]
        stream = {**run["actors"][0]["streams"][0], "homes": "local"}
        run["actors"].append({"cpus": others, "chains": 1, "group": 1, "streams": [stream]})

    def read(answer: Answer) -> Mapping[str, tuple[str, Sequence[float]]]:
        return {"load_latency": ("s", [v * miss + fastest * (1 - miss) for v in answer["groups"][0]["latency_s"]])}

    return Point(run, conditions, read)


def _lines(machine: MachineFile, options: Options) -> list[Point]:
    _, node_of = nodes_and_cpus(machine)
    default = "all" if len(node_of) <= 16 else "0"
    cpus = (
        list(range(len(node_of)))
        if options.get("cpus", default) == "all"
        else words.integers("cpus", options.get("cpus", default), len(node_of) - 1, 0)
    )
    points = []
    for a in cpus:
        for b in range(len(node_of)) if len(cpus) == 1 else cpus:
            if a == b:
                continue
            run = chase(a, [node_of[b]], state="dirty", owner=node_of[b])
            conditions = {"from_cpu": b, "to_cpu": a, "state": "dirty", "trip": "one_way", "home_node": node_of[b]}
            points.append(Point(run, conditions, lambda x: {"line_latency": ("s", x["groups"][0]["latency_s"])}))
    return points


def fill_order(node_of: Sequence[int], how: str) -> list[int]:
    """CPUs in the order in which a team takes them: by number, or round the nodes."""
    cpus = list(range(len(node_of)))
    if how != "spread":
        return cpus
    seen: dict[int, int] = {}
    rank = []
    for c in cpus:
        rank.append((seen.setdefault(node_of[c], 0), node_of[c], c))
        seen[node_of[c]] += 1
    return [c for _, _, c in sorted(rank)]


def _bandwidth(machine: MachineFile, options: Options) -> list[Point]:
    count, node_of = nodes_and_cpus(machine)
    most = len(node_of)
    order = fill_order(node_of, options.get("fill", "cores"))
    homes: Any = _memory_nodes(options, count, "memory_node") or "local"
    points = []
    for threads in words.integers("threads", options.get("threads", "1,all"), most):
        for kernel in words.choice("kernel", options.get("kernel", "triad"), tuple(KERNELS)):
            for store in words.choice("store", options.get("store", "ordinary"), ("ordinary", "streaming")):
                for footprint in words.sizes("footprint", options.get("footprint", "1GiB")):
                    conditions = {
                        "kernel": kernel, "store": store, "threads": threads, "footprint_bytes": footprint,
                        "cpus": ",".join(map(str, order[:threads])), "memory_node": options.get("memory_node", "local"),
                    }  # fmt: skip
                    reads, writes = KERNELS[kernel]
                    net = reads + writes
                    gross = net + (writes if store == "ordinary" and kernel != "update" else 0)
                    level = _level_of(machine, footprint // threads, threads)
                    if level is not None:
                        points.append(_cached_bandwidth(level, threads, net, gross, conditions))
                        continue
                    run = trial([stream_actor(machine, order[:threads], kernel, store, homes)])
                    points.append(Point(run, conditions, _rates(net, gross)))
    return points


def _cached_bandwidth(
    level: Mapping[str, Any], threads: int, net: int, gross: int, conditions: Mapping[str, Any]
) -> Point:
    rate = level.get("bandwidth_gb_per_s")
    if rate is None:
        return Point(None, conditions, lambda _: {})
    total = float(rate) * 1e9 * threads
    return Point(
        None,
        conditions,
        lambda _: {"bandwidth_net": ("B/s", [total * net / gross]), "bandwidth_gross": ("B/s", [total])},
    )


def _rates(net: int, gross: int) -> Callable[[Answer], Mapping[str, tuple[str, Sequence[float]]]]:
    """Gross bytes are those that memory moves; net ones those that the program asked for."""

    def read(answer: Answer) -> Mapping[str, tuple[str, Sequence[float]]]:
        moved = answer["groups"][0]["bytes_per_s"]
        return {"bandwidth_net": ("B/s", [b * net / gross for b in moved]), "bandwidth_gross": ("B/s", moved)}

    return read


def latency_and_rate(answer: Answer) -> Mapping[str, tuple[str, Sequence[float]]]:
    """Load latency and bandwidth of the first group."""
    group = answer["groups"][0]
    return {"load_latency": ("s", group["latency_s"]), "bandwidth_net": ("B/s", group["bytes_per_s"])}


def steps_of(chains: int) -> Callable[[Answer], Mapping[str, tuple[str, Sequence[float]]]]:
    """Time of a chain's step, as a host's chains see it: a wait for a miss buffer is part of it (Little's law)."""

    def read(answer: Answer) -> Mapping[str, tuple[str, Sequence[float]]]:
        group = answer["groups"][0]
        steps = [chains / rate for rate in group["reads_per_s"] if rate > 0]
        return {"load_latency": ("s", steps), "bandwidth_net": ("B/s", group["bytes_per_s"])}

    return read


def _loaded(machine: MachineFile, options: Options) -> list[Point]:
    count, node_of = nodes_and_cpus(machine)
    homes: Any = _memory_nodes(options, count, "memory_node") or "local"
    outstanding = int(machine.number("cpu.outstanding"))
    points = []
    for threads in words.integers("threads", options.get("threads", "1,all"), len(node_of)):
        for chains in words.integers("chains", options.get("chains", "1,2,3,4,5,6,8,10,12,16,20"), 1024):
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
                "mode": "chains", "chains": chains, "threads": threads, "read_share": 1.0,
                "outstanding": min(chains, outstanding), "memory_node": options.get("memory_node", "local"),
            }  # fmt: skip
            points.append(Point(run, conditions, steps_of(chains * threads)))
    return points


def _gups(machine: MachineFile, options: Options) -> list[Point]:
    _, node_of = nodes_and_cpus(machine)
    points = []
    for threads in words.integers("threads", options.get("threads", "1,all"), len(node_of)):
        run = gups(fill_order(node_of, "cores")[:threads], int(machine.number("cpu.outstanding")))
        conditions = {"threads": threads, "kernel": "plain", "memory_node": "all"}
        points.append(Point(run, conditions, lambda x: {"update_rate": ("op/s", x["groups"][0]["reads_per_s"])}))
    return points


def io_run(machine: MachineFile, ports: Sequence[int]) -> Run:
    """Raw reads of devices: every port writes lines to its node's memory, as fast as its devices give them."""
    line = machine.number("memory.line_bytes")
    pace = line / machine.number("io.device_gb_per_s") if machine.number("io.device_gb_per_s", 0) else 0.0
    chains = int(machine.number("io.outstanding", 16))
    return trial(
        [{"io": list(ports), "chains": chains, "pace_ns": pace, "streams": [{"op": "write", "homes": "local"}]}]
    )


def _io(machine: MachineFile, options: Options) -> list[Point]:
    ports = ask(machine, [{"kind": "describe"}], threads=1)[0]["io_ports"]
    if not ports:
        raise AbsentError(f"io: {machine.name} has no [io]", "a machine file with [io]")
    points = []
    for jobs in words.integers("jobs", options.get("jobs", "1,all"), ports):
        conditions = {"target": "raw", "direction": "read", "block_bytes": 131072, "jobs": jobs}
        points.append(
            Point(
                io_run(machine, range(jobs)),
                conditions,
                lambda x: {"bandwidth_net": ("B/s", x["groups"][0]["bytes_per_s"])},
            )
        )
    return points


def _peak(machine: MachineFile, options: Options) -> list[Point]:
    _, node_of = nodes_and_cpus(machine)
    each = machine.number("cpu.flops_per_cycle", 0.0) * machine.number("cpu.clock_ghz", 0.0) * 1e9
    if not each:
        raise AbsentError(f"peak: {machine.path.name} has no cpu.flops_per_cycle", "a machine file that says it")
    return [
        Point(None, {"type": "fp64", "threads": n}, lambda _, n=n: {"flop_rate": ("flop/s", [each * n])})  # type: ignore[misc]
        for n in words.integers("threads", options.get("threads", "1,all"), len(node_of))
    ]


POINTS: Final[Mapping[str, tuple[Callable[[MachineFile, Options], list[Point]], set[str]]]] = {
    "latency": (_latency, {"cpus", "memory_node", "footprint", "stride", "pattern", "processes"}),
    "lines": (_lines, {"cpus"}),
    "bandwidth": (_bandwidth, {"threads", "kernel", "store", "footprint", "memory_node", "fill"}),
    "loaded": (_loaded, {"threads", "chains", "memory_node"}),
    "gups": (_gups, {"threads"}),
    "io": (_io, {"jobs"}),
    "peak": (_peak, {"threads"}),
}
