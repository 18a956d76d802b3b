"""The comparison of two machines in a real browser: from a file without a network, on wide and narrow screens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from axe import Screen, screens, violations

from meshmark.compare.join import compare
from meshmark.compare.sides import ResultSide
from meshmark.store.record import Record, median, median_interval
from meshmark.views.pages.comparison import comparison_page
from support.made_run import everything, repeated

pytestmark = pytest.mark.browser


def scaled(r: Record, factor: float) -> Record:
    samples = tuple(s * factor for s in r.samples)
    return replace(r, machine="n043", samples=samples, value=median(samples), interval=median_interval(samples))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def side(name: str, records: list[Record]) -> ResultSide:
        facts = {"kernel": f"6.1 of {name}"}
        start = "2026-11-25T10:00:00Z"
        return ResultSide(name=name, what="made", machine=name, start=start, records=records, facts=facts)

    a = repeated(everything())
    b = [scaled(r, 1.2 if r.unit == "s" else 0.9) for r in a if r.instrument != "io"]
    b[0] = replace(b[0], flags=frozenset({"stolen"}))
    page = tmp_path_factory.mktemp("compare") / "comparison.html"
    page.write_text(comparison_page([compare(side("n042", a), side("n043", b))]), encoding="utf-8")
    return page


@pytest.mark.parametrize("screen", screens(1400, 420), ids=str)
def test_the_page_is_whole_and_axe_finds_no_violations(browser: Any, file: Path, screen: Screen) -> None:
    width, scheme = screen
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.goto(file.as_uri())
    for name in ("means", "latency", "bandwidth"):
        page.locator(f"#chart-{name} svg.marks").wait_for(timeout=20000)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == [] and problems == []
    assert page.locator("td.verdict.out").count() > 20, "B is slower"
    assert page.locator("text=cannot be drawn").count() == 0
    page.close()
