"""Compare two runs of the same programs: the slowdown of each program and the conditions that differ.

Programs are matched by name and copy. A folder with several runs of one scenario is a set of repetitions. A sample is
then the mean over the copies of a program in one run, because copies in one run are not independent. With one run on
each side, the copies are the samples, and the interval describes the spread between copies, not between runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.result import EFFECTS, Key, LoadRun, ProgramUse, Slowdown, slowdown
from meshmark.machine.tree import format_list
from meshmark.statistics.verdicts import Word, spoken
from meshmark.values.units import seconds_of

TIMES: Final = ("wall_s", "user_s", "system_s", "waiting_s")
HEADINGS: Final = ("elapsed", "user", "system", "waiting")
TOTALS: Final = {
    "bench_s": "Makespan",
    "available_s": "Available CPU",
    "user_s": "User",
    "system_s": "System",
    "idle_s": "Idle or other programs",
    "completion_s": "Mean completion",
    "run_s": "Sum of run times",
    "waiting_s": "Sum of waiting times",
    "fairness": "Fairness",
}
_OBSERVED: Final = {"load_1min"}  # changes all the time; not a condition that was set
# Keys of a program that are not conditions. The work of a program is compared instead of the path of its file.
_NO_CONDITION: Final = {"name", "file"}
WORK: Final = 0.005  # relative difference above which the work of a program counts as different
_MAX_RUNS: Final = 1000


@dataclass(frozen=True, slots=True)
class LoadSide:
    """One side of a comparison: a run, or repetitions of a run."""

    name: str
    runs: tuple[LoadRun, ...]

    @property
    def first(self) -> LoadRun:
        """Return the first run."""
        return self.runs[0]

    def uses(self, key: Key) -> list[ProgramUse]:
        """Return the use of a copy in each run that has it."""
        return [p for r in self.runs for p in r.programs if (p.program, p.copy) == key]

    def flags(self, key: Key) -> frozenset[str]:
        """Return the flags that a program's copy has in any run."""
        return frozenset().union(*(r.flags(p) for r in self.runs for p in r.programs if (p.program, p.copy) == key))


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """A copy on both sides: medians in s over its successful runs. `reason`: why some runs are missing."""

    copy: int
    a: Mapping[str, float]
    b: Mapping[str, float]
    reason: str = ""

    @property
    def ratio(self) -> float:
        """Return the ratio B over A; NaN if a side has no time."""
        return self.b["wall_s"] / self.a["wall_s"] if self.a.get("wall_s") and self.b.get("wall_s") else math.nan


