"""Recomputes composites of runs and of publications from their rows, and compares them.

A published table gives rounded ratios, so its geometric mean lies between two bounds. A printed composite, which
is itself rounded, does not follow from the rows if it is outside of these bounds: the composite or a row is a misprint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.compare.sides import ResultSide
from meshmark.errors import UsageError
from meshmark.statistics.geometric import GeometricMean, mean_of, over, rounded
from meshmark.statistics.verdicts import Interval
from meshmark.store.record import Record, median

_HINT: Final = "meshmark measure composite FILE measures one; meshmark composite paper:xeon5500 shows a published one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideComposite:
    """A composite of a side.

    Attributes:
        name: Name of the side, and what distinguishes its composites.
        ratios: Ratios of the runs by member; a publication has one ratio per member.
        reference: The reference of the ratios, with its source; "" if the publication does not name it.
        stated: The composite as stored or printed.
        interval: Interval of a stored composite, which includes the spread of the reference.
        decimals: Number of decimals of printed ratios; None if the ratios were measured.
        note: What is known to be wrong with the printed composite.
    """

    name: str
    ratios: Mapping[str, Sequence[float]]
    reference: str
    stated: float
    decimals: int | None
    interval: Interval | None = None
    note: str = ""
    flags: tuple[str, ...] = ()

    @property
    def mean(self) -> GeometricMean:
        """Return the geometric mean of the ratios of all members to the reference, with its interval."""
        return mean_of(self.ratios)

    @property
    def bounds(self) -> Interval | None:
        """Return the bounds of the mean: by rounding if it was published, else the 95 % interval of the runs."""
        if self.decimals is None:
            return self.interval
        return rounded([median(list(r)) for r in self.ratios.values()], self.decimals)

    @property
    def follows(self) -> bool:
        """Return whether the printed composite follows from the rows, within rounding."""
        if self.decimals is None or self.bounds is None:
            return True
        half = 0.5 * 10.0**-self.decimals
        return self.bounds[0] <= self.stated + half and self.stated - half <= self.bounds[1]

    def to_json(self) -> dict[str, Any]:
        """Return the composite as JSON, of type `composite`; ratios and their mean have no unit."""
        return {
            "type": "composite",
            "name": self.name,
            "reference": self.reference,
            "members": {name: median(list(runs)) for name, runs in self.ratios.items()},
            "value": self.mean.value,
            "bounds": self.bounds,
            "bounds_by": "spread of the runs, 95 %" if self.decimals is None else "rounding",
            "stated": self.stated,
            "follows": self.follows,
            "note": self.note,
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeRatio:
    """The ratio of composite `of` to composite `to`.

    Attributes:
        members: Ratio of each member.
        stated: Ratio of the printed composites; None if a composite was measured.
    """

    of: str
    to: str
    value: float
    bounds: Interval | None
    members: Mapping[str, float]
    stated: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the ratio of two composites as JSON, of type `composites`."""
        return {
            "type": "composites",
            "of": self.of,
            "to": self.to,
            "ratio": self.value,
            "bounds": self.bounds,
            "members": dict(self.members),
            "stated": self.stated,
        }


def composites_of(side: ResultSide) -> list[SideComposite]:
    """Return the composites of a side, at least one.

    Raises:
        UsageError: The side has no composite.
    """
    is_published = any(r.source == "paper" for r in side.points)
    composites = _published(side) if is_published else _measured(side)
    if not composites:
        raise UsageError(f"composite: found no composite of {side.name}", _HINT)
    return composites


def _published(side: ResultSide) -> list[SideComposite]:
    groups: dict[str, dict[str, Record]] = {}
    for r in side.points:
        if r.metric == "figure_of_merit" and r.unit == "1" and "ranks" in r.conditions:
            groups.setdefault(str(r.conditions["ranks"]), {})[str(r.conditions["program"])] = r
    composite_by_ranks = {str(r.conditions.get("ranks")): r for r in side.points if r.metric == "composite"}
    return [
        SideComposite(
            name=f"{side.name}, {ranks} ranks",
            ratios={name: r.samples for name, r in rows.items()},
            reference="",
            stated=composite_by_ranks[ranks].value,
            decimals=max(_decimals(r.value) for r in (*rows.values(), composite_by_ranks[ranks])),
            note=str(composite_by_ranks[ranks].provenance.get("misprint", "")),
        )
        for ranks, rows in groups.items()
        if ranks in composite_by_ranks
    ]


def _decimals(value: float) -> int:
    return len(f"{value!r}".partition(".")[2].rstrip("0"))


def _measured(side: ResultSide) -> list[SideComposite]:
    groups: dict[tuple[str, str], dict[str, Record]] = {}
    for r in side.points:
        if r.metric == "ratio" and "composite" in r.conditions:
            key = str(r.conditions["composite"]), _reference(r)
            groups.setdefault(key, {})[str(r.conditions["member"])] = r
    composite_by_key = {
        (str(r.conditions["program"]), _reference(r)): r for r in side.points if r.metric == "composite"
    }
    composites = [
        SideComposite(
            name=f"{side.name}, {key[0]}",
            ratios={name: r.samples for name, r in rows.items()},
            reference=key[1],
            stated=composite_by_key[key].value,
            decimals=None,
            interval=composite_by_key[key].bounds,
            flags=tuple(sorted({f for r in rows.values() for f in r.flags})),
        )
        for key, rows in groups.items()
        if key in composite_by_key  # otherwise a member failed
    ]
    for composite in composites:
        if not math.isclose(composite.mean.value, composite.stated, rel_tol=1e-9):
            raise UsageError(
                f"composite: found members of {composite.name} from several runs; allowed: the name of one run"
            )
    return composites


def _reference(record: Record) -> str:
    return f"{record.conditions.get('reference', '')} ({record.provenance.get('reference_source', '')})"


def compared(a: Sequence[SideComposite], b: Sequence[SideComposite]) -> list[CompositeRatio]:
    """Return the ratio of each composite of B to each composite of A with the same members and the same reference.

    Raises:
        UsageError: There is no such pair.
    """
    comparisons = [_compared(second, first) for first in a for second in b if _comparable(second, first)]
    if not comparisons:
        second, first = b[0], a[0]
        if second.ratios.keys() == first.ratios.keys():
            raise UsageError(
                f"composite: found the references {first.reference} and {second.reference}; allowed: the same"
            )
        unmatched = sorted(second.ratios.keys() ^ first.ratios.keys())
        raise UsageError(f"composite: found {', '.join(unmatched[:3])} in only one of them; allowed: the same members")
    return comparisons


def _comparable(one: SideComposite, other: SideComposite) -> bool:
    return one.ratios.keys() == other.ratios.keys() and one.reference == other.reference


def _compared(one: SideComposite, other: SideComposite) -> CompositeRatio:
    ratio = over(one.mean, other.mean)
    bounds = ratio.interval
    are_printed = one.decimals is not None and other.decimals is not None
    if are_printed and one.bounds and other.bounds and other.bounds[0] > 0:
        bounds = one.bounds[0] / other.bounds[1], one.bounds[1] / other.bounds[0]
    stated = one.stated / other.stated if are_printed else None
    members = {name: median(list(runs)) / median(list(other.ratios[name])) for name, runs in one.ratios.items()}
    return CompositeRatio(of=one.name, to=other.name, value=ratio.value, bounds=bounds, members=members, stated=stated)
