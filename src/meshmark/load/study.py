"""How a study is run: scenarios repeated in turn, every run kept, resumed where it stopped.

A study's folder holds `study.json` (what was asked), `programs/` (made once), `journal.jsonl` (a line a finished run,
on disk before it counts), `runs/` (the folder of each run) and, at the end, `records.jsonl`.

What is compared runs close together in time: a repetition runs every group of cells once, groups in an order drawn from
the seed, and within a group, which is what is compared directly, the order turns round with each repetition.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.lines import is_count, is_number
from meshmark.load.make import calibrate
from meshmark.load.prescription import Prescription
from meshmark.load.program import Program, dump_program, read_program
from meshmark.load.records import INSTRUMENT, METRICS
from meshmark.load.run import LoadRun, ProgramUse, Slowdown, Totals, run_scenario, slowdown
from meshmark.load.scenario import Canary, Here, Member, Scenario
from meshmark.load.synthesis import explain, synthesize
from meshmark.load.variants import MAX_PROGRAM_BYTES, Variant, found
from meshmark.machine.tree import format_list
from meshmark.measure.journal import read_journal
from meshmark.store.files import held, read_bytes, read_json, write_file
from meshmark.store.lines import cut_torn_end, whole_lines
from meshmark.store.record import SCHEMA, Record, Scalar
from meshmark.store.run import Absence

JOURNAL: Final = "journal.jsonl"
PLAN: Final = "study.json"
RECORDS: Final = "records.jsonl"
Clock = Literal["wall", "dedicated"]
CLOCKS: Final = ("wall", "dedicated")
Talk = Callable[[str], None]
Work = Path | Sequence[str]  # a program's file, or a command
LEAD_S: Final = 0.25  # neighbours run that long before what is measured starts
MEMORY_MIB: Final = 512.0  # of a study's programs: setting up and checking more takes longer than running
OUTLASTS: Final = 12.0  # times as long as what is measured: a neighbour, which is ended with it
SHARES: Final = (0.1, 0.2, 0.35, 0.5, 0.7, 0.9)  # of the highest rate that base data allow
MOST_REPETITIONS: Final = 100
QUIET: Final = Canary(0.0, 0.0, False)  # a canary's loads would be one more neighbour


def hush(_: str) -> None:
    """Talk to nobody."""


# ---------------------------------------------------------------- what runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Something to run again and again."""

    name: str  # unique in its study
    scenarios: tuple[Scenario, ...]  # taken in turn, a repetition each
    measured: tuple[str, ...] = ()  # programs that are waited for, the others are ended then; empty: all


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A copy of a program in one run. Times in s; those of a synthesised program are its own, without its check."""

    program: str
    copy: int
    how: str
    wall_s: float
    waiting_s: float
    user_s: float
    system_s: float
    threads: int
    counts: Mapping[str, float]  # of a synthesised program

    def time_s(self, clock: Clock) -> float:
        """Its run time; `dedicated`: less what each of its threads waited for a CPU, on average."""
        return self.wall_s if clock == "wall" else max(1e-9, self.wall_s - self.waiting_s / max(1, self.threads))

    def memory_rate(self, clock: Clock) -> float:
        """B/s to and from memory by its counts; 0 where it has none."""
        moved = self.counts.get("memory_read_bytes", 0.0) + self.counts.get("memory_write_bytes", 0.0)
        return moved / self.time_s(clock) if self.wall_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished run."""

    cell: str
    repetition: int
    run: str  # folder in runs/
    start: str
    measured: tuple[str, ...]
    uses: tuple[Use, ...]
    totals: Totals
    flags: frozenset[str]
    about: Mapping[str, str] = field(default_factory=dict)  # machine, build, compiler, kernel
    more: Mapping[str, float] = field(default_factory=dict)  # what the study looked up in the run
    reason: str = ""  # why it does not count

    def of(self, *programs: str) -> list[Use]:
        """Copies of these programs, or of all that are measured."""
        return [u for u in self.uses if u.program in (programs or self.measured)]

    def time_s(self, clock: Clock) -> float:
        """Mean over the measured copies: copies of one run are no independent samples."""
        return statistics.fmean(u.time_s(clock) for u in self.of())

    def to_json(self) -> dict[str, Any]:
        return {"type": "run", **dataclasses.asdict(self), "flags": sorted(self.flags)}

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Outcome:
        """
        Raises:
            KeyError, TypeError, ValueError: it is no such line.
        """
        kept = {k: v for k, v in line.items() if k != "type"}
        one = Outcome(
            **{
                **kept,
                "measured": tuple(line["measured"]),
                "uses": tuple(Use(**u) for u in line["uses"]),
                "totals": Totals(**line["totals"]),
                "flags": frozenset(line["flags"]),
            }
        )
        texts = (
            one.cell,
            one.run,
            one.start,
            one.reason,
            *one.measured,
            *one.flags,
            *one.about.values(),
            *(text for u in one.uses for text in (u.program, u.how)),
        )
        counts = (one.repetition, *(n for u in one.uses for n in (u.copy, u.threads)))
        times = (n for u in one.uses for n in (u.wall_s, u.waiting_s, u.user_s, u.system_s, *u.counts.values()))
        numbers = (*times, *dataclasses.astuple(one.totals), *one.more.values())
        if not (all(isinstance(t, str) for t in texts) and all(map(is_count, counts)) and all(map(is_number, numbers))):
            raise ValueError("a value is not of its type")
        if not one.reason and not (one.of() and all(u.wall_s > 0 for u in one.of())):
            raise ValueError("what counts has a run time")
        json.dumps(kept, ensure_ascii=False).encode()  # half of a character cannot be shown
        return one


