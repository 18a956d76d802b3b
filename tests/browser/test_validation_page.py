"""The validation page in a real browser: opens from a file, draws every chart, stays within the window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from meshmark.validation.models.validate import validate
from meshmark.validation.models_page import CHARTS, write_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(validate(), tmp_path_factory.mktemp("validation"), "a test")[0][0]


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (390, "light")])
def test_every_chart_and_statement_is_there(browser: Any, page_file: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(page_file.as_uri())
    for name in CHARTS:
        chart = page.locator(f"#chart-{name} svg.marks")
        chart.wait_for(timeout=20000)
        assert chart.locator("path").count() > 3, name
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    document = json.loads(page_file.with_suffix(".json").read_text())
    assert page.locator("td.verdict").count() == len(document["statements"]) == 86
    assert page.locator("td.verdict.in").count() == sum(role["inside"] for role in document["scores"].values())
    assert page.locator("text=cannot be drawn").count() == 0
    page.close()
