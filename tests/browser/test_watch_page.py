"""The live map in a real browser: colours follow known use, pointer and keyboard state values, and time moves."""

from __future__ import annotations

import re
import socket
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from axe import Screen, screens, violations
from map_page import attentive, colours_match, go_to, known, open_raster, served

from meshmark.watch.difference import RecordingDifference
from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.rates import rates
from meshmark.web.hub import StoredFrames
from support.cli import start as start_command
from support.waiting import listening, until

pytestmark = pytest.mark.browser


def test_colours_follow_known_use_at_every_time(page: Any) -> None:
    for number in (0, 17, 39):
        go_to(page, number)
        colours_match(page, known(number + 1))


def test_the_range_and_the_palette_change_the_colours_and_the_scale(page: Any) -> None:
    go_to(page, 3)
    page.locator("#narrow").click()
    page.wait_for_timeout(80)
    colours_match(page, known(4), 0.01, 0.1)
    assert page.locator("#scale li").all_inner_texts()[:3] == ["1", "1.9", "2.8"]
    assert page.locator("#scale .bound").inner_text() == "10 %"
    page.locator("#palette").select_option("cividis")
    page.locator("#full").click()
    page.wait_for_timeout(80)
    colours_match(page, known(4), palette="cividis")
    page.locator("#low").fill("80")
    page.locator("#high").fill("20")  # invalid input is marked and has no effect
    assert page.locator("#high").get_attribute("aria-invalid") == "true"


def test_the_page_begins_with_the_colours_that_the_command_requested(browser: Any, machine: Header) -> None:
    frames = [known(n) for n in range(1, 5)]

    def viewed(view: Any) -> str:
        return served(StoredFrames(machine, 4, lambda begin, count: frames[begin : begin + count], view=view))

    requested_view = viewed({"low": 1, "high": 10, "palette": "cividis"})
    empty, invalid_view = viewed(None), viewed({"low": "x", "palette": "constructor"})
    page, wrong_count = attentive(browser)
    page.goto(requested_view)
    page.locator("#state", has_text="4 frames").wait_for()
    go_to(page, 3)
    colours_match(page, known(4), 0.01, 0.1, "cividis")
    assert (page.locator("#low").input_value(), page.locator("#high").input_value()) == ("1", "10")
    assert (
        page.evaluate("localStorage.getItem('palette')") is None
    )  # a setting of the address is not stored as the choice of the reader
    for address in (empty, invalid_view):
        page.goto(address)
        page.locator("#state", has_text="4 frames").wait_for()
        go_to(page, 3)
        colours_match(page, known(4))
    assert wrong_count == []
    page.close()


def test_hover_and_keys_name_the_component_and_its_use(page: Any) -> None:
    go_to(page, 0)
    page.locator('[data-component="cpu:1"]').hover()
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text().startswith("CPU 1: 20 %")
    page.locator('[data-component="cpu:5"]').hover()
    page.wait_for_timeout(80)
    assert "not known" in page.locator("#told").inner_text()
    page.locator('[data-component="cpu:0"]').focus()
    for key, name in (("ArrowRight", "link "), ("ArrowRight", "CPU 1")):
        page.keyboard.press(key)
        page.wait_for_timeout(80)
        if name == "CPU 1":
            for _ in range(3):  # two directions of a link lie between them
                if page.locator("#told").inner_text().startswith(name):
                    break
                page.keyboard.press(key)
                page.wait_for_timeout(80)
        assert page.locator("#told").inner_text().startswith(name)
    assert page.locator(":focus").get_attribute("aria-label").startswith("CPU 1")
    assert page.locator('svg [tabindex="0"]').count() == 1


def test_numbers_can_be_shown(page: Any) -> None:
    go_to(page, 0)
    page.locator("#numbers").check()
    page.wait_for_timeout(80)
    shown_text = page.evaluate("() => [...document.querySelectorAll('svg text.label')].map(e => e.textContent)")
    assert "20" in shown_text and "?" in shown_text


