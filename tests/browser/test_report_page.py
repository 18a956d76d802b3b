"""The report in a real browser: it opens from a file without a network, draws everything, and reacts to the mouse."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from meshmark.views.pages.build import SECTIONS, write_report
from meshmark.views.pages.pdf import BROWSERS, print_pdf
from support import made_run
from support.made_profile import recorded
from support.made_rating import rated

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    records = [*made_run.everything(), *made_run.latency(flags=["disturbed"])[:3], made_run.experiment(1.0, 1.1, 1.2)]
    for program in (made_run.pop, made_run.gyro, made_run.swim, made_run.anatomy):
        records += program(count=4)  # phases are drawn over several numbers of ranks
    records += recorded("stream", "solver")
    records += [rated("N=1", "A", 98.0, 99.0, 101.0), rated("N=2", "B", 60.0, 90.0, 92.0)]
    return write_report(records, made_run.absences(), made_run.run_info(), out).html


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_every_chart_is_drawn_within_the_page(browser: Any, report: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    problems: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: requests.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto(report.as_uri())
    for section in SECTIONS:
        chart = page.locator(f"#chart-{section.name} svg.marks")
        chart.wait_for(timeout=20000)
        assert chart.locator("path").count() > 3, section.name
    assert problems == [] and requests == []
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0, f"the page is {overflow} px wider than the window"
    assert page.locator("text=cannot be drawn").count() == 0
    page.close()


def test_the_mouse_shows_the_distribution(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900}, offline=True)
    page.goto(report.as_uri())
    page.locator("#chart-gups svg.marks").wait_for(timeout=20000)
    page.locator("#chart-gups path[aria-roledescription='bar']").first.hover()
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for(timeout=5000)
    text = tip.inner_text()
    for word in ("median", "interval", "best", "worst", "spread", "distribution", "samples", "flags"):
        assert word in text
    page.close()


def test_tables_and_commands_open(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1200, "height": 900}, offline=True)
    page.goto(report.as_uri())
    page.locator("#latency summary", has_text="results as a table").click()
    assert page.locator("#latency table.data tbody tr").count() > 40
    page.locator("#latency summary", has_text="Commands to repeat").click()
    assert "meshmark measure latency" in page.locator("#latency pre").inner_text()
    page.close()


@pytest.mark.parametrize("width", [420, 1900])
def test_a_print_from_any_window_is_light_and_as_wide_as_the_page(browser: Any, report: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark", offline=True)
    page.goto(report.as_uri())
    page.locator("#chart-latency svg.marks").wait_for(timeout=20000)
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("document.body.style.width = '703px'")  # A4 without its margins; a print does not resize the window
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 704)"
        ".map(e => e.closest('section')?.id)"
    )
    assert wide == []
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    ink = "getComputedStyle(document.querySelector('#chart-latency .role-axis-label text')).fill"
    assert page.evaluate(ink) == page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 32, 36)"
    page.close()


@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="no browser that prints; apt-get install chromium")
def test_the_page_is_printed_to_a_file(report: Path, tmp_path: Path) -> None:
    print_pdf(report, tmp_path / "report.pdf")
    text = (tmp_path / "report.pdf").read_bytes()
    assert text.startswith(b"%PDF-") and b"/MediaBox [0 0 594" in text
