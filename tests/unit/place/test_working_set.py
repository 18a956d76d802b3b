"""How much cache an application needs, by runs with less of it."""

from __future__ import annotations

import pytest

from meshmark.place.app.configuration import Configuration
from meshmark.place.app.pairs import Merit
from meshmark.place.app.working_set import working_sets

ROUNDS = range(1, 13)
CONFIDENCE = 0.95


def of(
    parts: dict[str, float], noise: float = 0.002, **others: str
) -> tuple[list[Configuration], dict[str, dict[int, float]]]:
    """Configurations by their part of the cache, and times around what is given."""
    ran = [Configuration({"cache": part, **others}) for part in parts]
    values = {
        c.label: {r: time * (1 + noise * ((7 * r + 3 * n) % 11 - 5) / 5) for r in ROUNDS}
        for n, (c, time) in enumerate(zip(ran, parts.values(), strict=True))
    }
    return ran, values


def test_the_smallest_part_that_is_enough_and_the_first_that_is_not() -> None:
    ran, values = of({"2MiB": 1.5, "8MiB": 1.0, "all": 1.0, "4MiB": 1.2})
    (found,) = working_sets(values, ran, Merit("lower", "s"), 0.02, CONFIDENCE)
    assert (found.enough, found.worse) == ("8MiB", "4MiB")
    assert found.text.startswith("8MiB is as good as all; 4MiB is slower: 0.83")
    (rates,) = working_sets(values, ran, Merit("higher", "op/s"), 0.02, CONFIDENCE)
    assert rates.enough == "2MiB" and not rates.worse, "of rates, more is better"


def test_a_program_that_needs_all_or_none() -> None:
    ran, values = of({"all": 1.0, "8MiB": 1.3})
    (all_,) = working_sets(values, ran, Merit("lower", "s"), 0.02, CONFIDENCE)
    assert (all_.enough, all_.worse) == ("", "8MiB") and all_.text.startswith("8MiB is slower")
    ran, values = of({"all": 1.0, "8MiB": 1.0, "1MiB": 1.0})
    (none,) = working_sets(values, ran, Merit("lower", "s"), 0.02, CONFIDENCE)
    assert none.text == "1MiB is as good as all"


def test_what_cannot_be_told_apart_is_not_called_enough() -> None:
    ran, values = of({"all": 1.0, "8MiB": 1.02, "4MiB": 1.02, "2MiB": 1.5}, noise=0.1)
    (found,) = working_sets(values, ran, Merit("lower", "s"), 0.005, CONFIDENCE)
    assert found.enough == "" and "8MiB is inconclusive" in found.text and found.worse == "2MiB"
    few = {label: dict(list(of_.items())[:3]) for label, of_ in values.items()}
    (short,) = working_sets(few, ran, Merit("lower", "s"), 0.02, CONFIDENCE)
    assert "too few rounds to tell" in short.text and not short.worse


@pytest.mark.parametrize("parts", [{"all": 1.0}, {}])
def test_one_part_says_nothing(parts: dict[str, float]) -> None:
    ran, values = of(parts)
    assert working_sets(values, ran, Merit("lower", "s"), 0.02, CONFIDENCE) == []


def test_other_dimensions_are_groups_of_their_own() -> None:
    one, values = of({"all": 1.0, "4MiB": 1.0}, threads="1")
    two, more = of({"all": 1.0, "4MiB": 2.0}, threads="2")
    found = working_sets(values | more, [*one, *two], Merit("lower", "s"), 0.02, CONFIDENCE)
    assert [(w.others, w.enough, w.worse) for w in found] == [("threads=1", "4MiB", ""), ("threads=2", "", "4MiB")]
