"""Takes from the results of a run what may be shared (`form.py`)."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.measure.importers.card import SCHEMA, TYPE, results, to_text
from meshmark.store.record import Record, interval_rank, median, median_interval
from meshmark.store.run import RunInfo
from meshmark.views.content.card import figures
from meshmark.views.content.selection import cleaned
from meshmark.views.shared.curves import near_walk
from meshmark.views.shared.form import (
    BUILD,
    COMPILER,
    CPU_LISTS,
    FORM,
    MAX_BYTES,
    MAX_PAIRS,
    METRICS,
    MODEL,
    NUMBERS,
    VENDOR,
    WORDS,
    condition_problem,
    read_form,
)

_STEP: Final = "shared"
_DIGITS: Final = 4  # significant digits of every number; instruments repeat to a few per mille at best
_FEW_PAIRS: Final = 30  # directed pairs of CPUs whose transfers are shared with intervals, not as a table
_MANY_SAMPLES: Final = 12  # of each result, or one more
_FEW_SAMPLES: Final = 6  # if the file is too large; fewer have no interval
_FAR: Final = ("latency", "far")  # curves of other nodes, which leave first; their levels stay
_ID_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared result as text, and what was left out of it.

    Attributes:
        text: Content of the file.
        left_out: Number of results by the reason why they were left out.
    """

    text: str
    left_out: Mapping[str, int]


def shared_result(records: Sequence[Record], run: RunInfo, title: str = "", without: Iterable[str] = ()) -> Shared:
    """Return what may be shared of a run.

    Args:
        records: Records of the run, pooled.
        run: Facts about the run.
        title: What the owner calls the machine; "" names it by its processors.
        without: Keys of figures to leave out, with all results of their instrument.

    Raises:
        UsageError: The run does not describe its host, or has no result that can be shared.
    """
    host = _host(run)
    left_out: Counter[str] = Counter()
    shareable = _shareable(cleaned(records), set(without), left_out)
    if not shareable:
        raise UsageError(f"{run.run_id}: has no result that can be shared", "meshmark survey measures what is shared")
    card: dict[str, Any] = {
        "type": TYPE,
        "schema": SCHEMA,
        "shared": FORM,
        "title": title or _title(host),
        "machine": "",
        "run": "",
        "started": run.started[:10],
        "version": run.version,
        "figures": _figures(shareable, host["cpus"]),
        "host": host,
        "absent": [],
    }
    pairs = [r for r in shareable if r.metric == "line_latency"]
    if len(pairs) > _FEW_PAIRS:
        card["transfers"] = _transfers(pairs)
        best = figures(shareable)["line_swap"][1]  # keeps its interval
        shareable = [r for r in shareable if r.metric != "line_latency" or r is best]
    text = _text(card, shareable, _MANY_SAMPLES, ())
    gone: list[Record] = []
    for metric in (None, _FAR, *reversed(METRICS)):
        if len(text) <= MAX_BYTES:
            break
        if metric == _FAR:
            gone += _far_walks(shareable)
        elif metric:
            gone += [r for r in shareable if (r.instrument, r.metric) == metric]
        text = _text(card, shareable, _FEW_SAMPLES, gone)
    read_form(json.loads(text), "the shared result")  # the form is the only judge of what may leave this machine
    return Shared(text, left_out)


def _far_walks(records: Sequence[Record]) -> list[Record]:
    """Return the points of latency curves of other CPUs and memory than the curve that machines are compared by."""
    near = {_ends(r) for r in near_walk(records)}
    curves = (r for r in records if (r.instrument, r.metric) == ("latency", "load_latency"))
    return [r for r in curves if _ends(r) not in near]


def _ends(record: Record) -> tuple[Any, Any]:
    return record.conditions.get("cpu"), record.conditions.get("memory_node")


def _text(card: Mapping[str, Any], records: Sequence[Record], samples: int, gone: Sequence[Record]) -> str:
    """Return the file with about this many samples of each result and without the records that are gone."""
    ids = {id(r) for r in gone}
    reduced = [_reduced(r, samples) for r in records if id(r) not in ids]
    counts = Counter((r.instrument, r.metric) for r in records if id(r) in ids)
    left_out = [{"instrument": i, "metric": m, "results": n} for (i, m), n in counts.items()]
    digest = hashlib.sha256(repr((card["figures"], card["host"], card["started"])).encode()).hexdigest()[:_ID_LENGTH]
    model = re.sub(r"[^a-z0-9]+", "-", card["host"]["cpu"]["model"].lower()).strip("-")
    machine = f"{model[:24].rstrip('-')}-{card['host']['cpus']}cpu-{digest}"
    named = [(_STEP, replace(r, machine=machine)) for r in reduced]
    return to_text({**card, "machine": machine, "run": f"shared-{digest}", **results(named), "left_out": left_out})


