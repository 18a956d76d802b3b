"""Views of load runs and studies: the machine under the chart, two runs side by side, all of them in the browser."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.load import app
from meshmark.cli.load_watch import watched
from meshmark.cli.serve import LoadFolders
from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.compare import compare, read_side
from meshmark.load.journal import JOURNAL, read_run
from meshmark.load.recorded import RECORDING, Step, binned, found_beside, machine_use, traffic
from meshmark.load.result import slowdown
from meshmark.report.gantt import gantt_html, gantt_svg
from meshmark.report.load_compare import compare_html
from meshmark.report.studies import STUDIES, study_page, write_study
from meshmark.terminal.gantt import gantt_text
from meshmark.terminal.load_compare import compare_text
from meshmark.watch.frames import Frame, Header, Metric
from meshmark.watch.recording import Recorder, Recording, RecordingError
from meshmark.web.server import NotHere
from support.made_load import BEGIN_S, EPOCH, made_load, made_study
from support.made_site import Site

CLOCK = EPOCH + BEGIN_S  # when the clock of a made run starts
METRICS = {
    "busy": Metric("cpu.busy", "1", "busy", "time"),
    "read": Metric("memory.read", "B/s", "read"),
    "write": Metric("memory.write", "B/s", "written"),
    "moved": Metric("memory.moved", "B/s", "moved", "", True),
    "moved_low": Metric("memory.moved_low", "B/s", "at least"),
    "moved_high": Metric("memory.moved_high", "B/s", "at most"),
}


def record(
    out: Path, *, machine: str = "n042", source: str = "host", begin: float = CLOCK - 1, seconds: float = 4.0,
    metrics: Sequence[str] = ("busy",), busy: Any = lambda cpu, t: [0.25, 0.75, 1.0][cpu],
) -> Path:  # fmt: skip
    """A recording at 10 Hz of three CPUs and two memories that began at `begin`, s since 1970."""
    header = Header(
        source, machine, "2026-11-22T08:30:00Z", 0.1,
        {"cpu": tuple({"name": f"CPU {n}", "number": n} for n in range(3)),
         "memory": ({"name": "memory 0"}, {"name": "memory 1"})},
        tuple(METRICS[m] for m in metrics), ({"metric": "memory", "why": "no counter here"},),
    )  # fmt: skip
    rates = {"read": 3e9, "write": 1e9, "moved": 5e9, "moved_low": 4e9, "moved_high": 7e9}
    with Recorder(out, header) as recorder:
        for n in range(1, round(seconds * 10) + 1):
            values: dict[str, list[float | None]] = {
                METRICS[m].name: [rates[m]] * 2 if m in rates else [busy(c, 0.1 * n) for c in range(3)] for m in metrics
            }
            recorder.add(Frame(n, 0.1 * n, 0.1, values, at=begin + 0.1 * n))
    return out


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# ---------------------------------------------------------------- the machine under the chart


def test_a_recording_is_laid_beside_the_run_by_the_clock_on_the_wall(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [2.0]}))
    # All CPUs begin to work 1.2 s after the clock's start, which is 2.2 s after the recording's.
    path = record(tmp_path / "r.parquet", busy=lambda _, t: 1.0 if t > 2.25 else 0.0)
    use = machine_use(run, path)
    assert use.cpu[0].from_s == pytest.approx(0.0, abs=1e-3)
    assert use.cpu[-1].to_s == pytest.approx(2.0, abs=1e-3)  # cut to the run
    idle = [s for s in use.cpu if s.value == 0]
    assert idle[-1].to_s == pytest.approx(1.2, abs=1e-3)
    assert all(s.value == 1 for s in use.cpu if s.from_s > 1.21)
    assert use.memory == () and use.memory_absent == "no counter here"


def test_the_line_is_of_the_runs_own_cpus(tmp_path: Path) -> None:
    path = record(tmp_path / "r.parquet")  # CPU 2 is always busy
    run = read_run(made_load(tmp_path / "two", {"a": [2.0]}))
    assert {s.value for s in machine_use(run, path).cpu} == {0.5}
    other = read_run(made_load(tmp_path / "one", {"a": [2.0]}, cpus="2"))
    assert {s.value for s in machine_use(other, path).cpu} == {1.0}


def test_traffic_is_counted_or_estimated_and_it_is_said_which(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [2.0]}, moved=3e9))
    counted = machine_use(run, record(tmp_path / "c.parquet", metrics=("busy", "read", "write")))
    assert {s.value for s in counted.memory} == {8e9} and not counted.estimated
    told = texts(gantt_svg(run, counted))
    assert "all (counted)" in told and "these programs" in told and "8 GB/s" in told
    known = ("busy", "moved", "moved_low", "moved_high")
    guessed = machine_use(run, record(tmp_path / "e.parquet", metrics=known))
    assert guessed.estimated and guessed.memory[0].interval == pytest.approx((8e9, 14e9))
    svg = gantt_svg(run, guessed)
    assert "all (estimated)" in texts(svg) and 'class="band"' in svg and 'class="band"' not in gantt_svg(run, counted)
    assert "its 95 % interval" in gantt_html(run, guessed) and "estimated" not in gantt_html(run, counted)
    assert "Memory traffic was not recorded: no counter here" in gantt_html(
        run, machine_use(run, record(tmp_path / "n.parquet"))
    )


def test_the_programs_own_traffic_needs_no_recording(tmp_path: Path) -> None:
    run = read_run(made_load(tmp_path / "run", {"a": [1.0, 2.0]}, moved=3e9))
    steps = traffic(run)
    assert steps[0].value == pytest.approx(6e9)  # both
    assert steps[-1].value == pytest.approx(3e9) and steps[-1].to_s == pytest.approx(2.0)
    assert "Memory traffic" in texts(gantt_svg(run))
    quiet = read_run(made_load(tmp_path / "quiet", {"a": [1.0]}))
    assert traffic(quiet) == () and "Memory traffic" not in texts(gantt_svg(quiet))


@pytest.mark.parametrize(("about", "said"), [
    ({"machine": "other"}, "of other, the run was on n042"),
    ({"source": "model", "machine": "gs1280-8"}, "of a model, gs1280-8"),
    ({"begin": CLOCK + 3}, "from 2026-11-22 08:30:03 UTC on; the run lasted from"),
    ({"begin": CLOCK - 4.01}, "the run lasted from 2026-11-22 08:30:00 UTC to 2026-11-22 08:30:02 UTC"),
    ({"seconds": 0}, "without a frame"),
])  # fmt: skip
def test_a_recording_of_another_machine_or_time_is_refused(tmp_path: Path, about: dict[str, Any], said: str) -> None:
    made_load(tmp_path / "run", {"a": [2.0]})
    path = record(tmp_path / "r.parquet", **about)
    done = CliRunner().invoke(app, ["show", str(tmp_path / "run"), "--recording", str(path)])
    assert isinstance(done.exception, UsageError) and said in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "run" / "gantt.html").exists()


def test_a_spoiled_recording_is_refused_where_it_was_asked_for_and_told_where_it_lies(tmp_path: Path) -> None:
    run = made_load(tmp_path / "run", {"a": [2.0]})
    (run / RECORDING).write_text("no recording")
    with pytest.raises(RecordingError):
        machine_use(read_run(run), run / RECORDING)
    done = CliRunner().invoke(app, ["show", str(run)])
    assert done.exit_code == 0 and "warning: machine.parquet: not drawn" in done.stderr
    assert (run / "gantt.html").exists()


def test_show_finds_the_runs_own_recording_whole_or_cut(tmp_path: Path) -> None:
    run = made_load(tmp_path / "run", {"a": [2.0]})
    assert found_beside(run) is None
    CliRunner().invoke(app, ["show", str(run)])
    assert "all (recorded)" not in (run / "gantt.svg").read_text()
    record(run / RECORDING)
    assert CliRunner().invoke(app, ["show", str(run)]).exit_code == 0
    assert "all (recorded)" in (run / "gantt.svg").read_text()
    (run / RECORDING).unlink()
    recorder = Recorder(run / RECORDING, Recording(record(tmp_path / "whole.parquet")).header)
    for frame in Recording(tmp_path / "whole.parquet").frames():
        recorder.add(frame)
    recorder.flush()  # and killed here
    assert found_beside(run) == run / (RECORDING + ".part")
    assert CliRunner().invoke(app, ["show", str(run)]).exit_code == 0
    assert "all (recorded)" in (run / "gantt.svg").read_text()


def test_flags_are_on_the_chart_and_in_the_text(tmp_path: Path) -> None:
    quiet = read_run(made_load(tmp_path / "quiet", {"a": [1.0]}))
    assert "flags" not in gantt_text(quiet) and not [t for t in texts(gantt_svg(quiet)) if "flags" in t]
    cut = read_run(made_load(tmp_path / "cut", {"a": [1.0]}, cut=True))
    assert "flags: truncated" in gantt_text(cut)
    assert [t for t in texts(gantt_svg(cut)) if t.endswith("the run was killed · flags: truncated")]


def test_bins_keep_the_mean_and_leave_out_what_is_not_known() -> None:
    steps = [Step(0.0, 1.0, 1.0), Step(1.0, 1.5, 4.0, (2.0, 6.0)), Step(3.0, 4.0, 2.0)]
    one = binned(steps, 4.0, 4)
    assert [None if s is None else s.value for s in one] == [1.0, 4.0, None, 2.0]
    assert one[1] is not None and one[1].interval == (2.0, 6.0)
    wide = binned(steps, 4.0, 1)[0]
    assert wide is not None and wide.value == pytest.approx((1 + 2 + 2) / 2.5)
    assert [s.value for s in binned(steps, 4.0, 400) if s][:3] == [1.0] * 3


def test_what_is_recorded_beside_covers_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    began = time.time()
    with watched(folder):
        entered = time.time()
        time.sleep(0.5)
        left = time.time()
    frames = list(Recording(folder / RECORDING).frames())
    assert began < frames[0].at - frames[0].window_s < entered + 0.3
    assert frames[-1].at >= left
    assert found_beside(folder) == folder / RECORDING
    with watched(tmp_path / "none", wanted=False):
        pass
    assert not (tmp_path / "none").exists()


def test_a_recorder_that_cannot_start_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHMARK_WATCH", str(tmp_path / "nothing"))
    with pytest.raises(MeshmarkError, match=r"^--watch: .*nothing"), watched(tmp_path / "run"):
        pytest.fail("went on")
    made_load(tmp_path / "there", {"a": [1.0]})
    with pytest.raises(UsageError, match="contains a run already"), watched(tmp_path / "there"):
        pytest.fail("went on")
    assert sorted(p.name for p in (tmp_path / "there").iterdir()) == [JOURNAL, "scenario.json"]


def test_a_run_that_is_watched_has_the_machine_below_it(tmp_path: Path) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text("[scenario]\ncanary = false\n[[program]]\ncommand = ['sh', '-c', 'sleep 0.5']\n")
    words = ["run", str(scenario), "--out", str(tmp_path / "run"), "--no-store", "--watch"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    run = read_run(tmp_path / "run")
    use = machine_use(run, tmp_path / "run" / RECORDING)
    assert use.cpu[0].from_s == 0 and use.cpu[-1].to_s == pytest.approx(run.bench_s)
    assert sum(s.to_s - s.from_s for s in use.cpu) > 0.5 * run.bench_s
    assert "all (recorded)" in (tmp_path / "run" / "gantt.svg").read_text()
    done = CliRunner().invoke(app, [*words, "--alone"])
    assert isinstance(done.exception, UsageError) and "--watch" in str(done.exception)


WATCHED = """
import sys, time
from pathlib import Path
from meshmark.cli.load_watch import watched
with watched(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


def test_the_recorder_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", WATCHED, str(folder)], stdout=subprocess.PIPE) as python:
        assert python.stdout is not None and python.stdout.readline() == b"in\n"
        python.kill()
    until = time.monotonic() + 30
    while time.monotonic() < until and not (folder / RECORDING).exists():
        time.sleep(0.05)
    assert (folder / RECORDING).exists() and Recording(folder / RECORDING).count() >= 0


# ---------------------------------------------------------------- two runs


def test_programs_are_matched_by_name_and_copy(tmp_path: Path) -> None:
    a = read_side(made_load(tmp_path / "a", {"x": [1.0, 1.0], "old": [1.0], "y": [2.0]}))
    b = read_side(made_load(tmp_path / "b", {"y": [3.0], "x": [1.5, 2.0, 9.0], "new": [1.0]}, waiting=0.5))
    c = compare(a, b)
    assert [m.program for m in c.programs] == ["x", "y"]
    x, y = c.programs
    assert [one.ratio for one in x.copies] == pytest.approx([1.5, 2.0])
    assert x.slowdown is not None and x.slowdown.ratio == pytest.approx(1.75)  # the third copy is in B alone
    assert y.slowdown is not None and y.slowdown.ratio == pytest.approx(1.5) and y.slowdown.interval is None
    assert y.copies[0].b["waiting_s"] == pytest.approx(1.5) and y.copies[0].a["waiting_s"] == 0
    assert c.only_a == ("old · 1",) and c.only_b == ("new · 1", "x · 3")
    text = compare_text(c)
    assert "2.000 → 3.000" in text and "only in A: old · 1" in text and "only in B: new · 1, x · 3" in text
    totals = {name: (one, other) for name, one, other in c.totals}
    assert totals["bench_s"] == pytest.approx((2.0, 9.0)) and totals["waiting_s"][0] == 0


def test_conditions_that_differ_are_named_and_the_others_are_not(tmp_path: Path) -> None:
    a = made_load(tmp_path / "a", {"x": [1.0]}, nice=0, conditions={"thp": "madvise", "load_1min": 0.1})
    b = made_load(tmp_path / "b", {"x": [1.0]}, nice=5, cpus="0", machine="n043",
                  conditions={"thp": "always", "load_1min": 7.0})  # fmt: skip
    told = {what: (one, other) for what, one, other in compare(read_side(a), read_side(b)).differ}
    assert told["thp"] == ("madvise", "always") and told["machine"] == ("n042", "n043")
    assert told["x: nice"] == ("0", "5") and told["CPUs of the programs"] == ("0-1", "0")
    assert told["x: bound to CPUs"] == ("0-1", "0")
    assert not [k for k in told if "load" in k or "kernel" in k or "sample" in k]
    assert compare(read_side(a), read_side(a)).differ == ()


def test_other_work_is_no_slowdown_and_is_told(tmp_path: Path) -> None:
    sides = []
    for name, flops in (("a", 1e9), ("b", 2e9), ("c", 1.001e9)):
        folder = made_load(tmp_path / name, {"x": [1.0]})
        done = {"type": "done", "t_s": 1.0, "program": "x", "copy": 0, "flops": flops, "wall_s": 1.0}
        with (folder / JOURNAL).open("a") as journal:
            journal.write(json.dumps(done) + "\n")
        sides.append(read_side(folder))
    assert ("x: flops", "1e+09", "2e+09") in compare(sides[0], sides[1]).differ
    assert compare(sides[0], sides[2]).differ == ()


def test_a_copy_that_died_has_no_ratio_and_says_why(tmp_path: Path) -> None:
    a = read_side(made_load(tmp_path / "a", {"x": [1.0], "y": [1.0]}))
    b = read_side(made_load(tmp_path / "b", {"x": [0.2], "y": [1.0]}, died=["x"]))
    c = compare(a, b)
    assert c.programs[0].slowdown is None and c.programs[1].slowdown is not None
    assert "b: was ended by signal 9" in compare_text(c) and "was ended by signal 9" in compare_html(c)
    line = c.to_json()["programs"][0]
    assert line["slowdown"] is None and line["copies"][0]["slowdown"] is None


def test_repetitions_give_an_interval_and_copies_of_a_run_count_once(tmp_path: Path) -> None:
    times = {"a": [1.0, 1.02, 0.99, 1.01], "b": [1.5, 1.52, 1.49, 1.51]}
    for side, walls in times.items():
        for n, wall in enumerate(walls):
            made_load(tmp_path / side / f"{n}", {"x": [wall, wall]})
    made_load(tmp_path / "b" / "8", {"x": [0.1, 0.1]}, died=["x"])  # tells nothing of how long it takes
    a, b = (read_side(tmp_path / s) for s in times)
    found = compare(a, b).programs[0].slowdown
    expected = slowdown(times["a"], times["b"])
    assert found is not None and found.interval is not None and found.interval[0] < 1.5 < found.interval[1]
    assert found.ratio == pytest.approx(expected.ratio) and found.interval == pytest.approx(expected.interval)
    assert (found.alone, found.together) == (4, 4)  # not 8, nor 5
    single = compare(read_side(tmp_path / "a" / "0"), read_side(tmp_path / "b" / "0"))
    assert single.over == "copies" and single.programs[0].slowdown is not None
    assert single.programs[0].slowdown.alone == 2
    made_load(tmp_path / "a" / "9", {"z": [1.0]})
    with pytest.raises(UsageError, match="2 different sets of programs"):
        read_side(tmp_path / "a")


def test_flags_are_shown_with_the_side_that_has_them(tmp_path: Path) -> None:
    a = made_load(tmp_path / "a", {"x": [1.0]})
    b = made_load(tmp_path / "b", {"x": [1.0]}, threads=4)
    for folder in (a, b):  # `threads` is a key of the scenario's program
        data = json.loads((folder / "scenario.json").read_text())
        data["programs"][0]["threads"] = 4 if folder == b else 1
        (folder / "scenario.json").write_text(json.dumps(data))
    text = compare_text(compare(read_side(a), read_side(b)))
    assert "B:oversubscribed" in text and "A:" not in text.replace("A: a", "")


def test_nothing_in_common_is_refused_in_one_line(tmp_path: Path) -> None:
    made_load(tmp_path / "a", {"x": [1.0]})
    made_load(tmp_path / "b", {"y": [1.0]})
    run = CliRunner()
    done = run.invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    assert isinstance(done.exception, UsageError)
    assert re.search(r"no program of .*a \(x\) has the name of one of .*b \(y\)", str(done.exception))
    for wrong in (tmp_path, tmp_path / "none"):
        done = run.invoke(app, ["compare", str(tmp_path / "a"), str(wrong)])
        assert isinstance(done.exception, UsageError) and "\n" not in str(done.exception)


def test_the_command_prints_tables_json_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made_load(tmp_path / "meshmark" / "load" / "one", {"x <b>": [1.0]}, name="quiet & <i>")
    made_load(tmp_path / "meshmark" / "load" / "two", {"x <b>": [2.0]})
    run = CliRunner()
    out = tmp_path / "both.html"
    done = run.invoke(app, ["compare", "one", "two", "--html", str(out)])
    assert done.exit_code == 0 and done.stdout.splitlines()[-1] == str(out)
    page = out.read_text()
    assert page.count("<svg xmlns") == 2 and "x &lt;b&gt;" in page and "quiet &amp; &lt;i&gt;" in page
    assert "<script" not in page and "<b>" not in page
    done = run.invoke(app, ["compare", "one", "two", "--json"])
    line = json.loads(done.stdout)
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
    left = 176.0
    assert (ends[1] - left) / (ends[0] - left) == pytest.approx(4.0, rel=0.02)


# ---------------------------------------------------------------- pages of studies


@pytest.mark.parametrize("study", sorted(STUDIES))
def test_every_study_has_a_page_with_its_numbers(tmp_path: Path, study: str) -> None:
    folder = made_study(tmp_path / "s", study)
    page = write_study(folder).read_text()
    assert escape_title(STUDIES[study][0]) in page
    assert "1.340" in page and "noisy" in page and "needs &lt;640&gt;" in page and "<b>" not in page.split("<script")[0]
    table = page[page.index('id="slowdowns"') :]
    assert re.search(r"1\.2\d\d – 1\.3\d\d", table) and "4 + 4" in table


def escape_title(text: str) -> str:
    return html.escape(text)


def test_an_unfinished_study_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no finished study"):
        study_page(made_study(tmp_path / "s", finished=False))
    (tmp_path / "s" / "records.jsonl").write_text('{"type": "result"}\nnonsense\n')
    with pytest.raises(UsageError, match="without results"):
        study_page(tmp_path / "s")


# ---------------------------------------------------------------- in the browser


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made_load(tmp_path / "load" / "first", {"x": [1.0, 1.0], "y": [2.0]})
    made_load(tmp_path / "load" / "second <i>", {"x": [1.5, 1.6]}, died=["x"])
    made_load(tmp_path / "load" / "cut", {"x": [1.5]}, cut=True)
    made_load(tmp_path / "load" / "alien", {"z": [1.5]})
    made_study(tmp_path / "studies" / "done")
    made_study(tmp_path / "studies" / "half", finished=False)
    made_load(tmp_path / "outside" / "secret", {"x": [1.0]}, name="root:secret")
    (tmp_path / "load" / "link").symlink_to(tmp_path / "outside" / "secret")
    (tmp_path / "load" / "notes").mkdir()
    for n, name in enumerate(("first", "second <i>", "cut", "alien")):
        os.utime(tmp_path / "load" / name / JOURNAL, (1e9 + n, 1e9 + n))
    return tmp_path


def folders(home: Path) -> LoadFolders:
    return LoadFolders((home / "load", home / "studies"))


def test_runs_and_studies_are_listed_the_newest_first(home: Path) -> None:
    rows, more = folders(home).rows()
    assert more == 0
    assert [r.name for r in rows if r.kind == "run"] == ["alien", "cut", "second <i>", "first"]
    told = {r.name: r for r in rows}
    assert told["first"].what == "x × 2, y" and told["first"].state == "3 of 3 succeeded"
    assert told["first"].length_s == pytest.approx(2.0)
    assert told["second <i>"].state == "0 of 2 succeeded" and told["cut"].state == "running, or interrupted"
    assert told["done"].what == "shared bus" and told["done"].runs == 4 and told["done"].flags == ["noisy"]
    assert told["done"].shown and not told["half"].shown and told["half"].state == "running, or interrupted"
    assert "link" not in told and "notes" not in told
    both = LoadFolders((home / "load", home / "outside"))
    assert {r.name for r in both.rows()[0]} >= {"first", "secret"}
    assert LoadFolders((home / "nowhere",)).rows() == ([], 0)


def test_a_row_is_read_again_only_when_its_run_has_changed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import meshmark.load.journal as module

    read: list[str] = []
    real = module.read_run
    monkeypatch.setattr(module, "read_run", lambda p, samples=True: (read.append(p.name), real(p, samples))[1])
    mine = folders(home)
    mine.rows()
    assert sorted(read) == ["alien", "cut", "first", "second <i>"]
    mine.rows()
    assert len(read) == 4
    with (home / "load" / "cut" / JOURNAL).open("a") as journal:
        journal.write('{"type":"sample"}\n')
    mine.rows()
    assert read[4:] == ["cut"]


def test_what_cannot_be_read_is_listed_with_its_reason(home: Path) -> None:
    (home / "load" / "empty").mkdir()
    (home / "load" / "empty" / JOURNAL).write_text("")
    (home / "studies" / "torn").mkdir()
    (home / "studies" / "torn" / "study.json").write_text("{")
    (home / "studies" / "list").mkdir()
    (home / "studies" / "list" / "study.json").write_text("[]")
    told = {r.name: r for r in folders(home).rows()[0]}
    for name in ("empty", "torn", "list"):
        assert told[name].broken and not told[name].shown and "\n" not in told[name].broken
    text = Site(home, loads=folders(home)).get("load/")[1].decode()
    assert "no program was started yet" in text and "cannot be read" in text


def test_the_pages_are_linked_and_shown(home: Path) -> None:
    site = Site(home, loads=folders(home))
    front = site.get("")[1].decode()
    assert 'href="load/"' in front and "4 runs of scenarios, 2 studies" in front
    status, body, headers = site.get("load/")
    text = body.decode()
    assert status == 200 and "default-src 'self'" in headers["content-security-policy"]
    links = {html.unescape(h) for h in re.findall(r'href="([^"]+)"', text)}
    assert {"run/first", "run/second%20%3Ci%3E", "run/cut", "study/done", "../", "../site.css"} <= links
    assert "study/half" not in links and "second &lt;i&gt;" in text and "<i>" not in text
    assert text.count("<option") == 8
    for path, words in (("run/first", b"Gantt chart"), ("run/second%20%3Ci%3E", b"signal 9"), ("run/cut", b"killed"),
                        ("study/done", b"vegaEmbed"), ("compare?a=first&b=cut", b"on one axis")):  # fmt: skip
        status, body, headers = site.get("load/" + path)
        assert status == 200 and words in body, path
        assert headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert "Loads" not in Site(home).get("")[1].decode() and Site(home).get("load/run/first")[0] == 404


def test_runs_without_a_common_program_are_refused(home: Path) -> None:
    status, body, _ = Site(home, loads=folders(home)).get("load/compare?a=first&b=alien")
    assert status == 404 and b"no program of first" in body and body.count(b"\n") == 1
    rows = {r.name: r for r in folders(home).rows()[0]}
    with pytest.raises(NotHere):
        folders(home).page(rows["first"])  # of another listing


@pytest.mark.parametrize("path", [
    "run/../../outside/secret", "run/..%2f..%2foutside%2fsecret", "run/%2e%2e", "run/..", "run/.", "run/", "run/link",
    "run//etc/passwd", "run/%00", "run/first%00", "run/first%2frun.jsonl", "run/first/scenario.json", "study/first",
    "run/done", "study/half", "study/..%2fload%2ffirst", "other/first", "compare?a=first&b=..%2foutside%2fsecret",
    "compare?a=link&b=first", "compare?a=first", "compare", "run/%ff%fe", "run/notes", "run/secret",
])  # fmt: skip
def test_no_path_leads_out(home: Path, path: str) -> None:
    status, body, _ = Site(home, loads=folders(home)).get("load/" + path)
    assert status in {400, 404, 405}, body[:200]
    assert b"root:" not in body and b"user_s" not in body


def test_loads_ask_for_the_token_and_the_host(home: Path) -> None:
    for path in ("load/", "load/run/first", "load/study/done", "load/compare?a=first&b=cut"):
        assert Site(home, loads=folders(home)).get(path, Host="evil.example")[0] == 421
        assert Site(home, token="secret", loads=folders(home)).get(path)[0] == 401
