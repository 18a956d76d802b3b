"""Which results of two sides are of the same kind and are compared; of the others, why not.

Results of one machine and source are paired if all conditions agree that identify them. Those of different machines or
sources are paired if they are of one kind (`compare.kinds`) and agree in all conditions that both state; first those
with the same footprint and the same numbers of CPUs and nodes, then one for each kind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meshmark.compare.kinds import CPUS, LEVEL, LOAD, MEMORY, Kind, grouped, kinds, known_words, resolved, source
from meshmark.measure.repetitions import PLATEAU, point_key
from meshmark.store.record import Record

# Choices that a machine or an installation makes, and names of its parts: they may differ in a pair.
CHOICES: Final = frozenset({"isa", "library", "library_kernel", "fft", "mpi", "target", "cpus"})
PAGES: Final = ("pages", "page_bytes")  # results that differ in these are paired only to say why they do not compare
_FOOTPRINTS: Final = ("footprint_bytes", "table_bytes")
_PER_OCTAVE: Final = 64  # footprints of different machines are the same within 1.1 %
NO_METRIC: Final = "the other side does not have this metric"
_LARGEST: Final = 0.45  # kernels round a footprint to whole arrays, and take whole ones for each of one to three
_NUMBERS: Final = ("cpu", "from_cpu", "to_cpu", "cpu_node", "from_node", "to_node", "memory_node", "home_node")
# Conditions that the words of a kind stand for.
_WORDED: Final = frozenset(
    {*_NUMBERS, "hops", "home", "same_socket", "thread_buffer_bytes", "kernel", "state", "level"}
)
_WORKERS: Final = ("threads", "processes")
# How a latency was measured: of one kind, whatever they are; the difference is named.
_WAYS: Final = frozenset({"pattern", "stride_bytes", "locality_bytes"})
Key = str | None


@dataclass(frozen=True, slots=True)
class Match:
    """Results that are compared.

    Attributes:
        differ: Why they are of different kinds, so that they are only shown; "" if they are of one.
        kind: What both measured, in words; "" if footprints and numbers of CPUs and nodes agree.
    """

    a: Record
    b: Record
    differ: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A result without a counterpart, and the reason."""

    record: Record
    reason: str


def matches(
    ones: Sequence[Record], others: Sequence[Record], same_machine: bool, of_all: Mapping[int, Kind] | None = None
) -> list[Match]:
    """The pairs, in the order of `ones`.

    Args:
        of_all: The kinds of the results of both sides; None: they are determined.
    """
    of_all = of_all or kinds(ones) | kinds(others)
    found: list[Match] = []
    by_source = [grouped(side, source) for side in (ones, others)]
    for of_a, some in by_source[0].items():
        for of_b, more in by_source[1].items():
            if of_a == of_b and same_machine:
                found += _of_one_machine(some, more)
            else:
                found += _Pairing(some, more, of_all).matches()
    order = {id(r): i for i, r in enumerate(ones)}
    return sorted(found, key=lambda m: order[id(m.a)])


def unpaired(
    ones: Sequence[Record],
    others: Sequence[Record],
    found: Sequence[Match],
    of_all: Mapping[int, Kind] | None = None,
) -> list[list[Unpaired]]:
    """The results of each side that are in no pair.

    Args:
        of_all: See `matches`.
    """
    paired = {id(r) for m in found for r in (m.a, m.b)}
    of_all = of_all or kinds(ones) | kinds(others)

    def left(side: Sequence[Record], other_side: Sequence[Record], letter: str) -> list[Unpaired]:
        reasons = {m: _Others(records, of_all, letter) for m, records in grouped(other_side, _metric).items()}
        compared = {_kind_key(r, of_all) for r in side if id(r) in paired}

        def reason(r: Record) -> str:
            if _metric(r) not in reasons:
                return NO_METRIC
            if text := reasons[_metric(r)].reason(r, of_all[id(r)]):
                return text
            if _kind_key(r, of_all) in compared:
                return "another result of this kind is compared"
            return f"no result of {letter} has all of its conditions"

        return [Unpaired(r, reason(r)) for r in side if id(r) not in paired]

    return [left(ones, others, "B"), left(others, ones, "A")]


def identity(record: Record) -> dict[str, Any]:
    """The identity conditions of a record that it has."""
    _, _, *conditions = json.loads(point_key(record))
    return {k: v for part in conditions for k, v in part.items() if v is not None}


def _metric(record: Record) -> tuple[str, str]:
    return record.instrument, record.metric


# ------------------------------------------------------------------ one machine


def _of_one_machine(ones: Sequence[Record], others: Sequence[Record]) -> list[Match]:
    found = [*_equal(ones, others)]
    for without in (CHOICES, PAGES):
        taken = {id(r) for m in found for r in (m.a, m.b)}
        keys = [{point_key(r, *without): r for r in _ranked(side)} for side in (ones, others)]
        both = [(keys[0][key], keys[1][key]) for key in keys[0] if key in keys[1]]
        found += [Match(x, y) for x, y in both if id(x) not in taken or id(y) not in taken]
    return found


