"""Base data: what one call of every variant of a kernel does (exact counts) and takes (measured).

A variant is a load kernel with a volume, a stride and a number of threads. One call of it is `window` units of it,
so that every call lasts 0.05 to 1 ms whatever the volume.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from meshmark.errors import MeshmarkError, UsageError, quoted

Vector = NDArray[np.float64]

LEVELS: Final = ("L1", "L2", "L3", "memory")
# Measured, of one call, with what each is.
TIMES: Final = {"wall_s": "wall time", "cpu_s": "CPU time", "system_s": "CPU time in the operating-system kernel"}
# Computed from times and counts, of one call.
DERIVED: Final = {
    "memory_read_bytes": "line_read_bytes where the volume exceeds the last-level cache, else 0",
    "memory_write_bytes": "line_write_bytes where the volume exceeds the last-level cache, else 0",
    "cache_bytes": "line_read_bytes + line_write_bytes where the second or third cache holds the volume, else 0",
    "thread_s": "threads x wall_s",
    "serial_s": "wall time of the same units on one thread; NaN without calibration data",
}
# Of conditions of records that are counters. Which a run has depends on the machine and on the rights of its user.
COUNTER_PREFIX: Final = "counter_"

_NAME_LENGTH: Final = 120
_MOST_THREADS: Final = 1 << 16
MAX_PROGRAM_BYTES: Final = 64 << 20  # of a file of variants, which is what a program is


def _count() -> float:
    """A field that `meshmark-load describe` publishes among its counts, with unit and meaning."""
    found: float = field(default=0.0, metadata={"count": True})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One variant; times and counts are of one call, over all its threads together."""

    name: str  # unique, such as triad/128MiB/s1/t1
    kernel: str
    kind: str  # stream, irregular, dense, …; `idle` and `system` are used only where asked for
    volume_bytes: int  # of all its arrays
    stride: int = 1  # in elements
    threads: int = 1
    window: int = 1  # units of the load kernel in one call
    team: bool = False  # its threads work on each unit together, so they cannot have uneven shares
    served_by: str = "memory"  # the level that holds the volume
    wall_s: float
    cpu_s: float  # sum of the threads
    system_s: float = 0.0
    wall_interval_s: tuple[float, float] | None = None
    serial_s: float | None = None  # of the same units on one thread; None: looked up among the other variants
    flops: float = _count()
    int_ops: float = _count()
    load_bytes: float = _count()
    store_bytes: float = _count()
    line_read_bytes: float = _count()
    line_write_bytes: float = _count()
    io_read_bytes: float = _count()
    io_write_bytes: float = _count()
    system_calls: float = _count()
    counters: Mapping[str, float] = field(default_factory=dict)  # by name, without prefix; where there are any

    def to_json(self) -> dict[str, Any]:
        """Plain values in a fixed order; what is as by default is left out."""
        out: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name == "counters":
                if value:
                    out["counters"] = {k: float(value[k]) for k in sorted(value)}
            elif f.name == "wall_interval_s":
                if value is not None:
                    out[f.name] = list(value)
            elif f.name in COUNTS:
                if value:
                    out[f.name] = int(value) if float(value).is_integer() else float(value)
            elif f.default is dataclasses.MISSING or value != f.default:
                out[f.name] = value
        return out


COUNTS: Final = tuple(f.name for f in dataclasses.fields(Variant) if f.metadata.get("count"))
COLUMNS: Final = (*TIMES, *COUNTS, *DERIVED)


def served_by(volume_bytes: int, l1_bytes: int, l2_bytes: int, l3_bytes: int, threads: int = 1) -> str:
    """The first level that holds a volume.

    Args:
        volume_bytes: of all arrays, cut evenly among the threads.
        l1_bytes, l2_bytes: of one core, 0 where there is none; each thread brings its own.
        l3_bytes: shared by all threads, 0 where there is none.
    """
    for level, size in (("L1", l1_bytes * threads), ("L2", l2_bytes * threads), ("L3", l3_bytes)):
        if volume_bytes <= size:
            return level
    return "memory"


def found(value: object) -> str:
    """What was found in a file, for a message: as Python writes it, in one line of at most 60 characters."""
    try:
        said = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or brackets without end
        said = f"a value of type {type(value).__name__}, too long to be shown"
    return quoted(said, 60)


def real(value: object, what: str, low: float, high: float) -> float:
    """A finite number within [low, high]; MeshmarkError where it is not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise MeshmarkError(f"{what}: found {found(value)}; allowed is a number from {low:g} to {high:g}")
    return float(value)


def whole(value: object, what: str, low: int, high: int) -> int:
    """An integer within [low, high]; MeshmarkError where it is not."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MeshmarkError(f"{what}: found {found(value)}; allowed is an integer from {low} to {high}")
    return value


def text(value: object, what: str, most: int = _NAME_LENGTH, least: int = 1) -> str:
    """Printable text of limited length; MeshmarkError where it is not."""
    if not isinstance(value, str) or not least <= len(value) <= most or not value.isprintable():
        raise MeshmarkError(f"{what}: found {found(value)}; allowed is printable text of {least} to {most} characters")
    return value


