"""Fits a machine file to a few points of a host's survey and checks it against the others.

The fit covers the plateaus of the latency curve, the memory latency of each node, the maximum outstanding loads of a
core, the bandwidth of one streaming core and the bandwidth of all cores. The model predicts everything else.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshmark.describe import stream_kernels
from meshmark.errors import AbsentError
from meshmark.model.engine import Answer, ask, median_of
from meshmark.model.fitting.machine_text import entry
from meshmark.model.machine import MachineFile, read_machine
from meshmark.model.workloads import Run, gups, stream_actor, stream_trial, trial
from meshmark.store.record import Record

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FitPoint:
    """A value of the survey and the value of the model. `fitted` is true if the fit used the value of the survey."""

    what: str
    host: float
    model: float
    unit: str
    fitted: bool
    flags: frozenset[str]

    @property
    def error(self) -> float:
        """Return the relative error of the model, positive if its value is too high."""
        return self.model / self.host - 1

    def to_json(self) -> dict[str, Any]:
        """Return the point as JSON: values in `unit`, an SI unit; the error is a share of 1."""
        return {
            "point": self.what,
            "unit": self.unit,
            "host": self.host,
            "model": self.model,
            "error": self.error,
            "fitted": self.fitted,
            "flags": sorted(self.flags),
        }


@dataclass(frozen=True, slots=True)
class SurveyFit:
    """A machine file that was fitted to a survey, and how well it agrees with each point."""

    text: str  # the machine file
    points: tuple[FitPoint, ...]

    def rms(self, fitted: bool) -> float:
        """Return the root mean square of the relative errors; NaN without points."""
        errors = [p.error for p in self.points if p.fitted is fitted]
        return math.sqrt(math.fsum(e * e for e in errors) / len(errors)) if errors else math.nan


def _where(records: Sequence[Record], instrument: str, metric: str, **conditions: Any) -> list[Record]:
    return [
        r
        for r in records
        if r.instrument == instrument
        and r.metric == metric
        and all(r.conditions.get(k) == v for k, v in conditions.items())
    ]


def _best(records: Sequence[Record]) -> Record:
    """Return the record with the fewest flags, then the narrowest spread."""
    return min(records, key=lambda r: (len(r.flags), r.spread))


def _need(records: Sequence[Record], instrument: str, metric: str, **conditions: Any) -> list[Record]:
    matches = _where(records, instrument, metric, **conditions)
    if not matches:
        conditions_text = ", ".join(f"{k} {v}" for k, v in conditions.items())
        raise AbsentError(
            f"fit: the survey has no {instrument} {metric}" + (f" with {conditions_text}" if conditions_text else ""),
            "run meshmark survey",
        )
    return matches


def shape_of(host: Mapping[str, Any]) -> tuple[list[int], int]:
    """Return the number of CPUs of each memory node, and the size of a cache line in bytes.

    Args:
        host: Facts of a host with its `topology`. Without nodes, the result is one node with the CPUs of this process;
            without a line size, it is 64 B.
    """
    topology: Any = host.get("topology", {})
    if not isinstance(topology, dict):
        topology = {}
    cpus_of = [len(n.get("cpus", [])) or 1 for n in topology.get("nodes", [])]
    caches = [c for c in topology.get("caches", []) if isinstance(c, dict)]
    line = max((int(c["line_bytes"]) for c in caches if c.get("line_bytes")), default=64)
    return cpus_of or [max(1, len(os.sched_getaffinity(0)))], line


def fit(
    records: Sequence[Record],
    name: str,
    cpus_of: Sequence[int],
    line_bytes: int,
    folder: Path,
    progress: Progress | None = None,
) -> SurveyFit:
    """Fit a machine to the records of one host.

    Args:
        records: Records of the survey.
        name: Name of the new machine.
        cpus_of: Number of CPUs of each memory node.
        line_bytes: Size of a cache line in bytes.
        folder: Folder for intermediate machine files.
        progress: Function that is called with the progress; None: none is reported.

    Raises:
        AbsentError: The survey lacks a required value; the message names it.
    """
    numbers = _numbers(records, cpus_of, line_bytes)
    path = folder / f"{name}.toml"
    machine = _fit_stream(path, name, numbers, cpus_of)
    points = _compare(machine, records, numbers, cpus_of, progress)
    return SurveyFit(path.read_text(encoding="utf-8"), tuple(points))


def _fit_stream(path: Path, name: str, numbers: dict[str, Any], cpus_of: Sequence[int]) -> MachineFile:
    """Adjust the outstanding loads of a stream until one core reaches its bandwidth on the host, and return the model.

    The adjustment also ends if the memory limits the core.
    """
    target = numbers["single"].value
    for _ in range(6):
        path.write_text(_text(name, numbers, cpus_of), encoding="utf-8")
        machine = read_machine(path)
        run = stream_trial([stream_actor(machine, [0], "triad", numbers["stream_store"], "local")])
        rate = median_of(ask(machine, [run])[0]["groups"][0]["bytes_per_s"])
        adjusted = min(512, max(1, round(numbers["stream"] * target / rate)))
        if adjusted == numbers["stream"]:
            break
        numbers["stream"] = adjusted
    return machine


def _numbers(records: Sequence[Record], cpus_of: Sequence[int], line: int) -> dict[str, Any]:
    levels = _need(records, "latency", "level_latency", kind="cache")
    pages = "thp" if any(r.conditions.get("pages") == "thp" for r in levels) else levels[0].conditions.get("pages")
    caches = [r for r in levels if r.conditions.get("pages") == pages]
    caches.sort(key=lambda r: float(str(r.conditions["to_bytes"])))
    idle = _best(_need(records, "loaded", "load_latency", mode="chains", chains=1, threads=1))
    measured_parallelism = _where(records, "loaded", "memory_parallelism", threads=1)
    highest_rate = max(_need(records, "loaded", "bandwidth_net", mode="chains", threads=1), key=lambda r: r.value)
    parallelism = measured_parallelism[0].value if measured_parallelism else highest_rate.value * idle.value / line
    streaming = _where(records, "bandwidth", "bandwidth_gross", kernel="triad", store="streaming")
    stream_store = "streaming" if streaming else "ordinary"
    single_thread = _need(records, "bandwidth", "bandwidth_gross", threads=1)
    largest = max(float(str(r.conditions["footprint_bytes"])) for r in single_thread)
    large = [
        r
        for r in records
        if r.instrument == "bandwidth"
        and r.metric == "bandwidth_gross"
        and float(str(r.conditions["footprint_bytes"])) >= largest / 4
    ]
    single = _best(_need(large, "bandwidth", "bandwidth_gross", kernel="triad", store=stream_store, threads=1))
    kernels = stream_kernels()
    highest = max((r for r in large if r.conditions.get("kernel") in kernels), key=lambda r: r.value)
    reads = 2 / 3 if stream_store == "streaming" else 3 / 4
    remote: dict[int, float] = {}
    for r in _where(records, "latency", "load_latency", pattern="random", processes=1):
        node = r.conditions.get("memory_node")
        if isinstance(node, int) and float(str(r.conditions["footprint_bytes"])) >= largest / 4:
            remote[node] = min(remote.get(node, math.inf), r.value)
    return {
        "caches": [(int(float(str(r.conditions["to_bytes"]))), r.value * 1e9) for r in caches],
        "latency_ns": idle.value * 1e9,
        "outstanding": max(1, round(parallelism)),
        "line": line,
        "stream": max(1, round(reads * single.value * idle.value / line)),
        "stream_store": stream_store,
        "shared_gb": highest.value * 1e-9 / len(cpus_of),
        "single": single,
        "shared": highest,
        "one": idle,
        "deepest": highest_rate,
        "remote_ns": {n: v * 1e9 for n, v in remote.items()},
    }


def _text(name: str, n: Mapping[str, Any], cpus_of: Sequence[int]) -> str:
    latency, nodes = n["latency_ns"], len(cpus_of)
    title = json.dumps(f"{name}, fitted to its survey")
    lines = ["# Fitted to a survey by meshmark model fit.", "format = 1", f"title = {title}", "", "[topology]"]
    if nodes == 1:
        lines += ['kind = "single"', ""]
    else:
        edges = ", ".join(f'[{a}, {b}, "between"]' for a in range(nodes) for b in range(a + 1, nodes))
        remote_ns = [v for node, v in n["remote_ns"].items() if node != 0]
        link_ns = (
            max(0.0, (sum(remote_ns) / len(remote_ns) - n["remote_ns"].get(0, latency)) / 2) if remote_ns else 20.0
        )
        origin = (
            ("fitted", "mean latency of the other nodes less the local one")
            if remote_ns
            else ("assumed", "not surveyed")
        )
        lines += [
            'kind = "graph"',
            f"routers = {nodes}",
            f"edges = [{edges}]",
            'derived = "all nodes directly connected"',
            "",
            "[links.between]",
            entry("bandwidth_gb_per_s", n["shared_gb"], "assumed", "equal to a node's memory bandwidth; not surveyed"),
            entry("latency_ns", link_ns, *origin),
            "",
        ]
    lines += [
        "[router]",
        entry("pipeline_ns", 0, "assumed", "included in the links"),
        entry("cycle_ns", 0.5, "assumed", "negligible"),
        entry("buffer_flits", 256, "assumed", "not limiting"),
        "",
        "[node]",
        entry("cpus", cpus_of[0], "derived", "the host's topology"),
        entry("controllers", 1, "assumed", "all channels of a node merged into one"),
        "",
        "[cpu]",
        entry("outstanding", n["outstanding"], "fitted", "maximum outstanding loads of random chains, one CPU"),
        entry("stream_outstanding", n["stream"], "fitted", f"triad, {n['stream_store']} stores, one CPU"),
        entry("write_buffers", max(8, n["stream"]), "assumed", "as many as reads"),
        entry("request_ns", latency / 4, "derived", "a quarter of the latency"),
        entry("fill_ns", latency / 4, "derived", "a quarter of the latency"),
        "",
    ]
    for level, (size, ns) in enumerate(n["caches"], 1):
        lines += [
            "[[cache]]",
            f'name = "L{level}"',
            entry("size_kib", size / 1024, "fitted", "end of a latency plateau"),
            entry("latency_ns", ns, "fitted", "a latency plateau"),
            "",
        ]
    lines += [
        "[memory]",
        entry("channels", 1, "assumed", "all channels of a node merged into one"),
        entry("channel_gb_per_s", n["shared_gb"], "fitted", "maximum gross bandwidth of all CPUs"),
        entry("line_bytes", n["line"], "derived", "the host's coherence line"),
        entry("access_ns", latency / 2, "fitted", "load latency, one chain"),
        entry("queue", 256, "assumed", "not limiting"),
        "",
        "[coherence]",
        'kind = "snoop"',
        "",
    ]
    return "\n".join(lines)


def _compare(
    machine: MachineFile,
    records: Sequence[Record],
    n: Mapping[str, Any],
    cpus_of: Sequence[int],
    progress: Progress | None,
) -> list[FitPoint]:
    """Simulate every distinct point of the survey that the model covers."""
    total = sum(cpus_of)
    comparisons: dict[str, tuple[Record, Run, Callable[[Answer], float], bool]] = {}

    def group(answer: Answer, key: str) -> float:
        return median_of(answer["groups"][0][key])

    def rate_times(share: float, key: str = "bytes_per_s") -> Callable[[Answer], float]:
        return lambda answer: share * group(answer, key)

    def step_of(chains: int) -> Callable[[Answer], float]:
        return lambda answer: chains / group(answer, "reads_per_s")

    for r in _where(records, "loaded", "load_latency", mode="chains"):
        chains, threads = int(str(r.conditions["chains"])), int(str(r.conditions["threads"]))
        if threads > total:
            continue
        stream = {"homes": "local", "random": True}
        actor = {"cpus": list(range(threads)), "chains": min(chains, n["outstanding"]), "streams": [stream]}
        run = trial([actor])
        label = f"{chains} chains, {threads} CPUs"
        comparisons.setdefault(f"load latency, {label}", (r, run, step_of(chains * threads), r is n["one"]))
        for rate in _where(records, "loaded", "bandwidth_net", mode="chains", chains=chains, threads=threads)[:1]:
            comparisons.setdefault(f"random reads, {label}", (rate, run, rate_times(1.0), rate is n["deepest"]))
    kernels = stream_kernels()
    largest = float(str(n["single"].conditions["footprint_bytes"]))
    fitted_kernels = {_kernel_of(n["single"]), _kernel_of(n["shared"])}
    for r in records:
        if r.instrument != "bandwidth" or r.metric != "bandwidth_net":
            continue
        kernel, store, threads = _kernel_of(r)
        size = float(str(r.conditions["footprint_bytes"]))
        if kernel not in kernels or kernel == "update" or size < 0.4 * largest or threads > total:
            continue
        share = kernels[kernel].net / kernels[kernel].gross(store)
        run = stream_trial([stream_actor(machine, list(range(threads)), kernel, store, "local")])
        label = f"{kernel}, {store} stores, {threads} CPUs"
        comparisons.setdefault(label, (r, run, rate_times(share), (kernel, store, threads) in fitted_kernels))
    for r in _where(records, "gups", "update_rate", kernel="plain"):
        threads = int(str(r.conditions["threads"]))
        if r.conditions.get("pages") != "4KiB" and threads <= total:
            run = gups(list(range(threads)), n["outstanding"])
            comparisons.setdefault(f"random updates, {threads} CPUs", (r, run, rate_times(1.0, "reads_per_s"), False))
    done = 0

    def handle_line(line: Answer) -> None:
        nonlocal done
        done += line.get("type") == "answer"
        if progress is not None:
            progress(done, len(comparisons))

    answers = ask(machine, [run for _, run, _, _ in comparisons.values()], on_line=handle_line)
    points = [
        FitPoint(name, r.value, read(reply), r.unit, is_fitted, r.flags)
        for (name, (r, _, read, is_fitted)), reply in zip(comparisons.items(), answers, strict=True)
    ]
    return sorted(points, key=lambda p: [(t.isdigit(), int(t) if t.isdigit() else 0, t) for t in p.what.split()])


def _kernel_of(r: Record) -> tuple[str, str, int]:
    return str(r.conditions["kernel"]), str(r.conditions["store"]), int(str(r.conditions["threads"]))
