"""The watch page as one file without a server or a network, thinned if a recording is too long for one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from map_page import attentive, colours_match, exported, go_to, known, open_raster, raster_steps, served

from meshmark.views.terminal.live.map import step_of
from meshmark.watch.frames import Header
from meshmark.web.hub import StoredFrames
from meshmark.web.page import thinned
from support.waiting import until

pytestmark = pytest.mark.browser


def test_one_file_shows_a_recording_without_a_server(offline: Any, machine: Header, tmp_path: Path) -> None:
    offline.goto(exported(machine, tmp_path, [known(n) for n in range(1, 41)]))
    offline.locator("#state", has_text="40 frames").wait_for()
    for number in (0, 17, 39):
        go_to(offline, number)
        colours_match(offline, known(number + 1))
    go_to(offline, 0)
    offline.locator('[data-component="cpu:1"]').hover()
    offline.wait_for_timeout(80)
    assert offline.locator("#told").inner_text().startswith("CPU 1: 20 %")
    assert offline.locator("#thinned").is_hidden()
    offline.locator("#speed").select_option("10")
    offline.locator("#play").click()
    assert until(lambda: offline.locator("#scrubber").input_value() == "39")
    open_raster(offline)
    assert raster_steps(offline, "cpu", 4)[:3] == [step_of(known(n).values["cpu.busy"][4], 0, 1) for n in (1, 2, 3)]


def test_one_file_states_that_it_is_thinned(
    offline: Any, machine: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshmark.web.page.MAX_FRAMES", 600)
    offline.goto(exported(machine, tmp_path, [known(n) for n in range(1, 1402)]))
    offline.locator("#state", has_text="467 frames").wait_for()
    assert (
        "1401 frames, too many for one page: each frame here is the mean of 3"
        in offline.locator("#thinned").inner_text()
    )
    go_to(offline, 0)
    expected = [known(n).values["cpu.busy"] for n in (1, 2, 3)]
    means = [None if None in vs else sum(v or 0 for v in vs) / 3 for vs in zip(*expected, strict=True)]
    offline.locator('[data-component="cpu:1"]').hover()
    offline.wait_for_timeout(80)
    assert means[1] is not None
    assert offline.locator("#told").inner_text().startswith(f"CPU 1: {100 * means[1]:.0f} %")


def test_a_server_states_that_a_recording_is_thinned(
    browser: Any, machine: Header, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshmark.web.page.MAX_FRAMES", 600)
    frames = [known(n) for n in range(1, 1402)]
    page, wrong_count = attentive(browser)
    page.goto(served(StoredFrames(*thinned(machine, 1401, lambda begin, count: frames[begin : begin + count]))))
    page.locator("#state", has_text="467 frames").wait_for()
    assert "the mean of 3" in page.locator("#thinned").inner_text()
    assert wrong_count == []
    page.close()


def test_a_damaged_page_reports_it(offline: Any, machine: Header, tmp_path: Path) -> None:
    exported(machine, tmp_path, [known(1)])
    complete = (tmp_path / "page.html").read_text()
    position = complete.index('id="data">') + 200
    (tmp_path / "page.html").write_text(complete[:position] + "AAAA" + complete[position + 400 :])
    offline.goto((tmp_path / "page.html").as_uri())
    offline.locator("#state", has_text="cannot be unpacked").wait_for()
