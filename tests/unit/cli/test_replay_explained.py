"""Test `meshmark replay --traffic` and `--coverage`: their sentences, tables, JSON and CSV, and what they refuse."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.cli import meshmark
from support.made_recordings import frames, header, record


@pytest.fixture(scope="module")
def hot_spot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a recording of a model whose CPUs all read the memory of node 0."""
    path = tmp_path_factory.mktemp("recordings") / "r.parquet"
    words = ("--on", "gs1280-8", "--workload", "hot_spot", "--frames", "40")
    assert meshmark("record", *words, "--out", str(path)).returncode == 0
    return path


def test_traffic_is_a_sentence_a_heat_table_and_the_largest_pairs(hot_spot: Path) -> None:
    lines = meshmark("replay", hot_spot, "--traffic").stdout.splitlines()
    assert " of memory traffic is remote, counted; local to remote: " in lines[0]
    rows = {line[:12].strip(): line.split()[3:] for line in lines if line.startswith("CPUs of ")}
    assert len([k for k in rows if k != "CPUs of node"]) == 8
    assert float(rows["CPUs of 3"][0].rstrip("░▒▓█")) > 0 and rows["CPUs of 3"][1:8] == ["0.0"] * 7
    assert "largest pairs" in lines


def test_rebuilt_traffic_is_labelled_and_has_bounds(hot_spot: Path) -> None:
    sentence = meshmark("replay", hot_spot, "--traffic", "--source", "rebuilt").stdout.splitlines()[0]
    assert "rebuilt from the loads of memories and links" in sentence and "(bounds: " in sentence
    part = json.loads(meshmark("replay", hot_spot, "--traffic", "--from", "2us", "--json").stdout)
    assert part["source"] == "rebuilt" and part["remote"]["low"] <= part["remote"]["value"] <= part["remote"]["high"]


def test_json_and_csv_have_every_pair(hot_spot: Path) -> None:
    matrix = json.loads(meshmark("replay", hot_spot, "--traffic", "--json").stdout)
    assert (matrix["type"], matrix["source"], matrix["unit"]) == ("traffic", "counted", "B")
    rows = list(csv.DictReader(io.StringIO(meshmark("replay", hot_spot, "--traffic", "--csv").stdout)))
    assert len(rows) == 64
    assert [float(r["value"]) for r in rows] == [v for row in matrix["value"] for v in row]
    assert {r["source"] for r in rows} == {"counted"}


def test_coverage_states_what_reached_its_maximum(hot_spot: Path) -> None:
    out = meshmark("replay", hot_spot, "--coverage").stdout
    assert "drives 8 of 8 CPUs, 2 of 16 memories, " in out.splitlines()[0]
    assert "Not every component reaches saturation." in out
    classes = {
        c["class"]: c for c in json.loads(meshmark("replay", hot_spot, "--coverage", "--json").stdout)["classes"]
    }
    rows = list(csv.DictReader(io.StringIO(meshmark("replay", hot_spot, "--coverage", "--csv").stdout)))
    assert len(rows) == sum(c["components"] for c in classes.values())
    assert classes["memory"]["used"] == 2 == sum(r["class"] == "memory" and float(r["peak"]) > 0 for r in rows)


def test_what_is_unknown_on_a_host_is_absent_with_its_reason(tmp_path: Path) -> None:
    nodes = ({"name": "node 0", "number": 0}, {"name": "node 1", "number": 1})
    of = header(4)
    path = record(
        tmp_path / "h", replace(of, components={**of.components, "node": nodes}), frames([[0.95, 0.5, 0.1, 0.0]] * 3)
    )
    completed = meshmark("replay", path, "--traffic")
    assert completed.returncode == 1 and "Traceback" not in completed.stderr
    assert "not rebuilt: the traffic of the memories is unknown: no counters here" in completed.stderr
    completed = meshmark("replay", path, "--traffic", "--coverage")
    assert completed.returncode == 0 and "not rebuilt: " in completed.stderr
    assert "drives 1 of 4 CPUs to at least 90 % of their maximum, and uses 3 of 4 CPUs" in completed.stdout
    assert "1 of 1 memories unknown: no counters here" in completed.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--traffic", "--source", "guessed"], "--source: found 'guessed'; allowed: counted, rebuilt, estimated"),
        (["--source", "rebuilt"], "--source: found without --traffic"),
        (["--csv"], "--csv: found without one of --traffic, --coverage"),
        (["--from", "1us"], "--from: found without one of --traffic"),
        (["--traffic", "--coverage", "--csv"], "--csv: found with --traffic and --coverage"),
        (["--traffic", "--web"], "--web: found with --traffic"),
        (["--coverage", "--from", "2us", "--to", "1us"], "--from: found"),
        (["--coverage", "--window", "command"], "--window: found no marked command"),
        (["--traffic", "--source", "estimated"], "a simulated machine has no processes"),
    ],
)
def test_other_options_are_refused_in_one_line(hot_spot: Path, words: list[str], said: str) -> None:
    completed = meshmark("replay", hot_spot, *words)
    assert completed.returncode in {1, 2}
    assert said in completed.stderr and "Traceback" not in completed.stderr
