"""Tests of `meshmark export` on the command line."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from meshmark.compare.exports.formats import FORMATS
from meshmark.store.export import to_jsonl
from support.cli import meshmark
from support.made_matrix import START, bandwidth, latency, machine, topology

NS = {(0, 0): 95.0, (0, 1): 190.0, (1, 0): 185.0, (1, 1): 96.0}


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Write files with results of the recorded machine numa-2, some of them flagged, and return the environment."""
    machine_topology = topology("numa-2")
    records = [
        *latency(machine_topology, NS),
        *bandwidth(machine_topology, {(0, 0): 60.0, (1, 1): 60.0}, flags=["stolen"]),
    ]
    guest_records = [replace(r, machine="numa-guest-561b891f", provenance={"start": START}) for r in records]
    (tmp_path / "n.jsonl").write_text(to_jsonl([("run", "s", r) for r in guest_records]), encoding="utf-8")
    (tmp_path / "n042.jsonl").write_text(
        to_jsonl([("run", "s", replace(r, machine="n042")) for r in guest_records]), encoding="utf-8"
    )
    return {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data")}


def test_formats_are_listed(home: dict[str, str], tmp_path: Path) -> None:
    completed = meshmark("export", "formats", "--json", cwd=tmp_path, env=home)
    rows = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [row["format"] for row in rows] == list(FORMATS) and "perfetto" in FORMATS
    assert all(row["needs"] and row["what"] for row in rows)


def test_a_file_is_written_and_omissions_are_said(home: dict[str, str], tmp_path: Path) -> None:
    words = ("--topology", machine("numa-2"), "-o", "n.xml")
    completed = meshmark("export", "hwloc-xml", "n.jsonl", *words, cwd=tmp_path, env=home)
    assert completed.returncode == 0 and completed.stdout == "", completed.stderr
    notes = completed.stderr.splitlines()
    assert "note: left out 2 results: flagged (stolen); --flagged exports them" in notes
    assert notes[-1] == "meshmark: wrote n.xml" and 'name="Latency"' in (tmp_path / "n.xml").read_text(encoding="utf-8")
    assert not (tmp_path / "data").exists(), "reading makes no folder"


def test_an_object_of_json_for_programs(home: dict[str, str], tmp_path: Path) -> None:
    words = ("--topology", machine("numa-2"), "--flagged", "--json")
    completed = meshmark("export", "weighted-interleave", "n.jsonl", *words, cwd=tmp_path, env=home)
    (line,) = completed.stdout.splitlines()
    document = json.loads(line)
    assert document["machine"] == "numa-guest-561b891f" and "weighted_interleave/node1" in document["text"], (
        completed.stderr
    )


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ([], 2, "format: missing; allowed: hwloc-xml, "),
        (["hwloc", "n.jsonl"], 2, "format: found 'hwloc'; allowed: hwloc-xml, "),
        (["perfetto", "n.jsonl"], 2, "perfetto is written from recordings"),
        (["qemu", "n.jsonl"], 2, "found no topology of numa-guest-561b891f, which is not this host"),
        (
            ["qemu", "n042.jsonl", "--topology", "CAPTURE"],
            2,
            "found the topology of numa-guest-561b891f; the results are of n042",
        ),
        (["qemu", "n.jsonl", "--topology", "n.jsonl"], 1, "n.jsonl"),
        (["weighted-interleave", "n.jsonl", "--topology", "CAPTURE"], 77, "no measured bandwidth of a memory node"),
        (["reframe", "n.jsonl", "--metric", "bandwith"], 2, "found no result of metric bandwith in n.jsonl"),
        (["otava", "n.jsonl"], 2, "found no runs of numa-guest-561b891f in the store"),
        (["reframe", "none.jsonl"], 2, "none.jsonl"),
        (["reframe", "n.jsonl", "-o", "no/f.py"], 2, "--output: found no folder no"),
        (["reframe"], 2, "export: found no results of this host"),
    ],
)
def test_bad_input_is_one_line(home: dict[str, str], tmp_path: Path, words: list[str], status: int, says: str) -> None:
    capture = str(machine("numa-2"))
    completed = meshmark("export", *[capture if w == "CAPTURE" else w for w in words], cwd=tmp_path, env=home)
    lines = [line for line in completed.stderr.splitlines() if not line.startswith("note: ")]
    complaint, *hints = lines
    assert completed.returncode == status and says in complaint and all(h.startswith("hint: ") for h in hints), (
        completed.stderr
    )
    assert len(hints) <= 1 and completed.stdout == ""
