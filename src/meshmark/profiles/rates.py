"""Measures the rates of load kernels on this machine, from registers to memory, for predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from meshmark.profiles.files import read_object
from meshmark.profiles.machines import VERSION, MachineRates
from meshmark.profiles.pressure import Kind, NeighbourPressure, running
from meshmark.profiles.profile import KernelRate
from meshmark.profiles.responses import measured_rate
from meshmark.values.inputs import checked

_SMALLEST: Final = 16 << 10
_LARGEST: Final = 1 << 30
_OVER_CACHE: Final = 4  # largest footprint as a multiple of the last-level cache


def footprints(last_bytes: int) -> list[int]:
    """Return the footprints of a process in B: powers of 2 up to four times the last-level cache, at most 1 GiB."""
    largest = min(max(_OVER_CACHE * last_bytes, 256 << 20), _LARGEST)
    return [1 << exponent for exponent in range(_SMALLEST.bit_length() - 1, largest.bit_length())]


def measure_rates(
    cpus: Sequence[int], last_bytes: int, machine: str, processor: str, notify: Callable[[int, int], None]
) -> MachineRates:
    """Measure all kernels, each with a process on every CPU.

    Args:
        cpus: The CPUs.
        last_bytes: Size of the last-level cache in B.
        machine, processor: See `machines.MachineRates`.
        notify: Function that is called with the number of measured rates and of all rates.

    Raises:
        MeshmarkError: A process failed.
    """
    sized: tuple[tuple[Kind, int], ...] = tuple(
        (kind, size) for kind in ("memory", "latency") for size in footprints(last_bytes)
    )
    works: tuple[tuple[Kind, int], ...] = (("compute", 0), ("integer", 0), *sized)
    kernels = []
    for number, (kind, size) in enumerate(works, 1):
        pressure = NeighbourPressure(name=kind, kind=kind, footprint_bytes=size * len(cpus))
        with running(pressure, cpus) as processes:
            rate = measured_rate(processes)
        kernels.append(KernelRate(name=kind, kind=kind, footprint_bytes=size, units_per_s=rate))
        notify(number, len(works))
    return MachineRates(machine=machine, processor=processor, processes=len(cpus), kernels=tuple(kernels))


def read_rates(path: Path) -> MachineRates:
    """Read a file of rates.

    Raises:
        UsageError: The file has no rates, or is of another version.
        MeshmarkError: The file cannot be read.
    """
    content = read_object(path, "kernel rates", VERSION, "meshmark predict rates --out FILE")
    return checked(MachineRates, content, path.name)
