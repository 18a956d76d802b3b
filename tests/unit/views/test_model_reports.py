"""Reports of modelled machines show the mesh, the figures that models have, and what distinguishes their curves."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from meshmark.model.instruments import measure
from meshmark.model.machine import find_machine
from meshmark.store.record import Record
from meshmark.store.run import RunInfo
from meshmark.values.units import show
from meshmark.views.pages.build import report_page

RUN = RunInfo(run_id="r", machine="m", started="", elapsed_s=0, spec_name="", command="", version="")
NO_DRAWING = "A simulated machine."


def simulated(name: str, command: str = "", settings: tuple[str, ...] = (), **options: str) -> list[Record]:
    return measure(name, find_machine("gs1280-4", list(settings)), options, command=command or f"{name} --on gs1280-4")


def page_of(records: list[Record]) -> str:
    return report_page(records, [], RUN)


def specs(page: str) -> dict[str, Any]:
    match = re.search(r'<script id="specs" type="application/json">(.*?)</script>', page, re.S)
    assert match is not None
    found: dict[str, Any] = json.loads(match[1])
    return found


def test_the_mesh_and_the_origin_of_the_values_are_shown() -> None:
    page = page_of(simulated("peak"))
    assert '<img class="mesh" src="data:image/svg+xml;base64,' in page and NO_DRAWING not in page
    assert "21 published, 10 derived, 8 fitted, 16 assumed" in page and "HP AlphaServer GS1280, 4 CPUs" in page


def test_only_a_machine_of_the_package_is_drawn() -> None:
    """A file of the user may have the name of a machine of the package, and another mesh."""
    assert NO_DRAWING in page_of(simulated("peak", "peak --on ./gs1280-4.toml"))
    changed = simulated("peak", "peak --on gs1280-4 --set cpu.clock_ghz=2", ("cpu.clock_ghz=2",))
    assert NO_DRAWING not in page_of(changed)
    assert NO_DRAWING in page_of([replace(r, machine="gs1280-4") for r in changed]), "another machine"


def test_the_figures_are_the_figures_that_models_have() -> None:
    records = simulated("latency", footprint="4KiB,64MiB", memory_node="all")
    page = page_of(records)
    memory = [r.value for r in records if r.conditions["footprint_bytes"] == 64 << 20]
    for title, value in (("nearest", min(memory)), ("farthest", max(memory))):
        assert re.search(rf"Memory latency, {title} node.{{0,80}}{re.escape(show(value, 's'))}", page, re.S), title
    assert min(memory) < max(memory) and "huge pages" not in page


def test_all_pairs_are_in_one_map_although_their_lines_have_different_homes() -> None:
    records = simulated("lines", cpus="all")
    assert len({r.conditions["home_node"] for r in records}) == 4
    assert len(specs(page_of(records))["lines"]["concat"]) == 1
    twice = [*records, *(replace(r, conditions={**r.conditions, "home_node": 0}) for r in records)]
    assert len(specs(page_of(twice))["lines"]["concat"]) == 4, "a pair has several values, which differ by home"


def test_curves_under_load_say_whose_memory_is_read() -> None:
    records = [
        r for homes in ("local", "all") for r in simulated("loaded", threads="all", chains="1,2", memory_node=homes)
    ]
    page = page_of(records)
    assert "chains, 4 threads, local memory" in page and "chains, 4 threads, memory of all nodes" in page


def test_a_result_that_is_drawn_is_not_said_to_be_missing() -> None:
    page = page_of(simulated("gups", threads="1"))
    assert 'id="chart-gups"' in page and "Not shown in the chart" not in page and "1 result as a table" in page
