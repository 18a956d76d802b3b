"""Tests of machine files that are fitted to the output of other tools, with numbers that the fit did not use."""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.compare.import_fit import ImportFit, fit_import
from meshmark.compare.import_numbers import find_numbers
from meshmark.errors import AbsentError, UsageError
from meshmark.store.record import Record
from support.imports import fixture, records_of

SNC, PAIR, ONE, CXL = (records_of(fixture(f"mlc-{name}.txt")) for name in ("snc", "pair", "one", "cxl"))
STREAM = records_of(fixture("stream.txt"))


@pytest.fixture(scope="module")
def snc(tmp_path_factory: pytest.TempPathFactory) -> ImportFit:
    return fit_import(SNC, "made", tmp_path_factory.mktemp("snc"), cores=52)


def points(found: ImportFit, fitted: bool) -> dict[str, float]:
    return {p.what: p.error for p in found.points if p.fitted is fitted}


def test_the_numbers_of_a_complete_output_are_found() -> None:
    results = find_numbers(SNC, cores=52)
    assert results.numbers.sockets == 2 and results.nodes == 4  # two nodes per socket
    values = {name: number.value for name, number in results.numbers.given.items()}
    local_ns = [77.3, 81.6, 82.1, 78.1, 73.5, 81.7, 81.7, 78.5]
    assert values["idle-local"] == pytest.approx(math.fsum(local_ns) / 8 * 1e-9)
    assert 129e-9 < values["idle-remote"] < 138e-9
    (read_point,) = results.used["read"]
    assert values["read"] == read_point.value == pytest.approx(232.8e9, rel=1e-3)
    assert values["loaded"] == max(results.curve, key=lambda p: p.bandwidth.value).latency.value
    assert "link" not in values, "the rate between quarters of the machine is not that between sockets"
    assert results.notes[0] == "the 4 nodes of the results are 2 sockets, by their latencies"


def test_the_numbers_between_two_sockets_are_found() -> None:
    values = {name: number.value for name, number in find_numbers(PAIR, cores=56).numbers.given.items()}
    assert values["idle-local"] == pytest.approx(81.8e-9) and values["idle-remote"] == pytest.approx(141.25e-9)
    assert values["transfer"] == pytest.approx(115.35e-9), "lines homed at the writer, as in the model"
    assert "link" not in values, "mixes of reads and writes are no reads"


@pytest.mark.slow
def test_a_fit_is_tested_on_the_loaded_curve_mixes_and_transfers(snc: ImportFit) -> None:
    fitted_errors, predicted_errors = points(snc, True), points(snc, False)
    assert {"idle-local", "idle-remote", "read", "triad", "loaded"} < set(fitted_errors)
    assert snc.rms(True) < 0.05
    curve = [error for name, error in predicted_errors.items() if name.startswith("loaded latency")]
    assert len(curve) > 8 and max(map(abs, curve)) < 0.08
    assert abs(predicted_errors["mix, 67% reads"]) < 0.15 and abs(predicted_errors["transfer inside a socket"]) < 0.2
    assert snc.rms(False) > snc.rms(True)
    assert any(note.startswith("not tested") and "other STREAM kernels" in note for note in snc.notes)
    assert any(note.startswith("not used: 16 results of bandwidth bandwidth_net (read)") for note in snc.notes)
    assert tomllib.loads(snc.text)["memory"]["channels"]["fitted"] == "latency at the middle of the loaded curve"


def test_each_of_two_runs_is_compared_with_the_model(tmp_path: Path) -> None:
    again = [replace(r, value=r.value / 2) for r in SNC if r.conditions.get("kernel") == "mix"]
    measured = [(p.what, p.host) for p in fit_import([*SNC, *again], "made", tmp_path, cores=52).points]
    mixes = [value for what, value in measured if what.startswith("mix, 67%")]
    assert len(mixes) == 2 and mixes[0] == pytest.approx(2 * mixes[1])


def test_points_that_set_a_number_are_not_called_predicted(snc: ImportFit) -> None:
    names = [p.what for p in snc.points]
    assert len(names) == len(set(names))
    assert sum(p.what.startswith("loaded latency") for p in snc.points if p.fitted) == 1


def test_what_the_results_lack_is_assumed_and_said(tmp_path: Path) -> None:
    fit = fit_import(STREAM, "made", tmp_path)
    machine = tomllib.loads(fit.text)
    assert set(points(fit, True)) == {"triad"}
    assert set(points(fit, False)) == {f"kernel {k}, ordinary stores, 2 cores" for k in ("copy", "scale", "add")}
    for text in ("idle-local 100 ns", "read is", "cores 2 is", "triad: ordinary stores are"):
        assert any(text in note and "assumed" in note for note in fit.notes), text
    assert "assumed" in machine["memory"]["access_ns"] and "assumed" in machine["node"]["cpus"]
    informed_fit = fit_import(STREAM, "made", tmp_path, cores=4, idle_local=90e-9)
    assert not any("idle-local" in note or "cores" in note for note in informed_fit.notes)
    assert "fitted" in tomllib.loads(informed_fit.text)["memory"]["access_ns"]


def test_a_bandwidth_that_cannot_be_met_is_reported(tmp_path: Path) -> None:
    fit = fit_import(ONE, "made", tmp_path, cores=2)  # a disturbed run: more triad than reads
    (triad,) = [o for o in fit.fitted.outcomes if o.name == "triad"]
    assert triad.warning == "with streaming stores, 8.903 GB/s of read give at most 8.903 GB/s"
    assert fit.rms(False) > 0.5


def test_a_fit_without_other_points_says_that_it_is_not_tested(tmp_path: Path) -> None:
    fit = fit_import(CXL, "made", tmp_path, cores=48)
    assert not points(fit, False) and math.isnan(fit.rms(False))
    assert any(note.startswith("not tested") and "latency under load" in note for note in fit.notes)


def only(records: list[Record], *metrics: str) -> list[Record]:
    return [r for r in records if r.metric in metrics]


def test_missing_numbers_are_named() -> None:
    with pytest.raises(AbsentError, match="the results do not state the number of cores"):
        find_numbers(SNC)
    with pytest.raises(AbsentError, match="no read or triad bandwidth of memory by all CPUs"):
        find_numbers(only(SNC, "load_latency"), cores=4)


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cores: found 51; allowed: an even number up to 1024"):
        fit_import(SNC, "made", tmp_path, cores=51)
    with pytest.raises(UsageError, match=r"idle-remote: found 134\.4 ns; allowed: at least idle-local, 150\.0 ns"):
        fit_import(SNC, "made", tmp_path, cores=2, idle_local=150e-9)
