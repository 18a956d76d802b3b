"""The page of the map in a browser: known recordings, and the actions and readings of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from meshmark.views.terminal.live.map import step_of
from meshmark.watch.frames import Frame, Header
from meshmark.watch.palette import PALETTES
from meshmark.web.hub import Hub, StoredFrames
from meshmark.web.page import packed_recording, write_page
from meshmark.web.server import serve
from support.made_site import address_of


def known(seq: int) -> Frame:
    """Return a frame with use that tests can compute: it differs by component and time, and one CPU is unknown."""
    counts = {"cpu": 16, "memory": 32, "link": 64, "io": 16}
    values: dict[str, list[float | None]] = {
        f"{kind}.busy": [((7 * i + 13 * seq) % 101) / 100 for i in range(count)] for kind, count in counts.items()
    }
    values["cpu.busy"][5] = None
    return Frame(seq, seq * 0.1, 0.1, values, at=1.7e9 + seq)


def served(what: Hub | StoredFrames, port: int = 0) -> str:
    return address_of(lambda say: serve(what, "127.0.0.1", port, "", say))


def exported(machine: Header, tmp_path: Path, frames: list[Frame]) -> str:
    write_page(tmp_path / "page.html", "test", packed_recording(machine, frames, len(frames)))
    return (tmp_path / "page.html").as_uri()


def attentive(browser: Any, **how: Any) -> tuple[Any, list[str]]:
    """Return a page and the list of its errors, which grows."""
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 1000}, **how})
    problems: list[str] = []
    page.on("pageerror", lambda e: problems.append(str(e)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    return page, problems


def go_to(page: Any, number: int) -> None:
    page.locator("#scrubber").evaluate(f"e => {{ e.value = {number}; e.dispatchEvent(new Event('input')) }}")
    page.wait_for_timeout(80)


def colours_match(page: Any, frame: Frame, low: float = 0.0, high: float = 1.0, palette: str = "inferno") -> None:
    state = page.evaluate(
        """() => [...document.querySelectorAll('[data-component]')].map(e => {
             const style = getComputedStyle(e);
             return [e.dataset.component, e.tagName === 'polyline' ? style.stroke : style.fill, e.getAttribute('class')]
           })"""
    )
    assert len({f[0] for f in state}) == 16 + 32 + 64 + 16
    for name, colour, classes in state:
        kind, _, index = name.partition(":")
        step = step_of(frame.values[f"{kind}.busy"][int(index)], low, high)
        if step < 0:
            assert "unknown" in classes and "hatch" in colour
        else:
            expected = PALETTES[palette][step]
            rgb = tuple(int(expected[i : i + 2], 16) for i in (1, 3, 5))
            assert colour == f"rgb({rgb[0]}, {rgb[1]}, {rgb[2]})", name


def open_raster(page: Any) -> None:
    page.locator("#raster summary").click()
    page.wait_for_timeout(500)


def raster_steps(page: Any, band: str, row: int, palette: str = "inferno") -> list[int]:
    """Return the steps of colour of a row of the raster, column by column; -1: unknown, -2: no frame."""
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
