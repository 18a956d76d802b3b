"""Absent results are grouped by their reason, each point appears once, and commands measure what is absent."""

from __future__ import annotations

import shlex

import pytest

from meshmark.describe import description, descriptions
from meshmark.store.run import Absence
from meshmark.views.pages.absent import absent_groups
from meshmark.views.pages.sections import SECTIONS

STEPS = [
    {
        "id": "02-latency.r1",
        "argv": ["latency", "--footprint", "2KiB..1GiB", "--pages", "4KiB,thp", "--budget", "12s", "--machine", "m"],
    },
    {"id": "04-bandwidth.r1", "argv": ["bandwidth", "--kernel", "copy,triad", "--budget", "5s", "--seed", "2"]},
]


def absence(instrument: str, budget: str, step: str, **conditions: object) -> Absence:
    return Absence(
        instrument=instrument,
        metric=description(instrument).metrics[0].name,
        reason=f"the budget of {budget} ended before its first sample",
        enable="a larger --budget",
        conditions=conditions,  # type: ignore[arg-type]
        step=step,
    )


def test_one_reason_is_one_group_with_commands_that_measure_only_its_points() -> None:
    absent = [absence("latency", "12 s", "02-latency.r1", footprint_bytes=2**k, pages="thp") for k in (29, 30)]
    absent.append(absence("bandwidth", "5 s", "04-bandwidth.r1", kernel="triad", footprint_bytes=16368))
    (group,) = absent_groups(absent, STEPS)
    assert group.summary == "3 points of latency and bandwidth: the budget ended before the first sample"
    assert list(group.commands) == [
        "meshmark measure latency --footprint 512MiB,1GiB --pages thp --budget 12s",
        "meshmark measure bandwidth --kernel triad --budget 5s",
    ]
    assert group.enable == "" and group.table is not None and len(group.table.rows) == 3


def test_a_point_appears_once() -> None:
    twice = [absence("latency", f"{s} s", "02-latency.r1", footprint_bytes=2**30, pages="thp") for s in (12, 13)]
    (group,) = absent_groups(twice, STEPS)
    assert group.table is not None
    ((metric, point),) = group.table.rows
    assert metric == "latency · load_latency" and "1\u00a0GiB" in str(point)


def test_without_the_steps_the_remedy_is_in_words_and_errors_are_called_so() -> None:
    budget = absence("latency", "12 s", "x", footprint_bytes=2**30)
    failed = Absence(instrument="io", reason="fio died", kind="error", step="y")
    first, second = absent_groups([budget, failed])
    assert (first.enable, list(first.commands)) == ("a larger --budget", [])
    assert second.summary == "io failed: fio died" and second.table is None
    assert absent_groups([]) == []


@pytest.mark.parametrize("section", [s for s in SECTIONS if s.shown == "requested"], ids=lambda s: s.name)
def test_the_command_of_an_empty_section_has_options_that_exist(section: object) -> None:
    for command in section.offers:  # type: ignore[attr-defined]
        meshmark, measure, instrument, *options = shlex.split(command)
        assert (meshmark, measure) == ("meshmark", "measure") and instrument in descriptions()
        known = {p.option for p in description(instrument).parameters}
        assert {word for word in options if word.startswith("--")} <= known


def test_the_commands_of_sections_of_one_instrument_differ() -> None:
    offers = [tuple(s.offers) for s in SECTIONS if s.instrument in {"latency", "bandwidth"}]
    assert len(set(offers)) == len(offers)
