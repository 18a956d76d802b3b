"""Charts where the address space is limited, as on login nodes: the command prints one line instead of crashing."""

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

from meshmark.process import Preparation, run, up_to_hard_limit
from meshmark.views.charts.vega import DrawingError, png_of_svg
from meshmark.watch.recording import Recorder
from support.made_frames import frame, header
from support.paths import ROOT

LIMIT = 4_096_000_000  # `ulimit -v 4000000`
REASON = "cannot draw charts: the address space is limited to 3.81 GiB (ulimit -v)"


def reason_in(page: str) -> str:
    """Return the reason that a page states for the absence of its charts, or ""."""
    match = re.search(r'<p class="absent" id="undrawn">(.*?)</p>', page)
    return html.unescape(match[1]) if match else ""


def limited(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Python or Meshmark where the address space is limited, with an empty cache."""
    preparation = Preparation(limits={resource.RLIMIT_AS: up_to_hard_limit(resource.RLIMIT_AS, LIMIT)})
    environment: dict[str, Any] = {**os.environ, "XDG_CACHE_HOME": str(cache), "XDG_DATA_HOME": str(cache / "data")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
    return run([sys.executable, *words], preparation, timeout_s=120, env=environment, encoding="utf-8")


def test_a_recording_that_cannot_be_plotted_gives_one_line_and_status_1(tmp_path: Path) -> None:
    with Recorder(tmp_path / "r.parquet", header()) as recorder:
        for n in range(1, 6):
            recorder.add(frame(n, 0.2, None, 0.55, 1.0))
    completed = limited(
        tmp_path, "-m", "meshmark", "plot", str(tmp_path / "r.parquet"), "--out", str(tmp_path / "plots")
    )
    assert completed.returncode == 1 and completed.stdout == ""
    lines = completed.stderr.splitlines()
    assert lines[0].startswith(f"meshmark: error: {REASON}") and lines[1].startswith("hint: ") and len(lines) == 2


REPORT = """
import sys
from pathlib import Path
from meshmark.views.pages.build import write_report
from support import made_run

paths = write_report(made_run.latency(), made_run.absences(), made_run.run_info(), Path(sys.argv[1]))
print(paths.undrawn)
"""


def test_a_report_without_charts_has_the_numbers_and_the_reason(tmp_path: Path) -> None:
    completed = limited(tmp_path, "-c", REPORT, str(tmp_path / "report"))
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith(REASON) and completed.stderr == ""
    page = (tmp_path / "report" / "report.html").read_text()
    assert reason_in(page) == completed.stdout.strip() and "results as a table" in page
    assert (tmp_path / "report" / "card.json").exists() and not (tmp_path / "report" / "charts").exists()


def test_a_validation_is_written_without_charts_and_one_line_says_so(tmp_path: Path) -> None:
    out_folder = tmp_path / "validation"
    completed = limited(tmp_path, "-m", "meshmark", "model", "validate", "A01", "--out", str(out_folder))
    assert completed.returncode == 0
    assert completed.stderr.splitlines()[-1].startswith(f"warning: no charts: {REASON}")
    assert "Trace" not in completed.stderr and (out_folder / "validation.json").exists()


def test_pages_have_their_charts_where_the_chart_library_was_made_before(tmp_path: Path) -> None:
    completed = run(
        [
            sys.executable,
            "-c",
            "from meshmark.views.charts.drawing import chart_page; chart_page('charts.html', {}, title='')",
        ],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert completed.returncode == 0, completed.stderr
    assert limited(tmp_path, "-c", REPORT, str(tmp_path / "report")).returncode == 0
    page = (tmp_path / "report" / "report.html").read_text()
    assert reason_in(page) == "" and "vegaEmbed" in page


def test_a_drawing_that_is_not_svg_is_refused_with_a_reason() -> None:
    with pytest.raises(DrawingError, match="cannot draw charts: the library that draws them ended: status 1"):
        png_of_svg("no drawing")
