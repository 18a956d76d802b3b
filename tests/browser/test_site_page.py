"""The front page of `meshmark serve` in a real browser: dark and light, on a phone, by keyboard, with links to the
maps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import Screen, screens, violations

from meshmark.cli.serve import LoadFolders
from meshmark.cli.watch.options import simulated
from meshmark.watch.frames import Frame, FrameMetric, Header
from meshmark.watch.live import LiveSampler
from meshmark.watch.recording import Recorder
from meshmark.web.listener import run
from meshmark.web.parts import ModelRow, RunRow, SiteParts
from meshmark.web.site import make_site
from support.made_load import made_load, made_study
from support.made_site import address_of

pytestmark = pytest.mark.browser

LONG = "a-recording-with-a-name-that-is-longer-than-a-phone-is-wide-2026-11-21.parquet"
REPORT = b"""<!doctype html><title>report</title><p id=said>no</p><script>
try { localStorage.x = document.cookie } catch (e) { document.getElementById('said').textContent = 'alone' }
</script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("recordings")
    header = Header(
        "host",
        "n042",
        "2026-11-20T22:00:00Z",
        1.0,
        {"node": ({"name": "node 0", "number": 0},), "cpu": ({"name": "CPU 0", "node": 0, "number": 0},)},
        (FrameMetric("cpu.busy", "1", "busy", "time"),),
    )
    with Recorder(folder / LONG, header) as recorder:
        for n in range(1, 31):
            recorder.add(Frame(n, float(n), 1.0, {"cpu.busy": [n / 30]}, at=1.7e9 + n))
    (folder / "cut.parquet").write_bytes(b"PAR1 and no more")
    loads: Path = tmp_path_factory.mktemp("loads")
    made_load(loads / "quiet", {"traffic": [2.0, 2.1], "a-program-with-quite-a-long-name": [1.0]}, moved=3e9)
    made_load(loads / "busy", {"traffic": [3.0, 3.1], "rival": [2.0]}, waiting=0.4, died=["rival"])
    made_load(loads / "cut-with-a-name-that-is-longer-than-a-phone-is-wide-2026", {"traffic": [1.0]}, cut=True)
    made_study(loads / "bus")
    made_study(loads / "matrix", "interference_matrix")
    made_study(loads / "half", finished=False)
    parts = SiteParts(
        machine=("n042", "2 packages, 2 nodes, 64 cores · 256 GiB · Linux 6.12"),
        start=lambda: LiveSampler(5),
        recordings=folder,
        models=[ModelRow(n, f"the machine {n}, as its makers described it") for n in ("gs1280-4", "gs1280-8", "p690")],
        workloads=["hot_spot", "swap"],
        simulate=lambda machine, workload: simulated(machine, workload, None, 20, 500e-9),
        runs=lambda: [
            RunRow("survey", "survey-1", "n042", "2026-11-21T07:15:28Z", 412, ["latency", "bandwidth", "lines"])
        ],
        report=lambda _: REPORT,
        compared=lambda a, b: REPORT,
        loads=LoadFolders((loads,)),
    )
    yield address_of(lambda say: run(lambda: make_site(parts), "127.0.0.1", 0, "", say))


@pytest.fixture(params=screens(1200, 360), ids=str)
def page(browser: Any, site: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": 900 if width > 1000 else 740}, color_scheme=scheme)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(site)
    yield page
    assert problems == []
    page.close()


CONTRAST = """() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => { const [r, g, b] = rgb.slice(0, 3).map(v => { v /= 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 }); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0.99) return c } return [255, 255, 255] };
  const found = [];
  for (const e of document.querySelectorAll('h1, h2, h3, p, a, th, td, li, button, select, code, span, footer')) {
    if (!e.innerText.trim()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push([e.tagName, e.className, e.innerText.slice(0, 30), ratio]);
  }
  return found }"""


def test_it_fits_and_can_be_read(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(CONTRAST) == []
    # No table is cut off, not even on a phone.
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (ground == "rgb(20, 23, 26)") == dark
    small = page.evaluate(
        "() => [...document.querySelectorAll('a.button, button, select')]"
        ".filter(e => e.getBoundingClientRect().height < 28).map(e => e.outerHTML)"
    )
    assert small == []  # large enough for a finger


def test_a_screen_reader_finds_its_way(page: Any) -> None:
    assert page.get_by_role("main").count() == page.get_by_role("heading", level=1).count() == 1
    for name in ("This machine, live", "Recordings", "Runs and reports", "Simulated machines"):
        assert page.get_by_role("region", name=name, exact=True).count() == 1
    assert page.get_by_role("combobox", name="workload of gs1280-8").count() == 1
    assert page.get_by_role("button", name="simulate p690").count() == 1
    assert page.get_by_role("columnheader", name="length").count() == 1
    assert page.get_by_role("row", name="cut.parquet").inner_text().count("truncated or corrupt") == 1
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('a, button, select')]"
        ".filter(e => !(e.innerText || e.getAttribute('aria-label') || '').trim()).length"
    )
    assert unnamed == 0


