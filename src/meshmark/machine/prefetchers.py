"""Reads which hardware prefetchers are switched off, from model-specific registers.

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
        names: Of the prefetchers, by the bit that switches each off.
    """

    number: int
    names: Mapping[int, str]

    def off(self, value: int) -> tuple[str, ...]:
        """The prefetchers that a value switches off."""
        return tuple(name for bit, name in self.names.items() if value >> bit & 1)

    @property
    def all_off(self) -> int:
        """The bits that switch off all that have a name."""
        return sum(1 << bit for bit in self.names)


# By vendor, as /proc/cpuinfo has it.
REGISTERS: Final[Mapping[str, Register]] = {
    "GenuineIntel": Register(0x1A4, {0: "L2 stream", 1: "L2 adjacent line", 2: "L1 next line", 3: "L1 by instruction"}),
    "AuthenticAMD": Register(
        0xC0000108, {0: "L1 stream", 1: "L1 stride", 2: "L1 region", 3: "L2 stream", 5: "L2 up and down"}
    ),
}
ALL_ON: Final = "on"
DIFFER: Final = "differ between CPUs"


def prefetchers(tree: Files, vendor: str) -> str | None:
    """Which are off, such as `off: L2 stream, L2 adjacent line`; `on`, `differ between CPUs`, or None if unknown.

    Args:
        vendor: As /proc/cpuinfo has it.
    """
    register = REGISTERS.get(vendor)
    if register is None:
        return None
    cpus = tree.numbered("dev/cpu", "")
    values = [tree.register(cpu, register.number) for cpu in cpus]
    if not values or None in values:
        return None
    off = {register.off(value or 0) for value in values}
    if len(off) > 1:
        return DIFFER
    these = off.pop()
    return f"off: {', '.join(these)}" if these else ALL_ON
