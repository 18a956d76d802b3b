"""Loaded latencies are judged by their distance from the curve of the class."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meshmark.fleet.data.values import FleetPoint
from meshmark.fleet.health.curves import as_distances

BANDWIDTHS = np.array([10.0, 40.0, 70.0, 90.0, 99.0])
NODES, VALUES = 20, 3


def point(metric: str, pause: int) -> FleetPoint:
    key = json.dumps([metric, "loaded", {"mode": "paced", "pause": pause, "threads": 4}, {}])
    return FleetPoint(key, "loaded", metric, "s", "lower" if metric == "load_latency" else "higher")


def latency(bandwidth: np.ndarray) -> np.ndarray:
    """Return the latency of a queue whose capacity is 100 GB/s."""
    return np.asarray(100e-9 * (1 + 0.2 * bandwidth / (100 - bandwidth)))


POINTS = [point(metric, pause) for pause in range(5) for metric in ("load_latency", "bandwidth_net")]


def panel(bandwidth: np.ndarray, slower: float = 0.0) -> np.ndarray:
    """Return the logarithms that a panel holds for bandwidths of shape (nodes, values, loads).

    The latencies of the last node are higher by `slower`.
    """
    logarithms = np.empty((*bandwidth.shape[:2], 10))
    logarithms[:, :, ::2] = np.log(latency(bandwidth))
    logarithms[:, :, 1::2] = -np.log(bandwidth)
    logarithms[-1, :, ::2] += slower
    return logarithms


def spread() -> np.ndarray:
    return np.asarray(BANDWIDTHS * (1 + 0.003 * np.random.default_rng(1).normal(size=(NODES, VALUES, 5))))


def test_a_node_elsewhere_on_the_curve_is_near_it() -> None:
    values = panel(spread())
    before = values.copy()
    as_distances(values, POINTS, [range(NODES)])
    deviations, raw_deviations = (v[:, :, ::2] - np.median(v[:, :, ::2], axis=0) for v in (values, before))
    assert np.abs(raw_deviations[:, :, 4]).max() > 0.2  # latencies alone differ by this much where the curve is steep
    assert np.abs(deviations[:, :, :4]).max() < 0.01 and np.abs(deviations).max() < 0.3 * np.abs(raw_deviations).max()
    assert np.isnan(values[:, :, 1::2]).all()


@pytest.mark.parametrize("load", [0, 1])
def test_a_slower_node_is_away_from_the_flat_curve(load: int) -> None:
    values = panel(spread(), 0.05)
    as_distances(values, POINTS, [range(NODES)])
    assert values[-1, :, 2 * load] - np.median(values[:, :, 2 * load], axis=0) == pytest.approx(
        [0.05] * VALUES, abs=0.01
    )


def test_a_lack_of_bandwidth_shows_where_the_curve_is_steep() -> None:
    bandwidth = spread()
    values = panel(bandwidth)
    values[-1, :, 9] += 0.05  # the same latency at a bandwidth that is 5 % lower
    as_distances(values, POINTS, [range(NODES)])
    assert values[-1, :, 8] - np.median(values[:, :, 8], axis=0) == pytest.approx([0.05] * VALUES, abs=0.01)


def test_classes_have_their_own_curves_and_a_change_for_all_stays() -> None:
    bandwidth = spread()
    bandwidth[10:] *= 0.5
    values = panel(bandwidth)
    values[:10, 2, ::2] += 0.3
    before = values.copy()
    as_distances(values, POINTS, [range(10), range(10, NODES)])
    for nodes in (slice(0, 10), slice(10, NODES)):
        assert np.median(values[nodes, :, ::2], axis=0) == pytest.approx(
            np.median(before[nodes, :, ::2], axis=0), abs=0.01
        )


def test_few_loads_and_other_instruments_stay_as_they_are() -> None:
    values = panel(spread())
    before = values.copy()
    as_distances(values[:, :, :4], POINTS[:4], [range(NODES)])
    other = [FleetPoint(p.key.replace("loaded", "latency"), "latency", p.metric, p.unit, p.better) for p in POINTS]
    as_distances(values, other, [range(NODES)])
    assert (values == before).all()
