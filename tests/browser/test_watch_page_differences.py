"""The difference of two recordings as a map of changes: served, written by the command, and as one file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from map_page import attentive, known, served

from meshmark.watch.difference import RecordingDifference
from meshmark.watch.frames import Header
from meshmark.watch.recording import Recorder
from meshmark.web.hub import StoredFrames
from meshmark.web.page import packed_difference, write_page
from support.cli import start as start_command

pytestmark = pytest.mark.browser


def test_a_difference_is_a_map_of_changes(browser: Any, machine: Header, difference: RecordingDifference) -> None:
    page, wrong_count = attentive(browser)
    page.goto(served(StoredFrames(machine, 0, lambda *_: [], change=difference.to_json())))
    page.locator("#state", has_text="two recordings").wait_for()
    classes = {
        n: page.locator(f'[data-component="{n}"]').first.get_attribute("class")
        for n in ("memory:0", "link:3", "memory:1", "cpu:5")
    }
    # +40 and -30 points of ±50: the ninth and the third of ten steps.
    assert classes == {"memory:0": "box s9", "link:3": "link s2", "memory:1": "box unsure", "cpu:5": "box unknown"}
    fill = page.locator('[data-component="memory:0"]').evaluate("e => getComputedStyle(e).fill")
    assert fill == "rgb(103, 0, 31)"  # an increase is red
    page.locator('[data-component="memory:0"]').hover()
    message = page.locator("#told").inner_text()
    assert (
        message.startswith("memory 0.0: 50.0 % → 90.0 %, +40.0 points (95 % interval +") and "not dist" not in message
    )
    page.locator('[data-component="memory:1"]').hover()
    assert page.locator("#told").inner_text().endswith("): inconclusive")
    page.locator('[data-component="cpu:5"]').hover()
    assert page.locator("#told").inner_text() == "CPU 5: not known: not known at this tick (before.parquet)"
    scale = page.locator("#scale li").all_inner_texts()
    assert scale[:2] == ["−50", "−40"] and scale[10:] == ["+50 points", "inconclusive", "not known"]
    page.locator("#most-100").click()
    assert page.locator('[data-component="memory:0"]').get_attribute("class") == "box s7"
    page.locator("#most").fill("-3")
    assert page.locator("#most").get_attribute("aria-invalid") == "true"
    page.locator("#numbers").check()
    shown_text = page.evaluate("() => [...document.querySelectorAll('svg text.label')].map(e => e.textContent)")
    assert "+40" in shown_text
    rows = page.locator("#changes tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:4] == ["memory 0.0", "50.0", "90.0", "+40.0"]
    assert rows[1].split("\t")[3] == "−30.0"
    assert page.locator("#changed").inner_text().startswith("2 of 127 components changed distinguishably")
    assert page.locator("#time").is_hidden() and page.locator("#range").is_hidden()
    assert wrong_count == []
    page.close()


def test_replay_against_serves_the_map_of_changes(browser: Any, machine: Header, tmp_path: Path) -> None:
    for name, memory in (("a", 0.2), ("b", 0.8)):
        with Recorder(tmp_path / name, machine) as recorder:
            for n in range(20):
                frame = known(n)
                frame.values["memory.busy"] = [memory] * 32
                recorder.add(frame)
    words = ["replay", str(tmp_path / "b"), "--against", str(tmp_path / "a"), "--web", "--port", "0"]
    child = start_command(*words, stderr=subprocess.DEVNULL)
    page, wrong_count = attentive(browser)
    try:
        assert child.stdout is not None
        page.goto(child.stdout.readline().strip())
        page.locator("#state", has_text="two recordings").wait_for()
        page.locator('[data-component="memory:7"]').focus()
        assert (
            page.locator("#told").inner_text().endswith("20.0 % → 80.0 %, +60.0 points (95 % interval +60.0 to +60.0)")
        )
        assert wrong_count == []
    finally:
        child.kill()
        child.wait()
        page.close()


def test_a_difference_is_one_file_too(
    offline: Any, machine: Header, difference: RecordingDifference, tmp_path: Path
) -> None:
    write_page(tmp_path / "d.html", "test", packed_difference(machine, difference))
    offline.goto((tmp_path / "d.html").as_uri())
    offline.locator("#state", has_text="two recordings").wait_for()
    assert offline.locator('[data-component="memory:0"]').get_attribute("class") == "box s9"
    assert offline.locator("#changes tbody tr").count() == 100  # the page states that there are more
    assert "27 smaller ones are not in this table" in offline.locator("#changed").inner_text()
