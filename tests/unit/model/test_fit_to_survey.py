"""Machine files that are fitted to the survey of a known machine."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError
from meshmark.model.fitting.fit import fit
from meshmark.model.instruments import measure
from meshmark.model.machine import MachineFile, read_machine
from meshmark.store.record import Record


def machine_of(folder: Path, text: str) -> MachineFile:
    (folder / "machine.toml").write_text(text)
    return read_machine(folder / "machine.toml")


def as_host(records: list[Record], **more: Any) -> list[Record]:
    return [
        replace(r, source="host", machine="h", conditions={**r.conditions, "pages": "thp", **more}) for r in records
    ]


TRUTH = """
format = 1
[topology]
kind = "single"
[node]
cpus = 4
assumed = "made up"
[cpu]
outstanding = 10
stream_outstanding = 16
write_buffers = 16
request_ns = 25
fill_ns = 15
assumed = "made up"
[[cache]]
name = "L1"
size_kib = 32
latency_ns = 1.5
assumed = "made up"
[memory]
channel_gb_per_s = 20
access_ns = 50
assumed = "made up"
[coherence]
kind = "snoop"
"""


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Return the survey of a modelled machine, whose true parameters are known."""
    true_machine = machine_of(tmp_path_factory.mktemp("truth"), TRUTH)
    records = as_host(measure("loaded", true_machine, {"threads": "1,4", "chains": "1,2,4,8,10,16"}))
    kernels = {"threads": "1,2,4", "kernel": "triad,copy", "store": "streaming,ordinary", "footprint": "1GiB"}
    records += as_host(measure("bandwidth", true_machine, kernels))
    plateau = {"kind": "cache", "level": 1, "pages": "thp", "to_bytes": 32768}
    return [*records, latency_record(records[0], "level_latency", 1.5e-9, plateau)]


def latency_record(like: Record, metric: str, latency_s: float, conditions: dict[str, Any]) -> Record:
    more: dict[str, Any] = {"value": latency_s, "samples": (latency_s,), "interval": None, "conditions": conditions}
    return replace(like, instrument="latency", metric=metric, **more)


def test_a_fit_to_a_known_machine_finds_its_numbers(survey: list[Record], tmp_path: Path) -> None:
    result = fit(survey, "again", [4], 64, tmp_path)
    refitted = machine_of(tmp_path, result.text)
    assert refitted.number("cpu.outstanding") == 10
    assert refitted.number("memory.channel_gb_per_s") == pytest.approx(20, rel=0.03)
    assert result.rms(True) < 0.05
    assert result.rms(False) < 0.10
    points = [p.to_json() for p in result.points]
    assert all(p["error"] == pytest.approx(p["model"] / p["host"] - 1) for p in points)
    assert {p["unit"] for p in points} <= {"s", "B/s"}
    assert {p.fitted for p in result.points} == {True, False}
    assert all(o.kind in {"fitted", "derived", "assumed"} for o in refitted.origins.values())
    assert tomllib.loads(result.text)["topology"] == {"kind": "single"}


def test_nodes_of_a_fit_are_joined_by_links_that_cost_what_the_survey_found_beyond_the_local_latency(
    survey: list[Record], tmp_path: Path
) -> None:
    def load(node: int, latency_s: float, footprint_bytes: int) -> Record:
        conditions = {"pattern": "random", "processes": 1, "memory_node": node, "footprint_bytes": footprint_bytes}
        return latency_record(survey[0], "load_latency", latency_s, conditions)

    # The smallest latency of a node counts; a footprint that caches serve contains no information about memory.
    remote = [load(0, 100e-9, 2**30), load(1, 190e-9, 2**30), load(1, 160e-9, 2**30), load(1, 2e-9, 2**12)]
    machine = tomllib.loads(fit([*survey, *remote], "two", [2, 2], 64, tmp_path).text)
    assert machine["topology"]["kind"] == "graph"
    assert (machine["topology"]["routers"], machine["topology"]["edges"]) == (2, [[0, 1, "between"]])
    assert machine["links"]["between"]["latency_ns"]["value"] == pytest.approx(
        30
    )  # half of the additional latency, for each direction
    assert "fitted" in machine["links"]["between"]["latency_ns"]
    assert machine["node"]["cpus"]["value"] == 2
    # All CPUs share the bandwidth of the memory: each of the two nodes gets half of it.
    assert machine["memory"]["channel_gb_per_s"]["value"] == pytest.approx(10, rel=0.03)
    without_remote = tomllib.loads(fit(survey, "two", [2, 2], 64, tmp_path).text)
    assert "assumed" in without_remote["links"]["between"]["latency_ns"]


def test_a_fit_says_what_the_survey_lacks(tmp_path: Path) -> None:
    with pytest.raises(AbsentError, match="the survey has no latency level_latency"):
        fit([], "x", [1], 64, tmp_path)
