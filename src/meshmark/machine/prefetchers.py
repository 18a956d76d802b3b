"""Reads which hardware prefetchers are switched off, from model-specific registers.

Sources: Intel, Disclosure of Hardware Prefetcher Control on Some Intel Processors (2014), register 1A4h; AMD, Processor
Programming Reference for family 19h model 11h, register C000_0108h.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshmark.machine.tree import Files

# By vendor: the register, and the bits that switch a prefetcher off.
_REGISTERS: Final[Mapping[str, tuple[int, Mapping[int, str]]]] = {
    "GenuineIntel": (0x1A4, {0: "L2 stream", 1: "L2 adjacent line", 2: "L1 next line", 3: "L1 by instruction"}),
    "AuthenticAMD": (
        0xC0000108,
        {0: "L1 stream", 1: "L1 stride", 2: "L1 region", 3: "L2 stream", 5: "L2 up and down"},
    ),
}
ALL_ON: Final = "on"
DIFFER: Final = "differ between CPUs"


def prefetchers(tree: Files, vendor: str) -> str | None:
    """Which are off, such as `off: L2 stream, L2 adjacent line`; `on`, `differ between CPUs`, or None if unknown.

    Args:
        vendor: As /proc/cpuinfo has it.
    """
    if vendor not in _REGISTERS:
        return None
    register, names = _REGISTERS[vendor]
    cpus = tree.numbered("dev/cpu", "")
    values = [tree.register(cpu, register) for cpu in cpus]
    if not values or None in values:
        return None
    off = {tuple(name for bit, name in names.items() if value and value >> bit & 1) for value in values}
    if len(off) > 1:
        return DIFFER
    these = off.pop()
    return f"off: {', '.join(these)}" if these else ALL_ON