def variant_from_json(raw: object, what: str) -> Variant:
    """A variant from what `to_json` wrote, or anyone else.

    Raises:
        MeshmarkError: one line that names the field, what was found and what is allowed.
    """
    if not isinstance(raw, dict):
        raise MeshmarkError(f"{what}: found {found(raw)}; allowed is an object")
    known = {f.name: f for f in dataclasses.fields(Variant)}
    for key in raw:
        if key not in known:
            raise MeshmarkError(f"{what}: unknown field {found(key)}; allowed are {', '.join(known)}")
    for key in ("name", "kernel", "kind", "volume_bytes", "wall_s", "cpu_s"):
        if key not in raw:
            raise MeshmarkError(f"{what}: has no {key}")
    kept: dict[str, Any] = {}
    for key, value in raw.items():
        at = f"{what}.{key}"
        if key in ("name", "kernel", "kind"):
            kept[key] = text(value, at)
        elif key == "served_by":
            if value not in LEVELS:
                raise MeshmarkError(f"{at}: found {found(value)}; allowed are {', '.join(LEVELS)}")
            kept[key] = value
        elif key == "team":
            if not isinstance(value, bool):
                raise MeshmarkError(f"{at}: found {found(value)}; allowed are true and false")
            kept[key] = value
        elif key == "volume_bytes":
            kept[key] = whole(value, at, 0, 1 << 50)
        elif key == "threads":
            kept[key] = whole(value, at, 1, _MOST_THREADS)
        elif key in ("stride", "window"):
            kept[key] = whole(value, at, 1, 1 << 50)
        elif key == "wall_interval_s":
            if not isinstance(value, list) or len(value) != 2:
                raise MeshmarkError(f"{at}: found {found(value)}; allowed are two numbers")
            kept[key] = tuple(real(v, at, 0, 1e6) for v in value)
        elif key == "counters":
            if not isinstance(value, dict) or len(value) > 1000:
                raise MeshmarkError(f"{at}: found {found(value)}; allowed is an object of numbers")
            kept[key] = {text(k, at): real(v, f"{at}.{k}", 0, 1e18) for k, v in value.items()}
        elif key in ("wall_s", "serial_s"):
            kept[key] = real(value, at, 1e-9, 1e6)
        elif key in TIMES:
            kept[key] = real(value, at, 0, 1e9)
        else:
            kept[key] = real(value, at, 0, 1e18)
    return Variant(**kept)


class Table:
    """Columns of many variants: one number of each variant, of one call.

    `columns[name]` has shape (variants,), in the unit that the name ends with. A counter that a variant lacks is NaN.

    Raises:
        UsageError: two variants have one name, or a time is no time.
    """

    def __init__(self, variants: Sequence[Variant], load_balance: float = 1.0) -> None:
        """`load_balance`: mean over largest share of the threads. The call lasts as long as its longest thread, so a
        wall time measured with even shares is divided by it."""
        self.variants = tuple(variants)
        names: set[str] = set()
        for v in self.variants:
            if v.name in names:
                raise UsageError(f"base data: two variants are named {v.name!r}")
            names.add(v.name)
            if not (math.isfinite(v.wall_s) and v.wall_s > 0 and math.isfinite(v.cpu_s) and v.cpu_s >= 0):
                raise UsageError(
                    f"base data: {v.name}: wall_s = {v.wall_s}, cpu_s = {v.cpu_s}; times are finite and > 0"
                )
        own = (*TIMES, *COUNTS)
        rows = [[getattr(v, c) for c in own] for v in self.variants]
        numbers = np.array(rows, dtype=np.float64).reshape(len(rows), len(own))
        c: dict[str, Vector] = {name: numbers[:, i].copy() for i, name in enumerate(own)}
        c["wall_s"] /= load_balance
        from_memory = np.array([v.served_by == "memory" for v in self.variants], dtype=bool)
        from_cache = np.array([v.served_by in ("L2", "L3") for v in self.variants], dtype=bool)
        c["memory_read_bytes"] = np.where(from_memory, c["line_read_bytes"], 0.0)
        c["memory_write_bytes"] = np.where(from_memory, c["line_write_bytes"], 0.0)
        c["cache_bytes"] = np.where(from_cache, c["line_read_bytes"] + c["line_write_bytes"], 0.0)
        c["thread_s"] = c["wall_s"] * np.array([v.threads for v in self.variants], dtype=np.float64)
        alone = {(v.kernel, v.volume_bytes, v.stride): v.wall_s / v.window for v in self.variants if v.threads == 1}
        looked_up = [alone.get((v.kernel, v.volume_bytes, v.stride), math.nan) * v.window for v in self.variants]
        c["serial_s"] = np.array(
            [other if v.serial_s is None else v.serial_s for v, other in zip(self.variants, looked_up, strict=True)],
            dtype=np.float64,
        )
        for name in sorted({k for v in self.variants for k in v.counters}):
            if name in COLUMNS:
                raise UsageError(f"base data: a counter is named {name}, which is a count of Meshmark's")
            c[name] = np.array([v.counters.get(name, math.nan) for v in self.variants], dtype=np.float64)
        self.columns = c
        self.volume_bytes: Vector = np.array([v.volume_bytes for v in self.variants], dtype=np.float64)
        kernels = sorted({v.kernel for v in self.variants})
        at = {k: i for i, k in enumerate(kernels)}
        self.kernels = kernels
        self.kernel_of: NDArray[np.intp] = np.array([at[v.kernel] for v in self.variants], dtype=np.intp)

    def __len__(self) -> int:
        return len(self.variants)

    def only(self, which: NDArray[np.intp]) -> Table:
        """The table of some of the variants, by index."""
        part = object.__new__(Table)
        part.variants = tuple(self.variants[i] for i in which)
        part.columns = {k: v[which] for k, v in self.columns.items()}
        part.volume_bytes = self.volume_bytes[which]
        part.kernels = self.kernels
        part.kernel_of = self.kernel_of[which]
        return part
