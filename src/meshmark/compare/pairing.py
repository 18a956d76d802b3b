"""Pairs results of the same kind from two sides, and explains why other results are not compared.

Results of one machine and source are paired if all conditions that identify them agree. Results of different machines
or sources are paired if they are of one kind (`compare.kinds`) and agree in all conditions that both state: first
results with the same footprint and the same CPU and node numbers, then one pair for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from meshmark.compare.kinds import CPUS, LEVEL, LOAD, MEMORY, ResultKind, grouped, kinds, known_words, resolved, source
from meshmark.measure.repetitions import PLATEAU, group_key, identity_names, key_text, missing_names, values_key
from meshmark.store.record import Record

# Conditions that depend on the machine or its software, or name parts of it. The results of a pair may differ in them.
MAY_DIFFER: Final = frozenset({"isa", "library", "library_kernel", "fft", "mpi", "target", "cpus"})
# Results that differ in these are paired only to say why they cannot be compared.
PAGES: Final = ("pages", "page_bytes")
_FOOTPRINTS: Final = ("footprint_bytes", "table_bytes")
_PER_OCTAVE: Final = 64  # footprints of different machines are rounded to steps of 1.1 % before they are compared
NO_METRIC: Final = "the other side does not have this metric"
# A footprint of at least this share of the largest counts as the largest, because kernels round to whole arrays.
_LARGEST_SHARE: Final = 0.45
_NUMBERS: Final = ("cpu", "from_cpu", "to_cpu", "cpu_node", "from_node", "to_node", "memory_node", "home_node")
# Conditions that the words of a kind stand for.
_WORDED: Final = frozenset(
    {*_NUMBERS, "hops", "home", "same_socket", "thread_buffer_bytes", "kernel", "state", "level"}
)
_WORKERS: Final = ("threads", "processes")
# How a latency was measured. Results that differ only in these are still of one kind; the difference is reported.
_WAYS: Final = frozenset({"pattern", "stride_bytes", "locality_bytes"})
_Key = tuple[Any, ...]
_KeyFunction = Callable[[Record], _Key]


@dataclass(frozen=True, slots=True)
class ResultMatch:
    """Two results that are paired.

    Attributes:
        differ: Why they are of different kinds, and therefore shown but not compared; "" if they are of one kind.
        kind: What both measured, in words; "" if footprints, CPU numbers and node numbers agree.
    """

    a: Record
    b: Record
    differ: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class UnpairedResult:
    """A result without a counterpart, and the reason."""

    record: Record
    reason: str


class Pairing:
    """The results of two sides in pairs.

    Attributes:
        matches: The pairs, in the order of the first side.
    """

    def __init__(self, a_side: Sequence[Record], b_side: Sequence[Record], same_machine: bool) -> None:
        """Pair the results.

        Args:
            a_side: Results of the first side.
            b_side: Results of the second side.
            same_machine: Whether both sides are the same machine, so that all conditions have the same meaning.
        """
        self._sides = a_side, b_side
        pairs: list[ResultMatch] = []
        by_source = [grouped(side, source) for side in self._sides]
        for a_source, a_records in by_source[0].items():
            for b_source, b_records in by_source[1].items():
                if a_source == b_source and same_machine:
                    pairs += _of_one_machine(a_records, b_records)
                else:
                    pairs += _SourcePairing(a_records, b_records, self._kinds).matches()
        order = {id(r): i for i, r in enumerate(a_side)}
        self.matches: Final = sorted(pairs, key=lambda m: order[id(m.a)])

    @cached_property
    def _kinds(self) -> Mapping[int, ResultKind]:
        a_side, b_side = self._sides
        return kinds(a_side) | kinds(b_side)

    def unpaired(self) -> list[list[UnpairedResult]]:
        """Return the results of each side that are in no pair."""
        a_side, b_side = self._sides
        paired_ids = {id(r) for m in self.matches for r in (m.a, m.b)}
        if _are_all_in(paired_ids, a_side, b_side):
            return [[], []]
        return [
            self._side_unpaired(a_side, b_side, "B", paired_ids),
            self._side_unpaired(b_side, a_side, "A", paired_ids),
        ]

    def _side_unpaired(
        self, side: Sequence[Record], other_side: Sequence[Record], letter: str, paired_ids: AbstractSet[int]
    ) -> list[UnpairedResult]:
        reasons = {m: _OtherSide(records, self._kinds, letter) for m, records in grouped(other_side, _metric).items()}
        compared_kinds = {(_metric(r), self._kinds[id(r)]) for r in side if id(r) in paired_ids}

        def reason(r: Record) -> str:
            metric, kind = _metric(r), self._kinds[id(r)]
            if metric not in reasons:
                return NO_METRIC
            if text := reasons[metric].reason(r, kind):
                return text
            if (metric, kind) in compared_kinds:
                return "another result of this kind is compared"
            return f"no result of {letter} has all conditions of this result"

        return [UnpairedResult(r, reason(r)) for r in side if id(r) not in paired_ids]


def _are_all_in(ids: AbstractSet[int], *sides: Sequence[Record]) -> bool:
    return all(id(r) in ids for side in sides for r in side)


def identity(record: Record) -> dict[str, Any]:
    """Return the identity conditions that a record has."""
    return {name: record.conditions[name] for name in identity_names(record)}


def _metric(record: Record) -> tuple[str, str]:
    return record.instrument, record.metric


# ------------------------------------------------------------------ one machine


def _of_one_machine(a_side: Sequence[Record], b_side: Sequence[Record]) -> list[ResultMatch]:
    pairs = [*_equal(a_side, b_side, group_key)]
    for ignored in (MAY_DIFFER, PAGES):
        paired_ids = {id(r) for m in pairs for r in (m.a, m.b)}
        if _are_all_in(paired_ids, a_side, b_side):
            break
        keys = [{group_key(r, *ignored): r for r in _ranked(side)} for side in (a_side, b_side)]
        candidates = [(keys[0][key], keys[1][key]) for key in keys[0] if key in keys[1]]
        pairs += [ResultMatch(x, y) for x, y in candidates if id(x) not in paired_ids or id(y) not in paired_ids]
    return pairs


def _equal(a_side: Sequence[Record], b_side: Sequence[Record], key: Callable[[Record], _Key]) -> Iterator[ResultMatch]:
    """Yield pairs of results with the same key.

    Several results of one point, such as two detections of a level, are paired in their order.
    """
    by_point = grouped(b_side, key)
    for r in a_side:
        if counterparts := by_point.get(key(r)):
            yield ResultMatch(r, counterparts.pop(0))


def _ranked(side: Iterable[Record]) -> list[Record]:
    """Return the records in an order in which the record that represents the others comes last.

    It has the largest footprint, a pattern other than "stride", the lowest CPU and node numbers, and the best value.
    """
    return sorted(side, key=_rank, reverse=True)


def _rank(r: Record) -> tuple[Any, ...]:
    c = r.conditions
    size = max((_size(r, name) for name in _FOOTPRINTS if name in c), default=0.0)
    numbers = [n if isinstance(n := c.get(name), int) else -1 for name in _NUMBERS]
    steps = round(_PER_OCTAVE * math.log2(size)) if size else 0
    return -steps, c.get("pattern") == "stride", numbers, r.value if r.better == "lower" else -r.value


def _size(record: Record, name: str) -> float:
    """Return a footprint in bytes; 0 if it is unknown."""
    size = record.conditions.get(name)
    return float(size) if isinstance(size, int | float) and 0 < size < math.inf else 0.0


# ------------------------------------------------------------------ machines and sources that differ


@dataclass(frozen=True, slots=True)
class _PairingRule:
    """A way to pair results.

    Attributes:
        alike: Whether footprints, CPU numbers and node numbers must agree; otherwise, each kind has one pair.
        by_part: Whether workers must fill the same part of the machine; otherwise, their counts must agree.
    """

    alike: bool
    by_part: bool


_PASSES: Final = [_PairingRule(alike, by_part) for alike in (True, False) for by_part in (False, True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """The metric, the kind and the names of conditions that several results of one side share.

    Attributes:
        metric: Instrument and metric.
        words: The word of each aspect of the kind; "" where it is unknown.
        names: `identity_names` of the results.
        missing: Names that the description of their instrument has, and the results do not.
    """

    metric: tuple[str, str]
    kind: ResultKind
    words: Mapping[str, str]
    names: tuple[str, ...]
    missing: tuple[str, ...]


class _SourcePairing:
    """Pairs the results of two sides, each of one source, on different machines or of different sources."""

    def __init__(
        self, a_side: Sequence[Record], b_side: Sequence[Record], kind_by_id: Mapping[int, ResultKind]
    ) -> None:
        self._same_source = source(a_side[0]) == source(b_side[0])
        groups = [grouped(side, _metric) for side in (a_side, b_side)]
        self._groups = {m: (groups[0][m], groups[1][m]) for m in groups[0] if m in groups[1]}
        self._ranked = {m: [_ranked(records) for records in sides] for m, sides in self._groups.items()}
        self._shapes: dict[int, _Shape] = {}
        for metric, sides in self._groups.items():
            for records, other_records in (sides, sides[::-1]):
                other_words = known_words(kind_by_id[id(r)] for r in other_records)
                shapes: dict[tuple[Any, ...], _Shape] = {}
                for r in records:
                    content = kind, names = kind_by_id[id(r)], identity_names(r)
                    if (shape := shapes.get(content)) is None:
                        words = resolved(kind.words, other_words)
                        shape = shapes[content] = _Shape(metric, kind, words, names, missing_names(r))
                    self._shapes[id(r)] = shape
        self._largest = [_largest(side) for side in (a_side, b_side)]
        self._found: list[ResultMatch] = []
        self._known: set[tuple[int, int]] = set()
        self._taken: dict[bool, set[int]] = {False: set(), True: set()}  # by `by_part`

    def matches(self) -> list[ResultMatch]:
        for sides in self._groups.values():
            for m in _equal(*sides, self._identity):
                self._add(m.a, m.b, None)
        for metric in self._groups:
            for rule in _PASSES:
                self._pass(metric, rule)
        for ranked_sides in self._ranked.values():
            by_key = [{self._identity(r, PAGES): r for r in records} for records in ranked_sides]
            paired_ids = self._taken[False] | self._taken[True]
            for key in by_key[0].keys() & by_key[1].keys():
                if paired_ids.isdisjoint({id(by_key[0][key]), id(by_key[1][key])}):
                    self._add(by_key[0][key], by_key[1][key], None)
        return self._found

    def _identity(self, r: Record, without: Collection[str] = ()) -> _Key:
        """Return a key that is equal for results of a metric whose identity conditions are equal."""
        shape = self._shapes[id(r)]
        missing = tuple([name for name in shape.missing if name not in without])
        return missing, *values_key(r, shape.names, without)

    def _pass(self, metric: tuple[str, str], how: _PairingRule) -> None:
        """Pair the remaining results of a metric by the conditions that both state."""
        paired_ids = self._taken[how.by_part]
        paired_records = (
            [] if how.alike else [m.a for m in self._found if _metric(m.a) == metric and id(m.a) in paired_ids]
        )
        ranked_by_names = [
            grouped((r for r in records if id(r) not in paired_ids), lambda r: self._shapes[id(r)].names)
            for records in self._ranked[metric]
        ]
        # Names come in the order of the results, because a result may have counterparts with several.
        names_in_order = [
            dict.fromkeys(self._shapes[id(r)].names for r in records if id(r) not in paired_ids)
            for records in self._groups[metric]
        ]
        for names_a in names_in_order[0]:
            for names_b in names_in_order[1]:
                both = {*names_a} & {*names_b}
                by_key = [
                    self._by_key(side, both, how, ranked_by_names[side][names])
                    for side, names in enumerate((names_a, names_b))
                ]
                # If equal footprints of a kind are compared, the kind needs no pair that represents it.
                used_keys = self._by_key(0, both, how, paired_records).keys()
                for key in by_key[0].keys() & by_key[1].keys() - used_keys:
                    x, y = by_key[0][key], by_key[1][key]
                    if paired_ids.isdisjoint({id(x), id(y)}):
                        self._add(x, y, how)

    def _by_key(
        self, side: int, both: AbstractSet[str], how: _PairingRule, records: Iterable[Record]
    ) -> dict[_Key, Record]:
        """Return the last record of each key, without records that cannot be paired in this way."""
        functions: dict[_Shape, _KeyFunction | None] = {}
        record_by_key: dict[_Key, Record] = {}
        for r in records:
            shape = self._shapes[id(r)]
            if shape not in functions:
                functions[shape] = self._key_function(side, both, how, shape)
            if (function := functions[shape]) is not None:
                record_by_key[function(r)] = r
        return record_by_key

    def _key_function(self, side: int, both: AbstractSet[str], how: _PairingRule, shape: _Shape) -> _KeyFunction | None:
        """Return the function for the keys by which records are paired; None if they cannot be paired in this way."""
        kind, words = shape.kind, shape.words
        # Names with a dot are settings of a model. They must agree even if the other side lacks them, because a model
        # with another clock is another machine.
        names = {k for k in shape.names if k in both or "." in k} - MAY_DIFFER
        fixed: dict[str, Any] = {}
        if kind.workers is None and how.by_part:
            return None
        if kind.workers is not None:
            fixed["workers"] = kind.workers.part if how.by_part else kind.workers.count
            if not fixed["workers"]:
                return None
            names -= {*_WORKERS}
        if words:
            if not how.alike and "" in words.values():
                return None
            places = MEMORY in words or CPUS in words
            names -= _WORDED - {*_NUMBERS} if how.alike or not places else _WORDED | _WAYS
            fixed |= {f"its {k}": v for k, v in words.items() if k != LEVEL}
        elif not how.alike:
            return None
        sizes = tuple(name for name in _FOOTPRINTS if name in names)
        names -= {*sizes}
        if LEVEL in words and not (how.alike and sizes):
            if not words[LEVEL]:
                return None
            sizes, fixed["its level"] = (), words[LEVEL]
        largest = {} if LEVEL in words else self._largest[side]
        of_level = shape.metric[1].startswith("level_")
        if of_level:
            names -= {*PLATEAU}
        fixed_text, shown_names = key_text(fixed), tuple(sorted(names))

        def key(r: Record) -> _Key:
            c, shown = r.conditions, shown_names
            if of_level and "kind" in names and c["kind"] == "memory":
                # Memory may be the fourth level of one machine, and the third of another.
                shown = tuple(name for name in shown if name != "level")
            size_texts = [_size_text(_size(r, name), largest.get((shape.metric, name))) for name in sizes]
            return fixed_text, shown, tuple([c[name] for name in shown]), sizes, *size_texts

        return key

    def _add(self, x: Record, y: Record, how: _PairingRule | None) -> None:
        """Add a pair, unless it is unknown whether both are of one kind.

        Args:
            x: Result of the first side.
            y: Result of the second side.
            how: The pass that found the pair; None if conditions agree, perhaps except for pages.
        """
        by_part = how is not None and how.by_part
        if (id(x), id(y)) in self._known:
            return
        x_words, y_words = self._shapes[id(x)].words, self._shapes[id(y)].words
        difference = ""
        for aspect in x_words.keys() & y_words.keys():
            if x_words[aspect] and y_words[aspect]:
                difference = difference or (
                    f"{x_words[aspect]} and {y_words[aspect]}" if x_words[aspect] != y_words[aspect] else ""
                )
            elif not (self._same_source and _conditions_suffice(x, aspect)):
                return
        kind = "" if how is None or how.alike else self._kind_text(x, by_part)
        self._found.append(ResultMatch(x, y, difference, kind))
        self._known.add((id(x), id(y)))
        workers = [self._shapes[id(r)].kind.workers for r in (x, y)]
        counts = {w.count for w in workers if w is not None}
        parts = {w.part for w in workers if w is not None}
        # A result of 2 threads on a machine with 2 CPUs may be in two pairs: by its count, and as all of its machine.
        if not by_part or None in counts:
            self._taken[False] |= {id(x), id(y)}
        if by_part or len(parts) < 2:
            self._taken[True] |= {id(x), id(y)}

    def _kind_text(self, r: Record, by_part: bool) -> str:
        """Return the kind in words, such as `memory, local, all CPUs of the machine`."""
        shape = self._shapes[id(r)]
        words = [word for aspect, word in shape.words.items() if word and aspect != "home"]
        w = shape.kind.workers
        return ", ".join([*words, *([_workers_text(None if by_part else w.count, w.part)] if w is not None else [])])


def _size_text(size: float, largest: float | None) -> str:
    """Return a key that is equal for footprints in one step of 1.1 %, and for all footprints near `largest`."""
    if largest is not None and size >= _LARGEST_SHARE * largest:
        return "largest"
    return str(round(_PER_OCTAVE * math.log2(size))) if size > 0 else ""


def _conditions_suffice(record: Record, aspect: str) -> bool:
    """Return whether results of one source with the same conditions are of one kind, although no condition states it.

    CPU numbers have a different meaning on each machine, except in models and publications, which number CPUs alike.
    """
    return aspect != CPUS or record.source in {"model", "paper"}


def _largest(side: Sequence[Record]) -> dict[tuple[tuple[str, str], str], float]:
    size_by_name: dict[tuple[tuple[str, str], str], float] = {}
    for r in side:
        for name in _FOOTPRINTS:
            if name in r.conditions:
                key = _metric(r), name
                size_by_name[key] = max(size_by_name.get(key, 0.0), _size(r, name))
    return size_by_name


# ------------------------------------------------------------------ reasons


class _OtherSide:
    """The results of a metric of one side; explains why a result of the other side has no counterpart among them."""

    def __init__(self, records: Sequence[Record], kind_by_id: Mapping[int, ResultKind], letter: str) -> None:
        record_kinds = {kind_by_id[id(r)] for r in records}
        self._letter, self._known = letter, known_words(record_kinds)
        self._words: dict[str, set[str]] = {}
        for kind in record_kinds:
            for aspect, words in kind.words.items():
                self._words.setdefault(aspect, set()).update({" or ".join(sorted(words))} - {""})
        workers = {k.workers for k in record_kinds if k.workers is not None}
        self._counts, self._parts = {w.count for w in workers} - {None}, {w.part for w in workers} - {""}
        self._values: dict[str, dict[str, Any]] = {}
        for r in records:
            for name in identity_names(r):
                if name not in _IRRELEVANT:
                    value = r.conditions[name]
                    self._values.setdefault(name, {})[str(value)] = value
        self._kind_reasons: dict[ResultKind, str] = {}

    def reason(self, record: Record, kind: ResultKind) -> str:
        """Return the first aspect, number of workers or condition that no result here has.

        It is "" if each of them occurs here, although perhaps not all in one result.
        """
        if kind not in self._kind_reasons:
            self._kind_reasons[kind] = self._kind_reason(kind)
        if text := self._kind_reasons[kind]:
            return text
        for name in identity_names(record):
            if name in self._values and str(record.conditions[name]) not in self._values[name]:
                values = _listed(self._values[name].values(), ", ")
                return f"{self._letter} has it with different values of {name.replace('_', ' ')}: {values}"
        return ""

    def _kind_reason(self, kind: ResultKind) -> str:
        words = resolved(kind.words, self._known)
        if unknown_aspects := [aspect for aspect, word in words.items() if not word]:
            return f"the {_ASPECTS.get(unknown_aspects[0], unknown_aspects[0])} is not known"
        for aspect, word in words.items():
            side_words = self._words.get(aspect, set())
            if word not in side_words and aspect == LOAD:
                return f"{self._letter} has no such load"
            if not side_words:
                return f"the {_ASPECTS.get(aspect, aspect)} of {self._letter} is not known"
            if word not in side_words:
                return (
                    f"the {_ASPECTS.get(aspect, aspect)} is {word}; {self._letter} has {_listed(side_words, ' and ')}"
                )
        workers = kind.workers
        if workers is not None and workers.count not in self._counts and workers.part not in self._parts:
            return f"{self._letter} has no result with the same number of threads or processes"
        return ""


def _listed(values: Collection[Any], separator: str) -> str:
    """Return the first three values in their order, as a text."""
    first = sorted(values, key=lambda v: (isinstance(v, str), v))[:3]
    return separator.join(map(str, first)) + (f"{separator}…" if len(values) > 3 else "")


_IRRELEVANT: Final = frozenset({*_WORDED, *_WORKERS, *_FOOTPRINTS, *MAY_DIFFER, *_WAYS})
_ASPECTS: Final = {
    MEMORY: "place of the memory",
    CPUS: "place of the CPUs",
    "home": "home of the cache line",
    "state": "state of the cache line",
    "hosts": "number of hosts",
}


def _workers_text(count: int | None, part: str) -> str:
    if count is None:
        return f"{part} ranks" if part.startswith("each of") else f"all CPUs of the {part}"
    return "one thread or process" if count == 1 else f"{count} threads or processes"
