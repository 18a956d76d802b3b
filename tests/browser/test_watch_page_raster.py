"""The raster of the watch page: every component at every time, read and moved by mouse and keyboard."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from map_page import attentive, colours_match, exported, go_to, known, open_raster, raster_steps, served

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.views.terminal.live.map import step_of
from meshmark.watch.frames import USE, Frame, Header, header_of
from meshmark.web.hub import Hub
from support.waiting import take, until

pytestmark = pytest.mark.browser


def test_the_raster_has_every_component_at_every_time(page: Any) -> None:
    open_raster(page)
    page.wait_for_timeout(300)
    for kind, row in (("cpu", 3), ("cpu", 5), ("memory", 31), ("link", 63), ("io", 0)):
        expected = [step_of(known(n).values[f"{kind}.busy"][row], 0, 1) for n in range(1, 41)]
        assert raster_steps(page, kind, row) == expected
    page.locator("#palette").select_option("cividis")
    page.locator("#narrow").click()
    page.wait_for_timeout(100)
    expected = [step_of(known(n).values["cpu.busy"][3], 0.01, 0.1) for n in range(1, 41)]
    assert raster_steps(page, "cpu", 3, "cividis") == expected
    assert page.locator(".band span").all_inner_texts() == ["CPUs", "memory", "links", "I/O"]


def test_the_raster_describes_and_jumps_by_mouse_and_by_keys(page: Any) -> None:
    go_to(page, 0)
    open_raster(page)
    page.wait_for_timeout(300)
    canvas = page.locator("canvas[data-band=cpu]")
    box = canvas.bounding_box()
    position = {"x": (20 + 0.5) / 40 * box["width"], "y": 3.5 / 16 * box["height"]}
    canvas.hover(position=position)
    page.wait_for_timeout(80)
    use = known(21).values["cpu.busy"][3]
    assert page.locator("#told").inner_text() == f"CPU 3 at 2.1 s: {100 * (use or 0):.0f} %"
    assert page.locator("#scrubber").input_value() == "0"
    canvas.click(position=position)
    page.wait_for_timeout(80)
    assert page.locator("#scrubber").input_value() == "20"
    colours_match(page, known(21))
    page.locator("#rows").focus()
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text() == "CPU 5 at 0.2 s: not known: not known at this tick"
    page.keyboard.press("PageDown")
    page.keyboard.press("Enter")
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text().startswith("memory 0.0 at 0.2 s: ")
    assert page.locator("#scrubber").input_value() == "1"


def test_the_open_raster_is_remembered(browser: Any, recording: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(recording)
    assert page.locator("#raster").get_attribute("open") is None
    page.locator("#raster summary").click()
    page.wait_for_timeout(100)
    page.reload()
    page.locator("#state", has_text="40 frames").wait_for()
    page.wait_for_timeout(400)
    assert page.locator("#raster").get_attribute("open") is not None
    assert len(raster_steps(page, "cpu", 0)) == 40  # drawn without user input
    context.close()


def test_a_long_recording_has_columns_of_several_frames_and_a_held_machine_no_gap(
    offline: Any, machine: Header, tmp_path: Path
) -> None:
    frames = [known(n) for n in range(1, 3001) if not 1000 < n < 1500]
    frame = frames[1000]
    assert frame.seq == 1500
    frame.window_s = 50.0
    frame.values["cpu.busy"][2] = 0.95
    offline.goto(exported(machine, tmp_path, frames))
    offline.locator("#state", has_text="2501 frames").wait_for()
    open_raster(offline)
    steps = raster_steps(offline, "cpu", 2)
    assert len(steps) == 750  # columns of four ticks each
    assert steps[260:370] == [9] * 110
    expected = [known(n).values["cpu.busy"][2] or 0 for n in (1, 2, 3, 4)]
    assert steps[0] == step_of(sum(expected) / 4, 0, 1)


@pytest.mark.slow
def test_512_components_at_10_hz_are_drawn_as_they_come(browser: Any) -> None:
    head = header_of({**header_line(find_machine("gs1280-16"), 0.1), "source": "recording"})
    cpus = tuple({"name": f"CPU {i}", "node": i % 16, "number": i} for i in range(400))
    big = Header(head.source, "512", head.started, 0.1, {**head.components, "cpu": cpus}, head.metrics, (), head.more)

    def frames() -> Iterator[Frame]:
        for n in range(400):
            values: dict[str, list[float | None]] = {
                m: [((7 * i + 13 * n) % 101) / 100 for i in range(big.count(k))] for k, m in USE.items()
            }
            yield Frame(n, n * 0.1, 0.1, values, at=time.time())
            take(0.1)

    page, wrong_count = attentive(browser)
    page.goto(served(Hub(big, frames())))
    page.locator("#state", has_text="live").wait_for()
    open_raster(page)
    assert until(lambda: raster_steps(page, "cpu", 399).count(-2) < 75)
    assert wrong_count == []
    page.close()
