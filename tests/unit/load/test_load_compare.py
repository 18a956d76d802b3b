"""Test the comparison of two runs: programs matched by name and copy, differing conditions, ratios with intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from meshmark.cli.load.load import app
from meshmark.errors import UsageError
from meshmark.load.compare import LoadComparison, compare, read_side
from meshmark.load.scenario.journal import JOURNAL
from meshmark.load.scenario.result import slowdown
from meshmark.views.pages.load_compare import compare_html
from meshmark.views.terminal.load_compare import print_load_comparison
from support.made_load import made_load


def printed(c: LoadComparison, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is printed about a comparison."""
    print_load_comparison(c)
    return capsys.readouterr().out


def test_programs_are_matched_by_name_and_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = read_side(made_load(tmp_path / "a", {"x": [1.0, 1.0], "old": [1.0], "y": [2.0]}))
    b = read_side(made_load(tmp_path / "b", {"y": [3.0], "x": [1.5, 2.0, 9.0], "new": [1.0]}, waiting=0.5))
    c = compare(a, b)
    assert [m.program for m in c.programs] == ["x", "y"]
    x, y = c.programs
    assert [v.ratio for v in x.copies] == pytest.approx([1.5, 2.0])
    assert x.slowdown is not None and x.slowdown.ratio == pytest.approx(1.75)  # only B has the third copy
    assert y.slowdown is not None and y.slowdown.ratio == pytest.approx(1.5) and y.slowdown.interval is None
    assert y.copies[0].b["waiting_s"] == pytest.approx(1.5) and y.copies[0].a["waiting_s"] == 0
    assert c.only_a == ("old · 1",) and c.only_b == ("new · 1", "x · 3")
    text = printed(c, capsys)
    assert "2.000 → 3.000" in text and "only in A: old · 1" in text and "only in B: new · 1, x · 3" in text
    totals = {name: (v, w) for name, v, w in c.totals}
    assert totals["bench_s"] == pytest.approx((2.0, 9.0)) and totals["waiting_s"][0] == 0


def test_conditions_that_differ_are_named_and_the_others_are_not(tmp_path: Path) -> None:
    a = made_load(tmp_path / "a", {"x": [1.0]}, nice=0, conditions={"thp": "madvise", "load_1min": 0.1})
    b = made_load(
        tmp_path / "b", {"x": [1.0]}, nice=5, cpus="0", machine="n043", conditions={"thp": "always", "load_1min": 7.0}
    )
    differences = {
        condition: (value_a, value_b) for condition, value_a, value_b in compare(read_side(a), read_side(b)).differ
    }
    assert differences["thp"] == ("madvise", "always") and differences["machine"] == ("n042", "n043")
    assert differences["x: nice"] == ("0", "5") and differences["CPUs of the programs"] == ("0-1", "0")
    assert differences["x: bound to CPUs"] == ("0-1", "0")
    assert not [k for k in differences if "load" in k or "kernel" in k or "sample" in k]
    assert compare(read_side(a), read_side(a)).differ == ()


def test_other_work_is_no_slowdown_and_is_told(tmp_path: Path) -> None:
    sides = []
    for name, flops in (("a", 1e9), ("b", 2e9), ("c", 1.001e9)):
        folder = made_load(tmp_path / name, {"x": [1.0]})
        event = {"type": "done", "t_s": 1.0, "program": "x", "copy": 0, "flops": flops, "wall_s": 1.0}
        with (folder / JOURNAL).open("a") as journal:
            journal.write(json.dumps(event) + "\n")
        sides.append(read_side(folder))
    assert ("x: flops", "1e+09", "2e+09") in compare(sides[0], sides[1]).differ
    assert compare(sides[0], sides[1]).programs[0].doubt == "one run each, different work"
    assert compare(sides[0], sides[2]).differ == ()


def test_a_copy_that_died_has_no_ratio_and_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = read_side(made_load(tmp_path / "a", {"x": [1.0], "y": [1.0]}))
    b = read_side(made_load(tmp_path / "b", {"x": [0.2], "y": [1.0]}, died=["x"]))
    c = compare(a, b)
    assert c.programs[0].slowdown is None and c.programs[1].slowdown is not None
    assert "b: was terminated by SIGKILL" in printed(c, capsys) and "was terminated by SIGKILL" in compare_html(c)
    line = c.to_json()["programs"][0]
    assert line["slowdown"] is None and line["copies"][0]["slowdown"] is None


