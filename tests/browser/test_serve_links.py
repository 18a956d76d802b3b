"""Every link of `meshmark serve`, on a store with every kind of run, leads to a page without errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import expect

from meshmark.cli.serve import LoadFolders, Runs
from meshmark.cli.watch.options import simulated
from meshmark.store.store import Store
from meshmark.watch.live import LiveSampler
from meshmark.web.listener import run
from meshmark.web.parts import ModelRow, SiteParts
from meshmark.web.site import make_site
from support import made_run
from support.made_load import made_load, made_study
from support.made_site import address_of, record

pytestmark = pytest.mark.browser

KINDS = {
    "n042-20261121T071528Z-4f2a": "survey",
    "measure-20261122T101112-0a1b2c3d": "measure",
    "load-20261122T101113-0a1b2c3d": "load",
    "study-20261122T101114-0a1b2c3d": "study",
    "advise-20261122T101115-0a1b2c3d": "advise",
    "model-20261122T101116-0a1b2c3d": "model",
    "sweep-gs1280-4-latency-0123456789": "sweep",
    "results of a friend": "import",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("everything")
    store = Store(folder / "store")
    records = made_run.everything()
    for name, kind in KINDS.items():
        source = "model" if kind in {"model", "sweep"} else "host"
        selected = records if kind == "survey" else [r for r in records if r.instrument in {"latency", "bandwidth"}]
        store.add(name, "step", [replace(r, source=source) for r in selected], (), "made-up")
    (folder / "recordings").mkdir()
    record(folder / "recordings" / "night.parquet")
    made_load(folder / "loads" / "quiet", {"traffic": [2.0, 2.1]})
    made_load(folder / "loads" / "busy", {"traffic": [3.0, 3.1]})
    made_study(folder / "loads" / "bus")
    parts = SiteParts(
        machine=("n042", "a machine"),
        start=lambda: LiveSampler(5),
        recordings=folder / "recordings",
        models=[ModelRow("gs1280-4", "a machine of 4")],
        workloads=["hot_spot"],
        simulate=lambda machine, workload: simulated(machine, workload, None, 20, 500e-9),
        runs=(runs := Runs(folder / "store", folder / "runs")).rows,
        report=runs.report,
        compared=runs.compared,
        loads=LoadFolders((folder / "loads",)),
    )
    yield address_of(lambda say: run(lambda: make_site(parts), "127.0.0.1", 0, "", say))


LINKS = """() => [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href')).concat(
  [...document.querySelectorAll('form[action]')].map(f =>
    f.getAttribute('action').split('#')[0] + '?' + new URLSearchParams(new FormData(f))))"""


def test_every_link_leads_to_a_page_without_errors(browser: Any, site: str) -> None:
    page = browser.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(f"{page.url}: {e}"))
    page.on("console", lambda m: problems.append(f"{page.url}: {m.text}") if m.type == "error" else None)
    visited: set[str] = set()
    todo = [site]
    while todo:
        address = todo.pop().split("#")[0]
        if address in visited or not address.startswith(site):
            continue
        visited.add(address)
        answer = page.request.get(address, timeout=120_000)
        assert answer.status == 200, address
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        page.goto(address, wait_until="domcontentloaded", timeout=120_000)
        # Reports link to their own sections, and maps have one link back.
        todo += [urljoin(page.url, href) for href in page.evaluate(LINKS) if not href.startswith("data:")]
    assert problems == []
    for part in ("report/", "recording/", "live/", "load/run/", "load/study/", "load/compare?", "model?", "metrics"):
        assert any(part in address.removeprefix(site) for address in visited), part
    assert sum("/report/" in address for address in visited) == len(KINDS)
    page.close()


def test_runs_are_listed_by_what_they_are_and_can_be_filtered(browser: Any, site: str) -> None:
    page = browser.new_page()
    page.goto(site)
    rows = page.get_by_role("table").filter(has_text="instruments").get_by_role("row")
    names = {row.split("\t")[0]: row.split("\t")[1] for row in rows.all_inner_texts()[1:]}
    assert names == KINDS
    page.get_by_role("combobox", name="Kind").select_option("model")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(2)  # a click does not wait for the page that it leads to
    assert [row.split("\t")[1] for row in rows.all_inner_texts()[1:]] == ["model"]
    page.get_by_role("link", name="Show all").click()
    expect(rows).to_have_count(1 + len(KINDS))
    page.get_by_role("searchbox").fill("FRIEND bandwidth")
    page.get_by_role("button", name="Filter").press("Enter")
    expect(rows).to_have_count(2)
    assert [row.split("\t")[0] for row in rows.all_inner_texts()[1:]] == ["results of a friend"]
    page.get_by_role("searchbox").fill("nothing like this")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_role("region", name="Runs and reports").get_by_text("no run matches")).to_have_count(1)
    page.close()
