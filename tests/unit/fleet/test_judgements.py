"""Judgements: from node files to the nodes that are named."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.fleet.cases import CasesState, NamedNode, close_cases
from meshmark.fleet.data.ingest import ingest
from meshmark.fleet.data.panel import read_panel
from meshmark.fleet.folder import Fleet
from meshmark.fleet.health.assessment import Confirmation, FleetState, controls, decide, look, reference
from meshmark.fleet.health.classes import classes
from support.made_fleet import KERNELS, files, lines_of, noisy, write_result

NODES = [f"n{i:02d}" for i in range(1, 41)]
OTHERS = [f"m{i:02d}" for i in range(1, 21)]
SLOW = {"n07": dict.fromkeys(("triad",), 0.06), "n23": dict.fromkeys(KERNELS, 0.04)}


def campaign(fleet: Fleet, kind: str, day: int, nodes: list[str], repetitions: int, **more: dict[str, Any]) -> str:
    name = f"{kind}-202611{day:02d}T120000-{day:04x}"
    for node in nodes:
        changes = dict(more.get(node, {}))
        slow = dict.fromkeys(KERNELS, changes.pop("slow")) if "slow" in changes else SLOW.get(node)
        lines = lines_of(node, noisy(node, 100 * day, slow), repetitions=repetitions, **changes)
        write_result(fleet.campaign(name) / "inbox", node, lines)
    assert len(ingest(fleet, name, "cluster").nodes) == len(nodes)
    return name


def measured_again(fleet: Fleet, seen: FleetState, name: str) -> Confirmation:
    return Confirmation(read_panel(fleet, [name], "cluster"), reference(fleet, "cluster", seen))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    new_fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    for day in range(1, 5):
        campaign(new_fleet, "check", day, NODES, 2, n07={"recorded": files(kernel="6.1.9")})
    return new_fleet


def test_a_panel_has_every_value_in_its_place(fleet: Fleet) -> None:
    names = fleet.campaigns()
    panel = read_panel(fleet, names, "cluster")
    assert panel.nodes == NODES and panel.values.shape == (40, 8, 5)
    assert panel.of == [n for n in names for _ in range(2)]
    index = [p.conditions["kernel"] for p in panel.points].index("triad")
    # Bandwidths: higher is better, so that their logarithms are negative.
    assert np.nanmedian(panel.values[6, :, index]) - np.nanmedian(panel.values[:, :, index]) == pytest.approx(
        0.06, abs=0.02
    )
    assert panel.values[0, 0, index] == pytest.approx(-math.log(1e11), abs=0.05)


def test_slow_nodes_are_named_by_fresh_values_and_stay_open_cases(fleet: Fleet) -> None:
    findings = look(fleet, "cluster")
    suspects = findings.suspects()
    assert set(SLOW) <= set(suspects) and findings.window == fleet.campaigns()
    healthy = controls(findings)
    assert healthy and not {*healthy} & {*SLOW}
    confirmation = campaign(fleet, "confirm", 5, sorted({*suspects, *healthy}), 8)
    cases = decide(fleet, "cluster", findings, measured_again(fleet, findings, confirmation))
    assert {n.node for n in cases} == set(SLOW)
    by_name = {n.node: n for n in cases}
    first = by_name["n07"].metrics[0]
    assert first.conditions["kernel"] == "triad" and first.low < 0.06 / 0.94 < first.high
    assert {m.conditions["kernel"] for m in by_name["n23"].metrics} == set(KERNELS)
    assert by_name["n07"].differs == {"kernel": ("6.1.9", "6.1.0")} and by_name["n23"].differs == {}
    judgement = json.loads((fleet.root / "judgements" / f"{findings.campaign}.json").read_text())
    assert [n["node"] for n in judgement["named"]] == [n.node for n in cases]
    with pytest.raises(MeshmarkError, match="was judged before"):
        decide(fleet, "cluster", findings, None)
    assert set(CasesState.load(fleet, "cluster").open) == set(SLOW)
    assert not {*look(fleet, "cluster").suspects()} & {*SLOW}


def test_a_node_that_computes_wrongly_is_named_first(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    problems = {"problems": ["dgemm: a kernel computed a wrong result"]}
    campaign(fleet, "check", 1, NODES, 2, n11=problems)
    findings = look(fleet, "cluster")
    assert "n11" in findings.suspects()
    nodes = sorted({"n11", *findings.suspects(), *controls(findings)})
    confirmation = campaign(fleet, "confirm", 2, nodes, 5, n11=problems)
    cases = decide(fleet, "cluster", findings, measured_again(fleet, findings, confirmation))
    assert cases[0].node == "n11" and cases[0].wrong == problems["problems"]


def test_flagged_results_and_doubtful_nodes_are_left_out(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    campaign(fleet, "check", 1, NODES, 1, n01={"flags": ["stolen"]}, n02={"hostname": "other"})
    panel = read_panel(fleet, fleet.campaigns(), "cluster")
    assert "n02" not in panel.nodes
    assert "n01" in panel.nodes and np.isnan(panel.values[panel.nodes.index("n01")]).all()


def test_a_class_that_is_not_judged_says_why(tmp_path: Path) -> None:
    """The reason is the flags, as after `fleet check --beside`, and not the size of the class."""
    fleet = Fleet(tmp_path)
    campaign(fleet, "check", 1, OTHERS, 1, **{name: {"flags": ["disturbed"]} for name in OTHERS[2:]})
    findings = look(fleet, "cluster")
    assert [findings.reason(group) for group in findings.classes] == ["not judged, since 90 of 100 results are flagged"]
    few = Fleet(tmp_path / "few")
    campaign(few, "check", 1, OTHERS[:2], 1)
    findings = look(few, "cluster")
    assert [findings.reason(group) for group in findings.classes] == ["too few to compare"]


def test_a_fleet_without_results_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="no results to judge"):
        look(Fleet(tmp_path), "cluster")


def test_a_damaged_state_is_not_forgotten(tmp_path: Path) -> None:
    path = CasesState.path(Fleet(tmp_path), "cluster")
    path.parent.mkdir()
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(MeshmarkError, match="not the state"):
        CasesState.load(Fleet(tmp_path), "cluster")


def test_classes_are_found_from_hardware() -> None:
    node_facts = {"product": "Blade", "cpu": "A", "memory": "256 GiB", "firmware": "1"}
    facts = [dict(node_facts) for _ in range(20)] + [{**node_facts, "cpu": "B"} for _ in range(12)]
    facts[3] |= {"memory": "224 GiB"}  # a memory module is missing
    facts[25] |= {"firmware": "0"}
    groups = classes(facts)
    assert [len(c.members) for c in groups] == [20, 12] and 3 in groups[0].members
    assert groups[0].deviations(facts[3]) == {"memory": ("224 GiB", "256 GiB")}
    assert groups[1].deviations(facts[25]) == {"firmware": ("0", "1")}
    assert all(c.judged for c in groups)


def test_nodes_of_a_rare_processor_are_not_judged() -> None:
    groups = classes([{"cpu": "A"}] * 10 + [{"cpu": "C", "memory": f"{i} GiB"} for i in range(3)])
    assert [(len(c.members), c.judged) for c in groups] == [(10, True), (3, False)]


@pytest.mark.filterwarnings("error")
def test_nodes_without_a_common_metric_are_judged_without_a_warning(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    campaign(fleet, "check", 1, OTHERS, 1, **{name: {"status": "refused: 2.0 CPUs are busy"} for name in OTHERS})
    findings = look(fleet, "cluster")
    assert findings.newest().size == 0 and decide(fleet, "cluster", findings, None) == []


def test_a_wrong_result_that_is_not_repeated_is_named_all_the_same(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    nodes = ["a", "b", "c"]  # too few to compare
    campaign(fleet, "check", 1, nodes, 1, b={"problems": ["peak: a kernel computed a wrong result"]})
    findings = look(fleet, "cluster")
    assert findings.suspects() == ["b"]
    confirmation = campaign(fleet, "confirm", 2, ["b"], 5)
    (case,) = decide(fleet, "cluster", findings, measured_again(fleet, findings, confirmation))
    assert case.node == "b" and case.wrong == ["peak: a kernel computed a wrong result (not again)"]
    # The case stays open for a person to decide, and the node is not named again.
    campaign(fleet, "check", 3, nodes, 1, b={"problems": ["peak: a kernel computed a wrong result"]})
    assert look(fleet, "cluster").suspects() == []


def test_since_when_a_node_is_worse_and_its_recovery(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    for day in range(1, 13):
        bad = {"m07": {"slow": 0.1}} if day >= 6 else {}
        campaign(fleet, "check", day, OTHERS, 1, **bad)
    findings = look(fleet, "cluster")
    confirmation = campaign(
        fleet, "confirm", 13, sorted({*findings.suspects(), *controls(findings)}), 7, m07={"slow": 0.1}
    )
    cases = decide(fleet, "cluster", findings, measured_again(fleet, findings, confirmation))
    (case,) = [n for n in cases if n.node == "m07"]
    assert case.since == fleet.campaigns()[5] and case.campaign == findings.campaign
    for day in range(14, 17):
        assert "m07" in CasesState.load(fleet, "cluster").open
        campaign(fleet, "check", day, OTHERS, 1)
        decide(fleet, "cluster", look(fleet, "cluster"), None)
    state = CasesState.load(fleet, "cluster")
    assert "m07" not in state.open and [(c.node, closed_in[:14]) for c, closed_in in state.closed] == [
        ("m07", "check-20261116")
    ]


def test_a_person_may_close_a_case(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    case = NamedNode("n1", "blade", 0.0, [], ["wrong"], {}, "check-20261101T120000-0001", "")
    CasesState(open={"n1": case}).save(fleet, "cluster")
    with pytest.raises(UsageError, match="found n2, which has no open case; allowed: n1"):
        close_cases(fleet, "cluster", ["n1", "n2"])
    close_cases(fleet, "cluster", ["n1"])
    assert CasesState.load(fleet, "cluster").open == {} and CasesState.load(fleet, "cluster").closed[0][0] == case
