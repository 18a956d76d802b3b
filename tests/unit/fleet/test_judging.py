"""Judging: healthy nodes are not named, injected faults are found, and few named nodes are healthy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from meshmark.fleet.health.baseline import MIN_NODES, fit
from meshmark.fleet.health.p_values import evidence
from meshmark.fleet.health.screening import CONTROLS, Discoveries, fresh_count, fresh_evidence, screen
from meshmark.statistics.estimates import correlation, deviation, location, wrapped
from meshmark.statistics.tails import Tail

METRICS = 12
GROUPS = np.repeat(np.eye(3, dtype=bool), 4, axis=0)


class Nodes:
    """Simulated nodes that differ by 0.5 %, with 1 % of heavy-tailed noise and correlated metrics.

    Args:
        count: Number of nodes.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.dice = np.random.default_rng(seed)
        self.mix = np.linalg.cholesky(0.4 * np.ones((METRICS, METRICS)) + 0.6 * np.eye(METRICS))
        self.own = self.dice.normal(size=(count, METRICS)) @ self.mix.T * 0.005

    def values(self, each: int, of: Sequence[int] | None = None) -> np.ndarray:
        offsets = self.own if of is None else self.own[list(of)]
        return offsets[:, None] + self.dice.standard_t(4, size=(len(offsets), each, METRICS)) @ self.mix.T * 0.01


def test_a_deviation_ignores_what_is_far_away() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(4000, 2))
    values[:40, 1] = 50.0
    assert deviation(values) == pytest.approx([1.0, 1.0], rel=0.05)
    assert deviation(np.zeros((9, 1))) == [0.0]
    assert np.abs(wrapped(np.array([-5.0, 5.0, 0.5]))).tolist() == [0.0, 0.0, 0.5]


def test_a_location_leaves_out_what_is_far_away_and_what_is_missing() -> None:
    values = np.array([[[1.0], [2.0], [3.0], [4.0], [5.0], [6.0], [99.0]]])
    assert location(values) == [[4.0]]
    values[0, 6] = np.nan  # the trimmed mean leaves out one of six values at each end
    assert location(values) == [[3.5]]
    assert location(values[:, :3]) == [[2.0]] and np.isnan(location(values[:, 6:]))


def test_a_location_of_two_modes_is_better_for_more_values() -> None:
    modes = np.random.default_rng(3).choice([0.0, 1.0], (2000, 28, 1))
    assert location(modes).std() < 0.65 * location(modes[:, :7]).std()
    assert np.median(modes, axis=1).std() > 2 * location(modes).std()


def test_a_correlation_of_few_nodes_is_not_singular() -> None:
    z = np.random.default_rng(4).normal(size=(20, 30))
    assert np.linalg.eigvalsh(correlation(z)).min() > 0.1


def test_a_tail_is_that_of_its_sample_and_not_too_light_beyond() -> None:
    sample = np.random.default_rng(5).normal(size=100_000)
    tail = Tail.from_sample(sample)
    probabilities = np.exp(tail.log(np.array([-9.0, 0.0, 2.326, 3.719, 5.0])))
    assert probabilities[:4] == pytest.approx([1.0, 0.5, 0.01, 1e-4], rel=0.25)
    assert 2.9e-7 < probabilities[4] < 3e-5  # the tail of a normal distribution has 2.9e-7
    assert np.exp(Tail.from_sample(np.zeros(50)).log(np.array([0.0, 1.0]))) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize(("nodes", "each"), [(20, 7), (100, 7), (400, 14)])
def test_p_values_of_healthy_nodes_are_right(nodes: int, each: int) -> None:
    small = {0.01: 0, 0.001: 0}
    total = 0
    for seed in range(12):
        population = Nodes(nodes, seed)
        baseline = fit(population.values(each), GROUPS, 8000, seed)
        others = Nodes(1000, 100 + seed)
        p_values = evidence(location(others.values(each)), baseline).node
        total += len(p_values)
        for level in small:
            small[level] += int((p_values < level).sum())
    assert 0.3 * 0.01 * total <= small[0.01] <= 2 * 0.01 * total
    assert small[0.001] <= 3 * 0.001 * total


