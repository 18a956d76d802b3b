"""Pairs the results of two sides and judges each pair by the one rule of `values.verdicts`.

Results are paired if their instrument, metric and identity conditions agree. Where these name a part of one machine or
a choice that the machine made (the vector instructions, the library, all CPUs, the largest footprint), results that
play the same part are paired too, and the difference is named beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from meshmark.compare.normalise import Per, normalised
from meshmark.compare.sides import Side
from meshmark.errors import UsageError, quoted
from meshmark.measure.repetitions import PLATEAU, measured, point_key, same_plateaus
from meshmark.store.machines import FACTS
from meshmark.store.record import Record
from meshmark.values.verdicts import MARGIN, Measured, Ratio, ratio

Word = Literal["faster", "slower", "higher", "lower", "equal", "inconclusive", "not comparable"]
WORDS: Final[tuple[Word, ...]] = (
    "faster",
    "slower",
    "higher",
    "lower",
    "equal",
    "inconclusive",
    "not comparable",
)
# Choices that a machine or an installation makes, and names of its parts: they may differ in a pair.
CHOICES: Final = frozenset({"isa", "library", "library_kernel", "fft", "mpi", "target", "cpus"})
PAGES: Final = ("pages", "page_bytes")  # results that differ in these are paired only to say why they do not compare
FOOTPRINTS: Final = ("footprint_bytes", "table_bytes")
DERIVED: Final = frozenset({"bandwidth_gross"})  # from the samples of another metric, whose ratios it repeats
PUBLISHED: Final = "published without an interval"
_PER_OCTAVE: Final = 64  # footprints of different machines are the same within 1.1 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A point on both sides.

    Attributes:
        ratio: B over A; None if they do not compare.
        reason: Why they do not compare, or why no difference can be shown; "" otherwise.
        differ: The conditions in which they differ although they are compared.
        doubtful: Whether the interval of the ratio, if it has one, must not be relied on: a side is flagged, has modes,
            or has too few samples or too wide an interval.
    """

    a: Record
    b: Record
    ratio: Ratio | None
    reason: str = ""
    differ: tuple[str, ...] = ()
    doubtful: bool = False

    @property
    def word(self) -> Word:
        """What B is, beside A."""
        if self.ratio is None:
            return "not comparable"
        if self.ratio.word == "tie":
            return "equal"
        if self.ratio.word == "inconclusive":
            return "inconclusive"
        if self.a.better == "none" or not _is_speed(self.a.unit):
            return self.ratio.word
        return "faster" if self.ratio.word == self.a.better else "slower"

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
    only_a: Sequence[Record]
    only_b: Sequence[Record]
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
    # Results of another tool lack conditions of ours, as those of another machine may.
    same = a.machine == b.machine and {r.source == "tool" for r in ones} == {r.source == "tool" for r in others}
    if same:
        ones, others = same_plateaus([ones, others])
    found = _paired(ones, others, same)
    if [*a.records] == [*b.records]:  # the same results, which are equal to themselves, however uncertain they are
        pairs = [Pair(a=x, b=y, ratio=Ratio(1.0, (1.0, 1.0), "tie")) for x, y in found]
    else:
        pairs = [_pair(x, y, margin) for x, y in found]
    with_a, with_b = ({id(pair[i]) for pair in found} for i in (0, 1))
    if not pairs:
        metrics = [", ".join(sorted({r.metric for r in side})[:6]) or "nothing" for side in (ones, others)]
        raise UsageError(
            f"compare: found no result in common: {quoted(a.name)} has {metrics[0]}; {quoted(b.name)} has {metrics[1]}"
        )
    return Comparison(
        a=a,
        b=b,
        pairs=pairs,
        only_a=[r for r in ones if id(r) not in with_a],
        only_b=[r for r in others if id(r) not in with_b],
        facts=_facts(a, b),
        margin=margin,
        per=per,
    )


# ------------------------------------------------------------------ pairs


def _paired(ones: Sequence[Record], others: Sequence[Record], same: bool) -> list[tuple[Record, Record]]:
    """The pairs, in the order of `ones`.

    Args:
        same: Whether both sides are the same machine; only different ones have parts to play.
    """
    others_by_point: dict[str, list[Record]] = {}
    for r in others:
        others_by_point.setdefault(point_key(r), []).append(r)
    # A side may have several results of a point, such as two detections of a level: they are paired in their order.
    found = [(r, equals.pop(0)) for r in ones if (equals := others_by_point.get(point_key(r)))]
    passes = [_parts(ones, others, same)]
    if not same:
        passes.append(_parts(ones, others, same, ("threads",)))
    passes.append(lambda side: {id(r): point_key(r, *PAGES) for r in side})
    for key_of in passes:
        taken, known = {id(r) for pair in found for r in pair}, {(id(x), id(y)) for x, y in found}
        keys = [_by_key(side, key_of(side)) for side in (ones, others)]
        for key in keys[0].keys() & keys[1].keys():
            x, y = keys[0][key], keys[1][key]
            is_new = id(x) not in taken or id(y) not in taken
            if (is_new or x.conditions.get("threads") != y.conditions.get("threads")) and (id(x), id(y)) not in known:
                found.append((x, y))
    order = {id(r): i for i, r in enumerate(ones)}
    return sorted(found, key=lambda pair: order[id(pair[0])])


