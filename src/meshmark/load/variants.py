"""Base data: what one call of every variant of a kernel does (exact counts) and takes (measured).

A variant is a load kernel with a volume, a stride and a number of threads. One call of it is `window` units of it,
so that every call lasts 0.05 to 1 ms whatever the volume.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from meshmark.errors import UsageError
from meshmark.values.inputs import LIST, Input, Label, OneOf

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

MAX_PROGRAM_BYTES: Final = 64 << 20  # of a file of variants, which is what a program is


Time = Annotated[float, Field(ge=1e-9, le=1e6)]
Time0 = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[float, Field(ge=0, le=1e18)]  # `meshmark-load describe` has its unit and meaning
Volume = Annotated[int, Field(ge=0, le=1 << 50)]
Amount = Annotated[int, Field(ge=1, le=1 << 50)]
End = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Input):
    """One variant; times and counts are of one call, over all its threads together."""

    name: Label  # unique, such as triad/128MiB/s1/t1
    kernel: Label
    kind: Label  # stream, irregular, dense, …; `idle` and `system` are used only where asked for
    volume_bytes: Volume  # of all its arrays
    stride: Amount = 1  # in elements
    threads: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    window: Amount = 1  # units of the load kernel in one call
    team: bool = False  # its threads work on each unit together, so they cannot have uneven shares
    served_by: Annotated[str, OneOf(LEVELS)] = "memory"  # the level that holds the volume
    wall_s: Time
    cpu_s: Time0  # sum of the threads
    system_s: Time0 = 0.0
    wall_interval_s: Annotated[tuple[End, End], LIST, Field(description="two numbers")] | None = None
    serial_s: Time | None = None  # of the same units on one thread; None: looked up among the other variants
    flops: Count = 0.0
    int_ops: Count = 0.0
    load_bytes: Count = 0.0
    store_bytes: Count = 0.0
    line_read_bytes: Count = 0.0
    line_write_bytes: Count = 0.0
    io_read_bytes: Count = 0.0
    io_write_bytes: Count = 0.0
    system_calls: Count = 0.0
    # By name, without prefix; where there are any.
    counters: Annotated[Mapping[Label, Count], Field(max_length=1000)] = field(default_factory=dict)

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


COUNTS: Final = tuple(f.name for f in dataclasses.fields(Variant) if f.type == "Count")
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