@dataclass(frozen=True, slots=True)
class ProgramComparison:
    """A program on both sides. `slowdown`: B over A of its matched copies; None if no copy succeeded."""

    program: str
    copies: tuple[CopyTimes, ...]
    slowdown: Slowdown | None
    flags_a: frozenset[str]
    flags_b: frozenset[str]
    doubt: str = ""  # why the slowdown cannot be judged, apart from its interval

    @property
    def word(self) -> Word:
        """Return the verdict; `higher` if B is slower."""
        return self.slowdown.judged(self.doubt) if self.slowdown else "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadComparison:
    """The comparison of two sides: slowdowns, totals, and conditions that differ."""

    a: LoadSide
    b: LoadSide
    programs: tuple[ProgramComparison, ...]
    only_a: tuple[str, ...]  # programs and copies, as `name · 2`
    only_b: tuple[str, ...]
    totals: tuple[tuple[str, float, float], ...]  # field of `Totals` or fairness, A, B; medians of the runs
    differ: tuple[tuple[str, str, str], ...]  # condition, A, B
    over: str  # what a sample is: runs or copies

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as one JSON object; a value that is not finite is None."""

        def side(s: LoadSide) -> dict[str, Any]:
            return {
                "name": s.name,
                "folder": str(s.first.folder),
                "runs": len(s.runs),
                "machine": s.first.header.get("machine"),
                "start": s.first.header.get("start"),
                "status": [r.status for r in s.runs],
            }

        def known(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "type": "comparison",
            "a": side(self.a),
            "b": side(self.b),
            "samples_are": self.over,
            "programs": [
                {
                    "program": m.program,
                    "slowdown": m.slowdown.ratio if m.slowdown else None,
                    "interval": list(m.slowdown.interval) if m.slowdown and m.slowdown.interval else None,
                    "verdict": spoken(m.word, "lower", "s"),
                    **({"doubt": m.doubt} if m.doubt else {}),
                    "samples_a": m.slowdown.alone if m.slowdown else 0,
                    "samples_b": m.slowdown.together if m.slowdown else 0,
                    "flags_a": sorted(m.flags_a),
                    "flags_b": sorted(m.flags_b),
                    "copies": [
                        {
                            "copy": c.copy,
                            "a": dict(c.a),
                            "b": dict(c.b),
                            "slowdown": known(c.ratio),
                            **({"reason": c.reason} if c.reason else {}),
                        }
                        for c in m.copies
                    ],
                }
                for m in self.programs
            ],
            "totals": {name: {"a": known(a), "b": known(b)} for name, a, b in self.totals},
            "differ": [{"condition": condition, "a": a, "b": b} for condition, a, b in self.differ],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }


def read_side(folder: Path, name: str = "") -> LoadSide:
    """Return a run, or the runs of one scenario in a folder.

    Raises:
        UsageError: the folder contains no run, or runs of different programs.
    """
    name = name or folder.name
    if (folder / JOURNAL).is_file():
        return LoadSide(name, (read_run(folder),))
    folders = sorted(p.parent for p in folder.glob(f"*/{JOURNAL}"))[:_MAX_RUNS] if folder.is_dir() else []
    if not folders:
        raise UsageError(f"compare: found no run in {folder}", "meshmark load run SCENARIO --out FOLDER creates one")
    runs = tuple(read_run(p) for p in folders)
    program_sets = {tuple(sorted(r.bound)) for r in runs}
    if len(program_sets) > 1:
        raise UsageError(
            f"compare: found runs of {len(program_sets)} different sets of programs in {folder}; "
            "allowed: repetitions of one scenario",
            f"name one run, such as {folders[0]}",
        )
    return LoadSide(name, runs)


def compare(a: LoadSide, b: LoadSide) -> LoadComparison:
    """Compare the programs that both sides have, B over A.

    Raises:
        UsageError: the sides have no program in common.
    """
    keys = [(p.program, p.copy) for p in a.first.programs]
    others = {(p.program, p.copy) for p in b.first.programs}
    common = [k for k in keys if k in others]
    if not common:
        names = [", ".join(dict.fromkeys(p.program for p in s.first.programs)) or "none" for s in (a, b)]
        raise UsageError(
            f"compare: no program of {a.name} ({names[0][:100]}) has the name of one of {b.name} ({names[1][:100]})",
            "programs are matched by name and copy",
        )
    samples_are = "runs" if len(a.runs) > 1 or len(b.runs) > 1 else "copies"
    matched = tuple(
        _matched(a, b, name, [c for n, c in common if n == name], samples_are)
        for name in dict.fromkeys(n for n, _ in common)
    )
    return LoadComparison(
        a=a,
        b=b,
        programs=matched,
        over=samples_are,
        only_a=tuple(f"{n} · {c + 1}" for n, c in keys if (n, c) not in others),
        only_b=tuple(f"{n} · {c + 1}" for n, c in sorted(others - set(keys))),
        totals=tuple((name, _total(a, name), _total(b, name)) for name in TOTALS),
        differ=tuple(_differ(a.first, b.first, common)),
    )


def _matched(a: LoadSide, b: LoadSide, program: str, copies: Sequence[int], over: str) -> ProgramComparison:
    rows = []
    for copy in copies:
        sides, reasons = [], []
        for side in (a, b):
            uses = side.uses((program, copy))
            successful = [p for p in uses if p.how == "ok"]
            sides.append({t: statistics.median(getattr(p, t) for p in successful) for t in TIMES} if successful else {})
            reasons += [f"{side.name}: {p.reason or p.how}" for p in uses if p.how != "ok"][:1]
        rows.append(CopyTimes(copy, sides[0], sides[1], "; ".join(reasons)))
    # Only copies that succeeded on both sides count: otherwise the means would be over different copies.
    complete_copies = {r.copy for r in rows if r.a and r.b}
    times = [_samples(side, program, complete_copies, over) for side in (a, b)]
    flags = [frozenset[str]().union(*(side.flags((program, c)) for c in copies)) for side in (a, b)]
    doubts = [
        "one run each" if over == "copies" else "",
        "different work" if _work_differs(a.first, b.first, program, copies[0]) else "",
        " ".join(sorted((flags[0] | flags[1]) - EFFECTS)),
    ]
    return ProgramComparison(
        program,
        tuple(rows),
        slowdown(times[0], times[1]) if all(times) else None,
        flags[0],
        flags[1],
        ", ".join(d for d in doubts if d),
    )


def _samples(side: LoadSide, program: str, copies: set[int], over: str) -> list[float]:
    """Return wall times in s: the mean over the copies of each run, or one time per copy."""
    samples: list[float] = []
    for run in side.runs:
        walls = [
            p.wall_s
            for p in run.programs
            if p.program == program and p.copy in copies and p.how == "ok" and p.wall_s > 0
        ]
        samples += walls if over == "copies" else [statistics.fmean(walls)] if walls else []
    return samples


def _total(side: LoadSide, name: str) -> float:
    values = [r.fairness() if name == "fairness" else float(getattr(r.totals(), name)) for r in side.runs]
    finite = [v for v in values if math.isfinite(v)]
    return statistics.median(finite) if finite else math.nan


def _condition_text(value: Any) -> str:
    """Return a condition as readable text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_condition_text(v)}" for k, v in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_condition_text, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "none" if value in (None, "") else str(value)


