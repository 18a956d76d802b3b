"""Which placement and page size is best for a program, found by running it.

A folder holds what an advice needs to go on after it was killed: `plan.json` (what was asked, and the candidates),
`journal.jsonl` (a line a run, on disk before it counts) and `runs/` (the records of each run). Statistics are in
`halving`, placing in the native program.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.machine.tree import format_list, parse_list
from meshmark.native import end_with_parent
from meshmark.place import native
from meshmark.place.halving import Race, Verdict
from meshmark.store.files import read_json, write_file
from meshmark.store.lines import cut_torn_end, whole_lines
from meshmark.store.record import FLAGS, Better, Metric, Record, RecordError, median

BASELINE: Final = "as it is"
POLICIES: Final = ("none", "balance", "pack", "compact", "scatter")
WAIT_POLICIES: Final = ("default", "active", "passive")
LAUNCHERS: Final = frozenset(
    {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "srun", "flux", "jsrun", "aprun"}
)
_TOO_LONG: Final = 5.0  # times as long as the baseline is no candidate
_LEAST_LIMIT_S = 10.0
_SPACE_BYTES: Final = 1 << 16  # more than a run leaves
_TAIL_BYTES: Final = 16 << 20  # of a program's output; a figure of merit comes near its end
_BUSY: Final = 0.1  # a thread that computes at least this share of the time wants a CPU

Talk = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the command. `parts` are the CPUs of each slot; none where nothing is bound."""

    name: str
    policy: str = "none"
    slots: str = "cores"
    threads: int | None = None  # OMP_NUM_THREADS; None leaves it
    memory: str = "default"
    pages: str = "default"
    wait: str = "default"
    pinned: bool = False  # each OpenMP thread on a part of its own
    parts: tuple[tuple[int, ...], ...] = ()

    def options(self) -> list[str]:
        """Of `meshmark run`, before `--`."""
        words = ["--bind", self.policy]
        if self.parts:
            words += ["-n", str(len(self.parts)), "--slots", self.slots]
        if self.memory != "default":
            words += ["--memory", self.memory]
        if self.pages != "default":
            words += ["--pages", self.pages]
        return [*words, "--openmp"] if self.pinned else words

    def environment(self) -> dict[str, str]:
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        return threads if self.wait == "default" else {**threads, "OMP_WAIT_POLICY": self.wait.upper()}

    def line(self, command: Sequence[str]) -> str:
        """As one would type it."""
        before = [f"{k}={v}" for k, v in self.environment().items()]
        if self.name == BASELINE:
            return shlex.join(command)
        return " ".join([*before, "meshmark run", *self.options(), "--", shlex.join(command)])


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to try. Empty: what makes sense here."""

    policies: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    wait: tuple[str, ...] = ()
    smt: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Inherited:
    """What the command has without our doing, from whoever starts us: its shell, numactl, a batch system."""

    cpus: str = ""  # a list, where not all of the machine's are allowed
    memory: str = "default"  # as `meshmark run --memory` says it

    def __str__(self) -> str:
        said = [f"CPUs {self.cpus}"] if self.cpus else []
        return ", ".join(said + ([f"memory {self.memory}"] if self.memory != "default" else []))


# Of numa_maps, whose policy may have two words and flags of the mode: `prefer (many):0-1`, `bind=static:0`.
_POLICY: Final = re.compile(
    r"[0-9a-f]+ (default|local|prefer \(many\)|prefer|bind|weighted interleave|interleave)(?:=[^: ]*)?(?::(\S+))?"
)


def inherited_memory(numa_maps: str) -> str:
    """This process's memory policy, by the text of its /proc/PID/numa_maps: its first mapping is a program's text,
    which has no policy of its own. `default` where the kernel tells of none."""
    found = _POLICY.match(numa_maps)
    if found is None or found[1] in {"default", "local"}:
        return "default" if found is None else found[1]
    name = {"prefer": "preferred", "prefer (many)": "preferred", "weighted interleave": "weighted"}
    # A mode that remembers nodes relative to a cpuset may have none, or a tail.
    nodes = re.match(r"[0-9,-]*", found[2] or "")
    return f"{name.get(found[1], found[1])}={nodes[0]}" if nodes and nodes[0] else name.get(found[1], found[1])


@dataclass(frozen=True, slots=True)
class Here:
    """What this machine has to choose from. `thp` is the kernel's mode, or empty."""

    cpus: int  # that this process may use
    threads_per_core: int
    memory_nodes: int
    thp: str
    inherited: Inherited = Inherited()
    node_of: Mapping[int, int] = field(default_factory=dict)  # of CPUs whose node has memory; empty: not known


