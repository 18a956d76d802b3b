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
from typing import Any, Final

import numpy as np

from meshmark.errors import MeshmarkError, quoted
from meshmark.load.metrics import Metric, Metrics, all_metrics, metric
from meshmark.load.order import Uniformity
from meshmark.load.prescription import Prescription, parse_prescription
from meshmark.load.variants import (
    COLUMNS,
    MAX_PROGRAM_BYTES,
    Table,
    Variant,
    found,
    real,
    text,
    variant_from_json,
    whole,
)
from meshmark.store.files import read_text

FORMAT: Final = "meshmark load program"
VERSION: Final = 1
_MOST_CALLS: Final = 1 << 29  # of one variant: up to there times are exact (order.py)
_MOST_VARIANTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """A variant and its calls."""

    variant: Variant
    calls: int
    phase: float


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
    raw = _checked_json(data, where)
    parts = _parts(raw["variants"], where)
    counters = {c for p in parts for c in p.variant.counters}
    own: dict[str, Metric] = {}
    for name, table in raw["metrics"].items():
        at = f"{where}: metrics.{text(name, f'{where}: metrics', 60)}"
        if not isinstance(table, dict) or table.keys() != {"formula", "unit"}:
            raise MeshmarkError(f"{at}: found {found(table)}; allowed are formula and unit")
        own[name] = metric(
            name,
            text(table["formula"], f"{at}.formula", 500),
            text(table["unit"], f"{at}.unit", 30, 0),
            (*COLUMNS, *sorted(counters)),
        )
    wish = parse_prescription(raw["prescription"], f"{where}: prescription", all_metrics(own))
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
    if len(raw["shares"]) != len(due) or any(
        abs(real(s, f"{where}: shares", 0, 1) - d) > 1e-9 for s, d in zip(raw["shares"], due, strict=True)
    ):
        raise MeshmarkError(
            f"{where}: shares: found {found(raw['shares'])}; threads and load_balance give {list(due[:3])}"
        )

    program = Program(
        prescription=wish,
        parts=parts,
        uniformity=_uniformity(raw["planned"], f"{where}: planned"),
        machine=text(raw["machine"], f"{where}: machine", least=0),
        versions={
            text(k, f"{where}: kernels"): text(v, f"{where}: kernels.{k[:60]}") for k, v in raw["kernels"].items()
        },
        own_metrics=own,
        calibrations=whole(raw["calibrations"], f"{where}: calibrations", 0, 1_000_000),
        notes=tuple(text(n, f"{where}: notes", 1000) for n in raw["notes"]),
    )
    said = real(raw["planned"].get("run_time_s"), f"{where}: planned.run_time_s", 0, 1e12)
    gives = program.totals()["wall_s"]
    if abs(said - gives) > 1e-6 * gives:
        raise MeshmarkError(f"{where}: planned.run_time_s: found {said:g}; its variants give {gives:g}")
    return program


def _checked_json(data: str, where: str) -> dict[str, Any]:
    """The text of a program's file as JSON, with exactly the known fields, each of its type."""

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
    known = (
        "format",
        "version",
        "machine",
        "kernels",
        "calibrations",
        "prescription",
        "metrics",
        "shares",
        "variants",
        "planned",
        "notes",
    )
    for key in known:
        if key not in raw:
            raise MeshmarkError(f"{where}: has no {key}")
    for key in raw:
        if key not in known:
            raise MeshmarkError(f"{where}: unknown field {key[:60]!r}; allowed are {', '.join(known)}")
    for key in ("kernels", "prescription", "metrics", "planned"):
        if not isinstance(raw[key], dict):
            raise MeshmarkError(f"{where}: {key}: found {found(raw[key])}; allowed is an object")
    for key in ("shares", "variants", "notes"):
        if not isinstance(raw[key], list):
            raise MeshmarkError(f"{where}: {key}: found {found(raw[key])}; allowed is a list")
    return raw


def _parts(raw: list[Any], where: str) -> tuple[Part, ...]:
    if not 0 < len(raw) <= _MOST_VARIANTS:
        raise MeshmarkError(f"{where}: variants: found {len(raw)}; allowed are 1 to {_MOST_VARIANTS}")
    parts: list[Part] = []
    names: set[str] = set()
    for i, entry in enumerate(raw):
        at = f"{where}: variants[{i}]"
        if not isinstance(entry, dict):
            raise MeshmarkError(f"{at}: found {found(entry)}; allowed is an object")
        rest = dict(entry)
        calls = whole(rest.pop("calls", None), f"{at}.calls", 1, _MOST_CALLS)
        phase = real(rest.pop("phase", None), f"{at}.phase", 0, 1)
        if phase >= 1 or phase * (1 << 24) % 1:
            raise MeshmarkError(f"{at}.phase: found {phase!r}; allowed are multiples of 2^-24 below 1")
        v = variant_from_json(rest, at)
        if v.name in names:
            raise MeshmarkError(f"{at}: {v.name} is there twice")
        names.add(v.name)
        parts.append(Part(v, calls, phase))
    return tuple(parts)


def _uniformity(raw: Mapping[str, Any], where: str) -> Uniformity:
    tables: list[dict[str, float]] = []
    for key in ("worst_deviation", "window_cov"):
        table = raw.get(key)
        if not isinstance(table, dict):
            raise MeshmarkError(f"{where}.{key}: found {found(table)}; allowed is an object of numbers")
        tables.append({text(k, f"{where}.{key}"): real(v, f"{where}.{key}.{k[:60]}", 0, 1e9) for k, v in table.items()})
    return Uniformity(tables[0], real(raw.get("window_s"), f"{where}.window_s", 0, 1e6), tables[1])
