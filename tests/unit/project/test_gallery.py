"""The gallery of reports: its first page, its parts, and what happens if a part fails or the build is interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import synthetic_fleet

from meshmark.errors import AbsentError
from meshmark.fleet.folder import Fleet
from meshmark.fleet.overview import overview
from meshmark.fleet.site import load_site
from meshmark.machine.facts import host_id
from meshmark.native import VERSION
from meshmark.views.render import render
from support.links import dead_links
from support.scripts import docs_script

gallery = docs_script("gallery")


def write_small(out: Path) -> None:
    """Write a report without charts, and a picture."""
    (out / "report.html").write_text(str(render("site/frame.html", title="A report", up="../")))
    (out / "picture.png").write_bytes(b"picture")


def part(name: str, build: Callable[[Path], None] = write_small, **more: Any) -> Any:
    texts = {"title": f"Title of {name}", "kind": "modelled", "sentence": f"Sentence of {name}.", "notice": "A & B."}
    return gallery.Part(name=name, **texts, picture="a chart", build=build, **more)


def failing(_: Path) -> None:
    raise AbsentError("found no simulator", "make setup")


def test_the_first_page_lists_the_parts_in_order(tmp_path: Path) -> None:
    parts = [part("a"), part("b", warning=True)]
    assert gallery.build(parts, parts, tmp_path) == 0
    index = (tmp_path / "index.html").read_text()
    assert 0 < index.index("Title of a") < index.index("Title of b") and "Sentence of b." in index
    assert '<a href="a/report.html">' in index and '<img src="b/picture.png" alt="a chart"' in index
    reports = [(tmp_path / name / "report.html").read_text() for name in "ab"]
    for report in reports:
        assert '<a href="../index.html">Gallery</a>' in report and "A &amp; B." in report
        assert report.index("A &amp; B.") < report.index("<h1>")
    assert ["banner" in report.partition("<h1>")[0].partition("<header>")[2] for report in reports] == [False, True]
    (tmp_path / "page.css").touch()  # the small reports refer to it
    assert dead_links(tmp_path) == []


def test_a_part_that_fails_is_one_line_and_the_others_are_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [part("a", failing), part("b")]
    assert gallery.build(parts, parts, tmp_path) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert errors == ["gallery: error: a: found no simulator (make setup)"]
    index = (tmp_path / "index.html").read_text()
    assert "Title of a" not in index and "Title of b" in index
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "index.html"], "nothing of the part remains"


def test_an_interrupted_build_leaves_the_earlier_part_and_is_completed_by_the_next(tmp_path: Path) -> None:
    def interrupted(out: Path) -> None:
        (out / "report.html").write_text("half")
        raise KeyboardInterrupt

    parts = [part("a"), part("b")]
    gallery.build(parts, parts[:1], tmp_path)
    before = (tmp_path / "a" / "report.html").read_text()
    with pytest.raises(KeyboardInterrupt):
        gallery.build(parts, [replace(parts[0], build=interrupted), parts[1]], tmp_path)
    assert (tmp_path / "a" / "report.html").read_text() == before
    assert gallery.build(parts, parts, tmp_path) == 0
    assert (tmp_path / "a" / "report.html").read_text() == before and "Title of b" in (
        tmp_path / "index.html"
    ).read_text()


# ------------------------------------------------------------------ this host


def survey(runs: Path, name: str, started: str, **changes: Any) -> Path:
    """Write the folder of a survey without steps."""
    folder = runs / name
    folder.mkdir(parents=True)
    host = {"machine": {"id": host_id()}}
    state = {"run_id": name, "started": started, "spec": "quick", "command": "", "version": VERSION, "host": host}
    (folder / "run.json").write_text(json.dumps({**state, "elapsed_s": 1.0, "steps": [], **changes}))
    (folder / "plan.json").write_text(json.dumps({"spec": "quick", "steps": changes.get("planned", [])}))
    return folder


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the arguments of the surveys that the gallery requests, which measure nothing."""
    calls: list[dict[str, Any]] = []

    def measure(**arguments: Any) -> Path:
        calls.append(arguments)
        return Path("new")

    monkeypatch.setattr(import_module("meshmark.measure.survey"), "run_survey", measure)
    return calls


def test_the_newest_survey_of_this_machine_and_version_is_used(tmp_path: Path, measured: list[dict[str, Any]]) -> None:
    survey(tmp_path, "old", "2026-11-01")
    newest = survey(tmp_path, "new", "2026-11-02")
    survey(tmp_path, "other-spec", "2026-11-03", spec="full")
    survey(tmp_path, "other-version", "2026-11-03", version="0.0.1")
    survey(tmp_path, "other-machine", "2026-11-03", host={"machine": {"id": "other-0123"}})
    assert gallery.host_run(tmp_path, tmp_path / "store") == newest and measured == []


def test_a_host_without_a_survey_is_measured_and_an_interrupted_one_is_resumed(
    tmp_path: Path, measured: list[dict[str, Any]]
) -> None:
    assert gallery.host_run(tmp_path, tmp_path / "store") == Path("new")
    assert measured[0]["spec"] == "quick" and not measured[0]["resume"] and measured[0]["folder"] is None
    step = {"id": "01-peak", "instrument": "peak", "argv": ["peak"], "limit_s": 5.0, "budget_s": 1.0}
    folder = survey(tmp_path, "interrupted", "2026-11-02", planned=[step])
    assert gallery.host_run(tmp_path, tmp_path / "store") == Path("new")
    assert measured[1]["resume"] and measured[1]["folder"] == folder


# ------------------------------------------------------------------ models


def test_a_report_of_a_model_says_what_its_machine_file_lacks(tmp_path: Path) -> None:
    model = gallery.ModelReport("xeon5500", "all", "lines")
    parts = [model.part("Two Xeons", "A sentence.", "a map")]
    assert gallery.build(parts, parts, tmp_path) == 0
    report = (tmp_path / "xeon5500" / "report.html").read_text()
    for chart in ("latency", "strides", "company", "bandwidth", "bandwidth_footprint", "lines", "loaded", "gups"):
        assert f'id="chart-{chart}"' in report, chart
    assert "A simulation, not a measurement." in report and "xeon5500.toml has no cpu.flops_per_cycle" in report
    pictures = [tmp_path / "xeon5500" / name for name in ("picture.png", "charts/lines.png")]
    assert pictures[0].read_bytes() == pictures[1].read_bytes() and dead_links(tmp_path) == []


# ------------------------------------------------------------------ the synthetic fleet


def test_the_planted_faults_of_the_synthetic_fleet_are_the_ones_that_are_named(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    synthetic_fleet.write(fleet, days=7)
    contents = overview(fleet, load_site(fleet.root / "fleet.toml"))
    assert {case.node for case in contents.open} == {*synthetic_fleet.SLOW, synthetic_fleet.WRONG}
    assert [case.node for case in contents.open if case.wrong] == [synthetic_fleet.WRONG]
    assert {*contents.left} == {synthetic_fleet.SILENT} and len(contents.seen.panel.nodes) == 100
    by_node = {case.node: case for case in contents.open}
    assert [*by_node[synthetic_fleet.OLD_MICROCODE].differs] == ["microcode"]
    for node, fault in synthetic_fleet.SLOW.items():
        metrics = by_node[node].metrics
        assert {m.instrument for m in metrics} == {*fault.instruments}
        assert all(m.low < fault.share + 0.02 and m.high > fault.share - 0.02 for m in metrics), node
    assert "99 nodes measured, 99 compared" in gallery.fleet_page(contents)