def _equal(ones: Sequence[Record], others: Sequence[Record]) -> Iterator[Match]:
    """Results whose identity is the same. Several of one point, such as two detections of a level, are paired in their
    order."""
    by_point = grouped(others, point_key)
    for r in ones:
        if equals := by_point.get(point_key(r)):
            yield Match(r, equals.pop(0))


def _ranked(side: Iterable[Record]) -> list[Record]:
    """The record that stands for others comes last: of the largest footprint, in random order, with the lowest numbers
    of CPUs and nodes, the best value."""
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
class _Pass:
    """How results are paired.

    Attributes:
        alike: With the same footprint and numbers of CPUs and nodes; else one for each kind.
        by_part: If their workers fill the same part of the machine; else if they are as many.
    """

    alike: bool
    by_part: bool


_PASSES: Final = [_Pass(alike, by_part) for alike in (True, False) for by_part in (False, True)]


class _Pairing:
    """Of the results of one source each, on different machines or of different sources."""

    def __init__(self, ones: Sequence[Record], others: Sequence[Record], of_all: Mapping[int, Kind]) -> None:
        self._sides = ones, others
        self._same_source = source(ones[0]) == source(others[0])
        self._kinds = of_all
        groups = [grouped(side, _metric) for side in self._sides]
        self._groups = {m: (groups[0][m], groups[1][m]) for m in groups[0] if m in groups[1]}
        self._words: dict[int, dict[str, str]] = {}
        for of_metric in self._groups.values():
            for mine, theirs in (of_metric, of_metric[::-1]):
                known = known_words(of_all[id(r)] for r in theirs)
                self._words |= {id(r): resolved(of_all[id(r)].words, known) for r in mine}
        self._identity = {id(r): identity(r) for of_metric in self._groups.values() for side in of_metric for r in side}
        self._largest = [_largest(side) for side in self._sides]
        self._found: list[Match] = []
        self._known: set[tuple[int, int]] = set()
        self._taken: dict[bool, set[int]] = {False: set(), True: set()}  # by `by_part`

    def matches(self) -> list[Match]:
        for m in _equal(*self._sides):
            self._add(m.a, m.b, None)
        for sides in self._groups.values():
            for how in _PASSES:
                self._pass(sides, how)
        keys = [{point_key(r, *PAGES): r for r in _ranked(side)} for side in self._sides]
        taken = self._taken[False] | self._taken[True]
        for key in keys[0].keys() & keys[1].keys():
            if taken.isdisjoint({id(keys[0][key]), id(keys[1][key])}):
                self._add(keys[0][key], keys[1][key], None)
        return self._found

    def _pass(self, sides: tuple[Sequence[Record], Sequence[Record]], how: _Pass) -> None:
        """Pair what is left of a metric by the conditions that both state."""
        taken, metric = self._taken[how.by_part], _metric(sides[0][0])
        paired = [] if how.alike else [m.a for m in self._found if _metric(m.a) == metric and id(m.a) in taken]
        by_names = [
            grouped((r for r in of if id(r) not in taken), lambda r: frozenset(self._identity[id(r)])) for of in sides
        ]
        for names_a, some in by_names[0].items():
            for names_b, more in by_names[1].items():
                both = names_a & names_b
                keys = [{self._key(i, both, how, r): r for r in _ranked(of)} for i, of in enumerate((some, more))]
                # A kind of which equal footprints are compared needs no other one that stands for it.
                used = set() if how.alike else {self._key(0, both, how, r) for r in paired}
                for key in keys[0].keys() & keys[1].keys() - used - {None}:
                    x, y = keys[0][key], keys[1][key]
                    if taken.isdisjoint({id(x), id(y)}):
                        self._add(x, y, how)

    def _key(self, side: int, both: frozenset[str], how: _Pass, r: Record) -> Key:
        """None if the record cannot be paired like that."""
        kind, words = self._kinds[id(r)], self._words[id(r)]
        # A model with another clock, say, is another machine: keys of its file count though the other side has none.
        point = {k: v for k, v in self._identity[id(r)].items() if (k in both or "." in k) and k not in CHOICES}
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
            dropped = _WORDED - {*_NUMBERS} if how.alike or not places else _WORDED | _WAYS
            point = {k: v for k, v in point.items() if k not in dropped}
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
        if r.metric.startswith("level_"):  # the memory of one machine is the fourth level, of another the third
            left_out = {*PLATEAU, *(("level",) if point.get("kind") == "memory" else ())}
            point = {k: v for k, v in point.items() if k not in left_out}
        return json.dumps([*_metric(r), point], sort_keys=True)

    def _add(self, x: Record, y: Record, how: _Pass | None) -> None:
        """Add a pair, unless it is unknown whether both are of one kind. `how`: None if their conditions agree."""
        by_part = how is not None and how.by_part
        if (id(x), id(y)) in self._known:
            return
        one, other = self._words.get(id(x), {}), self._words.get(id(y), {})
        differ = ""
        for aspect in one.keys() & other.keys():
            if one[aspect] and other[aspect]:
                differ = differ or (f"{one[aspect]} and {other[aspect]}" if one[aspect] != other[aspect] else "")
            elif not (self._same_source and _numbers_tell(x, aspect)):
                return
        kind = "" if how is None or how.alike else self._kind_text(x, by_part)
        self._found.append(Match(x, y, differ, kind))
        self._known.add((id(x), id(y)))
        workers = [self._kinds[id(r)].workers for r in (x, y)]
        counts = {w.count for w in workers if w is not None}
        parts = {w.part for w in workers if w is not None}
        # Two threads of two are also all threads, and may be compared with all threads of another machine.
        if not by_part or None in counts:
            self._taken[False] |= {id(x), id(y)}
        if by_part or len(parts) < 2:
            self._taken[True] |= {id(x), id(y)}

    def _kind_text(self, r: Record, by_part: bool) -> str:
        """`memory, local, all CPUs of the machine`."""
        words = [word for aspect, word in self._words[id(r)].items() if word and aspect != "home"]
        w = self._kinds[id(r)].workers
        return ", ".join([*words, *([_workers_text(None if by_part else w.count, w.part)] if w is not None else [])])


