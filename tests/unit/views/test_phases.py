"""Phases of a step over the number of ranks: what is drawn, fitted, joined and left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshmark.store.record import Record
from meshmark.views.apps.phases import IDEAL, phase_chart, phase_table, phases, signed
from meshmark.views.apps.programs import ANATOMY, GYRO, POP, SWIM, StepDisplay
from meshmark.views.charts.drawing import Drawing
from meshmark.views.pages.sections import SECTIONS
from support import made_run


def gyro(*counts: int) -> list[Record]:
    return [r for n in counts for r in made_run.gyro(count=n)]


def lines_of(drawn: Drawing | None) -> list[list[dict[str, Any]]]:
    """Return the rows of the lines of each panel."""
    assert drawn is not None
    assert drawn.chart.to_dict(validate=True)["concat"]
    return [rows for rows in drawn.data.values() if any(r["phase"] == IDEAL for r in rows)]


def text_of(records: list[Record], program: StepDisplay) -> str:
    return phase_table(program)(records).replace("\u00a0", " ")


def test_one_number_of_ranks_is_no_scaling() -> None:
    assert phases(gyro(2), GYRO) == [] and phase_chart(GYRO)(gyro(2)) is None and phase_table(GYRO)(gyro(2)) == ""


def test_phases_of_a_problem_are_together_whatever_the_grid_of_ranks() -> None:
    small, large = phases(gyro(8, 1, 2), GYRO)
    assert small.title == "Open MPI 4.1.4, 16 modes, 32 radii, 128 flops per point" and "64 modes" in large.title
    assert list(small.splits) == [1, 2, 8] and small.largest == 8
    assert {s.total.conditions["grid"] for s in small.splits.values()} == {"1x1", "1x2", "1x8"}


def test_three_numbers_of_ranks_have_a_fitted_line_and_an_exponent() -> None:
    panel = lines_of(phase_chart(GYRO)(gyro(1, 2, 8)))[0]
    assert {r["phase"] for r in panel} == {"whole step", "computing", "transposes", IDEAL}
    ideal = {r["ranks"]: r["value"] for r in panel if r["phase"] == IDEAL}
    assert ideal[1] == pytest.approx(8 * ideal[8])
    text = text_of(gyro(1, 2, 8), GYRO)
    assert "−1.00" in text and "−1.0" in text.partition("computing")[2].partition(" to ")[0]
    assert "share with 8 ranks" in text and "80." in text and "no fit" not in text


def test_the_fitted_line_is_between_points_that_are_not_on_it() -> None:
    records = [
        replace(r, value=2 * r.value) if r.conditions["ranks"] == 2 and r.metric == "transpose_time" else r
        for r in gyro(1, 2, 4)
    ]
    (split, _) = phases(records, GYRO)
    panel = lines_of(phase_chart(GYRO)(records))[0]
    fitted_times = {r["ranks"]: r["value"] for r in panel if r["phase"] == "transposes"}
    measured_times = {n: r.value for n, r in split.times("transposes").items()}
    assert (
        fitted_times[2] < measured_times[2]
        and fitted_times[1] > measured_times[1]
        and fitted_times[4] > measured_times[4]
    )
    assert fitted_times[1] / fitted_times[2] == pytest.approx(fitted_times[2] / fitted_times[4]), "a power law"


def test_two_numbers_of_ranks_are_joined_without_a_fit() -> None:
    panel = lines_of(phase_chart(GYRO)(gyro(1, 2)))[0]
    (small, _) = phases(gyro(1, 2), GYRO)
    drawn_times = {r["ranks"]: r["value"] for r in panel if r["phase"] == "computing"}
    assert drawn_times == {n: r.value for n, r in small.times("computing").items()}
    assert "no fit: 2 numbers of ranks with a time above 0, 3 are needed" in text_of(gyro(1, 2), GYRO)


def test_times_of_0_have_no_place_on_a_logarithmic_axis() -> None:
    records = [
        replace(r, value=0.0, samples=(0.0,) * 9, interval=(0.0, 0.0))
        if r.metric == "transpose_time" and r.conditions["ranks"] == 1
        else r
        for r in gyro(1, 2, 4)
    ]
    (small, _) = phases(records, GYRO)
    assert list(small.times("transposes")) == [2, 4] and list(small.times("whole step")) == [1, 2, 4]
    assert "no fit: 2 numbers of ranks" in text_of(records, GYRO)


def test_of_protocols_and_grids_the_fastest_is_shown() -> None:
    records = [r for n in (2, 4, 16) for r in made_run.pop(made_run.LIBRARIES, count=n)]
    first, second = phases(records, POP)
    assert first.title == "Open MPI 4.1.4, neighbour, 1 reduction" and second.title.startswith("MPICH")
    assert first.splits[16].total.conditions["grid"] == "4x4"
    assert {r["phase"] for r in lines_of(phase_chart(POP)(records))[0]} >= {"whole iteration", "reductions"}


def test_a_protocol_without_the_most_ranks_is_not_shown() -> None:
    records = [r for n in (1, 2) for r in made_run.swim(count=n)]
    records += [r for r in made_run.swim(count=4) if r.conditions["protocol"] != "shared"]
    (swim,) = phases(records, SWIM)
    assert "irecv_isend" in swim.title and list(swim.splits) == [1, 2, 4]


def test_ranks_on_several_hosts_are_apart_only_if_a_number_of_ranks_is_on_several() -> None:
    spread = [*made_run.gyro(count=2), *made_run.gyro(count=4, hosts=2)]
    assert [list(p.splits) for p in phases(spread, GYRO)] == [[2, 4], [2, 4]]
    records = [*gyro(2, 4), *(r for n in (2, 4) for r in made_run.gyro(count=n, hosts=2))]
    assert len(phases(records, GYRO)) == 4


def test_programs_of_several_machines_are_named() -> None:
    records = [*gyro(1, 2), *(replace(r, machine="other") for r in gyro(1, 2))]
    assert {p.title.partition(",")[0] for p in phases(records, GYRO)} == {"made-up", "other"}


def test_a_phase_below_0_is_in_the_table_and_not_in_the_chart() -> None:
    records = [r for n in (2, 4, 8) for r in made_run.anatomy(count=n)]
    titles = [p.title for p in phases(records, ANATOMY)]
    assert titles[1] == "Open MPI 4.1.4, gyro"
    assert "other" not in {r["phase"] for r in lines_of(phase_chart(ANATOMY)(records))[1]}
    assert "no fit: 0 numbers of ranks" in text_of(records, ANATOMY)


def test_flags_are_in_the_row_of_their_phase() -> None:
    records = [replace(r, flags=frozenset({"stolen"})) if r.metric == "transpose_time" else r for r in gyro(1, 2, 4)]
    head, _, rows = phase_table(GYRO)(records).partition(">transposes<")
    assert "stolen" not in head and "stolen" in rows


def test_every_program_with_phases_has_a_section() -> None:
    assert {s.name for s in SECTIONS if s.name.endswith("_phases")} == {
        f"{p.instrument}_phases" for p in (POP, GYRO, SWIM, ANATOMY)
    }


@pytest.mark.parametrize(("value", "text"), [(-1.0, "−1.00"), (0.5, "0.50"), (-0.001, "0.00")])
def test_exponents_have_a_minus_sign(value: float, text: str) -> None:
    assert signed(value) == text
