"""Compares two sides: judges each pair of results (`compare.pairing`) by the one rule of `values.verdicts`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from meshmark.compare.kinds import kinds
from meshmark.compare.normalise import Per, normalised
from meshmark.compare.pairing import PAGES, Match, Unpaired, identity, matches, unpaired
from meshmark.compare.sides import Side
from meshmark.describe import descriptions
from meshmark.errors import UsageError, quoted
from meshmark.measure.repetitions import PLATEAU, measured, same_plateaus
from meshmark.store.machines import FACTS
from meshmark.store.record import Record
from meshmark.values.verdicts import MARGIN, Measured, Ratio, Spoken, alike, is_speed, judge, ratio, spoken

Word = Literal[Spoken, "not comparable"]
WORDS: Final[tuple[Word, ...]] = (*get_args(Spoken), "not comparable")
DERIVED: Final = frozenset({"bandwidth_gross"})  # from the samples of another metric, whose ratios it repeats
# How far the result of one run may be from that of the next, where this was not measured. The interval of one process
# misses it: 30 to 80 % of equal results were called different where runs differed by 1 to 3 %.
RUN_TO_RUN: Final = 0.1
ONE_RUN: Final = "one run, so that the variation between runs is unknown"
PUBLISHED: Final = "published without an interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A point on both sides.

    Attributes:
        ratio: B over A; None if they do not compare.
        reason: Why they do not compare, or why no difference can be shown; "" otherwise.
        differ: The conditions in which they differ although they are compared.
        kind: What both measured, if their conditions do not agree: "memory, local, one thread".
        doubtful: Whether the interval of the ratio, if it has one, must not be relied on: a side is flagged, has modes,
            or has too few samples or too wide an interval.
    """

    a: Record
    b: Record
    ratio: Ratio | None
    reason: str = ""
    differ: tuple[str, ...] = ()
    kind: str = ""
    doubtful: bool = False

    @property
    def word(self) -> Word:
        """The verdict about B."""
        if self.ratio is None:
            return "not comparable"
        return spoken(self.ratio.word, self.a.better, self.a.unit)

    @property
    def worse(self) -> bool:
        """Whether B is shown to be worse."""
        return self.a.better != "none" and self.ratio is not None and self.ratio.word == _opposite(self.a.better)


