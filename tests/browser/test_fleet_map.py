"""The page of a fleet in a real browser: opened from a file without a network, on wide and narrow screens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe import Screen, screens, violations

from meshmark.fleet.folder import Fleet
from meshmark.fleet.overview import overview
from meshmark.fleet.site import Site
from meshmark.views.pages.fleet import fleet_page
from support.many_nodes import fleet_with_cases, points

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    fleet_with_cases(Fleet(folder), [f"n{i:02d}" for i in range(1, 41)], points(6))
    page = folder / "fleet.html"
    page.write_text(fleet_page(overview(Fleet(folder), Site(racks={"r1": "n[01-30]"}))), encoding="utf-8")
    return page


@pytest.mark.parametrize("screen", screens(1400, 420), ids=str)
def test_the_map_shows_states_and_metrics(browser: Any, file: Path, screen: Screen) -> None:
    width, scheme = screen
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(file.as_uri())
    page.locator("#chart-class-0 svg.marks").wait_for(timeout=20000)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    slow, details = page.locator('[data-n="n07"]'), page.locator("#map-node")
    assert slow.get_attribute("class") == "m-named" and page.locator(".m-wrong[data-n]").count() == 1
    slow.hover()
    assert "n07: latency, 16\u00a0KiB: 8.3\u00a0% worse" in details.inner_text()
    page.select_option("#map-metric", label="latency, 16\u00a0KiB")
    assert slow.get_attribute("class") == "m-w4"
    page.locator('[data-n="n01"]').hover()
    slow.hover()
    assert "standard deviations worse than its class" in details.inner_text()
    assert violations(page) == [] and problems == []
    page.select_option("#map-metric", label="state")
    assert slow.get_attribute("class") == "m-named"
    page.close()
