"""The live page of a fleet in a real browser: states, metrics, extremes and one node, by pointer and by keyboard."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from axe import Screen, screens, violations
from map_page import attentive

from meshmark.web.export.pull import NodeAddress
from meshmark.web.fleet.fleet import FleetParts, make_fleet_site
from meshmark.web.fleet.live_fleet import LiveFleet, NodeReport
from meshmark.web.fleet.remote_maps import RemoteMaps
from meshmark.web.listener import run
from support.made_push import text_of
from support.made_site import address_of

pytestmark = pytest.mark.browser

NODES = [f"n{i}" for i in range(1, 61)]
RACKS = {"r1": NODES[:24], "r2": NODES[24:48]}
CASES = {"n7": (True, "dgemm: a kernel computed a wrong result"), "n9": (False, "latency: 8.3 % worse")}
COLOURS = {"live": "#4f7290", "silent": "#e69f00", "named": "#f2701d", "wrong": "#f06db0", "never": ""}


def report(live: LiveFleet, number: int, at: float) -> None:
    values = {"cpu.busy": number / 100, "io.in": 1e9 * number}
    live.add(NodeReport(f"n{number}", 0, values, {"cpu.busy": "1", "io.in": "B/s"}), "10.0.0.1", at, time.time())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    live = LiveFleet(NODES, 600)
    time_s = time.monotonic()
    for number in range(1, 58):
        report(live, number, time_s if number != 4 else time_s - 1801)
    maps = RemoteMaps(lambda name: NodeAddress("127.0.0.1", 1) if name == "n5" else None, "")
    parts = FleetParts("hawk", live, RACKS, lambda: CASES, maps=maps)
    yield address_of(lambda say: run(lambda: make_fleet_site(parts, push_token="of-nodes"), "127.0.0.1", 0, "", say))


def colour_of(page: Any, rack: int, x: int, y: int) -> str:
    """Return the colour in the middle of a cell; "" if it is only outlined."""
    state: list[int] = page.evaluate(
        """([rack, x, y]) => {
             const canvas = document.querySelector(`canvas[data-rack="${rack}"]`);
             const size = 16 * (devicePixelRatio || 1);
             return [...canvas.getContext("2d").getImageData((x + 0.5) * size, (y + 0.5) * size, 1, 1).data]
           }""",
        [rack, x, y],
    )
    return "" if state[3] == 0 else "#" + bytes(state[:3]).hex()


def place(name: str) -> tuple[int, int, int]:
    """Return the rack, column and row of a node; row 0 is at the bottom of its rack."""
    index = NODES.index(name)
    return (index // 24, 0, 23 - index % 24) if index < 48 else (2, index - 48, 0)


@pytest.mark.parametrize("screen", screens(1400, 420), ids=str)
def test_the_map_the_extremes_and_one_node(browser: Any, address: str, screen: Screen) -> None:
    width, scheme = screen
    page, wrong_count = attentive(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(address)
    page.locator("#state", has_text="56 of 60 nodes report, 1 no longer, 3 have not reported, 2 with open").wait_for()
    for name, state in (("n1", "live"), ("n4", "silent"), ("n7", "wrong"), ("n9", "named"), ("n60", "never")):
        assert colour_of(page, *place(name)) == COLOURS[state], name
    page.locator("#list button", has_text="n7").wait_for()  # the list is updated within a second
    assert page.locator("#list button").all_inner_texts() == ["n7", "n9", "n4", "n58", "n59", "n60"]

    page.locator("#racks").focus()  # the first node of the first rack, at its bottom
    page.keyboard.press("ArrowUp")
    assert page.locator("#told").inner_text() == "n2: reports"
    page.keyboard.press("ArrowRight")
    assert page.locator("#told").inner_text() == "n26: reports"
    page.keyboard.press("PageUp")
    for _ in range(6):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.locator("#node-head", has_text="n7").wait_for()
    page.locator("#node-state", has_text="reports; computes wrongly; last report").wait_for()
    assert page.locator("#node-notes").inner_text() == "open case: dgemm: a kernel computed a wrong result"
    assert page.locator("#node-map").is_hidden()
    assert "cpu.busy of n7 in its last 1 reports" in page.locator("#node-plot").get_attribute("aria-label")
    page.locator("#node-values button", has_text="io.in").click()
    assert page.locator("#node-metric").inner_text() == "io.in"

    page.select_option("#metric", "cpu.busy")
    page.locator("#list-head", has_text="Extremes of cpu.busy").wait_for()
    page.locator("#list tbody tr", has_text="n57").wait_for()
    assert page.locator("#list tbody tr").first.inner_text().split() == ["n57", "57.0", "%"]
    assert colour_of(page, *place("n1")) == "#00224e" and colour_of(page, *place("n4")) == ""
    page.locator("#order input[value=low]").check()
    page.locator("#list tbody tr", has_text="n1").first.wait_for()
    page.locator("#list button", has_text="n5").first.click()
    page.locator("#node-head", has_text="n5").wait_for()
    page.locator("#node-map a").wait_for()
    assert page.locator("#node-map a").get_attribute("href") == "node/n5/"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert violations(page) == [] and wrong_count == []
    page.close()


def test_the_page_follows_what_nodes_send(browser: Any, address: str) -> None:
    page, wrong_count = attentive(browser)
    page.goto(address)
    page.select_option("#metric", "cpu.busy")
    page.locator("#list tbody tr").first.wait_for()

    def post(body: bytes) -> None:
        headers = {"content-type": "application/json", "authorization": "Bearer of-nodes"}
        urllib.request.urlopen(urllib.request.Request(f"{address}v1/metrics", body, headers), timeout=120).close()

    post(text_of("n58", cpu_busy=0.99))
    page.locator("#list tbody tr:first-child", has_text="n58").wait_for()  # a later row of the list by state
    assert page.locator("#list tbody tr").first.inner_text().split() == ["n58", "99.0", "%"]
    post(text_of("stranger", cpu_busy=0.01))  # the layout changes, and the selection stays
    page.locator("figcaption", has_text="not of the fleet").wait_for()
    assert page.locator("#metric").input_value() == "cpu.busy" and colour_of(page, *place("n58")) == "#fee838"
    post(text_of("n1", cpu_busy=0.5))  # comes from another address than before
    page.locator("#refused li", has_text="127.0.0.1 reports as n1, which is 10.0.0.1").wait_for()
    assert wrong_count == []
    page.close()
