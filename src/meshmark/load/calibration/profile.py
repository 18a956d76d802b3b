"""Parse target profiles: the keys of a scenario's [[program]] that describe the behaviour of a synthetic program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Final

from annotated_types import Interval
from pydantic import AfterValidator, Field, Strict

from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import LoadMetric, Metrics
from meshmark.values.inputs import LIST, Input, Label, Name, checked, fields_of, key_text, unknown_key

DEFAULT_MEMORY_MIB: Final = 2048
DEFAULT_MIN_KERNELS: Final = 20
DEFAULT_MAX_SHARE: Final = 0.2
MAX_PACE: Final = 0.9
# Metrics whose formulas cannot exceed 1.
_FRACTIONS: Final = ("write_fraction", "system_share")

RunTime = Annotated[float, Field(ge=1e-3, le=1e6)]
Threads = Annotated[int, Field(ge=1, le=1 << 16)]
_Kernels = Annotated[
    tuple[Label, ...],
    LIST,
    Field(max_length=1000, description="a list of kernels' names"),
    AfterValidator(lambda names: tuple(sorted(set(names)))),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTable(Input):
    """The keys of a target profile, except metrics; `load_balance` is both."""

    run_time_s: RunTime  # wall time
    name: Name = "program"
    threads: Threads = 1
    load_balance: Annotated[float, Field(ge=1e-5, le=1)] = 1.0  # mean share of the threads' work over the largest
    memory_mib: Annotated[float, Field(ge=1e-3, le=1e9)] = DEFAULT_MEMORY_MIB  # maximum of all arrays together
    kernels: _Kernels = ()  # use only these; empty: any
    without: _Kernels = ()
    least_kernels: Annotated[int, Field(ge=1, le=1000)] = DEFAULT_MIN_KERNELS  # if the profile allows that many
    # Maximum share of the run time for one variant, unless the profile needs more.
    most_share: Annotated[float, Field(ge=1e-3, le=1)] = DEFAULT_MAX_SHARE
    seed: Annotated[int, Field(ge=0, le=(1 << 63) - 1)] = 0
    # Share of the run time without kernels: the program spins until the next scheduled call.
    pace: Annotated[float, Field(ge=0, le=MAX_PACE)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetProfile(ProfileTable):
    """A target profile. `metrics`: target values for the whole program, by metric name, in the unit of the metric."""

    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as keys of a [[program]]; `parse_profile` is the inverse."""
        keys: dict[str, Any] = {"name": self.name, "run_time_s": float(self.run_time_s)}
        keys |= {k: float(self.metrics[k]) for k in sorted(self.metrics)}
        keys |= {k: float(getattr(self, k)) for k in ("load_balance", "memory_mib", "most_share")}
        keys |= {k: getattr(self, k) for k in ("threads", "least_kernels", "seed")}
        if self.pace:
            keys["pace"] = float(self.pace)
        for key in ("kernels", "without"):
            if getattr(self, key):
                keys[key] = list(getattr(self, key))
        return keys


def parse_profile(raw: Mapping[str, Any], where: str, metrics: Metrics, others: Collection[str] = ()) -> TargetProfile:
    """Return a target profile from the keys of a table.

    Args:
        raw: the table, from TOML or JSON.
        where: the name of the table in error messages, such as "scenario.toml: program traffic".
        metrics: all metrics (`all_metrics`).
        others: keys that are not part of the profile (copies, cpus, …): ignored, but offered in "did you mean".

    Raises:
        UsageError: one line that names the key, what was found and what is allowed, or the keys that contradict each
            other.
    """
    profile_keys = {f.name for f in fields(ProfileTable)}
    values: dict[str, float] = {}
    for key, value in raw.items():
        if key in metrics and key not in profile_keys:
            values[key] = _target_value(metrics[key], value, f"{where}: {key_text(key)}")
        elif key not in profile_keys and key not in others:
            ratios = (name for name, m in metrics.items() if m.ratio)
            raise UsageError(f"{where}: {unknown_key(key, sorted({*profile_keys, *others, *ratios}))}")
    table = checked(ProfileTable, {k: v for k, v in raw.items() if k in profile_keys}, where)
    profile = TargetProfile(metrics=values, **fields_of(table))
    _check_contradictions(profile, where, metrics)
    return profile


def _target_value(metric: LoadMetric, value: object, where: str) -> float:
    if metric.ratio is None:
        raise UsageError(
            f"{where}: can be reported, not prescribed: {metric.formula[:60]!r} is not a ratio of two sums"
        )
    is_positive = all(f >= 0 for part in metric.ratio for f in part.factors.values())
    limits = Interval(ge=0 if is_positive else -1e18, le=1 if metric.name in _FRACTIONS else 1e18)
    number: Any = Annotated[float, Strict(), limits]
    target: float = checked(number, value, where)
    return target


def _check_contradictions(profile: TargetProfile, where: str, metrics: Metrics) -> None:
    """Raise UsageError for keys that contradict each other for any set of kernels."""
    if profile.load_balance < 1 and profile.threads == 1:
        raise UsageError(
            f"{where}: load_balance = {profile.load_balance:g} contradicts threads = 1: one thread is always balanced"
        )
    if profile.load_balance * profile.threads < 1:
        raise UsageError(
            f"{where}: load_balance = {profile.load_balance:g} contradicts threads = {profile.threads}: "
            f"the mean share is at least {1 / profile.threads:g} of the largest"
        )
    common = sorted(set(profile.kernels) & set(profile.without))
    if common:
        raise UsageError(f"{where}: kernels and without both contain {common[0]}")
    for name, value in sorted(profile.metrics.items()):
        ratio = metrics[name].ratio
        assert ratio is not None
        for other, zero in sorted(profile.metrics.items()):
            other_ratio = metrics[other].ratio
            if (
                zero == 0
                and other != name
                and other_ratio is not None
                and ratio[1].multiple_of(other_ratio[0]) is not None
            ):
                raise UsageError(f"{where}: {name} = {value:g} contradicts {other} = 0: it would be 0 / 0")
