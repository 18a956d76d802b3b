"""Define calibration data: the exact counts and the measured times of one call of each variant of a load kernel.

A variant is a load kernel with a volume, a stride and a number of threads. One call executes `window` units, so that
every call lasts 0.05 to 1 ms for any volume.
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
# Measured times of one call, with descriptions.
TIMES: Final = {"wall_s": "wall time", "cpu_s": "CPU time", "system_s": "CPU time in the Linux kernel"}
# Values that are computed from the times and counts of one call.
DERIVED: Final = {
    "memory_read_bytes": "line_read_bytes if the volume exceeds the last-level cache, else 0",
    "memory_write_bytes": "line_write_bytes if the volume exceeds the last-level cache, else 0",
    "cache_bytes": "line_read_bytes + line_write_bytes if the L2 or L3 cache holds the volume, else 0",
    "thread_s": "threads x wall_s",
    "serial_s": "wall time of the same units on one thread; NaN without calibration data",
}
# Prefix of record conditions that are counters; a run has the counters that the machine and the user's permissions
# allow.
COUNTER_PREFIX: Final = "counter_"

MAX_PROGRAM_BYTES: Final = 64 << 20  # size of a program's file


Time = Annotated[float, Field(ge=1e-9, le=1e6)]
Time0 = Annotated[float, Field(ge=0, le=1e9)]
Count = Annotated[float, Field(ge=0, le=1e18)]  # `meshmark-load describe` gives unit and meaning
Volume = Annotated[int, Field(ge=0, le=1 << 50)]
Amount = Annotated[int, Field(ge=1, le=1 << 50)]
End = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Input):
    """One variant; times and counts describe one call, over all threads."""

    name: Label  # unique, such as triad/128MiB/s1/t1
    kernel: Label
    kind: Label  # stream, irregular, dense, …; `idle` and `system` are used only on request
    volume_bytes: Volume  # bytes of all arrays
    stride: Amount = 1  # in elements
    threads: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    window: Amount = 1  # units of the load kernel in one call
    team: bool = False  # threads share each unit, so their shares must be even
    served_by: Annotated[str, OneOf(LEVELS)] = "memory"  # the level that holds the volume
    wall_s: Time
    cpu_s: Time0  # sum over threads
    system_s: Time0 = 0.0
    wall_interval_s: Annotated[tuple[End, End], LIST, Field(description="two numbers")] | None = None
    serial_s: Time | None = None  # wall time of the same units on one thread; None: looked up in the other variants
    flops: Count = 0.0
    int_ops: Count = 0.0
    load_bytes: Count = 0.0
    store_bytes: Count = 0.0
    line_read_bytes: Count = 0.0
    line_write_bytes: Count = 0.0
    io_read_bytes: Count = 0.0
    io_write_bytes: Count = 0.0
    system_calls: Count = 0.0
    # Events by counter name without prefix.
    counters: Annotated[Mapping[Label, Count], Field(max_length=1000)] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values in a fixed order, without defaults."""
        content: dict[str, Any] = {}
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.name == "counters":
                if value:
                    content["counters"] = {k: float(value[k]) for k in sorted(value)}
            elif f.name == "wall_interval_s":
                if value is not None:
                    content[f.name] = list(value)
            elif f.name in COUNTS:
                if value:
                    content[f.name] = int(value) if float(value).is_integer() else float(value)
            elif f.default is dataclasses.MISSING or value != f.default:
                content[f.name] = value
        return content


COUNTS: Final = tuple(f.name for f in dataclasses.fields(Variant) if f.type == "Count")
COLUMNS: Final = (*TIMES, *COUNTS, *DERIVED)


def served_by(volume_bytes: int, l1_bytes: int, l2_bytes: int, l3_bytes: int, threads: int = 1) -> str:
    """Return the first level that holds a volume.

    Args:
        volume_bytes: size of all arrays, which is divided evenly among the threads.
        l1_bytes: size per core, 0 without such a cache; each thread adds the cache of its core.
        l2_bytes: the same for the second level.
        l3_bytes: size of the cache that all threads share, 0 without such a cache.
        threads: number of threads.
    """
    for level, size in (("L1", l1_bytes * threads), ("L2", l2_bytes * threads), ("L3", l3_bytes)):
        if volume_bytes <= size:
            return level
    return "memory"


