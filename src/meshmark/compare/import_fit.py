"""Fits a machine file to results of other tools and tests it on results that the fit did not use."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from meshmark.compare.import_numbers import ImportNumbers, LoadedPoint, find_numbers, is_of_machine, is_of_memory
from meshmark.compare.kinds import CPUS
from meshmark.describe import stream_kernels
from meshmark.model.engine import ask, median_of
from meshmark.model.fitting.fit import FitPoint, SurveyFit
from meshmark.model.fitting.from_numbers import FOOTPRINT, KeyNumberFit, Progress, Request, fit_numbers, measured
from meshmark.model.fitting.key_numbers import check
from meshmark.model.instruments import measure
from meshmark.model.machine import MachineFile
from meshmark.model.workloads import stream_trial
from meshmark.store.record import Record
from meshmark.values.units import counted

# Quantities that can test a fit, and the words with which the names of their points begin.
_TESTS: Final = {
    "latency under load": "loaded latency",
    "mixes of reads and writes": "mix",
    "other STREAM kernels": "kernel",
    "transfers inside a socket": "transfer",
}

_CHANNELS: Final = (2, 4, 8, 16, 32, 64)  # numbers of channels of a socket that are tried for the loaded curve


@dataclass(frozen=True, slots=True)
class ImportFit(SurveyFit):
    """A fit to results of other tools.

    Attributes:
        fitted: The numbers, and the values that the model has for them.
        notes: What was assumed, and what could not be tested or used.
    """

    fitted: KeyNumberFit
    notes: tuple[str, ...]


def fit_import(
    records: Sequence[Record],
    name: str,
    folder: Path,
    cores: int | None = None,
    idle_local: float | None = None,
    progress: Progress | None = None,
) -> ImportFit:
    """Fit a machine to results of one machine.

    Args:
        records: Results of one machine.
        name: Name of the new machine.
        folder: Folder for intermediate machine files.
        cores: See `find_numbers`.
        idle_local: See `find_numbers`.
        progress: Function that is called with the progress of the fit; None: no progress is reported.

    Raises:
        AbsentError: The results do not determine a number that the fit needs.
        UsageError: The numbers contradict each other.
    """
    result_numbers = find_numbers(records, cores, idle_local)
    check(result_numbers.numbers, "")
    fitted = fit_numbers(result_numbers.numbers, name, folder, progress, prefix="")
    knee = _knee(result_numbers)
    if knee is not None:
        numbers = replace(result_numbers.numbers, channels=_channels(result_numbers, fitted.machine, knee))
        fitted = fit_numbers(numbers, name, folder, progress, prefix="")
        result_numbers.used = {**result_numbers.used, "knee": [knee.latency, knee.bandwidth]}
    points = _fitted_points(result_numbers, fitted)
    curve = _model_curve(result_numbers, fitted.machine) if result_numbers.curve else []
    if knee is not None:
        points += _curve_points([knee], curve, fitted=True)
    predicted, tested_ids = _predictions(records, result_numbers, fitted.machine, curve)
    used_ids = {id(r) for group in result_numbers.used.values() for r in group} | tested_ids
    notes = list(result_numbers.notes)
    beyond_count = sum(p.bandwidth.value > curve[-1][0] for p in _spread(result_numbers.curve))
    if beyond_count:
        points_beyond = counted(beyond_count, "loaded point")
        notes.append(f"not compared: {points_beyond} with more bandwidth than the model reaches")
    if untested_kinds := [kind for kind, word in _TESTS.items() if not any(p.what.startswith(word) for p in predicted)]:
        notes.append(f"not tested, since the results have no other points of it: {', '.join(untested_kinds)}")
    if unused_text := _unused([r for r in records if id(r) not in used_ids]):
        notes.append(f"not used: {unused_text}")
    return ImportFit(fitted.text, (*points, *predicted), fitted, tuple(notes))


def _fitted_points(numbers: ImportNumbers, fitted: KeyNumberFit) -> list[FitPoint]:
    return [
        FitPoint(o.name, o.given, o.model, o.unit, True, frozenset().union(*(r.flags for r in numbers.used[o.name])))
        for o in fitted.outcomes
        if o.given is not None and o.name in numbers.used
    ]


def _unused(records: Sequence[Record]) -> str:
    counts: dict[str, int] = {}
    for r in records:
        kernel = r.conditions.get("kernel") if r.instrument == "bandwidth" else None
        name = f"{r.instrument} {r.metric}" + (f" ({kernel})" if kernel else "")
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{counted(count, 'result')} of {name}" for name, count in counts.items())


def _predictions(
    records: Sequence[Record], numbers: ImportNumbers, machine: MachineFile, curve: Sequence[tuple[float, float]]
) -> tuple[list[FitPoint], set[int]]:
    """Return the points that the fit did not use, and the `id` of their results.

    Args:
        records: Results of one machine.
        numbers: Numbers of the fit, and the results that it used.
        machine: The fitted machine.
        curve: Bandwidth and latency of the model under load; empty if the results have no loaded points.
    """
    used_ids = {id(r) for group in numbers.used.values() for r in group}
    points = _curve_points(_spread([p for p in numbers.curve if id(p.latency) not in used_ids]), curve)
    tested_ids = {id(r) for p in numbers.curve for r in (p.latency, p.bandwidth)}
    requests: dict[str, Request] = {}
    mixes: dict[str, dict[str, Any]] = {}
    tested: dict[str, list[Record]] = {}
    for r in records:
        if id(r) in used_ids:
            continue
        if request := _request(r, numbers):
            name = request[0]
            requests[name] = request[1]
        elif actor := _mix(r, numbers, machine):
            name = f"mix, {float(str(r.conditions['read_share'])):.0%} reads"
            mixes[name] = actor
        else:
            continue
        tested.setdefault(name, []).append(r)  # several runs may have measured the same
    values = measured(machine, requests)
    answers = ask(machine, [stream_trial([actor]) for actor in mixes.values()])
    values |= {name: median_of(a["groups"][0]["bytes_per_s"]) for name, a in zip(mixes, answers, strict=True)}
    for name in (*requests, *mixes):
        points += [FitPoint(name, r.value, values[name], r.unit, False, r.flags) for r in tested[name]]
    return points, tested_ids | {id(r) for results in tested.values() for r in results}


def _request(r: Record, found: ImportNumbers) -> tuple[str, Request] | None:
    """Return the name of a point that an instrument simulates, and the request; None for other results."""
    kind, numbers = found.kinds[id(r)], found.numbers
    cores = int(numbers.need("cores"))
    if (r.instrument, r.metric) == ("bandwidth", "bandwidth_net") and is_of_memory(kind):
        kernel = str(r.conditions.get("kernel"))
        threads = _threads(r, found)
        if kernel not in stream_kernels() or threads is None or r.conditions.get("statistic") not in {None, "best"}:
            return None
        store = str(r.conditions.get("store") or numbers.store)
        options = {"kernel": kernel, "store": store, "footprint": FOOTPRINT, "threads": str(threads)}
        return f"kernel {kernel}, {store} stores, {counted(threads, 'core')}", ("bandwidth", options, "bandwidth_net")
    in_one_socket = "one socket" in kind.words.get(CPUS, ())
    dirty = kind.words.get("state") == frozenset({"dirty"}) and "cache" not in r.conditions
    if (r.instrument, r.metric) == ("lines", "line_latency") and in_one_socket and dirty and cores > numbers.sockets:
        return "transfer inside a socket", ("lines", {"cpus": "0,1"}, "line_latency")
    return None


def _threads(r: Record, numbers: ImportNumbers) -> int | None:
    """Return the number of cores that a result used: all, all of one socket, or one; None for other numbers."""
    kind, node = numbers.kinds[id(r)], r.conditions.get("cpu_node")
    if node is not None:
        is_local = node == r.conditions.get("memory_node") and numbers.nodes == numbers.numbers.sockets
        return numbers.numbers.cores_each if is_local else None
    if is_of_machine(kind):
        return int(numbers.numbers.need("cores"))
    return 1 if kind.workers is not None and kind.workers.count == 1 else None


def _mix(r: Record, numbers: ImportNumbers, machine: MachineFile) -> dict[str, Any] | None:
    """Return an actor that mixes reads and writes as a tool does; None for other results.

    With write-allocate (regular) stores, a written line is read as well: 2:1 means that one line is read, one line is
    read in order to be written, and one line is written.
    """
    share, kind = r.conditions.get("read_share"), numbers.kinds[id(r)]
    is_mix = (r.instrument, r.conditions.get("kernel")) == ("bandwidth", "mix") and is_of_memory(kind)
    if not is_mix or not is_of_machine(kind) or not isinstance(share, float) or r.conditions.get("store") is not None:
        return None
    fraction = Fraction(share).limit_denominator(8)
    reads, writes = fraction.numerator, fraction.denominator - fraction.numerator
    if r.metric != "bandwidth_gross" or reads < writes or writes < 1:
        return None
    access = {"homes": "local", "work_ns": machine.number("cpu.line_work_ns", 0.0)}
    streams = [{"op": "read", **access} for _ in range(reads - writes)]
    streams += [{"op": op, **access} for _ in range(writes) for op in ("own", "write")]
    chains = int(machine.number("cpu.stream_outstanding"))
    return {"cpus": list(range(int(numbers.numbers.need("cores")))), "chains": chains, "streams": streams}


def _model_curve(numbers: ImportNumbers, machine: MachineFile) -> list[tuple[float, float]]:
    """Return bandwidth and latency of the model while all cores read, from an idle machine to full load."""
    lines = int(machine.number("cpu.outstanding"))
    chains = sorted({max(1, round(lines * n / 12)) for n in range(1, 13)})
    threads = str(int(numbers.numbers.need("cores")))
    records = measure("loaded", machine, {"threads": threads, "chains": ",".join(map(str, chains))})
    rates, latencies = (
        [r.value for r in records if r.metric == metric] for metric in ("bandwidth_net", "load_latency")
    )
    return [(0.0, numbers.numbers.need("idle-local")), *zip(rates, latencies, strict=True)]


def _curve_points(
    loads: Sequence[LoadedPoint], curve: Sequence[tuple[float, float]], fitted: bool = False
) -> list[FitPoint]:
    """Return points of measured and modelled latency by bandwidth, without loads beyond the model's bandwidth."""
    points = []
    for p in loads:
        if (latency := _interpolated(curve, p.bandwidth.value)) is not None:
            name = f"loaded latency at {p.bandwidth.value / 1e9:.4g} GB/s"
            points.append(FitPoint(name, p.latency.value, latency, "s", fitted, p.latency.flags | p.bandwidth.flags))
    return points


