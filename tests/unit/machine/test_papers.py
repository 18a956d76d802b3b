"""Published numbers become records that name their source, their qualifier and their misprint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.cli.published import show_published
from meshmark.machine.published.papers import Paper, paper, papers
from meshmark.machine.published.reference import Publication, publication, publications
from meshmark.machine.tree import MachineError
from meshmark.store.record import Record

KNOWN = {"altix3700", "altix4700", "cray-x1", "cray-x1e", "e325", "e325-2ch", "gs1280", "xeon5400", "xeon5500"}


def of(name: str, metric: str, **conditions: object) -> list[Record]:
    return [
        r
        for r in paper(name).records()
        if r.metric == metric and all(r.conditions.get(k) == v for k, v in conditions.items())
    ]


def test_every_machine_has_numbers_with_places() -> None:
    assert {p.name for p in papers()} == KNOWN
    for p in papers():
        records = p.records()
        assert records, p.name
        for r in records:
            assert (r.source, r.machine) == ("paper", f"paper:{p.name}")
            assert r.provenance["place"] and r.provenance["publication"] == p.publication.title
            assert str(r.provenance["start"]).startswith(str(p.publication.year))
            assert Record.from_json(r.to_json()) == r


def test_the_latency_map_is_in_the_order_of_the_nodes() -> None:
    map_of_nodes = of("gs1280", "load_latency", cpu=0)
    assert [r.conditions["memory_node"] for r in map_of_nodes] == list(range(16))
    assert [round(r.value * 1e9) for r in map_of_nodes[:5]] == [82, 141, 177, 149, 133]
    assert round(map_of_nodes[10].value * 1e9) == 250


def test_all_runs_of_a_benchmark_are_the_samples_of_one_record() -> None:
    (unbound,) = of("xeon5500", "bandwidth_net", threads=4, scheduler="Linux kernel")
    assert len(unbound.samples) == 10 and unbound.ends == (36.855e9, 25.782e9)
    assert unbound.interval is not None


def test_a_condition_may_be_a_value_of_the_table() -> None:
    assert [r.conditions["processes"] for r in of("xeon5500", "load_latency")] == [1, 2, 4, 8, 16]
    assert len(of("xeon5400", "load_latency")) == 4


def test_a_number_has_its_qualifier_and_its_misprint() -> None:
    (paper,) = of("altix3700", "bandwidth_net")
    assert paper.provenance["qualifier"] == "about"
    (composite,) = of("xeon5400", "composite")
    assert composite.value == 0.69 and "0.807" in str(composite.provenance["misprint"])
    assert all("misprint" not in r.provenance for r in of("xeon5500", "composite"))


def test_a_peak_belongs_to_the_arrangement_of_the_memory() -> None:
    (two,) = of("e325-2ch", "bandwidth_net")
    assert two.value / float(str(two.provenance["peak"])) == pytest.approx(0.868, abs=1e-3)
    best = max(of("e325", "bandwidth_net", kernel="triad"), key=lambda r: r.value)
    assert best.value / float(str(best.provenance["peak"])) == pytest.approx(0.69, abs=5e-3)


def test_an_unknown_machine_names_the_known_and_the_nearest() -> None:
    with pytest.raises(MachineError, match=r"found 'gs128'; allowed: altix3700, .*xeon5500") as raised:
        paper("paper:gs128")
    assert raised.value.hint == "did you mean gs1280?"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("title =", "a.toml: Invalid value"),
        ('title = "T"\nrecords = []', "a.toml: 'publication'"),
        ('publication = "cray_x1_2005"\nrecords = []', "a.toml: 'title'"),
    ],
)
def test_an_incomplete_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(MachineError) as raised:
        papers(tmp_path)
    assert str(raised.value).startswith(says)


def test_a_unit_that_is_not_that_of_the_metric_is_refused() -> None:
    row = {"instrument": "latency", "metric": "load_latency", "table": "system.x1", "values": ["vector_clock_mhz"]}
    with pytest.raises(MachineError, match="found Hz; s is required"):
        Paper("x1", "X1", publication("cray_x1_2005"), [row]).records()


def test_a_published_number_says_what_it_is_and_how_its_runs_spread() -> None:
    triads = [
        r for r in paper("e325").records() if r.conditions.get("kernel") == "triad" and "behaviour" in r.conditions
    ]
    assert {r.provenance["statistic"] for r in triads} == {"best of 10 runs"}
    assert {r.provenance["runs"] for r in triads} == {10}
    assert max(float(r.provenance["spread"] or 0) for r in triads) == pytest.approx(0.03)
    [single, *_] = [r for r in paper("xeon5400").records() if r.instrument == "latency"]
    assert single.provenance["statistic"] == "not stated"
    assert "runs" not in single.provenance


def test_tables_of_published_numbers_claim_no_median_spread_or_number_of_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_published("paper:xeon5400", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    position = next(i for i, line in enumerate(lines) if "statistic" in line and "processes" in line)
    assert "median" not in lines[position]
    assert lines[position + 1].split()[-3:] == ["–", "–", "unknown"]
    show_published("paper:e325", as_json=False)
    [line] = [x for x in capsys.readouterr().out.splitlines() if "triad" in x and "k_smp-2.4.19-191" in x]
    assert "0.0 %" not in line
    assert line.split()[-1] == "10"


@pytest.mark.parametrize("of", publications(), ids=lambda p: p.name)
def test_every_text_of_a_publication_is_shown(of: Publication, capsys: pytest.CaptureFixture[str]) -> None:
    show_published(f"paper:{of.name}", as_json=False)
    output = capsys.readouterr().out
    data = {**of.data, "document": {k: v for k, v in of.data["document"].items() if k != "source"}}
    hidden = [text for key, text in texts(data) if text not in output and key != "document"]
    assert hidden == []


def texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield every text of a file with its key."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from texts(part, name)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part, key)
    elif isinstance(value, str) and key != "origin":
        yield key, value


def test_a_comparison_says_what_it_compares_and_what_its_qualifier_is_about() -> None:
    entries = {e.path: e for e in publication("alphaserver_gs1280_2003").entries()}
    triad = entries["comparison[5].advantage_ratio"]
    assert triad.compares == {"metric": "STREAM Triad bandwidth", "subject": "GS1280", "baseline": "GS320"}
    assert triad.comparison == "STREAM Triad bandwidth: GS1280 against GS320"
    advantages = [e for e in entries.values() if e.path.startswith("comparison[") and e.unit]
    assert len(advantages) >= 37 and all(e.comparison for e in advantages)
    nearly = entries["comparison[3].advantage_ratio"], entries["comparison[3].cpus"]
    assert [e.qualifier for e in nearly] == ["closer to", ""]  # qualifies the ratio; there were exactly 32 CPUs
    assert not entries["system.gs1280.clock_ghz"].comparison


def test_a_comparison_is_readable_in_one_line_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    show_published("paper:alphaserver_gs1280_2003", False)
    lines = capsys.readouterr().out.splitlines()
    assert "  comparison[5].advantage_ratio = 7  (STREAM Triad bandwidth: GS1280 against GS320)" in lines
    show_published("paper:alphaserver_gs1280_2003", True)
    rows = {r["path"]: r for r in map(json.loads, capsys.readouterr().out.splitlines())}
    row = rows["comparison[5].advantage_ratio"]
    assert (row["metric"], row["subject"], row["baseline"]) == ("STREAM Triad bandwidth", "GS1280", "GS320")
    assert "subject" not in rows["comparison[0].cpus"]
