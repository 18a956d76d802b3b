"""The record: one metric of one machine, observed under one set of conditions.

Measured, simulated, printed in a paper or recorded, every number is a record, so comparing
them is a join on `metric` and `conditions`. The line protocol (docs/reference/protocol.md)
is its JSON form. This module imports nothing else of ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

Source = Literal["host", "model", "paper", "recording"]
Scalar = str | int | float | bool | None
Flag = Literal[
    "migrated", "stolen", "throttled", "noisy", "truncated", "oversubscribed",
    "misplaced", "page_size", "faulted", "unverified",
]  # fmt: skip
FLAGS: Final = frozenset(get_args(Flag))
SOURCES: Final = frozenset(get_args(Source))
SCHEMA: Final = 1


class RecordError(ValueError):
    """A record breaks the contract; the message names the field, what was found and what is allowed."""


def median(samples: Sequence[float]) -> float:
    """Median of at least one sample, in the samples' unit."""
    ordered = sorted(samples)
    n = len(ordered)
    if n == 0:
        raise RecordError("samples: found none, at least 1 is needed")
    middle = n // 2
    return ordered[middle] if n % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def median_rank(n: int, confidence: float = 0.95) -> int:
    """Largest k with 1 - 2 P(Bin(n, 1/2) < k) >= confidence; 0 where there is none (n < 6 at 95 %).

    Source: order-statistic interval of a quantile, e.g. Le Boudec, Performance Evaluation (2010), 2.2.
    """
    tail, term, k = 0.0, 0.5**n, 0
    while True:
        tail += term  # P(Bin < k + 1)
        if 1.0 - 2.0 * tail < confidence or k >= n // 2:
            return k
        k += 1
        term *= (n - k + 1) / k


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """95 % order-statistic interval of the median, in the samples' unit; None below 6 samples."""
    n = len(samples)
    k = median_rank(n) if n < 1000 else int(n / 2 - 0.98 * math.sqrt(n))
    if k < 1:
        return None
    ordered = sorted(samples)
    return ordered[k - 1], ordered[n - k]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row a result; see the module's text. `samples` are in `unit`, one per timed batch."""

    source: Source
    machine: str
    instrument: str
    metric: str
    unit: str
    samples: tuple[float, ...]
    value: float  # the median of samples
    interval: tuple[float, float] | None
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    provenance: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def best_low(self) -> float:
        return min(self.samples)

    @property
    def best_high(self) -> float:
        return max(self.samples)

    @property
    def spread(self) -> float:
        """(max - min) / min of the samples, dimensionless; NaN where min is 0."""
        low = min(self.samples)
        return (max(self.samples) - low) / low if low else math.nan

    def to_json(self) -> dict[str, Any]:
        """The `result` object of the line protocol (without `type` and `schema`)."""
        return {
            "source": self.source, "machine": self.machine, "instrument": self.instrument,
            "metric": self.metric, "unit": self.unit, "value": self.value,
            "interval": list(self.interval) if self.interval else None,
            "samples": list(self.samples), "conditions": dict(self.conditions),
            "flags": sorted(self.flags), "provenance": dict(self.provenance),
        }  # fmt: skip
