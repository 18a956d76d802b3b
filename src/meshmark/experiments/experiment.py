"""Finds out which of two settings is better, by running a command under both in alternation.

The state is kept in a folder, so that an interrupted experiment can resume: `experiment.json` (the request) and
`journal.jsonl` (one line per run, flushed to disk before the run counts). Each pair runs both settings one after the
other in random order, so that drift and other states of the machine affect both alike; `values.sequential` estimates
the ratio, and `values.verdicts` judges it after every pair.

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
from typing import Any, Final, cast

from meshmark.errors import MeshmarkError, UsageError
from meshmark.experiments.plan import SettingsPlan
from meshmark.experiments.setting import Setting, both
from meshmark.experiments.trial import BUDGET
from meshmark.place.other_work import OtherWorkShares, disturbance, result_flags, shares_during
from meshmark.statistics.sequential import CONFIDENCE, ConfidenceSequence
from meshmark.statistics.verdicts import Interval, Spoken, Word, alike, judge, spoken
from meshmark.store.files import write_json
from meshmark.store.record import Better, Metric, Record, Scalar, median
from meshmark.store.session import Journal, load_plan

Side = str  # label of a setting: a, b
SIDES: Final = ("a", "b")
PLAN: Final = "experiment.json"
JOURNAL: Final = "journal.jsonl"
FAILED_PAIRS: Final = 3  # an experiment ends after this many consecutive pairs with a failed run
USUAL: Final = 10  # the median time of this many last pairs is the expected time of the next pair
INTERRUPTED: Final = "it was interrupted"
DIFFERENT: Final = frozenset({"lower", "higher"})


@dataclass(slots=True, kw_only=True)
class ExperimentPlan(SettingsPlan):
    """The request of an experiment.

    Attributes:
        warmup: Number of pairs at the start that do not count.
        max_pairs: Maximum number of pairs that count.
    """

    a: str
    b: str
    warmup: int
    max_pairs: int

    @property
    def settings(self) -> dict[Side, Setting]:
        """Return the settings by side.

        Raises:
            UsageError: A setting is invalid.
        """
        a, b = both(self.a, self.b)
        return {"a": a, "b": b}

    def save(self, folder: Path) -> None:
        """Write the plan into the folder of the experiment."""
        write_json(folder / PLAN, self)

    @staticmethod
    def load(folder: Path) -> ExperimentPlan:
        """Return the plan in a folder.

        Raises:
            UsageError: The folder has no plan.
            MeshmarkError: The plan cannot be read.
        """
        hint = "meshmark experiment A B -- COMMAND starts one"
        return load_plan(folder / PLAN, lambda content: ExperimentPlan(**content), "an experiment", hint)


@dataclass(slots=True, kw_only=True)
class ExperimentRun:
    """One run. If it failed, `value` is None and `reason` states why.

    Attributes:
        pair: Number of the pair, from 0, including warm-up pairs.
        position: 0 for the first run of the pair, 1 for the second.
        spent_s: Time in s of the run with its shell command.
        user_s, system_s: CPU time in s; None on another machine.
        others_share, stolen_share: Shares of the CPU time of this machine that other programs used, and that the
            hypervisor took, during the run; None on another machine.
        place: Where its threads and pages were, see `start_placement`; "" if it was not observed.
        beside: Results of what ran beside it, by name.
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
    place: str = ""
    beside: dict[str, float] = field(default_factory=dict)

    @property
    def shares(self) -> OtherWorkShares | None:
        """Return the shares of the CPU time of this machine that other work took."""
        if self.others_share is None or self.stolen_share is None:
            return None
        return OtherWorkShares(self.others_share, self.stolen_share, self.elapsed_s)

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> ExperimentRun:
        """Return the outcome that a line of the journal describes.

        Raises:
            ValueError, TypeError, KeyError: The line is not an outcome.
        """
        outcome = ExperimentRun(**{k: v for k, v in line.items() if k != "type"})
        if not (outcome.value is None or outcome.value > 0):
            raise ValueError(f"value {outcome.value!r}")
        return outcome


Runs = Callable[[int, Side, int], ExperimentRun]  # pair, side, position


def order(seed: int, pair: int) -> tuple[Side, Side]:
    """Return the random order of a pair.

    Both orders are equally likely and independent of all other pairs, on which the inference relies.
    """
    return ("a", "b") if random.Random(f"{seed} {pair}").random() < 0.5 else ("b", "a")


