"""Model-specific registers of simulated processors, in files that replace their devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write_registers(devices: Path, number: int, values: Mapping[int, int]) -> None:
    """Write the devices of these CPUs below a folder such as /dev/cpu, with these values in a register."""
    for cpu, value in values.items():
        folder = devices / str(cpu)
        folder.mkdir(parents=True)
        with (folder / "msr").open("wb") as file:
            os.pwrite(file.fileno(), value.to_bytes(8, "little"), number)


def read_registers(devices: Path, number: int) -> dict[int, int]:
    """Return the value of the register of each CPU."""
    values = {}
    for path in devices.glob("*/msr"):
        with path.open("rb") as file:
            values[int(path.parent.name)] = int.from_bytes(os.pread(file.fileno(), 8, number), "little")
    return values
