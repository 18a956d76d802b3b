"""Test reading a run: incomplete journals, records, the canary, misplaced memory, charts and text."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.lanes import lanes
from meshmark.load.scenario.records import records_of
from meshmark.load.scenario.result import LoadRun, canary_text
from meshmark.store.record import Record
from meshmark.store.store import Store
from meshmark.views.gantt import gantt_html, gantt_svg, write_gantt
from meshmark.views.terminal.gantt import gantt_text
from support.scenarios import QUIET, run


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, program: Path) -> LoadRun:
    folder = tmp_path_factory.mktemp("whole")
    return run(
        folder,
        f"""
        [scenario]
        name = "a < b & c"
        canary = {{before_s = 0.1, after_s = 0.1}}
        [[program]]
        name = "busy"
        copies = 2
        start_s = [0, 0.2]
        file = '{program}'
        [[program]]
        name = "shell"
        command = ["sh", "-c", "sleep 0.2; sleep 0.2; exit 0"]
        """,
    )


def test_a_torn_journal_is_read_as_far_as_it_goes(tmp_path: Path, whole: LoadRun) -> None:
    shutil.copy(whole.folder / "scenario.json", tmp_path)
    data = (whole.folder / JOURNAL).read_bytes()
    for part in (0.0, 0.1, 0.4, 0.7, 0.999):
        (tmp_path / JOURNAL).write_bytes(data[: int(part * len(data))] + b'{"type": "sample", "threads": [[')
        load_run = read_run(tmp_path)
        assert load_run.status == "cut"
        assert gantt_text(load_run)
        ET.fromstring(gantt_svg(load_run))
    (tmp_path / JOURNAL).write_bytes(
        data.replace(b'"threads":[', b'"threads":7,"x":[').replace(b'"t_s":1', b'"t_s":"x')
    )
    assert read_run(tmp_path).programs


def test_a_run_becomes_records_that_the_store_takes(tmp_path: Path, whole: LoadRun) -> None:
    records, absences = records_of(whole, "n042")
    assert not absences
    for r in records:
        copy = Record.from_json(r.to_json())
        assert copy == r
    busy_records = [r for r in records if r.conditions.get("program") == "busy" and r.conditions.get("copy") == 0]
    assert {r.metric for r in busy_records} >= {"elapsed", "user", "system", "waiting", "sleeping", "flop_rate"}
    assert {r.metric for r in records if "program" not in r.conditions} >= {"bench", "idle", "waiting_sum", "fairness"}
    assert {r.conditions["copies"] for r in busy_records} == {2}
    store = Store(tmp_path / "store")
    store.add("run1", "load", records, absences, "n042")
    assert len(store.query(instrument="load")) == len(records)


def test_the_canary_sang_before_during_and_after(whole: LoadRun) -> None:
    if not whole.canary:
        pytest.skip("no line can be flushed on this processor")
    assert {"before", "after"} <= {c["when"] for c in whole.canary}
    assert all(c["load_latency_s"] > 0 for c in whole.canary)
    assert whole.canary[0]["t_s"] < 0


def test_what_the_canary_sang_is_one_line_of_the_table(whole: LoadRun, tmp_path: Path) -> None:
    if not whole.canary:
        pytest.skip("no line can be flushed on this processor")
    text = canary_text(whole)
    assert "\n" not in text
    for when in ("before", "after"):
        assert f"{1e9 * whole.canary_level(when):.1f} ns {when}" in text
    silent = run(tmp_path, QUIET + "[[program]]\ncommand = ['true']")
    assert canary_text(silent) == ""
    assert silent.canary_drift() == 0


@pytest.mark.parametrize(
    ("memory", "pages", "flagged"),
    [
        ("bind=1", {"1": 100 << 20}, False),
        ("bind=1", {"0": 2 << 20, "1": 98 << 20}, True),
        ("bind=1", {"0": 900 << 10, "1": 99 << 20}, False),  # within a hundredth
        ("bind=1", {"0": 100 << 10}, True),
        ("preferred=1", {"0": 100 << 10}, False),  # less than 1 MiB of memory that may be elsewhere
        ("preferred=1", {"0": 2 << 20}, True),
        ("", {"0": 100 << 20}, False),  # no placement was requested
    ],
)
def test_memory_that_is_elsewhere_than_asked_carries_a_flag(
    tmp_path: Path, whole: LoadRun, memory: str, pages: dict[str, int], flagged: bool
) -> None:
    lines = []
    for raw in (whole.folder / JOURNAL).read_text().splitlines():
        line = json.loads(raw)
        if line["type"] == "header":
            line["programs"] = [{**p, "nodes": "1" if memory else "none"} for p in line["programs"]]
        if line["type"] == "total":
            line["pages"] = pages
        lines.append(json.dumps(line))
    (tmp_path / JOURNAL).write_text("\n".join(lines) + "\n")
    scenario = json.loads((whole.folder / "scenario.json").read_text())
    scenario["programs"] = [{**p, "memory": memory} for p in scenario["programs"]]
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    load_run = read_run(tmp_path)
    assert {"misplaced" in load_run.flags(p) for p in load_run.programs} == {flagged}
    records, _ = records_of(load_run)
    busy_record = next(r for r in records if r.metric == "elapsed" and r.conditions["program"] == "busy")
    assert busy_record.conditions["memory"] == (memory or "default")
    assert busy_record.conditions["observed_node"] == int(max(pages, key=lambda n: pages[n]))
    assert busy_record.conditions["observed_node_share"] == max(pages.values()) / sum(pages.values())


def test_looking_is_told_and_little(whole: LoadRun) -> None:
    # The share includes starting and ending, and the machine may be busy, so the limit is generous.
    assert 0 < whole.end["sampling"]["share"] < 0.1


def test_the_picture_shows_every_program_and_is_whole(tmp_path: Path, whole: LoadRun) -> None:
    svg = gantt_svg(whole)
    tree = ET.fromstring(svg)
    texts = [t.text or "" for t in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "busy · 1" in texts
    assert "busy · 2" in texts
    assert "shell" in texts
    assert "a < b & c" in texts
    for word in (
        "Makespan",
        "Sum of waiting times",
        "waiting for a CPU",
        "user",
        "sleeping",
        "migrated to another CPU",
    ):
        assert word in texts
    assert "prefers-color-scheme:dark" in svg
    page = gantt_html(whole)
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "a &lt; b &amp; c" in page
    paths = write_gantt(whole, tmp_path)
    assert [p.name for p in paths] == ["gantt.html", "gantt.svg", "gantt.png"]
    assert paths[2].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("width", [60, 80, 132])
def test_the_text_fits_its_width(whole: LoadRun, width: int) -> None:
    text = gantt_text(whole, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "busy · 1" in text


def test_too_many_threads_are_drawn_as_one_lane_a_copy(whole: LoadRun) -> None:
    assert len(lanes(whole, max_lanes=3)) == len(whole.programs)
    assert sum(len(x.threads) for x in lanes(whole, max_lanes=3)) == len(whole.threads)
