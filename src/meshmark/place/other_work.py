"""Measures the CPU time that other programs used, and that the hypervisor took, while something ran."""

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

# The limits are those of all instruments, see native/base/conditions.cpp.
_DISTURBED: Final = 0.05  # share of the CPUs
_STOLEN: Final = 0.02
_DISTURBED_S: Final = 0.03  # less may be an error of the accounting in ticks
_STOLEN_S: Final = 0.015
_DISTURBANCES: Final = frozenset({"disturbed", "stolen", "faulted", "clock_varied"})
_USUAL: Final = 0.25  # share of the runs that were disturbed, above which their result is flagged


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the time of all CPUs. The kernel counts time in ticks, so that a share may be slightly below 0.

    Attributes:
        others: Share that other programs used.
        stolen: Share that the hypervisor gave to other guests.
        elapsed_s: The time in s to which the shares refer.
    """

    others: float
    stolen: float
    elapsed_s: float

    @staticmethod
    def of_counts(counts: Mapping[str, float], elapsed_s: float) -> Shares | None:
        """Return the shares among what was counted during a run; None if they are not."""
        others, stolen = counts.get("others_share"), counts.get("steal_share")
        return None if others is None or stolen is None else Shares(others, stolen, elapsed_s)

    @property
    def counts(self) -> dict[str, float]:
        """The shares by the names of conditions of records."""
        return {"others_share": self.others, "steal_share": self.stolen}

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
    return Shares((busy_s - own_s) / whole_s, stolen_s / whole_s, elapsed_s)


def _used() -> tuple[float, float, int]:
    """CPU time in use and stolen, of all CPUs, in s, and the number of these CPUs.

    The list of online CPUs would not do: a container's file system such as LXCFS may replace it.
    """
    text = Path("/proc/stat").read_text(encoding="ascii")
    line = text.partition("\n")[0].split()
    user, nice, system, _, _, irq, soft, steal = (int(word) / os.sysconf("SC_CLK_TCK") for word in line[1:9])
    return user + nice + system + irq + soft, steal, len(re.findall(r"^cpu[0-9]", text, re.M))


class Run(Protocol):
    """A run with its flags, and the shares during it if they are known."""

    @property
    def flags(self) -> list[str]: ...

    @property
    def shares(self) -> Shares | None: ...


def overall(runs: Iterable[Run]) -> Shares | None:
    """The shares during all runs together; None if they are known of no run."""
    known = [run.shares for run in runs if run.shares]
    elapsed_s = math.fsum(s.elapsed_s for s in known)
    if elapsed_s <= 0:
        return None
    others, stolen = (math.fsum(getattr(s, n) * s.elapsed_s for s in known) / elapsed_s for n in ("others", "stolen"))
    return Shares(max(0.0, others), max(0.0, stolen), elapsed_s)


def shares_during(runs: Iterable[Run]) -> dict[str, float]:
    """The shares during all runs, as conditions of their record."""
    shares = overall(runs)
    return shares.counts if shares else {}


def result_flags(runs: Sequence[Run]) -> frozenset[Flag]:
    """Return the flags of the result of several runs: disturbances of more than a quarter of them, others of any.

    Single runs may be too short to tell whether they were disturbed, so that the shares of all together count as well.
    """
    shares = overall(runs)
    together = shares.flags if shares else []

    def usual(flag: str) -> bool:
        count = sum(flag in run.flags for run in runs)
        return count > (_USUAL * len(runs) if flag in _DISTURBANCES else 0) or flag in together

    return frozenset(filter(usual, FLAGS))


def disturbance(runs: Sequence[Run]) -> str:
    """Describe the other work beside several runs; "" if it did not disturb them."""
    shares, flags = overall(runs), result_flags(runs)
    if shares is None:
        return ""
    parts = [f"other programs used {percent(shares.others)} (disturbed)"] if "disturbed" in flags else []
    parts += [f"the hypervisor took {percent(shares.stolen)} (stolen)"] if "stolen" in flags else []
    return f"{' and '.join(parts)} of this machine's CPU time meanwhile".replace(NBSP, " ") if parts else ""