def _knee(numbers: ImportNumbers) -> LoadedPoint | None:
    """Return the loaded point nearest to three quarters of the highest bandwidth; None if none is near it."""
    if "loaded" not in numbers.used:
        return None
    highest = numbers.curve[-1].bandwidth.value
    candidates = [p for p in numbers.curve if 0.5 * highest <= p.bandwidth.value <= 0.9 * highest]
    return min(candidates, key=lambda p: abs(p.bandwidth.value - 0.75 * highest), default=None)


def _channels(numbers: ImportNumbers, machine: MachineFile, knee: LoadedPoint) -> int:
    """Return the number of channels of a socket with which the model is nearest to a loaded point.

    More channels with the same total bandwidth are slower, so that accesses queue for longer at each of them.
    """
    channels, rate = machine.number("memory.channels"), machine.number("memory.channel_gb_per_s")
    errors: dict[int, float] = {}
    for count in _CHANNELS:
        settings = [f"memory.channels={count}", f"memory.channel_gb_per_s={rate * channels / count:.6g}"]
        latency = _interpolated(_model_curve(numbers, machine.with_settings(settings)), knee.bandwidth.value)
        errors[count] = abs(latency - knee.latency.value) if latency is not None else float("inf")
    return min(errors, key=lambda count: errors[count])


def _spread(points: Sequence[LoadedPoint], least: float = 1.02) -> list[LoadedPoint]:
    """Return the points, but only one of several points with almost the same bandwidth."""
    selected: list[LoadedPoint] = []
    for p in points:
        if not selected or p.bandwidth.value > least * selected[-1].bandwidth.value:
            selected.append(p)
    return selected


def _interpolated(curve: Sequence[tuple[float, float]], at: float) -> float | None:
    """Return y of a curve of (x, y), x ascending, at a value of x; None beyond its end."""
    for (x0, y0), (x1, y1) in itertools.pairwise(curve):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0) if x1 > x0 else y1
    return None