def _by_key(side: Sequence[Record], keys: Mapping[int, str]) -> dict[str, Record]:
    """The best record of each key."""
    best: dict[str, Record] = {}
    for r in side:
        if (key := keys.get(id(r))) is None:
            continue
        if key not in best or (r.value < best[key].value) == (r.better == "lower"):
            best[key] = r
    return best


def _parts(
    ones: Sequence[Record], others: Sequence[Record], same: bool, counts: Sequence[str] = ()
) -> Callable[[Sequence[Record]], dict[int, str]]:
    """A function that gives each record of a side a key of its part, see `_part`.

    Args:
        counts: Conditions whose maximum is a part: all threads of one machine play the part of all of the other.
    """
    if same:
        return lambda side: {id(r): point_key(r, *CHOICES) for r in side}
    known = [_recorded(side) for side in (ones, others)]
    both = {of: known[0][of] & known[1][of] for of in known[0].keys() & known[1].keys()}

    def keys(side: Sequence[Record]) -> dict[int, str]:
        maxima = {name: _maxima(side, name) for name in (*counts, *FOOTPRINTS)}
        return {id(r): _part(r, maxima, both[_metric(r)]) for r in side if _metric(r) in both}

    return keys


def _metric(record: Record) -> tuple[str, str]:
    return record.instrument, record.metric


def identity(record: Record) -> dict[str, Any]:
    """The identity conditions of a record that it has."""
    _, _, *conditions = json.loads(point_key(record))
    return {k: v for of in conditions for k, v in of.items() if v is not None}


def _recorded(side: Sequence[Record]) -> dict[tuple[str, str], set[str]]:
    """The identity conditions that a side has, by metric. A model lacks some of a host's."""
    found: dict[tuple[str, str], set[str]] = {}
    for r in side:
        found.setdefault(_metric(r), set()).update(identity(r))
    return found


def _maxima(side: Sequence[Record], name: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for r in side:
        if isinstance(value := r.conditions.get(name), int | float):
            found[_metric(r)] = max(found.get(_metric(r), 0), value)
    return found


def _part(record: Record, maxima: Mapping[str, Mapping[tuple[str, str], float]], known: Collection[str]) -> str:
    """Key of the part that a record plays on its machine: its point without the choices of the machine and without
    conditions that the other side does not record. Maxima and the levels of its memory are replaced by what they are.

    Args:
        maxima: By condition and metric.
        known: Conditions that both sides record for this metric.
    """
    # A model with another clock, say, is another machine: keys of its file count though the other side has none.
    point: dict[str, Any] = {k: v for k, v in identity(record).items() if (k in known or "." in k) and k not in CHOICES}
    for name, of in maxima.items():
        if not isinstance(value := point.get(name), int | float) or value <= 1:
            continue
        if name in FOOTPRINTS:
            # Kernels round a footprint to whole arrays, and take whole ones for each of one to three.
            largest = value >= 0.45 * of[_metric(record)]
            point[name] = "largest" if largest else round(_PER_OCTAVE * math.log2(value))
        elif value == of[_metric(record)]:
            point[name] = "all"
    if "level" in point:
        point = {k: v for k, v in point.items() if k not in PLATEAU and (k != "level" or point.get("kind") != "memory")}
    return json.dumps([*_metric(record), point], sort_keys=True)


def _pair(a: Record, b: Record, margin: float) -> Pair:
    differ = tuple(sorted(_differing(a, b)))
    if a.unit != b.unit:
        return Pair(a=a, b=b, ratio=None, reason=f"units {a.unit} and {b.unit}", differ=differ)
    if pages := [k for k in PAGES if k in differ]:
        texts = " and ".join(str(r.conditions[pages[0]]) for r in (a, b))
        return Pair(a=a, b=b, ratio=None, reason=f"pages {texts}", differ=differ)
    # Counts, such as 0 errors, are exact and may have no ratio. Times and rates that are equal by chance show nothing,
    # and neither do single values.
    exact = len(a.samples) > 1 and not a.flags | b.flags and not _is_speed(a.unit)
    if exact and a.value == b.value and a.samples == b.samples:
        return Pair(a=a, b=b, ratio=Ratio(1.0, (1.0, 1.0), "tie"), differ=differ)
    doubts = {letter: why for letter, r in (("A", a), ("B", b)) if (why := _doubt(r))}
    reason = "; ".join(f"{letter}: {why}" for letter, why in doubts.items())
    doubtful = not {*doubts.values()} <= {PUBLISHED}
    verdict = ratio(_measured(b), _measured(a), margin)
    return Pair(a=a, b=b, ratio=verdict, reason=reason, differ=differ, doubtful=doubtful)


def _is_speed(unit: str) -> bool:
    return unit in {"s", "Hz", "cycles"} or unit.endswith(("/s", "/cycle"))


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
    """One object per pair, mean, and difference between the machines; `type` tells which."""

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
            }
        )
    for m in c.means():
        mean = {"type": "mean", **sides, "instrument": m.instrument, "metric": m.metric, "pairs": m.pairs}
        left_out = {"doubtful": m.doubtful, "left_out": m.left_out}
        out.append({**mean, "ratio": m.value, **bounds(m.interval), **left_out})
    return out