class VariantColumns:
    """Columns over variants: one number per variant, for one call.

    `columns[name]` has shape (variants,), in the unit at the end of the name. A counter that a variant lacks is NaN.

    Raises:
        UsageError: two variants have the same name, or a time is not positive and finite.
    """

    def __init__(self, variants: Sequence[Variant], load_balance: float = 1.0) -> None:
        """Compute the columns of the variants.

        Args:
            variants: the variants, each with another name.
            load_balance: mean share of the threads over the largest. A call lasts as long as its slowest thread, so
                wall times, which are measured with even shares, are divided by it.
        """
        self.variants = tuple(variants)
        names: set[str] = set()
        for v in self.variants:
            if v.name in names:
                raise UsageError(f"calibration data: two variants are named {v.name!r}")
            names.add(v.name)
            if not (math.isfinite(v.wall_s) and v.wall_s > 0 and math.isfinite(v.cpu_s) and v.cpu_s >= 0):
                raise UsageError(
                    f"calibration data: {v.name}: wall_s = {v.wall_s}, cpu_s = {v.cpu_s}; allowed: finite times above 0"
                )
        input_columns = (*TIMES, *COUNTS)
        rows = [[getattr(v, c) for c in input_columns] for v in self.variants]
        numbers = np.array(rows, dtype=np.float64).reshape(len(rows), len(input_columns))
        c: dict[str, Vector] = {name: numbers[:, i].copy() for i, name in enumerate(input_columns)}
        c["wall_s"] /= load_balance
        from_memory = np.array([v.served_by == "memory" for v in self.variants], dtype=bool)
        from_cache = np.array([v.served_by in ("L2", "L3") for v in self.variants], dtype=bool)
        c["memory_read_bytes"] = np.where(from_memory, c["line_read_bytes"], 0.0)
        c["memory_write_bytes"] = np.where(from_memory, c["line_write_bytes"], 0.0)
        c["cache_bytes"] = np.where(from_cache, c["line_read_bytes"] + c["line_write_bytes"], 0.0)
        c["thread_s"] = c["wall_s"] * np.array([v.threads for v in self.variants], dtype=np.float64)
        serial_unit_s = {
            (v.kernel, v.volume_bytes, v.stride): v.wall_s / v.window for v in self.variants if v.threads == 1
        }
        serial_times = [
            serial_unit_s.get((v.kernel, v.volume_bytes, v.stride), math.nan) * v.window for v in self.variants
        ]
        c["serial_s"] = np.array(
            [
                serial_s if v.serial_s is None else v.serial_s
                for v, serial_s in zip(self.variants, serial_times, strict=True)
            ],
            dtype=np.float64,
        )
        for name in sorted({k for v in self.variants for k in v.counters}):
            if name in COLUMNS:
                raise UsageError(f"calibration data: a counter is named {name}, like a column of Meshmark")
            c[name] = np.array([v.counters.get(name, math.nan) for v in self.variants], dtype=np.float64)
        self.columns = c
        self.volume_bytes: Vector = np.array([v.volume_bytes for v in self.variants], dtype=np.float64)
        kernels = sorted({v.kernel for v in self.variants})
        index_of = {k: i for i, k in enumerate(kernels)}
        self.kernels = kernels
        self.kernel_of: NDArray[np.intp] = np.array([index_of[v.kernel] for v in self.variants], dtype=np.intp)

    def __len__(self) -> int:
        return len(self.variants)

    def only(self, which: NDArray[np.intp]) -> VariantColumns:
        """Return the table of a subset of the variants, by index."""
        subset = object.__new__(VariantColumns)
        subset.variants = tuple(self.variants[i] for i in which)
        subset.columns = {k: v[which] for k, v in self.columns.items()}
        subset.volume_bytes = self.volume_bytes[which]
        subset.kernels = self.kernels
        subset.kernel_of = self.kernel_of[which]
        return subset
