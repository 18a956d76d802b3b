"""Which of several ways to run a program is the quickest, found with few runs: successive halving, then a paired race.

All that are left run once a round, in random order, so that what drifts falls on all alike. After two rounds a third of
them goes on, after each further two half, and after every round those are out that cannot beat the baseline by what
counts. Candidates are ordered by the lower third of their costs, since what disturbs a run makes it longer. The last
one is told apart from the baseline by the differences of the same round, from the round on in which two were left: the
earlier ones chose it out of many and would flatter it.

Pure: what costs how much is told through `Race.add`. Costs are positive and less is better, of any unit.

Sources: successive halving: Karnin, Koren, Somekh (ICML 2013), Jamieson and Talwalkar (AISTATS 2016); estimate and
interval of a shift: Hodges and Lehmann (1963), of Wilcoxon's signed ranks; best of few runs as robust to one-sided
noise: Chen and Revels, "Robust benchmarking in noisy environments" (2016).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median
from typing import Final, Literal

SCREENING: Final = 2  # rounds in which all run
KEPT_FIRST, KEPT_LATER = 1 / 3, 1 / 2
FINALISTS: Final = 2  # from so few on a round counts for the interval
LOOKS: Final = (6, 8, 11, 16, 23, 32)  # pairs after which the last one is judged; under 6 ranks give no 95 % interval
FLOOR_NEEDS: Final = 4  # runs of the baseline
HOPELESS: Final = 6  # pairs after which one that is no better is given up
MINIMUM_EFFECT: Final = 0.02
EXHAUSTIVE: Final = 10  # runs of each, at least, when all are tried out
_RULED_OUT: Final = 0.75  # of the floor, which is itself known to about a quarter: more than that has to be ruled out
_SMALL: Final = "no difference that counts is possible"
_NO_BETTER: Final = "the best of the others is no better"
_FAILED: Final = "all others failed"
_CLEARLY: Final = 2.0  # standard errors

Word = Literal["better", "no difference", "not decided"]


@cache
def _cut(n: int, confidence: float) -> int:
    """Largest c with P(W <= c) <= (1 - confidence) / 2 for Wilcoxon's signed-rank sum W of n; -1: there is none."""
    ways = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for at in range(len(ways) - 1, rank - 1, -1):
            ways[at] += ways[at - rank]
    tail, c = 0.0, -1
    while (tail := tail + ways[c + 1] / 2**n) <= (1 - confidence) / 2:
        c += 1
    return c


def shift(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, tuple[float, float] | None]:
    """Hodges-Lehmann estimate of the centre of at least one difference, and its exact interval.

    Returns:
        estimate and interval, in the differences' unit; no interval under 6 differences at 95 %.
    """
    n = len(differences)
    walsh = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    c = _cut(n, confidence)
    return median(walsh), None if c < 0 else (walsh[c], walsh[-1 - c])


