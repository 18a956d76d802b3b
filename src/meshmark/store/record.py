"""The record: one metric of one machine, observed under one set of conditions.

Every number is a record, whether it was measured, simulated, published or read from a recording, so comparisons are
joins on `metric` and `conditions`. The line protocol (docs/reference/protocol.md) is the JSON form of records. This
module imports no other Meshmark module.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Final, Literal, cast, get_args

Source = Literal["host", "model", "paper", "recording", "tool"]  # tool: measured by another tool
Scalar = str | int | float | bool | None
Better = Literal["lower", "higher", "none"]  # none: neither direction is better, as for the size of a cache
Flag = Literal[
    "migrated",
    "stolen",
    "clock_varied",
    "disturbed",
    "stopped",
    "oversubscribed",
    "misplaced",
    "page_size",
    "faulted",
    "unverified",
    "off_plan",
]
FLAGS: Final = frozenset(get_args(Flag))
SOURCES: Final = frozenset(get_args(Source))
BETTER: Final = frozenset(get_args(Better))
SCHEMA: Final = 1
MODE_SUFFIX: Final = "_mode"  # suffix of the metric of one mode, if the runs of a point have several modes
# Conditions that are observed rather than set. They differ between repetitions, so they do not identify a measurement.
# An instrument states further ones in its description; see `describe.observed_conditions`.
OBSERVED: Final = frozenset(
    {
        "huge_share",
        "observed_node",
        "observed_node_share",
        "observed_cpus",
        "cpus_within",
        "cpus_fill",
        "memory_place",
        "memory_level",
        "home",
        "steal_share",
        "others_share",
        # Behaviour of the threads and pages of a program.
        "migrations",
        "largest_bytes",
        "waiting_share",
        "remote_share",
        "minor_faults",
        "major_faults",
        "interval_asked",
        "neighbours_held_share",
        "neighbours_load_s",
        "neighbours_alone_s",
        "canary_ratio",
        "disturbed_share",
        "load_1min",
        "shield",
        "run_spread",
        "run_low",
        "run_high",
        "run_modes",
        "mode_runs",
        "profile_samples",
        "share_low",
        "share_high",
        # Conditions of MPI instruments: where and how the ranks ran.
        "clock_offset_uncertainty",
        "fastest_rank",
        "slowest_rank",
        "block_iterations",
        "blocks",
        "rank_cpus",
        "host_names",
        "slurm_job_id",
    }
)


class RecordError(ValueError):
    """A record is invalid. The message names the field, what was found and what is allowed."""


def value_problem(unit: str, better: str, value: float) -> str:
    """Return why a quantity of this unit and direction cannot have this value; "" if it can.

    Values are finite. Durations, rates and other quantities with a unit and a direction are not negative, and neither
    are sizes, frequencies and rates without a direction. Ratios and differences may be negative: their unit is 1, or
    they have no direction, such as the residual of a time after its known parts are subtracted.
    """
    if not math.isfinite(value):
        return f"found {value!r}, a finite number is required"
    if value < 0 and unit != "1" and (better != "none" or unit in _NEVER_NEGATIVE or unit.endswith("/s")):
        return f"found {value!r} {unit}, at least 0 is required"
    return ""


_NEVER_NEGATIVE: Final = frozenset({"B", "Hz"})


def median(samples: Sequence[float]) -> float:
    """Return the median of at least one sample, in the unit of the samples."""
    sorted_samples = sorted(samples)
    n = len(sorted_samples)
    if n == 0:
        raise RecordError("samples: found none, at least 1 is required")
    middle = n // 2
    return sorted_samples[middle] if n % 2 else 0.5 * (sorted_samples[middle - 1] + sorted_samples[middle])


def median_rank(n: int, confidence: float = 0.95) -> int:
    """Return the largest k with 1 - 2 P(Bin(n, 1/2) < k) >= confidence; 0 if there is no such k (n < 6 at 95 %).

    Source:
        Order-statistic interval of a quantile, e.g. Le Boudec, Performance Evaluation (2010), 2.2.
    """
    tail, term, k = 0.0, 0.5**n, 0
    while True:
        tail += term  # P(Bin < k + 1)
        if 1.0 - 2.0 * tail < confidence or k >= n // 2:
            return k
        k += 1
        term *= (n - k + 1) / k


def interval_rank(n: int) -> int:
    """Return the rank, among n samples, of the lower end of `median_interval`; below 1 if there is no interval.

    The upper end has the same rank counted from the largest sample.
    """
    return median_rank(n) if n < 1000 else int(n / 2 - 0.98 * math.sqrt(n))


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % order-statistic interval of the median, in the unit of the samples; None below 6 samples."""
    n = len(samples)
    k = interval_rank(n)
    if k < 1:
        return None
    sorted_samples = sorted(samples)
    return sorted_samples[k - 1], sorted_samples[n - k]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric as its instrument describes it: the only source of its unit and direction."""

    name: str
    unit: str
    better: Better
    help: str

    @staticmethod
    def from_json(description: Mapping[str, Any]) -> Metric:
        """Return the metric of an entry of `metrics` in a description (schema/describe.json).

        Raises:
            KeyError: A field is missing.
        """
        return Metric(description["name"], description["unit"], description["better"], description["help"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One metric of one machine under one set of conditions; `samples` are in `unit`, one per timed batch."""

    source: Source
    machine: str
    instrument: str
    metric: str
    unit: str
    better: Better
    samples: tuple[float, ...]
    value: float  # median of the samples
    interval: tuple[float, float] | None
    conditions: Mapping[str, Scalar] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    provenance: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse values that no quantity can have.

        Raises:
            RecordError: A sample is not finite, or negative although its unit and direction do not allow it.
        """
        if all(map(math.isfinite, self.samples)) and min(self.samples, default=0.0) >= 0 <= self.value < math.inf:
            return
        for name, value in (("value", self.value), *(("samples", sample) for sample in self.samples)):
            if reason := value_problem(self.unit, self.better, value):
                raise RecordError(f"{name}: {reason}")

    @staticmethod
    def from_samples(
        metric: Metric,
        samples: Iterable[float],
        *,
        source: Source,
        machine: str,
        instrument: str,
        conditions: Mapping[str, Scalar],
        provenance: Mapping[str, Scalar],
        flags: frozenset[str] = frozenset(),
    ) -> Record:
        """Return a record of at least one sample, in the unit of the metric.

        Raises:
            RecordError: There is no sample, or a sample has a value that the metric cannot have.
        """
        values = tuple(map(float, samples))
        return Record(
            source=source,
            machine=machine,
            instrument=instrument,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            samples=values,
            value=median(values),
            interval=median_interval(values),
            conditions=conditions,
            flags=flags,
            provenance=provenance,
        )

    @property
    def best(self) -> float | None:
        """Return the best sample, in `unit`; None if the metric has no direction."""
        if self.better == "none":
            return None
        return min(self.samples) if self.better == "lower" else max(self.samples)

    @property
    def ends(self) -> tuple[float, float]:
        """Return the best and the worst sample, in `unit`; minimum and maximum if the metric has no direction."""
        low, high = min(self.samples), max(self.samples)
        return (high, low) if self.better == "higher" else (low, high)

    @property
    def spread(self) -> float:
        """Return (max - min) / min of the samples, dimensionless; 0 if they are equal, otherwise NaN if min is 0."""
        low, high = sorted(self.ends)
        if low == high:
            return 0.0
        return (high - low) / low if low else math.nan

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the range that views show and verdicts use.

        It is `run_low` and `run_high` if runs were pooled, because runs differ more than the samples of one run, and
        otherwise `interval`. None if there are too few samples, or if the range of pooled runs is negative or does not
        contain the value.
        """
        if "run_low" not in self.conditions:
            return self.interval
        low, high = self.conditions["run_low"], self.conditions.get("run_high")
        if not isinstance(low, int | float) or not isinstance(high, int | float) or not 0 <= low <= self.value <= high:
            return None
        return float(low), float(high)

    @property
    def half_width(self) -> float | None:
        """Return half the width of `bounds` over the value, dimensionless; None without bounds or for a value of 0."""
        bounds = self.bounds
        return (bounds[1] - bounds[0]) / 2 / abs(self.value) if bounds and self.value else None

    @property
    def requested_half_width(self) -> float | None:
        """Return the requested half width of the interval over the value; None if no width was requested."""
        width = self.conditions.get("interval_asked")
        return float(width) if isinstance(width, int | float) and not isinstance(width, bool) else None

    @property
    def converged(self) -> bool:
        """Return whether `bounds` are as narrow as requested; True if no width was requested or the value is 0."""
        width = self.requested_half_width
        if width is None or self.value == 0:
            return True
        return self.half_width is not None and self.half_width <= width * (1 + 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the `result` object of the line protocol (without `type` and `schema`)."""
        return {
            "source": self.source,
            "machine": self.machine,
            "instrument": self.instrument,
            "metric": self.metric,
            "unit": self.unit,
            "better": self.better,
            "value": self.value,
            "interval": list(self.interval) if self.interval else None,
            "samples": list(self.samples),
            "conditions": dict(self.conditions),
            "flags": sorted(self.flags),
            "provenance": dict(self.provenance),
        }

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Record:
        """Return the record of a `result` object of the line protocol.

        Raises:
            RecordError: A field is missing or of the wrong type, or value or interval disagrees with the samples.
        """
        samples = _numbers(line, "samples")
        if not samples:
            raise RecordError("samples: found none, at least 1 is required")
        value = line.get("value")
        if not isinstance(value, int | float) or not _is_finite(value):
            raise RecordError(f"value: found {_shown(value)}, a finite number is required")
        if not _agree(value, median(samples)):
            raise RecordError(f"value: found {value!r}, the median of the samples is {median(samples)!r}")
        bounds = None if line.get("interval") is None else _numbers(line, "interval")
        expected = median_interval(samples)
        if (bounds is None) != (expected is None) or (
            bounds is not None
            and expected is not None
            and (len(bounds) != 2 or not all(_agree(a, b) for a, b in zip(bounds, expected, strict=True)))
        ):
            raise RecordError(f"interval: found {_shown(bounds)}, the samples give {expected!r}")
        source = _text(line, "source")
        if source not in SOURCES:
            raise RecordError(f"source: found {source!r}; allowed: {', '.join(sorted(SOURCES))}")
        better = line.get("better")
        if not isinstance(better, str) or better not in BETTER:
            raise RecordError(f"better: found {_shown(better)}; allowed: {', '.join(sorted(BETTER))}")
        flags = line.get("flags")
        if not isinstance(flags, Sequence) or isinstance(flags, str) or not set(map(str, flags)) <= FLAGS:
            raise RecordError(f"flags: found {_shown(flags)}; allowed: {', '.join(sorted(FLAGS))}")
        return Record(
            source=cast(Source, source),
            machine=_text(line, "machine"),
            instrument=_text(line, "instrument"),
            metric=_text(line, "metric"),
            unit=_text(line, "unit"),
            better=cast(Better, better),
            samples=tuple(samples),
            value=float(value),
            interval=(bounds[0], bounds[1]) if bounds else None,
            conditions=scalars(line.get("conditions"), "conditions"),
            flags=frozenset(map(str, flags)),
            provenance=scalars(line.get("provenance"), "provenance"),
        )


def _agree(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300)


def _text(line: Mapping[str, Any], key: str) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not value or not is_unicode(value):
        raise RecordError(f"{key}: found {_shown(value)}, a string is required")
    return value


def is_unicode(text: str) -> bool:
    r"""Return whether `text` can be encoded: JSON strings may contain lone surrogates (`\ud800`)."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _numbers(line: Mapping[str, Any], key: str) -> list[float]:
    values = line.get(key)
    if isinstance(values, list) and {*map(type, values)} == {float} and math.isfinite(sum(values)):
        return values  # the usual case, in which the sum shows at once that all numbers are finite
    if not isinstance(values, list) or not all(map(_is_finite, values)):
        raise RecordError(f"{key}: found {_shown(values)}, a list of finite numbers is required")
    return [float(v) for v in values]


def _is_finite(value: object) -> bool:
    """Return whether `value` is a number that is finite as a double.

    Python's JSON parser also returns NaN and integers of 400 digits.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def scalars(values: object, name: str) -> dict[str, Scalar]:
    """Return an object of texts, numbers, booleans and nulls, the conditions or the provenance of a record.

    Args:
        values: The parsed object.
        name: Its name in the error.

    Raises:
        RecordError: The value is not such an object, or contains a lone surrogate or an integer that no double can
            represent.
    """
    if not isinstance(values, dict) or not all(is_unicode(k) and is_scalar(v) for k, v in values.items()):
        raise RecordError(
            f"{name}: found {_shown(values)}, an object of strings, numbers, booleans and nulls is required"
        )
    # Thousands of records have the same few names and texts. Each is in memory once.
    return {intern(k): intern(v) if type(v) is str else v for k, v in values.items()}


def is_scalar(value: object) -> bool:
    """Return whether a condition may have this value: encodable text, a number in the range of a double, or None."""
    if isinstance(value, str):
        return is_unicode(value)
    if isinstance(value, int):
        return isinstance(value, bool) or abs(value) < 2**1023
    return isinstance(value, float | None)


def _shown(value: object) -> str:
    """Return a value as text for an error message, at most 80 characters."""
    try:
        return repr(value)[:80]
    except (ValueError, RecursionError):  # deeply nested, or an integer of thousands of digits
        return f"a {type(value).__name__} that is too large to be shown"


def varying(keys: Iterable[str], records: Sequence[Record]) -> list[str]:
    """Return the conditions among `keys` in which the records differ."""
    return [k for k in keys if len({str(r.conditions.get(k)) for r in records}) > 1]
