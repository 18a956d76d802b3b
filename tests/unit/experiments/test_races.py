"""Tests of races between candidates with given costs: remaining candidates, end, and verdict."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from meshmark.experiments.halving import DECISION_PAIRS, CandidateStanding, Race

# Function per candidate that returns its cost in a round; rounds are numbered from 0.
Costs = Mapping[str, Callable[[int], float | None]]


def race_of(costs: Costs, rounds: int = 40, seed: int = 1) -> tuple[Race, list[list[str]]]:
    """Return a race over `costs`, the first of which is the baseline, and the candidates that remain in each round.

    The race ends after `rounds` rounds at most, without being stopped, for example to check which candidates remain.
    """
    race, alive = Race(list(costs), next(iter(costs)), seed), list[list[str]]()
    while (name := race.next()) is not None:
        if len(race.rounds) > len(alive):
            alive.append(list(race.alive))
            if len(alive) > rounds:
                break
        race.add(name, costs[name](len(race.rounds) - 1))
    return race, alive


def steady(cost: float) -> Callable[[int], float]:
    return lambda _: cost


def series(*costs: float | None) -> Callable[[int], float | None]:
    return lambda number: costs[min(number, len(costs) - 1)]


def shaking(cost: float, step: float) -> Callable[[int], float]:
    """Return costs that are higher by the factor e^step in each odd round, as on a machine that drifts."""
    return lambda number: cost * math.exp(step * (number % 2))


def test_candidates_run_once_each_whatever_they_were_named_twice() -> None:
    race = Race(["b", "a", "b", "c", "a"], "a")
    assert race.alive == ["a", "b", "c"]
    assert race.known == ("a", "b", "c")
    assert Race(["b"], "a").alive == ["a", "b"]
    assert (race.runs, race.rounds, race.costs("a"), race.stopped) == (0, [], [], "")
    assert [race.next(), race.runs] == [Race("abc", "a", 1).next(), 0]


def test_the_order_is_another_one_in_every_round() -> None:
    names = list[str]()
    race = Race("abcdefgh", "a")
    while len(race.rounds) < 3:
        name = race.next()
        assert name is not None
        names.append(name)
        race.add(name, 1.0)
    orders = {tuple(names[i : i + 8]) for i in (0, 8)}
    assert len(orders) == 2 and all(sorted(order) == list("abcdefgh") for order in orders)


def test_costs_are_kept_in_the_order_of_the_rounds_and_runs_count_failures() -> None:
    race, _ = race_of({"a": series(4.0, 2.0, 1.0), "b": series(8.0, None, 3.0)}, rounds=3)
    assert race.costs("a") == pytest.approx([4, 2, 1])
    assert race.costs("b") == pytest.approx([8, 3])
    assert (race.runs, race.failures) == (6, {"b": 1})


def test_a_run_that_is_not_next_or_has_no_cost_is_refused_and_changes_nothing() -> None:
    race = Race(["a", "b"], "a")
    name = race.next()
    other_name = "b" if name == "a" else "a"
    with pytest.raises(ValueError, match=f"found a run of {other_name}, the next candidate is {name}"):
        race.add(other_name, 1.0)
    with pytest.raises(ValueError, match=r"cost: found 0\.0, a positive number"):
        race.add(str(name), 0.0)
    assert (race.runs, race.next()) == (0, name)
    race.add(str(name), 1e-300)
    assert (race.runs, race.next()) == (1, other_name)


def test_the_first_reason_to_stop_stays() -> None:
    race = Race(["a", "b"], "a")
    race.stop("the budget ended")
    race.stop("of boredom")
    assert (race.stopped, race.next()) == ("the budget ended", None)


def test_the_baseline_alone_is_nothing_to_compare() -> None:
    race, alive = race_of({"a": steady(1.0)})
    assert alive == [["a"]]
    assert race.stopped == "there is nothing to compare"
    verdict = race.verdict()
    assert (verdict.word, verdict.choice, verdict.best, verdict.ratio, verdict.interval, verdict.pairs) == (
        "inconclusive",
        "a",
        "",
        None,
        None,
        0,
    )
    assert verdict.standings == {}


def test_a_verdict_on_candidates_that_all_failed_has_no_ratio() -> None:
    verdict = race_of({"a": steady(1.0), "b": series(None)})[0].verdict()
    assert (verdict.word, verdict.choice, verdict.best, verdict.ratio, verdict.pairs, verdict.standings) == (
        "no gain",
        "a",
        "",
        None,
        0,
        {},
    )
    assert verdict.floor == math.inf  # two runs


def test_a_baseline_that_fails_twice_ends_the_race_at_once() -> None:
    race, alive = race_of({"a": series(None), "b": steady(1.0), "c": steady(1.0)})
    assert len(alive) == 2
    assert "a" not in race.alive
    assert "baseline failed" in race.stopped


@pytest.mark.parametrize(
    ("others", "remaining"),
    [
        (12, [12, 12, 4, 4, 2, 2, 1]),  # a third after two rounds, then half after every other round
        (7, [7, 7, 3, 3, 2, 2, 1]),  # rounded up
        (4, [4, 4, 2, 2, 1]),
        (2, [2, 2, 1]),
    ],
)
def test_a_third_of_equals_remains_after_two_rounds_and_half_after_each_further_two(
    others: int, remaining: list[int]
) -> None:
    costs = {"base": steady(1.0), **{f"c{i:02}": steady(0.5) for i in range(others)}}
    race, alive = race_of(costs)
    assert [len(names) - 1 for names in alive[: len(remaining)]] == remaining
    assert all(names == list(costs)[: len(names)] for names in alive)  # equal candidates stay in the given order
    assert (race.stopped, race.verdict().choice) == ("the interval is clear", "c00")
    # Rounds with more than two candidates do not count, nor does the first round with two, which selected them.
    assert race.verdict().pairs == 6
    first_fair_round = next(i for i, names in enumerate(alive) if len(names) <= 3 and i >= 2)
    assert len(race.rounds) == first_fair_round + 6


def test_a_pair_has_no_round_that_chose_and_a_survivor_counts_from_the_next_round_on() -> None:
    race, _ = race_of({"a": steady(1.0), "b": steady(0.5)})
    assert (len(race.rounds), race.verdict().pairs) == (6, 6)
    race, alive = race_of({"a": steady(1.0), **{n: steady(1.2) for n in "cdef"}, "b": steady(0.5)})
    assert [len(names) for names in alive[:3]] == [6, 6, 2]
    assert (len(race.rounds), race.verdict().pairs) == (8, 6)


@pytest.mark.parametrize(("second", "kept"), [(1.0199, ["a", "b", "c"]), (1.0201, ["a", "b"])])
def test_who_is_behind_the_best_by_more_than_the_minimum_effect_does_not_remain(second: float, kept: list[str]) -> None:
    costs = {"a": steady(1.0), "b": steady(0.5), "c": steady(0.5 * second), **{n: steady(0.8) for n in "defg"}}
    assert race_of(costs)[1][2] == kept


@pytest.mark.parametrize(("beyond", "kept"), [(-1e-3, ["a", "b", "c"]), (1e-3, ["a", "b"])])
def test_who_is_behind_the_best_by_two_standard_errors_more_does_not_remain(beyond: float, kept: list[str]) -> None:
    # The median of seven candidates is steady; all others but the baseline vary by h in opposite directions.
    h = 0.01
    noise = 1.4826 * h * math.sqrt(2)  # deviation of two values that are h away from their median
    margin = 2 * noise * math.sqrt(2 / 2) + math.log(1.02)

    def varying(level: float, sign: int) -> Callable[[int], float]:
        return lambda number: math.exp(level + sign * (h if number % 2 else -h))

    costs = {
        "a": varying(0.0, 1),
        "b": varying(-1.0, 1),
        "c": varying(-1.0 + margin + beyond, -1),
        "d": varying(-0.7, 1),
        "e": steady(math.exp(-0.5)),
        "f": varying(-0.3, 1),
        "g": varying(-0.3, -1),
    }
    assert race_of(costs)[1][2] == kept


def test_the_lower_third_of_the_costs_ranks() -> None:
    base, slow = {"a": steady(1.0)}, {"d": steady(0.7), "e": steady(0.7)}
    # For two and three runs, the lowest cost ranks: c is as fast as b once.
    assert race_of({**base, "b": steady(0.5), "c": series(0.9, 0.505), **slow})[1][2] == ["a", "b", "c"]
    # For four runs, the second-lowest cost ranks: one lucky run is not enough.
    assert race_of({**base, "b": steady(0.5), "c": series(0.505, 0.505, 0.505, 0.3), **slow})[1][4] == ["a", "b"]
    assert race_of({**base, "b": steady(0.5), "c": series(0.505, 0.505, 0.3, 0.3), **slow})[1][4] == ["a", "c"]


def test_a_slow_round_of_all_candidates_changes_no_rank() -> None:
    plain = {"a": steady(1.0), "b": series(0.5, 0.51), "c": series(0.52, 0.5), "d": steady(0.505), "e": steady(0.6)}
    slow = {name: (lambda number, cost=cost: cost(number) * (50 if number else 1)) for name, cost in plain.items()}
    assert race_of(plain, rounds=4)[1] == race_of(slow, rounds=4)[1]


def test_a_candidate_and_a_baseline_that_never_succeed_together_are_not_dropped_for_it() -> None:
    race, alive = race_of({"a": series(None, 1.0), "b": series(0.5, None, 0.5)}, rounds=2)
    assert alive[2] == ["a", "b"]
    verdict = race.verdict()
    assert (verdict.best, verdict.ratio, verdict.interval, verdict.pairs) == ("b", None, None, 0)


# The costs of two candidates grow by e^s in each odd round. The robust standard deviation of one run from consecutive
# runs is 1.4826 s / sqrt(2), and each floor is s exactly, because all steps are of that size.


@pytest.mark.parametrize("step", [0.0, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("beyond", [-1e-4, 1e-4])
def test_who_cannot_reach_the_effect_by_two_standard_errors_ends_the_race_after_four_rounds(
    step: float, beyond: float
) -> None:
    noise = 1.4826 * step / math.sqrt(2)
    effect = max(math.log(1.02), 0.75 * 1.96 * noise * math.sqrt(2 / 10))
    largest = 2 * noise * math.sqrt(2 / 4) - effect  # the largest difference that still allows the effect
    difference = largest + beyond
    race, alive = race_of({"a": shaking(1.0, step), "b": shaking(math.exp(difference), step)}, rounds=4)
    if beyond < 0:
        assert (len(alive), race.stopped) == (5, "")
    else:
        assert len(alive) == 4
        assert race.stopped == (
            "the best other candidate is no better" if difference >= 0 else "a relevant difference is ruled out"
        )
        assert race.verdict().word == "no gain"


def test_the_best_of_those_that_cannot_win_remains_until_the_floor_is_known() -> None:
    costs = {"a": steady(1.0), "b": steady(1.3), "c": steady(1.1), "d": steady(1.2)}
    race, alive = race_of(costs)
    assert alive == [["a", "b", "c", "d"]] * 2 + [["a", "c"]] * 2
    assert (race.verdict().best, race.stopped) == ("c", "the best other candidate is no better")
    race, alive = race_of({**costs, "a": series(1.0, None, 1.0)})  # four runs of the baseline take five rounds
    assert (len(alive), race.verdict().best) == (5, "c")
    race, _ = race_of({**costs, "d": steady(0.99)})
    assert (race.verdict().best, race.stopped) == ("d", "a relevant difference is ruled out")


@pytest.mark.parametrize(
    ("difference", "rounds", "stopped"),
    [
        (0.01, 6, "the best other candidate is no better"),  # it could be better, but six pairs did not show it
        (0.0, 6, "the best other candidate is no better"),
        (-0.01, 6, "a relevant difference is ruled out"),
        (-0.37, 6, "a relevant difference is ruled out"),  # above three quarters of the floor
        (-0.38, 32, "32 pairs show no clear difference"),
        (-0.49, 32, "32 pairs show no clear difference"),
        (-0.51, 6, "the interval is clear"),
    ],
)
def test_a_decision_is_measured_by_the_floor(difference: float, rounds: int, stopped: str) -> None:
    step = 0.5
    race, _ = race_of({"a": shaking(1.0, step), "b": shaking(math.exp(difference), step)})
    assert (len(race.rounds), race.stopped) == (rounds, stopped)
    verdict = race.verdict()
    assert (verdict.pairs, verdict.ratio) == (rounds, pytest.approx(math.exp(difference)))
    assert verdict.interval == pytest.approx((math.exp(difference),) * 2)
    assert verdict.floor == verdict.effect == pytest.approx(math.expm1(step))
    better = stopped == "the interval is clear"
    assert (verdict.word, verdict.choice) == (("better", "b") if better else ("no gain", "a"))
    other, ratio = ("a", math.exp(-difference)) if better else ("b", math.exp(difference))
    assert verdict.standings[other].ratio == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("cost", "rounds", "word"), [(0.9805, 4, "no gain"), (0.9803, 6, "better"), (0.5, 6, "better")]
)
def test_without_noise_a_gain_of_two_per_cent_is_found(cost: float, rounds: int, word: str) -> None:
    race, _ = race_of({"a": steady(1.0), "b": steady(cost)})
    verdict = race.verdict()
    assert (len(race.rounds), verdict.word, verdict.effect) == (rounds, word, 0.02)
    assert verdict.floor == pytest.approx(0, abs=1e-12)


def test_a_gain_that_is_clear_after_a_seventh_pair_waits_for_the_eighth() -> None:
    once_slower = series(math.exp(0.1), math.exp(-1.0))
    race, _ = race_of({"a": steady(1.0), "b": once_slower}, rounds=6)
    verdict = race.verdict()  # the interval of six pairs spans the extremes
    assert (race.stopped, verdict.word, verdict.choice) == ("", "inconclusive", "a")
    assert verdict.interval == pytest.approx((math.exp(-1.0), math.exp(0.1)))
    race, _ = race_of({"a": steady(1.0), "b": once_slower}, rounds=7)
    verdict = race.verdict()  # the interval of seven pairs omits two Walsh averages on either side
    assert (race.stopped, verdict.word, verdict.choice) == ("", "better", "b")
    assert verdict.interval == pytest.approx((math.exp(-1.0), math.exp(-0.45)))
    race, _ = race_of({"a": steady(1.0), "b": once_slower})
    assert (race.stopped, len(race.rounds)) == ("the interval is clear", 8)


def test_an_interval_that_excludes_no_gain_does_not_suffice_for_one_below_the_floor() -> None:
    race, _ = race_of({"a": shaking(1.0, 0.5), "b": shaking(0.67, 0.5)}, rounds=7)
    verdict = race.verdict()
    assert verdict.interval is not None
    assert verdict.interval[1] < 1
    assert (race.stopped, verdict.word, verdict.choice) == ("", "no gain", "a")


def test_decisions_are_made_at_their_numbers_of_pairs_alone() -> None:
    rng, pair_counts = random.Random(1), set[int]()
    costs = {name: (lambda _, c=c: c * math.exp(rng.gauss(0, 0.04))) for name, c in (("a", 1.0), ("b", 0.95))}
    for seed in range(60):
        race, _ = race_of(costs, seed=seed)
        if race.stopped == "the interval is clear":
            pair_counts.add(race.verdict().pairs)
    assert {6, 8} < pair_counts <= set(DECISION_PAIRS)


def test_the_best_is_the_one_that_remains_with_the_lowest_median() -> None:
    costs = {"a": steady(1.0), "b": series(0.9, 0.9), "c": series(0.8, 0.8), "d": steady(1.5)}
    race, _ = race_of(costs, rounds=1)
    race.stop("the budget ended")
    verdict = race.verdict()
    assert (verdict.best, verdict.choice, verdict.word, verdict.pairs, verdict.ratio) == (
        "c",
        "a",
        "inconclusive",
        0,
        None,
    )
    assert verdict.floor == verdict.effect == math.inf
    assert verdict.stopped == "the budget ended"


@pytest.mark.parametrize(("beyond", "word"), [(-1e-6, "inconclusive"), (1e-6, "worse")])
def test_others_are_worse_beyond_two_standard_errors(beyond: float, word: str) -> None:
    h = 0.05

    def varying(level: float) -> Costs:
        return {"a": steady(1.0), "b": lambda number: math.exp(level + (h if number % 2 else -h))}

    level = 1.96 * h * math.sqrt(4 / 3) / math.sqrt(4) + beyond
    race, _ = race_of(varying(level), rounds=4)
    assert race.verdict().standings == {"b": CandidateStanding(word, pytest.approx(math.exp(level)), 4)}


def test_what_was_dropped_although_it_seemed_better_is_not_called_so() -> None:
    race, _ = race_of({"a": steady(1.0), "b": steady(0.5)}, rounds=4)
    assert race.verdict().choice == "a" and race.verdict().standings["b"].word == "inconclusive"


def test_others_are_sorted_by_their_ratio_and_judged_without_the_choice() -> None:
    costs = {"a": steady(1.0), "b": steady(1.01), "c": series(0.99, None, 0.99), "d": steady(1.5), "e": series(None)}
    standings = race_of(costs)[0].verdict().standings
    assert {n: (s.word, pytest.approx(s.ratio)) for n, s in standings.items()} == {
        "c": ("equal", 0.99),
        "b": ("equal", 1.01),
        "d": ("worse", 1.5),
    }
    assert list(standings) == ["c", "b", "d"]
    verdict = race_of({"a": steady(1.0), "b": steady(0.9), "c": steady(0.91)})[0].verdict()
    assert (verdict.choice, {n: s.word for n, s in verdict.standings.items()}) == ("b", {"c": "equal", "a": "worse"})


def test_a_baseline_that_is_beaten_is_worse_whatever_the_noise() -> None:
    def varying(level: float) -> Costs:
        return {"a": steady(1.0), "b": lambda number: math.exp(level + (0.02 if number % 2 else -0.02))}

    effect = race_of(varying(-1.0))[0].verdict().effect
    verdict = race_of(varying(-math.log1p(effect) - 0.001))[0].verdict()  # just above the effect, and within its noise
    assert (verdict.word, verdict.choice, verdict.effect) == ("better", "b", pytest.approx(effect))
    assert verdict.standings["a"].word == "worse"
