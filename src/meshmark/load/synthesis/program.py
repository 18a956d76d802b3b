"""Read and write program files: the calls of each variant, their order, and the planned result.

One JSON object, byte-identical for the same input:

    {"format": "meshmark load program", "version": 1, "machine": "n042", "kernels": {"triad": "1"}, "calibrations": 0,
     "prescription": {"name": "traffic", "run_time_s": 100.0, "memory_gb_per_s": 2.14, "threads": 1, …},
     "metrics": {"my_metric": {"formula": "flops / cpu_s", "unit": "flop/s"}},
     "shares": [1.0],
     "variants": [{"name": "triad/128MiB/s1/t1", "kernel": "triad", …, "calls": 1200, "phase": 0.25}, …],
     "planned": {"calls": 250000, "run_time_s": 100.0003, "memory_gb_per_s": {"asked": 2.14, "planned": 2.14001}, …}}

`variants` holds the times and counts of one call from the calibration data (without zeros and defaults), so the file is
self-contained; times are for even shares. The order of variants determines the order of the calls, see `order.py`.
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
from meshmark.load.calibration.metrics import Metrics, MetricTable, all_metrics, metric
from meshmark.load.calibration.order import Uniformity
from meshmark.load.calibration.profile import TargetProfile, parse_profile
from meshmark.load.calibration.variants import COLUMNS, MAX_PROGRAM_BYTES, Variant, VariantColumns
from meshmark.store.files import read_text
from meshmark.values.inputs import LIST, PRINTABLE, Excerpt, Input, Label, Name, checked, fields_of, quoted_value

FORMAT: Final = "meshmark load program"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ProgramPart:
    """A variant with its number of calls and its phase."""

    variant: Variant
    calls: int
    phase: float


def _phase(value: float) -> float:
    if value * (1 << 24) % 1:
        raise ValueError("allowed: multiples of 2^-24 below 1")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTable(Variant):
    """The table of a variant in a program file, with its calls and its phase."""

    calls: Annotated[int, Field(ge=1, le=1 << 29)]  # the limit of exact times, see order.py
    phase: Annotated[float, Field(ge=0, lt=1), AfterValidator(_phase)]

    def part(self) -> ProgramPart:
        """Return the part of a program that the table describes."""
        variant_fields = fields_of(self)
        calls, phase = variant_fields.pop("calls"), variant_fields.pop("phase")
        return ProgramPart(Variant(**variant_fields), calls, phase)


Share = Annotated[float, Field(ge=0, le=1)]
Deviations = Mapping[Label, Annotated[float, Field(ge=0, le=1e9)]]


@dataclass(frozen=True, slots=True)
class PlannedTable(Excerpt):
    """The values that cannot be computed from the variants, and the run time, which is compared with the variants."""

    run_time_s: Annotated[float, Field(ge=0, le=1e12)]
    worst_deviation: Deviations
    window_s: Annotated[float, Field(ge=0, le=1e6)]
    window_cov: Deviations


@dataclass(frozen=True, slots=True)
class ProgramFile(Input):
    """The content of a program file, before names and sums are checked."""

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
    """Return the share of each thread in the units of a call.

    The first thread has the largest share, and the others divide the rest evenly, so that mean / max is
    `load_balance`.
    """
    largest = 1 / (threads * load_balance)
    return (largest,) + ((1 - largest) / (threads - 1),) * (threads - 1) if threads > 1 else (1.0,)


def spinning(profile: TargetProfile) -> dict[str, float]:
    """Return the planned time in s that all threads spin for the schedule, by column; empty without a schedule."""
    wall = profile.pace * profile.run_time_s
    return {"wall_s": wall, **dict.fromkeys(("cpu_s", "thread_s", "serial_s"), wall * profile.threads)} if wall else {}


@dataclass(frozen=True, slots=True)
class SyntheticProgram:
    """A program that calls load kernels in a fixed order to meet a target profile."""

    profile: TargetProfile
    parts: tuple[ProgramPart, ...]
    uniformity: Uniformity
    machine: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)  # versions of the load kernels, by name
    own_metrics: Metrics = field(default_factory=dict)  # the user's metrics that the profile contains
    calibrations: int = 0
    notes: tuple[str, ...] = ()  # deviations from the profile, one line each

    @property
    def calls(self) -> int:
        """Return the number of calls of all variants."""
        return sum(p.calls for p in self.parts)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the names of the load kernels, sorted and unique."""
        return tuple(sorted({p.variant.kernel for p in self.parts}))

    @property
    def memory_bytes(self) -> int:
        """Return the size of the arrays of all variants in B."""
        return sum(p.variant.volume_bytes for p in self.parts)

    @property
    def shares(self) -> tuple[float, ...]:
        """Return the share of each thread in the work."""
        return shares(self.profile.threads, self.profile.load_balance)

    def table(self) -> VariantColumns:
        """Return the columns of the variants, with wall times for the shares of this program."""
        return VariantColumns([p.variant for p in self.parts], self.profile.load_balance)

    def totals(self) -> dict[str, float]:
        """Return planned sums over all calls, by column."""
        calls = np.array([p.calls for p in self.parts], dtype=np.float64)
        spinning_s = spinning(self.profile)
        return {k: float(v @ calls) + spinning_s.get(k, 0.0) for k, v in self.table().columns.items()}

    def planned(self) -> dict[str, float]:
        """Return `run_time_s` and every metric that can be computed from the totals."""
        totals = self.totals()
        values = {"run_time_s": totals["wall_s"]}
        for name, m in all_metrics(self.own_metrics).items():
            if m.names <= totals.keys() and name != "load_balance":
                value = float(m.evaluate({k: np.array([totals[k]]) for k in m.names})[0])
                if math.isfinite(value):
                    values[name] = value
        return values

    def errors(self) -> dict[str, float]:
        """Return relative errors of the planned run time and metrics; the planned value itself if the target is 0."""
        values = self.planned()
        targets = {"run_time_s": self.profile.run_time_s, **self.profile.metrics}
        return {k: values.get(k, math.nan) / v - 1 if v else values.get(k, math.nan) for k, v in targets.items()}


