"""Divisions of CPUs, pressures, the file of a profile, and what it says about the limits of a program."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshmark.errors import AbsentError, UsageError
from meshmark.machine.sources import from_synthetic
from meshmark.profiles.division import divide
from meshmark.profiles.limits import NOTHING, UNKNOWN, demand, limiting, limits, to_json
from meshmark.profiles.pressure import MEMORY, pressures
from meshmark.profiles.profile import names_of, read_profile
from support.made_profile import NOISE, made_profile

FOUR_CORES = "pack:1 l3:1(size=16777216) l2:4(size=524288) l1d:1(size=32768) core:1 pu:1"
TWO_CACHES = "pack:1 l3:2(size=16777216) l2:4(size=524288) l1d:1(size=32768) core:1 pu:2"
ONE_CORE = "pack:1 l3:1(size=16777216) l2:1(size=524288) l1d:1(size=32768) core:1 pu:2"


def test_half_of_the_cores_that_share_a_cache_are_neighbours() -> None:
    division = divide(from_synthetic(FOUR_CORES))
    assert (division.program, division.neighbours, division.siblings) == ((0, 1), (2, 3), False)
    assert (division.first_bytes, division.private_bytes, division.shared_bytes) == (32 << 10, 512 << 10, 16 << 20)


def test_siblings_stay_together_unless_there_is_one_core() -> None:
    two = divide(from_synthetic(TWO_CACHES))
    assert two.program == (0, 1, 2, 3) and two.neighbours == (4, 6), "one neighbour for each core"
    one = divide(from_synthetic(ONE_CORE))
    assert (one.program, one.neighbours, one.siblings) == ((0,), (1,), True)
    assert "cache 16 KiB" in [p.name for p in pressures(one)], "siblings share all caches"


def test_cpus_can_be_chosen() -> None:
    machine = from_synthetic(FOUR_CORES)
    chosen = divide(machine, program=[3], neighbours=[0, 1])
    assert (chosen.program, chosen.neighbours) == ((3,), (0, 1))
    assert divide(machine, program=[1, 2, 3]).neighbours == (0,)
    assert divide(machine, neighbours=[0, 1]).program == (2,)
    with pytest.raises(UsageError, match="--cpus: found all CPUs"):
        divide(machine, program=[0, 1, 2, 3])


def test_one_cpu_has_no_neighbours() -> None:
    with pytest.raises(AbsentError, match="found one CPU"):
        divide(from_synthetic("pack:1 l3:1(size=16777216) core:1 pu:1"))


def test_pressures_grow_from_registers_to_memory() -> None:
    division = divide(from_synthetic(FOUR_CORES))
    each = pressures(division)
    assert [p.kind for p in each] == ["compute", *["cache"] * 4, *["memory"] * 4]
    footprints = [p.footprint_bytes for p in each]
    assert footprints == sorted(footprints) and footprints[4] == (16 << 20) + (1 << 20), (
        "private caches are filled, too"
    )
    assert each[-1].name == MEMORY and each[-1].footprint_bytes >= 64 << 20
    assert [p.is_probe for p in each] == [True] * 5 + [False] * 3 + [True]
    assert len({p.name for p in each}) == len(each)


def test_a_program_without_pressure_from_caches_is_limited_by_memory_bandwidth() -> None:
    stream = made_profile("stream")
    assert limiting(stream) == "memory bandwidth"
    first = limits(stream)[0]
    assert first.factor.value == pytest.approx(0.9 / 0.6, rel=0.01), "relative to the time beside a filled cache"
    assert limiting(made_profile("solver")) == "the shared cache"
    assert limiting(made_profile("idle")) == NOTHING


def test_nothing_is_said_of_few_or_scattered_runs() -> None:
    assert limiting(made_profile("stream", NOISE[:2])) == UNKNOWN
    assert limiting(made_profile("idle", [1, 1.4, 0.7, 1.3, 0.8])) == UNKNOWN


def test_the_demand_is_that_of_the_mixture() -> None:
    stream, idle = demand(made_profile("stream", [1.0] * 3)), demand(made_profile("idle", [1.0] * 3))
    assert stream is not None and idle is not None
    assert stream.bytes_per_s == pytest.approx(18e9, rel=0.02) and stream.misfit < 0.01
    assert idle.bytes_per_s == pytest.approx(0, abs=1e7) and idle.cache_bytes < 1 << 16
    assert demand(dataclasses.replace(made_profile("stream"), responses={})) is None


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile, path = made_profile("solver", flags=("disturbed",)), tmp_path / "solver.json"
    path.write_text(json.dumps(to_json(profile)), encoding="utf-8")
    assert read_profile(path) == profile
    assert names_of([profile, profile]) == ["solver", "solver (2)"]


def _changed(**changes: Any) -> dict[str, Any]:
    return {**made_profile("solver").to_json(), **changes}


def _effect(**changes: Any) -> dict[str, Any]:
    first, *others = dataclasses.asdict(made_profile("solver"))["effects"]
    return _changed(effects=[{**first, **changes}, *others])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "found no JSON"),
        (json.dumps([1]), "type: found no object; allowed: profile"),
        (json.dumps({"type": "rating"}), "type: found 'rating'; allowed: profile"),
        (json.dumps(_changed(schema=2)), "schema: found 2; allowed: 1"),
        (json.dumps(_changed(alone=[])), "alone"),
        (json.dumps(_changed(alone=[-1.0])), "alone[0]: found -1.0"),
        (json.dumps(_changed(better="equal")), "better: found 'equal'"),
        (json.dumps(_effect(slowdowns=[])), "slowdowns: found none; at least one is required"),
        (json.dumps(_effect(slowdowns=["fast"])), "slowdowns[0]: found 'fast'"),
        (json.dumps(_effect(kind="network")), "kind: found 'network'"),
        (json.dumps(_changed(responses={"disk": {}})), "responses: found 'disk'"),
        (json.dumps(_changed(responses={"memory": {"memory": 0.5}})), "responses: found 'memory'"),
    ],
)
def test_a_damaged_profile_is_named_in_one_line(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert str(caught.value).startswith("damaged.json: ") and words in str(caught.value)
    assert "\n" not in str(caught.value)


TEXT = json.dumps(made_profile("solver").to_json())


@given(
    st.integers(0, len(TEXT) - 1), st.sampled_from(['"', "{", "]", "-", "1e999", "null", "true", "\u0000", "9" * 400])
)
def test_no_damage_of_a_file_is_a_crash(place: int, inserted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.json"
        path.write_text(TEXT[:place] + inserted + TEXT[place + 1 :], encoding="utf-8")
        try:
            to_json(read_profile(path))
        except UsageError as error:
            assert "\n" not in str(error) and str(error).startswith("damaged.json: ")
