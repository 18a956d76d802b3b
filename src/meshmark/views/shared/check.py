"""Reads shared results, and judges whether they are plausible and undisturbed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from meshmark.errors import UsageError
from meshmark.measure.importers.card import read_card
from meshmark.measure.repetitions import measurement_key
from meshmark.store.files import parse_json, read_text
from meshmark.store.record import Record
from meshmark.store.run import RunInfo
from meshmark.values.inputs import fields_of
from meshmark.values.units import counted, show
from meshmark.views.content.card import INSTRUMENT_OF, figures
from meshmark.views.content.findings import REMEDIES, trusted
from meshmark.views.content.selection import usual_stride, value_of
from meshmark.views.shared.form import MAX_BYTES, SharedResult, read_form
from meshmark.views.shared.texts import topology_text

# Values beyond these are errors of measurement or of units: smallest and largest plausible value by metric, SI units.
_LIMITS: Final = {
    "load_latency": (1e-10, 1e-4),
    "level_latency": (1e-10, 1e-4),
    "level_capacity": (1 << 10, 1 << 40),
    "line_latency": (1e-9, 1e-4),
    "bandwidth_net": (1e5, 1e14),
    "knee_bandwidth": (1e6, 1e14),
    "memory_parallelism": (0.2, 1e4),
    "core_frequency": (1e8, 1e10),
    "flop_rate": (1e6, 1e16),
    "update_rate": (1e4, 1e13),
    "operation_latency": (1e-7, 100.0),
}
_L1_CYCLES: Final = (1.5, 20.0)  # a dependent load takes 3 to 12 cycles on processors since 2005
_FLOP_PER_CYCLE: Final = 64.0  # fp64, of one core: two FMA of 16 elements
_PER_LEVEL: Final = 0.9  # a level may seem this much faster than the level before it
_WITH_THREADS: Final = 0.5  # all CPUs reach at least this share of the bandwidth of one
_OF_PEAK: Final = 1.15  # dgemm over the peak: clocks vary
_BANDWIDTH_OF_PEAK: Final = 1.02  # triad over the bandwidth of the memory channels
# Flags that mark a disturbance. The figures that everyone compares must not have them.
_DISTURBANCES: Final = frozenset(REMEDIES) | {"unverified"}
_HEADLINES: Final = ("triad_all", "triad_one", "memory_latency", "memory_latency_small_pages", "line_swap", "peak_fp64")


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """A shared result and its records; transfers between CPUs that are shared as a table are records, too."""

    result: SharedResult
    records: Sequence[Record]

    @property
    def id(self) -> str:
        """Return the name of the machine, which is unique among results of different content."""
        return self.result.machine


def read_shared(path: Path) -> SharedMachine:
    """Return the shared result of a file.

    Raises:
        MeshmarkError: The file cannot be read.
        UsageError: It is not a shared result, or its values contradict each other. The message names the field.
    """
    text = read_text(path, MAX_BYTES)
    return _machine(parse_json(text, path), text, str(path))


def checked_text(text: str) -> SharedMachine:
    """Return the shared result of the text of a file.

    Raises:
        UsageError: See `read_shared`.
    """
    return _machine(json.loads(text), text, "the shared result")


def _machine(value: object, text: str, where: str) -> SharedMachine:
    result = read_form(value, where)
    card = read_card(text.encode())
    assert card is not None  # the form requires the type of a card
    if len(card.left_out) > len(result.left_out):  # the others are those that the file itself names
        place, reason = card.left_out[0]
        raise UsageError(f"{where}: {place}: {reason}")
    records = [r for _, r in card.records]
    shared = SharedMachine(result, [*records, *_transfers(result, records)])
    for reason in _contradictions(shared):
        raise UsageError(f"{where}: {reason}")
    return shared


def _transfers(result: SharedResult, records: Sequence[Record]) -> list[Record]:
    """Return a record of one sample for each transfer of the table that has no record of its own."""
    table = result.transfers
    if table is None:
        return []
    pairs = (r.conditions for r in records if r.metric == "line_latency")
    recorded = {(c.get("from_cpu"), c.get("to_cpu")) for c in pairs}
    return [
        Record(
            source="host",
            machine=result.machine,
            instrument="lines",
            metric="line_latency",
            unit="s",
            better="lower",
            samples=(float(ns) * 1e-9,),
            value=float(ns) * 1e-9,
            interval=None,
            conditions={"from_cpu": a, "to_cpu": b, "state": "swap", "trip": "one_way"},
        )
        for a, row in zip(table.cpus, table.ns, strict=False)
        for b, ns in zip(table.cpus, row.split(" "), strict=False)
        if ns != "-" and (a, b) not in recorded
    ]


def _contradictions(shared: SharedMachine) -> Iterator[str]:
    """Yield in which fields the file contradicts itself."""
    result, records = shared.result, shared.records
    if (table := result.transfers) is not None and {len(table.cpus), *(row.count(" ") + 1 for row in table.ns)} != {
        len(table.ns)
    }:
        yield f"transfers: found {counted(len(table.ns), 'row')}; allowed: a row and a column for each of its CPUs"
    if any(r.machine != result.machine for r in records):
        yield "records: the machine differs from the machine of the file"
    keys = [(r.metric, measurement_key(r)) for r in records]
    if len(keys) != len(set(keys)):
        yield "records: two results have the same conditions"
    known = figures(records, result.host.cpus)
    for key, figure in result.figures.items():
        record = known[key][1] if key in known else None
        if record is None:
            if not any(left.instrument == INSTRUMENT_OF.get(key) for left in result.left_out):
                yield f"figures.{key}: none of the records is its source"
        elif (record.value, record.unit, sorted(record.flags)) != (figure.value, figure.unit, sorted(figure.flags)):
            given = f"{record.value:g} {record.unit}, flags {sorted(record.flags)}"
            stated = f"{figure.value:g} {figure.unit}, flags {[*figure.flags]}"
            yield f"figures.{key}: found {stated}; the records give {given}"


def problems(shared: SharedMachine) -> list[str]:
    """Return why the result must not be published: what is implausible, then what was disturbed; [] if nothing is."""
    records = shared.records
    texts = [*_implausible(records), *_impossible(shared, figures(records, shared.result.host.cpus))]
    return [*dict.fromkeys(texts), *_disturbed(shared)]


def _implausible(records: Sequence[Record]) -> Iterator[str]:
    for r in records:
        low, high = _LIMITS[r.metric]
        if not low <= r.value <= high:
            limits = f"{show(low, r.unit)} to {show(high, r.unit)}"
            yield f"{r.instrument} {r.metric}: {show(r.value, r.unit)} is implausible; plausible: {limits}"


def _impossible(shared: SharedMachine, known: Mapping[str, tuple[str, Record | None]]) -> Iterator[str]:
    """Yield which results cannot both be true."""
    values = {key: record.value for key, (_, record) in known.items() if record is not None}
    host, records = shared.result.host, shared.records
    levels = _levels(records)
    clock = values.get("core_frequency", 0.0)
    if levels and clock and not _L1_CYCLES[0] <= levels[0].value * clock <= _L1_CYCLES[1]:
        cycles = levels[0].value * clock
        yield (
            f"the latency of the first level is {cycles:.1f} cycles at {show(clock, 'Hz')}; plausible: "
            f"{_L1_CYCLES[0]:g} to {_L1_CYCLES[1]:g}"
        )
    for nearer, farther in itertools.pairwise(levels):
        if farther.value < _PER_LEVEL * nearer.value:
            yield (
                f"latency level {value_of(farther, 'level'):.0f} ({show(farther.value, 's')}) is faster than level "
                f"{value_of(nearer, 'level'):.0f} ({show(nearer.value, 's')})"
            )
    peak_limit = _FLOP_PER_CYCLE * host.cores * max(clock, 1e9) * 2
    if host.cores and values.get("peak_fp64", 0.0) > peak_limit:
        yield f"peak_fp64 is {show(values['peak_fp64'], 'flop/s')}; at most {show(peak_limit, 'flop/s')} is plausible"
    yield from _pair(values, "triad_all", "triad_one", at_least=_WITH_THREADS)
    yield from _pair(values, "dgemm", "peak_fp64", at_most=_OF_PEAK)
    yield from _pair(values, "linpack", "peak_fp64", at_most=_OF_PEAK)
    channels = host.memory_peak_bytes_per_s
    if channels and values.get("triad_all", 0.0) > _BANDWIDTH_OF_PEAK * channels:
        yield f"triad_all is more than the {show(channels, 'B/s')} that the memory channels transfer"


def _pair(
    values: Mapping[str, float], key: str, other: str, *, at_least: float = 0.0, at_most: float = float("inf")
) -> Iterator[str]:
    if key in values and values.get(other, 0.0) > 0:
        ratio = values[key] / values[other]
        if not at_least <= ratio <= at_most:
            limit = f"at least {at_least:g}" if ratio < at_least else f"at most {at_most:g}"
            yield f"{key} is {ratio:.2f} times {other}; {limit} times is plausible"


def _levels(records: Sequence[Record]) -> list[Record]:
    """Return the latency levels of the curve with the largest pages on the first CPU and node, nearest level first."""
    levels = usual_stride(r for r in records if r.metric == "level_latency")
    if not levels:
        return []

    def curve(r: Record) -> tuple[float, float, float]:
        return -value_of(r, "page_bytes"), value_of(r, "cpu"), value_of(r, "memory_node")

    first = min(map(curve, levels))
    fastest: dict[float, Record] = {}
    for r in sorted(levels, key=lambda r: -r.value):
        if curve(r) == first:
            fastest[value_of(r, "level")] = r
    return [fastest[level] for level in sorted(fastest)]


def _disturbed(shared: SharedMachine) -> Iterator[str]:
    flagged: dict[tuple[str, ...], list[str]] = {}
    for key in _HEADLINES:
        figure = shared.result.figures.get(key)
        if figure is not None and (flags := tuple(sorted(_DISTURBANCES & set(figure.flags)))):
            flagged.setdefault(flags, []).append(key)
    for flags, keys in flagged.items():
        reason = f": {REMEDIES[flags[0]]}" if flags[0] in REMEDIES else ""
        yield f"{', '.join(keys)} {'is' if len(keys) == 1 else 'are'} flagged {', '.join(flags)}{reason}"
    trust = trusted(shared.records)
    if not trust.reliable:
        yield trust.text.removesuffix(".") + (f"; {trust.remedy}" if trust.remedy else "")


def run_info(shared: SharedMachine) -> RunInfo:
    """Return a shared result as the description of a run."""
    result, host = shared.result, shared.result.host
    caches = [fields_of(c) for c in host.caches]
    facts = {
        "cpu": {"model": host.cpu.model, "vendor": host.cpu.vendor, "isa": [*host.cpu.isa]}
        | ({"claimed_hz": host.cpu.claimed_hz} if host.cpu.claimed_hz else {}),
        "caches": caches,
        "topology": {
            "summary": topology_text(host),
            "caches": caches,
            "cpus": [None] * host.cpus,
        },
        "memory": {
            "total_bytes": host.memory_bytes,
            "channels": host.memory_channels,
            "peak_bytes_per_s": host.memory_peak_bytes_per_s,
        },
        "kernel": {"release": host.kernel},
        "pages": {"thp": host.thp, "thp_defrag": None},
        "settings": {
            k: v
            for k, v in (("governor", host.governor), ("boost", host.boost), ("numa_balancing", host.numa_balancing))
            if v is not None
        },
    }
    return RunInfo(
        run_id=result.run,
        machine=result.title,
        started=result.started,
        elapsed_s=0.0,
        spec_name="",
        command="",
        version=result.version,
        host=facts,
    )