def test_repetitions_give_an_interval_and_copies_of_a_run_count_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {"a": [1.0, 1.02, 0.99, 1.01], "b": [1.5, 1.52, 1.49, 1.51]}
    for side, walls in times.items():
        for n, wall in enumerate(walls):
            made_load(tmp_path / side / f"{n}", {"x": [wall, wall]})
    made_load(tmp_path / "b" / "8", {"x": [0.1, 0.1]}, died=["x"])  # a program that died does not count
    a, b = (read_side(tmp_path / s) for s in times)
    measured = compare(a, b).programs[0].slowdown
    expected = slowdown(times["a"], times["b"])
    assert measured is not None and measured.interval is not None and measured.interval[0] < 1.5 < measured.interval[1]
    assert measured.ratio == pytest.approx(expected.ratio) and measured.interval == pytest.approx(expected.interval)
    assert (measured.alone, measured.together) == (4, 4)  # not 8, nor 5
    assert compare(a, b).programs[0].word == "higher" and compare(b, a).programs[0].word == "lower"
    assert " slower" in printed(compare(a, b), capsys) and compare(a, b).to_json()["programs"][0]["verdict"] == "slower"
    single = compare(read_side(tmp_path / "a" / "0"), read_side(tmp_path / "b" / "0"))
    assert single.over == "copies" and single.programs[0].slowdown is not None
    assert single.programs[0].slowdown.alone == 2
    assert (single.programs[0].word, single.programs[0].doubt) == ("inconclusive", "one run each")
    made_load(tmp_path / "a" / "9", {"z": [1.0]})
    with pytest.raises(UsageError, match="2 different sets of programs"):
        read_side(tmp_path / "a")


def test_flags_are_shown_with_the_side_that_has_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = made_load(tmp_path / "a", {"x": [1.0]})
    b = made_load(tmp_path / "b", {"x": [1.0]}, threads=4)
    for folder in (a, b):  # `threads` is a key of the scenario's program
        data = json.loads((folder / "scenario.json").read_text())
        data["programs"][0]["threads"] = 4 if folder == b else 1
        (folder / "scenario.json").write_text(json.dumps(data))
    text = printed(compare(read_side(a), read_side(b)), capsys)
    assert "B:oversubscribed" in text and "A:" not in text.replace("A: a", "")


def test_nothing_in_common_is_refused_in_one_line(tmp_path: Path) -> None:
    made_load(tmp_path / "a", {"x": [1.0]})
    made_load(tmp_path / "b", {"y": [1.0]})
    runner = CliRunner()
    completed = runner.invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert isinstance(completed.exception, UsageError)
    assert re.search(r"no program of .*a \(x\) has the name of one of .*b \(y\)", str(completed.exception))
    for folder in (tmp_path, tmp_path / "none"):
        completed = runner.invoke(app, ["compare", str(tmp_path / "a"), str(folder)])
        assert isinstance(completed.exception, UsageError) and "\n" not in str(completed.exception)


def test_the_command_prints_tables_json_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made_load(tmp_path / "meshmark" / "load" / "one", {"x <b>": [1.0]}, name="quiet & <i>")
    made_load(tmp_path / "meshmark" / "load" / "two", {"x <b>": [2.0]})
    runner = CliRunner()
    out = tmp_path / "both.html"
    completed = runner.invoke(app, ["compare", "one", "two", "--html", str(out)])
    assert completed.exit_code == 0 and completed.stdout.splitlines()[-1] == str(out)
    page = out.read_text()
    assert page.count("<svg xmlns") == 2 and "x &lt;b&gt;" in page and "quiet &amp; &lt;i&gt;" in page
    assert "<script" not in page and "<b>" not in page
    completed = runner.invoke(app, ["compare", "one", "two", "--json"])
    line = json.loads(completed.stdout)
    assert line["type"] == "comparison" and line["programs"][0]["slowdown"] == pytest.approx(2.0)
    assert line["totals"]["bench_s"] == {"a": 1.0, "b": 2.0} and line["a"]["name"] == "one"


def test_both_charts_have_one_axis(tmp_path: Path) -> None:
    a = read_side(made_load(tmp_path / "a", {"x": [1.0]}))
    b = read_side(made_load(tmp_path / "b", {"x": [4.0]}))
    charts = re.findall(r"<svg xmlns.*?</svg>", compare_html(compare(a, b)), re.S)
    ends = [
        max(float(x) for d in re.findall(r'<path class="user" d="([^"]*)"', svg) for x in re.findall(r"H([\d.]+)", d))
        for svg in charts
    ]
    axis_start = 176.0
    assert (ends[1] - axis_start) / (ends[0] - axis_start) == pytest.approx(4.0, rel=0.02)
