"""Tests of the measured matrix of distances: newest record, largest footprint, and substitutes for missing pairs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshmark.errors import AbsentError
from meshmark.place.native import measured_matrix
from meshmark.store.record import Record


def latency(cpu: int, node: int, value: float, size: int = 1 << 30, start: str = "2026", **more: Any) -> Record:
    return Record(
        source="host",
        machine="m",
        instrument="latency",
        metric="load_latency",
        unit="s",
        better="lower",
        samples=(value,),
        value=value,
        interval=None,
        conditions={"cpu": cpu, "memory_node": node, "footprint_bytes": size, **more},
        provenance={"start": start},
    )


def bandwidth(cpu: int, node: int, value: float) -> Record:
    return Record(
        source="host",
        machine="m",
        instrument="bandwidth",
        metric="bandwidth_net",
        unit="B/s",
        better="higher",
        samples=(value,),
        value=value,
        interval=None,
        conditions={"cpus": str(cpu), "memory_node": node, "threads": 1},
    )


ALL = [latency(c, n, v * 1e-9) for c, n, v in ((0, 0, 80), (0, 1, 140), (2, 0, 141), (2, 1, 81))]
NODE_OF = {0: 0, 1: 0, 2: 1, 3: 1}


def test_the_matrix_is_that_of_the_newest_record_of_the_largest_footprint() -> None:
    newer = [
        latency(0, 1, 1e-9, size=4096, start="2030"),
        latency(1, 1, 150e-9, start="2027"),
        latency(0, 1, 999e-9, start="2028", processes=2),
    ]
    for order in (ALL + newer, newer + ALL):
        matrix = json.loads(measured_matrix(order, NODE_OF, [0, 1]))
        assert matrix["values"] == [pytest.approx([80e-9, 150e-9]), pytest.approx([141e-9, 81e-9])]
    assert (matrix["unit"], matrix["better"], matrix["nodes"]) == ("s", "lower", [0, 1])


def test_bandwidth_stands_in_for_a_latency_that_is_missing() -> None:
    rates = [bandwidth(c, n, v) for c, n, v in ((0, 0, 9e9), (0, 1, 5e9), (3, 0, 5e9), (3, 1, 9e9))]
    matrix = json.loads(measured_matrix([*ALL[:3], *rates], NODE_OF, [0, 1]))
    assert matrix["values"] == [[9e9, 5e9], [5e9, 9e9]] and (matrix["unit"], matrix["better"]) == ("B/s", "higher")


def test_a_node_without_cpus_is_as_far_as_the_others_are_from_it() -> None:
    matrix = json.loads(measured_matrix([*ALL, latency(0, 2, 300e-9), latency(2, 2, 310e-9)], NODE_OF, [0, 1, 2]))
    assert matrix["values"][2] == pytest.approx([300e-9, 310e-9, 80e-9])
    assert [r[2] for r in matrix["values"][:2]] == pytest.approx([300e-9, 310e-9])


@pytest.mark.parametrize("made", [ALL[:3], [], [latency(0, 0, 1.0), bandwidth(0, 0, 1.0)]])
def test_a_pair_that_nobody_measured_is_named_with_the_command(made: list[Record]) -> None:
    with pytest.raises(AbsentError, match="from node") as error:
        measured_matrix(made, NODE_OF, [0, 1])
    assert error.value.hint == (
        "meshmark measure latency --cpus 0 --memory-node all; meshmark measure latency --cpus 2 --memory-node all"
    )
