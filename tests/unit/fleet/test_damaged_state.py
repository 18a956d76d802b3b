"""A damaged state file of a fleet is refused with a remedy: without it, earlier decisions would be forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshmark.errors import MeshmarkError
from meshmark.fleet.actions import drain_cases, load_policy
from meshmark.fleet.cases import CasesState
from meshmark.fleet.engines.slurm import Slurm
from meshmark.fleet.folder import Fleet
from meshmark.fleet.plan import load_plan


def state(**changes: object) -> str:
    case = {"node": "n1", "kind": "blade", "p": 0.0, "metrics": [], "wrong": ["dgemm"], "differs": {}}
    case |= {"campaign": "check-20261101T120000-0001", "since": "", **changes}
    return json.dumps({"discoveries": None, "open": {"n1": case}, "closed": [], "judged": []})


BAD = [
    "{",
    "[]",
    "{}",
    '{"open": 3}',
    '{"open": {}, "closed": [[1]], "discoveries": 1}',
    "[" * 10_000,
    state(p="0"),
    state(p=float("nan")),
    state(wrong="dgemm"),
    state(metrics=[1]),
    state(node="n1;touch x"),
    state(well=1e300),
]


@pytest.mark.parametrize("text", BAD)
def test_a_damaged_state_is_refused_with_what_to_do(tmp_path: Path, text: str) -> None:
    fleet = Fleet(tmp_path)
    CasesState.load(fleet, "hawk").save(fleet, "hawk")
    path = CasesState.path(fleet, "hawk")
    assert CasesState.load(fleet, "hawk").open == {}
    path.write_text(text)
    with pytest.raises(MeshmarkError, match=f"{path.name}: not the state of a fleet") as error:
        CasesState.load(fleet, "hawk")
    assert "restore it" in error.value.hint and "\n" not in str(error.value)


def test_a_name_that_no_node_may_have_is_no_case(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    path = CasesState.path(fleet, "hawk")
    path.parent.mkdir()
    path.write_text(state())
    assert list(CasesState.load(fleet, "hawk").open) == ["n1"]
    path.write_text(state(node="$(x)").replace('"n1"', '"$(x)"'))
    with pytest.raises(MeshmarkError, match=r"open: found the case of '\$\(x\)'"):
        CasesState.load(fleet, "hawk")


PLAN = {"format": "meshmark node plan", "spec": "s", "kind": "check", "alone": True, "limit_s": 5.0, "limits": {}}
STEP = {"id": "01-clock", "argv": ["clock"], "limit_s": 5.0}


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({**PLAN, "steps": [STEP, {**STEP, "argv": "clock"}]}, r"steps\[1\]: argv: found 'clock'"),
        ({**PLAN, "steps": [{**STEP, "id": "../x"}]}, r"steps\[0\]: id: found '../x'"),
        ({**PLAN, "steps": [3]}, r"steps\[0\]: found 3"),
        ({**PLAN, "steps": {}}, "steps: found {}"),
        ({**PLAN, "steps": [STEP], "limit_s": "5"}, "limit_s: found '5'"),
        ({**PLAN, "steps": [STEP], "limit_s": float("inf")}, "limit_s: found inf"),
        ({**PLAN, "steps": [STEP], "kind": "x"}, "kind: found 'x'"),
        ({**PLAN, "format": "x", "steps": []}, "format: found 'x'"),
        ([], r"found \[\]; allowed: a table with format, spec, kind, alone, limit_s, steps, limits$"),
    ],
)
def test_a_damaged_plan_is_refused_with_its_key(tmp_path: Path, plan: object, field: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    with pytest.raises(MeshmarkError, match=f"plan.json: not the plan of a fleet: {field}"):
        load_plan(path)


def test_a_damaged_event_of_a_drained_node_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[drain]\nwrong = true\n")
    fleet = Fleet(tmp_path)
    journal = fleet.root / "judgements" / "drained.jsonl"
    journal.parent.mkdir()
    journal.write_text('{"event": "drained", "node": [1], "case": {}}\n' + "[" * 10_000 + "\n")
    assert drain_cases(fleet, load_policy(fleet), Slurm(), {}).done == {}
