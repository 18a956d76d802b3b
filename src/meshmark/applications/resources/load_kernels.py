"""Load kernels with their counts, for processes that run one of them. `meshmark-load` refuses wrong counts.

The kernels are in native/workloads/kernels: compute.cpp, integer.cpp, irregular.cpp and stream.cpp.
"""

from __future__ import annotations

from typing import Final

from meshmark.applications.resources.kernel_process import LINE_BYTES, KernelWork

CHASE_LOADS: Final = 32  # of a unit of pointer_chase
CHASE_UNIT_BYTES: Final = CHASE_LOADS * LINE_BYTES + 16
CHASE: Final = {
    "load_bytes": 264,
    "store_bytes": 8,
    "line_read_bytes": 34 * LINE_BYTES,
    "line_write_bytes": LINE_BYTES,
}
_CHASE_UNITS: Final = 500  # per call, which takes from 0.1 ms with a cache to a few ms with memory
_HORNER: Final = {"flops": 4 * 24 * (2 * 48 + 3.0)}
_HORNER_UNITS: Final = 1000
_SORT: Final = {
    "int_ops": 1711.0,
    "load_bytes": 16384.0,
    "store_bytes": 16384.0,
    "line_read_bytes": 4096.0,
    "line_write_bytes": 2048.0,
}
_SORT_UNITS: Final = 200
_SORT_BYTES: Final = 16 << 10
_ELEMENTS: Final = 64  # of an array in a unit of triad
_ARRAY_BYTES: Final = 8.0 * _ELEMENTS
_TRIAD: Final = {
    "flops": 2.0 * _ELEMENTS,
    "load_bytes": 2 * _ARRAY_BYTES,
    "store_bytes": _ARRAY_BYTES,
    "line_read_bytes": 3 * _ARRAY_BYTES,
    "line_write_bytes": _ARRAY_BYTES,
}
_TRIAD_UNITS: Final = 128  # per call, 0.26 MB
TRIAD_BYTES: Final = 4 * _ARRAY_BYTES  # that a unit reads and writes


def horner(name: str) -> KernelWork:
    """Return arithmetic in registers, for a process with this name."""
    return KernelWork(name=name, kernel="horner", unit=_HORNER, units=_HORNER_UNITS)


def comparison_sort(name: str) -> KernelWork:
    """Return integer arithmetic with branches in the first-level cache, for a process with this name."""
    return KernelWork(name=name, kernel="comparison_sort", volume_bytes=_SORT_BYTES, unit=_SORT, units=_SORT_UNITS)


def pointer_chase(name: str, bytes_: int) -> KernelWork:
    """Return loads of all lines of a memory in random order, one by one.

    Args:
        name: Name of the process.
        bytes_: Size of its memory in B.
    """
    return KernelWork(name=name, kernel="pointer_chase", volume_bytes=bytes_, unit=CHASE, units=_CHASE_UNITS)


def triad(name: str, bytes_: int, units_per_s: float = 0.0) -> KernelWork:
    """Return the triad of STREAM over a memory.

    Args:
        name: Name of the process.
        bytes_: Size of its memory in B.
        units_per_s: Its rate; 0 for as fast as possible.
    """
    return KernelWork(
        name=name,
        kernel="triad",
        volume_bytes=bytes_,
        unit=_TRIAD,
        units=_TRIAD_UNITS,
        calls_per_s=units_per_s / _TRIAD_UNITS,
    )