def _use(p: ProgramUse) -> Use:
    own = float(p.done.get("wall_s", 0.0))
    counts = {k: float(v) for k, v in p.done.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return Use(
        program=p.program,
        copy=p.copy,
        how=p.how,
        wall_s=own or p.wall_s,
        waiting_s=float(p.done["waiting_s"]) if own else p.waiting_s,
        user_s=float(p.done["user_s"]) if own else p.user_s,
        system_s=float(p.done["system_s"]) if own else p.system_s,
        threads=max(1, p.threads),
        counts=counts,
    )


def _outcome(
    cell: Cell, repetition: int, run: LoadRun, look: Callable[[LoadRun], Mapping[str, float]] | None
) -> Outcome:
    measured = cell.measured or tuple(dict.fromkeys(p.program for p in run.programs))
    ours = [p for p in run.programs if p.program in measured]
    bad = [p for p in ours if p.how != "ok"]
    others = [p for p in run.programs if p.program not in measured]
    # A neighbour that ended by itself left the measured program alone for a while.
    last_s = max((p.released_s + float(p.done.get("wall_s", p.wall_s)) for p in ours if p.how == "ok"), default=0.0)
    early = [p for p in others if p.how == "failed" or p.ended_s < last_s]
    reason = (
        f"program {bad[0].program}, copy {bad[0].copy}: {bad[0].reason}"
        if bad
        else f"program {early[0].program}, copy {early[0].copy}: "
        + (
            f"it never ran: {early[0].reason}"
            if early[0].how == "failed"
            else f"as a neighbour it ended after {early[0].ended_s:.3g} s, what is measured after {last_s:.3g} s"
        )
        if early
        else ""
        if ours
        else "no program ran"
    )
    return Outcome(
        cell=cell.name,
        repetition=repetition,
        run=run.folder.name,
        start=str(run.header.get("start", "")),
        measured=measured,
        uses=tuple(_use(p) for p in run.programs),
        totals=run.totals(),
        reason=reason,
        flags=frozenset().union(*(run.flags(p) for p in ours)) if ours else frozenset(),
        more=dict(look(run)) if look is not None and not reason else {},
        about={
            "machine": str(run.header.get("machine", "")),
            "build": str(run.header.get("build", "")),
            "compiler": str(run.header.get("compiler", "")),
            "kernel": str(run.header.get("conditions", {}).get("kernel_release", "")),
        },
    )


class _Ender:
    """Ends the neighbours as soon as it hears that all measured copies are done."""

    def __init__(self, scenario: Scenario, measured: Sequence[str]) -> None:
        of = {p.name: p.copies for p in scenario.programs}
        self._left = sum(of[name] for name in measured)
        self._measured = set(measured)
        self._pids: dict[tuple[str, int], int] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        key = (str(event.get("program", "")), int(event.get("copy", 0)))
        kind = event.get("event")
        if kind == "ready" and key[0] not in self._measured:
            self._pids[key] = int(event["pid"])
        elif kind in {"exit", "failed"}:
            self._pids.pop(key, None)
            self._left -= key[0] in self._measured
        if self._left <= 0:
            for pid in self._pids.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGTERM)  # each program leads a group of its own
            self._pids.clear()


