"""Pairs results of the same kind from two sides, and explains why other results are not compared.

Results of one machine and source are paired if all conditions that identify them agree. Results of different machines
or sources are paired if they are of one kind (`compare.kinds`) and agree in all conditions that both state: first
results with the same footprint and the same CPU and node numbers, then one pair for each kind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from meshmark.compare.kinds import CPUS, LEVEL, LOAD, MEMORY, ResultKind, grouped, kinds, known_words, resolved, source
from meshmark.measure.repetitions import PLATEAU, key_text, point, point_key
from meshmark.store.record import Record

# Conditions that depend on the machine or its software, or name parts of it. The results of a pair may differ in them.
MAY_DIFFER: Final = frozenset({"isa", "library", "library_kernel", "fft", "mpi", "target", "cpus"})
# Results that differ in these are paired only to say why they cannot be compared.
PAGES: Final = ("pages", "page_bytes")
_FOOTPRINTS: Final = ("footprint_bytes", "table_bytes")
_PER_OCTAVE: Final = 64  # footprints of different machines count as the same if they differ by at most 1.1 %
NO_METRIC: Final = "the other side does not have this metric"
# A footprint of at least this share of the largest counts as the largest, because kernels round to whole arrays.
_LARGEST_SHARE: Final = 0.45
_NUMBERS: Final = ("cpu", "from_cpu", "to_cpu", "cpu_node", "from_node", "to_node", "memory_node", "home_node")
# Conditions that the words of a kind stand for.
_WORDED: Final = frozenset(
    {*_NUMBERS, "hops", "home", "same_socket", "thread_buffer_bytes", "kernel", "state", "level"}
)
_WORKERS: Final = ("threads", "processes")
# How a latency was measured. Results that differ in these are of one kind; the difference is named.
_WAYS: Final = frozenset({"pattern", "stride_bytes", "locality_bytes"})
Key = str | None


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


def matches(
    a_side: Sequence[Record],
    b_side: Sequence[Record],
    same_machine: bool,
    kind_by_id: Mapping[int, ResultKind] | None = None,
) -> list[ResultMatch]:
    """Return the pairs, in the order of `a_side`.

    Args:
        a_side: Results of the first side.
        b_side: Results of the second side.
        same_machine: Whether both sides are the same machine, so that all conditions have the same meaning.
        kind_by_id: The kinds of the results of both sides, by `id()` of the record; None to determine them here.
    """
    pairs: list[ResultMatch] = []
    by_source = [grouped(side, source) for side in (a_side, b_side)]
    for a_source, a_records in by_source[0].items():
        for b_source, b_records in by_source[1].items():
            if a_source == b_source and same_machine:
                pairs += _of_one_machine(a_records, b_records)
            else:
                kind_by_id = kind_by_id or kinds(a_side) | kinds(b_side)
                pairs += _Pairing(a_records, b_records, kind_by_id).matches()
    order = {id(r): i for i, r in enumerate(a_side)}
    return sorted(pairs, key=lambda m: order[id(m.a)])


def unpaired(
    a_side: Sequence[Record],
    b_side: Sequence[Record],
    matches: Sequence[ResultMatch],
    kind_by_id: Mapping[int, ResultKind] | None = None,
) -> list[list[UnpairedResult]]:
    """Return the results of each side that are in no pair.

    Args:
        a_side: Results of the first side.
        b_side: Results of the second side.
        matches: Their pairs, as `matches` returns them.
        kind_by_id: The kinds of the results of both sides, by `id()` of the record; None to determine them here.
    """
    paired = {id(r) for m in matches for r in (m.a, m.b)}
    if _are_all_in(paired, a_side, b_side):
        return [[], []]
    kind_by_id = kind_by_id or kinds(a_side) | kinds(b_side)

    def side_unpaired(side: Sequence[Record], other_side: Sequence[Record], letter: str) -> list[UnpairedResult]:
        reasons = {m: _OtherSide(records, kind_by_id, letter) for m, records in grouped(other_side, _metric).items()}
        compared_kinds = {_kind_key(r, kind_by_id) for r in side if id(r) in paired}

        def reason(r: Record) -> str:
            if _metric(r) not in reasons:
                return NO_METRIC
            if text := reasons[_metric(r)].reason(r, kind_by_id[id(r)]):
                return text
            if _kind_key(r, kind_by_id) in compared_kinds:
                return "another result of this kind is compared"
            return f"no result of {letter} has all conditions of this result"

        return [UnpairedResult(r, reason(r)) for r in side if id(r) not in paired]

    return [side_unpaired(a_side, b_side, "B"), side_unpaired(b_side, a_side, "A")]


def _are_all_in(ids: AbstractSet[int], *sides: Sequence[Record]) -> bool:
    return all(id(r) in ids for side in sides for r in side)


def identity(record: Record) -> dict[str, Any]:
    """Return the identity conditions that a record has."""
    _, *conditions = point(record)
    return {k: v for part in conditions for k, v in part.items() if v is not None}


def _metric(record: Record) -> tuple[str, str]:
    return record.instrument, record.metric


# ------------------------------------------------------------------ one machine


def _of_one_machine(a_side: Sequence[Record], b_side: Sequence[Record]) -> list[ResultMatch]:
    pairs = [*_equal(a_side, b_side)]
    for ignored in (MAY_DIFFER, PAGES):
        paired_ids = {id(r) for m in pairs for r in (m.a, m.b)}
        if _are_all_in(paired_ids, a_side, b_side):
            break
        keys = [{point_key(r, *ignored): r for r in _ranked(side)} for side in (a_side, b_side)]
        candidates = [(keys[0][key], keys[1][key]) for key in keys[0] if key in keys[1]]
        pairs += [ResultMatch(x, y) for x, y in candidates if id(x) not in paired_ids or id(y) not in paired_ids]
    return pairs


def _equal(a_side: Sequence[Record], b_side: Sequence[Record]) -> Iterator[ResultMatch]:
    """Yield pairs of results whose identity is the same.

    Several results of one point, such as two detections of a level, are paired in their order.
    """
    by_point = grouped(b_side, point_key)
    for r in a_side:
        if counterparts := by_point.get(point_key(r)):
            yield ResultMatch(r, counterparts.pop(0))


def _ranked(side: Iterable[Record]) -> list[Record]:
    """Return the records in an order in which the record that represents the others comes last.

    It has the largest footprint, another pattern than "stride", the lowest CPU and node numbers, and the best value.
    """
    return sorted(side, key=_rank, reverse=True)


def _rank(r: Record) -> tuple[Any, ...]:
    size = max(_size(r, name) for name in _FOOTPRINTS)
    numbers = [n if isinstance(n := r.conditions.get(name), int) else -1 for name in _NUMBERS]
    steps = round(_PER_OCTAVE * math.log2(size)) if size else 0
    return -steps, r.conditions.get("pattern") == "stride", numbers, r.value if r.better == "lower" else -r.value


def _size(record: Record, name: str) -> float:
    return float(size) if isinstance(size := record.conditions.get(name), int | float) else 0.0


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


class _Pairing:
    """Pairs the results of two sides, each of one source, on different machines or of different sources."""

    def __init__(
        self, a_side: Sequence[Record], b_side: Sequence[Record], kind_by_id: Mapping[int, ResultKind]
    ) -> None:
        self._sides = a_side, b_side
        self._same_source = source(a_side[0]) == source(b_side[0])
        self._kinds = kind_by_id
        self._rank = {id(r): number for side in self._sides for number, r in enumerate(_ranked(side))}
        groups = [grouped(side, _metric) for side in self._sides]
        self._groups = {m: (groups[0][m], groups[1][m]) for m in groups[0] if m in groups[1]}
        self._words: dict[int, dict[str, str]] = {}
        for metric_sides in self._groups.values():
            for records, other_records in (metric_sides, metric_sides[::-1]):
                other_words = known_words(kind_by_id[id(r)] for r in other_records)
                self._words |= {id(r): resolved(kind_by_id[id(r)].words, other_words) for r in records}
        self._identity = {
            id(r): identity(r) for metric_sides in self._groups.values() for side in metric_sides for r in side
        }
        self._largest = [_largest(side) for side in self._sides]
        self._found: list[ResultMatch] = []
        self._known: set[tuple[int, int]] = set()
        self._taken: dict[bool, set[int]] = {False: set(), True: set()}  # by `by_part`

    def matches(self) -> list[ResultMatch]:
        for m in _equal(*self._sides):
            self._add(m.a, m.b, None)
        for sides in self._groups.values():
            for pairing_pass in _PASSES:
                self._pass(sides, pairing_pass)
        keys = [{point_key(r, *PAGES): r for r in self._ranked(side)} for side in self._sides]
        paired_ids = self._taken[False] | self._taken[True]
        for key in keys[0].keys() & keys[1].keys():
            if paired_ids.isdisjoint({id(keys[0][key]), id(keys[1][key])}):
                self._add(keys[0][key], keys[1][key], None)
        return self._found

    def _ranked(self, records: Iterable[Record]) -> list[Record]:
        """Return records of one side in the order of the function of this name, which ranks each record once."""
        return sorted(records, key=lambda r: self._rank[id(r)])

    def _pass(self, sides: tuple[Sequence[Record], Sequence[Record]], how: _PairingRule) -> None:
        """Pair the remaining results of a metric by the conditions that both state."""
        paired_ids, metric = self._taken[how.by_part], _metric(sides[0][0])
        paired_records = (
            [] if how.alike else [m.a for m in self._found if _metric(m.a) == metric and id(m.a) in paired_ids]
        )
        by_names = [
            grouped((r for r in records if id(r) not in paired_ids), lambda r: frozenset(self._identity[id(r)]))
            for records in sides
        ]
        for names_a, a_records in by_names[0].items():
            for names_b, b_records in by_names[1].items():
                common_names = names_a & names_b
                keys = [
                    {self._key(i, common_names, how, r): r for r in self._ranked(records)}
                    for i, records in enumerate((a_records, b_records))
                ]
                # If equal footprints of a kind are compared, the kind needs no pair that represents it.
                used_keys = set() if how.alike else {self._key(0, common_names, how, r) for r in paired_records}
                for key in keys[0].keys() & keys[1].keys() - used_keys - {None}:
                    x, y = keys[0][key], keys[1][key]
                    if paired_ids.isdisjoint({id(x), id(y)}):
                        self._add(x, y, how)

    def _key(self, side: int, both: frozenset[str], how: _PairingRule, r: Record) -> Key:
        """Return the key by which a record is paired; None if it cannot be paired in this way."""
        kind, words = self._kinds[id(r)], self._words[id(r)]
        # Names with a dot are settings of a model. They must agree even if the other side lacks them, because a model
        # with another clock is another machine.
        point = {k: v for k, v in self._identity[id(r)].items() if (k in both or "." in k) and k not in MAY_DIFFER}
        if kind.workers is None and how.by_part:
            return None
        if kind.workers is not None:
            workers = kind.workers.part if how.by_part else kind.workers.count
            if not workers:
                return None
            point = {k: v for k, v in point.items() if k not in _WORKERS} | {"workers": workers}
        if words:
            if not how.alike and "" in words.values():
                return None
            places = MEMORY in words or CPUS in words
            ignored = _WORDED - {*_NUMBERS} if how.alike or not places else _WORDED | _WAYS
            point = {k: v for k, v in point.items() if k not in ignored}
            point |= {f"its {k}": v for k, v in words.items() if k != LEVEL}
        elif not how.alike:
            return None
        sizes = {name: float(size) for name, size in point.items() if name in _FOOTPRINTS}
        if LEVEL in words and not (how.alike and sizes):
            if not words[LEVEL]:
                return None
            point = {k: v for k, v in point.items() if k not in sizes} | {"its level": words[LEVEL]}
        else:
            largest = {} if LEVEL in words else self._largest[side]
            point |= {name: _size_text(size, largest.get((_metric(r), name))) for name, size in sizes.items()}
        if r.metric.startswith("level_"):  # memory may be the fourth level of one machine, and the third of another
            level_names = {*PLATEAU, *(("level",) if point.get("kind") == "memory" else ())}
            point = {k: v for k, v in point.items() if k not in level_names}
        return key_text([*_metric(r), point])

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
        x_words, y_words = self._words.get(id(x), {}), self._words.get(id(y), {})
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
        workers = [self._kinds[id(r)].workers for r in (x, y)]
        counts = {w.count for w in workers if w is not None}
        parts = {w.part for w in workers if w is not None}
        # A result of 2 of 2 threads may be in two pairs: by its count, and as all threads of its machine.
        if not by_part or None in counts:
            self._taken[False] |= {id(x), id(y)}
        if by_part or len(parts) < 2:
            self._taken[True] |= {id(x), id(y)}

    def _kind_text(self, r: Record, by_part: bool) -> str:
        """Return the kind in words, such as `memory, local, all CPUs of the machine`."""
        words = [word for aspect, word in self._words[id(r)].items() if word and aspect != "home"]
        w = self._kinds[id(r)].workers
        return ", ".join([*words, *([_workers_text(None if by_part else w.count, w.part)] if w is not None else [])])


def _size_text(size: float, largest: float | None) -> str:
    """Return a key that is equal for footprints within about 1.1 %, and for all footprints near `largest`."""
    if largest is not None and size >= _LARGEST_SHARE * largest:
        return "largest"
    return str(round(_PER_OCTAVE * math.log2(size)))


def _conditions_suffice(record: Record, aspect: str) -> bool:
    """Return whether results of one source with the same conditions are of one kind, although no condition states it.

    CPU numbers have a different meaning on each machine, except in models and publications, which number CPUs alike.
    """
    return aspect != CPUS or record.source in {"model", "paper"}


def _largest(side: Sequence[Record]) -> dict[tuple[tuple[str, str], str], float]:
    size_by_name: dict[tuple[tuple[str, str], str], float] = {}
    for r in side:
        for name in _FOOTPRINTS:
            size_by_name[_metric(r), name] = max(size_by_name.get((_metric(r), name), 0.0), _size(r, name))
    return size_by_name


# ------------------------------------------------------------------ reasons


def _kind_key(record: Record, kind_by_id: Mapping[int, ResultKind]) -> tuple[Any, ...]:
    kind = kind_by_id[id(record)]
    return _metric(record), tuple(sorted((k, tuple(sorted(v))) for k, v in kind.words.items())), kind.workers


class _OtherSide:
    """The results of a metric of one side; explains why a result of the other side has no counterpart among them."""

    def __init__(self, records: Sequence[Record], kind_by_id: Mapping[int, ResultKind], letter: str) -> None:
        record_kinds = [kind_by_id[id(r)] for r in records]
        self._letter, self._known = letter, known_words(record_kinds)
        self._words: dict[str, set[str]] = {}
        for kind in record_kinds:
            for aspect, words in kind.words.items():
                self._words.setdefault(aspect, set()).update({" or ".join(sorted(words))} - {""})
        workers = {k.workers for k in record_kinds if k.workers is not None}
        self._counts, self._parts = {w.count for w in workers} - {None}, {w.part for w in workers} - {""}
        self._values: dict[str, dict[str, Any]] = {}
        for r in records:
            for name, value in identity(r).items():
                self._values.setdefault(name, {})[str(value)] = value

    def reason(self, record: Record, kind: ResultKind) -> str:
        """Return the first aspect, number of workers or condition that no result here has.

        It is "" if each of them occurs here, although perhaps not all in one result.
        """
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
        for name, value in identity(record).items():
            if name in self._values.keys() - _IRRELEVANT and str(value) not in self._values[name]:
                values = _listed(self._values[name].values(), ", ")
                return f"{self._letter} has it with different values of {name.replace('_', ' ')}: {values}"
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
