"""Mixtures of pressures that replace a program, predictions with them, and the best pairs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import UsageError
from meshmark.profiles.mixture import QUIET, misfit, shares_of, speed
from meshmark.profiles.neighbours import best_pairs, check_comparable, mixture_of, predict, predict_all
from support.made_profile import KINDS, MIXTURES, NOISE, RESPONSES, SPEEDS, made_profile

PRESSURES = list(KINDS)


@given(st.sampled_from(PRESSURES))
def test_a_program_that_acts_like_a_pressure_is_predicted_like_it(pressure: str) -> None:
    probes = {probe: speeds[pressure] for probe, speeds in RESPONSES.items()}
    shares = shares_of(probes, RESPONSES, PRESSURES)
    assert misfit(probes, RESPONSES, shares) < 1e-6
    assert speed(shares, {name: speeds[pressure] for name, speeds in SPEEDS.items()} | RESPONSES["memory"]) == (
        pytest.approx(RESPONSES["memory"][pressure], abs=1e-6)
    )


@given(st.lists(st.floats(0.3, 1.2), min_size=3, max_size=3))
def test_shares_are_a_division_of_the_time(speeds: list[float]) -> None:
    shares = shares_of(dict(zip(RESPONSES, speeds, strict=True)), RESPONSES, PRESSURES)
    assert sum(shares.values()) == pytest.approx(1) and min(shares.values()) >= 0
    assert set(shares) == {*PRESSURES, QUIET}


def test_no_pressures_leave_a_program_alone() -> None:
    assert shares_of({}, {}, []) == {QUIET: 1.0}
    assert speed({QUIET: 1.0}, {}) == 1.0


@pytest.mark.parametrize(("one", "other"), list(itertools.product(MIXTURES, repeat=2)))
def test_programs_that_are_mixtures_are_predicted_exactly(one: str, other: str) -> None:
    """Each program is slowed as its speeds say by the mixture of the other, which the prediction does not know."""
    true = 1 / speed(MIXTURES[other], SPEEDS[one])
    without_noise = predict(made_profile(one, [1.0] * 3), mixture_of(made_profile(other, [1.0] * 3)), (one, other))
    assert without_noise.value == pytest.approx(true, rel=0.03)  # different mixtures explain three probes
    predicted = predict(made_profile(one), mixture_of(made_profile(other)), (one, other))
    assert predicted.interval[0] - 0.03 <= true <= predicted.interval[1] + 0.03


def test_the_interval_grows_with_the_scatter_and_with_unexplained_probes() -> None:
    noisy = [1 + 20 * (n - 1) for n in NOISE]
    calm, wild = (
        predict(made_profile("stream", n), mixture_of(made_profile("solver", n)), ("a", "b")) for n in (NOISE, noisy)
    )
    assert wild.interval[1] - wild.interval[0] > 3 * (calm.interval[1] - calm.interval[0])
    strange = made_profile("solver")
    effects = [e if e.kind != "cache" else _with(e, caused=(0.8,) * 5) for e in strange.effects]  # faster than alone
    odd = predict(made_profile("stream"), mixture_of(_with(strange, effects=tuple(effects))), ("a", "b"))
    assert odd.misfit > 0.1 and odd.interval[1] - odd.interval[0] > 0.2


def _with(value: object, **changes: object) -> object:
    import dataclasses

    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


@given(st.lists(st.floats(1, 5), min_size=15, max_size=15))
def test_the_best_pairs_are_those_of_all_divisions(costs: list[float]) -> None:
    by_pair = dict(zip(itertools.combinations(range(6), 2), costs, strict=True))

    def divisions(rest: tuple[int, ...]) -> list[list[tuple[int, int]]]:
        if not rest:
            return [[]]
        return [
            [(rest[0], second), *others]
            for second in rest[1:]
            for others in divisions(tuple(x for x in rest[1:] if x != second))
        ]

    least = min(sum(by_pair[pair] for pair in division) for division in divisions(tuple(range(6))))
    pairs = best_pairs(by_pair, 6)
    assert sorted(x for pair in pairs for x in pair) == list(range(6))
    assert sum(by_pair[pair] for pair in pairs) == pytest.approx(least)


def test_all_pairs_are_predicted_and_the_best_division_separates_programs_that_need_memory() -> None:
    names = ["stream", "stream (2)", "search", "idle"]
    answer = predict_all([made_profile(name.split()[0]) for name in names], names)
    assert len(answer["predictions"]) == 12 and len(answer["pairs"]) == 2
    assert not any(set(pair["programs"]) == {"stream", "stream (2)"} for pair in answer["pairs"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"machine": "another"}, ("machine: found another", "allowed: made-up")),
        ({"program_cpus": (0,)}, ("program_cpus: found 0", "allowed: 0-1")),
        ({"neighbour_cpus": (2, 4)}, ("neighbour_cpus: found 2,4", "allowed: 2-3")),
    ],
)
def test_profiles_of_different_conditions_are_not_compared(more: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        check_comparable([made_profile("stream"), made_profile("search", **more)], ["a.json", "b.json"])
    assert str(caught.value).startswith("b.json: ") and all(word in str(caught.value) for word in words)


def test_a_program_and_its_neighbours_need_equal_numbers_of_cpus() -> None:
    unequal = [made_profile(name, neighbour_cpus=(2,)) for name in ("stream", "search")]
    with pytest.raises(UsageError, match="found 2 CPUs for the program and 1 for neighbours; allowed: equal numbers"):
        check_comparable(unequal, ["a.json", "b.json"])
