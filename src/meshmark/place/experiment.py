"""Finds out which of two settings is better, by running a command under both by turns.

The state is kept in a folder, so that an interrupted experiment can resume: `plan.json` (what was asked for) and
`journal.jsonl` (one line per run, flushed to disk before the run counts). Each pair runs both settings one after the
other in random order, so that drift and other states of the machine affect both alike; `values.sequential` infers the
ratio, and `values.verdicts` judges it after every pair.

Sources: randomised interleaved trials: Abedi, Brecht, "Conducting repeatable experiments in highly variable cloud
computing environments", ICPE 2017.
"""

from __future__ import annotations

import math
import random
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

from meshmark.errors import MeshmarkError, UsageError
from meshmark.place.figure import Figure
from meshmark.place.journal import BUDGET, appending, load_plan, runs_in, save_plan
from meshmark.place.other_work import Shares, disturbance, result_flags, shares_during
from meshmark.place.setting import Setting, both
from meshmark.store.record import Better, Metric, Record, Scalar, median
from meshmark.values.sequential import CONFIDENCE, ConfidenceSequence
from meshmark.values.verdicts import Interval, Spoken, Word, alike, judge, spoken

Side = Literal["a", "b"]
SIDES: Final[tuple[Side, Side]] = ("a", "b")
PLAN: Final = "experiment.json"
JOURNAL: Final = "journal.jsonl"
FAILED_PAIRS: Final = 3  # consecutive pairs with a failed run that end an experiment
USUAL: Final = 10  # last pairs whose median time is expected of the next one
INTERRUPTED: Final = "it was interrupted"
DIFFERENT: Final = frozenset({"lower", "higher"})


