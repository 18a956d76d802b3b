"""Running a scenario, and what came of it: who ran, waited, slept and moved, program by program and thread by thread.

A run folder holds `scenario.json`, `plan.json` (what the native program was told), `run.jsonl` (what it told, line by
line as it came) and `output/` (what the programs printed). A scenario that was killed cannot go on, but its folder is
read like any other, and says that it was cut.

A thread's time is user + system + waiting + sleeping: the kernel counts in ns what it ran and what it waited for a CPU
(schedstat), and in ticks how what it ran splits; the rest of the wall time it slept.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.load.lines import journal_lines, kept_scenario
from meshmark.load.metrics import Metrics
from meshmark.load.scenario import (
    Here,
    Scenario,
    check_here,
    place_copies,
    read_scenario,
    run_plan,
    run_time_of,
    scenario_json,
    stem,
    threads_of,
)
from meshmark.machine.tree import format_list, parse_list
from meshmark.native import die_with_parent, find_native
from meshmark.store.files import open_regular, write_file
from meshmark.store.store import run_name

JOURNAL: Final = "run.jsonl"
FOREIGN: Final = 0.05  # share of the CPUs that others may take before a run counts as noisy
DRIFT: Final = 0.1  # of the canary from before to after
STOLEN: Final = 0.01
MISPLACED: Final = 0.01  # of a program's memory; where it was not bound to its nodes, a MiB too
_SYNC_S: Final = 1.0
_MOST_NAMED: Final = 5  # programs in a line
Key = tuple[str, int]  # a program and its copy


# ---------------------------------------------------------------- what is read


@dataclass(frozen=True, slots=True)
class Span:
    """What a thread did between two looks. Seconds after the clock's start; the four parts add up to `wall_s`."""

    from_s: float
    to_s: float
    user_s: float
    system_s: float
    waiting_s: float
    sleeping_s: float
    cpu: int
    moved: bool  # it came from another CPU

    @property
    def wall_s(self) -> float:
        return self.to_s - self.from_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadUse:
    """A thread from its program's release (or its birth, if later) to its last look; s after the clock's start."""

    thread: int
    program: str
    copy: int
    pid: int
    tid: int
    command: str
    from_s: float
    to_s: float
    user_s: float
    system_s: float
    waiting_s: float
    sleeping_s: float
    migrations: int
    cpus: tuple[int, ...]  # on which it ran
    spans: tuple[Span, ...] = ()

    @property
    def wall_s(self) -> float:
        return self.to_s - self.from_s

    @property
    def closes(self) -> float:
        """user + system + waiting + sleeping, over wall; 1 where the ledger is whole. NaN of no time at all."""
        told = self.user_s + self.system_s + self.waiting_s + self.sleeping_s
        return told / self.wall_s if self.wall_s > 0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUse:
    """A copy of a program with all its processes and threads. `how`: ok, status, signal, timeout, stopped, failed (it
    was never started) or cut (the run was killed). Sleeping is the sum over its threads."""

    program: str
    copy: int
    how: str
    reason: str = ""  # where `how` is not ok
    released_s: float = 0.0
    ended_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    waiting_s: float = 0.0
    sleeping_s: float = 0.0
    unseen_s: float = 0.0  # CPU time of what ended between two looks, part of user and system
    threads: int = 0
    migrations: int = 0
    largest_bytes: int = 0
    pages: Mapping[int, int] = field(default_factory=dict)  # node → B, when last counted
    done: Mapping[str, Any] = field(default_factory=dict)  # a synthesised program's own sums

    @property
    def wall_s(self) -> float:
        return self.ended_s - self.released_s

    @property
    def paced(self) -> bool:
        """It kept a schedule, or was to."""
        return float(self.done.get("spun_s", 0.0)) > 0 or float(self.done.get("late_s", 0.0)) > 0

    @property
    def attained(self) -> float:
        """Part of the CPU time that it was ready to use which it got, 0 to 1; 1 where it never wanted any."""
        ran = self.user_s + self.system_s
        return ran / (ran + self.waiting_s) if ran + self.waiting_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of the whole bench, s. After PARbench (Nagel and Linn 1991; Janda, Müller, Nagel, Trenkler 2007)."""

    bench_s: float  # from the clock's start to the end of the last program
    cpus: int  # that any of the programs might use
    available_s: float  # bench_s x cpus
    user_s: float
    system_s: float
    idle_s: float  # available - user - system: also what others took
    completion_s: float  # mean over the programs, from the clock's start to their ends
    run_s: float  # sum of the programs' wall times
    waiting_s: float  # sum over all threads

    @property
    def utilisation(self) -> float:
        return (self.user_s + self.system_s) / self.available_s if self.available_s > 0 else math.nan


@dataclass(kw_only=True)
class LoadRun:
    """A run that was read back."""

    folder: Path
    status: str  # ok, timeout, stopped, cut
    header: Mapping[str, Any]
    scenario: Mapping[str, Any]
    programs: list[ProgramUse]
    threads: list[ThreadUse]
    bench_s: float
    cpus: tuple[int, ...]  # that any of the programs might use
    bound: Mapping[Key, tuple[int, ...]]  # CPUs of each copy, () where it was not bound
    events: list[dict[str, Any]]
    windows: dict[Key, list[dict[str, Any]]]  # of synthesised programs; times are after the clock's start
    canary: list[dict[str, Any]]
    end: Mapping[str, Any]
    begin_s: float = 0.0  # the clock's start, s after what the header calls `start`
    nodes: Mapping[Key, tuple[int, ...]] = field(default_factory=dict)  # on which each copy's memory was asked to be

    @property
    def cut(self) -> bool:
        return self.status == "cut"

    def totals(self) -> Totals:
        ran = [p for p in self.programs if p.how != "failed"]
        user, system = sum(p.user_s for p in ran), sum(p.system_s for p in ran)
        available = self.bench_s * len(self.cpus)
        return Totals(
            bench_s=self.bench_s,
            cpus=len(self.cpus),
            available_s=available,
            user_s=user,
            system_s=system,
            idle_s=available - user - system,
            completion_s=statistics.fmean(p.ended_s for p in ran) if ran else 0.0,
            run_s=sum(p.wall_s for p in ran),
            waiting_s=sum(p.waiting_s for p in ran),
        )

    def fairness(self, alone_s: Mapping[str, float] | None = None) -> float:
        """Jain's index over the programs, from 1/n (one has all) to 1 (all alike).

        Args:
            alone_s: what each program takes by itself; then over their speeds, else over the part of the CPU time that
                each wanted and got.
        """
        ran = [p for p in self.programs if p.how == "ok"]
        if alone_s is not None:
            return jain([alone_s[p.program] / p.wall_s for p in ran if p.program in alone_s and p.wall_s > 0])
        return jain([p.attained for p in ran])

    def flags(self, program: ProgramUse) -> frozenset[str]:
        """Of the record's flags those that a program's results carry."""
        out: set[str] = set()
        about: Mapping[str, Any] = next(
            (p for p in self.scenario.get("programs", ()) if p.get("name") == program.program), {}
        )
        bound = self.bound.get((program.program, program.copy), ())
        if int(about.get("threads", 1)) > (len(bound) or len(self.cpus)):
            out.add("oversubscribed")
        if bound and any(
            not set(t.cpus) <= set(bound)
            for t in self.threads
            if (t.program, t.copy) == (program.program, program.copy)
        ):
            out.add("migrated")
        if self._misplaced(program, str(about.get("memory") or "")):
            out.add("misplaced")
        if self.status != "ok" or program.how in {"timeout", "stopped", "cut"}:
            out.add("truncated")
        if program.done.get("wrong"):
            out.add("unverified")
        machine = self.end.get("machine", {})
        busy, steal = machine.get("busy_s", []), machine.get("steal_s", [])
        available = self.bench_s * len(self.cpus)
        if available > 0 and steal and sum(steal[c] for c in self.cpus if c < len(steal)) > STOLEN * available:
            out.add("stolen")
        foreign = self.foreign_s(busy)
        if (foreign is not None and foreign > FOREIGN * available) or self.canary_drift() > DRIFT:
            out.add("noisy")
        return frozenset(out)

    def _misplaced(self, program: ProgramUse, memory: str) -> bool:
        asked = self.nodes.get((program.program, program.copy), ())
        elsewhere = sum(b for node, b in program.pages.items() if node not in asked)
        least = 0 if memory.startswith("bind") else 1 << 20
        return bool(asked) and elsewhere > max(least, MISPLACED * sum(program.pages.values()))

    def foreign_s(self, busy: Sequence[float] | None = None) -> float | None:
        """CPU time that others took on the programs' CPUs, s; None where that was not recorded (the run was cut)."""
        busy = self.end.get("machine", {}).get("busy_s") if busy is None else busy
        if not busy:
            return None
        ours = sum(p.user_s + p.system_s for p in self.programs) + float(self.end.get("sampling", {}).get("cpu_s", 0.0))
        return max(0.0, sum(busy[c] for c in self.cpus if c < len(busy)) - ours)

    def canary_level(self, when: str) -> float:
        """Median latency of the canary's loads `before`, `during` or `after`, s; NaN where it did not sing."""
        seen = [float(c["load_latency_s"]) for c in self.canary if c.get("when") == when]
        return statistics.median(seen) if seen else math.nan

    def canary_drift(self) -> float:
        """How much longer loads from memory took after than before, as a share; 0 where that was looked at less than
        three times each."""
        times = [sum(c.get("when") == when for c in self.canary) for when in ("before", "after")]
        before = self.canary_level("before")
        change = abs(self.canary_level("after") / before - 1) if before else math.nan
        return change if min(times) >= 3 and math.isfinite(change) else 0.0


