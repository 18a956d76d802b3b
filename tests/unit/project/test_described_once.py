"""A metric is described once, by its instrument, and all other code reads that description. So is the version."""

from __future__ import annotations

import ast
import json
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.describe import chosen_conditions, descriptions, observed_conditions
from meshmark.load.scenario.records import METRICS as OF_LOAD
from meshmark.model.patterns import METRICS as OF_WORKLOADS
from meshmark.place.native import find_place, vocabulary
from meshmark.store.record import BETTER, OBSERVED, Metric
from meshmark.values.units import plain, show
from meshmark.views.content.card import machine_card
from meshmark.views.pages.build import report_page
from meshmark.views.terminal.records import print_records
from support import made_run
from support.paths import ROOT

SOURCES = ROOT / "src" / "meshmark"


def all_metrics() -> Iterator[tuple[str, Metric]]:
    for d in descriptions().values():
        yield from ((d.name, m) for m in d.metrics)
    for name, metrics in (
        ("load", OF_LOAD.values()),
        ("run", vocabulary().metrics),
        ("a workload", OF_WORKLOADS.values()),
    ):
        yield from ((name, m) for m in metrics)


def test_a_name_means_the_same_wherever_it_stands() -> None:
    first: dict[str, tuple[str, Metric]] = {}
    for instrument, m in all_metrics():
        other, previous = first.setdefault(m.name, (instrument, m))
        assert (m.unit, m.better) == (previous.unit, previous.better), f"{m.name} of {instrument} and of {other}"
        assert m.better in BETTER and m.help


def test_what_a_run_reports_is_what_its_description_says(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    subprocess.run(
        [find_place(), "run", "--record", journal, "--", "true"], check=True, timeout=60, capture_output=True
    )
    records = [line for line in map(json.loads, journal.read_text().splitlines()) if line["type"] == "result"]
    units = {m.name: (m.unit, m.better) for m in vocabulary().metrics}
    assert records and all((r["unit"], r["better"]) == units[r["metric"]] for r in records)


def of_samples(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Name)
        and call.func.id in {"min", "max"}
        and any(isinstance(a, ast.Attribute) and a.attr == "samples" for a in call.args)
    )


def test_no_view_chooses_the_best_sample_itself() -> None:
    """Three views chose by the unit, and disagreed on one page."""
    lines = [
        f"{path.relative_to(SOURCES)}:{call.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and of_samples(call)
    ]
    assert [location for location in lines if not location.startswith("store/record.py")] == []


@pytest.mark.parametrize(
    ("instrument", "metric", "best"), [("loaded", "memory_parallelism", max), ("dgemm", "residual", min)]
)
def test_all_views_show_the_same_best(
    instrument: str, metric: str, best: type[min], capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = {"best_chains": 8} if instrument == "loaded" else {"n": 512, "threads": 1}
    r = made_run.record(instrument, metric, 12.5, **conditions)
    assert r.best == best(r.samples)
    listing = show(r.best, r.unit)
    page = report_page([r], [], made_run.run_info())
    cells = page.partition("<summary>1 result as a table")[2].partition("</table>")[0]
    assert f'<td class="n">{listing}</td>' in cells
    print_records([r])
    assert plain(r.best, r.unit) in capsys.readouterr().out.splitlines()[-1].split()
    if instrument == "loaded":
        assert f"best {listing}" in page, "on the tile"
        assert machine_card([r], [], made_run.run_info())["figures"]["memory_parallelism"]["best"] == r.best


def test_conditions_that_an_instrument_observes_come_from_its_description() -> None:
    """No list outside the description names them."""
    described_names = {name for d in descriptions().values() for name in d.observed}
    assert {"zeta", "planning"} <= described_names <= observed_conditions() and not described_names & OBSERVED
    record = replace(
        made_run.everything()[0], instrument="npb", conditions={"kernel": "cg", "zeta": 22.7, "steal_share": 0.1}
    )
    assert chosen_conditions([record]) == ["kernel"]
    assert not described_names & {name for d in descriptions().values() for name in d.identity}


def test_no_option_of_an_instrument_is_an_option_of_the_probe() -> None:
    options = {(d.name, p.option) for d in descriptions().values() for p in d.parameters}
    assert [(name, option) for name, option in options if option in {"--describe", "--plan", "--help"}] == []


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nversion: {project['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
