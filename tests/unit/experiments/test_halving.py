"""Tests of successive halving: its statistics, and races on simulated machines."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest

from meshmark.experiments.halving import DECISION_PAIRS, Race, floor_of, trial
from meshmark.statistics.shift import shift


def test_the_interval_of_a_shift_is_that_of_the_signed_ranks() -> None:
    # Hollander and Wolfe, Nonparametric Statistical Methods, table A.4: n = 6: P(T <= 0) = 1/64; n = 10: P(T <= 8) =
    # .024, P(T <= 9) = .032.
    assert shift([1, 2, 3, 4, 5])[1] is None
    assert shift([3, 1, 2, 6, 5, 4]) == (3.5, (1, 6))
    values = [float(2**i) for i in range(10)]
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    assert shift(values) == (statistics.median(walsh), (walsh[8], walsh[-9]))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(1)
    hits = 0
    for _ in range(1000):
        bounds = shift([rng.gauss(0.1, 1) for _ in range(8)])[1]
        assert bounds is not None
        hits += bounds[0] <= 0.1 <= bounds[1]
    assert 940 <= hits <= 985  # exact: 1 - 2 * P(W <= 3) = 96.1 % of 1000, four standard errors of 6


def test_the_floor_grows_with_the_noise_and_not_with_drift() -> None:
    rng = random.Random(2)
    quiet, loud = ([1 + rng.gauss(0, s) for _ in range(16)] for s in (0.002, 0.04))
    assert floor_of(quiet) < 0.01 < floor_of(loud) < 0.15
    drifting = [v * (1 + 0.01 * i) for i, v in enumerate(quiet)]
    assert floor_of(drifting) < 0.02
    assert floor_of(quiet[:3]) == math.inf


def gaussian(cost: float, _: int, rng: random.Random) -> float:
    return cost * math.exp(rng.gauss(0, 0.01))


def heavy(cost: float, _: int, rng: random.Random) -> float:
    return cost * math.exp(rng.gauss(0, 0.03)) * (1.3 if rng.random() < 0.1 else 1)


def drifting(cost: float, run: int, rng: random.Random) -> float:
    return gaussian(cost, run, rng) * (1 + 0.002 * run)


@pytest.mark.parametrize("noise", [gaussian, heavy, drifting], ids=lambda n: n.__name__)
def test_a_clear_winner_is_found_with_few_runs(noise: Any) -> None:
    costs = [1.2, *[1.1 + 0.01 * i for i in range(10)], 0.9]
    trials = [trial(costs, noise, seed) for seed in range(40)]
    assert sum(t.loss == 0 for t in trials) >= 37
    assert statistics.fmean(t.share for t in trials) <= 0.4
    assert sum(t.claimed for t in trials) >= 37


def test_repeats_of_the_other_one_make_the_floor_better_known() -> None:
    rng = random.Random(3)
    floors_alone, floors_of_both = list[float](), list[float]()
    for seed in range(40):
        a, b = ([math.exp(rng.gauss(0, 0.03)) for _ in range(8)] for _ in range(2))
        floors_alone.append(floor_of(a, seed))
        floors_of_both.append(floor_of(a, seed, b))
    assert statistics.stdev(floors_of_both) < 0.9 * statistics.stdev(floors_alone)


@pytest.mark.parametrize("noise", [gaussian, heavy, drifting], ids=lambda n: n.__name__)
def test_where_nothing_is_better_nothing_is_claimed(noise: Any) -> None:
    trials = [trial([1.0] * 12, noise, seed) for seed in range(40)]
    assert sum(t.claimed for t in trials) <= 3
    assert statistics.fmean(t.share for t in trials) <= 0.4


def test_the_interval_of_the_gain_holds_the_true_one() -> None:
    trials = [trial([1.2, 1.15, 1.1, 1.0, 1.05, 1.3], heavy, seed) for seed in range(60)]
    coverage = [t.covered for t in trials if t.covered is not None]
    assert len(coverage) >= 50 and sum(coverage) >= 0.85 * len(coverage)


def test_all_that_are_left_run_once_a_round_in_an_order_of_the_seed() -> None:
    def order(seed: int) -> list[str]:
        race, names = Race("abcdef", "a", seed), []
        for _ in range(12):
            name = race.next()
            assert name is not None and race.next() == name
            names.append(name)
            race.add(name, 1.0)
        return names

    first_order = order(1)
    assert sorted(first_order[:6]) == sorted(first_order[6:]) == list("abcdef") and first_order[:6] != first_order[6:]
    assert order(1) == first_order != order(2)


def test_who_fails_twice_is_out_and_the_baseline_ends_the_race() -> None:
    race = Race(["a", "b", "c"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "b" else 1.0)
        assert race.failures.get("b", 0) <= 2
    assert race.failures == {"b": 2} and "b" not in race.alive
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "a" else 1.0)
    assert "baseline failed" in race.stopped and race.verdict().word == "inconclusive"
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:
        race.add(name, None if name == "b" else 1.0)
    assert race.failures == {"b": 2}
    assert (race.verdict().word, race.verdict().choice, race.stopped) == (
        "no gain",
        "a",
        "all other candidates failed",
    )


@pytest.mark.parametrize(
    ("cost", "pairs", "word", "stopped"),
    [
        (0.9, 6, "better", "the interval is clear"),
        (0.99, 4, "no gain", "a relevant difference is ruled out"),
        (1.1, 4, "no gain", "the best other candidate is no better"),
    ],
)
def test_a_race_ends_as_soon_as_it_is_clear(cost: float, pairs: int, word: str, stopped: str) -> None:
    race, rng = Race(["a", "b"], "a"), random.Random(1)
    while (name := race.next()) is not None:
        race.add(name, (1.0 if name == "a" else cost) * (1 + rng.gauss(0, 0.001)))
    verdict = race.verdict()
    assert (verdict.pairs, verdict.word, verdict.stopped) == (pairs, word, stopped)


def test_a_gain_that_is_certain_but_below_the_noise_floor_is_no_difference() -> None:
    race = Race(["a", "b"], "a")
    while (name := race.next()) is not None:  # rounds differ by a fifth, the two candidates in a round by 3 %
        race.add(name, (1.2 if len(race.rounds) % 2 else 1.0) * (1.0 if name == "a" else 0.97))
    verdict = race.verdict()
    assert verdict.interval is not None
    assert verdict.interval[1] < 1
    assert verdict.floor > 0.05
    assert (verdict.pairs, verdict.word, verdict.choice, verdict.stopped) == (
        6,
        "no gain",
        "a",
        "a relevant difference is ruled out",
    )


@pytest.mark.parametrize("cost", [1.0, 1.1])
def test_what_cannot_win_is_given_up_before_an_interval_is_known_but_not_before_the_floor_is(cost: float) -> None:
    race, rng = Race("abcdef", "a"), random.Random(1)
    while (name := race.next()) is not None:
        race.add(name, (1.0 if name == "a" else cost) * (1 + rng.gauss(0, 0.001)))
    verdict = race.verdict()
    assert (verdict.word, verdict.choice, verdict.effect, len(race.costs("a"))) == ("no gain", "a", 0.02, 4)
    assert race.runs == 6 + 6 + 2 + 2


def test_rounds_that_chose_one_out_of_many_do_not_count_for_its_interval() -> None:
    race = Race([str(i) for i in range(13)], "0")
    while (name := race.next()) is not None:
        early = race.runs < 4 * 13 and len(race.rounds) < 5
        race.add(name, 1.0 if name == "0" else 0.5 if early else 0.9 + 0.001 * int(name))
    verdict = race.verdict()
    # The ratio is not 0.5, as in the first four rounds.
    assert verdict.ratio is not None and verdict.ratio > 0.89, verdict


def test_of_two_the_rounds_that_all_ran_in_do_not_count_either() -> None:
    race = Race("abc", "a")
    while (name := race.next()) is not None:
        race.add(name, 1.0 if name == "a" else 0.5 if len(race.rounds) <= 2 and name == "b" else 0.9)
    verdict = race.verdict()
    assert (verdict.best, verdict.pairs) == ("b", len(race.rounds) - 2) and verdict.ratio == pytest.approx(0.9)


def test_costs_and_turns_are_checked() -> None:
    race = Race(["a", "b"], "a")
    name = race.next()
    for cost in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive"):
            race.add(str(name), cost)
    with pytest.raises(ValueError, match="the next candidate is"):
        race.add("b" if name == "a" else "a", 1.0)


def test_a_race_that_is_stopped_early_decides_nothing() -> None:
    race = Race(["a", "b"], "a")
    for _ in range(2 * DECISION_PAIRS[0] - 1):
        name = race.next()
        assert name is not None
        race.add(name, 1.0 if name == "a" else 0.5)
    race.stop("the budget ended")
    assert race.next() is None
    assert (race.verdict().word, race.verdict().choice, race.verdict().stopped) == (
        "inconclusive",
        "a",
        "the budget ended",
    )
    assert race.verdict().ratio == pytest.approx(0.5)


def test_what_was_not_told_apart_from_the_choice_is_named_with_its_ratio() -> None:
    race = Race("abc", "a")
    noise = {"a": [1.0, 1.2, 1.0, 1.2, 1.0], "b": [1.3, 1.1, 1.3, 1.1, 1.3], "c": [3.0, 3.6, 3.6, 3.0, 3.0]}
    while len(race.rounds) < 6 and (name := race.next()) is not None:
        race.add(name, noise[name][len(race.costs(name))] if len(race.costs(name)) < 5 else 1.0)
    race.stop("the budget ended")
    standings = race.verdict().standings
    assert {n: s.word for n, s in standings.items()} == {"b": "inconclusive", "c": "worse"}
    assert 1 < standings["b"].ratio < 1.3 and standings["b"].pairs == 5


def test_who_failed_twice_is_not_close_to_the_choice() -> None:
    race = Race("abc", "a")
    while len(race.rounds) < 5 and (name := race.next()) is not None:
        race.add(name, None if name == "b" and race.costs("b") else 1.0)
    race.stop("the budget ended")
    assert race.failures == {"b": 2}
    assert "b" not in race.verdict().standings


def test_a_race_that_is_stopped_late_claims_neither_a_gain_nor_none() -> None:
    race, costs = Race("ab", "a"), [0.7, 1.2, 0.75, 1.15, 0.8, 1.1, 0.9]
    while len(race.costs("b")) < 7 and (name := race.next()) is not None:
        race.add(name, 1.0 if name == "a" else costs[len(race.costs("b"))])
    race.stop("the budget ended")
    verdict = race.verdict()
    assert verdict.interval is not None
    assert verdict.interval[0] < 1 < verdict.interval[1]
    assert (verdict.word, verdict.choice) == ("inconclusive", "a")
    assert verdict.floor == floor_of(race.costs("a"), race.seed, race.costs("b"))


def test_an_interval_of_less_confidence_needs_fewer_differences_and_is_narrower() -> None:
    assert shift([5, 3, 1, 2, 4], 0.9) == (3, (1, 5))  # P(W <= 0) = 1/32
    assert shift([5, 3, 1, 2, 4], 0.95) == (3, None)
    assert shift([7.0]) == (7, None)
    assert shift([1, 2, 4, 8, 16, 32, 64], 0.9)[1] == (2.5, 36)  # P(W <= 3) = 5/128


def test_a_floor_is_that_of_steps_within_a_series() -> None:
    assert floor_of([1.0, 1.5, 1.0, 1.5]) == pytest.approx(0.5)  # all steps have the same size
    assert floor_of([2.0, 3.0, 2.0, 3.0], 7, [9.0, 6.0]) == pytest.approx(0.5)
    assert floor_of([1.0] * 4, 1, [5.0] * 4) == 0  # the change from one series to the other is not a step
    assert floor_of([1.0] * 4, 1, [1.0, 2.0] * 40) > 0.4
    assert floor_of([1.0] * 3, 1, [1.0] * 9) == math.inf


def test_the_floor_is_exceeded_by_one_in_twenty_comparisons_of_ten_runs() -> None:
    steps = [-0.4, 0.1, 0.3, -0.2, 0.5, -0.1, 0.2, -0.6, 0.4]
    costs = [math.exp(math.fsum(steps[:i])) for i in range(len(steps) + 1)]
    floors = [math.log1p(floor_of(costs, seed)) for seed in range(12)]
    rng = random.Random(5)
    shifts = sorted(abs(shift([rng.choice(steps) * rng.choice((-1, 1)) for _ in range(10)])[0]) for _ in range(3000))
    assert statistics.fmean(floors) == pytest.approx(shifts[2850], rel=0.06)
    assert min(floors) < max(floors)


def exact(cost: float, _: int, __: random.Random) -> float:
    return cost


def test_a_simulated_race_reports_its_loss_its_runs_and_whether_the_interval_was_right() -> None:
    halved_cost = trial([1.0, 0.5], exact, 1)  # six pairs
    assert (halved_cost.loss, halved_cost.claimed) == (0, True)
    assert (halved_cost.share, halved_cost.of_ten) == (12 / 20, 12 / 20)
    slight_gain = trial([1.0, 0.99, 1.2], exact, 1)  # two rounds of three and two of two
    assert (slight_gain.loss, slight_gain.claimed, slight_gain.covered) == (pytest.approx(1 / 0.99 - 1), False, None)
    assert slight_gain.share == slight_gain.of_ten == 10 / 30
    drifting_machine = trial([1.0, math.exp(-0.38)], lambda cost, run, _: cost * math.exp(0.5 * (run // 2 % 2)), 1)
    assert (drifting_machine.share, drifting_machine.of_ten, drifting_machine.claimed) == (1, 64 / 20, False)


@pytest.mark.parametrize(("offset", "covered"), [(0.0, True), (0.03, False), (-0.03, False)])
def test_an_interval_covers_the_true_gain_or_not(offset: float, covered: bool) -> None:
    def run(cost: float, number: int, _: random.Random) -> float:
        return 1.0 if cost == 1.0 else cost + offset + (0.01 if number // 2 % 2 else -0.01)

    assert trial([1.0, 0.5], run, 1).covered is covered


def test_a_simulated_race_is_the_same_for_a_seed() -> None:
    costs = [1.0, 0.95, 0.93, 1.1]
    assert trial(costs, heavy, 1) == trial(costs, heavy, 1)
    assert len({trial(costs, heavy, seed) for seed in range(8)}) > 3
