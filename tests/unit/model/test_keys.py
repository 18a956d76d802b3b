"""Limits of the keys of machine files that are checked before the simulator reads them."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest

from meshmark.errors import UsageError
from meshmark.model.keys import MachineTable
from meshmark.values.inputs import checked


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("cpu", "outstanding", 1.0),
        ("cpu", "outstanding", 16),
        ("router", "pipeline_ns", 0.0),
        ("topology", "shape", [0, 4]),
        ("topology", "shape", []),
        ("topology", "edges", [[0, 1, "between"]]),
        ("topology", "double_links_of_two", False),
        ("topology", "double_links_of_two", [True, False]),
        ("topology", "kind", "ring"),
        ("memory", "node_share", 0.0),
        ("memory", "node_share", [0.25, 1]),
    ],
)
def test_values_at_the_limits_are_allowed_and_kept(table: str, key: str, value: Any) -> None:
    machine = checked(MachineTable, {table: {key: value}}, "m.toml")
    assert getattr(getattr(machine, table), key) == value


@pytest.mark.parametrize(
    ("table", "key", "value", "at"),
    [
        ("cpu", "outstanding", 1.5, "cpu.outstanding: found 1.5; allowed: a whole number from 1 to 1e+12"),
        ("cpu", "outstanding", 0, "cpu.outstanding: found 0; allowed: a whole number from 1 to 1e+12"),
        ("router", "pipeline_ns", -0.5, "router.pipeline_ns: found -0.5; allowed: a number from 0"),
        ("memory", "node_share", -1, "memory.node_share: found -1; allowed: numbers from 0 to 1e+12"),
        ("memory", "node_share", -0.5, "memory.node_share: found -0.5; allowed: numbers from 0"),
        ("memory", "node_share", math.inf, "memory.node_share: found inf; allowed: numbers from 0"),
        ("memory", "node_share", math.nan, "memory.node_share: found nan; allowed: numbers from 0"),
        ("topology", "shape", [4, -1], "topology.shape: found [4, -1]; allowed: numbers from 0 to 1e+12"),
        ("topology", "kind", datetime.date(2020, 1, 1), "topology.kind: found 2020-01-01; allowed: text, numbers"),
        ("topology", "links", ["a", datetime.time(12)], "topology.links: found ['a', datetime.time(12, 0)]; allowed:"),
        ("topology", "edges", [[[[]]]], "topology.edges: found [[[[]]]]; allowed: text, numbers"),
        ("topology", "links", {"a": 1}, "topology.links: allowed: text, numbers"),
        ("cpu", "clock_ghz", 1e308, "cpu.clock_ghz: found 1e+308; allowed: a number from 0.001 to 1000"),
        ("cpu", "clock_ghz", 1e-300, "cpu.clock_ghz: found 1e-300; allowed: a number from 0.001 to 1000"),
        (
            "memory",
            "channel_gb_per_s",
            1e300,
            "memory.channel_gb_per_s: found 1e+300; allowed: a number from 0 to 1e+12",
        ),
        ("tlb", "page_kib", 1e-320, "tlb.page_kib: found 1e-320; allowed: a number from 1e-06 to 1e+12"),
        ("topology", "shape", [-1, 4], "topology.shape: found [-1, 4]; allowed: numbers from 0"),
        ("topology", "shape", [math.inf, "x"], "topology.shape: found [inf, 'x']; allowed: numbers from 0"),
    ],
)
def test_values_beyond_the_limits_are_refused_by_their_key(table: str, key: str, value: Any, at: str) -> None:
    with pytest.raises(UsageError) as error:
        checked(MachineTable, {table: {key: value}}, "m.toml")
    assert str(error.value).startswith(f"m.toml: {at}")
