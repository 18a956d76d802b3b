"""Study: finds the bandwidth from which equal programs on one memory bus slow each other down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from meshmark.errors import UsageError
from meshmark.load.calibration.effects import Crossing, crossing
from meshmark.load.studies.equal_programs import EqualPrograms, checked_fraction
from meshmark.load.studies.outcome import StudyCell
from meshmark.load.studies.results import StudyPoint, format_slowdown
from meshmark.store.record import Scalar


@dataclass(kw_only=True)
class SharedBusStudy(EqualPrograms):
    """Slowdown with one copy per CPU, by the measured bandwidth of one program alone in GB/s (`x` of a point).

    Attributes:
        rates_gb_per_s: Bandwidths of one program; empty: shares of the feasible range.
        threshold: Report the bandwidth at which the slowdown crosses 1 + threshold.
        crossing: That bandwidth of one program alone, GB/s.
    """

    study = "shared_bus"
    rates_gb_per_s: Sequence[float] = ()
    write_fraction: float | None = None
    threshold: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold < 100:
            raise UsageError(f"threshold: found {self.threshold:g}; allowed: a share above 0, such as 0.1")
        fraction = self.write_fraction
        self._fraction = {} if fraction is None else {"write_fraction": checked_fraction(fraction)}
        self.rates_gb_per_s = self.rates(self.rates_gb_per_s, self.target(self.run_time_s, self._fraction))

    def groups(self) -> list[list[StudyCell]]:
        """Return a group per rate."""
        pairs = (
            self.pair(
                rate,
                f"{rate:g} GB/s",
                {"memory_gb_per_s": rate, **self._fraction},
                {
                    "memory_rate_asked": rate * 1e9,
                    "memory_rate": None,
                    "copies": self.copies,
                    "write_fraction": self.write_fraction,
                },
            )
            for rate in self.rates_gb_per_s
        )
        return [pair for pair in pairs if pair]

    def row(self, p: StudyPoint) -> list[str]:
        """Return the requested rate, the rates alone and together, and the slowdown."""
        return [p.label, f"{p.x:.3f}", f"{p.x * self.copies:.3f}", *format_slowdown(p.slowdown)]

    def conclude(self) -> str:
        """Estimate where the slowdown exceeds the threshold."""
        self.points = sorted((replace(p, x=p.number("memory_rate") / 1e9) for p in self.points), key=lambda p: p.x)
        conditions: dict[str, Scalar] = {
            "copies": self.copies,
            "threshold": self.threshold,
            "write_fraction": self.write_fraction,
        }
        x, flags = [p.x for p in self.points], frozenset[str]().union(*(p.flags for p in self.points))
        if len(x) >= 2 and all(b > a for a, b in itertools.pairwise(x)):
            samples = [p.pairs or (p.slowdown.ratio,) for p in self.points]
            edge = crossing(x, samples, 1 + self.threshold, seed=self.options.seed)
        else:
            edge = Crossing(None, reason="fewer than 2 rates were measured")
        self.crossing, text = edge, edge.reason
        if edge.value is None:
            self.results.absent("crossing_rate", edge.reason, conditions, "absent")
        else:
            text = f"exceeds {100 * self.threshold:g} % at {_between(edge)}"
            conditions |= {
                "crossing_low": None if edge.low is None else edge.low * 1e9,
                "crossing_high": None if edge.high is None else edge.high * 1e9,
            }
            self.results.add("crossing_rate", [edge.value * 1e9], conditions, flags)
        caveat = f" (from runs with flags: {', '.join(sorted(flags))})" if flags else ""
        self.columns = ("requested", "alone GB/s", f"{self.copies} copies GB/s", "slowdown", "95 %")
        return f"{super().conclude()}\nslowdown: {text}{caveat}"


def _between(c: Crossing) -> str:
    low = "below the measured range" if c.low is None else f"{c.low:.3g}"
    high = "beyond the measured range" if c.high is None else f"{c.high:.3g}"
    return f"{c.value:.3g} GB/s ({low} – {high})" if c.low is not None or c.high is not None else f"{c.value:.3g} GB/s"