@dataclass(frozen=True, slots=True)
class Mean:
    """The geometric mean of the ratios of a metric, over all pairs that have one, whatever their verdict.

    Attributes:
        interval: Its bounds if the errors of all pairs have the same sign, hence conservative; None if one is unknown
            or doubtful.
        doubtful: The number of doubtful pairs.
        left_out: The number of pairs without a ratio.
    """

    instrument: str
    metric: str
    pairs: int
    value: float
    interval: tuple[float, float] | None
    doubtful: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B beside A.

    Attributes:
        facts: Software, settings and builds that both record and that differ: name, of A, of B.
        only_a: The points of A that have no counterpart.
        per: What values were divided by.
    """

    a: Side
    b: Side
    pairs: Sequence[Pair]
    only_a: Sequence[Unpaired]
    only_b: Sequence[Unpaired]
    facts: Sequence[tuple[str, str, str]]
    margin: float
    per: Per = ""

    def counts(self) -> dict[Word, int]:
        """The number of pairs by their word; those that do not occur are left out."""
        words = [p.word for p in self.pairs]
        return {word: words.count(word) for word in WORDS if word in words}

    def means(self) -> list[Mean]:
        """Geometric means by instrument and metric, in the order of the results; not of metrics without direction."""
        groups: dict[tuple[str, str], list[Pair]] = {}
        for p in self.pairs:
            if p.a.better != "none":
                groups.setdefault((p.a.instrument, p.a.metric), []).append(p)
        means = [_mean(*name, pairs) for name, pairs in groups.items()]
        return [mean for mean in means if mean is not None]

    def worse(self) -> list[Pair]:
        """Pairs whose B is shown to be worse, and by more than the margin."""
        factor = 1 + self.margin
        return [p for p in self.pairs if p.worse and p.ratio and not 1 / factor <= p.ratio.value <= factor]


def _mean(instrument: str, metric: str, pairs: Sequence[Pair]) -> Mean | None:
    """Return the mean of all pairs of a metric; None if no pair has a ratio."""
    ratios = [p.ratio for p in pairs if p.ratio is not None and p.ratio.value > 0]
    doubtful = sum(p.doubtful for p in pairs)
    if not ratios:
        return None

    def over(values: Iterable[float]) -> float:
        return math.exp(math.fsum(map(math.log, values)) / len(ratios))

    intervals = [r.interval for r in ratios if r.interval is not None]
    known = len(intervals) == len(ratios) and not doubtful
    interval = (over(i[0] for i in intervals), over(i[1] for i in intervals)) if known else None
    value = over(r.value for r in ratios)
    return Mean(instrument, metric, len(ratios), value, interval, doubtful, len(pairs) - len(ratios))


def compare(
    a: Side, b: Side, *, margin: float = MARGIN, per: Per = "", instrument: str = "", metric: str = ""
) -> Comparison:
    """Compare two sides.

    Args:
        margin: The smallest relative difference that matters.
        per: See `compare.normalise`.
        instrument: Only its results; "": all.
        metric: Only this one; "": all but those that repeat another.

    Raises:
        UsageError: They have no metric in common, or `per` needs a result that is missing.
    """

    def wanted(r: Record) -> bool:
        return instrument in {"", r.instrument} and (r.metric == metric if metric else r.metric not in DERIVED)

    a, b = (normalised(side, per) for side in (a, b))  # all results, since a frequency may not be wanted
    ones, others = ([r for r in side.points if wanted(r)] for side in (a, b))
    identical = _identical(a, b)
    same = a.machine == b.machine or identical
    if same:
        ones, others = same_plateaus([ones, others])
    of_all = kinds(ones) | kinds(others)
    found = matches(ones, others, same, of_all)
    if identical:  # results are equal to themselves, however uncertain they are
        pairs = [Pair(a=m.a, b=m.b, ratio=Ratio(1.0, (1.0, 1.0), "equal")) for m in found]
    else:
        pairs = [_pair(m, margin) for m in found]
    if not {r.metric for r in ones} & {r.metric for r in others}:
        metrics = [", ".join(sorted({r.metric for r in side})[:6]) or "nothing" for side in (ones, others)]
        raise UsageError(
            f"compare: found no metric in common: {quoted(a.name)} has {metrics[0]}; {quoted(b.name)} has {metrics[1]}",
            "measure on one what the other has, or import output that has it",
        )
    left = unpaired(ones, others, found, of_all)
    return Comparison(
        a=a,
        b=b,
        pairs=pairs,
        only_a=left[0],
        only_b=left[1],
        facts=_facts(a, b),
        margin=margin,
        per=per,
    )


def _identical(a: Side, b: Side) -> bool:
    """Return whether both sides have the same results, in any order, whatever the name of their machine is."""
    if [*a.records] == [*b.records]:
        return True
    if sorted(r.value for r in a.records) != sorted(r.value for r in b.records):
        return False

    def lines(side: Side) -> list[str]:
        of = (r.to_json() | {"machine": ""} if r.machine == side.machine else r.to_json() for r in side.records)
        return sorted(json.dumps(line, sort_keys=True) for line in of)

    return lines(a) == lines(b)


# ------------------------------------------------------------------ verdicts


def _pair(match: Match, margin: float) -> Pair:
    a, b = match.a, match.b
    differ = tuple(sorted(_differing(a, b)))
    if match.differ:
        return Pair(a=a, b=b, ratio=None, reason=match.differ, differ=differ, kind=match.kind)
    if a.unit != b.unit:
        return Pair(a=a, b=b, ratio=None, reason=f"units {a.unit} and {b.unit}", differ=differ)
    if pages := [k for k in PAGES if k in differ]:
        texts = " and ".join(str(r.conditions[pages[0]]) for r in (a, b))
        return Pair(a=a, b=b, ratio=None, reason=f"pages {texts}", differ=differ)
    # Counts, such as 0 errors, are exact and may have no ratio. Times and rates that are equal by chance show nothing,
    # and neither do single values.
    exact = len(a.samples) > 1 and not a.flags | b.flags and not is_speed(a.unit)
    if exact and a.value == b.value and a.samples == b.samples:
        return Pair(a=a, b=b, ratio=Ratio(1.0, (1.0, 1.0), "equal"), differ=differ)
    doubts = {letter: why for letter, r in (("A", a), ("B", b)) if (why := _doubt(r))}
    reason = "; ".join(f"{letter}: {why}" for letter, why in doubts.items())
    doubtful = not {*doubts.values()} <= {PUBLISHED}
    verdict = ratio(_measured(b), _measured(a), margin)
    alone = [letter for letter, r in (("A", a), ("B", b)) if _of_one_run(r)]
    if verdict.interval is not None and alone:
        factor = (1 + RUN_TO_RUN) ** len(alone)
        interval = verdict.interval[0] / factor, verdict.interval[1] * factor
        verdict = Ratio(verdict.value, interval, "inconclusive" if doubts else judge(interval, alike(margin)))
        if verdict.word == "inconclusive" and not doubts:
            reason = "; ".join(f"{letter}: {ONE_RUN}" for letter in alone)
    return Pair(a=a, b=b, ratio=verdict, reason=reason, differ=differ, kind=match.kind, doubtful=doubtful)


def _of_one_run(record: Record) -> bool:
    """Whether the samples are of one process, so that they do not show how much runs of it differ."""
    measured_here = record.source in {"host", "tool"} and record.instrument in descriptions()
    return measured_here and len(record.samples) > 1 and "runs" not in record.conditions


def _measured(record: Record) -> Measured:
    """For a verdict. A model repeats itself exactly, so that its samples bound its value."""
    found = measured(record)
    low, high = sorted(record.ends)
    exact = record.source == "model" and found.bounds is None
    return replace(found, bounds=(low, high)) if exact else found


def _doubt(record: Record) -> str:
    if record.conditions.get("run_modes"):
        return f"{record.conditions['run_modes']} modes"
    return PUBLISHED if record.source == "paper" and record.bounds is None else _measured(record).excluded


def _differing(a: Record, b: Record) -> set[str]:
    """The identity conditions that both have and in which they differ, but for the footprints of a level."""
    one, other = identity(a), identity(b)
    return {k for k in one.keys() & other.keys() if one[k] != other[k]} - {*PLATEAU}


# ------------------------------------------------------------------ what differs


def _facts(a: Side, b: Side) -> list[tuple[str, str, str]]:
    """Software, settings and builds that both sides record and that differ."""
    found = [
        (name.replace("_", " "), a.facts[name], b.facts[name])
        for name in FACTS
        if name != "boot" and name in a.facts and name in b.facts and a.facts[name] != b.facts[name]
    ]
    for name, key in (("build of Meshmark", "build"), ("compiler", "compiler")):
        one, other = ({str(r.provenance[key]) for r in side.points if r.provenance.get(key)} for side in (a, b))
        # Some results state the version only, others also the commit: 0.1.0 and 0.1.0+g1a2b3c4.
        versions = {text.partition("+")[0] for text in one | other if "+" in text}
        one, other = one - versions, other - versions
        if one and other and one != other:
            found.append((name, ", ".join(sorted(one)), ", ".join(sorted(other))))
    return found


def _opposite(better: str) -> str:
    return "higher" if better == "lower" else "lower"


def to_json(c: Comparison) -> list[dict[str, Any]]:
    """One object per pair, result without a counterpart, mean, and difference between the machines, named by `type`."""

    def of(r: Record) -> dict[str, Any]:
        low, high = r.bounds or (None, None)
        return {
            "value": r.value,
            "low": low,
            "high": high,
            "flags": sorted(r.flags),
            "modes": r.conditions.get("run_modes"),
            "conditions": dict(r.conditions),
            **{k: r.provenance[k] for k in ("place", "qualifier", "misprint") if k in r.provenance},
        }

    def bounds(interval: tuple[float, float] | None) -> dict[str, float | None]:
        low, high = interval or (None, None)
        return {"low": low, "high": high}

    sides = {"a": c.a.name, "b": c.b.name}
    out: list[dict[str, Any]] = [
        {"type": "fact", **sides, "name": name, "of_a": one, "of_b": other} for name, one, other in c.facts
    ]
    for p in c.pairs:
        r = p.ratio
        out.append(
            {
                "type": "pair",
                **sides,
                **{k: getattr(p.a, k) for k in ("instrument", "metric", "unit", "better")},
                "of_a": of(p.a),
                "of_b": of(p.b),
                "ratio": r.value if r and math.isfinite(r.value) else None,
                **bounds(r.interval if r else None),
                "verdict": p.word,
                "reason": p.reason,
                "differ": list(p.differ),
                "kind": p.kind,
            }
        )
    for letter, only in (("a", c.only_a), ("b", c.only_b)):
        out += [
            {
                "type": "unpaired",
                **sides,
                **{k: getattr(u.record, k) for k in ("instrument", "metric", "unit", "better")},
                f"of_{letter}": of(u.record),
                "reason": u.reason,
            }
            for u in only
        ]
    for m in c.means():
        mean = {"type": "mean", **sides, "instrument": m.instrument, "metric": m.metric, "pairs": m.pairs}
        left_out = {"doubtful": m.doubtful, "left_out": m.left_out}
        out.append({**mean, "ratio": m.value, **bounds(m.interval), **left_out})
    return out