def _differ(a: LoadRun, b: LoadRun, both: Sequence[Key]) -> list[tuple[str, str, str]]:
    """Return the conditions of the machine, of the scenario and of the programs that differ."""
    differences: list[tuple[str, str, str]] = []

    def add(what: str, one: Any, other: Any) -> None:
        if one != other:
            differences.append((what, _condition_text(one), _condition_text(other)))

    for key in ("machine", "build", "compiler"):
        add(key, a.header.get(key), b.header.get(key))
    first, second = (dict(r.header.get("conditions", {})) for r in (a, b))
    for key in dict.fromkeys([*first, *second]):
        if key not in _OBSERVED:
            add(key.replace("_", " "), first.get(key), second.get(key))
    for key in dict.fromkeys([*a.scenario, *b.scenario]):
        if key not in {"programs", "available_cpus"}:
            add("scenario" if key == "name" else f"scenario's {key}", a.scenario.get(key), b.scenario.get(key))
    add("CPUs of the programs", format_list(a.cpus), format_list(b.cpus))
    for program in dict.fromkeys(n for n, _ in both):
        first, second = (_about(r, program) for r in (a, b))
        for key in dict.fromkeys([*first, *second]):
            if key not in _NO_CONDITION:
                add(
                    f"{program}: {key}",
                    *("" if conditions.get(key) is None else conditions[key] for conditions in (first, second)),
                )
        copies = [c for n, c in both if n == program]
        bound_cpus = [[format_list(r.bound.get((program, c), ())) for c in copies] for r in (a, b)]
        if first.get("cpus") == second.get("cpus"):  # if they differ, `cpus` is already listed
            add(f"{program}: bound to CPUs", bound_cpus[0], bound_cpus[1])
        differences += [
            (f"{program}: {condition.replace('_', ' ')}", f"{first:.4g}", f"{second:.4g}")
            for condition, first, second in _work_differs(a, b, program, copies[0])
        ]
    return differences