def jain(values: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): Jain, Chiu, Hawe, DEC-TR-301 (1984). NaN of no values or of zeros only."""
    squares = sum(v * v for v in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else math.nan


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How many times as long as alone. `interval`: of 95 %; None below 4 runs of each."""

    ratio: float
    interval: tuple[float, float] | None
    alone: int  # runs
    together: int


def slowdown(alone_s: Sequence[float], together_s: Sequence[float]) -> Slowdown:
    """Ratio of two sets of run times: the median of all ratios of one to another, and its interval.

    Source:
        Hodges and Lehmann 1963, with the interval of Moses, of the logarithms: no distribution is assumed, only that
        the two differ by a factor.

    Raises:
        MeshmarkError: a set is empty, or a time is not positive.
    """
    if not alone_s or not together_s or min(*alone_s, *together_s, 1.0) <= 0:
        raise MeshmarkError("slowdown: found no run times, or some of 0 s; at least one of each is needed")
    ratios = sorted(t / a for t in together_s for a in alone_s)
    n, m = len(together_s), len(alone_s)
    rank = _rank_sum_bound(n, m)
    return Slowdown(statistics.median(ratios), (ratios[rank - 1], ratios[n * m - rank]) if rank >= 1 else None, m, n)


def _rank_sum_bound(n: int, m: int, confidence: float = 0.95) -> int:
    """Largest k with 1 - 2 P(U < k) >= confidence, U of Mann and Whitney without any difference; 0: there is none."""
    if n * m > 10_000:
        return max(0, int(n * m / 2 - 1.96 * math.sqrt(n * m * (n + m + 1) / 12)))
    # How many arrangements of n and m have U = u: f(n, m, u) = f(n - 1, m, u - m) + f(n, m - 1, u).
    rows: list[list[int]] = [[1] for _ in range(m + 1)]
    for i in range(1, n + 1):
        now: list[list[int]] = [[1]]
        for j in range(1, m + 1):
            above, left = rows[j], now[j - 1]
            counts = [0] * (i * j + 1)
            for u, c in enumerate(above):
                counts[u + j] += c
            for u, c in enumerate(left):
                counts[u] += c
            now.append(counts)
        rows = now
    counts = rows[m]
    total, below, k = math.comb(n + m, n), 0, 0
    while k < n * m // 2 and 1 - 2 * (below + counts[k]) / total >= confidence:
        below += counts[k]
        k += 1
    return k