def test_a_recording_plays_pauses_and_steps(page: Any) -> None:
    go_to(page, 5)
    page.locator("#on").click()
    page.wait_for_timeout(80)
    assert page.locator("#scrubber").input_value() == "6"
    page.locator("#back").click()
    page.wait_for_timeout(80)
    assert page.locator("#clock").inner_text().startswith("0.6 s")
    page.locator("#speed").select_option("10")
    page.locator("#play").click()
    assert until(lambda: page.locator("#scrubber").input_value() == "39")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_it_fits_a_phone_and_every_control_has_a_name(browser: Any, recording: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(recording)
    page.locator("#state", has_text="40 frames").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button,input,select,[role=img]')].filter(e =>
             !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    page.close()


def test_live_frames_move_the_map_and_a_restart_is_survived(browser: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["watch", "--web", "--rate", "10", "--port", str(port), "--high", "50"]
    base = f"http://127.0.0.1:{port}/"

    def start() -> subprocess.Popen[str]:
        # A fixed token: with a random one, pages that were open before the restart would need the new link.
        child = start_command(*words, stderr=subprocess.DEVNULL, env={"MESHMARK_TOKEN": "of-the-test"})
        assert child.stdout is not None
        assert child.stdout.readline() == f"{base}?token=of-the-test\n"
        return child

    child = start()
    page = browser.new_page()
    try:
        assert until(lambda: listening(base))
        page.goto(base + "?token=of-the-test")
        page.locator("#state", has_text="live").wait_for()
        assert page.url == base  # the token is in a cookie now
        clock = page.locator("#clock").inner_text()
        assert until(lambda: page.locator("#clock").inner_text() != clock)
        assert page.locator('[data-component="memory:0"]').get_attribute("class").endswith("unknown")
        assert page.locator("#high").input_value() == "50"
        assert re.fullmatch(r"The sampler used [\d.]+ % of \d+ CPUs?\.", page.locator("#cost").inner_text())
        page.locator("#high").fill("20")
        child.kill()
        child.wait()
        page.locator("#state", has_text="reconnecting").wait_for()
        child = start()
        page.locator("#state", has_text="live").wait_for(timeout=20000)
        assert page.locator("#high").input_value() == "20"  # the choice of the reader stays
    finally:
        child.kill()
        child.wait()
        page.close()


def test_a_hot_spot_is_named_and_ringed(browser: Any) -> None:
    words = ["watch", "--web", "--on", "gs1280-16", "--frames", "40", "--window", "1us", "--port", "0"]
    child = start_command(*words, stderr=subprocess.DEVNULL)
    page = browser.new_page()
    try:
        assert child.stdout is not None
        page.goto(child.stdout.readline().strip())
        page.locator("#state", has_text="40 frames").wait_for()
        go_to(page, 2)
        assert page.locator("#spots li").count() == 0  # a single moment is not a hot spot
        go_to(page, 39)
        assert page.locator("#spots li").inner_text().startswith("memory bound: memory 0.0, memory 0.1")
        assert page.locator(".ring").count() == 2
    finally:
        child.kill()
        child.wait()
        page.close()


def estimated(machine: Header) -> StoredFrames:
    """Return memory that is coloured by an estimate, and the bandwidths at which the estimate is 1; links have only
    one."""
    header = StoredFrames(machine, 0, lambda *_: []).header_json
    memory = {"name": "memory.pressure", "unit": "1", "what": "told from latency", "of": "bandwidth", "estimated": True}
    frame = known(1)
    values: dict[str, list[float | None]] = {
        "memory.pressure": [0.5, None, *[0.25] * 30],
        "memory.pressure_low": [0.42, None, *[0.1] * 30],
        "memory.pressure_high": [0.61, None, *[0.3] * 30],
    }
    frame.values |= values
    past = StoredFrames(machine, 1, lambda begin, count: [frame][begin : begin + count])
    attained: list[float | None] = [38.4e9, None, *[40e9] * 30]
    past.header_json |= {
        "metrics": [*header["metrics"], memory],
        "use": {"memory": "memory.pressure"},
        "denominators": {
            "memory": {
                "used": "attained",
                "wire": [51.2e9] * 32,
                "attained": attained,
                "from": {"attained": "calibrated 2026-11-20"},
            }
        },
        "audit": {
            "when": "2026-11-30T17:00:00+00:00",
            "verdicts": {"memory.read": "wrong by the factor 2.00 [1.98, 2.02]"},
        },
    }
    return past


def test_estimates_are_marked_and_bandwidths_are_stated(browser: Any, machine: Header) -> None:
    page, wrong_count = attentive(browser)
    page.goto(served(estimated(machine)))
    page.locator("#state", has_text="1 frame").wait_for()
    page.locator("#numbers").check()
    page.wait_for_timeout(100)
    first = page.locator('[data-component="memory:0"]')
    assert first.get_attribute("class") == "box s5 estimated"
    assert first.evaluate("e => getComputedStyle(e).strokeDasharray") != "none"
    assert page.locator('[data-component="memory:1"]').get_attribute("class") == "box unknown"
    assert page.locator('[data-component="cpu:1"]').get_attribute("class") == "box s2"
    assert "estimated" in page.locator("#scale").inner_text()
    first.hover()
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text() == (
        "memory 0.0: ~50 %, estimated, 42 to 61 % of 38.4 GB/s attained here (wire: 51.2 GB/s) (told from latency)"
    )
    assert "100 % is 38.4 GB/s to 40.0 GB/s attained here (calibrated 2026-11-20); 51.2 GB/s on the wire" in (
        page.locator("#full-use").inner_text()
    )
    assert "Counters audited on 2026-11-30: memory.read wrong by the factor 2.00 [1.98, 2.02]" in (
        page.locator("#full-use").inner_text()
    )
    page.locator('[data-component="cpu:1"]').hover()
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text().startswith("CPU 1: 20 % of the core's miss buffers (")
    assert wrong_count == []
    page.close()


@pytest.mark.parametrize("screen", screens(1200, 390), ids=str)
@pytest.mark.parametrize("what", ["recording", "difference", "estimated"])
def test_axe_finds_no_violations(
    browser: Any, recording: str, machine: Header, difference: RecordingDifference, what: str, screen: Screen
) -> None:
    width, scheme = screen
    page, wrong_count = attentive(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
    if what == "recording":
        page.goto(recording)
        page.locator("#state", has_text="40 frames").wait_for()
    elif what == "difference":
        page.goto(served(StoredFrames(machine, 0, lambda *_: [], change=difference.to_json())))
        page.locator("#state", has_text="two recordings").wait_for()
    else:
        page.goto(served(estimated(machine)))
        page.locator("#state", has_text="1 frame").wait_for()
    if what != "difference":
        open_raster(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == []
    assert wrong_count == []
    page.close()


def small(seq: int) -> tuple[Header, Frame]:
    """Return a machine whose map has room for rates, and a frame of it."""
    header = Header(
        "host",
        "small",
        "",
        0.1,
        {
            "node": ({"name": "node 0", "number": 0},),
            "cpu": tuple({"name": f"CPU {i}", "number": i, "node": 0} for i in range(2)),
            "memory": ({"name": "memory 0", "node": 0},),
            "io": ({"name": "vda", "kind": "disk"}, {"name": "eth0", "kind": "network"}),
            "cache": ({"name": "L3", "level": 3, "size_bytes": 2**25, "cpus": [0, 1]},),
        },
        tuple(FrameMetric(f"{kind}.busy", "1", "busy", "time") for kind in ("cpu", "memory", "io")),
    )
    values: dict[str, list[float | None]] = {
        "cpu.busy": [0.5, 0.999],
        "cpu.user": [0.25, 0.0],
        "cpu.system": [0.25, 0.999],
        "memory.busy": [None],
        "node.used": [1.2345e9 * seq],
        "node.total": [2.0**34],
        "io.busy": [0.01, None],
        "io.in": [1.2e3 * seq, 0.0],
        "io.out": [4.56e9, 0.7],
    }
    return header, Frame(seq, 0.1 * seq, 0.1, values, at=1.7e9 + seq)


def test_a_small_machine_shows_names_shares_and_rates_together(browser: Any) -> None:
    header, _ = small(1)
    frames = [small(n)[1] for n in range(1, 4)]
    page, wrong_count = attentive(browser)
    page.goto(served(StoredFrames(header, 3, lambda begin, count: frames[begin : begin + count])))
    page.locator("#state", has_text="3 frames").wait_for()
    go_to(page, 2)
    shown_text = page.locator("#map text").all_text_contents()
    assert {"CPU 0", "50 %", "CPU 1", "100 %", "memory 0", "vda", "eth0"} <= {*shown_text}
    assert "L3 32\u00a0MiB, shared by 2 CPUs" in shown_text
    for kind in ("cpu", "memory", "io"):  # the same texts as in the terminal
        for i in range(header.count(kind)):
            assert rates(header, frames[2], kind, i) in shown_text, (kind, i)
    page.locator('[data-component="memory:0"]').hover()
    page.locator("#told", has_text="GiB used").wait_for()
    page.locator("#numbers").uncheck()
    page.wait_for_timeout(80)
    assert "50 %" not in page.locator("#map text").all_text_contents()
    assert wrong_count == []
    page.close()


def test_a_bar_shows_the_share_of_cycles_in_which_a_cpu_is_stalled(browser: Any) -> None:
    header, frame = small(1)
    counted = replace(header, metrics=(*header.metrics, FrameMetric("cpu.stalled", "1", "stalled", "unhalted cycles")))
    shares: list[float | None] = [0.25, None]
    frames = [replace(frame, values={**frame.values, "cpu.stalled": shares})]

    def lengths(machine: Header) -> list[float]:
        page, wrong_count = attentive(browser)
        page.goto(served(StoredFrames(machine, 1, lambda begin, count: frames[begin : begin + count])))
        page.locator("#state", has_text="1 frame").wait_for()
        go_to(page, 0)
        assert page.locator("#scale .barred").count() == (machine is counted)
        boxes = page.locator("#map [data-component^=cpu]").evaluate_all("e => e.map(b => +b.getAttribute('width'))")
        bars = page.locator("#map .bar").evaluate_all("e => e.map(b => +b.getAttribute('width'))")
        assert wrong_count == []
        page.close()
        return [bar / box for bar, box in zip(bars, boxes, strict=bool(bars))]

    assert lengths(counted) == pytest.approx([0.25, 0.0])
    assert lengths(header) == []


def test_names_stay_when_numbers_are_switched_on(page: Any) -> None:
    page.locator("#numbers").check()
    go_to(page, 0)
    texts = page.locator("#map text").all_text_contents()
    assert {"1", "20"} <= {*texts}  # CPU 1, which is 20 % busy


def test_the_map_can_be_zoomed_and_moved(page: Any) -> None:
    def view() -> list[float]:
        return [float(v) for v in page.locator("#map svg").get_attribute("viewBox").split()]

    view_text = view()
    page.locator("#closer").click()
    page.locator("#closer").click()
    x, y, w, h = view()
    assert w == pytest.approx(view_text[2] / 2.25) and h == pytest.approx(view_text[3] / 2.25)
    assert x + w / 2 == pytest.approx(view_text[2] / 2) and y + h / 2 == pytest.approx(view_text[3] / 2)
    box = page.locator("#map svg").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 80)
    page.mouse.up()
    assert view()[0] > x and view()[1] > y and view()[2:] == [pytest.approx(w), pytest.approx(h)]
    page.locator('[data-component="cpu:0"]').focus()
    page.keyboard.press("0")
    assert view() == pytest.approx(view_text)
    page.keyboard.press("+")
    assert view()[2] < view_text[2]
    page.keyboard.press("-")
    page.keyboard.press("-")  # the zoom stops at the whole map
    assert view() == pytest.approx(view_text)