# ---------------------------------------------------------------- in turn


def order(groups: Sequence[Sequence[Cell]], repetition: int, seed: int) -> list[Cell]:
    """The cells of one repetition. It depends on nothing but these arguments, so that a resumed study keeps it."""
    rng = random.Random(f"{seed}/{repetition}")
    shuffled = list(groups)
    rng.shuffle(shuffled)
    out: list[Cell] = []
    for group in shuffled:
        cells = list(group)
        if len(cells) > 2:
            rng.shuffle(cells)
        elif repetition % 2:
            cells.reverse()  # alone first, then together first
        out += cells
    return out


@contextlib.contextmanager
def _journal(path: Path) -> Iterator[Any]:
    """The journal, open for one writer, without a torn last line."""
    try:
        with held(path.parent, resumed=True), path.open("ab") as sink:
            cut_torn_end(path)
            yield sink
    except OSError as why:
        raise MeshmarkError(f"cannot write {path}: {why.strerror or why}") from why


def read_outcomes(folder: Path) -> list[Outcome]:
    """The finished runs of a study, in the order in which they ran; lines that are none are skipped."""
    out: dict[tuple[str, int], Outcome] = {}
    for raw in whole_lines(folder / JOURNAL):
        try:
            line = json.loads(raw)
            if line["type"] == "run":
                one = Outcome.from_json(line)
                out[one.cell, one.repetition] = one
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    return list(out.values())


def start_study(folder: Path, name: str, parameters: Mapping[str, Any], talk: Talk = hush) -> None:
    """Makes a study's folder, or takes up what lies there if it is the same study.

    Raises:
        UsageError: another study lies there, by the parameter that differs.
        MeshmarkError: the folder cannot be written.
    """
    asked = json.loads(json.dumps({"format": "meshmark load study", "version": 1, "study": name, **parameters}))
    path = folder / PLAN
    if path.exists():
        try:
            known = read_json(path)
        except UsageError as why:
            raise UsageError(f"no study of Meshmark's: {why}", "name another folder with --out") from why
        for key in {**asked, **(known if isinstance(known, dict) else {})}:
            if not isinstance(known, dict) or known.get(key) != asked.get(key):
                was = known.get(key) if isinstance(known, dict) else known
                raise UsageError(
                    f"{folder}: holds a study with {key} = {found(was)}; asked is {found(asked.get(key))}",
                    "name another folder with --out, or ask for the same to resume it",
                )
        done = len(read_outcomes(folder))
        if done:
            talk(f"{name}: resumed in {folder}, {done} runs are there")
        return
    if folder.exists() and any(f.name != "programs" for f in folder.iterdir()):  # those may be made before
        raise UsageError(f"{folder}: is not empty and holds no study", "name another folder with --out")
    write_file(path, json.dumps(asked, indent=1).encode() + b"\n")


def _needless(cell: Cell, groups: Sequence[Sequence[Cell]], failed: set[str]) -> bool:
    """It failed, or of every pair that it is one of the other did."""
    if cell.name in failed:
        return True
    for group in groups:
        names = [c.name for c in group]
        if cell.name in names:
            others = names[1:] if cell.name == names[0] else names[:1]
            if not others or not failed.issuperset(others):
                return False
    return True


