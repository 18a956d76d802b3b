"""The live map in a real browser: colours follow known use, hover and keyboard say it, time can be moved."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import violations

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.terminal.map import step_of
from meshmark.watch.difference import Difference, Side, compare
from meshmark.watch.frames import USE, Frame, Header, header_of
from meshmark.watch.palette import PALETTES
from meshmark.watch.recording import Recorder
from meshmark.web.hub import Hub, Past
from meshmark.web.page import packed_difference, packed_recording, thinned, write_page
from meshmark.web.server import serve
from support.cli import start as start_command
from support.waiting import listening, take, until

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


def attentive(browser: Any, **how: Any) -> tuple[Any, list[str]]:
    """A page, and what goes wrong in it."""
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 1000}, **how})
    wrong: list[str] = []
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    return page, wrong


@pytest.fixture
def page(browser: Any, recording: str) -> Iterator[Any]:
    page, wrong = attentive(browser)
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


def test_the_page_begins_with_the_colours_that_the_command_was_asked_for(browser: Any, machine: Header) -> None:
    frames = [known(n) for n in range(1, 5)]

    def viewed(view: Any) -> str:
        return served(Past(machine, 4, lambda begin, count: frames[begin : begin + count], view=view))

    asked = viewed({"low": 1, "high": 10, "palette": "cividis"})
    none, spoiled = viewed(None), viewed({"low": "x", "palette": "constructor"})
    page, wrong = attentive(browser)
    page.goto(asked)
    page.locator("#state", has_text="4 frames").wait_for()
    go_to(page, 3)
    colours_match(page, known(4), 0.01, 0.1, "cividis")
    assert (page.locator("#low").input_value(), page.locator("#high").input_value()) == ("1", "10")
    assert page.evaluate("localStorage.getItem('palette')") is None  # asked for once, not the reader's choice
    for address in (none, spoiled):
        page.goto(address)
        page.locator("#state", has_text="4 frames").wait_for()
        go_to(page, 3)
        colours_match(page, known(4))
    assert wrong == []
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
    assert until(lambda: page.locator("#scrubber").input_value() == "39")


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
    words = ["watch", "--web", "--rate", "10", "--port", str(port), "--to", "50"]
    base = f"http://127.0.0.1:{port}/"

    def start() -> subprocess.Popen[str]:
        # A token that stays: with a random one, who looked before the restart needs the new link.
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
        page.locator("#high").fill("20")
        child.kill()
        child.wait()
        page.locator("#state", has_text="reconnecting").wait_for()
        child = start()
        page.locator("#state", has_text="live").wait_for(timeout=20000)
        assert page.locator("#high").input_value() == "20"  # what the reader chose stays
    finally:
        child.kill()
        child.wait()
        page.close()


def test_a_hot_spot_is_named_and_ringed(browser: Any) -> None:
    words = ["watch", "--web", "--on", "gs1280-16", "--frames", "12", "--window", "1us", "--port", "0"]
    child = start_command(*words, stderr=subprocess.DEVNULL)
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


@pytest.fixture
def offline(browser: Any) -> Iterator[Any]:
    """A page without a network, in which every request but that of the file itself is an error."""
    page, wrong = attentive(browser)
    page.context.set_offline(True)
    page.on("request", lambda r: None if r.url.startswith(("file:///", "data:,")) else wrong.append(r.url))
    yield page
    assert wrong == []
    page.close()


def exported(machine: Header, tmp_path: Path, frames: list[Frame]) -> str:
    write_page(tmp_path / "page.html", "test", packed_recording(machine, frames, len(frames)))
    return (tmp_path / "page.html").as_uri()


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


def test_one_file_says_that_it_is_thinned(
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
    wanted = [known(n).values["cpu.busy"] for n in (1, 2, 3)]
    means = [None if None in vs else sum(v or 0 for v in vs) / 3 for vs in zip(*wanted, strict=True)]
    offline.locator('[data-component="cpu:1"]').hover()
    offline.wait_for_timeout(80)
    assert means[1] is not None
    assert offline.locator("#told").inner_text().startswith(f"CPU 1: {100 * means[1]:.0f} %")


def test_a_server_says_that_it_is_thinned(browser: Any, machine: Header, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.web.page.MAX_FRAMES", 600)
    frames = [known(n) for n in range(1, 1402)]
    page, wrong = attentive(browser)
    page.goto(served(Past(*thinned(machine, 1401, lambda begin, count: frames[begin : begin + count]))))
    page.locator("#state", has_text="467 frames").wait_for()
    assert "the mean of 3" in page.locator("#thinned").inner_text()
    assert wrong == []
    page.close()


def test_a_page_that_is_spoiled_says_so(offline: Any, machine: Header, tmp_path: Path) -> None:
    exported(machine, tmp_path, [known(1)])
    whole = (tmp_path / "page.html").read_text()
    at = whole.index('id="data">') + 200
    (tmp_path / "page.html").write_text(whole[:at] + "AAAA" + whole[at + 400 :])
    offline.goto((tmp_path / "page.html").as_uri())
    offline.locator("#state", has_text="cannot be unpacked").wait_for()


def open_raster(page: Any) -> None:
    page.locator("#raster summary").click()
    page.wait_for_timeout(500)


def raster_steps(page: Any, band: str, row: int, palette: str = "inferno") -> list[int]:
    """Steps of colour of a row of the raster, column by column; -1: not known, -2: no frame."""
    colours = page.evaluate(
        """([band, row]) => {
             const canvas = document.querySelector(`canvas[data-band=${band}]`);
             const data = canvas.getContext('2d').getImageData(0, row, canvas.width, 1).data;
             return Array.from({length: canvas.width}, (_, i) => data[4 * i + 3] === 0 ? '' :
               '#' + [0, 1, 2].map(k => data[4 * i + k].toString(16).padStart(2, '0')).join(''))
           }""",
        [band, row],
    )
    return [-2 if not c else PALETTES[palette].index(c) if c in PALETTES[palette] else -1 for c in colours]


def test_the_raster_has_every_component_at_every_time(page: Any) -> None:
    open_raster(page)
    page.wait_for_timeout(300)
    for kind, row in (("cpu", 3), ("cpu", 5), ("memory", 31), ("link", 63), ("io", 0)):
        wanted = [step_of(known(n).values[f"{kind}.busy"][row], 0, 1) for n in range(1, 41)]
        assert raster_steps(page, kind, row) == wanted
    page.locator("#palette").select_option("cividis")
    page.locator("#narrow").click()
    page.wait_for_timeout(100)
    wanted = [step_of(known(n).values["cpu.busy"][3], 0.01, 0.1) for n in range(1, 41)]
    assert raster_steps(page, "cpu", 3, "cividis") == wanted
    assert page.locator(".band span").all_inner_texts() == ["CPUs", "memory", "links", "I/O"]


def test_the_raster_tells_and_jumps_by_mouse_and_by_keys(page: Any) -> None:
    go_to(page, 0)
    open_raster(page)
    page.wait_for_timeout(300)
    canvas = page.locator("canvas[data-band=cpu]")
    box = canvas.bounding_box()
    at = {"x": (20 + 0.5) / 40 * box["width"], "y": 3.5 / 16 * box["height"]}
    canvas.hover(position=at)
    page.wait_for_timeout(80)
    use = known(21).values["cpu.busy"][3]
    assert page.locator("#told").inner_text() == f"CPU 3 at 2.1 s: {100 * (use or 0):.0f} %"
    assert page.locator("#scrubber").input_value() == "0"
    canvas.click(position=at)
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


def test_the_raster_is_remembered(browser: Any, recording: str) -> None:
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
    assert len(raster_steps(page, "cpu", 0)) == 40  # drawn without a touch
    context.close()


def test_a_long_recording_has_columns_of_several_frames_and_a_held_machine_no_gap(
    offline: Any, machine: Header, tmp_path: Path
) -> None:
    frames = [known(n) for n in range(1, 3001) if not 1000 < n < 1500]
    held = frames[1000]
    assert held.seq == 1500
    held.window_s = 50.0
    held.values["cpu.busy"][2] = 0.95
    offline.goto(exported(machine, tmp_path, frames))
    offline.locator("#state", has_text="2501 frames").wait_for()
    open_raster(offline)
    steps = raster_steps(offline, "cpu", 2)
    assert len(steps) == 750  # of four ticks each
    assert steps[260:370] == [9] * 110
    wanted = [known(n).values["cpu.busy"][2] or 0 for n in (1, 2, 3, 4)]
    assert steps[0] == step_of(sum(wanted) / 4, 0, 1)


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

    page, wrong = attentive(browser)
    page.goto(served(Hub(big, frames())))
    page.locator("#state", has_text="live").wait_for()
    open_raster(page)
    assert until(lambda: raster_steps(page, "cpu", 399).count(-2) < 75)
    assert wrong == []
    page.close()


@pytest.fixture(scope="module")
def difference(machine: Header) -> Difference:
    def frames(after: bool) -> list[Frame]:
        made = [known(n) for n in range(1, 102)]  # every component passes through all of its use
        for f in made:
            if after:
                f.values["memory.busy"][0] = 0.9
                f.values["link.busy"][3] = 0.2
        return made

    sides = [Side(f"{n}.parquet", machine, 101, frames(n == "after")) for n in ("before", "after")]
    return compare(*sides)


def test_a_difference_is_a_map_of_changes(browser: Any, machine: Header, difference: Difference) -> None:
    page, wrong = attentive(browser)
    page.goto(served(Past(machine, 0, lambda *_: [], change=difference.to_json())))
    page.locator("#state", has_text="two recordings").wait_for()
    classes = {
        n: page.locator(f'[data-component="{n}"]').first.get_attribute("class")
        for n in ("memory:0", "link:3", "memory:1", "cpu:5")
    }
    # +40 and -30 points of ±50: the ninth and the third of ten steps.
    assert classes == {"memory:0": "box s9", "link:3": "link s2", "memory:1": "box unsure", "cpu:5": "box unknown"}
    fill = page.locator('[data-component="memory:0"]').evaluate("e => getComputedStyle(e).fill")
    assert fill == "rgb(103, 0, 31)"  # more is red
    page.locator('[data-component="memory:0"]').hover()
    told = page.locator("#told").inner_text()
    assert told.startswith("memory 0.0: 50.0 % → 90.0 %, +40.0 points (95 % interval +") and "not dist" not in told
    page.locator('[data-component="memory:1"]').hover()
    assert page.locator("#told").inner_text().endswith("): not distinguishable from no change")
    page.locator('[data-component="cpu:5"]').hover()
    assert page.locator("#told").inner_text() == "CPU 5: not known: not known at this tick (before.parquet)"
    scale = page.locator("#scale li").all_inner_texts()
    assert scale[:2] == ["−50", "−40"] and scale[10:] == ["+50 points", "not distinguishable", "not known"]
    page.locator("#most-100").click()
    assert page.locator('[data-component="memory:0"]').get_attribute("class") == "box s7"
    page.locator("#most").fill("-3")
    assert page.locator("#most").get_attribute("aria-invalid") == "true"
    page.locator("#numbers").check()
    shown = page.evaluate("() => [...document.querySelectorAll('svg text.label')].map(e => e.textContent)")
    assert "+40" in shown
    rows = page.locator("#changes tbody tr").all_inner_texts()
    assert rows[0].split("\t")[:4] == ["memory 0.0", "50.0", "90.0", "+40.0"]
    assert rows[1].split("\t")[3] == "−30.0"
    assert page.locator("#changed").inner_text().startswith("2 of 127 components changed distinguishably")
    assert page.locator("#time").is_hidden() and page.locator("#range").is_hidden()
    assert wrong == []
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
    page, wrong = attentive(browser)
    try:
        assert child.stdout is not None
        page.goto(child.stdout.readline().strip())
        page.locator("#state", has_text="two recordings").wait_for()
        page.locator('[data-component="memory:7"]').focus()
        assert (
            page.locator("#told").inner_text().endswith("20.0 % → 80.0 %, +60.0 points (95 % interval +60.0 to +60.0)")
        )
        assert wrong == []
    finally:
        child.kill()
        child.wait()
        page.close()


def test_a_difference_is_one_file_too(offline: Any, machine: Header, difference: Difference, tmp_path: Path) -> None:
    write_page(tmp_path / "d.html", "test", packed_difference(machine, difference))
    offline.goto((tmp_path / "d.html").as_uri())
    offline.locator("#state", has_text="two recordings").wait_for()
    assert offline.locator('[data-component="memory:0"]').get_attribute("class") == "box s9"
    assert offline.locator("#changes tbody tr").count() == 100  # and says that there are more
    assert "27 smaller ones are not in this table" in offline.locator("#changed").inner_text()


def estimated(machine: Header) -> Past:
    """Memory coloured by an estimate, and bandwidths that 1 of it is; links know one only."""
    header = Past(machine, 0, lambda *_: []).header_json
    memory = {"name": "memory.pressure", "unit": "1", "what": "told from latency", "of": "bandwidth", "estimated": True}
    frame = known(1)
    values: dict[str, list[float | None]] = {
        "memory.pressure": [0.5, None, *[0.25] * 30],
        "memory.pressure_low": [0.42, None, *[0.1] * 30],
        "memory.pressure_high": [0.61, None, *[0.3] * 30],
    }
    frame.values |= values
    past = Past(machine, 1, lambda begin, count: [frame][begin : begin + count])
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
    }
    return past


def test_estimates_are_marked_and_bandwidths_are_told(browser: Any, machine: Header) -> None:
    page, wrong = attentive(browser)
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
    page.locator('[data-component="cpu:1"]').hover()
    page.wait_for_timeout(80)
    assert page.locator("#told").inner_text().startswith("CPU 1: 20 % of the core's miss buffers (")
    assert wrong == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("what", ["recording", "difference", "estimated"])
def test_axe_finds_nothing_to_object_to(
    browser: Any, recording: str, machine: Header, difference: Difference, what: str, width: int, scheme: str
) -> None:
    page, wrong = attentive(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
    if what == "recording":
        page.goto(recording)
        page.locator("#state", has_text="40 frames").wait_for()
    elif what == "difference":
        page.goto(served(Past(machine, 0, lambda *_: [], change=difference.to_json())))
        page.locator("#state", has_text="two recordings").wait_for()
    else:
        page.goto(served(estimated(machine)))
        page.locator("#state", has_text="1 frame").wait_for()
    if what != "difference":
        open_raster(page)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == []
    assert wrong == []
    page.close()