def _size_text(size: float, largest: float | None) -> str:
    """A footprint, within 1.1 %; the largest ones of two machines are the same, if that is asked."""
    if largest is not None and size >= _LARGEST * largest:
        return "largest"
    return str(round(_PER_OCTAVE * math.log2(size)))


def _numbers_tell(record: Record, aspect: str) -> bool:
    """Whether results of one source with the same conditions are of one kind, though nobody states it. Numbers of CPUs
    mean something else on each machine, except on models, which are numbered alike."""
    return aspect != CPUS or record.source in {"model", "paper"}


def _largest(side: Sequence[Record]) -> dict[tuple[tuple[str, str], str], float]:
    found: dict[tuple[tuple[str, str], str], float] = {}
    for r in side:
        for name in _FOOTPRINTS:
            found[_metric(r), name] = max(found.get((_metric(r), name), 0.0), _size(r, name))
    return found


# ------------------------------------------------------------------ reasons


def _kind_key(record: Record, of_all: Mapping[int, Kind]) -> tuple[Any, ...]:
    kind = of_all[id(record)]
    return _metric(record), tuple(sorted((k, tuple(sorted(v))) for k, v in kind.words.items())), kind.workers


class _Others:
    """The results of a metric of one side: why a result of the other side has no counterpart among them."""

    def __init__(self, records: Sequence[Record], of_all: Mapping[int, Kind], letter: str) -> None:
        kinds_here = [of_all[id(r)] for r in records]
        self._letter, self._known = letter, known_words(kinds_here)
        self._words: dict[str, set[str]] = {}
        for kind in kinds_here:
            for aspect, may_be in kind.words.items():
                self._words.setdefault(aspect, set()).update({" or ".join(sorted(may_be))} - {""})
        workers = {k.workers for k in kinds_here if k.workers is not None}
        self._counts, self._parts = {w.count for w in workers} - {None}, {w.part for w in workers} - {""}
        self._values: dict[str, dict[str, Any]] = {}
        for r in records:
            for name, value in identity(r).items():
                self._values.setdefault(name, {})[str(value)] = value

    def reason(self, record: Record, kind: Kind) -> str:
        """The first aspect, number of workers or condition that these results do not have; "" if they have each."""
        words = resolved(kind.words, self._known)
        if unknown := [aspect for aspect, word in words.items() if not word]:
            return f"the {_ASPECTS.get(unknown[0], unknown[0])} is not known"
        for aspect, word in words.items():
            theirs = self._words.get(aspect, set())
            if word not in theirs and aspect == LOAD:
                return f"{self._letter} has no such load"
            if not theirs:
                return f"the {_ASPECTS.get(aspect, aspect)} of {self._letter} is not known"
            if word not in theirs:
                return f"the {_ASPECTS.get(aspect, aspect)} is {word}; {self._letter} has {_listed(theirs, ' and ')}"
        w = kind.workers
        if w is not None and w.count not in self._counts and w.part not in self._parts:
            return f"{self._letter} has none of as many threads or processes"
        for name, value in identity(record).items():
            if name in self._values.keys() - _NO_MATTER and str(value) not in self._values[name]:
                values = _listed(self._values[name].values(), ", ")
                return f"{self._letter} has it with other {name.replace('_', ' ')}: {values}"
        return ""


def _listed(values: Collection[Any], separator: str) -> str:
    """The first three in their order."""
    first = sorted(values, key=lambda v: (isinstance(v, str), v))[:3]
    return separator.join(map(str, first)) + (f"{separator}…" if len(values) > 3 else "")


_NO_MATTER: Final = frozenset({*_WORDED, *_WORKERS, *_FOOTPRINTS, *CHOICES, *_WAYS})
_ASPECTS: Final = {
    MEMORY: "place of the memory",
    CPUS: "place of the CPUs",
    "home": "home of the line",
    "state": "state of the line",
    "hosts": "number of hosts",
}


def _workers_text(count: int | None, part: str) -> str:
    return f"all CPUs of the {part}" if count is None else "one thread" if count == 1 else f"{count} threads"