def floor_of(repeats: Sequence[float], seed: int = 1, others: Sequence[float] = ()) -> float:
    """By how much two sets of ten runs of the same thing differ at most, in 95 of 100 cases, as a share.

    Each repeat is set against the next one, as if that were another candidate's; the differences are drawn again with
    random sign.

    Args:
        repeats: costs of one thing in the order of the runs; under 4 nothing is known and the floor is infinite.
        others: of what it is compared with, in the same way: with them the floor is better known.
    """
    if len(repeats) < FLOOR_NEEDS:
        return math.inf
    steps = [math.log(b / a) for series in (repeats, others) for a, b in pairwise(series)]
    rng = random.Random(seed)
    found = sorted(
        abs(shift([rng.choice(steps) * rng.choice((-1, 1)) for _ in range(EXHAUSTIVE)])[0]) for _ in range(200)
    )
    return math.expm1(found[189])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a race found.

    Attributes:
        word: better: `choice` beats the baseline; no difference: by less than `effect`; not decided: too few runs.
        choice: the baseline unless the word is better.
        best: the last one left beside the baseline, chosen or not; "" where all others failed.
        ratio: cost of `best` over the baseline's, and its 95 % interval; None where they never ran in one round, or too
            seldom for an interval.
        effect: what counts as a difference at least, a share: the greater of 2 % and `floor`.
        floor: see `floor_of`.
        close: what was not told apart from the choice, with the ratio of its cost to the choice's as far as is known.
        stopped: why, in words.
    """

    word: Word
    choice: str
    best: str
    ratio: float | None
    interval: tuple[float, float] | None
    pairs: int
    effect: float
    floor: float
    close: Mapping[str, float]
    stopped: str


class Race:
    """Asks for runs one at a time, until the answer is clear.

    Args:
        candidates: names, the baseline among them or not.
        baseline: runs in every round.
        seed: of the order within the rounds; the same seed and costs give the same race.
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
        """Runs so far, with those that failed."""
        return sum(map(len, self.rounds)) + sum(self.failures.values())

    def costs(self, name: str) -> list[float]:
        """What was told of one, in the order of the rounds."""
        return [math.exp(r[name]) for r in self.rounds if name in r]

    def next(self) -> str | None:
        """What to run next; None when the race is over. Asked again without `add`, it answers the same."""
        while not self._queue and not self.stopped:
            if self.rounds:
                self._judge()
            if not self.stopped:
                self._queue = list(self.alive)
                random.Random(f"{self.seed} {len(self.rounds)}").shuffle(self._queue)
                self.rounds.append({})
        return None if self.stopped else self._queue[-1]

    def add(self, name: str, cost: float | None) -> None:
        """Tells what a run cost (positive), or None that it failed; who fails twice is out.

        Raises:
            ValueError: it was another one's turn, or the cost is not positive.
        """
        if self.next() != name:
            raise ValueError(f"found a run of {name}, it was {self.next()}'s turn")
        if cost is not None and not (cost > 0 and math.isfinite(cost)):
            raise ValueError(f"cost: found {cost!r}, a positive number is needed")
        self._queue.pop()
        if cost is not None:
            self.rounds[-1][name] = math.log(cost)
            return
        self.failures[name] = self.failures.get(name, 0) + 1
        if self.failures[name] == 2:
            if name == self.baseline:
                self.stopped = "the baseline failed twice"
            self.alive.remove(name)

    def stop(self, why: str) -> None:
        """Ends the race early: no time is left."""
        self.stopped = self.stopped or why

    # -------------------------------------------------------------- judging

    def _centred(self, names: Sequence[str]) -> dict[str, list[float]]:
        """Costs of the full rounds without what the round did to all of `names`."""
        found: dict[str, list[float]] = {n: [] for n in names}
        for costs in self.rounds:
            here = [n for n in names if n in costs]
            middle = median(costs[n] for n in here) if here else 0.0
            for n in here:
                found[n].append(costs[n] - middle)
        return found

    def _noise(self, centred: Mapping[str, Sequence[float]]) -> float:
        """Robust standard deviation of one run, pooled over the candidates."""
        left = [
            abs(v - median(values)) * math.sqrt(len(values) / (len(values) - 1))
            for values in centred.values()
            if len(values) > 1
            for v in values
        ]
        return 1.4826 * median(left) if left else math.inf

    def _step(self) -> float:
        """Robust standard deviation of one run, from the changes between one's own runs; drift is in it."""
        costs = ([r[n] for r in self.rounds if n in r] for n in self.known)
        steps = [abs(b - a) for values in costs for a, b in pairwise(values)]
        return 1.4826 * median(steps) / math.sqrt(2) if steps else math.inf

    def _differences(self, name: str, to: str, first: int | None = 0) -> list[float]:
        return [] if first is None else [r[name] - r[to] for r in self.rounds[first:] if name in r and to in r]

    def _judge(self) -> None:
        others = [n for n in self.alive if n != self.baseline]
        if not others:
            self.stopped = _FAILED if len(self.known) > 1 else "there is nothing to compare with"
            return
        n = len(self.rounds)
        if n >= SCREENING:
            others = self._give_up(others)
        if self.stopped:
            return
        if len(others) > 1:
            if n >= SCREENING and (n % 2 == 0 or len(others) <= FINALISTS):
                self._halve(others, KEPT_FIRST if n == SCREENING else KEPT_LATER if n % 2 == 0 else 1)
            if self._first_fair is None and n >= SCREENING and len(self.alive) <= FINALISTS + 1:
                self._first_fair = n
            return
        if self._first_fair is None:
            self._first_fair = n
        fair = self._differences(others[0], self.baseline, self._first_fair)
        if len(fair) not in LOOKS:
            return
        middle, interval = shift(fair)
        assert interval is not None
        least, floor = math.log1p(MINIMUM_EFFECT), math.log1p(self._floor(others[0]))
        effect = max(least, floor)
        if interval[1] < 0 and middle <= -effect:
            self.stopped = "the interval is clear"
        elif interval[0] > -max(least, _RULED_OUT * floor):
            self.stopped = _SMALL
        elif len(fair) >= LOOKS[-1]:
            self.stopped = f"{LOOKS[-1]} pairs did not tell them apart"

    def _floor(self, other: str) -> float:
        return floor_of(self.costs(self.baseline), self.seed, self.costs(other) if other else ())

    def _give_up(self, others: Sequence[str]) -> list[str]:
        """Drops those that cannot beat the baseline by what counts; if that is all of them, the race is over.

        All rounds count. Those that chose one flatter it: who is no better with them is no better.
        """
        noise = self._step()
        # Two sets of ten runs differ by this at most, were the noise normal; the floor itself needs more runs.
        floor = 1.96 * noise * math.sqrt(2 / EXHAUSTIVE)
        effect = max(math.log1p(MINIMUM_EFFECT), _RULED_OUT * floor)
        middle, left = dict[str, float](), []
        for name in others:
            every = self._differences(name, self.baseline)
            middle[name] = shift(every)[0] if every else -math.inf  # it failed once: nothing is known of it
            possible = middle[name] - _CLEARLY * noise * math.sqrt(2 / max(1, len(every))) <= -effect
            if possible and (len(every) < HOPELESS or middle[name] < 0):
                left.append(name)
        if not left:
            left = [min(others, key=lambda n: middle[n])]
            if len(self.costs(self.baseline)) >= FLOOR_NEEDS:  # the answer says how small a difference is none
                self.stopped = _NO_BETTER if middle[left[0]] >= 0 else _SMALL
        self.alive = [self.baseline, *left]
        return left

    def _halve(self, others: Sequence[str], share: float) -> None:
        centred = self._centred(self.alive)
        # Who failed in a round has fewer values; the lower third of none is the end of the order.
        score = {n: sorted(v)[(len(v) - 1) // 3] if (v := centred[n]) else math.inf for n in others}
        order = sorted(others, key=lambda n: score[n])
        margin = _CLEARLY * self._noise(centred) * math.sqrt(2 / len(self.rounds)) + math.log1p(MINIMUM_EFFECT)
        kept = [n for n in order[: max(1, math.ceil(share * len(others)))] if score[n] <= score[order[0]] + margin]
        self.alive = [self.baseline, *kept]

    def verdict(self) -> Verdict:
        """The answer, also of a race that was stopped early."""
        centred = self._centred(self.known)
        others = [n for n in self.alive if n != self.baseline and centred[n]]
        best = min(others, key=lambda n: median(centred[n]), default="")
        floor = self._floor(best)
        effect = max(MINIMUM_EFFECT, floor)
        fair = self._differences(best, self.baseline, self._first_fair) if best else []
        middle, interval = shift(fair) if fair else (math.nan, None)
        word: Word = "not decided"
        if self.stopped in {_FAILED, _NO_BETTER, _SMALL}:
            word = "no difference"
        elif interval is not None:
            better = interval[1] < 0 and interval[0] <= -math.log1p(effect)
            word = "better" if better else "no difference"
        choice = best if word == "better" else self.baseline
        return Verdict(
            word,
            choice,
            best,
            math.exp(middle) if fair else None,
            (math.exp(interval[0]), math.exp(interval[1])) if interval else None,
            len(fair),
            effect,
            floor,
            self._close(choice, effect, word == "better"),
            self.stopped,
        )

    def _close(self, choice: str, effect: float, beaten: bool) -> dict[str, float]:
        noise = self._noise(self._centred(self.known))
        found = {}
        for name in self.known:
            apart = self._differences(name, choice)
            if name == choice or not apart or self.failures.get(name, 0) > 1 or (beaten and name == self.baseline):
                continue
            middle = shift(apart)[0]
            if abs(middle) - 1.96 * noise * math.sqrt(2 / len(apart)) < math.log1p(effect):
                found[name] = math.exp(middle)
        return dict(sorted(found.items(), key=lambda item: item[1]))


@dataclass(frozen=True, slots=True)
class Trial:
    """One race in a made-up world.

    Attributes:
        loss: true cost of the choice over that of the true best, minus 1.
        share: runs over those of trying all out: each as often as the one that ran most (the baseline, and with it the
            last one), and at least ten times, as the floor is that of ten runs.
        of_ten: runs over ten runs of each.
        claimed: it said that something beats the baseline.
        covered: the interval of the gain held the true one; None where there was none.
    """

    loss: float
    share: float
    of_ten: float
    claimed: bool
    covered: bool | None


def trial(costs: Sequence[float], run: Callable[[float, int, random.Random], float], seed: int) -> Trial:
    """Races made-up candidates, the first of them the baseline.

    Args:
        costs: true medians.
        run: what a run of a true cost takes, by the number of the run and a source of randomness.
    """
    rng = random.Random(seed)
    names = [str(i) for i in range(len(costs))]
    race = Race(names, "0", seed)
    while (name := race.next()) is not None:
        race.add(name, run(costs[int(name)], race.runs, rng))
    said = race.verdict()
    most = max(EXHAUSTIVE, *(len(race.costs(n)) for n in names))
    covered = None
    if said.interval is not None:
        covered = said.interval[0] <= costs[int(said.best)] / costs[0] <= said.interval[1]
    return Trial(
        costs[int(said.choice)] / min(costs) - 1,
        race.runs / (most * len(costs)),
        race.runs / (EXHAUSTIVE * len(costs)),
        said.word == "better",
        covered,
    )
