"""Finds the fastest of several ways to run a program with few runs: successive halving, then a paired comparison.

In each round, all remaining candidates run once, in random order, so that drift affects all alike. A third of them
remains after two rounds, half after each further two; after every round, candidates that cannot improve on the baseline
by the minimum effect are dropped. Candidates are ranked by the lower third of their costs, because disturbances only
make runs longer. The last candidate is compared with the baseline by differences within rounds, starting from the round
with two candidates left: earlier rounds selected it among many, so they are biased in its favour.

The module is pure: callers pass costs to `Race.add`. Costs are positive, in any unit, and lower is better.

Sources: successive halving: Karnin, Koren, Somekh (ICML 2013), Jamieson and Talwalkar (AISTATS 2016); low quantiles as
robust to one-sided noise: Chen and Revels, "Robust benchmarking in noisy environments" (2016).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Final, Literal

from meshmark.statistics.shift import shift
from meshmark.statistics.verdicts import judge

SCREENING_ROUNDS: Final = 2  # rounds in which all candidates run
KEPT_FIRST, KEPT_LATER = 1 / 3, 1 / 2  # shares of the candidates that remain after screening and after later rounds
FINALISTS: Final = 2  # rounds with at most this many candidates count for the interval
DECISION_PAIRS: Final = (6, 8, 11, 16, 23, 32)  # numbers of pairs to decide at; 95 % intervals need at least 6
FLOOR_MIN_RUNS: Final = 4  # runs of the baseline that `floor_of` needs
FUTILITY_PAIRS: Final = 6  # pairs after which a candidate is dropped unless it is better than the baseline
MINIMUM_EFFECT: Final = 0.02
EXHAUSTIVE: Final = 10  # runs per candidate in an exhaustive comparison
_RULED_OUT: Final = 0.75  # share of the floor that must be ruled out; the floor is uncertain by about a quarter
_SMALL: Final = "a relevant difference is ruled out"
_NO_BETTER: Final = "the best other candidate is no better"
_FAILED: Final = "all other candidates failed"
_CLEARLY: Final = 2.0  # standard errors

Word = Literal["better", "no gain", "inconclusive"]


def floor_of(repeats: Sequence[float], seed: int = 1, others: Sequence[float] = ()) -> float:
    """Return the noise floor.

    It is the relative difference between two sets of ten runs of one candidate that chance exceeds in 5 % of the cases.
    Consecutive runs are paired as if they belonged to two candidates; their differences are resampled with random sign.

    Args:
        repeats: Costs of one candidate in the order of the runs; below 4 runs, the floor is infinite.
        seed: Seed of the resampling.
        others: Costs of the candidate with which it is compared; they make the floor more precise.
    """
    if len(repeats) < FLOOR_MIN_RUNS:
        return math.inf
    steps = [math.log(b / a) for series in (repeats, others) for a, b in pairwise(series)]
    rng = random.Random(seed)
    magnitudes = sorted(
        abs(shift([rng.choice(steps) * rng.choice((-1, 1)) for _ in range(EXHAUSTIVE)])[0]) for _ in range(200)
    )
    return math.expm1(magnitudes[189])


@dataclass(frozen=True, slots=True)
class CandidateStanding:
    """A candidate compared with the choice.

    Attributes:
        ratio: Cost of the candidate over the cost of the choice.
        pairs: Number of rounds that contain both.
    """

    word: Literal["worse", "equal", "inconclusive"]
    ratio: float
    pairs: int


@dataclass(frozen=True, slots=True)
class RaceVerdict:
    """The result of a race.

    Attributes:
        word: `better`: `choice` is better than the baseline; `no gain`: no candidate improves on the baseline by
            `effect` or more; `inconclusive`: the runs show neither.
        choice: The baseline unless `word` is `better`.
        best: The last remaining candidate besides the baseline, chosen or not; "" if all others failed.
        ratio: Cost of `best` over the cost of the baseline; None if they never ran in the same round.
        interval: 95 % interval of `ratio`; None if there are too few pairs.
        pairs: Number of rounds that contain both and count for the interval.
        effect: Smallest relevant difference, as a share: the maximum of 2 % and `floor`.
        floor: See `floor_of`.
        standings: The other candidates that ran in a round with the choice, by ratio.
        stopped: Reason why the race ended.
    """

    word: Word
    choice: str
    best: str
    ratio: float | None
    interval: tuple[float, float] | None
    pairs: int
    effect: float
    floor: float
    standings: Mapping[str, CandidateStanding]
    stopped: str


class Race:
    """Schedules runs one at a time until the result is conclusive.

    Args:
        candidates: Names, with or without the baseline.
        baseline: The candidate that runs in every round.
        seed: Seed of the order within rounds; the same seed and costs give the same race.
    """

    def __init__(self, candidates: Sequence[str], baseline: str, seed: int = 1) -> None:
        self.baseline, self.seed = baseline, seed
        self.alive = [baseline, *(c for c in dict.fromkeys(candidates) if c != baseline)]
        self.known = tuple(self.alive)
        self.rounds: list[dict[str, float]] = []  # log of the cost
        self.failures: dict[str, int] = {}
        self.stopped = ""
        self._first_fair: int | None = 0 if len(self.alive) <= 2 else None
        self._queue: list[str] = []

    @property
    def runs(self) -> int:
        """Return the number of runs so far, including failed runs."""
        return sum(map(len, self.rounds)) + sum(self.failures.values())

    def costs(self, name: str) -> list[float]:
        """Return the costs of one candidate, in the order of the rounds."""
        return [math.exp(r[name]) for r in self.rounds if name in r]

    def next(self) -> str | None:
        """Return the candidate to run next; None when the race is over.

        Repeated calls without `add` return the same candidate.
        """
        while not self._queue and not self.stopped:
            if self.rounds:
                self._judge()
            if not self.stopped:
                self._queue = list(self.alive)
                random.Random(f"{self.seed} {len(self.rounds)}").shuffle(self._queue)
                self.rounds.append({})
        return None if self.stopped else self._queue[-1]

    def add(self, name: str, cost: float | None) -> None:
        """Add the cost of a run, or None if it failed. A candidate that fails twice is excluded.

        Raises:
            ValueError: `name` is not the next candidate, or the cost is not positive.
        """
        if self.next() != name:
            raise ValueError(f"found a run of {name}, the next candidate is {self.next()}")
        if cost is not None and not (cost > 0 and math.isfinite(cost)):
            raise ValueError(f"cost: found {cost!r}, a positive number is required")
        self._queue.pop()
        if cost is not None:
            self.rounds[-1][name] = math.log(cost)
            return
        self.failures[name] = self.failures.get(name, 0) + 1
        if self.failures[name] == 2:
            if name == self.baseline:
                self.stopped = "the baseline failed twice"
            self.alive.remove(name)

    def stop(self, reason: str) -> None:
        """End the race early, for the reason `reason`."""
        self.stopped = self.stopped or reason

    # -------------------------------------------------------------- decisions

    def _centred(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Return the log costs of `names` minus the median of each round, which removes effects common to a round."""
        deviations: dict[str, list[float]] = {n: [] for n in names}
        for costs in self.rounds:
            names_in_round = [n for n in names if n in costs]
            estimate = median(costs[n] for n in names_in_round) if names_in_round else 0.0
            for n in names_in_round:
                deviations[n].append(costs[n] - estimate)
        return deviations

    def _noise(self, centred: Mapping[str, Sequence[float]]) -> float:
        """Return the robust standard deviation of one run, pooled over the candidates."""
        deviations = [
            abs(v - median(values)) * math.sqrt(len(values) / (len(values) - 1))
            for values in centred.values()
            if len(values) > 1
            for v in values
        ]
        return 1.4826 * median(deviations) if deviations else math.inf

    def _step(self) -> float:
        """Return the robust standard deviation of one run, including drift.

        It is estimated from consecutive runs of the same candidate.
        """
        costs = ([r[n] for r in self.rounds if n in r] for n in self.known)
        steps = [abs(b - a) for values in costs for a, b in pairwise(values)]
        return 1.4826 * median(steps) / math.sqrt(2) if steps else math.inf

    def _differences(self, name: str, to: str, first: int | None = 0) -> list[float]:
        return [] if first is None else [r[name] - r[to] for r in self.rounds[first:] if name in r and to in r]

    def _judge(self) -> None:
        others = [n for n in self.alive if n != self.baseline]
        if not others:
            self.stopped = _FAILED if len(self.known) > 1 else "there is nothing to compare"
            return
        n = len(self.rounds)
        if n >= SCREENING_ROUNDS:
            others = self._drop_inferior(others)
        if self.stopped:
            return
        if len(others) > 1:
            if n >= SCREENING_ROUNDS and (n % 2 == 0 or len(others) <= FINALISTS):
                self._halve(others, KEPT_FIRST if n == SCREENING_ROUNDS else KEPT_LATER if n % 2 == 0 else 1)
            if self._first_fair is None and n >= SCREENING_ROUNDS and len(self.alive) <= FINALISTS + 1:
                self._first_fair = n
            return
        if self._first_fair is None:
            self._first_fair = n
        differences = self._differences(others[0], self.baseline, self._first_fair)
        if len(differences) not in DECISION_PAIRS:
            return
        estimate, interval = shift(differences)
        assert interval is not None
        minimum, floor = math.log1p(MINIMUM_EFFECT), math.log1p(self._floor(others[0]))
        effect = max(minimum, floor)
        if interval[1] < 0 and estimate <= -effect:
            self.stopped = "the interval is clear"
        elif interval[0] > -max(minimum, _RULED_OUT * floor):
            self.stopped = _SMALL
        elif len(differences) >= DECISION_PAIRS[-1]:
            self.stopped = f"{DECISION_PAIRS[-1]} pairs show no clear difference"

    def _floor(self, other: str) -> float:
        return floor_of(self.costs(self.baseline), self.seed, self.costs(other) if other else ())

    def _drop_inferior(self, others: Sequence[str]) -> list[str]:
        """Drop candidates that cannot improve on the baseline by the minimum effect; end the race if none remain.

        All rounds count. The selection rounds favour a candidate, so one that is no better even with them is dropped.
        """
        noise = self._step()
        # The 95 % bound of the difference between two sets of ten runs with normal noise; `floor_of` needs more runs.
        floor = 1.96 * noise * math.sqrt(2 / EXHAUSTIVE)
        effect = max(math.log1p(MINIMUM_EFFECT), _RULED_OUT * floor)
        estimate, retained = dict[str, float](), []
        for name in others:
            differences = self._differences(name, self.baseline)
            estimate[name] = shift(differences)[0] if differences else -math.inf  # no successful run yet
            can_improve = estimate[name] - _CLEARLY * noise * math.sqrt(2 / max(1, len(differences))) <= -effect
            if can_improve and (len(differences) < FUTILITY_PAIRS or estimate[name] < 0):
                retained.append(name)
        if not retained:
            retained = [min(others, key=lambda n: estimate[n])]
            if len(self.costs(self.baseline)) >= FLOOR_MIN_RUNS:  # the verdict states the floor
                self.stopped = _NO_BETTER if estimate[retained[0]] >= 0 else _SMALL
        self.alive = [self.baseline, *retained]
        return retained

    def _halve(self, others: Sequence[str], share: float) -> None:
        centred = self._centred(self.alive)
        # Candidates without a successful run rank last.
        score = {n: sorted(v)[(len(v) - 1) // 3] if (v := centred[n]) else math.inf for n in others}
        order = sorted(others, key=lambda n: score[n])
        margin = _CLEARLY * self._noise(centred) * math.sqrt(2 / len(self.rounds)) + math.log1p(MINIMUM_EFFECT)
        retained = [n for n in order[: max(1, math.ceil(share * len(others)))] if score[n] <= score[order[0]] + margin]
        self.alive = [self.baseline, *retained]

    def verdict(self) -> RaceVerdict:
        """Return the result so far, also of a race that was stopped early."""
        centred = self._centred(self.known)
        others = [n for n in self.alive if n != self.baseline and centred[n]]
        best = min(others, key=lambda n: median(centred[n]), default="")
        floor = self._floor(best)
        effect = max(MINIMUM_EFFECT, floor)
        differences = self._differences(best, self.baseline, self._first_fair) if best else []
        estimate, interval = shift(differences) if differences else (math.nan, None)
        word: Word = "inconclusive"
        if self.stopped in {_FAILED, _NO_BETTER, _SMALL}:
            word = "no gain"
        elif interval is not None:
            smallest = math.log1p(effect)
            if judge(interval, (-smallest, smallest), 0.0) == "lower":
                word = "better"
            elif interval[0] > -smallest:
                word = "no gain"
        choice = best if word == "better" else self.baseline
        return RaceVerdict(
            word,
            choice,
            best,
            math.exp(estimate) if differences else None,
            (math.exp(interval[0]), math.exp(interval[1])) if interval else None,
            len(differences),
            effect,
            floor,
            self._standings(choice, word == "better"),
            self.stopped,
        )

    def _standings(self, choice: str, beaten: bool) -> dict[str, CandidateStanding]:
        """Judge the other candidates by their differences to the choice within rounds.

        A candidate that was dropped early has too few differences for a separate interval: its interval is centred on
        their mean and uses the variance of all differences.
        """
        differences = {
            n: d
            for n in self.known
            if n != choice and self.failures.get(n, 0) < 2 and (d := self._differences(n, choice))
        }
        freedom = sum(len(d) - 1 for d in differences.values())
        squares = sum((v - fmean(d)) ** 2 for d in differences.values() for v in d)
        reach = 1.96 * math.sqrt(squares / freedom) if freedom else math.inf
        smallest, standings = math.log1p(MINIMUM_EFFECT), {}
        for name, values in differences.items():
            estimate, interval = shift(values)
            if interval is None:
                estimate, half_width = fmean(values), reach / math.sqrt(len(values))
                interval = estimate - half_width, estimate + half_width
            judgement = judge(interval, (-smallest, smallest), 0.0)
            worse = judgement == "higher" or (beaten and name == self.baseline)
            # No candidate is reported as better than the choice: the selection of the smallest estimates makes them
            # look better than they are.
            word: Literal["worse", "equal", "inconclusive"] = (
                "worse" if worse else "equal" if judgement == "equal" else "inconclusive"
            )
            standings[name] = CandidateStanding(word, math.exp(estimate), len(values))
        return dict(sorted(standings.items(), key=lambda item: item[1].ratio))


@dataclass(frozen=True, slots=True)
class SimulatedRace:
    """The result of a simulated race.

    Attributes:
        loss: True cost of the choice over the cost of the truly best candidate, minus 1.
        share: Number of runs over the number of runs of an exhaustive comparison. There, every candidate runs as often
            as the most frequent candidate of this race, and at least ten times, because the floor refers to ten runs.
        of_ten: Number of runs over ten times the number of candidates.
        claimed: True if the race reported a candidate that is better than the baseline.
        covered: True if the interval of the gain contained the true gain; None without an interval.
    """

    loss: float
    share: float
    of_ten: float
    claimed: bool
    covered: bool | None


def trial(costs: Sequence[float], run: Callable[[float, int, random.Random], float], seed: int) -> SimulatedRace:
    """Simulate a race in which the first candidate is the baseline.

    Args:
        costs: True median costs of the candidates.
        run: Function that returns the cost of one run for the true cost, the number of the run and a random generator.
        seed: Seed of the race and of `run`.
    """
    rng = random.Random(seed)
    names = [str(i) for i in range(len(costs))]
    race = Race(names, "0", seed)
    while (name := race.next()) is not None:
        race.add(name, run(costs[int(name)], race.runs, rng))
    verdict = race.verdict()
    max_runs = max(EXHAUSTIVE, *(len(race.costs(n)) for n in names))
    covered = None
    if verdict.interval is not None:
        covered = verdict.interval[0] <= costs[int(verdict.best)] / costs[0] <= verdict.interval[1]
    return SimulatedRace(
        costs[int(verdict.choice)] / min(costs) - 1,
        race.runs / (max_runs * len(costs)),
        race.runs / (EXHAUSTIVE * len(costs)),
        verdict.word == "better",
        covered,
    )
