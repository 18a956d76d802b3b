"""Policies of a site: which named nodes may be drained."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshmark.errors import UsageError
from meshmark.fleet.actions import ActionPolicy, check_policy, drain_cases, load_policy, reason
from meshmark.fleet.cases import NamedNode, WorseMetric
from meshmark.fleet.engines.engine import EngineError, EngineNode
from meshmark.fleet.folder import Fleet
from support.made_fleet import MadeEngine

CAMPAIGN = "check-20261101T120000-0001"


@dataclass
class Drainable(MadeEngine):
    drained: list[tuple[str, str]] = field(default_factory=list)
    broken: bool = False

    def drain(self, node: str, reason: str) -> None:
        if self.broken:
            raise EngineError("scontrol: Access denied")
        self.drained.append((node, reason))


def case(node: str, by: float = 0.0, wrong: str = "") -> NamedNode:
    metrics = [WorseMetric("key", "bandwidth", "bandwidth_net", {}, by, by / 2, by * 2, 1e-9)] if by else []
    return NamedNode(node, "blade", 0.0, metrics, [wrong] if wrong else [], {}, CAMPAIGN, "")


CASES = {c.node: c for c in (case("n1", 0.05), case("n2", 0.2), case("n3", 0.3), case("n4", wrong="dgemm: é\nwrong"))}


def fleet(folder: Path, text: str = "") -> Fleet:
    if text:
        (folder / "policy.toml").write_text(text, encoding="utf-8")
    return Fleet(folder)


def test_without_a_policy_nothing_is_done(tmp_path: Path) -> None:
    engine = Drainable({}, lambda *_: None)
    assert load_policy(fleet(tmp_path)).drain is None
    drain_cases(Fleet(tmp_path), load_policy(Fleet(tmp_path)), engine, CASES)
    assert engine.drained == [] and list(tmp_path.iterdir()) == []


def test_nodes_that_are_out_already_are_left_alone_and_do_not_count(tmp_path: Path) -> None:
    new_fleet = fleet(tmp_path, "[drain]\nwrong = true\nworse_by = 0.1\nmost = 1\n")
    engine = Drainable(
        {"n4": EngineNode("n4", "out", "drain: bad fan"), "n3": EngineNode("n3", "busy")}, lambda *_: None
    )
    outcome = drain_cases(new_fleet, load_policy(new_fleet), engine, CASES)
    assert outcome.out == {"n4": "drain: bad fan"} and [node for node, _ in engine.drained] == ["n3"]


def test_as_many_nodes_as_allowed_are_drained_the_wrong_ones_first_and_each_once(tmp_path: Path) -> None:
    new_fleet = fleet(tmp_path, "[drain]\nwrong = true\nworse_by = 0.1\nmost = 2\n")
    engine = Drainable({}, lambda *_: None)
    outcome = drain_cases(new_fleet, load_policy(new_fleet), engine, CASES)
    assert [node for node, _ in engine.drained] == ["n4", "n3"] and outcome.beyond == ["n2"]
    assert engine.drained[1][1] == "meshmark: bandwidth bandwidth_net 30% worse than its class"
    second_outcome = drain_cases(new_fleet, load_policy(new_fleet), engine, CASES)
    assert [node for node, _ in engine.drained] == ["n4", "n3", "n2"] and second_outcome.beyond == []


def test_a_node_that_could_not_be_drained_is_tried_again(tmp_path: Path) -> None:
    new_fleet = fleet(tmp_path, "[drain]\nworse_by = 0.25\n")
    engine = Drainable({}, lambda *_: None, broken=True)
    outcome = drain_cases(new_fleet, load_policy(new_fleet), engine, CASES)
    assert outcome.failed == {"n3": "scontrol: Access denied"} and outcome.done == {}
    engine.broken = False
    assert drain_cases(new_fleet, load_policy(new_fleet), engine, CASES).done.keys() == {"n3"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[drain]\nwrongg = true\n", "policy.toml: drain.wrongg: unknown key; did you mean wrong"),
        ("[drain]\nworse_by = -1\n", "policy.toml: drain.worse_by: found -1"),
        ("[drain]\nmost = 1\n", "found neither wrong nor worse_by"),
        ("drain = 3\n", "policy.toml: drain: found 3"),
    ],
)
def test_a_typo_is_named(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong):
        load_policy(fleet(tmp_path, text))


def test_an_engine_without_queues_cannot_drain(tmp_path: Path) -> None:
    new_fleet = fleet(tmp_path, "[drain]\nwrong = true\n")
    check_policy(ActionPolicy(), MadeEngine({}, lambda *_: None))
    with pytest.raises(UsageError, match="found with made-up; allowed with: slurm"):
        check_policy(load_policy(new_fleet), MadeEngine({}, lambda *_: None))
    with pytest.raises(UsageError, match="found with made-up; allowed with: slurm"):
        drain_cases(new_fleet, load_policy(new_fleet), MadeEngine({}, lambda *_: None), CASES)


def test_a_reason_is_one_line_of_ascii() -> None:
    assert reason(CASES["n4"]) == "meshmark: dgemm:   wrong"
