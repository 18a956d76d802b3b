"""Composites of runs and of publications: recomputed from their rows, and compared.

A published table gives rounded ratios, so its geometric mean lies between two bounds. A printed composite outside of
them, itself rounded, does not follow from the rows: it is a misprint of one or the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.compare.sides import Side
from meshmark.errors import UsageError
from meshmark.store.record import Record, median
from meshmark.values.geometric import GeometricMean, mean_of, over, rounded
from meshmark.values.verdicts import Interval

_NONE: Final = "meshmark measure composite FILE measures one; meshmark composite paper:xeon5500 shows a published one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """A composite as it was found.

    Attributes:
        name: Of the side, and what tells its composites apart.
        ratios: Ratios of the runs by member; one each in a publication.
        reference: What was divided by, with its source; "" if the publication does not name it.
        stated: The composite as stored or printed.
        interval: Of a stored one, with the spread of the reference.
        decimals: Of printed ratios; None of measured ones.
        note: What is known to be wrong with the printed one.
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
        return mean_of(self.ratios)

    @property
    def bounds(self) -> Interval | None:
        """Of the mean: by rounding if it was published, else the 95 % interval from the spread of the runs."""
        if self.decimals is None:
            return self.interval
        return rounded([median(list(r)) for r in self.ratios.values()], self.decimals)

    @property
    def follows(self) -> bool:
        """Whether the printed composite follows from the rows, within rounding."""
        if self.decimals is None or self.bounds is None:
            return True
        half = 0.5 * 10.0**-self.decimals
        return self.bounds[0] <= self.stated + half and self.stated - half <= self.bounds[1]

    def to_json(self) -> dict[str, Any]:
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
class Compared:
    """The second over the first.

    Attributes:
        members: Ratio of each member.
        stated: By the printed composites; None if one was measured.
    """

    of: str
    to: str
    value: float
    bounds: Interval | None
    members: Mapping[str, float]
    stated: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "type": "composites",
            "of": self.of,
            "to": self.to,
            "ratio": self.value,
            "bounds": self.bounds,
            "members": dict(self.members),
            "stated": self.stated,
        }


def composites_of(side: Side) -> list[Composite]:
    """The composites of a side, at least one.

    Raises:
        UsageError: It has none.
    """
    paper = any(r.source == "paper" for r in side.points)
    found = _published(side) if paper else _measured(side)
    if not found:
        raise UsageError(f"composite: found none of {side.name}", _NONE)
    return found


def _published(side: Side) -> list[Composite]:
    groups: dict[str, dict[str, Record]] = {}
    for r in side.points:
        if r.metric == "figure_of_merit" and r.unit == "1" and "ranks" in r.conditions:
            groups.setdefault(str(r.conditions["ranks"]), {})[str(r.conditions["program"])] = r
    printed = {str(r.conditions.get("ranks")): r for r in side.points if r.metric == "composite"}
    return [
        Composite(
            name=f"{side.name}, {ranks} ranks",
            ratios={name: r.samples for name, r in rows.items()},
            reference="",
            stated=printed[ranks].value,
            decimals=max(_decimals(r.value) for r in (*rows.values(), printed[ranks])),
            note=str(printed[ranks].provenance.get("misprint", "")),
        )
        for ranks, rows in groups.items()
        if ranks in printed
    ]


def _decimals(value: float) -> int:
    return len(f"{value!r}".partition(".")[2].rstrip("0"))


def _measured(side: Side) -> list[Composite]:
    groups: dict[tuple[str, str], dict[str, Record]] = {}
    for r in side.points:
        if r.metric == "ratio" and "composite" in r.conditions:
            key = str(r.conditions["composite"]), _reference(r)
            groups.setdefault(key, {})[str(r.conditions["member"])] = r
    stated = {(str(r.conditions["program"]), _reference(r)): r for r in side.points if r.metric == "composite"}
    found = [
        Composite(
            name=f"{side.name}, {key[0]}",
            ratios={name: r.samples for name, r in rows.items()},
            reference=key[1],
            stated=stated[key].value,
            decimals=None,
            interval=stated[key].bounds,
            flags=tuple(sorted({f for r in rows.values() for f in r.flags})),
        )
        for key, rows in groups.items()
        if key in stated  # otherwise a member failed
    ]
    for one in found:
        if not math.isclose(one.mean.value, one.stated, rel_tol=1e-9):
            raise UsageError(f"composite: found members of {one.name} from several runs; allowed: the name of one run")
    return found


def _reference(record: Record) -> str:
    return f"{record.conditions.get('reference', '')} ({record.provenance.get('reference_source', '')})"


def compared(a: Sequence[Composite], b: Sequence[Composite]) -> list[Compared]:
    """Each composite of B over each of A that has the same members and the same reference.

    Raises:
        UsageError: None of them have.
    """
    made = [_compared(one, other) for other in a for one in b if _comparable(one, other)]
    if not made:
        one, other = b[0], a[0]
        if one.ratios.keys() == other.ratios.keys():
            raise UsageError(
                f"composite: found the references {other.reference} and {one.reference}; allowed: the same"
            )
        only = sorted(one.ratios.keys() ^ other.ratios.keys())
        raise UsageError(f"composite: found {', '.join(only[:3])} in only one of them; allowed: the same members")
    return made


def _comparable(one: Composite, other: Composite) -> bool:
    return one.ratios.keys() == other.ratios.keys() and one.reference == other.reference


def _compared(one: Composite, other: Composite) -> Compared:
    ratio = over(one.mean, other.mean)
    bounds = ratio.interval
    printed = one.decimals is not None and other.decimals is not None
    if printed and one.bounds and other.bounds and other.bounds[0] > 0:
        bounds = one.bounds[0] / other.bounds[1], one.bounds[1] / other.bounds[0]
    stated = one.stated / other.stated if printed else None
    members = {name: median(list(runs)) / median(list(other.ratios[name])) for name, runs in one.ratios.items()}
    return Compared(of=one.name, to=other.name, value=ratio.value, bounds=bounds, members=members, stated=stated)