def _json(program: SyntheticProgram) -> dict[str, Any]:
    planned = program.planned()
    targets = program.profile.metrics
    uniformity = program.uniformity
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": program.machine,
        "kernels": {k: program.versions[k] for k in program.kernels if k in program.versions},
        "calibrations": program.calibrations,
        "prescription": program.profile.to_json(),
        "metrics": {k: {"formula": m.formula, "unit": m.unit} for k, m in sorted(program.own_metrics.items())},
        "shares": list(program.shares),
        "variants": [{**p.variant.to_json(), "calls": p.calls, "phase": p.phase} for p in program.parts],
        "planned": {
            "calls": program.calls,
            "run_time_s": planned["run_time_s"],
            "kernels": len(program.kernels),
            "memory_bytes": program.memory_bytes,
            "metrics": {
                k: {"planned": v, **({"asked": targets[k]} if k in targets else {})}
                for k, v in planned.items()
                if k != "run_time_s"
            },
            "worst_deviation": dict(uniformity.worst_deviation),
            "window_s": uniformity.window_s,
            "window_cov": dict(uniformity.window_cov),
        },
        "notes": list(program.notes),
    }


def dump_program(program: SyntheticProgram) -> str:
    """Return the text of the file, one line per variant, so that programs can be compared with diff."""
    content = _json(program)

    def flat(value: object) -> str:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)

    lines = []
    for key, value in content.items():
        if key == "variants":
            lines.append('"variants": [\n  ' + ",\n  ".join(flat(v) for v in value) + "\n ]")
        else:
            lines.append(f"{flat(key)}: {flat(value)}")
    return "{" + ",\n ".join(lines) + "}\n"


def read_program(path: Path) -> SyntheticProgram:
    """Return a program from its file.

    Raises:
        MeshmarkError: the file cannot be read, or `parse_program` refuses its text.
    """
    return parse_program(read_text(path, MAX_PROGRAM_BYTES), str(path))


def parse_program(data: str, where: str) -> SyntheticProgram:
    """Return a program from the text of its file.

    Args:
        data: the text.
        where: the name of the file in error messages.

    Raises:
        MeshmarkError: one line that names the field, what was found and what is allowed.
    """
    file = checked(ProgramFile, _json_of(data, where), where, MeshmarkError)
    parts = tuple(row.part() for row in file.variants)
    names: set[str] = set()
    for i, p in enumerate(parts):
        if p.variant.name in names:
            raise MeshmarkError(f"{where}: variants[{i}]: {p.variant.name} occurs twice")
        names.add(p.variant.name)
    counters = {c for p in parts for c in p.variant.counters}
    columns = (*COLUMNS, *sorted(counters))
    own_metrics = {name: metric(name, m.formula, m.unit, columns) for name, m in file.metrics.items()}
    profile = parse_profile(file.prescription, f"{where}: prescription", all_metrics(own_metrics))
    for i, p in enumerate(parts):
        if p.variant.threads != profile.threads:
            raise MeshmarkError(
                f"{where}: variants[{i}].threads: found {p.variant.threads}; the program has {profile.threads}"
            )
        if p.variant.team and profile.load_balance < 1:
            raise MeshmarkError(
                f"{where}: variants[{i}]: the threads of {p.variant.kernel} share each unit; "
                f"load_balance = {profile.load_balance:g} needs kernels whose threads do not"
            )
    expected = shares(profile.threads, profile.load_balance)
    if len(file.shares) != len(expected) or any(abs(s - e) > 1e-9 for s, e in zip(file.shares, expected, strict=True)):
        raise MeshmarkError(
            f"{where}: shares: found {quoted_value(list(file.shares))}; "
            f"threads and load_balance give {list(expected[:3])}"
        )

    planned_table = file.planned
    program = SyntheticProgram(
        profile=profile,
        parts=parts,
        uniformity=Uniformity(planned_table.worst_deviation, planned_table.window_s, planned_table.window_cov),
        machine=file.machine,
        versions=file.kernels,
        own_metrics=own_metrics,
        calibrations=file.calibrations,
        notes=file.notes,
    )
    total_s = program.totals()["wall_s"]
    if abs(planned_table.run_time_s - total_s) > 1e-6 * total_s:
        raise MeshmarkError(
            f"{where}: planned.run_time_s: found {planned_table.run_time_s:g}; its variants give {total_s:g}"
        )
    return program


def _json_of(data: str, where: str) -> dict[str, Any]:
    """Return the JSON object of a program's file, and check its format and version."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is not a number")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            raise ValueError("a key occurs twice")
        return content

    try:
        raw = json.loads(data, parse_constant=refuse, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise MeshmarkError(f"{where}: not JSON: {quoted(error)}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise MeshmarkError(f"{where}: not a program of Meshmark: format is not {FORMAT!r}")
    if raw.get("version") != VERSION:
        raise MeshmarkError(
            f"{where}: version: found {quoted_value(raw.get('version'))}; this Meshmark reads {VERSION}"
        )
    return raw
