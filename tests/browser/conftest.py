"""The browser that all of these tests share, and pages of the map of a known machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from map_page import attentive, known, served
from playwright.sync_api import sync_playwright

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.watch.difference import RecordingDifference, RecordingSide, compare
from meshmark.watch.frames import Frame, Header, header_of
from meshmark.web.hub import StoredFrames

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium here; apt-get install chromium")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def machine() -> Header:
    return header_of({**header_line(find_machine("gs1280-16"), 0.1), "source": "recording"})


@pytest.fixture(scope="module")
def recording(machine: Header) -> str:
    frames = [known(n) for n in range(1, 41)]
    return served(StoredFrames(machine, len(frames), lambda begin, count: frames[begin : begin + count]))


@pytest.fixture
def page(browser: Any, recording: str) -> Iterator[Any]:
    page, wrong_count = attentive(browser)
    page.goto(recording)
    page.locator("#state", has_text="40 frames").wait_for()
    yield page
    assert wrong_count == []
    page.close()


@pytest.fixture
def offline(browser: Any) -> Iterator[Any]:
    """A page without a network, in which every request but that of the file itself is an error."""
    page, wrong_count = attentive(browser)
    page.context.set_offline(True)
    page.on("request", lambda r: None if r.url.startswith(("file:///", "data:,")) else wrong_count.append(r.url))
    yield page
    assert wrong_count == []
    page.close()


@pytest.fixture(scope="module")
def difference(machine: Header) -> RecordingDifference:
    def frames(after: bool) -> list[Frame]:
        known_frames = [known(n) for n in range(1, 102)]  # every component passes through all of its use
        for f in known_frames:
            if after:
                f.values["memory.busy"][0] = 0.9
                f.values["link.busy"][3] = 0.2
        return known_frames

    sides = [RecordingSide(f"{n}.parquet", machine, 101, frames(n == "after")) for n in ("before", "after")]
    return compare(*sides)
