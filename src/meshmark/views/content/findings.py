"""States in a few sentences what a run says about its machine, and how far its results can be trusted.

Every sentence derives from records of the run and is left out if they are missing. A sentence that rests on flagged
records says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from meshmark.measure.repetitions import quality
from meshmark.store.record import Record
from meshmark.values.units import number, percent, show, size
from meshmark.views.content.card import MEMORY_PAGES, Figures, balance, farthest
from meshmark.views.content.selection import modes_of, modes_texts, unusual_stride, usual_stride, value_of


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the flags of the records that it rests on."""

    text: str
    flags: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.text} ({', '.join(self.flags)})" if self.flags else self.text


MANY: Final = 0.2  # share of flagged points above which the run as a whole is doubted
# The cause of each flag and its remedy, separated by `; `.
REMEDIES: Final = {
    "stolen": "the hypervisor gave time to other guests; measure at another time, or on a host of your own",
    "disturbed": "samples were interrupted, or other programs ran; stop other programs and measure again",
    "clock_varied": "the clock of the CPUs varied; set the governor to performance, or measure on a quieter host",
    "page_size": "pages had another size than requested; free memory, or allow transparent huge pages",
    "misplaced": "memory was on another node than requested; free memory there",
    "faulted": "pages were allocated or read from a disk during samples; leave more memory free",
    "migrated": "something moved threads away from their CPUs; stop what binds other processes' threads",
    "oversubscribed": "more threads than CPUs ran; use fewer",
}


def sentences(records: Sequence[Record], figures: Figures) -> list[Sentence]:
    """Return what the machine does, one sentence per subject.

    Args:
        records: Records of a run.
        figures: The figures of the records, see `card.figures`.
    """
    if len({(r.machine, r.source) for r in records}) != 1:
        return []  # the records are from several machines, or there are none
    subjects = [sentence for describe in _SUBJECTS if (sentence := describe(records, figures)) is not None]
    if records[0].source == "host":
        return subjects
    return [
        replace(sentence, text=f"Modelled: {sentence.text[:1].lower()}{sentence.text[1:]}") for sentence in subjects
    ]


@dataclass(frozen=True, slots=True)
class Trust:
    """How far the results of a run can be relied on.

    Attributes:
        reliable: False if more than `MANY` of the points are flagged.
        text: The reason, in one sentence; "" if there are no measured points.
        remedy: The remedy, as an imperative; "" if none is needed or known.
    """

    reliable: bool
    text: str
    remedy: str = ""


UNRELIABLE: Final = "Do not rely on this run"


def trusted(records: Sequence[Record]) -> Trust:
    """Judge the results of a run by the flags and the widths of its points."""
    q = quality(r for r in records if r.source == "host")
    if not q.points:
        return Trust(True, "")
    wide_text = (
        f"{q.wide} of {q.points} points {'has' if q.wide == 1 else 'have'} a wider interval than requested, "
        "which a larger --budget narrows"
    )
    if not q.flags:
        flawless = "No point is flagged or has a wider interval than requested."
        return Trust(True, f"No point is flagged. {wide_text}." if q.wide else flawless)
    main_flag = max(q.flags, key=lambda f: (q.flags[f], f in REMEDIES))
    cause, _, remedy = REMEDIES.get(main_flag, "").partition("; ")
    reason = f" ({main_flag}): {cause}" if cause else f": mostly {main_flag}"
    flagged_text = f"{q.flagged} of {q.points} points {'is' if q.flagged == 1 else 'are'} flagged{reason}"
    if q.flagged > MANY * q.points:
        return Trust(False, f"{flagged_text}.", remedy)
    return Trust(True, f"{flagged_text}{f'; {remedy}' if remedy else ''}." + (f" {wide_text}." if q.wide else ""))


def trust(records: Sequence[Record]) -> str:
    """Return how far the results can be relied on, in one sentence with a remedy; "" without measured points."""
    judgement = trusted(records)
    if judgement.reliable:
        return judgement.text
    return f"{UNRELIABLE}: {judgement.text.removesuffix('.')}{f'; {judgement.remedy}' if judgement.remedy else ''}."


def _value(records: Sequence[Record], record: Record) -> str:
    """Return the value of a figure, or the values of its modes, as text."""
    modes = modes_of(records, record)
    return modes_texts(modes)[0] if modes else show(record.value, record.unit)


def _sentence(text: str, *used: Record | None) -> Sentence:
    return Sentence(f"{text}.", tuple(sorted({f for r in used if r for f in r.flags})))


