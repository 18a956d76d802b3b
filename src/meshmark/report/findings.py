"""What a run says about its machine, in a few sentences, and how far they can be trusted.

Every sentence is made from records of the run; one whose records are missing is left out. A sentence that rests on
flagged records says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshmark.measure.repetitions import quality
from meshmark.report.card import MEMORY_PAGES, balance, farthest, figures
from meshmark.report.selection import modes_of, modes_texts, value_of
from meshmark.store.record import Record
from meshmark.values.units import number, percent, show, size

Found = Mapping[str, tuple[str, Record | None]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the flags of the records that it rests on."""

    text: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text} ({', '.join(self.flags)})" if self.flags else self.text


MANY: Final = 0.2  # share of flagged points above which the run as a whole is doubted
# What helps against a flag, by how much it says about the machine as a whole.
REMEDIES: Final = {
    "stolen": "the hypervisor gave time to other guests; measure at another time, or on a host of your own",
    "disturbed": "other programs ran; stop them and measure again",
    "clock_varied": "the clock of the CPUs varied; set the governor to performance, or measure on a quieter host",
    "page_size": "pages had another size than requested; free memory, or allow transparent huge pages",
    "misplaced": "memory was on another node than requested; free memory there",
    "faulted": "memory was read from a disk; leave more of it free",
    "migrated": "threads moved to other CPUs; let Meshmark bind them",
    "oversubscribed": "more threads than CPUs ran; use fewer",
}


def sentences(records: Sequence[Record], cpus: int = 0) -> list[Sentence]:
    """What the machine does, one sentence a subject.

    Args:
        cpus: Number of CPUs of the host; 0: unknown.
    """
    found = figures(records, cpus)
    return [found_one for make in _SUBJECTS if (found_one := make(records, found)) is not None]


def trust(records: Sequence[Record]) -> str:
    """How far the results can be relied on, in one sentence, with what would help; "" without measured points."""
    q = quality(r for r in records if r.source == "host")
    if not q.points:
        return ""
    helps = ""
    if q.flags:
        most = max(q.flags, key=lambda f: (q.flags[f], f in REMEDIES))
        helps = f": {REMEDIES[most]}" if most in REMEDIES else f": mostly {most}"
    wide = f"{q.wide} of {q.points} points have a wider interval than requested, which a larger --budget narrows"
    flagged = f"{q.flagged} of {q.points} points {'is' if q.flagged == 1 else 'are'} flagged{helps}"
    if q.flagged > MANY * q.points:
        return f"Do not rely on this run: {flagged}."
    if q.flagged:
        return f"{flagged}; {wide}." if q.wide else f"{flagged}."
    return f"No point is flagged; {wide if q.wide else 'every interval is as narrow as requested'}."


def _value(records: Sequence[Record], record: Record) -> str:
    """The value of a figure, or of its modes."""
    modes = modes_of(records, record)
    return modes_texts(modes)[0] if modes else show(record.value, record.unit)


def _sentence(text: str, *used: Record | None) -> Sentence:
    return Sentence(f"{text}.", tuple(sorted({f for r in used if r for f in r.flags})))


def _caches(records: Sequence[Record], _: Found) -> Sentence | None:
    """What the curve of latency finds of each claimed cache: where its fastest plateau ends."""
    levels: dict[float, Record] = {}
    for r in records:
        claimed = value_of(r, "claimed_bytes", 0)
        if r.metric != "level_latency" or r.conditions.get("kind") != "cache" or not claimed:
            continue
        if claimed not in levels or r.value < levels[claimed].value:
            levels[claimed] = r
    parts = []
    for claimed, r in sorted(levels.items()):
        parts.append(f"{size(value_of(r, 'to_bytes'))} of {size(claimed)} at {show(r.value, r.unit)}")
    return _sentence(f"Caches, measured of claimed: {_series(parts)}", *levels.values()) if parts else None


def _memory(records: Sequence[Record], found: Found) -> Sentence | None:
    one, both = found["triad_one"][1], found["triad_all"][1]
    parts = []
    if one is not None and both is not None and one is not both:
        parts.append(f"{_value(records, one)} from one CPU and {_value(records, both)} from {_threads(both)}")
    elif (triad := both or one) is not None:
        parts.append(f"{_value(records, triad)} from {_threads(triad)}")
    rates = f"Triad moves {parts[0]}" if parts else ""
    key = next((k for k in MEMORY_PAGES if found[k][1] is not None or farthest(records, k) is not None), "")
    latency = found[key][1] or farthest(records, key) if key else None
    if latency is None:
        return _sentence(rates, one, both) if rates else None
    pages = "4 KiB pages" if latency.conditions.get("pages") == "4KiB" else "huge pages"
    where = (
        "from memory" if latency.metric == "level_latency" else f"within {size(value_of(latency, 'footprint_bytes'))}"
    )
    load = f"a load {where} takes {_value(records, latency)} ({pages})"
    text = f"{rates}; {load}" if rates else load[:1].upper() + load[1:]
    return _sentence(text, one, both, latency)


def _under_load(records: Sequence[Record], found: Found) -> Sentence | None:
    knees = [r for r in records if r.metric == "knee_bandwidth" and r.value > 0]
    if not knees:
        return None
    knee = max(knees, key=lambda r: (value_of(r, "threads"), not r.flags, r.value))
    triad = found["triad_all"][1]
    share = ""
    if triad is not None and triad.conditions.get("threads") == knee.conditions.get("threads") and triad.value > 0:
        share = f", {percent(knee.value / triad.value)} of triad's rate"
    text = (
        f"Latency stays below 1.25 times its idle value up to {show(knee.value, knee.unit)} of {_threads(knee)}{share}"
    )
    return _sentence(text, knee, triad if share else None)


def _compute(records: Sequence[Record], found: Found) -> Sentence | None:
    peak, pair = found["peak_fp64"][1], balance(found)
    if peak is None:
        return None
    text = f"The fp64 peak of {_threads(peak)} is {_value(records, peak)}"
    dense = found["dgemm"][1]
    used = [peak]
    if dense is not None and dense.conditions.get("threads") == peak.conditions.get("threads") and peak.value > 0:
        text += f", of which dgemm reaches {percent(dense.value / peak.value)}"
        used.append(dense)
    if pair is not None:
        text += f"; the balance is {number(pair[0].value / pair[1].value)} flop per byte of triad"
        used.append(pair[1])
    return _sentence(text, *used)


def _threads(record: Record) -> str:
    threads = int(value_of(record, "threads", 1))
    return "one CPU" if threads == 1 else f"{threads} CPUs"


def _series(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_Subject = Callable[[Sequence[Record], Found], Sentence | None]
_SUBJECTS: Final[tuple[_Subject, ...]] = (_memory, _caches, _under_load, _compute)
