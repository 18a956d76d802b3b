"""A program as a file: which variants are called how often and in which order, and what that is planned to give.

One JSON object, the same bytes for the same input:

    {"format": "meshmark load program", "version": 1, "machine": "n042", "kernels": {"triad": "1"}, "calibrations": 0,
     "prescription": {"name": "traffic", "run_time_s": 100.0, "memory_gb_per_s": 2.14, "threads": 1, …},
     "metrics": {"my_metric": {"formula": "flops / cpu_s", "unit": "flop/s"}},
     "shares": [1.0],
     "variants": [{"name": "triad/128MiB/s1/t1", "kernel": "triad", …, "calls": 1200, "phase": 0.25}, …],
     "planned": {"calls": 250000, "run_time_s": 100.0003, "memory_gb_per_s": {"asked": 2.14, "planned": 2.14001}, …}}

`variants` holds times and counts of one call as in base data (what is zero or by default is left out), so the file
needs nothing beside it; times are those of even shares. Its order matters: see `order.py` for the order of the calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import AfterValidator, Field

from meshmark.errors import MeshmarkError, quoted
from meshmark.load.metrics import Metrics, MetricTable, all_metrics, metric
from meshmark.load.order import Uniformity
from meshmark.load.prescription import Prescription, parse_prescription
from meshmark.load.variants import COLUMNS, MAX_PROGRAM_BYTES, Table, Variant
from meshmark.store.files import read_text
from meshmark.values.inputs import LIST, PRINTABLE, Excerpt, Input, Label, Name, checked, fields_of, found

FORMAT: Final = "meshmark load program"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Part:
    """A variant and its calls."""

    variant: Variant
    calls: int
    phase: float


def _phase(value: float) -> float:
    if value * (1 << 24) % 1:
        raise ValueError("allowed are multiples of 2^-24 below 1")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTable(Variant):
    calls: Annotated[int, Field(ge=1, le=1 << 29)]  # up to there times are exact (order.py)
    phase: Annotated[float, Field(ge=0, lt=1), AfterValidator(_phase)]

    def part(self) -> Part:
        rest = fields_of(self)
        calls, phase = rest.pop("calls"), rest.pop("phase")
        return Part(Variant(**rest), calls, phase)


Share = Annotated[float, Field(ge=0, le=1)]
Deviations = Mapping[Label, Annotated[float, Field(ge=0, le=1e9)]]


@dataclass(frozen=True, slots=True)
class PlannedTable(Excerpt):
    """What is not computed from the variants again, and the run time, which is compared."""

    run_time_s: Annotated[float, Field(ge=0, le=1e12)]
    worst_deviation: Deviations
    window_s: Annotated[float, Field(ge=0, le=1e6)]
    window_cov: Deviations


@dataclass(frozen=True, slots=True)
class ProgramFile(Input):
    format: str
    version: int
    machine: Annotated[str, Field(max_length=120), PRINTABLE]
    kernels: dict[Label, Label]
    calibrations: Annotated[int, Field(ge=0, le=1_000_000)]
    prescription: dict[str, Any]
    metrics: dict[Name, MetricTable]
    shares: Annotated[tuple[Share, ...], LIST]
    variants: Annotated[tuple[PartTable, ...], LIST, Field(min_length=1, max_length=10_000)]
    planned: PlannedTable
    notes: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1000), PRINTABLE], ...], LIST]


def shares(threads: int, load_balance: float) -> tuple[float, ...]:
    """Parts of each call's units for each thread, sum 1: the first has the most, the others equal parts of the rest, so
    that mean / max is `load_balance`."""
    most = 1 / (threads * load_balance)
    return (most,) + ((1 - most) / (threads - 1),) * (threads - 1) if threads > 1 else (1.0,)


def spinning(wish: Prescription) -> dict[str, float]:
    """What waiting for the schedule is planned to add to the sums, s by column: all threads of it spin."""
    wall = wish.pace * wish.run_time_s
    return {"wall_s": wall, **dict.fromkeys(("cpu_s", "thread_s", "serial_s"), wall * wish.threads)} if wall else {}


@dataclass(frozen=True, slots=True)
class Program:
    prescription: Prescription
    parts: tuple[Part, ...]
    uniformity: Uniformity
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # of its kernels
    own_metrics: Metrics = field(default_factory=dict)  # users' that the prescription names
    calibrations: int = 0
    notes: tuple[str, ...] = ()  # what fell short, one line each

    @property
    def calls(self) -> int:
        return sum(p.calls for p in self.parts)

    @property
    def kernels(self) -> tuple[str, ...]:
        return tuple(sorted({p.variant.kernel for p in self.parts}))

    @property
    def memory_bytes(self) -> int:
        return sum(p.variant.volume_bytes for p in self.parts)

    @property
    def shares(self) -> tuple[float, ...]:
        return shares(self.prescription.threads, self.prescription.load_balance)

    def table(self) -> Table:
        """Columns of its variants, wall times as with its shares."""
        return Table([p.variant for p in self.parts], self.prescription.load_balance)

    def totals(self) -> dict[str, float]:
        """Planned sums over all calls, by column."""
        n = np.array([p.calls for p in self.parts], dtype=np.float64)
        waits = spinning(self.prescription)
        return {k: float(v @ n) + waits.get(k, 0.0) for k, v in self.table().columns.items()}

    def planned(self) -> dict[str, float]:
        """`run_time_s` and every metric that its sums give, from those sums."""
        totals = self.totals()
        out = {"run_time_s": totals["wall_s"]}
        for name, m in all_metrics(self.own_metrics).items():
            if m.names <= totals.keys() and name != "load_balance":
                value = float(m.of({k: np.array([totals[k]]) for k in m.names})[0])
                if math.isfinite(value):
                    out[name] = value
        return out

    def errors(self) -> dict[str, float]:
        """Planned over asked, less 1, of run time and prescribed metrics; the planned value where 0 is asked."""
        planned = self.planned()
        asked = {"run_time_s": self.prescription.run_time_s, **self.prescription.metrics}
        return {k: planned.get(k, math.nan) / v - 1 if v else planned.get(k, math.nan) for k, v in asked.items()}


def _json(program: Program) -> dict[str, Any]:
    planned = program.planned()
    asked = program.prescription.metrics
    u = program.uniformity
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": program.machine,
        "kernels": {k: program.versions[k] for k in program.kernels if k in program.versions},
        "calibrations": program.calibrations,
        "prescription": program.prescription.to_json(),
        "metrics": {k: {"formula": m.formula, "unit": m.unit} for k, m in sorted(program.own_metrics.items())},
        "shares": list(program.shares),
        "variants": [{**p.variant.to_json(), "calls": p.calls, "phase": p.phase} for p in program.parts],
        "planned": {
            "calls": program.calls,
            "run_time_s": planned["run_time_s"],
            "kernels": len(program.kernels),
            "memory_bytes": program.memory_bytes,
            "metrics": {
                k: {"planned": v, **({"asked": asked[k]} if k in asked else {})}
                for k, v in planned.items()
                if k != "run_time_s"
            },
            "worst_deviation": dict(u.worst_deviation),
            "window_s": u.window_s,
            "window_cov": dict(u.window_cov),
        },
        "notes": list(program.notes),
    }


def dump_program(program: Program) -> str:
    """The text of the file: one line a variant, so that programs can be compared line by line."""
    out = _json(program)

    def flat(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = []
    for key, value in out.items():
        if key == "variants":
            lines.append('"variants": [\n  ' + ",\n  ".join(flat(v) for v in value) + "\n ]")
        else:
            lines.append(f"{flat(key)}: {flat(value)}")
    return "{" + ",\n ".join(lines) + "}\n"


def read_program(path: Path) -> Program:
    """A program from its file.

    Raises:
        MeshmarkError: it cannot be read, or as `parse_program`.
    """
    return parse_program(read_text(path, MAX_PROGRAM_BYTES), str(path))


def parse_program(data: str, where: str) -> Program:
    """A program from the text of its file.

    Args:
        where: what errors call the file.

    Raises:
        MeshmarkError: one line that names the field, what was found and what is allowed.
    """
    file = checked(ProgramFile, _json_of(data, where), where, MeshmarkError)
    parts = tuple(row.part() for row in file.variants)
    names: set[str] = set()
    for i, p in enumerate(parts):
        if p.variant.name in names:
            raise MeshmarkError(f"{where}: variants[{i}]: {p.variant.name} is there twice")
        names.add(p.variant.name)
    counters = {c for p in parts for c in p.variant.counters}
    known = (*COLUMNS, *sorted(counters))
    own = {name: metric(name, m.formula, m.unit, known) for name, m in file.metrics.items()}
    wish = parse_prescription(file.prescription, f"{where}: prescription", all_metrics(own))
    for i, p in enumerate(parts):
        if p.variant.threads != wish.threads:
            raise MeshmarkError(
                f"{where}: variants[{i}].threads: found {p.variant.threads}; the program has {wish.threads}"
            )
        if p.variant.team and wish.load_balance < 1:
            raise MeshmarkError(
                f"{where}: variants[{i}]: the threads of {p.variant.kernel} work as a team; "
                f"load_balance = {wish.load_balance:g} needs others"
            )
    due = shares(wish.threads, wish.load_balance)
    if len(file.shares) != len(due) or any(abs(s - d) > 1e-9 for s, d in zip(file.shares, due, strict=True)):
        raise MeshmarkError(
            f"{where}: shares: found {found(list(file.shares))}; threads and load_balance give {list(due[:3])}"
        )

    planned = file.planned
    program = Program(
        prescription=wish,
        parts=parts,
        uniformity=Uniformity(planned.worst_deviation, planned.window_s, planned.window_cov),
        machine=file.machine,
        versions=file.kernels,
        own_metrics=own,
        calibrations=file.calibrations,
        notes=file.notes,
    )
    gives = program.totals()["wall_s"]
    if abs(planned.run_time_s - gives) > 1e-6 * gives:
        raise MeshmarkError(f"{where}: planned.run_time_s: found {planned.run_time_s:g}; its variants give {gives:g}")
    return program


def _json_of(data: str, where: str) -> dict[str, Any]:
    """The text of a program's file, of this format and version."""

    def refuse(word: str) -> float:
        raise ValueError(f"{word} is no number")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        out = dict(pairs)
        if len(out) != len(pairs):
            raise ValueError("a key is there twice")
        return out

    try:
        raw = json.loads(data, parse_constant=refuse, object_pairs_hook=once)
    except (ValueError, RecursionError) as why:
        raise MeshmarkError(f"{where}: not JSON: {quoted(why)}") from why
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise MeshmarkError(f"{where}: not a program of Meshmark's: format is not {FORMAT!r}")
    if raw.get("version") != VERSION:
        raise MeshmarkError(f"{where}: version: found {found(raw.get('version'))}; this Meshmark reads {VERSION}")
    return raw
