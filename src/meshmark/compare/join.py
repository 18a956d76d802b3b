"""Compares two sides: judges each pair of results (`compare.pairing`) by the rule of `statistics.verdicts`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from meshmark.compare.normalise import Per, normalised
from meshmark.compare.pairing import PAGES, Pairing, ResultMatch, UnpairedResult, identity
from meshmark.compare.sides import ResultSide
from meshmark.describe import find_description
from meshmark.errors import UsageError, quoted
from meshmark.measure.repetitions import PLATEAU, measured, with_common_plateaus
from meshmark.statistics.verdicts import MARGIN, MedianEstimate, Ratio, Spoken, alike, is_speed, judge, ratio, spoken
from meshmark.store.machines import FACTS
from meshmark.store.record import Record

Word = Literal[Spoken, "not comparable"]
WORDS: Final[tuple[Word, ...]] = (*get_args(Spoken), "not comparable")
DERIVED: Final = frozenset({"bandwidth_gross"})  # computed from samples of another metric, so ratios repeat
# Relative difference that is assumed between the results of two runs, if it was not measured. The interval of one
# process does not include it: without it, 30 to 80 % of equal results were judged different where runs differed by
# 1 to 3 %.
RUN_TO_RUN: Final = 0.1
ONE_RUN: Final = "only one run, so the variation between runs is unknown"
COMPILER: Final = "compiler"
PUBLISHED: Final = "published without an interval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPair:
    """A point on both sides.

    Attributes:
        ratio: B over A; None if the results are not comparable.
        reason: Why they are not comparable, or why no difference can be shown; "" otherwise.
        differ: The conditions in which they differ although they are compared.
        kind: What both measured, if their conditions do not agree, such as "memory, local, one thread".
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
        """Return the verdict about B."""
        if self.ratio is None:
            return "not comparable"
        return spoken(self.ratio.word, self.a.better, self.a.unit)

    @property
    def worse(self) -> bool:
        """Return whether B is shown to be worse."""
        return self.a.better != "none" and self.ratio is not None and self.ratio.word == _opposite(self.a.better)


@dataclass(frozen=True, slots=True)
class MetricMean:
    """The geometric mean of the ratios of a metric, over all pairs that have a ratio, whatever their verdict.

    Attributes:
        interval: Geometric means of the lower and of the upper ends of the intervals of all pairs, which is
            conservative; None if an interval is unknown or doubtful.
        doubtful: Number of doubtful pairs.
        left_out: Number of pairs without a ratio above 0.
    """

    instrument: str
    metric: str
    pairs: int
    value: float
    interval: tuple[float, float] | None
    doubtful: int
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultComparison:
    """The comparison of two sides.

    Attributes:
        facts: Software, settings and builds that both sides record and that differ: name, value of A, value of B.
        only_a: The points of A that have no counterpart.
        per: Quantity by which values were divided.
    """

    a: ResultSide
    b: ResultSide
    pairs: Sequence[ResultPair]
    only_a: Sequence[UnpairedResult]
    only_b: Sequence[UnpairedResult]
    facts: Sequence[tuple[str, str, str]]
    margin: float
    per: Per = ""

    def counts(self) -> dict[Word, int]:
        """Return the number of pairs by verdict; verdicts that do not occur are left out."""
        words = [p.word for p in self.pairs]
        return {word: words.count(word) for word in WORDS if word in words}

    def means(self) -> list[MetricMean]:
        """Return geometric means by instrument and metric, in the order of the results.

        Metrics without direction have no mean.
        """
        groups: dict[tuple[str, str], list[ResultPair]] = {}
        for p in self.pairs:
            if p.a.better != "none":
                groups.setdefault((p.a.instrument, p.a.metric), []).append(p)
        means = [_mean(*name, pairs) for name, pairs in groups.items()]
        return [mean for mean in means if mean is not None]

    def worse(self) -> list[ResultPair]:
        """Return the pairs whose B is shown to be worse, and by more than the margin."""
        factor = 1 + self.margin
        return [p for p in self.pairs if p.worse and p.ratio and not 1 / factor <= p.ratio.value <= factor]


def _mean(instrument: str, metric: str, pairs: Sequence[ResultPair]) -> MetricMean | None:
    """Return the mean of all pairs of a metric; None if no pair has a ratio."""
    ratios = [p.ratio for p in pairs if p.ratio is not None and p.ratio.value > 0]
    doubtful = sum(p.doubtful for p in pairs)
    if not ratios:
        return None

    def over(values: Iterable[float]) -> float:
        return math.exp(math.fsum(map(math.log, values)) / len(ratios))

    intervals = [r.interval for r in ratios if r.interval is not None]
    is_known = len(intervals) == len(ratios) and not doubtful
    interval = (over(i[0] for i in intervals), over(i[1] for i in intervals)) if is_known else None
    value = over(r.value for r in ratios)
    return MetricMean(instrument, metric, len(ratios), value, interval, doubtful, len(pairs) - len(ratios))