def test_a_workload_leads_to_its_map(page: Any) -> None:
    page.get_by_role("combobox", name="workload of gs1280-8").select_option("swap")
    page.get_by_role("button", name="simulate gs1280-8").press("Enter")
    page.locator("#state", has_text="20 frames").wait_for()
    assert page.url.endswith("/model/gs1280-8/swap/")
    assert page.locator('[data-component^="cpu:"]').count() == 8


def test_a_recording_and_the_live_map_open(page: Any) -> None:
    page.get_by_role("link", name=LONG).click()
    page.locator("#state", has_text="30 frames").wait_for()
    page.get_by_role("link", name="all machines").click()
    page.get_by_role("link", name="Open the live map").click()
    page.locator('[data-component="cpu:0"]').wait_for()
    assert page.url.endswith("/live/")


def test_a_report_is_alone_with_itself(browser: Any, site: str) -> None:
    context = browser.new_context()
    context.add_cookies([{"name": "meshmark", "value": "secret", "url": site}])
    page = context.new_page()
    page.goto(site)
    page.get_by_role("link", name="survey-1").click()
    page.locator("#said", has_text="alone").wait_for(timeout=5000)
    context.close()


# ------------------------------------------------------------------ loads

LOADS = ("", "run/quiet", "run/busy", "study/bus", "study/matrix", "compare?a=quiet&b=busy")


@pytest.mark.parametrize("screen", screens(1200, 360), ids=str)
@pytest.mark.parametrize("path", LOADS)
def test_axe_finds_nothing_to_object_to_in_loads(browser: Any, site: str, path: str, screen: Screen) -> None:
    width, scheme = screen
    # Pages of runs are sandboxed without permissions, so they may not run the scripts that a test injects.
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(site + "load/" + path)
    if path.startswith("study"):
        page.locator(".chart svg.marks").first.wait_for(timeout=20000)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == []
    assert problems == []
    page.close()


def test_loads_are_read_and_reached_with_keys(browser: Any, site: str) -> None:
    for width, height in ((1200, 900), (360, 740)):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(site)
        page.get_by_role("link", name="Open loads and studies").press("Enter")
        page.get_by_role("heading", level=1, name="Loads and studies").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.scrollWidth <= e.clientWidth)")
        for name in ("Runs", "Compare two runs", "Studies"):
            assert page.get_by_role("region", name=name, exact=True).count() == 1
        assert page.get_by_role("link", name="half").count() == 0
        page.get_by_role("combobox", name="A", exact=True).select_option("quiet")
        page.get_by_role("combobox", name="B", exact=True).select_option("busy")
        page.get_by_role("button", name="Compare").press("Enter")
        page.get_by_role("heading", level=1, name="quiet and busy").wait_for()
        assert page.get_by_role("img", name=re.compile("Gantt chart of [AB]: ")).count() == 2
        page.go_back()
        page.get_by_role("link", name="busy").click()
        page.get_by_role("img", name="Gantt chart of made").wait_for()
        page.close()


def test_a_study_is_drawn_alone_with_itself(browser: Any, site: str) -> None:
    page = browser.new_page()
    problems: list[str] = []
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(site + "load/study/matrix")
    page.locator("#chart-interference_matrix svg.marks").wait_for(timeout=20000)
    assert page.locator("#chart-interference_matrix").inner_text().count("1.34")
    assert problems == []
    page.close()