def _plan_in(path: Path) -> Any:
    if not path.exists():
        raise UsageError(f"--resume: found no plan.json in {path.parent}", "meshmark advise starts anew")
    try:
        return read_json(path)
    except UsageError as why:  # it is ours
        raise MeshmarkError(f"cannot read the plan: {why}") from why


@dataclass(slots=True)
class Plan:
    """What an advice runs.

    Attributes:
        left_out: name of a candidate that would not differ, and the one it equals; or why it cannot be had here.
        run: what it is called in the store; empty in plans of an older version, which went by their folder's name.
    """

    command: list[str]
    budget_s: float
    seed: int
    figure: str  # regular expression of the figure of merit; empty: the time
    higher: bool
    candidates: list[Candidate]
    left_out: dict[str, str] = field(default_factory=dict)
    pilot_s: float = 0.0
    inherited: Inherited = Inherited()
    run: str = ""

    def save(self, path: Path) -> None:
        write_file(path, json.dumps(asdict(self), indent=1).encode() + b"\n")

    @staticmethod
    def load(path: Path) -> Plan:
        """Raises UsageError where there is none, MeshmarkError where it is none."""
        try:
            raw = _plan_in(path)
            made = [
                Candidate(**{**c, "parts": tuple(tuple(map(int, p)) for p in c["parts"])}) for c in raw["candidates"]
            ]
            return Plan(**{**raw, "candidates": made, "inherited": Inherited(**raw.get("inherited", {}))})
        except (KeyError, TypeError, AttributeError, ValueError):
            raise MeshmarkError(f"{path} is no plan of an advice") from None


# ------------------------------------------------------------------ candidates