def _shareable(records: Iterable[Record], without: set[str], left_out: Counter[str]) -> list[Record]:
    """Return the records that may be shared, with the conditions that may be shared."""
    known = figures(list(records))
    for key in without - known.keys():
        raise UsageError(f"--without: found '{key}'; allowed: {', '.join(known)}")
    unwanted = {id(r) for key in without if (r := known[key][1]) is not None}
    unwanted_instruments = {(r.instrument, r.metric) for _, r in known.values() if r is not None and id(r) in unwanted}
    shareable = []
    for r in records:
        if (r.instrument, r.metric) not in METRICS:
            continue
        if r.source != "host":
            left_out["they were not measured on the host"] += 1
        elif (r.instrument, r.metric) in unwanted_instruments:
            left_out["--without"] += 1
        else:
            conditions = {k: v for k, v in r.conditions.items() if k in NUMBERS or k in WORDS or k in CPU_LISTS}
            if problems := [p for k, v in conditions.items() if (p := condition_problem(k, v))]:
                left_out[problems[0]] += 1
                continue
            shareable.append(replace(r, conditions={k: _rounded(v) for k, v in conditions.items()}))
    return shareable


def _rounded(value: Any) -> Any:
    """Return a number with few digits; whole numbers, texts and None as they are."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return float(f"{value:.{_DIGITS}g}")


def _reduced(record: Record, count: int) -> Record:
    """Return a record with about `count` of its samples, which have the same median and the same interval."""
    samples = tuple(fewer_samples(sorted(record.samples), count))
    if record.unit != "B":  # sizes are exact
        samples = tuple(map(_rounded, samples))
    return replace(
        record,
        samples=samples,
        value=median(samples),
        interval=median_interval(samples),
        provenance={
            key: text
            for key, pattern in (("build", BUILD), ("compiler", COMPILER))
            if isinstance(text := record.provenance.get(key), str) and re.fullmatch(pattern, text)
        },
    )


def fewer_samples(samples: Sequence[float], count: int) -> Sequence[float]:
    """Return about `count` of the sorted samples, at least 6, with the same median and the same interval of it."""
    n = len(samples)
    m = count + (n - count) % 2  # the median of an even number of samples is the mean of two
    if n <= m:
        return samples
    rank_n, rank_m = interval_rank(n), interval_rank(m)  # of the lower end of the interval
    below = [i * (rank_n - 1) // (rank_m - 1) for i in range(rank_m - 1)]
    inside = m // 2 - rank_m
    within = [rank_n - 1 + (j + 1) * (n // 2 - rank_n) // inside for j in range(inside)]
    indices = [*below, rank_n - 1, *within]
    return [samples[i] for i in [*indices, *[n // 2] * (n % 2), *(n - 1 - i for i in reversed(indices))]]


def _figures(records: Sequence[Record], cpus: int) -> dict[str, dict[str, Any]]:
    """Return the figures of what is shared. Best, spread and count refer to all samples."""
    reduced = [_reduced(r, _MANY_SAMPLES) for r in records]
    whole = dict(zip(map(id, reduced), records, strict=True))
    summaries = {}
    for key, (title, r) in figures(reduced, cpus).items():
        if r is None:
            continue
        original = whole[id(r)]
        summaries[key] = {
            "title": _plain(title),
            "value": r.value,
            "unit": r.unit,
            "interval": None if r.bounds is None else [_rounded(b) for b in r.bounds],
            "best": _rounded(original.best),
            "spread": None if math.isnan(original.spread) else _rounded(original.spread),
            "samples": len(original.samples),
            "flags": sorted(r.flags),
        }
    return summaries


def _transfers(pairs: Sequence[Record]) -> dict[str, Any]:
    """Return the table of one-way transfers, in ns; with more than `MAX_PAIRS` CPUs, of evenly chosen ones."""
    one_way = {
        (r.conditions["from_cpu"], r.conditions["to_cpu"]): r.value
        for r in pairs
        if r.conditions.get("state") == "swap" and "from_cpu" in r.conditions and "to_cpu" in r.conditions
    }
    cpus = sorted({int(c) for pair in one_way for c in pair if isinstance(c, int)})
    chosen = cpus if len(cpus) <= MAX_PAIRS else [cpus[i * len(cpus) // MAX_PAIRS] for i in range(MAX_PAIRS)]

    def cell(a: int, b: int) -> str:
        value = one_way.get((a, b))
        return "-" if value is None else f"{float(f'{value * 1e9:.3g}'):g}"

    return {"cpus": chosen, "ns": [" ".join(cell(a, b) for b in chosen) for a in chosen]}


# ------------------------------------------------------------------ the host


def _host(run: RunInfo) -> dict[str, Any]:
    """Return the facts of the host that may be shared.

    Raises:
        UsageError: The run does not describe its host.
    """
    facts: Any = run.host
    topology, cpu = _object(facts, "topology"), _object(facts, "cpu")
    if not topology.get("cpus"):
        raise UsageError(
            f"{run.run_id}: does not describe its host, so its results cannot be shared",
            "share a run of meshmark survey",
        )
    memory, settings = _object(facts, "memory"), _object(facts, "settings")
    values = {
        "cpu": _processor(cpu),
        **{key: len(topology.get(key) or []) for key in ("packages", "nodes", "cores", "cpus")},
        "caches": [
            {k: c.get(k) for k in ("level", "kind", "size_bytes", "shared_by", "count")}
            for c in facts.get("caches") or []
            if isinstance(c, Mapping)
        ],
        "distances": topology.get("distances") or [],
        "memory_bytes": memory.get("total_bytes"),
        "memory_channels": memory.get("channels"),
        "memory_transfers_per_s": memory.get("rate_t_per_s"),
        "memory_peak_bytes_per_s": memory.get("peak_bytes_per_s"),
        "guest": _object(facts, "virtual").get("guest"),
        "kernel": _leading(r"[0-9]+(?:\.[0-9]+)*", _object(facts, "kernel").get("release")),
        "thp": _leading(r"always|madvise|never", _object(facts, "pages").get("thp")),
        "governor": _leading(
            r"performance|powersave|schedutil|ondemand|conservative|userspace", settings.get("governor")
        ),
        **{key: settings.get(key) for key in ("boost", "smt_active", "numa_balancing")},
    }
    return {k: v for k, v in values.items() if isinstance(v, dict | list | int | float | str) and v not in ([], "")}


def _processor(cpu: Mapping[str, Any]) -> dict[str, Any]:
    texts = {k: str(v) for k in _NUMBERED if (v := _first(cpu.get(k))) is not None}
    numbers = {k: v for k, v in texts.items() if re.fullmatch(r"(?:0x)?[0-9a-fA-F]{1,16}", v)}
    vendor = _first(cpu.get("vendor"))
    if not isinstance(vendor, str) or not re.fullmatch(VENDOR, vendor):
        vendor = "unknown"
    name = " ".join(re.sub(r"[^A-Za-z0-9 ()@.,+-]", " ", str(_first(cpu.get("model")))).split())
    if not re.fullmatch(MODEL, name):
        name = f"{vendor} family {numbers.get('family', 'unknown')} model {numbers.get('model_number', 'unknown')}"
        name = name if numbers else "unknown processor"
    isa = [word for word in cpu.get("isa") or [] if isinstance(word, str) and re.fullmatch(r"[a-z0-9_]{2,20}", word)]
    clock = _first(cpu.get("claimed_hz"))
    return (
        {"model": name, "vendor": vendor, "isa": isa[:100]}
        | numbers
        | ({"claimed_hz": float(clock)} if isinstance(clock, int | float) else {})
    )


_NUMBERED: Final = ("family", "model_number", "stepping", "microcode")


def _object(facts: Any, key: str) -> Mapping[str, Any]:
    """Return a part of the facts, without what is absent with a reason; {} if the part itself is."""
    part = facts.get(key) if isinstance(facts, Mapping) else None
    if not isinstance(part, Mapping):
        return {}
    return {k: v for k, v in part.items() if not (isinstance(v, Mapping) and set(v) == {"absent"}) and k != "absent"}


def _first(value: Any) -> Any:
    """Return the first of several different values, such as the models of two kinds of cores."""
    return value[0] if isinstance(value, list) and value else value


def _leading(pattern: str, value: Any) -> str | None:
    match = re.match(pattern, value) if isinstance(value, str) else None
    return match[0] if match else None


def _plain(text: str) -> str:
    """Return a text without characters that a title does not have."""
    return " ".join(re.sub(r"[^\w .,()+-]", " ", text).split())


def _title(host: Mapping[str, Any]) -> str:
    model = _plain(host["cpu"]["model"])
    return (f"{host['packages']} x {model}" if host["packages"] > 1 else model)[:80]