def compare(
    a: ResultSide, b: ResultSide, *, margin: float = MARGIN, per: Per = "", instrument: str = "", metric: str = ""
) -> ResultComparison:
    """Compare two sides.

    Args:
        a: The side in the denominator of the ratios.
        b: The side in the numerator.
        margin: The smallest relative difference that matters.
        per: See `compare.normalise`.
        instrument: Instrument whose results are compared; "": all.
        metric: Metric that is compared; "": all metrics, except those that repeat another metric.

    Raises:
        UsageError: The sides have no metric in common, or `per` needs a result that is missing.
    """

    def is_selected(r: Record) -> bool:
        return instrument in {"", r.instrument} and (r.metric == metric if metric else r.metric not in DERIVED)

    a, b = (normalised(side, per) for side in (a, b))  # all results, since `per` may need a metric that is not selected
    a_records, b_records = ([r for r in side.points if is_selected(r)] for side in (a, b))
    is_identical = _identical(a, b)
    same_machine = a.machine == b.machine or is_identical
    if same_machine:
        a_records, b_records = with_common_plateaus([a_records, b_records])
    pairing = Pairing(a_records, b_records, same_machine)
    if is_identical:  # results are equal to themselves, however uncertain they are
        pairs = [ResultPair(a=m.a, b=m.b, ratio=Ratio(1.0, (1.0, 1.0), "equal")) for m in pairing.matches]
    else:
        pairs = [_pair(m, margin) for m in pairing.matches]
    if not {r.metric for r in a_records} & {r.metric for r in b_records}:
        metrics = [", ".join(sorted({r.metric for r in side})[:6]) or "nothing" for side in (a_records, b_records)]
        raise UsageError(
            f"compare: found no metric in common: {quoted(a.name)} has {metrics[0]}; {quoted(b.name)} has {metrics[1]}",
            "measure on one side a metric that the other has, or import output that contains it",
        )
    unpaired_results = pairing.unpaired()
    return ResultComparison(
        a=a,
        b=b,
        pairs=pairs,
        only_a=unpaired_results[0],
        only_b=unpaired_results[1],
        facts=_facts(a, b),
        margin=margin,
        per=per,
    )


def _identical(a: ResultSide, b: ResultSide) -> bool:
    """Return whether both sides have the same results, in any order, whatever the name of their machine is."""
    if [*a.records] == [*b.records]:
        return True
    if sorted(r.value for r in a.records) != sorted(r.value for r in b.records):
        return False

    def lines(side: ResultSide) -> list[str]:
        objects = (r.to_json() | {"machine": ""} if r.machine == side.machine else r.to_json() for r in side.records)
        return sorted(json.dumps(line, sort_keys=True) for line in objects)

    return lines(a) == lines(b)


# ------------------------------------------------------------------ verdicts


def _pair(match: ResultMatch, margin: float) -> ResultPair:
    a, b = match.a, match.b
    differing = tuple(sorted(_differing(a, b)))
    if match.differ:
        return ResultPair(a=a, b=b, ratio=None, reason=match.differ, differ=differing, kind=match.kind)
    if a.unit != b.unit:
        return ResultPair(a=a, b=b, ratio=None, reason=f"units {a.unit} and {b.unit}", differ=differing)
    if pages := [k for k in PAGES if k in differing]:
        texts = " and ".join(str(r.conditions[pages[0]]) for r in (a, b))
        return ResultPair(a=a, b=b, ratio=None, reason=f"pages {texts}", differ=differing)
    # Counts, such as 0 errors, are exact and may have no ratio. Times and rates that are equal by chance show nothing,
    # and neither do single values.
    exact = len(a.samples) > 1 and not a.flags | b.flags and not is_speed(a.unit)
    if exact and a.value == b.value and a.samples == b.samples:
        return ResultPair(a=a, b=b, ratio=Ratio(1.0, (1.0, 1.0), "equal"), differ=differing)
    doubts = {letter: doubt for letter, r in (("A", a), ("B", b)) if (doubt := _doubt(r))}
    reason = "; ".join(f"{letter}: {doubt}" for letter, doubt in doubts.items())
    doubtful = not {*doubts.values()} <= {PUBLISHED}
    verdict = ratio(_measured(b), _measured(a), margin)
    one_run_sides = [letter for letter, r in (("A", a), ("B", b)) if _of_one_run(r)]
    if verdict.interval is not None and one_run_sides:
        factor = (1 + RUN_TO_RUN) ** len(one_run_sides)
        interval = verdict.interval[0] / factor, verdict.interval[1] * factor
        verdict = Ratio(verdict.value, interval, "inconclusive" if doubts else judge(interval, alike(margin)))
        if verdict.word == "inconclusive" and not doubts:
            reason = "; ".join(f"{letter}: {ONE_RUN}" for letter in one_run_sides)
    return ResultPair(a=a, b=b, ratio=verdict, reason=reason, differ=differing, kind=match.kind, doubtful=doubtful)


