"""The chart library of pages is built once, and a file that others can write is never used."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.views.charts.drawing import chart_page


def test_the_chart_library_is_kept_and_not_taken_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    page = chart_page("charts.html", {}, title="none")
    (cache_file,) = (tmp_path / "meshmark").iterdir()
    assert "vegaEmbed" in page and len(page) > 500_000
    cache_file.chmod(0o644)
    cache_file.write_text("// kept", encoding="utf-8")
    assert "// kept" in chart_page("charts.html", {}, title="none")
    cache_file.chmod(0o666)
    assert chart_page("charts.html", {}, title="none") == page


def test_without_a_place_to_keep_it_pages_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(chart_page("charts.html", {}, title="none")) > 500_000