@dataclass(slots=True, kw_only=True)
class Plan:
    """What was asked for.

    Attributes:
        seed: Of the order within pairs.
        budget_s: Time of all runs, including warm-up and shell commands.
        warmup: Pairs that are left out at the start.
        max_pairs: Pairs that count, at most.
        timeout_s: Of one run; None for the budget.
        margin: Smallest relative difference that matters.
        pattern, metric, better: Of `figure.Figure`.
        restore: Shell command at the end; "" for none.
        run: Name of the run in the store.
        started: ISO 8601, UTC.
    """

    a: str
    b: str
    command: list[str]
    seed: int
    budget_s: float
    warmup: int
    max_pairs: int
    timeout_s: float | None
    margin: float
    pattern: str
    metric: str
    better: str
    restore: str
    run: str
    started: str

    @property
    def settings(self) -> dict[Side, Setting]:
        """The settings.

        Raises:
            UsageError: One is invalid.
        """
        a, b = both(self.a, self.b)
        return {"a": a, "b": b}

    @property
    def figure(self) -> Figure:
        return Figure(self.pattern, self.metric, self.better)

    def save(self, folder: Path) -> None:
        save_plan(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> Plan:
        """The plan in a folder.

        Raises:
            UsageError: There is none.
            MeshmarkError: It cannot be read.
        """
        return load_plan(folder / PLAN, Plan, "an experiment", "meshmark experiment A B -- COMMAND starts one")


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One run. `value` is None if it failed, for `reason`.

    Attributes:
        pair: From 0, including warm-up pairs.
        position: 0 for the first run of the pair, 1 for the second.
        spent_s: Time of the run with its shell command.
        user_s, system_s: CPU time; None on another machine.
        others_share, stolen_share: Shares of the CPU time of this machine that other programs used, and that the
            hypervisor took, during the run; None on another machine.
    """

    pair: int
    side: Side
    position: int
    value: float | None
    elapsed_s: float
    spent_s: float
    reason: str = ""
    unit: str = "s"
    better: Better = "lower"
    points: int = 1
    flags: list[str] = field(default_factory=list)
    user_s: float | None = None
    system_s: float | None = None
    others_share: float | None = None
    stolen_share: float | None = None

    @property
    def shares(self) -> Shares | None:
        """Shares of the CPU time of this machine that other work took."""
        if self.others_share is None or self.stolen_share is None:
            return None
        return Shares(self.others_share, self.stolen_share, self.elapsed_s)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Outcome:
        """An outcome of a line of the journal.

        Raises:
            ValueError, TypeError, KeyError: The line is none.
        """
        found = Outcome(**{k: v for k, v in line.items() if k != "type"})
        if found.side not in SIDES or not (found.value is None or found.value > 0):
            raise ValueError(f"side {found.side!r}, value {found.value!r}")
        return found


Runs = Callable[[int, Side, int], Outcome]  # pair, side, position


def order(seed: int, pair: int) -> tuple[Side, Side]:
    """The order of a pair: by a fair coin, independent of all other pairs, which the inference relies on."""
    return ("a", "b") if random.Random(f"{seed} {pair}").random() < 0.5 else ("b", "a")


class Experiment:
    """The state of an experiment: all runs so far, and what follows from them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pairs: list[dict[Side, Outcome]] = []  # complete ones that count, in order
        self.runs: dict[Side, int] = dict.fromkeys(SIDES, 0)
        self.failed: dict[Side, list[str]] = {"a": [], "b": []}  # reasons
        self.spent_s = 0.0
        self.stopped = ""
        self.next_pair = 0
        self._margin = math.log1p(plan.margin)
        self._sequence = ConfidenceSequence((-self._margin, 0.0, self._margin))
        self._open: dict[Side, Outcome] = {}
        self._worked: set[Side] = set()
        self._times: list[float] = []  # of pairs, including warm-up pairs
        self._in_a_row = 0
        self._like: Outcome | None = None  # the first successful run

    @property
    def better(self) -> Better:
        """Which values are better."""
        return self._like.better if self._like else "lower"

    @property
    def unit(self) -> str:
        return self._like.unit if self._like else "s"

    def add(self, outcome: Outcome) -> None:
        """Add a run.

        Raises:
            MeshmarkError: The first run of a setting failed; it would hardly succeed later.
        """
        self.spent_s += outcome.spent_s
        self.runs[outcome.side] += 1
        if outcome.position == 0:
            self._open = {}  # a pair that was interrupted after its first run is repeated as a whole
        like = self._like = self._like or (outcome if outcome.value is not None else None)
        if like and outcome.value is not None and (outcome.unit, outcome.points) != (like.unit, like.points):
            outcome.reason = (
                f"--metric: found {outcome.points} values in {outcome.unit}, the first run had {like.points} in "
                f"{like.unit}"
            )
            outcome.value = None
        self.next_pair = outcome.pair
        if outcome.value is None:
            self.failed[outcome.side].append(outcome.reason)
            if outcome.side not in self._worked:
                kind = UsageError if outcome.reason.startswith("--") else MeshmarkError
                raise kind(f"{outcome.side.upper()}: {outcome.reason}")
            self._in_a_row += 1
            self.next_pair += 1
            return
        self._worked.add(outcome.side)
        self._open[outcome.side] = outcome
        if len(self._open) < len(SIDES):
            return
        self._in_a_row = 0
        self._times.append(math.fsum(o.spent_s for o in self._open.values()))
        if outcome.pair >= self.plan.warmup:
            self.pairs.append(self._open)
            self._sequence.add(math.log(self.ratios[-1]))
        self._open = {}
        self.next_pair += 1

    def finished(self) -> str:
        """Why no further pair is to run; "" if one is."""
        if self._sequence.above(0.0) or self._sequence.below(0.0):
            return "the interval excludes equality"
        if self._sequence.above(-self._margin) and self._sequence.below(self._margin):
            return "the interval lies within the margin"
        if self._in_a_row >= FAILED_PAIRS:
            return f"{FAILED_PAIRS} pairs in a row failed"
        if len(self.pairs) >= self.plan.max_pairs:
            return "--max-pairs was reached"
        usual_s = median(self._times[-USUAL:]) if self._times else 0.0
        return BUDGET if self.spent_s + usual_s > self.plan.budget_s else ""

    # -------------------------------------------------------------- results

    @property
    def ratios(self) -> list[float]:
        """B over A, of each pair."""
        return [cast(float, p["b"].value) / cast(float, p["a"].value) for p in self.pairs]

    @property
    def counted(self) -> list[Outcome]:
        """The runs of the pairs that count."""
        return [outcome for pair in self.pairs for outcome in pair.values()]

    def interval(self) -> Interval | None:
        """Of the ratio, valid at any time; None with too few pairs."""
        found = self._sequence.interval()
        return (math.exp(found[0]), math.exp(found[1])) if found else None

    def word(self) -> Word:
        """What the ratio is."""
        return judge(self.interval(), alike(self.plan.margin))

    def verdict(self) -> Spoken:
        """The verdict about B."""
        return spoken(self.word(), self.better, self.unit)

    def best(self) -> Side | None:
        """The better setting; None if there is none, or it is not known."""
        word = self.word()
        if word not in DIFFERENT:
            return None
        return "b" if word == self.better else "a"

    def failures(self) -> int:
        return sum(map(len, self.failed.values()))


def conduct(plan: Plan, folder: Path, run: Runs, notify: Callable[[Experiment], None]) -> Experiment:
    """Run or resume an experiment until its result is clear, it is interrupted or the budget is spent.

    Args:
        plan: What was asked for.
        folder: Its folder.
        run: Runs a setting once.
        notify: Called after every pair.

    Raises:
        MeshmarkError: The journal belongs to another plan, or a setting failed in its first run.
    """
    found = Experiment(plan)
    journal = folder / JOURNAL
    for outcome in outcomes(journal):
        if outcome.side != order(plan.seed, outcome.pair)[outcome.position]:
            raise MeshmarkError(f"{journal}: belongs to another plan: pair {outcome.pair} has another order")
        found.add(outcome)
    with appending(journal) as write:
        try:
            while not (why := found.finished()):
                pair = found.next_pair
                for position, side in enumerate(order(plan.seed, pair)):
                    outcome = run(pair, side, position)
                    if outcome.value is not None or found.runs[side]:  # a failure of the first run may be remedied
                        write({"type": "run", **asdict(outcome)})
                    found.add(outcome)
                    if outcome.value is None:
                        break
                notify(found)
            found.stopped = why
        except KeyboardInterrupt:
            found.stopped = INTERRUPTED
    return found


def outcomes(path: Path) -> Iterator[Outcome]:
    """Runs in a journal, as of `journal.runs_in`."""
    return runs_in(path, Outcome.from_json)


# ------------------------------------------------------------------ records


def records(found: Experiment, machine: str, command_line: str, build: str) -> list[Record]:
    """One record per setting and metric, then the ratio, each with all samples; none without a pair.

    The metrics of a setting are `elapsed`, `user` and `system` in s, and what the runs are judged by. The bounds of
    `ratio` (unit 1) are those that are valid at any time, in `run_low` and `run_high`.

    Args:
        found: The experiment.
        machine: Name of this machine. Settings with a host of their own have its name.
        command_line: Of Meshmark.
        build: Version of Meshmark.
    """
    plan, made = found.plan, list[Record]()
    if not found.pairs:
        return made
    provenance: dict[str, Scalar] = {
        "build": build,
        "command": command_line,
        "start": plan.started,
        "seed": plan.seed,
        "pairs": len(found.pairs),
        "failed": found.failures(),
        "stopped": found.stopped,
    }
    conditions = {"program": Path(plan.command[0]).name, "command": shlex.join(plan.command)}
    for side, setting in plan.settings.items():
        runs = [p[side] for p in found.pairs]
        which = {"side": side.upper()} if plan.a == plan.b else {}
        for metric, samples in _series(found, runs):
            made.append(
                Record.of(
                    metric,
                    samples,
                    source="host",
                    machine=setting.host or machine,
                    instrument="experiment",
                    conditions={**conditions, "setting": setting.text, **which, **shares_during(runs)},
                    flags=result_flags(runs),
                    provenance=provenance,
                )
            )
    interval = found.interval()
    bounds = {"run_low": interval[0], "run_high": interval[1]} if interval else {}
    made.append(
        Record.of(
            Metric("ratio", "1", "none", "value of setting B over that of A"),
            found.ratios,
            source="host",
            machine=machine,
            instrument="experiment",
            conditions={
                **conditions,
                "setting_a": plan.a,
                "setting_b": plan.b,
                "of": plan.figure.name,
                **bounds,
                **shares_during(found.counted),
            },
            flags=result_flags(found.counted),
            provenance={**provenance, "margin": plan.margin, "confidence": CONFIDENCE, "verdict": found.verdict()},
        )
    )
    return made


def _series(found: Experiment, runs: Sequence[Outcome]) -> Iterator[tuple[Metric, list[float]]]:
    yield Metric("elapsed", "s", "lower", "elapsed time"), [o.elapsed_s for o in runs]
    for name, times in (("user", [o.user_s for o in runs]), ("system", [o.system_s for o in runs])):
        if None not in times:
            yield Metric(name, "s", "lower", f"CPU time, {name}"), cast(list[float], times)
    if (name := found.plan.figure.name) != "elapsed":
        yield Metric(name, found.unit, found.better, "what the command printed"), [cast(float, o.value) for o in runs]


def to_json(found: Experiment) -> dict[str, Any]:
    """The result as one JSON object. Values have the unit of the metric; `ratio` is B over A."""
    plan = found.plan
    low, high = found.interval() or (None, None)
    runs = sum(found.runs.values())
    best = found.best()
    return {
        "type": "experiment",
        "schema": 1,
        "a": plan.a,
        "b": plan.b,
        "command": plan.command,
        "metric": plan.figure.name,
        "unit": found.unit,
        "better": found.better,
        "of_a": median([cast(float, p["a"].value) for p in found.pairs]) if found.pairs else None,
        "of_b": median([cast(float, p["b"].value) for p in found.pairs]) if found.pairs else None,
        "ratio": median(found.ratios) if found.pairs else None,
        "low": low,
        "high": high,
        "confidence": CONFIDENCE,
        "verdict": found.verdict(),
        "best": best.upper() if best else None,
        "margin": plan.margin,
        "pairs": len(found.pairs),
        "warmup": plan.warmup,
        "runs": runs,
        "failed": {side: len(of) for side, of in found.failed.items()},
        "failed_share": found.failures() / runs if runs else 0.0,
        "failure": next((f"{s.upper()}: {of[-1]}" for s, of in found.failed.items() if of), ""),
        "flags": sorted(result_flags(found.counted)),
        "disturbance": disturbance(found.counted),
        "seed": plan.seed,
        "stopped": found.stopped,
        "spent_s": found.spent_s,
        "run": plan.run,
    }
