"""Measures the CPU time that other work used, and that the hypervisor took, while something ran."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DISTURBED: Final = 0.05  # share of the CPUs; the limits are those of all instruments, see native/base/conditions.cpp
STOLEN: Final = 0.02
_STOLEN_S: Final = 0.015


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the time of all CPUs."""

    others: float
    stolen: float
    elapsed_s: float

    @property
    def flags(self) -> list[str]:
        found = ["disturbed"] if self.others > DISTURBED else []
        return found + (["stolen"] if self.stolen > STOLEN and self.stolen * self.elapsed_s > _STOLEN_S else [])


class Others:
    """Begins to count as it is made."""

    def __init__(self) -> None:
        self.began_s = time.monotonic()
        self.busy, self.steal, _ = _used()

    def shares(self, own_s: float) -> Shares:
        """Since the beginning, without the CPU time `own_s` of what was measured."""
        elapsed_s = max(1e-9, time.monotonic() - self.began_s)
        busy, steal, cpus = _used()
        return shares_of(busy - self.busy, steal - self.steal, own_s, elapsed_s, cpus)


def shares_of(busy_s: float, stolen_s: float, own_s: float, elapsed_s: float, cpus: int) -> Shares:
    """Shares of the time of all CPUs.

    Args:
        busy_s, stolen_s: Of all CPUs together.
        own_s: CPU time of what was measured.
    """
    whole_s = max(1e-9, elapsed_s) * max(1, cpus)
    # A tick is 10 ms: shorter differences say nothing.
    return Shares(max(0.0, busy_s - own_s - 0.01) / whole_s, stolen_s / whole_s, elapsed_s)


def _used() -> tuple[float, float, int]:
    """CPU time in use and stolen, of all CPUs, in s, and the number of these CPUs.

    The list of online CPUs would not do: a container's file system such as LXCFS may replace it.
    """
    text = Path("/proc/stat").read_text(encoding="ascii")
    line = text.partition("\n")[0].split()
    user, nice, system, _, _, irq, soft, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in line[1:9])
    return user + nice + system + irq + soft, steal, len(re.findall(r"^cpu[0-9]", text, re.M))
