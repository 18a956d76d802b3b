"""Measures the CPU time that other programs used, and that the hypervisor took, during a run."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from meshmark.store.record import FLAGS, Flag
from meshmark.values.units import NBSP, percent

# All instruments have these limits, see native/base/harness/conditions.cpp.
_DISTURBED: Final = 0.05  # share of the CPUs
_STOLEN: Final = 0.02
_DISTURBED_S: Final = 0.03  # less may be an error of the accounting in ticks
_STOLEN_S: Final = 0.015
_DISTURBANCES: Final = frozenset({"disturbed", "stolen", "faulted", "clock_varied"})
_USUAL: Final = 0.25  # a result is flagged if more than this share of its runs were disturbed


@dataclass(frozen=True, slots=True)
class OtherWorkShares:
    """Shares of the time of all CPUs. The kernel counts time in ticks, so a share may be slightly below 0.

    Attributes:
        others: Share that other programs used.
        stolen: Share that the hypervisor gave to other guests.
        elapsed_s: The time in s to which the shares refer.
    """

    others: float
    stolen: float
    elapsed_s: float

    @staticmethod
    def of_counts(counts: Mapping[str, float], elapsed_s: float) -> OtherWorkShares | None:
        """Return the shares from the counts of a run; None if the counts do not contain both."""
        others, stolen = counts.get("others_share"), counts.get("steal_share")
        return None if others is None or stolen is None else OtherWorkShares(others, stolen, elapsed_s)

    @property
    def counts(self) -> dict[str, float]:
        """Return the shares by the names of conditions of records."""
        return {"others_share": self.others, "steal_share": self.stolen}

    @property
    def flags(self) -> list[str]:
        """Return `disturbed` and `stolen` if the share of others or of the hypervisor matters."""
        disturbed = self.others > _DISTURBED and self.others * self.elapsed_s > _DISTURBED_S
        stolen = self.stolen > _STOLEN and self.stolen * self.elapsed_s > _STOLEN_S
        return ["disturbed"] * disturbed + ["stolen"] * stolen


class OtherWork:
    """Counter of the CPU time that other work uses from the creation of the counter on."""

    def __init__(self) -> None:
        self._began_s, self._own_s = time.monotonic(), time.process_time()
        self._busy_s, self._stolen_s, _ = _used()

    def shares(self, own_s: float) -> OtherWorkShares:
        """Return the shares since the creation.

        They exclude this process and `own_s`, the CPU time of the measured program in s.
        """
        elapsed_s = max(1e-9, time.monotonic() - self._began_s)
        busy_s, stolen_s, cpus = _used()
        own_s += time.process_time() - self._own_s
        return shares_of(busy_s - self._busy_s, stolen_s - self._stolen_s, own_s, elapsed_s, cpus)


def shares_of(busy_s: float, stolen_s: float, own_s: float, elapsed_s: float, cpus: int) -> OtherWorkShares:
    """Return the shares of the time of all CPUs.

    Args:
        busy_s: Time in s during which CPUs were in use, summed over all CPUs.
        stolen_s: Stolen time in s, summed over all CPUs.
        own_s: CPU time in s of the measured program and of this process.
        elapsed_s: Elapsed time in s.
        cpus: Number of CPUs.
    """
    whole_s = max(1e-9, elapsed_s) * max(1, cpus)
    return OtherWorkShares((busy_s - own_s) / whole_s, stolen_s / whole_s, elapsed_s)


def _used() -> tuple[float, float, int]:
    """Return the used and the stolen time of all CPUs, in s, and the number of these CPUs.

    The list of online CPUs cannot give this number, because a container's file system such as LXCFS may replace it.
    """
    text = Path("/proc/stat").read_text(encoding="ascii")
    used, stolen = _times(text.partition("\n")[0])
    return used, stolen, len(re.findall(r"^cpu[0-9]", text, re.M))


def used_s(cpus: Iterable[int]) -> float:
    """Return the used time of some CPUs since the boot, in s."""
    names = tuple(f"cpu{cpu} " for cpu in cpus)
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return math.fsum(_times(line)[0] for line in lines if line.startswith(names))


def _times(line: str) -> tuple[float, float]:
    """Return the used and the stolen time in a line of /proc/stat, in s."""
    user, nice, system, _, _, irq, soft, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in line.split()[1:9])
    return user + nice + system + irq + soft, steal


class FlaggedRun(Protocol):
    """A run with its flags, and the shares of other work during the run if they are known."""

    @property
    def flags(self) -> list[str]:
        """Return its flags."""
        ...

    @property
    def shares(self) -> OtherWorkShares | None:
        """Return the shares of CPU time that others took; None if they are unknown."""
        ...


def overall(runs: Iterable[FlaggedRun]) -> OtherWorkShares | None:
    """Return the shares during all runs together; None if the shares of no run are known."""
    shares = [run.shares for run in runs if run.shares]
    elapsed_s = math.fsum(s.elapsed_s for s in shares)
    if elapsed_s <= 0:
        return None
    others, stolen = (math.fsum(getattr(s, n) * s.elapsed_s for s in shares) / elapsed_s for n in ("others", "stolen"))
    return OtherWorkShares(max(0.0, others), max(0.0, stolen), elapsed_s)


def shares_during(runs: Iterable[FlaggedRun]) -> dict[str, float]:
    """Return the shares during all runs, as conditions of their record."""
    shares = overall(runs)
    return shares.counts if shares else {}


def result_flags(runs: Sequence[FlaggedRun]) -> frozenset[Flag]:
    """Return the flags of the result of several runs.

    A disturbance counts if it flags more than a quarter of the runs; any other flag counts if a single run has it.
    Single runs may be too short to show whether they were disturbed, so the shares during all runs together count, too.
    """
    shares = overall(runs)
    overall_flags = shares.flags if shares else []

    def usual(flag: str) -> bool:
        count = sum(flag in run.flags for run in runs)
        return count > (_USUAL * len(runs) if flag in _DISTURBANCES else 0) or flag in overall_flags

    return frozenset(filter(usual, FLAGS))


def disturbance(runs: Sequence[FlaggedRun]) -> str:
    """Return a description of the work that disturbed several runs; "" if nothing disturbed them."""
    shares, flags = overall(runs), result_flags(runs)
    if shares is None:
        return ""
    parts = [f"other programs used {percent(shares.others)} (disturbed)"] if "disturbed" in flags else []
    parts += [f"the hypervisor took {percent(shares.stolen)} (stolen)"] if "stolen" in flags else []
    return f"{' and '.join(parts)} of this machine's CPU time meanwhile".replace(NBSP, " ") if parts else ""
