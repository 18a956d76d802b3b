"""Study: slowdown of equal programs by the share of writes in their traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.errors import UsageError
from meshmark.load.studies.equal_programs import EqualPrograms, checked_fraction
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint, format_slowdown
from meshmark.load.synthesis import explain

FRACTIONS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)  # above 0.5 by stores past the caches


@dataclass(kw_only=True)
class MixStudy(EqualPrograms):
    """Slowdown with one copy per CPU at one rate, by the share of writes (`x` of a point).

    Attributes:
        rate_gb_per_s: Rate of one program; 0: half of the maximum that is feasible at every write fraction.
    """

    study = "mix"
    columns = ("write fraction", "alone GB/s", "slowdown", "95 %")
    rate_gb_per_s: float = 0.0
    write_fractions: Sequence[float] = FRACTIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        self.write_fractions = sorted({checked_fraction(f) for f in self.write_fractions})
        if not self.write_fractions:
            raise UsageError("write_fractions: missing; allowed: at least one number from 0 to 1")
        if self.rate_gb_per_s == 0:
            max_rates = []
            for f in self.write_fractions:
                target = self.target(self.run_time_s, {"write_fraction": f, "memory_gb_per_s": 1.0})
                feasible = explain(self.variants, target)["memory_gb_per_s"]
                max_rates += [feasible[1]] if feasible is not None else []
            self.rate_gb_per_s = float(f"{0.5 * min(max_rates, default=0.0):.3g}")
        self.rate_gb_per_s = self.rates((self.rate_gb_per_s,), self.target(self.run_time_s))[0]

    def groups(self) -> list[list[StudyCell]]:
        """Return a group per share of writes."""
        rate = self.rate_gb_per_s
        pairs = (
            self.pair(
                f,
                f"{f:g} writes",
                {"memory_gb_per_s": rate, "write_fraction": f},
                {"write_fraction": f, "memory_rate_asked": rate * 1e9, "memory_rate": None, "copies": self.copies},
            )
            for f in self.write_fractions
        )
        return [pair for pair in pairs if pair]

    def row(self, p: StudyPoint) -> list[str]:
        """Return the share, the rate alone and the slowdown."""
        return [f"{p.x:g}", f"{p.number('memory_rate') / 1e9:.3f}", *format_slowdown(p.slowdown)]
