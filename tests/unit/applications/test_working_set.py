"""Tests of the amount of cache that an application needs, from runs with limited cache."""

from __future__ import annotations

import pytest

from meshmark.applications.configuration import Configuration
from meshmark.applications.effects.working_set import working_sets
from meshmark.statistics.pairs import MeritUnit

ROUNDS = range(1, 13)
CONFIDENCE = 0.95


def of(
    parts: dict[str, float], noise: float = 0.002, **others: str
) -> tuple[list[Configuration], dict[str, dict[int, float]]]:
    """Return one configuration per part of the cache, and times that vary around the given ones."""
    combinations = [Configuration({"cache": part, **others}) for part in parts]
    values = {
        c.label: {r: time * (1 + noise * ((7 * r + 3 * n) % 11 - 5) / 5) for r in ROUNDS}
        for n, (c, time) in enumerate(zip(combinations, parts.values(), strict=True))
    }
    return combinations, values


def test_the_smallest_part_that_is_enough_and_the_first_that_is_not() -> None:
    combinations, values = of({"2MiB": 1.5, "8MiB": 1.0, "all": 1.0, "4MiB": 1.2})
    (working_set,) = working_sets(values, combinations, MeritUnit("lower", "s"), 0.02, CONFIDENCE)
    assert (working_set.enough, working_set.worse) == ("8MiB", "4MiB")
    assert working_set.text.startswith("8MiB is as good as all; 4MiB is slower: 0.83")
    (rates,) = working_sets(values, combinations, MeritUnit("higher", "op/s"), 0.02, CONFIDENCE)
    assert rates.enough == "2MiB" and not rates.worse, "of rates, more is better"


def test_a_program_that_needs_all_or_none() -> None:
    combinations, values = of({"all": 1.0, "8MiB": 1.3})
    (all_,) = working_sets(values, combinations, MeritUnit("lower", "s"), 0.02, CONFIDENCE)
    assert (all_.enough, all_.worse) == ("", "8MiB") and all_.text.startswith("8MiB is slower")
    combinations, values = of({"all": 1.0, "8MiB": 1.0, "1MiB": 1.0})
    (smallest,) = working_sets(values, combinations, MeritUnit("lower", "s"), 0.02, CONFIDENCE)
    assert smallest.text == "1MiB is as good as all"


def test_what_cannot_be_told_apart_is_not_called_enough() -> None:
    combinations, values = of({"all": 1.0, "8MiB": 1.02, "4MiB": 1.02, "2MiB": 1.5}, noise=0.1)
    (working_set,) = working_sets(values, combinations, MeritUnit("lower", "s"), 0.005, CONFIDENCE)
    assert working_set.enough == "" and "8MiB is inconclusive" in working_set.text and working_set.worse == "2MiB"
    few_rounds = {label: dict(list(costs.items())[:3]) for label, costs in values.items()}
    (short,) = working_sets(few_rounds, combinations, MeritUnit("lower", "s"), 0.02, CONFIDENCE)
    assert "too few rounds" in short.text and not short.worse


@pytest.mark.parametrize("parts", [{"all": 1.0}, {}])
def test_one_part_says_nothing(parts: dict[str, float]) -> None:
    combinations, values = of(parts)
    assert working_sets(values, combinations, MeritUnit("lower", "s"), 0.02, CONFIDENCE) == []


def test_other_dimensions_are_groups_of_their_own() -> None:
    single, values = of({"all": 1.0, "4MiB": 1.0}, threads="1")
    double, double_values = of({"all": 1.0, "4MiB": 2.0}, threads="2")
    results = working_sets(values | double_values, [*single, *double], MeritUnit("lower", "s"), 0.02, CONFIDENCE)
    assert [(w.others, w.enough, w.worse) for w in results] == [("threads=1", "4MiB", ""), ("threads=2", "", "4MiB")]
