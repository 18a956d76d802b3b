"""The comparison as a page and in the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshmark.compare.join import ResultComparison, compare
from meshmark.compare.sides import ResultSide
from meshmark.store.record import Record, median, median_interval
from meshmark.values.units import ratio_text
from meshmark.views.content.compared_rows import blocks
from meshmark.views.content.compared_text import left_over, reasons, summary
from meshmark.views.pages.comparison import comparison_page
from meshmark.views.terminal.comparison import print_comparison
from support.made_run import everything, repeated


def scaled(r: Record, factor: float) -> Record:
    samples = tuple(s * factor for s in r.samples)
    return replace(r, samples=samples, value=median(samples), interval=median_interval(samples))


def side(name: str, records: list[Record], machine: str = "made-up") -> ResultSide:
    return ResultSide(name=name, what="made", machine=machine, start="2026-11-25T10:00:00Z", records=records)


@pytest.fixture
def both() -> ResultComparison:
    a = repeated(everything())
    b = [scaled(r, 1.2) for r in a if r.instrument != "io"]
    b[0] = replace(b[0], flags=frozenset({"stolen"}))
    return compare(side("before <b>", a), side("after", b))


def test_a_ratio_has_the_digits_that_matter() -> None:
    assert [ratio_text(v) for v in (0.0123, 0.5, 0.998, 1.04, 1.2, 12.34)] == [
        "0.0123",
        "0.500",
        "0.998",
        "1.040",
        "1.20",
        "12.3",
    ]


def test_blocks_name_what_varies_and_share_the_rest(both: ResultComparison) -> None:
    block = {b.metric: b for b in blocks([both]) if b.instrument == "bandwidth"}["bandwidth_net"]
    assert "isa avx2" in block.common and all("isa" not in line.point for line in block.lines)
    assert all("kernel" in line.point for line in block.lines)
    assert {line.cells[0].word for line in block.lines} == {"faster"} and all(
        line.cells[0].better for line in block.lines
    )
    assert block.means[0].startswith("1.20 (")


def test_the_summary_counts_and_the_reasons_follow(both: ResultComparison) -> None:
    assert summary(both).startswith(f"{len(both.pairs)} results on both: ")
    assert any(text.startswith("inconclusive: ") for text in reasons(both))
    assert any("io bandwidth_net" in text for text in left_over(both))


def test_the_page_shows_both_sides_and_escapes_their_names(both: ResultComparison) -> None:
    page = comparison_page([both])
    assert "before &lt;b&gt; and after" in page and "before <b>" not in page.partition("<script")[0]
    assert 'id="chart-means"' in page and 'id="chart-latency"' in page and 'id="chart-bandwidth"' in page
    assert page.count('class="dot"') > 20 and "A: too few samples" in page and "B: stolen" in page


def test_the_terminal_lists_all_but_equal_results_unless_asked_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    a = repeated(everything())
    b = [r if r.instrument == "bandwidth" else scaled(r, 1.2) for r in a]
    comparison = compare(side("before", a), side("after", b))
    print_comparison([comparison], every=False)
    short = capsys.readouterr().out
    print_comparison([comparison], every=True)
    long = capsys.readouterr().out
    assert "geometric mean of" in short and "faster" in short and "inconclusive" in short
    assert f"{comparison.counts()['equal']} equal results are not listed (--all)" in short
    assert len(long.splitlines()) > len(short.splitlines()) and "not listed" not in long


@pytest.mark.parametrize("few", [1, 2])
def test_a_single_result_has_a_page_and_a_table(few: int, capsys: pytest.CaptureFixture[str]) -> None:
    records = everything()[:few]
    c = compare(side("a", records), side("b", records, "other"))
    assert "on both" in comparison_page([c])
    print_comparison([c], every=True)
    assert "equal" in capsys.readouterr().out
