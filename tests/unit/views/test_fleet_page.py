"""The page of a fleet and its overview."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshmark.fleet.cases import CasesState
from meshmark.fleet.data.values import FleetPoint
from meshmark.fleet.folder import Fleet
from meshmark.fleet.overview import Overview, overview
from meshmark.fleet.site import Site
from meshmark.views.pages.fleet import fleet_page
from support.many_nodes import ManyNodes, fleet_with_cases, points

NODES = [f"n{i:02d}" for i in range(1, 41)]
POINTS = points(6)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Fleet, list[str]]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    return fleet, fleet_with_cases(fleet, NODES, POINTS)


def seen(made: tuple[Fleet, list[str]], **more: int) -> Overview:
    return overview(made[0], Site(racks={"r1": "n[01-30]"}), **more)


def test_an_overview_finds_what_changed_and_when(made: tuple[Fleet, list[str]]) -> None:
    fleet_overview = seen(made)
    (node_class,) = fleet_overview.classes
    assert [(s.point.key, s.worse, s.at) for s in node_class.steps] == [(POINTS[1].key, True, 8)]
    assert node_class.steps[0].by == pytest.approx(-0.04, abs=0.005)
    (fact,) = node_class.facts
    assert (fact.fact, fact.before, fact.after, fact.at, fact.nodes) == ("kernel", "6.1.0-30", "6.1.0-31", 8, 40)
    assert [case.node for case in fleet_overview.open] == ["n09", "n07"] and fleet_overview.left == {}
    assert list(fleet_overview.racks) == ["r1", ""] and fleet_overview.racks[""] == NODES[30:]


def test_history_is_as_long_as_asked_for(made: tuple[Fleet, list[str]]) -> None:
    fleet_overview = seen(made, days=5)
    assert list(fleet_overview.campaigns) == made[1][-5:]
    assert fleet_overview.classes[0].trend.centre.shape == (5, 6) and not fleet_overview.classes[0].steps


def test_an_earlier_campaign_is_shown_as_it_was(made: tuple[Fleet, list[str]]) -> None:
    fleet_overview = overview(made[0], Site(), made[1][-2])
    assert fleet_overview.seen.campaign == made[1][-2]
    assert [case.node for case in fleet_overview.open] == ["n07"]


def test_the_page_names_cases_suspects_and_changes(made: tuple[Fleet, list[str]]) -> None:
    fleet_overview = seen(made)
    page = fleet_page(fleet_overview)
    for text in (
        "40 nodes measured, 40 compared",
        "2 open cases",
        "dgemm: a kernel computed a wrong result",
        "latency, 16\u00a0KiB: 8.3\u00a0% worse (6.0 – 11.0)",
        "kernel: 6.1.0-29 (class: 6.1.0-31)",
        "6.1.0-30 → 6.1.0-31",
        "1 closed case<",
    ):
        assert text in page, text
    cells = re.findall(r'<rect class="m-(\w+)" [^>]*data-n="(\w+)"', page)
    assert sorted(name for _, name in cells) == NODES
    assert ("named", "n07") in cells and ("wrong", "n09") in cells


def test_the_map_has_the_deviation_of_every_node(made: tuple[Fleet, list[str]]) -> None:
    page = fleet_page(seen(made))
    match = re.search(r'<script id="map-data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    metrics = json.loads(match[1])
    assert len(metrics) == 6
    (latency_metric,) = [m for m in metrics if m["name"] == "latency, 16\u00a0KiB"]
    values = np.frombuffer(base64.b64decode(latency_metric["data"]), np.int8)
    assert len(values) == 40 and int(values.argmax()) == NODES.index("n07") and values.max() > 50


def test_a_fleet_of_one_campaign_has_a_page(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    ManyNodes(fleet, ["a", "b", "c"], POINTS).write(1)
    page = fleet_page(overview(fleet, Site()))
    assert "too few to compare" in page and "No node is named" in page


def test_a_chart_has_the_figure_of_each_application_by_its_name(tmp_path: Path) -> None:
    def point(program: str, metric: str, unit: str, better: str) -> FleetPoint:
        return FleetPoint(json.dumps(["app", metric, {"program": program}]), "app", metric, unit, better)

    fleet = Fleet(tmp_path)
    programs = [
        program_point
        for program in ("melt", "solve")
        for program_point in (
            point(program, "elapsed", "s", "lower"),
            point(program, "figure_of_merit", "B/s", "higher"),
        )
    ]
    many = ManyNodes(fleet, NODES, [*programs, POINTS[0]])
    for day in (1, 2, 3):
        many.write(day)
    page = fleet_page(overview(fleet, Site()))
    metric_names = set(re.findall(r'"metric": ?"([^"]+)"', page))
    assert metric_names == {"melt figure of merit", "solve figure of merit", "latency"}
    assert "solve elapsed" in page and "app elapsed" not in page


def test_cases_of_surveys_and_nodes_that_left_nothing_are_shown(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet_with_cases(fleet, NODES, POINTS)
    state = CasesState.load(fleet, "cluster")
    state.open = {"n07": replace(state.open["n07"], campaign="survey-20261125T120000-abcd")}
    state.save(fleet, "cluster")
    (journal,) = [p for p in fleet.root.glob("campaigns/*/journal.jsonl") if "20261126" in str(p)]
    text = journal.read_text()
    journal.write_text(text.replace("n[01-40]", "n[01-41]"))
    fleet_overview = overview(fleet, Site())
    assert [case.node for case in fleet_overview.open] == ["n07"] and fleet_overview.left == {"n41": "no result"}
    assert fleet_overview.racks[""][-1] == "n41" and 'class="m-left"' in fleet_page(fleet_overview)