class Experiment:
    """The state of an experiment: all runs so far, and the results that follow from them."""

    def __init__(self, plan: ExperimentPlan) -> None:
        self.plan = plan
        self.pairs: list[dict[Side, ExperimentRun]] = []  # complete pairs that count, in order
        self.runs: dict[Side, int] = dict.fromkeys(SIDES, 0)
        self.failed: dict[Side, list[str]] = {"a": [], "b": []}  # reasons
        self.spent_s = 0.0
        self.stopped = ""
        self.next_pair = 0
        self._margin = math.log1p(plan.margin)
        self._sequence = ConfidenceSequence((-self._margin, 0.0, self._margin))
        self._open: dict[Side, ExperimentRun] = {}
        self._worked: set[Side] = set()
        self._times: list[float] = []  # times of pairs in s, including warm-up pairs
        self._in_a_row = 0
        self._like: ExperimentRun | None = None  # the first successful run

    @property
    def better(self) -> Better:
        """Return whether lower or higher values are better."""
        return self._like.better if self._like else "lower"

    @property
    def unit(self) -> str:
        """Return the unit of the values; s if no run has succeeded yet."""
        return self._like.unit if self._like else "s"

    def add(self, outcome: ExperimentRun) -> None:
        """Add a run.

        Raises:
            UsageError, MeshmarkError: The first run of a setting failed, so it is unlikely to succeed later.
        """
        self.spent_s += outcome.spent_s
        self.runs[outcome.side] += 1
        if outcome.position == 0:
            self._open = {}  # a pair that was interrupted after its first run is repeated as a whole
        first = self._like = self._like or (outcome if outcome.value is not None else None)
        if first and outcome.value is not None and (outcome.unit, outcome.points) != (first.unit, first.points):
            outcome.reason = (
                f"--metric: found {outcome.points} values in {outcome.unit}, the first run had {first.points} in "
                f"{first.unit}"
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
        """Return why no further pair runs; "" if another pair is needed."""
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
        """Return the value of B over the value of A for each pair."""
        return [cast(float, p["b"].value) / cast(float, p["a"].value) for p in self.pairs]

    @property
    def counted(self) -> list[ExperimentRun]:
        """Return the runs of the pairs that count."""
        return [outcome for pair in self.pairs for outcome in pair.values()]

    def interval(self) -> Interval | None:
        """Return the interval of the ratio, valid at any time; None with too few pairs."""
        log_interval = self._sequence.interval()
        return (math.exp(log_interval[0]), math.exp(log_interval[1])) if log_interval else None

    def word(self) -> Word:
        """Return the judgement of the ratio."""
        return judge(self.interval(), alike(self.plan.margin))

    def verdict(self) -> Spoken:
        """Return the verdict about B."""
        return spoken(self.word(), self.better, self.unit)

    def best(self) -> Side | None:
        """Return the better setting; None if both are equal or the result is inconclusive."""
        word = self.word()
        if word not in DIFFERENT:
            return None
        return "b" if word == self.better else "a"

    def failures(self) -> int:
        """Return the number of failed runs under both settings."""
        return sum(map(len, self.failed.values()))


def conduct(plan: ExperimentPlan, folder: Path, run: Runs, notify: Callable[[Experiment], None]) -> Experiment:
    """Run or resume an experiment until its result is conclusive, it is interrupted or the budget is spent.

    Args:
        plan: The request.
        folder: Folder of the experiment.
        run: Function that runs a setting once.
        notify: Function that is called after every pair.

    Raises:
        MeshmarkError: The journal belongs to another plan, or a setting failed in its first run.
    """
    experiment = Experiment(plan)
    journal = Journal(folder / JOURNAL)
    for _, outcome in journal.entries(ExperimentRun.from_json, "a run"):
        if outcome.side != order(plan.seed, outcome.pair)[outcome.position]:
            raise MeshmarkError(f"{journal.path}: belongs to another plan: pair {outcome.pair} has another order")
        experiment.add(outcome)
    try:
        while not (stop_reason := experiment.finished()):
            pair = experiment.next_pair
            for position, side in enumerate(order(plan.seed, pair)):
                outcome = run(pair, side, position)
                if outcome.value is not None or experiment.runs[side]:  # a failure of the first run may be remedied
                    journal.append({"type": "run", **asdict(outcome)})
                experiment.add(outcome)
                if outcome.value is None:
                    break
            notify(experiment)
        experiment.stopped = stop_reason
    except KeyboardInterrupt:
        experiment.stopped = INTERRUPTED
    return experiment


# ------------------------------------------------------------------ records


def records(experiment: Experiment, machine: str, command_line: str, build: str) -> list[Record]:
    """Return one record per setting and metric, then the ratio, each with all samples; empty without a complete pair.

    The metrics of a setting are `elapsed`, `user` and `system` in s, and the figure by which the runs are judged.
    `run_low` and `run_high` of `ratio` (unit 1) are the bounds of the interval that is valid at any time.

    Args:
        machine: Name of this machine. Records of a setting with a host have the name of that host.
        command_line: Command line of Meshmark.
        build: Version of Meshmark.
    """
    plan, rows = experiment.plan, list[Record]()
    if not experiment.pairs:
        return rows
    provenance: dict[str, Scalar] = {
        "build": build,
        "command": command_line,
        "start": plan.started,
        "seed": plan.seed,
        "pairs": len(experiment.pairs),
        "failed": experiment.failures(),
        "stopped": experiment.stopped,
    }
    conditions = {"program": Path(plan.command[0]).name, "command": shlex.join(plan.command)}
    for side, setting in plan.settings.items():
        runs = [p[side] for p in experiment.pairs]
        side_condition = {"side": side.upper()} if plan.a == plan.b else {}
        for metric, samples in _series(experiment, runs):
            rows.append(
                Record.from_samples(
                    metric,
                    samples,
                    source="host",
                    machine=setting.host or machine,
                    instrument="experiment",
                    conditions={**conditions, "setting": setting.text, **side_condition, **shares_during(runs)},
                    flags=result_flags(runs),
                    provenance=provenance,
                )
            )
    interval = experiment.interval()
    bounds = {"run_low": interval[0], "run_high": interval[1]} if interval else {}
    rows.append(
        Record.from_samples(
            Metric("ratio", "1", "none", "value of setting B over the value of setting A"),
            experiment.ratios,
            source="host",
            machine=machine,
            instrument="experiment",
            conditions={
                **conditions,
                "setting_a": plan.a,
                "setting_b": plan.b,
                "of": plan.figure.name,
                **bounds,
                **shares_during(experiment.counted),
            },
            flags=result_flags(experiment.counted),
            provenance={**provenance, "margin": plan.margin, "confidence": CONFIDENCE, "verdict": experiment.verdict()},
        )
    )
    return rows


def _series(experiment: Experiment, runs: Sequence[ExperimentRun]) -> Iterator[tuple[Metric, list[float]]]:
    yield Metric("elapsed", "s", "lower", "elapsed time"), [o.elapsed_s for o in runs]
    for name, times in (("user", [o.user_s for o in runs]), ("system", [o.system_s for o in runs])):
        if None not in times:
            yield Metric(name, "s", "lower", f"CPU time, {name}"), cast(list[float], times)
    if (name := experiment.plan.figure.name) != "elapsed":
        yield (
            Metric(name, experiment.unit, experiment.better, "what the command printed"),
            [cast(float, o.value) for o in runs],
        )


def to_json(experiment: Experiment) -> dict[str, Any]:
    """Return the result as one JSON object. Values have the unit of the metric; `ratio` is B over A."""
    plan = experiment.plan
    low, high = experiment.interval() or (None, None)
    runs = sum(experiment.runs.values())
    best = experiment.best()
    return {
        "type": "experiment",
        "schema": 1,
        "a": plan.a,
        "b": plan.b,
        "command": plan.command,
        "metric": plan.figure.name,
        "unit": experiment.unit,
        "better": experiment.better,
        "of_a": median([cast(float, p["a"].value) for p in experiment.pairs]) if experiment.pairs else None,
        "of_b": median([cast(float, p["b"].value) for p in experiment.pairs]) if experiment.pairs else None,
        "ratio": median(experiment.ratios) if experiment.pairs else None,
        "low": low,
        "high": high,
        "confidence": CONFIDENCE,
        "verdict": experiment.verdict(),
        "best": best.upper() if best else None,
        "margin": plan.margin,
        "pairs": len(experiment.pairs),
        "warmup": plan.warmup,
        "runs": runs,
        "failed": {side: len(reasons) for side, reasons in experiment.failed.items()},
        "failed_share": experiment.failures() / runs if runs else 0.0,
        "failure": next((f"{s.upper()}: {reasons[-1]}" for s, reasons in experiment.failed.items() if reasons), ""),
        "flags": sorted(result_flags(experiment.counted)),
        "disturbance": disturbance(experiment.counted),
        "seed": plan.seed,
        "stopped": experiment.stopped,
        "spent_s": experiment.spent_s,
        "run": plan.run,
    }