def cache_levels(records: Sequence[Record]) -> dict[float, Record]:
    """Return the fastest latency plateau of each cache, by the size in bytes that the system reports, ascending."""
    levels: dict[float, Record] = {}
    for r in usual_stride(r for r in records if r.metric == "level_latency"):
        reported_bytes = value_of(r, "claimed_bytes", 0)
        if r.conditions.get("kind") != "cache" or not reported_bytes:
            continue
        if value_of(r, "to_bytes") > reported_bytes:
            continue  # a level in between was not detected, so this plateau is not the cache of this size
        if reported_bytes not in levels or (bool(r.flags), r.value) < (
            bool(levels[reported_bytes].flags),
            levels[reported_bytes].value,
        ):
            levels[reported_bytes] = r
    return dict(sorted(levels.items()))


def _caches(records: Sequence[Record], _: Figures) -> Sentence | None:
    """State where the fastest latency plateau of each reported cache ends."""
    levels = cache_levels(records)
    parts = [
        f"{size(value_of(r, 'to_bytes'))} ({size(reported_bytes)}) at {_value(records, r)}"
        for reported_bytes, r in levels.items()
    ]
    strides = {text for r in levels.values() if (text := unusual_stride(r))}
    source = f"reported; {strides.pop()}" if strides else "reported"
    return _sentence(f"Caches hold at least ({source}): {_series(parts)}", *levels.values()) if parts else None


def _memory(records: Sequence[Record], figures: Figures) -> Sentence | None:
    single, parallel = figures["triad_one"][1], figures["triad_all"][1]
    rates = ""
    if single is not None and parallel is not None and single is not parallel:
        rates = (
            f"Triad reaches {_value(records, single)} on one CPU and {_value(records, parallel)} on "
            f"{_threads(parallel)}"
        )
    elif (triad := parallel or single) is not None:
        rates = f"Triad reaches {_value(records, triad)} on {_threads(triad)}"
    latency = next((r for k in MEMORY_PAGES if (r := figures[k][1]) is not None), None)
    latency = latency or next((r for k in MEMORY_PAGES if (r := farthest(records, k)) is not None), None)
    if latency is None:
        return _sentence(rates, single, parallel) if rates else None
    pages = "4 KiB pages" if latency.conditions.get("pages") == "4KiB" else "huge pages"
    pages = ", ".join(filter(None, (pages, unusual_stride(latency))))
    where = f"within {size(value_of(latency, 'footprint_bytes'))}"
    if latency.metric == "level_latency":
        nodes = {r.conditions.get("memory_node") for r in records if r.metric == "level_latency"}
        where = "from the nearest memory" if len(nodes) > 1 else "from memory"
    load = f"a load {where} takes {_value(records, latency)} ({pages})"
    text = f"{rates}; {load}" if rates else load[:1].upper() + load[1:]
    return _sentence(text, single, parallel, latency)


def _under_load(records: Sequence[Record], figures: Figures) -> Sentence | None:
    knees = [r for r in records if r.metric == "knee_bandwidth" and r.value > 0]
    if not knees:
        return None
    knee = max(knees, key=lambda r: (value_of(r, "threads"), not r.flags, r.value))
    triad = figures["triad_all"][1]
    share = ""
    if triad is not None and triad.conditions.get("threads") == knee.conditions.get("threads") and triad.value > 0:
        share = f", {percent(knee.value / triad.value)} of triad's rate"
    rate = f"{show(knee.value, knee.unit)} on {_threads(knee)}"
    limit_note = " (the most that was measured)" if str(knee.conditions.get("reached")).startswith("no") else ""
    text = f"Latency stays below 1.25 times its idle value up to {rate}{share}{limit_note}"
    return _sentence(text, knee, triad if share else None)


def _compute(records: Sequence[Record], figures: Figures) -> Sentence | None:
    peak, pair = figures["peak_fp64"][1], balance(figures)
    if peak is None:
        return None
    text = f"The fp64 peak of {_threads(peak)} is {_value(records, peak)}"
    dense = figures["dgemm"][1]
    sources = [peak]
    if dense is not None and dense.conditions.get("threads") == peak.conditions.get("threads") and peak.value > 0:
        text += f", of which dgemm reaches {percent(dense.value / peak.value)}"
        sources.append(dense)
    if pair is not None:
        text += f"; the balance is {number(pair[0].value / pair[1].value)} flop per byte of triad"
        sources.append(pair[1])
    return _sentence(text, *sources)


def _threads(record: Record) -> str:
    threads = int(value_of(record, "threads", 1))
    return "one CPU" if threads == 1 else f"{threads} CPUs"


def _series(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_Subject = Callable[[Sequence[Record], Figures], Sentence | None]
_SUBJECTS: Final[tuple[_Subject, ...]] = (_memory, _caches, _under_load, _compute)
