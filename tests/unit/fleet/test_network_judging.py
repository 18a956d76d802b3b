"""A slow node and a slow uplink of a switch are distinguished from noise and from each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshmark.errors import MeshmarkError
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.screening import Discoveries
from meshmark.fleet.network.slow_links import decide_network, levels, shifts
from meshmark.fleet.network.topology import SwitchTree
from support.made_network import MadeNetwork, leaves


def test_a_slow_node_is_named_and_its_partners_are_not(tmp_path: Path) -> None:
    network = MadeNetwork(64, leaves(8, 8), 2, slow={"n20": 0.2})
    findings = network.look()
    assert findings.suspects()[0] == "n20"
    tests = network.confirmed(findings)
    (case,) = decide_network(Fleet(tmp_path), "hawk", findings, tests)
    assert (case.node, case.kind) == ("n20", "network")
    assert all(m.low < np.expm1(0.2) < m.high for m in case.metrics)
    with pytest.raises(MeshmarkError, match="was judged before"):
        decide_network(Fleet(tmp_path), "hawk", findings, tests)


def test_a_slow_uplink_is_the_switch_and_not_its_nodes(tmp_path: Path) -> None:
    network = MadeNetwork(64, leaves(8, 8), 3, uplinks={"s2": 0.15})
    findings = network.look()
    (case,) = decide_network(Fleet(tmp_path), "hawk", findings, network.confirmed(findings))
    assert (case.node, case.kind) == ("switch:s2", "switch")
    assert case.metrics[0].low < np.expm1(0.15) < case.metrics[0].high


def test_no_suspect_below_a_slow_switch_is_named_for_what_the_switch_takes(tmp_path: Path) -> None:
    network = MadeNetwork(512, leaves(16, 32), 3, uplinks={"s1": 0.1})
    findings = network.look()
    assert {int(name[1:]) for name in findings.suspects() if name.startswith("n")} & {*range(33, 65)}
    (case,) = decide_network(Fleet(tmp_path), "hawk", findings, network.confirmed(findings))
    assert case.node == "switch:s1"


def test_a_slow_node_below_a_slow_switch_is_named_too(tmp_path: Path) -> None:
    network = MadeNetwork(64, leaves(8, 8), 4, slow={"n20": 0.3}, uplinks={"s2": 0.2})
    findings = network.look()
    cases = decide_network(Fleet(tmp_path), "hawk", findings, network.confirmed(findings))
    assert {n.node for n in cases} == {"n20", "switch:s2"}


def test_a_healthy_network_has_no_names() -> None:
    for seed in range(3):
        network = MadeNetwork(24, SwitchTree(), seed)
        findings = network.look()
        tests = network.confirmed(findings)
        assert not any(Discoveries().decide([t.p for t in tests], 24))


def test_few_nodes_are_measured_but_not_judged() -> None:
    findings = MadeNetwork(6, SwitchTree(), 1).look()
    assert findings.screening is None and not findings.suspects()
    assert set(shifts(findings)) == set(findings.seen.nodes)


def test_times_by_distance() -> None:
    near, far = levels(MadeNetwork(64, leaves(8, 8), 1).look())
    assert near["level"] == 1 and far["level"] == 2
    assert near["times"][8] == pytest.approx(2.72e-6, rel=0.1) and far["times"][8] == pytest.approx(4.06e-6, rel=0.1)