@pytest.mark.parametrize(
    ("metrics", "shift"), [([3], 0.05), ([0, 1, 2, 3], 0.02)], ids=["5 % in one metric", "2 % in a group"]
)
def test_a_slow_node_is_suspected_and_its_fresh_values_are_clear(metrics: list[int], shift: float) -> None:
    named_count = 0
    for seed in range(10):
        nodes = Nodes(200, seed)
        nodes.own[17, metrics] += shift
        window = nodes.values(14)
        screening = screen(window, 2, GROUPS)
        if 17 not in screening.suspects:
            continue
        healthy = [i for i in range(200) if i not in screening.suspects][:CONTROLS]
        repetitions = fresh_count(14)
        result = fresh_evidence(
            screening.baseline,
            nodes.values(repetitions, screening.suspects),
            nodes.values(repetitions, healthy),
            healthy,
        )
        named_count += bool(result.node[screening.suspects.index(17)] < 1e-4)
    assert named_count >= 8


def test_what_changed_for_all_is_no_evidence_against_one() -> None:
    nodes = Nodes(100)
    window = nodes.values(6)
    screening = screen(window, 2, GROUPS)
    suspects, healthy = list(range(20)), list(range(40, 40 + CONTROLS))
    slower = [nodes.values(6, rows) + 0.03 for rows in (suspects, healthy)]
    assert (fresh_evidence(screening.baseline, slower[0], slower[1], healthy).node > 1e-3).all()
    assert (evidence(location(slower[0]) - screening.baseline.level, screening.baseline).node < 1e-3).any()


def test_noise_that_lasts_as_long_as_a_confirmation_names_nobody() -> None:
    nodes, named_count = Nodes(200), 0
    window = nodes.values(14)
    screening = screen(window, 1, GROUPS)
    for _ in range(20):
        # All fresh values of a node share a disturbance as large as the noise of one value.
        first, second = (
            nodes.values(14, rows) + 0.01 * nodes.dice.normal(size=(len(rows), 1, METRICS))
            for rows in (range(40), range(60, 60 + CONTROLS))
        )
        named_count += int(
            (fresh_evidence(screening.baseline, first, second, list(range(60, 60 + CONTROLS))).node < 1e-5).sum()
        )
    assert named_count <= 2
    single = fresh_evidence(screening.baseline, first, np.empty((0, 14, METRICS)), [])
    assert (single.node < 1e-5).any()  # with controls, this false alarm does not occur


def test_a_change_of_the_whole_class_does_not_widen_its_scale() -> None:
    window = Nodes(100).values(14)
    baseline = fit(window, GROUPS, 2000)
    window[:, 8:] += 0.3
    baseline_with_change = fit(window, GROUPS, 2000)
    assert baseline_with_change.scale == pytest.approx(baseline.scale)
    assert baseline_with_change.level == pytest.approx(baseline.level + 0.3)


def test_a_named_node_is_not_suspected_again() -> None:
    nodes = Nodes(100)
    nodes.own[5] += 0.2
    window = nodes.values(6)
    assert 5 in screen(window, 2, GROUPS).suspects
    assert 5 not in screen(window, 2, GROUPS, {5}).suspects


def test_values_that_are_missing_are_no_evidence() -> None:
    nodes = Nodes(50)
    window = nodes.values(4)
    window[3] = np.nan
    window[4, :, 2] = np.nan
    baseline = fit(window, GROUPS)
    result = evidence(baseline.own, baseline)
    assert np.isfinite(result.node).all() and result.node[3] > 0.01 and result.metrics[4, 2] == 1.0


def test_a_metric_that_never_varies_does_not_fail() -> None:
    window = Nodes(50).values(4)
    window[:, :, 0] = 1.0
    window[7, :, 0] = 1.1
    baseline = fit(window, GROUPS)
    assert evidence(baseline.own, baseline).metrics[7, 0] < 1e-6


def test_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at least {MIN_NODES}"):
        fit(Nodes(MIN_NODES - 1).values(2))


def test_decisions_go_on_from_their_state_and_spend_their_error() -> None:
    levels = np.linspace(1e-6, 1e-3, 40)
    whole = Discoveries()
    expected = [whole.decide([p], 100) for p in levels]
    part = Discoveries()
    decisions = []
    for p in levels:
        decisions.append(part.decide([p], 100))
        part = Discoveries(part.state())
    assert decisions == expected and expected[0] == [True]
    single = Discoveries()
    for _ in range(50):
        assert single.decide([0.01], 100) == [False]
