"""The live map in a real browser: colours follow known use, hover and keyboard say it, time can be moved."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.watch.frames import Frame, Header, header_of
from meshmark.watch.terminal import PALETTES, step_of
from meshmark.web.hub import Hub, Past
from meshmark.web.server import serve

pytestmark = pytest.mark.browser


def known(seq: int) -> Frame:
    """Use that a test can compute again: every component of its own, moving with time, one CPU unknown."""
    counts = {"cpu": 16, "memory": 32, "link": 64, "io": 16}
    values: dict[str, list[float | None]] = {
        f"{kind}.busy": [((7 * i + 13 * seq) % 101) / 100 for i in range(count)] for kind, count in counts.items()
    }
    values["cpu.busy"][5] = None
    return Frame(seq, seq * 0.1, 0.1, values, at=1.7e9 + seq)


@pytest.fixture(scope="module")
def machine() -> Header:
    return header_of({**header_line(find_machine("gs1280-16"), 0.1), "source": "recording"})


def served(what: Hub | Past, port: int = 0) -> str:
    ready = threading.Event()
    addresses: list[str] = []

    def say(address: str) -> None:
        addresses.append(address)
        ready.set()

    threading.Thread(target=serve, args=(what, "127.0.0.1", port, "", say), daemon=True).start()
    assert ready.wait(10)
    return addresses[0]


@pytest.fixture(scope="module")
def recording(machine: Header) -> str:
    frames = [known(n) for n in range(1, 41)]
    return served(Past(machine, len(frames), lambda begin, count: frames[begin : begin + count]))


@pytest.fixture
def page(browser: Any, recording: str) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    wrong: list[str] = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.goto(recording)
    page.locator("#state", has_text="40 frames").wait_for()
    yield page
    assert wrong == []
    page.close()


def go_to(page: Any, number: int) -> None:
    page.locator("#scrubber").evaluate(f"e => {{ e.value = {number}; e.dispatchEvent(new Event('input')) }}")
    page.wait_for_timeout(80)


def colours_match(page: Any, frame: Frame, low: float = 0.0, high: float = 1.0, palette: str = "inferno") -> None:
    found = page.evaluate(
        """() => [...document.querySelectorAll('[data-component]')].map(e => {
             const style = getComputedStyle(e);
             return [e.dataset.component, e.tagName === 'polyline' ? style.stroke : style.fill, e.getAttribute('class')]
           })"""
    )
    assert len({f[0] for f in found}) == 16 + 32 + 64 + 16
    for name, colour, classes in found:
        kind, _, index = name.partition(":")
        step = step_of(frame.values[f"{kind}.busy"][int(index)], low, high)
        if step < 0:
            assert "unknown" in classes and "hatch" in colour
        else:
            wanted = PALETTES[palette][step]
            rgb = tuple(int(wanted[i : i + 2], 16) for i in (1, 3, 5))
            assert colour == f"rgb({rgb[0]}, {rgb[1]}, {rgb[2]})", name


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
    page.locator("#high").fill("20")  # nonsense is marked, and changes nothing
    assert page.locator("#high").get_attribute("aria-invalid") == "true"


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
            for _ in range(3):  # two directions of a link lie on the way
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
    shown = page.evaluate("() => [...document.querySelectorAll('svg text.label')].map(e => e.textContent)")
    assert "20" in shown and "?" in shown


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
    page.wait_for_timeout(1200)
    assert page.locator("#scrubber").input_value() == "39"


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1200, "dark")])
def test_it_fits_a_phone_and_everything_has_a_name(browser: Any, recording: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(recording)
    page.locator("#state", has_text="40 frames").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button,input,select,[role=img]')].filter(e =>
             !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML)"""
    )
    assert nameless == []
    page.close()


def test_live_frames_move_the_map_and_a_restart_is_survived(browser: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-c", "from meshmark.cli import main; main()", "watch", "--web", "--rate", "10",
             "--port", str(port)]  # fmt: skip

    def start() -> subprocess.Popen[str]:
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert child.stdout is not None
        assert child.stdout.readline().startswith("http://127.0.0.1")
        return child

    child = start()
    page = browser.new_page()
    try:
        time.sleep(0.5)
        page.goto(f"http://127.0.0.1:{port}/")
        page.locator("#state", has_text="live").wait_for()
        page.wait_for_timeout(1500)
        first = page.locator("#clock").inner_text()
        page.wait_for_timeout(600)
        assert page.locator("#clock").inner_text() != first
        assert page.locator('[data-component="memory:0"]').get_attribute("class").endswith("unknown")
        child.kill()
        child.wait()
        page.locator("#state", has_text="reconnecting").wait_for()
        child = start()
        page.locator("#state", has_text="live").wait_for(timeout=20000)
    finally:
        child.kill()
        child.wait()
        page.close()


def test_a_hot_spot_is_named_and_ringed(browser: Any) -> None:
    words = [sys.executable, "-c", "from meshmark.cli import main; main()", "watch", "--web", "--on", "gs1280-16",
             "--frames", "12", "--window", "1000", "--port", "0"]  # fmt: skip
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    page = browser.new_page()
    try:
        assert child.stdout is not None
        page.goto(child.stdout.readline().strip())
        page.locator("#state", has_text="12 frames").wait_for()
        go_to(page, 2)
        assert page.locator("#spots li").count() == 0  # a moment is no hot spot
        go_to(page, 11)
        assert page.locator("#spots li").inner_text().startswith("memory bound: memory 0.0, memory 0.1")
        assert page.locator(".ring").count() == 2
    finally:
        child.kill()
        child.wait()
        page.close()
