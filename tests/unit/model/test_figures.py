"""Key figures of modelled machines and the bounds that limit them."""

from __future__ import annotations

import pytest

from meshmark.model.machine import find_machine
from meshmark.model.sweeps.figures import comparison, figures

BOUND = "network bound, uniform reads"


def bound(name: str, *settings: str) -> float:
    all_figures = figures(find_machine(name, list(settings)), simulate=False)
    return next(f.value for f in all_figures if f.name == BOUND)


def test_requests_take_bandwidth_of_links_as_lines_do() -> None:
    flits = {bound("gs1280-8", f"packets.request_flits={n}") * (n + 19) for n in (1, 3, 19)}
    assert max(flits) == pytest.approx(min(flits))


@pytest.mark.parametrize("name", ["gs1280-8", "es80"])
def test_no_load_of_uniform_reads_exceeds_the_bound(name: str) -> None:
    """The most loaded link sets the bound; one of n reads goes to the node of its CPU and needs no link."""
    values = {f.name: f.value for f in figures(find_machine(name))}
    (reads,) = (v for k, v in values.items() if k.startswith("reads of random CPUs") and k.endswith(": bandwidth"))
    assert reads <= values[BOUND] * 8 / 7


def test_a_comparison_has_numbers_in_si_units() -> None:
    rows = [row.to_json() for row in comparison([find_machine("gs1280-4"), find_machine("es80")])]
    local = next(row for row in rows if row["figure"] == "load latency, mean remote")
    assert local["unit"] == "s" and local["better"] == "lower" and local["baseline"] == "gs1280-4"
    first, second = local["values"]["gs1280-4"], local["values"]["es80"]
    assert 1e-8 < first < 1e-5 and local["gains"] == {"es80": pytest.approx(first / second - 1)}
    assert {row["unit"] for row in rows} <= {"s", "B/s", "op/s", "1"}