def run_cells(
    folder: Path,
    groups: Sequence[Sequence[Cell]],
    repetitions: int,
    seed: int,
    talk: Talk = hush,
    look: Callable[[LoadRun], Mapping[str, float]] | None = None,
    here: Here | None = None,
) -> dict[str, list[Outcome]]:
    """Runs what is not in the journal yet, and returns everything that is.

    A cell whose run does not count (a program died, a neighbour ended too early) is not tried again in this study, nor
    what has nothing left to compare with; the others go on. Its outcomes say why.

    Args:
        groups: the first cell of each is what the others are compared with.

    Returns:
        Outcomes by cell and repetition, also those that do not count.

    Raises:
        MeshmarkError: a run or the folder fails.
    """
    by_name = {c.name: c for g in groups for c in g}
    done = {
        (o.cell, o.repetition): o for o in read_outcomes(folder) if o.cell in by_name and o.repetition < repetitions
    }
    steps = [(c, r) for r in range(repetitions) for c in order(groups, r, seed)]
    names = {c: f"{i:03d}" for i, c in enumerate(by_name)}
    took: list[float] = []
    failed = {c for (c, _), o in done.items() if o.reason}
    with _journal(folder / JOURNAL) as sink:
        for number, (cell, repetition) in enumerate(steps, 1):
            if (cell.name, repetition) in done:
                continue
            if _needless(cell, groups, failed):
                continue
            run_folder = folder / "runs" / f"{names[cell.name]}-{repetition:02d}"
            shutil.rmtree(run_folder, ignore_errors=True)  # of a study that was killed in it
            scenario = cell.scenarios[repetition % len(cell.scenarios)]
            began = time.monotonic()
            report = _Ender(scenario, cell.measured) if cell.measured else None
            try:
                run = run_scenario(scenario, run_folder, report=report, here=here)
            except MeshmarkError as why:
                why.args = (f"{cell.name}: {why}",)
                raise
            outcome = _outcome(cell, repetition, run, look)
            sink.write(json.dumps(outcome.to_json(), allow_nan=False).encode() + b"\n")
            sink.flush()
            os.fsync(sink.fileno())
            done[cell.name, repetition] = outcome
            took.append(time.monotonic() - began)
            failed |= {cell.name} if outcome.reason else set()
            left = statistics.fmean(took) * sum(not _needless(c, groups, failed) for c, _ in steps[number:])
            what = f"{outcome.time_s('wall'):.3g} s" if not outcome.reason else outcome.reason
            talk(f"{number}/{len(steps)} {cell.name}: {what}; about {left:.0f} s left")
    out: dict[str, list[Outcome]] = {name: [] for name in by_name}
    for o in sorted(done.values(), key=lambda o: o.repetition):
        out[o.cell].append(o)
    return out


# ---------------------------------------------------------------- programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Makes programs for a study, once: those of an earlier attempt are used again."""

    folder: Path  # of the study
    variants: Sequence[Variant]
    machine: str
    cpus: Sequence[int]  # on which trials run
    rounds: int = 1
    trial_s: float = 1.0
    talk: Talk = hush

    def file(
        self, name: str, wish: Prescription, only: Callable[[Variant], bool] | None = None, rounds: int | None = None
    ) -> Path:
        """The file of a program. `rounds`: 0 where what counts is that its work is fixed, not how long it takes.

        Raises:
            UsageError: it cannot be, as `synthesize` says.
            MeshmarkError: a trial failed.
        """
        path = self._path(name)
        if path.exists():
            return path
        variants = [v for v in self.variants if only is None or only(v)]
        program = synthesize(variants, wish, machine=self.machine)
        if rounds := self.rounds if rounds is None else rounds:
            cpus = tuple(self.cpus) if wish.threads > 1 else tuple(self.cpus[:1])
            program, _ = calibrate(program, self.trial_s, rounds, cpus, talk=self.talk)
        write_file(path, dump_program(program).encode())
        return path

    def longer(self, path: Path, factor: float) -> Path:
        """The same program with so many times the calls: a neighbour that outlasts what is measured."""
        out = path.with_name(f"{path.stem}.long.json")
        if not out.exists():
            write_file(out, dump_program(lengthened(read_program(path), factor)).encode())
        return out

    def _path(self, name: str) -> Path:
        return self.folder / "programs" / ("".join(c if c.isalnum() or c in "._-" else "_" for c in name) + ".json")


def lengthened(program: Program, factor: float) -> Program:
    """The same mix for `factor` times as long."""
    return dataclasses.replace(
        program,
        prescription=dataclasses.replace(program.prescription, run_time_s=program.prescription.run_time_s * factor),
        parts=tuple(dataclasses.replace(p, calls=min(1 << 29, round(p.calls * factor))) for p in program.parts),
    )


def member(
    name: str,
    work: Work,
    cpus: Sequence[Sequence[int]],
    *,
    endless: bool = False,
    start_s: float = 0.0,
    threads: int = 1,
    wait_policy: str = "",
    oversubscribe: bool = False,
) -> Member:
    """A program with a copy on each of these sets of CPUs. `endless`: a command is repeated for ever."""
    about: dict[str, Any] = {
        "name": name,
        "copies": len(cpus),
        "start_s": (start_s,) * len(cpus),
        "cpus": tuple(tuple(c) for c in cpus),
        "threads": threads,
        "wait_policy": wait_policy,
        "oversubscribe": oversubscribe,
    }
    if isinstance(work, Path):
        return Member(file=work, **about)
    again = ("sh", "-c", 'while "$@"; do :; done', "sh") if endless else ()
    return Member(command=(*again, *work), **about)