# ---------------------------------------------------------------- running


class RunCutError(MeshmarkError):
    """The runner did not get to the end of its scenario; what it had written by then is in `run`."""

    def __init__(self, message: str, run: LoadRun) -> None:
        super().__init__(message)
        self.run = run


def find_load() -> Path:
    """The program of `MESHMARK_LOAD`, of the installed package, or of the build folder of this checkout.

    Raises:
        MeshmarkError: none is there, or it cannot be executed.
    """
    return find_native("meshmark-load", "MESHMARK_LOAD")


def run_scenario(
    scenario: Scenario | Path,
    out: Path,
    base_programs: Mapping[str, Path] | None = None,
    report: Callable[[Mapping[str, Any]], None] | None = None,
    own: Metrics | None = None,
    here: Here | None = None,
    tick: Callable[[], None] | None = None,
) -> LoadRun:
    """Runs a scenario in a new folder and reads it back. What a program does wrong is an event, not an error.

    Args:
        scenario: or the file that describes it.
        out: the run's folder; made, and refused where a run lies in it already.
        base_programs: files of the programs that were synthesised for what the scenario prescribes, by name.
        report: called with every event (`ready`, `released`, `exit`, …) as soon as it is known, in order.
        own: metrics of the user's that a scenario's file may prescribe beside the shipped ones and its own.
        here: what the host has; None: asks it.
        tick: called about once a second while it runs.

    Raises:
        UsageError: the scenario asks for what is not here (CPUs, threads, memory), or a program has no file.
        RunCutError: the native program was killed, or ended before its time.
        MeshmarkError: the folder cannot be written.
        KeyboardInterrupt: after all programs were ended and what there is was written.
    """
    if isinstance(scenario, Path):
        scenario = read_scenario(scenario, own)
    here = Here.now() if here is None else here
    load = find_load()
    files: dict[str, Path] = {}
    memory: dict[str, int] = {}
    members = []
    for p in scenario.programs:
        if p.synthesised:
            file = p.file or (base_programs or {}).get(p.name)
            if file is None:
                raise UsageError(
                    f"program {p.name}: nothing was synthesised for it", "meshmark load make makes a program's file"
                )
            threads, memory[p.name] = threads_of(file)
            files[p.name] = file.resolve()
            p = replace(p, threads=threads)  # noqa: PLW2901
        members.append(p)
    scenario = replace(scenario, programs=tuple(members))
    check_here(scenario, here, memory)
    refuse_run_in(out)
    cpus = place_copies(scenario, here)
    output = out.resolve() / "output"
    plan = run_plan(scenario, cpus, {n: (str(load), "program", str(f), "--wait") for n, f in files.items()}, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        journal = (out / JOURNAL).open("xb")
    except FileExistsError:
        refuse_run_in(out)
        raise
    except OSError as why:
        raise MeshmarkError(f"cannot run the scenario in {out}: {why.strerror or why}") from why
    with journal:  # the folder is ours from here on
        about = {**scenario_json(scenario), "available_cpus": format_list(here.cpus)}
        write_file(out / "scenario.json", json.dumps(about, indent=1).encode() + b"\n")
        write_file(out / "plan.json", json.dumps(plan, indent=1).encode() + b"\n")
        complaint, status = _run(load, out, journal, report, tick)
    run = read_run(out)
    if status < 0:
        complaint = f"its runner was ended by {signal.Signals(-status).name}"
    elif run.status == "stopped":
        complaint = f"its runner was ended by {_signal_of(run)}"
    elif status in {0, 1} and not run.cut:
        return run
    raise RunCutError(f"the run was cut: {complaint or f'exit status {status}'}; what there is lies in {out}", run)


def refuse_run_in(out: Path) -> None:
    """
    Raises:
        UsageError: a run lies in the folder.
    """
    if os.path.lexists(out / JOURNAL):
        raise UsageError(f"{out}: a run lies there already", "name another folder with --out")


def _signal_of(run: LoadRun) -> str:
    try:
        return signal.Signals(int(run.end.get("signal", 0))).name
    except ValueError:
        return "a signal"


def expected_end_s(scenario: Scenario, files: Mapping[str, Path]) -> float:
    """When the last program whose run time is known ends at the earliest, s after the clock's start; 0: of none it is.

    Args:
        files: of the programs that were synthesised for what the scenario prescribes, by name.
    """
    last_s = 0.0
    for p in scenario.programs:
        file = p.file or files.get(p.name)
        if p.synthesised and file is not None:
            last_s = max(last_s, max(p.start_s) + run_time_of(file))
    return min(last_s, scenario.timeout_s) if scenario.timeout_s else last_s


def _run(
    load: Path,
    out: Path,
    sink: IO[bytes],
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> tuple[str, int]:
    """Its last words and its exit status. It writes the journal itself, and sends a byte with every event: who looks on
    should not be a load."""
    talk = out / "run.err"
    try:
        with talk.open("wb") as errors:
            listen, notify = os.pipe()
            with open(listen, "rb", buffering=0) as news:
                try:
                    child = subprocess.Popen(
                        [load, "run", out / "plan.json"],
                        stdin=subprocess.DEVNULL,
                        stdout=sink,
                        stderr=errors,
                        preexec_fn=die_with_parent,
                        start_new_session=True,
                        pass_fds=(notify,),
                        env={**os.environ, "MESHMARK_NOTIFY": str(notify)},
                    )
                finally:
                    os.close(notify)
                try:
                    _look_on(news, sink, out / JOURNAL, report, tick)
                except BaseException:
                    child.send_signal(signal.SIGINT)
                    raise
                finally:
                    child.wait()
                    os.fsync(sink.fileno())
    except OSError as why:
        raise MeshmarkError(f"cannot run the scenario in {out}: {why.strerror or why}") from why
    said = talk.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return (said[-1].removeprefix("meshmark: ")[:300] if said else ""), child.returncode


def _look_on(
    news: IO[bytes],
    sink: IO[bytes],
    journal: Path,
    report: Callable[[Mapping[str, Any]], None] | None,
    tick: Callable[[], None] | None,
) -> None:
    """Until nobody can send news any more."""
    poll = select.poll()
    poll.register(news, select.POLLIN)
    told, last_s, over = 0, time.monotonic(), False
    while not over:
        if poll.poll(1000 * _SYNC_S):
            over = not news.read(1 << 16)
        if report is not None:
            told = _report(journal, told, report)
        if time.monotonic() - last_s >= _SYNC_S:
            last_s = time.monotonic()
            os.fsync(sink.fileno())
            if tick is not None:
                tick()


def _report(journal: Path, at: int, report: Callable[[Mapping[str, Any]], None]) -> int:
    """Tells the events from an offset on; returns where the next ones begin."""
    with journal.open("rb") as lines:
        lines.seek(at)
        data = lines.read()
    end = data.rfind(b"\n") + 1
    for raw in data[:end].splitlines():
        if raw.startswith(b'{"type":"event"'):
            report(json.loads(raw))
    return at + end


# ---------------------------------------------------------------- reading


@dataclass
class _Thread:
    line: Mapping[str, Any]
    looks: list[list[Any]] = field(default_factory=list)  # [t_s, state, cpu, ran_ns, waited_ns, user, system]
    total: Mapping[str, Any] | None = None


def read_run(folder: Path, samples: bool = True) -> LoadRun:
    """A run from its folder, whole or cut; never fails for what a torn journal holds.

    Args:
        samples: also what was seen on the way; without, reading a long run takes a moment, for who lists many.

    Raises:
        UsageError: no run lies there.
    """
    journal = folder / JOURNAL
    if not journal.is_file():
        raise UsageError(f"{folder}: no run of a scenario lies there")
    header: dict[str, Any] = {}
    end: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    canary: list[dict[str, Any]] = []
    totals: dict[Key, dict[str, Any]] = {}
    done: dict[Key, dict[str, Any]] = {}
    pages: dict[tuple[Key, int], dict[int, int]] = {}
    windows: dict[Key, list[dict[str, Any]]] = {}
    threads: dict[int, _Thread] = {}
    start_s, last_s = None, 0.0
    for line in journal_lines(journal, () if samples else (b'{"type":"sample"', b'{"type":"window"')):
        kind = line["type"]
        t_s = float(line.get("t_s", last_s))
        last_s = max(last_s, t_s)
        if kind == "header":
            header = line
        elif kind == "event":
            events.append(line)
            if line["event"] == "start":
                start_s = t_s
        elif kind == "thread":
            threads[line["thread"]] = _Thread(line)
        elif kind == "sample":
            for number, *look in line["threads"]:
                if number in threads:
                    threads[number].looks.append([t_s, *look])
        elif kind == "thread_total":
            threads.setdefault(line["thread"], _Thread(line)).total = line
        elif kind == "pages":
            key = (line["program"], line["copy"])
            pages[key, line["pid"]] = {int(n): b for n, b in line["bytes"].items()}
        elif kind == "canary":
            canary.append(line)
        elif kind == "end":
            end = line
        elif kind in {"window", "done", "total"}:
            key = (line["program"], line["copy"])
            if kind == "window":
                windows.setdefault(key, []).append(line)
            else:
                (done if kind == "done" else totals)[key] = line
    begin = start_s if start_s is not None else last_s
    scenario = kept_scenario(folder / "scenario.json")
    available = _list(str(scenario.get("available_cpus", header.get("conditions", {}).get("cpus_allowed", ""))))
    copies = {(p["program"], p["copy"]): p for p in header.get("programs", ())}
    bound = {key: _list(str(p.get("cpus", ""))) for key, p in copies.items()}
    nodes = {key: _list(str(p.get("nodes", "none"))) for key, p in copies.items()}
    cpus = set().union(*(set(c or available) for c in bound.values())) if bound else set(available)
    uses = sorted(
        (_thread_use(t, begin, float(header.get("sample_s", 0.1))) for t in threads.values()), key=lambda t: t.thread
    )
    status = str(end.get("status", "cut"))
    programs = [
        _program_use(key, totals.get(key), events, uses, done.get(key, {}), pages, begin, last_s) for key in bound
    ]
    programs = [p if p.how == "ok" else replace(p, reason=p.reason + _last_words(folder, p)) for p in programs]
    for key, lines in windows.items():
        released = next((p.released_s for p in programs if (p.program, p.copy) == key), 0.0)
        for w in lines:
            w["from_s"], w["to_s"] = float(w["from_s"]) + released, float(w["to_s"]) + released
    for e in events + canary:
        e["t_s"] = float(e["t_s"]) - begin
    ended = [p.ended_s for p in programs if p.how != "failed"]
    return LoadRun(
        folder=folder,
        status=status,
        header=header,
        scenario=scenario,
        programs=programs,
        threads=uses,
        bench_s=max(ended, default=0.0),
        cpus=tuple(sorted(cpus)),
        bound=bound,
        events=events,
        windows=windows,
        canary=canary,
        end=end,
        begin_s=begin,
        nodes=nodes,
    )


def _list(text: str) -> tuple[int, ...]:
    try:
        return parse_list(text) if text != "none" else ()
    except MeshmarkError:
        return ()


def _thread_use(t: _Thread, begin: float, sample_s: float) -> ThreadUse:
    first = float(t.total["from_s"] if t.total else t.line["t_s"])
    spans, migrations, ran_on = _spans(t.looks, first, float(t.total["to_s"]) if t.total else None, begin, sample_s)
    line = t.total or t.line
    about: dict[str, Any] = {
        "thread": int(line["thread"]),
        "program": str(line["program"]),
        "copy": int(line["copy"]),
        "pid": int(line["pid"]),
        "tid": int(line["tid"]),
        "command": str(line["command"]),
        "spans": spans,
    }
    if t.total:
        return ThreadUse(
            from_s=first - begin,
            to_s=float(line["to_s"]) - begin,
            migrations=int(line["migrations"]),
            cpus=_list(str(line["cpus"])),
            user_s=float(line["user_s"]),
            system_s=float(line["system_s"]),
            waiting_s=float(line["waiting_s"]),
            sleeping_s=float(line["sleeping_s"]),
            **about,
        )
    return ThreadUse(
        from_s=first - begin,
        to_s=spans[-1].to_s if spans else first - begin,
        migrations=migrations,
        cpus=ran_on,
        user_s=sum(x.user_s for x in spans),
        system_s=sum(x.system_s for x in spans),
        waiting_s=sum(x.waiting_s for x in spans),
        sleeping_s=sum(x.sleeping_s for x in spans),
        **about,
    )


_PARTS: Final = ("user_s", "system_s", "waiting_s", "sleeping_s")


def _spans(
    looks: Sequence[Sequence[Any]], first: float, last: float | None, begin: float, sample_s: float
) -> tuple[tuple[Span, ...], int, tuple[int, ...]]:
    """Looks as spans without gaps; how often the CPU changed; on which CPUs it ran.

    A thread is not told of while it sleeps, so a gap is sleep. The kernel adds up what a thread waited when it gets its
    CPU: what is more than there was time for was waited in the spans before. What finds no room there either was read a
    little later than the look's time says, and belongs to the next span.
    """
    spans: list[list[Any]] = []  # from, to, ran, waited, system share, cpu, moved
    at, cpu, moves, late = first, None, 0, 0.0
    ran_on: set[int] = set()
    for t_s, _, on, ran_ns, waited_ns, user, system in looks:
        if t_s <= at and not spans:
            cpu = on
            continue
        ran, waited = ran_ns * 1e-9, waited_ns * 1e-9 + late
        late = 0.0
        width = max(0.0, t_s - at)
        if width > 1.5 * sample_s:
            # Asleep until the look before this one, unless it then did more than fits.
            slept = min(width - sample_s, max(0.0, width - ran - waited))
            if slept > 0:
                spans.append([at, at + slept, 0.0, 0.0, 0.0, on if cpu is None else cpu, False])
                at += slept
                width -= slept
        moved = cpu is not None and on != cpu
        moves += moved
        if ran > 0:
            ran_on.add(on)
        cpu = on
        excess = ran + waited - width
        if excess > 0:
            waited = max(0.0, waited - excess)
            ran = min(ran, width)
            for before in reversed(spans):
                room = before[1] - before[0] - before[2] - before[3]
                if excess <= 1e-9 or room <= 1e-9:
                    break
                before[3] += min(room, excess)
                excess -= min(room, excess)
            late = max(0.0, excess)
        spans.append([at, t_s, ran, waited, system / (user + system) if user + system else 0.0, on, moved])
        at = max(at, t_s)
    if last is not None and last > at and spans:
        spans.append([at, last, 0.0, 0.0, 0.0, spans[-1][5], False])
    return (
        tuple(
            Span(
                a - begin, b - begin, ran * (1 - share), ran * share, waited, max(0.0, b - a - ran - waited), on, moved
            )
            for a, b, ran, waited, share, on, moved in spans
        ),
        moves,
        tuple(sorted(ran_on)),
    )


def _last_words(folder: Path, p: ProgramUse) -> str:
    """The last line that a program wrote to its standard error."""
    try:
        with open_regular(folder / "output" / f"{stem(p.program, p.copy)}.err") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            said = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    lines = [" ".join(x.split()) for x in said if x.strip()]
    return ": " + quoted(lines[-1].removeprefix("meshmark: ").removeprefix("error: "), 200) if lines else ""


def _program_use(
    key: Key,
    total: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    threads: Sequence[ThreadUse],
    done: Mapping[str, Any],
    pages: Mapping[tuple[Key, int], Mapping[int, int]],
    begin: float,
    last: float,
) -> ProgramUse:
    program, copy = key
    own = {str(e["event"]): e for e in events if (e.get("program"), e.get("copy")) == key}
    told = {k: v for k, v in done.items() if k not in {"type", "t_s", "program", "copy"}}
    if total is not None and total.get("how") != "failed":
        how = str(total["how"])
        reason = {
            "status": f"ended with status {total.get('status')}",
            "signal": f"was ended by signal {total.get('signal')}",
            "timeout": "was ended at the scenario's timeout_s",
            "stopped": "was ended with the run",
        }.get(how, "")
        if how == "ok" and told.get("wrong"):
            how, reason = "status", f"a kernel's result is wrong: {told['wrong'][0]}"
        return ProgramUse(
            program=program,
            copy=copy,
            how=how,
            reason=reason,
            released_s=float(total["released_s"]) - begin,
            ended_s=float(total["ended_s"]) - begin,
            unseen_s=float(total["unseen_s"]),
            threads=int(total["threads"]),
            migrations=int(total["migrations"]),
            largest_bytes=int(total["largest_bytes"]),
            pages={int(n): int(b) for n, b in total.get("pages", {}).items()},
            done=told,
            **{k: float(total[k]) for k in _PARTS},
        )
    if "failed" in own or "released" not in own:
        reason = str(own.get("failed", {}).get("reason", "the run was cut before it was released"))
        return ProgramUse(program=program, copy=copy, how="failed", reason=reason)
    mine = [t for t in threads if (t.program, t.copy) == key]
    ended = float(own["exit"]["t_s"]) if "exit" in own else last
    counted: dict[int, int] = {}
    for (whose, _), nodes in pages.items():
        for node, n in nodes.items():
            if whose == key:
                counted[node] = counted.get(node, 0) + n
    clean = own.get("exit", {}).get("status") == 0
    return ProgramUse(
        program=program,
        copy=copy,
        how="ok" if clean else "cut",
        reason="" if clean else "the run was cut" if "exit" not in own else "died, and the run was cut",
        released_s=float(own["released"]["t_s"]) - begin,
        ended_s=ended - begin,
        threads=len(mine),
        migrations=sum(t.migrations for t in mine),
        pages=counted,
        done=told,
        **{k: sum(getattr(t, k) for t in mine) for k in _PARTS},
    )


def not_well(run: LoadRun) -> str:
    """Which programs did not end well, and why, in a line; "" where all did."""
    bad = [p for p in run.programs if p.how != "ok"]
    many = {p.program for p in run.programs if p.copy > 0}
    said = [f"{p.program}{f', copy {p.copy}' if p.program in many else ''}: {p.reason}" for p in bad[:_MOST_NAMED]]
    said += [f"and {len(bad) - _MOST_NAMED} more"] if len(bad) > _MOST_NAMED else []
    return f"{len(bad)} of {len(run.programs)} programs did not end well: {'; '.join(said)}" if bad else ""


def canary_said(run: LoadRun) -> str:
    """What the canary told of the memory before, during and after, in a line; "" where it did not sing."""
    levels = {when: run.canary_level(when) for when in ("before", "during", "after")}
    told = [f"{1e9 * s:.1f} ns {when}" for when, s in levels.items() if math.isfinite(s)]
    return "A load from memory took " + ", ".join(told) if told else ""


def utilisation(run: LoadRun, step_s: float = 0.5) -> list[tuple[float, float]]:
    """Share of the programs' CPUs that they had, by time.

    Returns:
        (seconds after the clock's start, 0 … 1) of each step's begin.
    """
    steps = max(1, math.ceil(run.bench_s / step_s))
    busy = [0.0] * steps
    for t in run.threads:
        for s in t.spans:
            ran = s.user_s + s.system_s
            if ran <= 0 or s.wall_s <= 0:
                continue
            low, high = max(0.0, s.from_s), max(0.0, s.to_s)
            for i in range(int(low / step_s), min(steps - 1, int(high / step_s)) + 1):
                overlap = min(high, (i + 1) * step_s) - max(low, i * step_s)
                busy[i] += ran * max(0.0, overlap) / s.wall_s
    room = max(1, len(run.cpus))
    widths = [min(step_s, run.bench_s - i * step_s) or step_s for i in range(steps)]
    return [
        (i * step_s, min(1.0, b / (w * room)) if w > 0 else 0.0)
        for i, (b, w) in enumerate(zip(busy, widths, strict=True))
    ]


def new_folder(home: Path) -> Path:
    """A name for a run's folder that no other run has."""
    return home / run_name("load")
