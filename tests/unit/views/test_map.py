"""The live map in the terminal: the steps of the scale, both directions of a link, the palettes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from meshmark.model.frames import header_line
from meshmark.model.machine import find_machine
from meshmark.views.terminal.live.map import UNKNOWN, draw, scale_text, step_of
from meshmark.watch.frames import Frame, FrameMetric, header_of
from meshmark.watch.layout import map_of
from meshmark.watch.palette import PALETTES
from support.made_frames import frame, header
from support.paths import ROOT


def test_the_terminal_shows_the_steps_of_the_scale() -> None:
    h = header()
    text = draw(h, map_of(h), frame(1, 0.05, None, 0.55, 1.0))
    colours = {str(s.style.bgcolor.name) for s in text.spans if getattr(s.style, "bgcolor", None)}  # type: ignore[union-attr]
    assert colours == {PALETTES["inferno"][i] for i in (0, 5, 9)}
    assert UNKNOWN in text.plain and "55" in text.plain and "5.0" in text.plain
    narrow_text = draw(h, map_of(h), frame(1, 0.05, None, 0.09, 0.0), low=0.01, high=0.1)
    colours = {str(s.style.bgcolor.name) for s in narrow_text.spans if getattr(s.style, "bgcolor", None)}  # type: ignore[union-attr]
    assert colours == {PALETTES["inferno"][i] for i in (4, 8, 0)}
    assert [step_of(v, 0, 1) for v in (None, 0.0, 0.0999, 0.1, 0.999, 1.0)] == [-1, 0, 0, 1, 9, 9]


def test_both_directions_of_a_link_are_seen_in_the_terminal() -> None:
    h = header_of(header_line(find_machine("gs1280-16"), 1e-6))
    links = h.components["link"]
    use: list[float | None] = [0.0] * len(links)
    for i, link in enumerate(links):
        ends = (link["from_router"], link["to_router"])
        use[i] = {(5, 6): 1.0, (6, 5): 0.55, (5, 9): 0.75, (9, 5): 0.35}.get(ends, 0.0)
    text = draw(h, map_of(h), Frame(1, 0.0, 1.0, {"link.busy": use}))
    colours = {getattr(s.style, k).name for s in text.spans for k in ("color", "bgcolor") if getattr(s.style, k, None)}
    assert {PALETTES["inferno"][i] for i in (0, 9, 5, 7, 3)} <= colours
    rows = text.plain.split("\n")
    assert (
        len({tuple(i for i, c in enumerate(r) if c == "┃") for r in rows if "┃" in r}) == 1
    )  # the borders of all nodes are in the same columns


def test_the_stalled_share_of_a_cpu_is_underlined() -> None:
    h = header()
    counted = replace(h, metrics=(*h.metrics, FrameMetric("cpu.stalled", "1", "stalled", "unhalted cycles")))
    plain = frame(1, 0.05, None, 0.55, 1.0)
    shares: list[float | None] = [None] * h.count("cpu")
    shares[0] = 0.5
    text = draw(counted, map_of(counted), replace(plain, values={**plain.values, "cpu.stalled": shares}))
    (underlined,) = [s for s in text.spans if getattr(s.style, "underline", None)]
    box = next(b for b in map_of(counted).boxes if (b.component_class, b.index) == ("cpu", 0))
    assert underlined.end - underlined.start == pytest.approx(box.w / 8.5 / 2, abs=1)
    assert scale_text(counted, 0, 1, "inferno").plain.endswith("stalled")
    assert "stalled" not in scale_text(h, 0, 1, "inferno").plain
    assert not [s for s in draw(h, map_of(h), plain).spans if getattr(s.style, "underline", None)]


def test_terminal_and_browser_have_the_same_palettes() -> None:
    text = (ROOT / "web" / "src" / "palette.ts").read_text()
    for name, colours in PALETTES.items():
        line = next(x for x in text.splitlines() if x.strip().startswith(f"{name}:"))
        assert tuple(re.findall(r"#[0-9a-f]{6}", line)) == colours
