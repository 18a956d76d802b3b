"""Test the site of shared results in a browser, opened from a disk without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshmark.views.shared.check import checked_text
from meshmark.views.shared.reduce import shared_result
from meshmark.views.shared.site import write_site
from support.made_shared import quiet_records, run, scaled


def titles(page: Any) -> list[str]:
    return list(page.locator("#table tbody tr:visible td:nth-child(2) a").all_inner_texts())


def test_machines_are_sorted_searched_and_compared(offline: Any, tmp_path: Path) -> None:
    slow = scaled("bandwidth", "bandwidth_net", 0.5)
    fast = shared_result(quiet_records(), run(), "A fast one")
    index = write_site([checked_text(slow.text), checked_text(fast.text)], tmp_path / "html", "Ours")
    offline.goto(index.as_uri())
    by_bandwidth = offline.get_by_role("button", name="Triad, all CPUs")
    by_bandwidth.click()
    assert titles(offline)[1] == "A fast one", "ascending"
    by_bandwidth.click()
    assert titles(offline)[0] == "A fast one", "descending"
    offline.get_by_label("Search").fill("FAST one")
    assert len(titles(offline)) == 1
    offline.get_by_label("Search").fill("")
    compare = offline.get_by_role("button", name="Compare")
    assert compare.is_disabled()
    for box in offline.locator("#table tbody input").all():
        box.check()
    compare.click()
    offline.locator("#chart-bandwidth svg.marks").wait_for()
    offline.locator("#chart-latency svg.marks").wait_for()
    triad = offline.locator("#table tr", has_text="Triad bandwidth, all CPUs").inner_text()
    assert "× 0.500" in triad, triad
    offline.get_by_role("link", name="All machines").click()
    offline.get_by_role("link", name="A fast one").click()
    offline.locator("#chart-latency svg.marks").wait_for()
    assert offline.locator("h1").inner_text() == "A fast one"
