"""Arrange the threads of a run in lanes, shared by all Gantt charts."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.load.scenario.result import LoadRun, ProgramUse, ThreadSpan, ThreadUse, Totals
from meshmark.machine.tree import format_list
from meshmark.values.units import plain, seconds_of

MAX_LANES: Final = 64
STATES: Final = (("user", "user"), ("system", "system"), ("waiting", "waiting for a CPU"), ("sleeping", "sleeping"))
_MIN_LATE_S: Final = 0.005  # rounds to 0.00 s
MIN_DRAWN_S: Final = 0.01  # shorter threads appear in tables, not in charts
CHECK: Final = "checking results"  # a phase of synthetic programs, drawn over the states
STATUS: Final = {"timeout": "ended at its timeout", "stopped": "stopped", "cut": "the run was killed"}


@dataclass
class ThreadLane:
    """Threads drawn in one row: either consecutive threads, or simultaneous threads drawn as their mean."""

    label: str
    program: ProgramUse
    threads: list[ThreadUse] = field(default_factory=list)
    first: bool = False  # the first lane of its copy
    group: bool = False  # the first lane of its program

    @property
    def check(self) -> tuple[float, float] | None:
        """Return when the program checked its results, in s after the start of the clock; None without a check."""
        p = self.program
        return (p.ended_s - p.check_s, p.ended_s) if p.synthetic and p.how == "ok" and p.check_s > 0 else None

    def duration_s(self) -> float:
        """Return the duration without the gaps between consecutive threads."""
        extent_s = max((t.to_s for t in self.threads), default=0.0) - min((t.from_s for t in self.threads), default=0.0)
        return min(extent_s, sum(t.wall_s for t in self.threads))

    def times_s(self) -> tuple[float, float, float, float]:
        """Return the sums of user, system, waiting and sleeping time."""
        return (
            sum(t.user_s for t in self.threads),
            sum(t.system_s for t in self.threads),
            sum(t.waiting_s for t in self.threads),
            sum(t.sleeping_s for t in self.threads),
        )


def lanes(run: LoadRun, max_lanes: int = MAX_LANES) -> list[ThreadLane]:
    """Return one lane per thread, or one per copy if there would be more than `max_lanes` lanes."""
    result: list[ThreadLane] = []
    copies = {p.program: sum(q.program == p.program for q in run.programs) for p in run.programs}
    programs_seen: set[str] = set()
    for p in run.programs:
        own_threads = [t for t in run.threads if (t.program, t.copy) == (p.program, p.copy)]
        name = p.program + (f" · {p.copy + 1}" if copies[p.program] > 1 else "")
        main = ThreadLane(name, p, own_threads[:1], first=True, group=p.program not in programs_seen)
        programs_seen.add(p.program)
        result.append(main)
        rows: list[ThreadLane] = []
        for t in own_threads[1:]:
            if t.wall_s < MIN_DRAWN_S:
                continue
            row = next((r for r in rows if r.threads[-1].to_s <= t.from_s + 1e-3), None)
            if row is None:
                row = ThreadLane("", p)
                rows.append(row)
            row.threads.append(t)
        for i, row in enumerate(rows):
            is_team = row.threads[0].pid == own_threads[0].pid and len(row.threads) == 1
            commands = sorted({t.command for t in row.threads})
            row.label = (
                f"thread {i + 2}"
                if is_team
                else ", ".join(commands)
                if len(commands) < 3
                else f"{len(row.threads)} children"
            )
        result += rows
    if len(result) <= max_lanes:
        return result
    first_lanes = [lane for lane in result if lane.first]
    for lane in first_lanes:
        lane.threads = [t for t in run.threads if (t.program, t.copy) == (lane.program.program, lane.program.copy)]
        if len(lane.threads) > 1:
            lane.label += f" ({len(lane.threads)} threads)"
    return first_lanes


def shares(
    spans: Sequence[ThreadSpan], begin_s: float, end_s: float, bins: int
) -> list[tuple[float, float, float, float]]:
    """Return the shares of each bin that are user, system, waiting and sleeping time.

    The sum of the shares is below 1 if spans do not fill the bin, and can exceed 1 if spans overlap.

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


def lane_shares(lane: ThreadLane, end_s: float, bins: int) -> list[tuple[float, float, float, float]]:
    """Return, for each of `bins` parts of the time, the shares of the four states of a lane, which add up to 1."""
    bin_shares = shares([s for t in lane.threads for s in t.spans], 0.0, end_s, bins)
    # Normalise: simultaneous threads yield their mean, and partly filled bins at the ends keep full height.
    return [
        (u / all_, s / all_, w / all_, z / all_) if (all_ := u + s + w + z) > 1e-3 else (0.0, 0.0, 0.0, 0.0)
        for u, s, w, z in bin_shares
    ]


def cpus_of(cpus: Iterable[int]) -> str:
    """Return CPUs as a list such as `0-3,8`."""
    return format_list([*cpus])


