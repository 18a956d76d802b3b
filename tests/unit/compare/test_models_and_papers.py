"""Tests of comparisons with models and publications as sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.compare.hops import by_hops, fit
from meshmark.compare.join import compare
from meshmark.compare.models import memory_peak, simulated
from meshmark.compare.sides import Sides
from meshmark.errors import UsageError
from meshmark.measure.repetitions import point_key
from meshmark.model.machine import find_machine, read_machine
from meshmark.model.sweeps.sweep import run_sweep
from meshmark.store.store import Store
from meshmark.views.content.compared_text import hops_texts
from meshmark.views.pages.comparison import charts, comparison_page
from support.made_run import bandwidth


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(Store(tmp_path / "store"), tmp_path / "runs", "n042")


def test_a_model_is_simulated_where_the_publication_measured(sides: Sides) -> None:
    publication, model = sides.find_all(["paper:gs1280", "gs1280-16"], "latency")
    pairs = [p for p in compare(publication, model).pairs if p.a.metric == "load_latency"]
    assert [p.b.conditions["memory_node"] for p in pairs] == list(range(16))
    assert all(p.a.conditions["pattern"] == p.b.conditions["pattern"] == "stride" for p in pairs)
    assert all(p.ratio is not None and 0.95 < p.ratio.value < 1.05 for p in pairs)


def test_a_published_number_has_a_ratio_but_no_verdict(sides: Sides) -> None:
    c = compare(*sides.find_all(["paper:xeon5400", "paper:xeon5500"]))
    assert {p.word for p in c.pairs} == {"inconclusive"}
    assert {p.reason for p in c.pairs} == {"A: published without an interval; B: published without an interval"}


def test_means_are_over_published_numbers_too_and_show_the_misprint(sides: Sides) -> None:
    c = compare(*sides.find_all(["paper:xeon5400", "paper:xeon5500"]))
    means = {m.metric: m for m in c.means()}
    assert means["figure_of_merit"].value == pytest.approx(1.751 / 0.807, rel=2e-3)  # the mean of the 13 rows
    assert means["composite"].value == pytest.approx(1.75 / 0.69)  # as printed
    assert means["figure_of_merit"].pairs == 13 and means["figure_of_merit"].interval is None


def test_shares_of_the_peak_are_those_of_the_publication(sides: Sides) -> None:
    e325 = compare(*sides.find_all(["paper:e325", "e325"]), per="peak")
    best = {p.a.conditions["kernel"]: p.a.value for p in e325.pairs}
    assert best["triad"] == pytest.approx(0.69, abs=5e-3) and e325.pairs[0].a.unit == "1"
    two = compare(*sides.find_all(["paper:e325-2ch", "e325"]), per="peak")
    assert [p.a.value for p in two.pairs] == [pytest.approx(0.868, abs=1e-3)]


def test_a_side_without_a_peak_has_no_shares(sides: Sides, tmp_path: Path) -> None:
    Store(tmp_path / "store").add("run-1", "all", bandwidth())
    host = sides.find("made-up")
    with pytest.raises(UsageError, match="found no theoretical peak of the memory of made-up"):
        compare(host, sides.find("e325"), per="peak")


def test_the_peak_of_a_model_is_that_of_all_its_channels() -> None:
    assert memory_peak(find_machine("gs1280-4")) == pytest.approx(4 * 2 * 6.136e9)
    assert memory_peak(find_machine("xeon5500")) == pytest.approx(64e9, rel=1e-3)  # 3 channels per node
    assert memory_peak(find_machine("e325")) == pytest.approx(10.667e9, rel=1e-3)  # at the ratcheted clock


def test_choices_that_a_model_does_not_know_are_left_out() -> None:
    host_records = bandwidth()
    assert {r.conditions["kernel"] for r in host_records} > {"copy"}
    model_records = simulated(find_machine("e325"), host_records, "bandwidth")
    assert "copy" in {r.conditions["kernel"] for r in model_records}
    assert len({(r.metric, str(r.conditions)) for r in model_records}) == len(model_records)


def test_stored_results_of_a_model_come_before_a_simulation(sides: Sides, tmp_path: Path) -> None:
    stored_records = simulated(find_machine("e325"), instrument="latency")
    Store(tmp_path / "store").add("run-1", "latency", stored_records)
    assert sides.find("e325").what == "newest result of each point, of 1 run"
    assert sides.find("es45").what.startswith("model, simulated")


def test_the_points_of_a_sweep_are_other_machines(sides: Sides, tmp_path: Path) -> None:
    """An earlier version pooled seven clocks into one result, whose ratio held for none of the clocks."""
    options = {"threads": "2", "store": "streaming"}
    vary, store = ["cpu.clock_ghz=1.4,2.2"], tmp_path / "store"
    sweep_records = run_sweep(find_machine("e325"), vary, "bandwidth", options, store, False, None, print)
    assert len({point_key(r) for r in sweep_records if r.metric == "bandwidth_net"}) == 2
    (run,) = {str(row["run"]) for row in Store(tmp_path / "store").runs()}
    publication, stored_side = sides.find_all(["paper:e325", run], "bandwidth")
    assert len([r for r in stored_side.points if r.metric == "bandwidth_net"]) == 2
    assert not any(r.conditions.get("run_modes") for r in stored_side.points)
    assert not compare(publication, stored_side).pairs
    assert sides.find("e325").what.startswith("model, simulated"), "no variant of the machine stands for it"


def test_a_machine_file_is_a_model(sides: Sides, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(find_machine("e325").path.read_bytes())
    side = sides.find(str(file), instrument="latency")
    assert side.machine == "mine" and {r.instrument for r in side.records} == {"latency"}
    assert read_machine(file).title in side.what


def test_an_unknown_paper_is_named(sides: Sides) -> None:
    with pytest.raises(Exception, match="found 'gs128'; allowed: "):
        sides.find("paper:gs128")


def test_latency_by_hops_is_that_of_the_publication(sides: Sides) -> None:
    publication, model = sides.find_all(["paper:gs1280", "gs1280-16"], "latency")
    line = fit(by_hops(publication.points))
    assert line is not None and line.points == 15
    assert (line.base_s, line.per_hop_s) == (pytest.approx(106.18e-9, rel=1e-4), pytest.approx(36.85e-9, rel=1e-3))
    assert line.interval is not None and line.interval[0] < line.per_hop_s < line.interval[1]
    matching = by_hops(model.points, by_hops(publication.points))
    assert {r.conditions["pattern"] for r in matching} == {"stride"} and len(matching) == 16
    assert {r.conditions["hops"] for r in matching} == {0, 1, 2, 3, 4}


def test_one_distance_has_no_line(sides: Sides) -> None:
    (side,) = sides.find_all(["gs320-16"], "latency")
    assert fit(by_hops(side.points)) is None and fit([]) is None


def test_the_page_has_hops_and_pairs(sides: Sides) -> None:
    c = compare(*sides.find_all(["paper:gs1280", "gs1280-16"], "latency"))
    assert {"hops", "matrix"} <= charts([c]).keys()
    assert (
        hops_texts([c])[0]
        == "A: latency of remote memory 106\u00a0ns + 36.9\u00a0ns per hop (32.4 – 41.3\u00a0ns), 15 nodes"
    )
    assert "figure 13" in comparison_page([c])
    comparison = compare(*sides.find_all(["paper:xeon5400", "paper:xeon5500"]))
    assert hops_texts([comparison]) == [] and not {"hops", "matrix"} & charts([comparison]).keys()


def test_published_streaming_rates_are_paired_with_streaming_stores(sides: Sides) -> None:
    publication, model = sides.find_all(["paper:e325", "e325"], "bandwidth")
    [triad] = [p for p in compare(publication, model).pairs if p.a.conditions["kernel"] == "triad"]
    assert triad.b.conditions["store"] == "streaming"
    assert triad.ratio is not None and triad.ratio.value == pytest.approx(1, abs=0.02)