def scenario(name: str, *members: Member, sample_s: float = 0.1) -> Scenario:
    return Scenario(name=name, programs=members, canary=QUIET, sample_s=sample_s)


# ---------------------------------------------------------------- what comes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Together against alone under one condition. `pairs`: ratios of one repetition each."""

    x: float
    label: str
    slowdown: Slowdown
    pairs: tuple[float, ...]
    alone_s: tuple[float, ...]
    together_s: tuple[float, ...]
    flags: frozenset[str]


def point(
    x: float, label: str, alone: Sequence[Outcome], together: Sequence[Outcome], clock: Clock
) -> tuple[Point | None, str]:
    """A point of the runs that count; None and the reason where there are none."""
    for runs in (together, alone):
        if reason := next((o.reason for o in runs if o.reason), ""):
            return None, reason
    first = {o.repetition: o.time_s(clock) for o in alone}
    second = {o.repetition: o.time_s(clock) for o in together}
    if not first or not second:
        return None, "it was not run"
    return Point(
        x=x,
        label=label,
        slowdown=slowdown(list(first.values()), list(second.values())),
        pairs=tuple(second[r] / first[r] for r in sorted(first.keys() & second.keys())),
        alone_s=tuple(first.values()),
        together_s=tuple(second.values()),
        flags=frozenset().union(*(o.flags for o in (*alone, *together))),
    ), ""


@dataclass(kw_only=True)
class Results:
    """Records and absences of a study as they are collected."""

    study: str
    machine: str
    common: Mapping[str, Scalar]
    provenance: Mapping[str, Scalar]
    records: list[Record] = field(default_factory=list)
    absences: list[Absence] = field(default_factory=list)

    def add(
        self,
        metric: str,
        samples: Iterable[float],
        conditions: Mapping[str, Scalar],
        flags: frozenset[str] = frozenset(),
    ) -> None:
        if kept := tuple(samples):
            self.records.append(
                Record.of(
                    METRICS[metric],
                    kept,
                    source="host",
                    machine=self.machine or "host",
                    instrument=INSTRUMENT,
                    conditions={"study": self.study, **self.common, **conditions},
                    flags=flags,
                    provenance=self.provenance,
                )
            )

    def absent(
        self,
        metric: str,
        reason: str,
        conditions: Mapping[str, Scalar],
        kind: Literal["absent", "error"] = "error",
        enable: str = "",
    ) -> None:
        self.absences.append(
            Absence(
                instrument=INSTRUMENT,
                metric=metric,
                reason=reason,
                kind=kind,
                enable=enable,
                conditions={"study": self.study, **self.common, **conditions},
            )
        )

    def add_point(self, p: Point, conditions: Mapping[str, Scalar]) -> None:
        """Run times alone and together, and their ratio. The record's value is the median of the pairs' ratios; the
        estimate of all runs, which has an interval from 4 repetitions on, is among its conditions."""
        for company, times in (("alone", p.alone_s), ("together", p.together_s)):
            self.add("elapsed", times, {**conditions, "company": company}, p.flags)
        s = p.slowdown
        self.add(
            "slowdown",
            p.pairs or (s.ratio,),
            {
                **conditions,
                "estimate": s.ratio,
                "estimate_low": s.interval[0] if s.interval else None,
                "estimate_high": s.interval[1] if s.interval else None,
                "alone_runs": s.alone,
                "together_runs": s.together,
            },
            p.flags,
        )

    def write(self, folder: Path) -> None:
        lines = [{"type": "result", "schema": SCHEMA, **r.to_json()} for r in self.records]
        lines += [
            {
                "type": "absent",
                "instrument": a.instrument,
                "metric": a.metric,
                "conditions": dict(a.conditions),
                "reason": a.reason,
                "enable": a.enable,
            }
            for a in self.absences
        ]
        write_file(folder / RECORDS, b"".join(json.dumps(x, allow_nan=False).encode() + b"\n" for x in lines))