def _of_one_run(record: Record) -> bool:
    """Return whether all samples are from one process, so that they do not show how much runs of it differ."""
    measured_here = record.source in {"host", "tool"} and find_description(record.instrument) is not None
    return measured_here and len(record.samples) > 1 and "runs" not in record.conditions


def _measured(record: Record) -> MedianEstimate:
    """Return a record's median and bounds for a verdict.

    A model repeats itself exactly, so the range of its samples serves as the bounds.
    """
    measurement = measured(record)
    low, high = sorted(record.ends)
    exact = record.source == "model" and measurement.bounds is None
    return replace(measurement, bounds=(low, high)) if exact else measurement


def _doubt(record: Record) -> str:
    if record.conditions.get("run_modes"):
        return f"{record.conditions['run_modes']} modes"
    return PUBLISHED if record.source == "paper" and record.bounds is None else _measured(record).excluded


def _differing(a: Record, b: Record) -> set[str]:
    """Return the conditions that both have and in which they differ, except the footprints of a level.

    They are the identity conditions and the compiler, which is a condition only where its code is measured. Results
    that state no compiler were measured before it was a condition.
    """
    a_values, b_values = ({k: r.conditions.get(k) for k in (*identity(r), COMPILER)} for r in (a, b))
    shared = {k for k in a_values.keys() & b_values.keys() if a_values[k] is not None and b_values[k] is not None}
    return {k for k in shared if a_values[k] != b_values[k]} - {*PLATEAU}


# ------------------------------------------------------------------ what differs


def _facts(a: ResultSide, b: ResultSide) -> list[tuple[str, str, str]]:
    """Return the software, settings and builds that both sides record and that differ."""
    facts = [
        (name.replace("_", " "), a.facts[name], b.facts[name])
        for name in FACTS
        if name != "boot" and name in a.facts and name in b.facts and a.facts[name] != b.facts[name]
    ]
    for name, key in (("build of Meshmark", "build"), ("compiler", "compiler")):
        a_values, b_values = ({str(r.provenance[key]) for r in side.points if r.provenance.get(key)} for side in (a, b))
        # Some results state the version only, others also the commit: 0.1.0 and 0.1.0+g1a2b3c4.
        versions = {text.partition("+")[0] for text in a_values | b_values if "+" in text}
        a_values, b_values = a_values - versions, b_values - versions
        if a_values and b_values and a_values != b_values:
            facts.append((name, ", ".join(sorted(a_values)), ", ".join(sorted(b_values))))
    return facts


def _opposite(better: str) -> str:
    return "higher" if better == "lower" else "lower"


def to_json(c: ResultComparison) -> list[dict[str, Any]]:
    """Return one object per pair, result without a counterpart, mean, and difference between the machines.

    `type` distinguishes them.
    """

    def result_fields(r: Record) -> dict[str, Any]:
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
    objects: list[dict[str, Any]] = [
        {"type": "fact", **sides, "name": name, "of_a": a_value, "of_b": b_value} for name, a_value, b_value in c.facts
    ]
    for p in c.pairs:
        r = p.ratio
        objects.append(
            {
                "type": "pair",
                **sides,
                **{k: getattr(p.a, k) for k in ("instrument", "metric", "unit", "better")},
                "of_a": result_fields(p.a),
                "of_b": result_fields(p.b),
                "ratio": r.value if r and math.isfinite(r.value) else None,
                **bounds(r.interval if r else None),
                "verdict": p.word,
                "reason": p.reason,
                "differ": list(p.differ),
                "kind": p.kind,
            }
        )
    for letter, unpaired_results in (("a", c.only_a), ("b", c.only_b)):
        objects += [
            {
                "type": "unpaired",
                **sides,
                **{k: getattr(u.record, k) for k in ("instrument", "metric", "unit", "better")},
                f"of_{letter}": result_fields(u.record),
                "reason": u.reason,
            }
            for u in unpaired_results
        ]
    for m in c.means():
        mean = {"type": "mean", **sides, "instrument": m.instrument, "metric": m.metric, "pairs": m.pairs}
        counts = {"doubtful": m.doubtful, "left_out": m.left_out}
        objects.append({**mean, "ratio": m.value, **bounds(m.interval), **counts})
    return objects
