"""What a program is to be like: the keys of a scenario's [[program]] that prescribe behaviour."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.metrics import RESERVED, Metrics
from meshmark.load.variants import found, real, text, whole

DEFAULT_MEMORY_MIB: Final = 2048
LEAST_KERNELS: Final = 20
MOST_SHARE: Final = 0.2
MOST_PACE: Final = 0.9
# Of these the formula can only lie within [0, 1].
_FRACTIONS: Final = ("write_fraction", "system_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prescription:
    """A wish. `metrics` are the prescribed values of metrics by name, in the metric's unit, of the whole program."""

    run_time_s: float  # wall
    metrics: Mapping[str, float] = field(default_factory=dict)
    name: str = "program"
    threads: int = 1
    load_balance: float = 1.0  # mean over largest share of the threads' work
    memory_mib: float = DEFAULT_MEMORY_MIB  # most that the arrays of all its variants take together
    kernels: tuple[str, ...] = ()  # only these; empty: any
    without: tuple[str, ...] = ()
    least_kernels: int = LEAST_KERNELS  # where the wish leaves room for so many
    most_share: float = MOST_SHARE  # of the run time, for one variant, unless the wish needs more
    seed: int = 0
    pace: float = 0.0  # share of the run time that no kernel has: the program waits there for its schedule, spinning

    def to_json(self) -> dict[str, Any]:
        """As the keys of a [[program]]; `parse_prescription` reads it back."""
        out: dict[str, Any] = {"name": self.name, "run_time_s": float(self.run_time_s)}
        out |= {k: float(self.metrics[k]) for k in sorted(self.metrics)}
        out |= {k: float(getattr(self, k)) for k in ("load_balance", "memory_mib", "most_share")}
        out |= {k: getattr(self, k) for k in ("threads", "least_kernels", "seed")}
        if self.pace:
            out["pace"] = float(self.pace)
        for key in ("kernels", "without"):
            if getattr(self, key):
                out[key] = list(getattr(self, key))
        return out


def _names(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or len(value) > 1000:
        raise MeshmarkError(f"{what}: found {found(value)}; allowed is a list of kernels' names")
    return tuple(sorted({text(v, what) for v in value}))


def parse_prescription(
    raw: Mapping[str, Any], where: str, metrics: Metrics, others: Collection[str] = ()
) -> Prescription:
    """A prescription from the keys of a table.

    Args:
        raw: as read from TOML or JSON.
        where: what errors call the table, such as "scenario.toml: program traffic".
        metrics: all that there are (`all_metrics`).
        others: keys that belong to somebody else (copies, cpus, …): skipped here, offered in "did you mean".

    Raises:
        UsageError: one line that names the key, what was found and what is allowed, or the keys that contradict.
    """
    try:
        return _parse(raw, where, metrics, others)
    except UsageError:
        raise
    except MeshmarkError as why:
        raise UsageError(str(why)) from why


def _parse(raw: Mapping[str, Any], where: str, metrics: Metrics, others: Collection[str]) -> Prescription:
    kept: dict[str, Any] = {}
    values: dict[str, float] = {}
    for key, value in raw.items():
        at = f"{where}: {key if str(key).isprintable() and len(str(key)) <= 60 else found(key)}"
        if key == "name":
            kept[key] = text(value, at, 60)
        elif key == "run_time_s":
            kept[key] = real(value, at, 1e-3, 1e6)
        elif key == "threads":
            kept[key] = whole(value, at, 1, 1 << 16)
        elif key == "load_balance":
            kept[key] = real(value, at, 1e-5, 1)
        elif key == "memory_mib":
            kept[key] = real(value, at, 1e-3, 1e9)
        elif key in ("kernels", "without"):
            kept[key] = _names(value, at)
        elif key == "least_kernels":
            kept[key] = whole(value, at, 1, 1000)
        elif key == "most_share":
            kept[key] = real(value, at, 1e-3, 1)
        elif key == "pace":
            kept[key] = real(value, at, 0, MOST_PACE)
        elif key == "seed":
            kept[key] = whole(value, at, 0, (1 << 63) - 1)
        elif key in others:
            continue
        elif key in metrics:
            if metrics[key].ratio is None:
                raise UsageError(
                    f"{at}: can be shown, not prescribed: {metrics[key].formula[:60]!r} is no ratio of two sums"
                )
            values[key] = real(value, at, 0, 1) if key in _FRACTIONS else real(value, at, -1e18, 1e18)
            if values[key] < 0 and all(f >= 0 for part in metrics[key].ratio or () for f in part.factors.values()):
                raise UsageError(f"{at}: found {value}; it cannot be less than 0")
        else:
            allowed = sorted({*RESERVED, "load_balance", *others, *(n for n, m in metrics.items() if m.ratio)})
            near = difflib.get_close_matches(str(key), allowed, 1, 0.5)
            raise UsageError(
                f"{at}: unknown key; " + (f"did you mean {near[0]}?" if near else "allowed are " + ", ".join(allowed))
            )
    if "run_time_s" not in kept:
        raise UsageError(f"{where}: run_time_s: found nothing; allowed is a number of seconds")
    wish = Prescription(metrics=values, **kept)
    _contradictions(wish, where, metrics)
    return wish


def _contradictions(wish: Prescription, where: str, metrics: Metrics) -> None:
    """UsageError for what cannot be whatever the kernels are, by the names of the keys."""
    if wish.load_balance < 1 and wish.threads == 1:
        raise UsageError(
            f"{where}: load_balance = {wish.load_balance:g} contradicts threads = 1: one thread is in balance"
        )
    if wish.load_balance * wish.threads < 1:
        raise UsageError(
            f"{where}: load_balance = {wish.load_balance:g} contradicts threads = {wish.threads}: "
            f"the mean is at least {1 / wish.threads:g} of the largest"
        )
    both = sorted(set(wish.kernels) & set(wish.without))
    if both:
        raise UsageError(f"{where}: kernels and without both name {both[0]}")
    for name, value in sorted(wish.metrics.items()):
        ratio = metrics[name].ratio
        assert ratio is not None
        for other, zero in sorted(wish.metrics.items()):
            base = metrics[other].ratio
            if zero == 0 and other != name and base is not None and ratio[1].times(base[0]) is not None:
                raise UsageError(f"{where}: {name} = {value:g} contradicts {other} = 0: it would be 0 / 0")
