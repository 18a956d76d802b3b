"""Reads from model-specific registers which hardware prefetchers are switched off.

Sources: Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors (2014), register 1A4h; AMD, Processor
Programming Reference for family 19h model 11h, register C000_0108h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshmark.machine.tree import Files


@dataclass(frozen=True, slots=True)
class Register:
    """A model-specific register of each core that switches its data prefetchers.

    Attributes:
        names: Name of each prefetcher, by the bit that switches it off.
    """

    number: int
    names: Mapping[int, str]

    def off(self, value: int) -> tuple[str, ...]:
        """Return the names of the prefetchers that a value switches off."""
        return tuple(name for bit, name in self.names.items() if value >> bit & 1)

    @property
    def all_off(self) -> int:
        """Return the bits that switch off all prefetchers in `names`."""
        return sum(1 << bit for bit in self.names)


# Registers by vendor, as /proc/cpuinfo reports it.
REGISTERS: Final[Mapping[str, Register]] = {
    "GenuineIntel": Register(0x1A4, {0: "L2 stream", 1: "L2 adjacent line", 2: "L1 next line", 3: "L1 by instruction"}),
    "AuthenticAMD": Register(
        0xC0000108, {0: "L1 stream", 1: "L1 stride", 2: "L1 region", 3: "L2 stream", 5: "L2 up and down"}
    ),
}
ALL_ON: Final = "on"
DIFFER: Final = "differ between CPUs"


def prefetchers(tree: Files, vendor: str) -> str | None:
    """Return which prefetchers are off.

    Args:
        tree: Files of the machine.
        vendor: Vendor as /proc/cpuinfo reports it.

    Returns:
        For example `off: L2 stream, L2 adjacent line`, `on` or `differ between CPUs`; None if unknown.
    """
    register = REGISTERS.get(vendor)
    if register is None:
        return None
    cpus = tree.numbered("dev/cpu", "")
    values = [tree.register(cpu, register.number) for cpu in cpus]
    if not values or None in values:
        return None
    off_names = {register.off(value or 0) for value in values}
    if len(off_names) > 1:
        return DIFFER
    names = off_names.pop()
    return f"off: {', '.join(names)}" if names else ALL_ON