def percent_of(part: float, whole: float) -> str:
    """Return a part of a whole as text in per cent; "–" if the whole is 0."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "–"


def flags_text(run: LoadRun) -> str:
    """Return the flags of all programs in one line; "" if there are none."""
    flags = sorted(frozenset().union(*(run.flags(p) for p in run.programs)))
    return f"flags: {', '.join(flags)}" if flags else ""


def totals_of(run: LoadRun) -> list[tuple[str, str, str]]:
    """Return rows of the header: name, value, explanation."""
    t: Totals = run.totals()
    fairness = run.fairness()
    return [
        ("Makespan", seconds_of(t.bench_s), "from the start to the end of the last program"),
        ("Available CPU", seconds_of(t.available_s), f"time of {t.cpus} CPUs"),
        ("User", seconds_of(t.user_s), percent_of(t.user_s, t.available_s)),
        ("System", seconds_of(t.system_s), percent_of(t.system_s, t.available_s)),
        ("Idle or other programs", seconds_of(t.idle_s), percent_of(t.idle_s, t.available_s)),
        ("Mean completion", seconds_of(t.completion_s), "from the start to a program's end"),
        ("Sum of run times", seconds_of(t.run_s), f"of {sum(p.how != 'failed' for p in run.programs)} programs"),
        ("Sum of waiting times", seconds_of(t.waiting_s), "for a CPU, all threads"),
        ("Fairness", f"{fairness:.3f}" if math.isfinite(fairness) else "–", "Jain's index of the CPU time received"),
        *_of_plans(run),
    ]


def _of_plans(run: LoadRun) -> list[tuple[str, str, str]]:
    """Return rows of the header about synthetic programs."""
    setups = [p.setup_s for p in run.programs if p.synthetic]
    gaps = [(abs(p.plan_gap), p.plan_gap, p.program) for p in run.programs if p.plan_gap is not None]
    rows = [("Set-up", seconds_of(max(setups)), "before the start, longest program")] if setups else []
    if gaps:
        _, gap, program = max(gaps)
        rows.append(("Against plan", f"{100 * gap:+.1f} %", f"run time of {program}, the largest deviation"))
    return rows


def plan_lines(run: LoadRun) -> list[str]:
    """Return a line for each synthetic program: run time and rates, planned and measured, and its other phases."""
    by_program: dict[str, list[ProgramUse]] = {}
    for p in run.programs:
        if p.synthetic and p.how == "ok":
            by_program.setdefault(p.program, []).append(p)
    return [f"{name}: {_plan_text(copies)}" for name, copies in by_program.items()]


def figure_lines(run: LoadRun) -> list[str]:
    """Return a line for each program that printed a figure of merit, with the figures of its copies."""
    by_program: dict[str, list[ProgramUse]] = {}
    for p in run.programs:
        if p.figure is not None and p.how == "ok":
            by_program.setdefault(p.program, []).append(p)
    return [
        f"{name}: figure of merit {_range([p.figure_value for p in copies], functools.partial(plain, unit=unit))}"
        for name, copies in by_program.items()
        for unit in [copies[0].figure.unit if copies[0].figure else ""]
    ]


def _plan_text(copies: Sequence[ProgramUse]) -> str:
    parts = [f"ran {_range([p.running_s for p in copies], seconds_of)}"]
    if gaps := [p.plan_gap for p in copies if p.plan_gap is not None]:
        planned_s = float(copies[0].done["planned_s"])
        parts[0] += f" of {seconds_of(planned_s)} planned ({_range(gaps, lambda g: f'{100 * g:+.1f} %')})"
    for metric, (rate_name, unit) in _RATE_NAMES.items():
        if rates := [r[metric] for p in copies if metric in (r := p.rates())]:
            text = f"{rate_name} {_range(rates, functools.partial(plain, unit=unit))}"
            if gaps:
                text += f" of {plain(rates[0] * (1 + gaps[0]), unit)}"
            parts.append(text)
    if paced := [p for p in copies if p.paced]:
        waiting_range = _range([100 * float(p.done["spun_s"]) / p.running_s for p in paced], lambda v: f"{v:.1f} %")
        late_s = max(float(p.done["late_s"]) for p in paced)
        parts.append(
            f"busy-waited {waiting_range} of its time to keep its schedule"
            + (f" and ended {seconds_of(late_s)} behind it" if late_s >= _MIN_LATE_S else "")
        )
    parts.append(f"set up in {_range([p.setup_s for p in copies], seconds_of)} before the start")
    parts.append(f"checked its results in {_range([p.check_s for p in copies], seconds_of)}")
    return ", ".join(parts)


_RATE_NAMES: Final = {
    "memory_rate": ("memory", "B/s"),
    "cache_rate": ("caches", "B/s"),
    "flop_rate": ("arithmetic", "flop/s"),
    "integer_rate": ("integers", "op/s"),
    "io_rate": ("files", "B/s"),
}


def _range(values: Sequence[float], text: Callable[[float], str]) -> str:
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def tick_step(span: float, max_ticks: int) -> float:
    """Return the smallest of 1, 2, 5 or 10 times a power of ten that gives at most `max_ticks` steps."""
    raw = span / max_ticks
    power = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return float(next(m * power for m in (1, 2, 5, 10) if m * power >= raw))


def end_text(p: ProgramUse) -> str:
    """Return the label at the end of the first lane of a copy; "" if it succeeded."""
    return (
        "" if p.how == "ok" else {"signal": "terminated", "status": "failed", "failed": "not started"}.get(p.how, p.how)
    )


def shortened(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters; an ellipsis replaces the end of a longer one."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"
