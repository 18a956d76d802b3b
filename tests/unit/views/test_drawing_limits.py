"""Charts where the address space is limited, as on login nodes, and what happens where they cannot be drawn."""

from __future__ import annotations

import html
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from meshmark.cli.app import app
from meshmark.process import Preparation, run, up_to_hard_limit
from meshmark.views.charts import vega
from meshmark.views.charts.vega import DrawingError, pictures, png_of_svg
from meshmark.views.pages.build import write_report
from meshmark.watch.recording import Recorder
from support import made_run
from support.made_frames import frame, header
from support.paths import ROOT

LIMIT = 1_536_000_000  # `ulimit -v 1500000`
SMALL_LIMIT = 500_000_000
REASON = "cannot draw charts: cannot read charts.js: No such file or directory"


def reason_in(page: str) -> str:
    """Return the reason that a page states for the absence of its charts, or ""."""
    match = re.search(r'<p class="absent" id="undrawn">(.*?)</p>', page)
    return html.unescape(match[1]) if match else ""


def limited(home: Path, *words: str, limit: int = LIMIT) -> subprocess.CompletedProcess[str]:
    """Run a command of Python or Meshmark where the address space is limited to `limit` bytes."""
    preparation = Preparation(limits={resource.RLIMIT_AS: up_to_hard_limit(resource.RLIMIT_AS, limit)})
    environment: dict[str, Any] = {**os.environ, "XDG_DATA_HOME": str(home / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
    return run([sys.executable, *words], preparation, timeout_s=120, env=environment, encoding="utf-8")


def recording(folder: Path) -> str:
    """Return the path of a recording of five frames."""
    with Recorder(folder / "r.parquet", header()) as recorder:
        for n in range(1, 6):
            recorder.add(frame(n, 0.2, None, 0.55, 1.0))
    return str(folder / "r.parquet")


REPORT = """
import sys
from pathlib import Path
from meshmark.views.pages.build import write_report
from support import made_run

paths = write_report(made_run.latency(), made_run.absences(), made_run.run_info(), Path(sys.argv[1]))
print(paths.undrawn, len(paths.charts))
"""


def test_a_report_has_its_charts_where_the_address_space_is_limited(tmp_path: Path) -> None:
    completed = limited(tmp_path, "-c", REPORT, str(tmp_path / "report"))
    assert completed.returncode == 0 and completed.stderr == "", completed.stderr
    folder = tmp_path / "report" / "charts"
    pngs, svgs = sorted(folder.glob("*.png")), sorted(folder.glob("*.svg"))
    assert completed.stdout.split() == [str(len(pngs) + len(svgs))] and pngs and len(pngs) == len(svgs)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pngs) and all("</svg>" in p.read_text() for p in svgs)
    page = (tmp_path / "report" / "report.html").read_text()
    assert reason_in(page) == "" and "vegaEmbed" in page


def test_a_recording_is_plotted_where_the_address_space_is_limited(tmp_path: Path) -> None:
    plots = tmp_path / "plots"
    completed = limited(tmp_path, "-m", "meshmark", "plot", recording(tmp_path), "--out", str(plots))
    assert completed.returncode == 0, completed.stderr
    assert {p.suffix for p in plots.iterdir()} >= {".png", ".svg"}


LARGE = """
from meshmark.views.charts.vega import DrawingError, pictures, reason_of

data = {"sequence": {"start": 0, "stop": 20_000_000}}
try:
    pictures([{"data": data, "mark": "point", "encoding": {"x": {"field": "data", "type": "quantitative"}}}])
except DrawingError as error:
    print(reason_of(error))
"""


def test_a_chart_that_needs_more_memory_than_there_is_gives_one_line(tmp_path: Path) -> None:
    completed = limited(tmp_path, "-c", LARGE, limit=SMALL_LIMIT)
    assert completed.returncode == 0 and completed.stderr == "", completed.stderr
    assert re.fullmatch(r"cannot draw charts: [^\n]+; the limit ulimit -v may be too low\n", completed.stdout)


def test_a_picture_that_needs_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(DrawingError, match="TiB of memory are not available") as raised:
        png_of_svg('<svg xmlns="http://www.w3.org/2000/svg" width="900000" height="900000"/>')
    assert "ulimit -v" in raised.value.hint


def test_a_drawing_that_is_not_svg_is_refused_with_a_reason() -> None:
    with pytest.raises(DrawingError, match=r"^cannot draw charts: unknown token at 1:1$"):
        png_of_svg("no drawing")


def test_a_specification_that_is_not_valid_is_refused_with_a_reason() -> None:
    with pytest.raises(DrawingError, match=r"^cannot draw charts: Invalid specification .*[^\n]$"):
        pictures([{"nonsense": 1}])
    axis = {"labelExpr": "format(("}
    x = {"field": "a", "type": "quantitative", "axis": axis}
    with pytest.raises(DrawingError, match=r"^cannot draw charts: Expression parse error"):
        pictures([{"data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": {"x": x}}])


@pytest.fixture
def without_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vega, "STATIC", tmp_path / "missing")


@pytest.mark.usefixtures("without_library")
def test_a_report_without_charts_has_the_numbers_and_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    paths = write_report(made_run.latency(), made_run.absences(), made_run.run_info(), folder)
    assert paths.undrawn.startswith(REASON)
    page = (folder / "report.html").read_text()
    assert reason_in(page) == paths.undrawn and "results as a table" in page
    assert (folder / "card.json").exists() and not (folder / "charts").exists()


@pytest.mark.usefixtures("without_library")
def test_a_recording_that_cannot_be_plotted_gives_one_error_and_status_1(tmp_path: Path) -> None:
    completed = CliRunner().invoke(app, ["plot", recording(tmp_path), "--out", str(tmp_path / "plots")])
    assert isinstance(completed.exception, DrawingError) and str(completed.exception).startswith(REASON)
    assert completed.exception.status == 1 and completed.exception.hint


@pytest.mark.usefixtures("without_library")
def test_a_validation_is_written_without_charts_and_one_line_says_so(tmp_path: Path) -> None:
    out_folder = tmp_path / "validation"
    completed = CliRunner().invoke(app, ["model", "validate", "A01", "--out", str(out_folder)])
    assert completed.exit_code == 0, completed.output
    assert completed.stderr.splitlines()[-1].startswith(f"warning: no charts: {REASON}")
    assert (out_folder / "validation.json").exists()