def _work_differs(a: LoadRun, b: LoadRun, program: str, copy: int) -> list[tuple[str, float, float]]:
    """Return the parts of a program's work that differ: name, A, B."""
    work_a, work_b = (_work(r, program, copy) for r in (a, b))
    common = [(quantity, work_a[quantity], work_b[quantity]) for quantity in work_a if quantity in work_b]
    return [(quantity, x, y) for quantity, x, y in common if abs(x - y) > WORK * max(x, y)]


def _about(run: LoadRun, program: str) -> dict[str, Any]:
    return next((dict(p) for p in run.scenario.get("programs", ()) if p.get("name") == program), {})


def _work(run: LoadRun, program: str, copy: int) -> dict[str, float]:
    """Return the work of a synthetic program: times are comparable only if it is the same."""
    counts = next((p.done for p in run.programs if (p.program, p.copy) == (program, copy)), {})
    return {
        k: float(counts[k])
        for k in ("calls", "flops", "int_ops", "memory_read_bytes", "memory_write_bytes")
        if isinstance(counts.get(k), int | float)
    }


def _both(a: float | None, b: float | None) -> str:
    return " → ".join("–" if v is None else f"{v:.3f}" for v in (a, b))


def rows_of(c: LoadComparison) -> list[tuple[str, list[str], ProgramComparison, CopyTimes | None]]:
    """Return table rows: one per copy, and one over all copies if there are several."""
    rows: list[tuple[str, list[str], ProgramComparison, CopyTimes | None]] = []
    for m in c.programs:
        has_several = len(m.copies) > 1
        verdict = spoken(m.word, "lower", "s") if m.slowdown else "–"
        for copy in m.copies:
            ratio = f"{copy.ratio:.3f}" if math.isfinite(copy.ratio) else "–"
            times = [_both(copy.a.get(t), copy.b.get(t)) for t in TIMES]
            name = m.program + (f" · {copy.copy + 1}" if has_several else "")
            judgement = ["", ""] if has_several else [interval_text(m.slowdown), verdict]
            rows.append((name, [*times, ratio, *judgement], m, copy))
        if has_several:
            ratio = f"{m.slowdown.ratio:.3f}" if m.slowdown else "–"
            rows.append(
                (
                    f"{m.program}: all {len(m.copies)}",
                    ["", "", "", "", ratio, interval_text(m.slowdown), verdict],
                    m,
                    None,
                )
            )
    return rows


def interval_text(s: Slowdown | None) -> str:
    """Return the interval of a slowdown as text; "–" without an interval."""
    return f"{s.interval[0]:.3f} – {s.interval[1]:.3f}" if s is not None and s.interval else "–"


def flags_text(m: ProgramComparison) -> str:
    """Return the flags of both sides; a flag of only one side has the letter of that side."""
    return " ".join(
        f if f in m.flags_a and f in m.flags_b else f"{'A' if f in m.flags_a else 'B'}:{f}"
        for f in sorted(m.flags_a | m.flags_b)
    )


def samples_text(c: LoadComparison) -> str:
    """Return a sentence about what the intervals are computed from."""
    return f"slowdown: B over A; 95 % interval over {c.over}, of which it needs 4 on each side" + (
        ": spread between copies, not between runs; one run of each is not conclusive" if c.over == "copies" else ""
    )


def value_text(name: str, value: float) -> str:
    """Return a total as text: fairness as a number, all others as a time; "–" if it is not finite."""
    return "–" if not math.isfinite(value) else f"{value:.3f}" if name == "fairness" else seconds_of(value)


def change_text(a: float, b: float) -> str:
    """Return the ratio of B over A as text; "–" if it cannot be computed."""
    return f"{b / a:.3f}" if math.isfinite(a) and math.isfinite(b) and a > 0 else "–"
