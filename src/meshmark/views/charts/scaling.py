"""Renders how applications scale: speedup, efficiency, fitted laws and waiting, from the records of their runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from meshmark.statistics.scaling import confidence_of_each, scaling
from meshmark.statistics.scaling_text import scaling_lines, scaling_title
from meshmark.statistics.verdicts import MARGIN
from meshmark.store.record import OBSERVED, Record
from meshmark.values.units import percent
from meshmark.views.content.selection import number_in, selected
from meshmark.views.render import render_sections
from meshmark.views.tables import TableSection

COUNTS: Final = ("threads", "copies", "ranks")  # conditions that are numbers of workers
# Conditions of a configuration that were not varied.
FIXED: Final = {"program", "command", "function", "object", "profile_event", *OBSERVED}
_Group = tuple[str, str, str]  # program, dimension, other dimensions


def workers(record: Record, count: str) -> int:
    """Return how many threads, copies or ranks a record has; 0 if the number is unknown."""
    text = str(record.conditions.get(count))  # records of another program may have any type here
    return int(text) if re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII) else 0


def varied(record: Record, without: str = "") -> str:
    """Return what was varied, such as `size=100 build=O2`."""
    return " ".join(f"{k}={v}" for k, v in record.conditions.items() if k not in FIXED and k != without)


def conclusions(records: Sequence[Record]) -> str:
    """Render the scaling of each program with each of its numbers of workers; "" without two such numbers."""
    groups = _groups(records)
    confidence = confidence_of_each(max(1, len(groups)))
    sections = [
        TableSection(f"{program}: {scaling_title(fit)}", lines=[*scaling_lines(fit), *_waiting(members, records)])
        for (program, count, others), members in groups.items()
        for fit in [_scaling(members, count, others, confidence)]
    ]
    return render_sections(sections)


def _groups(records: Sequence[Record]) -> dict[_Group, dict[int, Record]]:
    """Return the figure of merit, or the elapsed time, by number of workers, for each group."""
    figures = selected(records, "app", "figure_of_merit", above_zero=True)
    programs = {r.conditions.get("program") for r in figures}
    figures += [
        r for r in selected(records, "app", "elapsed", above_zero=True) if r.conditions.get("program") not in programs
    ]
    groups: dict[_Group, dict[int, Record]] = {}
    for r in figures:
        for count in COUNTS:
            if (n := workers(r, count)) and all(s > 0 for s in r.samples):
                key = str(r.conditions.get("program", "")), count, varied(r, count)
                groups.setdefault(key, {})[n] = r
    return {key: members for key, members in groups.items() if len(members) > 1}


def _scaling(members: Mapping[int, Record], count: str, others: str, confidence: float) -> dict[str, Any]:
    """Return an object like the objects of `scaling` that `measure app --json` prints.

    Samples are in the order of the rounds, so they are paired if no run failed; otherwise medians are compared.
    """
    lengths = {len(r.samples) for r in members.values()}
    paired = len(lengths) == 1 and not any(r.provenance.get("failed") for r in members.values())
    speeds = {
        n: {i: _speed(r, s, n, count) for i, s in enumerate(r.samples if paired else (r.value,))}
        for n, r in members.items()
    }
    fitted = scaling(speeds, confidence=confidence)
    margin = number_in(next(iter(members.values())).provenance.get("margin"))
    kinds = fitted.kinds(MARGIN if margin is None else margin)
    return {
        "dimension": count,
        "others": others,
        "points": [asdict(p) | {"kind": kinds.get(p.workers, ""), "reason": ""} for p in fitted.points],
        "amdahl": fitted.amdahl and asdict(fitted.amdahl),
        "universal": fitted.universal and asdict(fitted.universal),
    }


def _speed(record: Record, sample: float, n: int, count: str) -> float:
    """Return work per time; for copies, the work of all copies."""
    if record.better == "higher":
        return sample
    return (n if count == "copies" else 1) / sample


def _waiting(members: Mapping[int, Record], records: Sequence[Record]) -> list[str]:
    """Return the share of the threads' time in which they waited for a CPU, for each number of workers."""
    waiting_shares = {
        (r.conditions.get("program"), varied(r)): r.value for r in selected(records, "app", "waiting_share")
    }
    keys = {n: (r.conditions.get("program"), varied(r)) for n, r in sorted(members.items())}
    shares = [f"{percent(waiting_shares[key])} with {n}" for n, key in keys.items() if key in waiting_shares]
    return [f"share of their time in which threads waited for a CPU: {', '.join(shares)}"] if shares else []