def read_records(folder: Path) -> list[Record]:
    """The records of a finished study.

    Raises:
        UsageError: none lies there.
    """
    path = folder / RECORDS
    if not path.is_file():
        raise UsageError(f"{folder}: holds no finished study")
    return read_journal(whole_lines(path), "study").records


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text; the first to the left, the others to the right."""
    widths = [max(len(r[i]) for r in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))).rstrip()
        for r in (head, *rows)
    )


def said(s: Slowdown) -> tuple[str, str]:
    """A slowdown and its interval, for a table."""
    return f"{s.ratio:.3f}", f"{s.interval[0]:.3f} – {s.interval[1]:.3f}" if s.interval else "none below 4 runs"


# ---------------------------------------------------------------- one study


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What all studies are told. `rounds`: of calibration of each program that is made."""

    repetitions: int = 5  # intervals need 4
    seed: int = 0
    clock: Clock = "wall"
    rounds: int = 1
    memory_mib: float = MEMORY_MIB  # of each program that is made
    machine: str = ""  # whose base data the variants are
    timeout_s: float = 0.0  # of one run, which then does not count; 0: none
    talk: Talk = hush


USUAL: Final = How()


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Of every study."""

    study: str
    folder: Path
    records: tuple[Record, ...]
    absences: tuple[Absence, ...]
    table: str
    spoiled: str = ""  # which runs do not count, in a line; "": all do


class Bench:
    """One study on its way."""

    def __init__(
        self,
        name: str,
        out: Path,
        how: How,
        cpus: Sequence[int],
        parameters: Mapping[str, Any],
        variants: Sequence[Variant] = (),
    ) -> None:
        if not 1 <= how.repetitions <= MOST_REPETITIONS:
            raise UsageError(f"repetitions: found {how.repetitions}; allowed are 1 to {MOST_REPETITIONS}")
        if how.clock not in CLOCKS:
            raise UsageError(f"clock: found {found(how.clock)}; allowed are {', '.join(CLOCKS)}")
        if not 0 <= how.timeout_s <= 1e6:
            raise UsageError(f"timeout_s: found {how.timeout_s:g}; allowed is a number from 0 to 1000000")
        self.name, self.out, self.how = name, out, how
        self.here = Here.now()
        self.cpus = tuple(cpus) or self.here.cpus
        if len(set(self.cpus)) != len(self.cpus) or not set(self.cpus) <= set(self.here.cpus):
            raise UsageError(
                f"cpus: found {found(list(self.cpus))}; allowed are different ones of {format_list(self.here.cpus)}"
            )
        self.variants = variants
        self.parameters = {
            "cpus": format_list(self.cpus),
            "seed": how.seed,
            "clock": how.clock,
            "machine": how.machine,
            "rounds": how.rounds,
            "memory_mib": how.memory_mib,
            "base": _base_of(variants),
            **parameters,
        }
        self.common: dict[str, Scalar] = {"cpus": format_list(self.cpus), "clock": how.clock}
        self.maker = Maker(
            folder=out, variants=variants, machine=how.machine, cpus=self.cpus, rounds=how.rounds, talk=how.talk
        )
        self.failed: list[tuple[str, str, dict[str, Scalar]]] = []  # metric, reason, conditions
        self.spoiled = ""

    def begin(self) -> None:
        start_study(self.out, self.name, self.parameters, self.how.talk)

    def wish(self, run_time_s: float, metrics: Mapping[str, float] | None = None, **more: Any) -> Prescription:
        if not 0 < run_time_s <= 1e5:
            raise UsageError(f"run_time_s: found {run_time_s:g}; allowed is a number above 0, up to 100000")
        return Prescription(
            run_time_s=run_time_s,
            metrics=metrics or {},
            **{"memory_mib": self.how.memory_mib, "seed": self.how.seed, **more},
        )

    def run(
        self, groups: Sequence[Sequence[Cell]], look: Callable[[LoadRun], Mapping[str, float]] | None = None
    ) -> tuple[dict[str, list[Outcome]], Results]:
        if self.how.timeout_s:
            groups = [
                [
                    dataclasses.replace(
                        c, scenarios=tuple(dataclasses.replace(s, timeout_s=self.how.timeout_s) for s in c.scenarios)
                    )
                    for c in g
                ]
                for g in groups
            ]
        outcomes = run_cells(self.out, groups, self.how.repetitions, self.how.seed, self.how.talk, look, self.here)
        all_of = [o for runs in outcomes.values() for o in runs]
        if bad := [o for o in all_of if o.reason]:
            self.spoiled = f"{len(bad)} of {len(all_of)} runs do not count: {bad[0].cell}: {bad[0].reason}"
        about: Mapping[str, str] = all_of[0].about if all_of else {}
        results = Results(
            study=self.name,
            machine=self.how.machine or about.get("machine", ""),
            common=self.common,
            provenance={
                **{k: about.get(k, "") for k in ("build", "compiler", "kernel")},
                "start": min((o.start for o in all_of), default=""),
                "command": f"load study {self.name}",
                "run": self.out.name,
                "seed": self.how.seed,
                "repetitions": self.how.repetitions,
            },
        )
        for metric, reason, conditions in self.failed:
            results.absent(metric, reason, conditions)
        return outcomes, results

    def point(
        self,
        results: Results,
        x: float,
        label: str,
        alone: Sequence[Outcome],
        together: Sequence[Outcome],
        conditions: Mapping[str, Scalar],
    ) -> Point | None:
        """A point with its records, or its absence."""
        p, reason = point(x, label, alone, together, self.how.clock)
        if p is None:
            results.absent("slowdown", reason, conditions)
        else:
            results.add_point(p, conditions)
        return p

    def end(self, results: Results, said_table: str) -> dict[str, Any]:
        """What a result's base takes.

        Raises:
            MeshmarkError: not one run counts, with the first reason.
        """
        results.write(self.out)
        if not results.records:
            why = results.absences[0].reason if results.absences else "nothing was run"
            raise MeshmarkError(f"{self.name}: no run counts: {why}", f"{self.out} has the runs and what they printed")
        lines = [said_table, *(f"absent: {a.metric or a.instrument}: {a.reason}" for a in results.absences)]
        return {
            "study": self.name,
            "folder": self.out,
            "records": tuple(results.records),
            "absences": tuple(results.absences),
            "table": "\n".join(lines),
            "spoiled": self.spoiled,
        }

    def rates(self, given: Sequence[float], wish: Prescription) -> tuple[float, ...]:
        """GB/s, rising: those given, or shares of what base data allow.

        Raises:
            UsageError: one is not positive, or there is none.
        """
        if given:
            if any(not (isinstance(r, int | float) and 0 < r < 1e6) for r in given):
                raise UsageError(f"rates: found {found(list(given))}; allowed are numbers of GB/s above 0")
            return tuple(sorted({float(r) for r in given}))
        reach = explain(self.variants, dataclasses.replace(wish, metrics={"memory_gb_per_s": 1.0, **wish.metrics}))
        top = reach["memory_gb_per_s"]
        if top is None or top[1] <= 0:
            raise UsageError("rates: base data allow no rate of memory with what else is asked")
        return tuple(float(f"{top[0] + (top[1] - top[0]) * s:.3g}") for s in SHARES)

    def made(self, name: str, wish: Prescription, conditions: Mapping[str, Scalar], **more: Any) -> Path | None:
        """A program's file; None and an absence where it is impossible."""
        try:
            return self.maker.file(name, wish, **more)
        except UsageError as why:  # impossible, or in more memory than it may take
            self.failed.append(("slowdown", str(why), dict(conditions)))
            self.how.talk(f"{self.name}: {why}")
            return None

    def work(self, work: Work, key: str = "command") -> Work:
        """
        Raises:
            UsageError: there is no such file or program.
        """
        if isinstance(work, Path):
            if not work.is_file():
                raise UsageError(f"{key}: found {work}; no such file")
            return work.resolve()
        words = [str(w) for w in work]
        if isinstance(work, str) or not words or not words[0] or shutil.which(words[0]) is None:
            raise UsageError(f"{key}: found {found(words[0] if words else '')}; no such program is here")
        return words


def said_work(work: Work) -> list[str] | str:
    """What tells one work from another: a command's words, a file's name and content."""
    if not isinstance(work, Path):
        return [str(w) for w in work]
    try:
        return f"{work} {hashlib.sha256(read_bytes(work, MAX_PROGRAM_BYTES)).hexdigest()[:16]}"
    except UsageError:
        return str(work)  # refused where it is used


def _base_of(variants: Sequence[Variant]) -> str:
    """Tells one set of base data from another: programs made of both would be no study of one thing."""
    return hashlib.sha256(repr([v.to_json() for v in variants]).encode()).hexdigest()[:16] if variants else ""


def two(bench: Bench) -> None:
    if len(bench.cpus) < 2:
        raise AbsentError(f"{bench.name}: needs two CPUs, may use {format_list(bench.cpus)}", "widen the set of CPUs")


def sets(cpus: Sequence[int]) -> list[tuple[int, ...]]:
    return [(c,) for c in cpus]
