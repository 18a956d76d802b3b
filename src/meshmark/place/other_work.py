"""Measures the CPU time that other programs used, and that the hypervisor took, while something ran."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from meshmark.store.record import FLAGS, Flag, median
from meshmark.values.units import NBSP, percent

# The limits are those of all instruments, see native/base/conditions.cpp.
_DISTURBED: Final = 0.05  # share of the CPUs
_STOLEN: Final = 0.02
_DISTURBED_S: Final = 0.03  # less may be an error of the accounting in ticks
_STOLEN_S: Final = 0.015
_DISTURBANCES: Final = frozenset({"disturbed", "stolen", "faulted", "clock_varied"})
_USUAL: Final = 0.25  # share of the runs that were disturbed, above which their result is flagged


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the time of all CPUs.

    Attributes:
        others: Share that other programs used.
        stolen: Share that the hypervisor gave to other guests.
        elapsed_s: The time in s to which the shares refer.
    """

    others: float
    stolen: float
    elapsed_s: float

    @property
    def flags(self) -> list[str]:
        disturbed = self.others > _DISTURBED and self.others * self.elapsed_s > _DISTURBED_S
        stolen = self.stolen > _STOLEN and self.stolen * self.elapsed_s > _STOLEN_S
        return ["disturbed"] * disturbed + ["stolen"] * stolen


class OtherWork:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._began_s, self._own_s = time.monotonic(), time.process_time()
        self._busy_s, self._stolen_s, _ = _used()

    def shares(self, own_s: float) -> Shares:
        """The shares since the creation, without this process and the CPU time `own_s` of what was measured."""
        elapsed_s = max(1e-9, time.monotonic() - self._began_s)
        busy_s, stolen_s, cpus = _used()
        own_s += time.process_time() - self._own_s
        return shares_of(busy_s - self._busy_s, stolen_s - self._stolen_s, own_s, elapsed_s, cpus)


def shares_of(busy_s: float, stolen_s: float, own_s: float, elapsed_s: float, cpus: int) -> Shares:
    """Shares of the time of all CPUs.

    Args:
        busy_s: Time in use of all CPUs together.
        stolen_s: Stolen time of all CPUs together.
        own_s: CPU time of what was measured.
        elapsed_s: Elapsed time.
        cpus: Number of CPUs.
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


class Flagged(Protocol):
    """A run with flags."""

    @property
    def flags(self) -> list[str]: ...


def usual_flags(runs: Sequence[Flagged]) -> frozenset[Flag]:
    """Flags of the result of several runs: disturbances of more than a quarter of them, other flags of any run."""
    return frozenset(
        f for f in FLAGS if sum(f in run.flags for run in runs) > (_USUAL * len(runs) if f in _DISTURBANCES else 0)
    )


def disturbance(runs: Sequence[Flagged], others: Sequence[float], stolen: Sequence[float]) -> str:
    """Describe the other work beside several runs; "" if it disturbed at most a quarter of them.

    Args:
        runs: Runs with their flags.
        others: Shares that other programs used during these runs, where they are known.
        stolen: Shares that the hypervisor took.
    """
    reasons = [
        f"{who} {percent(median(shares))} of the CPU time of this machine (median; "
        f"{sum(flag in run.flags for run in runs)} of {len(runs)} runs are flagged {flag})"
        for flag, shares, who in (
            ("disturbed", others, "other programs used"),
            ("stolen", stolen, "the hypervisor took"),
        )
        if shares and flag in usual_flags(runs)
    ]
    return ", and ".join(reasons).replace(NBSP, " ")
