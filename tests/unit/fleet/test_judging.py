"""Judging: healthy fleets are left alone, planted faults are found, and few names are false."""

from __future__ import annotations

import numpy as np
import pytest

from meshmark.fleet.baseline import MIN_NODES, deviation, fit, student_deviation, tail_freedom, wrapped
from meshmark.fleet.evidence import evidence
from meshmark.fleet.judging import CONTROLS, Discoveries, fresh_count, fresh_evidence, screen

METRICS = 12
GROUPS = np.repeat(np.eye(3, dtype=bool), 4, axis=0)


class Nodes:
    """Nodes that differ by 0.5 %, with noise of 1 % and heavy tails; metrics are correlated.

    Args:
        count: Of nodes.
    """

    def __init__(self, count: int, seed: int = 0) -> None:
        self.dice = np.random.default_rng(seed)
        self.mix = np.linalg.cholesky(0.4 * np.ones((METRICS, METRICS)) + 0.6 * np.eye(METRICS))
        self.own = self.dice.normal(size=(count, METRICS)) @ self.mix.T * 0.005

    def values(self, each: int, of: list[int] | None = None) -> np.ndarray:
        own = self.own if of is None else self.own[of]
        return own[:, None] + self.dice.standard_t(4, size=(len(own), each, METRICS)) @ self.mix.T * 0.01


def test_a_deviation_ignores_what_is_far_away() -> None:
    dice = np.random.default_rng(1)
    values = dice.normal(size=(4000, 2))
    values[:40, 1] = 50.0
    assert deviation(values) == pytest.approx([1.0, 1.0], rel=0.05)
    assert deviation(np.zeros((9, 1))) == [0.0]
    assert np.abs(wrapped(np.array([-5.0, 5.0, 0.5]))).tolist() == [0.0, 0.0, 0.5]


@pytest.mark.parametrize("freedom", [3.0, 5.0, 10.0])
def test_tails_are_those_of_students_distribution(freedom: float) -> None:
    values = np.random.default_rng(2).standard_t(freedom, 400_000)
    found = tail_freedom(values / deviation(values[:, None])[0])
    assert found == pytest.approx(freedom, rel=0.3)
    assert student_deviation(200.0) == pytest.approx(1.0, abs=0.02)


def test_p_values_of_healthy_nodes_are_not_too_small() -> None:
    small = {0.01: 0, 0.001: 0}
    total = 0
    for seed in range(30):
        nodes = Nodes(200, seed)
        found = evidence(nodes.values(6), fit(nodes.values(6), GROUPS)).node
        total += len(found)
        for level in small:
            small[level] += int((found < level).sum())
    assert small[0.01] <= 1.2 * 0.01 * total and small[0.001] <= 2 * 0.001 * total


@pytest.mark.parametrize(
    ("metrics", "shift"), [([3], 0.05), ([0, 1, 2, 3], 0.02)], ids=["5 % in one metric", "2 % in a group"]
)
def test_a_slow_node_is_suspected_and_its_fresh_values_are_clear(metrics: list[int], shift: float) -> None:
    named = 0
    for seed in range(10):
        nodes = Nodes(200, seed)
        nodes.own[17, metrics] += shift
        window = nodes.values(14)
        seen = screen(window, 2, GROUPS)
        if 17 not in seen.suspects:
            continue
        healthy = [i for i in range(200) if i not in seen.suspects][:CONTROLS]
        each = fresh_count(14)
        found = fresh_evidence(
            seen.baseline, nodes.values(each, seen.suspects), nodes.values(each, healthy), window[healthy]
        )
        named += bool(found.node[seen.suspects.index(17)] < 1e-4)
    assert named >= 8


def test_what_changed_for_all_is_no_evidence_against_one() -> None:
    nodes = Nodes(100)
    window = nodes.values(6)
    seen = screen(window, 2, GROUPS)
    of, healthy = list(range(20)), list(range(40, 40 + CONTROLS))
    slower = [nodes.values(6, who) + 0.03 for who in (of, healthy)]
    assert (fresh_evidence(seen.baseline, slower[0], slower[1], window[healthy]).node > 1e-3).all()
    assert (evidence(slower[0], seen.baseline).node < 1e-3).any()


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
    found = evidence(window, fit(window, GROUPS))
    assert np.isfinite(found.node).all() and found.node[3] > 0.01 and found.metrics[4, 2] == 1.0


def test_a_metric_that_never_varies_does_not_fail() -> None:
    window = Nodes(50).values(4)
    window[:, :, 0] = 1.0
    window[7, :, 0] = 1.1
    assert evidence(window, fit(window, GROUPS)).metrics[7, 0] < 1e-6


def test_few_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match=f"at least {MIN_NODES}"):
        fit(Nodes(MIN_NODES - 1).values(2))


def test_decisions_go_on_from_their_state_and_spend_their_error() -> None:
    levels = np.linspace(1e-6, 1e-3, 40)
    whole = Discoveries()
    decided = [whole.decide([p], 100) for p in levels]
    part = Discoveries()
    again = []
    for p in levels:
        again.append(part.decide([p], 100))
        part = Discoveries(part.state())
    assert again == decided and decided[0] == [True]
    alone = Discoveries()
    for _ in range(50):
        assert alone.decide([0.01], 100) == [False]
