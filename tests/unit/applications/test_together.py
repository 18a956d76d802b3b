"""Tests of the answer, the records and the reference of a composite with given runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from meshmark.applications.attempt import ConfigurationRun
from meshmark.applications.composite import Composite, read_composite
from meshmark.applications.together import (
    composite_absences,
    composite_answer,
    composite_records,
    ratios,
    reference_toml,
    refused,
)
from meshmark.applications.trials import ApplicationPlan, Trials
from meshmark.errors import MeshmarkError

RATE = r"""
[application]
command = "echo {rate}"
[figure]
pattern = '(\d+)'
unit = "B/s"
better = "higher"
[verify]
pattern = "ok"
[dimensions]
rate = 8
"""
MEMBERS = """
[[member]]
application = "rate.toml"
[[member]]
name = "twice"
application = "rate.toml"
dimensions = { rate = 16 }
why = "another size"
"""
REFERENCE = """
[reference]
machine = "old"
source = "by hand"
figure = [{ member = "twice", unit = "B/s", runs = [8, 8] }, { member = "rate", unit = "B/s", runs = 1 }]
"""


def composite(folder: Path, text: str = MEMBERS + REFERENCE) -> Composite:
    (folder / "rate.toml").write_text(RATE)
    (folder / "pair.toml").write_text(text)
    return read_composite(str(folder / "pair.toml"))


def runs(both: Composite, **values: list[float]) -> Trials:
    """Return the trials of members whose runs have these values."""
    settings: dict[str, Any] = {"warmup": 0, "budget_s": 1e6, "seed": 7, "margin": 0.02, "started": "now"}
    plan = ApplicationPlan(tables=both.tables(), source="/src", rounds=3, run="composite-1", **settings)
    measurement = Trials(plan, both.listed)
    for configuration in both.listed:
        for number, value in enumerate(values.get(configuration.values["member"], []), 1):
            outcome = ConfigurationRun(configuration=configuration.label, round=number, elapsed_s=1.0, spent_s=1.0)
            outcome.value = value
            measurement.attempts.append(outcome)
    return measurement


def test_the_answer_has_the_composite_and_its_members(tmp_path: Path) -> None:
    suite = composite(tmp_path)
    measurement = runs(suite, rate=[4.0, 4.0, 5.0], twice=[16.0, 16.0, 8.0])
    answer = composite_answer(measurement, suite)
    assert (answer["name"], answer["refused"], answer["run"], answer["seed"]) == ("pair", "", "composite-1", 7)
    assert answer["reference"] == {"machine": "old", "source": "by hand"}
    rate, twice = answer["members"]
    assert (rate["member"], rate["value"], rate["reference"], rate["ratio"]) == ("rate", 4.0, 1.0, 4.0)
    assert (twice["member"], twice["why"], twice["values"]) == ("twice", "another size", [16.0, 16.0, 8.0])
    assert twice["ratios"] == [1.0, 2.0] and (twice["unit"], twice["better"]) == ("B/s", "higher")
    low, high = answer["interval"]
    assert low <= answer["value"] <= high and math.isclose(answer["value"], math.sqrt(4.0 * 2.0), rel_tol=0.2)


def test_the_records_have_ratios_of_members_and_the_composite(tmp_path: Path) -> None:
    suite = composite(tmp_path)
    records = composite_records(runs(suite, rate=[4.0] * 3, twice=[16.0] * 3), suite, "n1", "meshmark", "b")
    assert {r.machine for r in records} == {"n1"}
    by_member = {r.conditions["member"]: r for r in records if r.unit == "1" and "member" in r.conditions}
    assert {name: r.value for name, r in by_member.items()} == {"rate": 4.0, "twice": 2.0}
    composite_record = records[-1]
    assert math.isclose(composite_record.value, math.sqrt(8.0))
    assert (
        composite_record.conditions["program"],
        composite_record.conditions["members"],
        composite_record.conditions["reference"],
    ) == (
        "pair",
        2,
        "old",
    )
    assert composite_record.provenance["reference_source"] == "by hand"


def test_without_a_reference_there_is_no_composite(tmp_path: Path) -> None:
    suite = composite(tmp_path, MEMBERS)
    measurement = runs(suite, rate=[4.0] * 3, twice=[16.0] * 3)
    answer = composite_answer(measurement, suite)
    assert (answer["value"], answer["interval"], answer["reference"]) == (None, None, None)
    assert ratios(measurement, suite) == {} and refused(measurement, suite) == "there is no reference to divide by"
    assert answer["members"][0]["ratio"] is None and answer["members"][0]["ratios"] is None
    (absence,) = composite_absences(measurement, suite)
    assert absence.reason == "pair: there is no reference to divide by"
    assert {r.metric for r in composite_records(measurement, suite, "n1", "", "")}.isdisjoint({"composite"})


def test_a_member_that_failed_is_named(tmp_path: Path) -> None:
    suite = composite(tmp_path)
    measurement = runs(suite, rate=[4.0] * 3)
    assert refused(measurement, suite).startswith("member twice has 0 of at least ")
    measurement.stopped = "the budget was used up"
    assert refused(measurement, suite).endswith(" runs, since the budget was used up")
    label = suite.listed[1].label
    measurement.excluded[label], measurement.failures[label] = "it crashed", 2
    assert refused(measurement, suite) == "member twice failed: it crashed"
    rate, twice = composite_answer(measurement, suite)["members"]
    assert (twice["value"], twice["values"], twice["failed"], twice["reason"]) == (None, [], 2, "it crashed")
    assert (rate["ratio"], rate["failed"], rate["reason"]) == (4.0, 0, "")
    assert next(a.reason for a in composite_absences(measurement, suite)) == "twice: it crashed"
    with pytest.raises(MeshmarkError, match="no reference: member twice failed: it crashed"):
        reference_toml(measurement, suite, "n1")


def test_runs_become_a_reference_that_can_be_read(tmp_path: Path) -> None:
    suite = composite(tmp_path)
    text = reference_toml(runs(suite, rate=[4.0, 4.0, 5.0], twice=[16.0] * 3), suite, "n1")
    reference = composite(tmp_path, MEMBERS + text).reference
    assert reference is not None and (reference.machine, reference.source) == ("n1", "measured by run composite-1")
    assert reference.runs == {"rate": (4.0, 4.0, 5.0), "twice": (16.0,) * 3}
