"""Arrange the threads of a run in lanes, shared by all Gantt charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.load.result import LoadRun, ProgramUse, Span, ThreadUse, Totals
from meshmark.values.units import seconds_of

MAX_LANES: Final = 64
STATES: Final = (("user", "user"), ("system", "system"), ("waiting", "waiting for a CPU"), ("sleeping", "sleeping"))
MIN_DRAWN_S: Final = 0.01  # shorter threads appear in tables, not in charts
STATUS: Final = {"timeout": "ended at its timeout", "stopped": "stopped", "cut": "the run was killed"}


@dataclass
class Lane:
    """Threads drawn in one row: either consecutive ones, or simultaneous ones drawn as their mean."""

    label: str
    program: ProgramUse
    threads: list[ThreadUse] = field(default_factory=list)
    first: bool = False  # the first lane of its copy
    group: bool = False  # the first lane of its program

    def duration_s(self) -> float:
        """Without the gaps between consecutive threads."""
        hull = max((t.to_s for t in self.threads), default=0.0) - min((t.from_s for t in self.threads), default=0.0)
        return min(hull, sum(t.wall_s for t in self.threads))

    def times_s(self) -> tuple[float, float, float, float]:
        """Sums of user, system, waiting and sleeping."""
        return (
            sum(t.user_s for t in self.threads),
            sum(t.system_s for t in self.threads),
            sum(t.waiting_s for t in self.threads),
            sum(t.sleeping_s for t in self.threads),
        )


def lanes(run: LoadRun, max_lanes: int = MAX_LANES) -> list[Lane]:
    """One lane per thread, or one per copy if that gives more than `max_lanes`."""
    out: list[Lane] = []
    copies = {p.program: sum(q.program == p.program for q in run.programs) for p in run.programs}
    seen: set[str] = set()
    for p in run.programs:
        mine = [t for t in run.threads if (t.program, t.copy) == (p.program, p.copy)]
        name = p.program + (f" · {p.copy + 1}" if copies[p.program] > 1 else "")
        main = Lane(name, p, mine[:1], first=True, group=p.program not in seen)
        seen.add(p.program)
        out.append(main)
        rows: list[Lane] = []
        for t in mine[1:]:
            if t.wall_s < MIN_DRAWN_S:
                continue
            row = next((r for r in rows if r.threads[-1].to_s <= t.from_s + 1e-3), None)
            if row is None:
                row = Lane("", p)
                rows.append(row)
            row.threads.append(t)
        for i, row in enumerate(rows):
            team = row.threads[0].pid == mine[0].pid and len(row.threads) == 1
            commands = sorted({t.command for t in row.threads})
            row.label = (
                f"thread {i + 2}"
                if team
                else ", ".join(commands)
                if len(commands) < 3
                else f"{len(row.threads)} children"
            )
        out += rows
    if len(out) <= max_lanes:
        return out
    whole = [lane for lane in out if lane.first]
    for lane in whole:
        lane.threads = [t for t in run.threads if (t.program, t.copy) == (lane.program.program, lane.program.copy)]
        if len(lane.threads) > 1:
            lane.label += f" ({len(lane.threads)} threads)"
    return whole


def shares(spans: Sequence[Span], begin_s: float, end_s: float, bins: int) -> list[tuple[float, float, float, float]]:
    """Shares of each bin that are user, system, waiting and sleeping time. Their sum is below 1 if spans do not fill
    the bin, and can exceed 1 if they overlap.

    Returns:
        One tuple for each of `bins` bins of equal width from begin_s to end_s.
    """
    width = (end_s - begin_s) / bins
    sums = [[0.0, 0.0, 0.0, 0.0] for _ in range(bins)]
    for s in spans:
        if s.wall_s <= 0:
            continue
        parts = (s.user_s, s.system_s, s.waiting_s, s.sleeping_s)
        low = max(0, int((s.from_s - begin_s) / width))
        for i in range(low, bins):
            left, right = begin_s + i * width, begin_s + (i + 1) * width
            if left >= s.to_s:
                break
            part = (min(right, s.to_s) - max(left, s.from_s)) / s.wall_s
            if part > 0:
                for k in range(4):
                    sums[i][k] += parts[k] * part
    return [(a / width, b / width, c / width, d / width) for a, b, c, d in sums]


def lane_shares(lane: Lane, end_s: float, bins: int) -> list[tuple[float, float, float, float]]:
    found = shares([s for t in lane.threads for s in t.spans], 0.0, end_s, bins)
    # Normalise: simultaneous threads give their mean, and partly filled bins at the ends keep full height.
    return [
        (u / all_, s / all_, w / all_, z / all_) if (all_ := u + s + w + z) > 1e-3 else (0.0, 0.0, 0.0, 0.0)
        for u, s, w, z in found
    ]


def percent_of(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "–"


def flags_text(run: LoadRun) -> str:
    """The flags of all programs in one line; "" if there are none."""
    found = sorted(frozenset().union(*(run.flags(p) for p in run.programs)))
    return f"flags: {', '.join(found)}" if found else ""


def totals_of(run: LoadRun) -> list[tuple[str, str, str]]:
    """Rows of the header: name, value, explanation."""
    t: Totals = run.totals()
    fair = run.fairness()
    return [
        ("Bench time", seconds_of(t.bench_s), "from the start to the end of the last program"),
        ("Available CPU", seconds_of(t.available_s), f"time of {t.cpus} CPUs"),
        ("User", seconds_of(t.user_s), percent_of(t.user_s, t.available_s)),
        ("System", seconds_of(t.system_s), percent_of(t.system_s, t.available_s)),
        ("Idle or others'", seconds_of(t.idle_s), percent_of(t.idle_s, t.available_s)),
        ("Mean completion", seconds_of(t.completion_s), "from the start to a program's end"),
        ("Sum of run times", seconds_of(t.run_s), f"of {sum(p.how != 'failed' for p in run.programs)} programs"),
        ("Sum of waiting", seconds_of(t.waiting_s), "for a CPU, all threads"),
        ("Fairness", f"{fair:.3f}" if math.isfinite(fair) else "–", "Jain's index of CPU time got"),
    ]


def tick_step(span: float, max_ticks: int) -> float:
    raw = span / max_ticks
    power = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= raw))


def end_text(p: ProgramUse) -> str:
    """The label at the end of the first lane of a copy; "" if it succeeded."""
    return "" if p.how == "ok" else {"signal": "died", "status": "failed", "failed": "not started"}.get(p.how, p.how)


def shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
