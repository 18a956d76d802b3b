"""The chart library draws Vega-Lite without a browser, and texts are as wide as its layout assumes."""

from __future__ import annotations

import re
import struct
import threading
import time
from typing import Any

import pytest

from meshmark.views.charts.drawing import MANY, Drawing, chart_of, chart_page, drawing, for_file
from meshmark.views.charts.vega import pictures, png_of_svg


def spec(values: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"data": {"values": values}, "mark": "bar", **more}


def size_of(png: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_pages_contain_the_chart_library() -> None:
    page = chart_page("charts.html", {}, title="none")
    assert "vegaEmbed" in page and len(page) > 500_000
    assert "</script" not in page.split("vegaEmbed")[0].split("<script>")[-1]


def test_numbers_and_dates_are_formatted_without_the_functions_of_a_browser() -> None:
    x = {
        "field": "t",
        "type": "temporal",
        "axis": {"format": "%d %B %Y", "values": [{"year": 2026, "month": 3, "date": 2}]},
    }
    y = {"field": "v", "type": "quantitative", "axis": {"values": [1234.5], "format": ",.2f"}}
    values = [{"t": "2026-03-02T00:00:00", "v": 1234.5}, {"t": "2026-03-09T00:00:00", "v": 2000.0}]
    ((_, svg),) = pictures([spec(values, encoding={"x": x, "y": y})])
    assert "02 March 2026" in svg and "1,234.50" in svg
    locale = {"number": {"decimal": ",", "thousands": ".", "grouping": [3], "currency": ["", ""]}}
    ((_, svg),) = pictures(
        [spec(values, encoding={"x": x, "y": y}, config={"locale": locale, "background": "#123456"})]
    )
    assert "1.234,50" in svg and "#123456" in svg


def test_values_that_json_lacks_are_missing_values() -> None:
    values = [{"a": float("nan")}, {"a": float("inf")}, {"a": 3.0}]
    title = "half a pair: \ud800"
    x = {"field": "a", "type": "quantitative", "title": title}
    ((png, svg),) = pictures([spec(values, encoding={"x": x})])
    assert png.startswith(b"\x89PNG") and "half a pair: \ufffd" in svg


@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_texts_are_as_wide_as_they_are_drawn(weight: str) -> None:
    text = "WWW iii 0.25 µs – “×≥”"
    mark = {"type": "text", "align": "left", "fontSize": 40, "fontWeight": weight, "x": 0}
    base = {"data": {"values": [{}]}, "width": 1, "height": 40, "padding": 0, "config": {"view": {"stroke": None}}}
    (wide, _), (narrow, _) = pictures([{**base, "mark": {**mark, "text": t}} for t in (text, "")])
    end = (size_of(wide)[0] - size_of(narrow)[0]) / 2
    assert beyond(end + 2, text, weight) == beyond(end + 2, "", weight)
    assert beyond(end - 8, text, weight) != beyond(end - 8, "", weight)


def beyond(x: float, text: str, weight: str) -> bytes:
    """Return the part of a drawn text on the right of `x`, as PNG."""
    style = f'font-family="sans-serif" font-size="40" font-weight="{weight}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="60" viewBox="{x} 0 100 60">'
    return png_of_svg(f'{head}<text x="0" y="40" {style}>{text}</text></svg>')


def test_labels_beyond_their_limit_are_shortened() -> None:
    y = {"field": "a", "type": "nominal", "axis": {"labelLimit": 60}, "title": None}
    ((_, svg),) = pictures([spec([{"a": "a name that is too long"}], encoding={"y": y})])
    assert re.search(r">a name [^<]*…<", svg)


def test_a_file_of_many_marks_omits_their_descriptions() -> None:
    assert "aria-label" in pictures([for_file(points(4))])[0][1]
    spec_of_many = for_file(points(MANY + 1))
    assert spec_of_many["config"]["aria"] is False


def points(count: int) -> Drawing:
    @drawing
    def draw(rows: list[dict[str, Any]]) -> Any:
        return chart_of(rows).mark_point().encode(x="a:Q")

    drawn = draw([{"a": i} for i in range(count)])
    assert drawn is not None
    return drawn


def test_an_axis_may_list_a_thousand_values_in_order() -> None:
    names = [f"node{i:04}" for i in range(1000)]
    y = {"field": "a", "type": "nominal", "sort": names}
    ((_, svg),) = pictures([spec([{"a": name} for name in names], encoding={"y": y}, height=400)])
    assert svg.count("</path>") + svg.count("/>") > 1000


def test_charts_are_drawn_in_several_threads_and_leave_their_stack_size_unchanged() -> None:
    before = threading.stack_size()
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(pictures([spec([{"a": 1}])])[0][1])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3 and len(set(results)) == 1
    assert threading.stack_size() == before


def test_other_threads_run_while_a_chart_is_drawn() -> None:
    ticks, is_done = 0, threading.Event()

    def count() -> None:
        nonlocal ticks
        while not is_done.wait(0.005):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    start = time.monotonic()
    pictures([spec([{"a": i} for i in range(5000)], encoding={"x": {"field": "a", "type": "quantitative"}})])
    elapsed_s = time.monotonic() - start
    is_done.set()
    thread.join()
    assert ticks > 5 * elapsed_s