def candidates(
    wishes: Wishes,
    here: Here,
    busy: int,
    pinned: bool,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> tuple[list[Candidate], dict[str, str]]:
    """All ways to run it that differ, the baseline first.

    Args:
        busy: threads that computed in the pilot run; so many slots are taken where no number of threads is asked for.
        pinned: whether the command is one process with OpenMP threads rather than a launcher of ranks.
        parts_of: the native plan, see `native.parts_of`.
        missing: why options of `meshmark run` cannot be had here, or ""; None: the native program is asked.

    Returns:
        the candidates, and why others were left out, by their names.
    """
    cannot = missing or _missing
    made, left_out = [Candidate(BASELINE)], dict[str, str]()
    seen: dict[tuple[object, ...], str] = {_effect(made[0], here): BASELINE}
    reasons: dict[tuple[str, ...], str] = {}
    for one in _product(wishes, here, busy, pinned):
        if one.policy != "none":
            try:
                parts = parts_of(one.policy, one.threads or busy, one.slots)
            except MeshmarkError as why:
                left_out[one.name] = f"absent: {why}"
                continue
            one = Candidate(**{**asdict(one), "parts": tuple(map(tuple, parts))})  # noqa: PLW2901
        same = seen.setdefault(_effect(one, here), one.name)
        if same != one.name:
            left_out[one.name] = f"the same as '{same}'"
            continue
        for words in (("--memory", one.memory), ("--pages", one.pages)):
            if words[1] != "default" and words not in reasons:
                reasons[words] = cannot(words)
        why_not = reasons.get(("--memory", one.memory)) or reasons.get(("--pages", one.pages))
        if why_not:
            left_out[one.name] = f"absent: {why_not}"
        else:
            made.append(one)
    return made, left_out


def _product(wishes: Wishes, here: Here, busy: int, pinned: bool) -> Iterator[Candidate]:
    memory = wishes.memory or (("default", "interleave", "bind") if here.memory_nodes > 1 else ("default",))
    pages = wishes.pages or (("default", "4KiB") if here.thp == "always" else ("default", "thp"))
    smt = wishes.smt or ((False, True) if here.threads_per_core > 1 else (False,))
    for threads in wishes.threads or (None,):
        count = threads or busy
        for policy in wishes.policies or POLICIES:
            for siblings in smt if policy != "none" else (False,):
                for mem in memory:
                    for page in pages:
                        for wait in wishes.wait or ("default",):
                            slots = "threads" if siblings else "cores"
                            words = [policy]
                            words += [f"{threads} threads"] if threads and len(wishes.threads) > 1 else []
                            words += ["siblings"] if siblings else []
                            words += [w for w in (mem, page) if w != "default"]
                            words += [f"wait {wait}"] if wait != "default" else []
                            yield Candidate(
                                ", ".join(words),
                                policy,
                                slots,
                                threads,
                                mem,
                                page,
                                wait,
                                pinned and count > 1 and policy != "none",
                            )


def _effect(one: Candidate, here: Here) -> tuple[object, ...]:
    """What of a candidate makes a difference here: two with the same effect are one."""
    every = sorted({c for p in one.parts for c in p})
    # One mask over all that is allowed binds nothing.
    cpus: object = one.parts if one.pinned else None if len(every) in {0, here.cpus} else tuple(every)
    memory = _memory_effect(one, here)
    pages = "default" if one.pages == "thp" and here.thp == "always" else one.pages
    return cpus, one.threads, memory, pages, one.wait


def _memory_effect(one: Candidate, here: Here) -> str:
    """Where pages go: `local` (the kernel's own default, too), or a policy and its nodes."""
    said = here.inherited.memory if one.memory == "default" else one.memory
    policy, _, named = said.partition("=")
    if here.memory_nodes < 2 or policy in {"default", "local"}:
        return "local"
    if policy == "weighted":
        return said
    if named:
        nodes = set(parse_list(named))
    else:
        nodes = {here.node_of[c] for part in one.parts for c in part if c in here.node_of}
        if one.parts and not here.node_of:
            return policy  # to its own nodes, whichever they are
    every = not nodes or len(nodes) >= here.memory_nodes
    if every and policy in {"bind", "preferred"}:
        return "local"  # on the nearest of all nodes
    return f"{policy}={'all' if every else format_list(sorted(nodes))}"


def _missing(options: Sequence[str]) -> str:
    try:
        native.ask(["run", "--bind", "none", "--no-claim", *options, "--", "true"])
    except MeshmarkError as why:
        if isinstance(why, UsageError):
            raise
        return str(why) + (f" (would help: {why.hint})" if why.hint else "")
    return ""


# ------------------------------------------------------------------ runs


@dataclass(slots=True)
class Outcome:
    """One run: `cost` is less for the better, None where it failed, for `reason`."""

    candidate: str
    cost: float | None
    elapsed_s: float
    reason: str = ""
    figure: float | None = None
    times: dict[str, float] = field(default_factory=dict)  # s, by metric
    flags: list[str] = field(default_factory=list)
    evidence: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Outcome:
        return Outcome(**{k: v for k, v in line.items() if k != "type"})


class Runner:
    """Runs the command as the candidates ask for, one run at a time.

    Args:
        node_of: NUMA node of each CPU, to tell remote pages of what was not bound.
    """

    def __init__(
        self, folder: Path, command: Sequence[str], figure: str, higher: bool, node_of: Mapping[int, int]
    ) -> None:
        self.runs, self.command, self.node_of = folder / "runs", list(command), node_of
        self.figure = re.compile(figure, re.M) if figure else None
        self.higher = higher
        self.program = native.find_place()

    def run(self, one: Candidate, number: int, limit_s: float) -> Outcome:
        """Runs it once; never raises for what the command does.

        Raises:
            MeshmarkError: the folder's disk is full.
        """
        self.runs.mkdir(parents=True, exist_ok=True)
        record, out, err = (self.runs / f"{number:04}.{end}" for end in ("jsonl", "out", "err"))
        record.unlink(missing_ok=True)
        options = one.options()
        for option in ("--memory", "--pages"):  # lest the site's defaults join in
            options += [option, "default"] if option not in options else []
        words = [str(self.program), "run", *options, "--verify", "--record", str(record), "--", *self.command]
        began = time.monotonic()
        with out.open("wb") as output, err.open("wb") as errors:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **one.environment()},
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            try:
                status = child.wait(limit_s)
            except subprocess.TimeoutExpired:
                _end(child)
                return Outcome(one.name, None, time.monotonic() - began, f"took longer than {limit_s:.3g} s")
            except BaseException:
                _end(child)
                raise
        outcome = Outcome(one.name, None, time.monotonic() - began)
        # What is said of the placement comes last, and is not the command's.
        text = _tail(out) + "\n" + re.split(r"^placement (?:held|did not hold): ", _tail(err), flags=re.M)[0]
        if status != 0:
            last = next((x.strip() for x in reversed(text.splitlines()) if x.strip()), "it said nothing")
            how = f"signal {-status}" if status < 0 else f"status {status}"
            outcome.reason = f"ended with {how}: {_printable(last.removeprefix('meshmark: error: '))}"
        else:
            self._read(record, one, outcome)
        if outcome.reason:
            self._check_space()
            return outcome
        outcome.elapsed_s = outcome.times["elapsed"]
        outcome.cost = outcome.elapsed_s
        if self.figure is not None:
            outcome.cost, outcome.reason = None, ""
            found = list(self.figure.finditer(text))
            value = _positive(found[-1].group(found[-1].re.groups and 1)) if found else None
            if value is None:
                what = f"'{_printable(found[-1].group())}'" if found else "no match"
                outcome.reason = f"--fom: found {what} in its output, a positive number is needed"
                return outcome
            outcome.figure, outcome.cost = value, 1 / value if self.higher else value
        out.unlink()
        err.unlink()
        return outcome

    def _check_space(self) -> None:
        """A full disk is no failure of the command: its candidate would be out, also when there is space again."""
        probe = self.runs / "space"
        write_file(probe, bytes(_SPACE_BYTES))
        probe.unlink()

    def _read(self, path: Path, one: Candidate, outcome: Outcome) -> None:
        try:
            lines = [json.loads(x) for x in path.read_text(encoding="utf-8", errors="replace").splitlines()]
        except (OSError, ValueError) as why:
            outcome.reason = f"its record cannot be read: {why}"
            return
        for line in lines:
            if not isinstance(line, dict):
                continue
            if line.get("type") == "result":
                try:
                    record = Record.from_json(line)
                except RecordError as why:
                    outcome.reason = f"its record is wrong: {why}"
                    return
                outcome.times[record.metric] = record.value
                outcome.flags = sorted({*outcome.flags, *record.flags})
            elif line.get("type") == "note" and line.get("kind") == "placement":
                outcome.evidence, outcome.findings = evidence(line, one, self.node_of)
        if outcome.times.get("elapsed", 0.0) <= 0:
            outcome.reason = "its record has no elapsed time"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the run and all that it started."""
    for number, grace_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)  # what outlived the first signal without its parent


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:200]


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) else None


def evidence(note: Mapping[str, Any], one: Candidate, node_of: Mapping[int, int]) -> tuple[dict[str, float], list[str]]:
    """What the note of placement of `meshmark run --verify --record` says for a reason, and what it found wrong.

    Returns:
        by name: `threads` that were busy, `migrations` (1), `waiting_share` of the threads' time, `remote_share` and
        `huge_share` of the pages, `minor_faults`, `major_faults`; what was not seen is not there. And the findings.
    """
    report, conditions = (v if isinstance(v := note.get(k), dict) else {} for k in ("report", "conditions"))
    raw = report.get("threads")
    threads = [t for t in raw if isinstance(t, dict)] if isinstance(raw, list) else []
    found: dict[str, float] = {}
    seconds = _number(report.get("seconds"))
    worked = [_number(t.get("user_s")) + _number(t.get("system_s")) for t in threads]
    waited = math.fsum(_number(t.get("waiting_s")) for t in threads)
    if seconds > 0 and threads:
        found["threads"] = max(1, sum(w >= _BUSY * seconds for w in worked))
    if sum(worked) + waited > 0:
        found["waiting_share"] = waited / (sum(worked) + waited)
    if report.get("migrations") is not None:
        found["migrations"] = _number(report["migrations"])
    said = report.get("pages")
    pages = {int(n): _number(b) for n, b in said.items() if str(n).isdigit()} if isinstance(said, dict) else {}
    every = math.fsum(pages.values())
    if every > 0:
        ran_on = {c for t in threads for c in parse_list(str(t.get("ran_on", "")).replace("none", ""))}
        used = {c for part in one.parts for c in part} or ran_on
        near = {node_of[c] for c in used if c in node_of}
        if near:
            found["remote_share"] = math.fsum(b for n, b in pages.items() if n not in near) / every
        found["huge_share"] = min(1.0, _number(report.get("huge_bytes")) / every)
    for key in ("minor_faults", "major_faults"):
        if key in conditions:
            found[key] = _number(conditions[key])
    findings = report.get("findings")
    return found, [_printable(str(f)) for f in findings] if isinstance(findings, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


# ------------------------------------------------------------------ the advice


@dataclass(slots=True)
class Advice:
    """What came out. `outcomes` are all runs that count, in order."""

    plan: Plan
    verdict: Verdict
    outcomes: list[Outcome]
    failed: dict[str, str]  # candidate: last reason
    spent_s: float

    def of(self, name: str) -> list[Outcome]:
        """Runs of one that ended well."""
        return [o for o in self.outcomes if o.candidate == name and o.cost is not None]

    def candidate(self, name: str) -> Candidate:
        return next(c for c in self.plan.candidates if c.name == name)


def advise(plan: Plan, folder: Path, runner: Runner, talk: Talk) -> Advice:
    """Runs, or goes on with, a plan until the answer is clear or its budget ends.

    Raises:
        MeshmarkError: the journal is not this plan's, or the baseline failed twice.
    """
    race = Race([c.name for c in plan.candidates], BASELINE, plan.seed)
    outcomes: list[Outcome] = []
    failed: dict[str, str] = {}
    by_name = {c.name: c for c in plan.candidates}
    spent = plan.pilot_s

    def count(outcome: Outcome) -> None:
        nonlocal spent
        if race.next() != outcome.candidate:
            raise MeshmarkError(f"{folder}: the journal is not of this plan: found a run of '{outcome.candidate}'")
        race.add(outcome.candidate, outcome.cost)
        outcomes.append(outcome)
        spent += outcome.elapsed_s
        if outcome.cost is None:
            failed[outcome.candidate] = outcome.reason
            times = race.failures[outcome.candidate]
            talk(
                f"{outcome.candidate}: {outcome.reason}" + (": it is out" if times > 1 else "; once more and it is out")
            )

    journal = folder / "journal.jsonl"
    for line in _runs_of(journal):
        count(Outcome.from_json(line))
    told = -1
    with _appending(journal) as write:
        while (name := race.next()) is not None:
            if len(race.rounds) != told:
                told = len(race.rounds)
                left = max(0.0, plan.budget_s - spent)
                talk(
                    f"round {told}: {len(race.alive)} of {len(plan.candidates)} left, {_at_best(race)}"
                    f"at most {_duration(left)} to go"
                )
            usual = _usual(race, name, outcomes, plan.pilot_s)
            if spent + usual > plan.budget_s:
                race.stop("the budget ended")
                break
            reference = _usual(race, BASELINE, outcomes, plan.pilot_s)
            limit = max(_LEAST_LIMIT_S, _TOO_LONG * reference)
            outcome = runner.run(by_name[name], len(outcomes) + 1, limit)
            write({"type": "run", **asdict(outcome)})
            count(outcome)
    if race.failures.get(BASELINE, 0) > 1:
        raise MeshmarkError(f"advise: the command failed twice as it is: {failed[BASELINE]}")
    return Advice(plan, race.verdict(), outcomes, failed, spent)


def _usual(race: Race, name: str, outcomes: Sequence[Outcome], otherwise: float) -> float:
    times = [o.elapsed_s for o in outcomes if o.candidate == name and o.cost is not None]
    return median(times) if times else otherwise if name == BASELINE else _usual(race, BASELINE, outcomes, otherwise)


def _at_best(race: Race) -> str:
    if len(race.rounds) < 2:
        return ""
    best = min((n for n in race.alive if race.costs(n)), key=lambda n: median(race.costs(n)), default="")
    return f"so far the best is {best}, " if best else ""


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _runs_of(path: Path) -> Iterator[dict[str, Any]]:
    """Runs of the journal; a torn last line was never counted, and is cut off."""
    cut_torn_end(path)
    for number, raw in enumerate(whole_lines(path), 1):
        try:
            line = json.loads(raw)
            Outcome.from_json(line)
        except (ValueError, TypeError, AttributeError) as why:
            raise MeshmarkError(f"{path}: line {number} is not a run: {why}") from why
        yield line


@contextlib.contextmanager
def _appending(path: Path) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    with path.open("ab", buffering=0) as file:

        def write(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

        yield write


# ------------------------------------------------------------------ what it says


def spread(values: Sequence[float], less_is_better: bool) -> dict[str, float | int]:
    """mean, cov (standard deviation over mean), best, worst, n: of at least one value, in its unit."""
    mean = statistics.fmean(values)
    low, high = min(values), max(values)
    return {
        "mean": mean,
        "cov": statistics.stdev(values) / mean if len(values) > 1 else 0.0,
        "best": low if less_is_better else high,
        "worst": high if less_is_better else low,
        "n": len(values),
    }


def values_of(advice: Advice, name: str) -> list[float]:
    """What is compared, of one candidate: seconds, or figures of merit."""
    if advice.plan.figure:
        return [o.figure for o in advice.of(name) if o.figure is not None]
    return [o.elapsed_s for o in advice.of(name)]


def gain(advice: Advice) -> tuple[float, tuple[float, float] | None] | None:
    """Share by which the best other one is better than the baseline: less time or cost, or a greater figure."""
    said = advice.verdict
    if said.ratio is None:
        return None
    of: Callable[[float], float] = (lambda r: 1 / r - 1) if advice.plan.higher else (lambda r: 1 - r)
    return of(said.ratio), (of(said.interval[1]), of(said.interval[0])) if said.interval else None


def reasons(advice: Advice) -> list[str]:
    """Why the best other one differs from the baseline, as far as the records tell; medians over the runs."""
    best = advice.verdict.best
    if not best:
        return []
    before, after = (_evidence(advice.of(n)) for n in (BASELINE, best))
    said = []
    for key, what, scale, unit, least in (
        ("remote_share", "pages on remote nodes", 100, " %", 1.0),
        ("huge_share", "memory in huge pages", 100, " %", 5.0),
        ("migrations", "migrations of threads a run", 1, "", 3.0),
        ("waiting_share", "time its threads waited for a CPU", 100, " %", 1.0),
        ("minor_faults", "page faults a run", 1, "", 1000.0),
        ("major_faults", "page faults with I/O a run", 1, "", 10.0),
    ):
        if key in before and key in after and abs(after[key] - before[key]) * scale >= least:
            said.append(f"{what}: {before[key] * scale:.3g}{unit} as it is, {after[key] * scale:.3g}{unit} with {best}")
    return said


def not_held(advice: Advice) -> list[str]:
    """Candidates whose placement did not hold, with the first thing that was found wrong and in how many runs."""
    said = []
    for one in advice.plan.candidates:
        wrong = [o.findings[0] for o in advice.of(one.name) if o.findings]
        if wrong:
            said.append(f"{one.name}: in {len(wrong)} of {len(advice.of(one.name))} runs, such as: {wrong[0]}")
    return said


def _evidence(outcomes: Sequence[Outcome]) -> dict[str, float]:
    keys = {k for o in outcomes for k in o.evidence}
    return {k: median([o.evidence[k] for o in outcomes if k in o.evidence]) for k in sorted(keys)}


def lines(advice: Advice, translate: Callable[[Sequence[str]], dict[str, Any]] = native.answer) -> dict[str, str]:
    """Lines ready to paste that do what was chosen, by launcher; ours first; forms that cannot are left out."""
    one, command = advice.candidate(advice.verdict.choice), advice.plan.command
    ready = {"meshmark": one.line(command)}
    if one.parts:
        memory = ["--memory", one.memory] if one.memory != "default" else []
        said = translate(
            [
                "translate",
                "--parts",
                native.parts_text(one.parts),
                "--to",
                "all",
                "--topology",
                "host",
                *memory,
                "--command",
                shlex.join(command),
            ]
        )
        forms = said.get("forms")
        for form, made in forms.items() if isinstance(forms, dict) else ():
            if form != "parts" and isinstance(made, dict) and made.get("line"):
                before = "".join(f"{k}={v} " for k, v in one.environment().items())
                ready[form] = before + str(made["line"])
    return ready


def records(advice: Advice, machine: str, command_line: str, started: str, build: str) -> list[Record]:
    """A record for each candidate and metric, with all samples: `elapsed`, `user`, `system`, `waiting` (s) and, where
    one was asked for, `figure_of_merit` (1)."""
    made = []
    for one in advice.plan.candidates:
        runs = advice.of(one.name)
        series = [
            (m, v)
            for m in native.vocabulary().metrics
            if len(v := [o.times[m.name] for o in runs if m.name in o.times]) == len(runs) > 0
        ]
        if advice.plan.figure and runs:
            better: Better = "higher" if advice.plan.higher else "lower"
            figure = Metric("figure_of_merit", "1", better, "what the program printed")
            series.append((figure, values_of(advice, one.name)))
        for metric, samples in series:
            made.append(_record(advice, one, metric, samples, machine, command_line, started, build))
    return made


def _record(
    advice: Advice,
    one: Candidate,
    metric: Metric,
    samples: Sequence[float],
    machine: str,
    command_line: str,
    started: str,
    build: str,
) -> Record:
    runs = advice.of(one.name)
    cpus = format_list(sorted({c for part in one.parts for c in part}))
    inherited = advice.plan.inherited
    return Record.of(
        metric,
        samples,
        source="host",
        machine=machine,
        instrument="run",
        conditions={
            "program": Path(advice.plan.command[0]).name,
            "command": shlex.join(advice.plan.command),
            "copies": 1,
            "candidate": one.name,
            "policy": one.policy,
            "slots": len(one.parts),
            "slot_kind": one.slots,
            "cpus": cpus if one.parts else inherited.cpus or cpus,
            "each": one.pinned,
            "threads": one.threads,
            "memory": inherited.memory if one.memory == "default" else one.memory,
            "pages": one.pages,
            "wait_policy": one.wait,
            **{k: v for k, v in _evidence(runs).items() if k != "threads"},
        },
        flags=frozenset(f for o in runs for f in o.flags) & FLAGS,
        provenance={"build": build, "command": command_line, "start": started, "seed": advice.plan.seed},
    )


def to_json(advice: Advice, ready: Mapping[str, str]) -> dict[str, Any]:
    """The answer as one object; shares are of 1, values in s or in the figure's own unit."""
    said, plan = advice.verdict, advice.plan
    won = gain(advice)
    less = not (plan.figure and plan.higher)
    spreads = {
        n: spread(values_of(advice, n), less) for n in dict.fromkeys((BASELINE, said.best)) if n and advice.of(n)
    }
    before, after = spreads.get(BASELINE), spreads.get(said.best)
    return {
        "type": "answer",
        "schema": 1,
        "verdict": said.word,
        "choice": said.choice,
        "best_other": said.best or None,
        "options": advice.candidate(said.choice).options() if said.choice != BASELINE else [],
        "environment": advice.candidate(said.choice).environment(),
        "gain": won and won[0],
        "gain_interval": list(won[1]) if won and won[1] else None,
        "pairs": said.pairs,
        "minimum_effect": _finite(said.effect),
        "floor": _finite(said.floor),
        "before": before,
        "after": after,
        "best_vs_best": _over(after, before, "best", less),
        "worst_vs_worst": _over(after, before, "worst", less),
        "not_distinguishable": dict(said.close),
        "failed": advice.failed,
        "left_out": plan.left_out,
        "as_it_is": asdict(plan.inherited),
        "why": reasons(advice),
        "not_held": not_held(advice),
        "lines": dict(ready),
        "runs": len(advice.outcomes),
        "spent_s": advice.spent_s,
        "stopped": said.stopped,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _over(
    after: Mapping[str, float | int] | None, before: Mapping[str, float | int] | None, key: str, less: bool
) -> float | None:
    if not after or not before:
        return None
    ratio = after[key] / before[key]
    return 1 - ratio if less else ratio - 1


def make_plan(
    command: Sequence[str],
    wishes: Wishes,
    here: Here,
    runner: Runner,
    *,
    budget_s: float,
    seed: int,
    figure: str = "",
    higher: bool = False,
    parts_of: Callable[[str, int, str], list[list[int]]] = native.parts_of,
    missing: Callable[[Sequence[str]], str] | None = None,
) -> Plan:
    """Runs the command once as it is, which warms up and does not count, and lists what to try.

    Raises:
        MeshmarkError: the command fails as it is; UsageError: its output has no figure of merit.
        AbsentError: there is nothing to try but to run it as it is.
    """
    pilot = runner.run(Candidate(BASELINE), 0, budget_s)
    if pilot.cost is None:
        if pilot.reason.startswith("--fom"):
            raise UsageError(pilot.reason)
        raise MeshmarkError(f"advise: the command {pilot.reason}")
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    busy = int(said) if said.isdigit() and int(said) else int(pilot.evidence.get("threads", 1))
    pinned = Path(command[0]).name not in LAUNCHERS
    made, left_out = candidates(wishes, here, min(busy, here.cpus), pinned, parts_of, missing)
    if len(made) == 1:
        why = "; ".join(f"{k}: {v}" for k, v in list(left_out.items())[:3])
        raise AbsentError(
            f"advise: nothing here differs from running it as it is ({why})",
            "name more --policies, --threads, --memory or --pages",
        )
    return Plan(list(command), budget_s, seed, figure, higher, made, left_out, pilot.elapsed_s, here.inherited)
