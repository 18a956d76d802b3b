"""Describes the modelled machine of a report: its mesh, the origin of its values, and the figures that a model has."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, get_args

from meshmark.errors import MeshmarkError
from meshmark.model.keys import Kind
from meshmark.model.machine import MachineFile, find_machine, machine_names
from meshmark.store.record import Record
from meshmark.store.run import RunInfo
from meshmark.views.charts.charts import walks
from meshmark.views.content.card import Figures
from meshmark.views.content.selection import usual_stride, value_of
from meshmark.views.html import CardRow, TextSpan
from meshmark.views.mesh import mesh_svg

# Figures of a report that only models have; models do not distinguish page sizes.
FIGURES: Final = {"nearest_latency": "latency", "farthest_latency": "latency"}


def is_model(records: Sequence[Record]) -> bool:
    """Return whether all records come from a simulation."""
    return bool(records) and all(r.source == "model" for r in records)


def machine_of(records: Sequence[Record]) -> MachineFile | None:
    """Return the machine file of records that come from one of the machines of the package; otherwise None.

    The command of a record names the file: a file of the user may have the name of a machine of the package.
    """
    if not is_model(records) or len({r.machine for r in records}) != 1:
        return None
    words = shlex.split(str(records[0].provenance.get("command") or ""))
    values = [*pairwise(words)]
    name = next((value for option, value in values if option == "--on"), "")
    if name not in machine_names():
        return None
    try:
        machine = find_machine(name, [value for option, value in values if option == "--set"])
    except MeshmarkError:  # the file had other keys when the records were made
        return None
    return machine if machine.label == records[0].machine else None


def mesh(machine: MachineFile | None) -> str:
    """Return the drawing of the mesh as an address that a picture can have; "" if the mesh is unknown."""
    if machine is None:
        return ""
    try:
        svg = mesh_svg(machine)
    except MeshmarkError:  # the simulator is not installed
        return ""
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def why_no_drawing(records: Sequence[Record], run: RunInfo) -> str:
    """Return the reason why a report has no drawing of the machine."""
    if run.host:
        return "The topology could not be read."
    return (
        "A simulated machine." if is_model(records) else "This run contains results, but no information about its host."
    )


def facts(machine: MachineFile | None) -> list[CardRow]:
    """Return how many values of a modelled machine have which origin."""
    if machine is None:
        return []
    kinds = Counter(origin.kind for origin in machine.origins.values())
    counts = [f"{kinds[kind]} {kind}" for kind in get_args(Kind) if kinds[kind]]
    counts += [f"{len(machine.unknown)} unknown"] if machine.unknown else []
    command = TextSpan(shlex.join(["meshmark", "model", "show", machine.name, "--origins"]), "code")
    return [CardRow("Values of the model", [TextSpan(", ".join(counts))], [command])]


def tile_figures(figures: Figures, records: Sequence[Record]) -> Figures:
    """Return the figures for the top of a report; for a model, also the latencies of its nearest and farthest node."""
    if not is_model(records):
        return figures
    curve = [r for r in usual_stride(walks(records)) if value_of(r, "processes", 1) == 1]
    largest = max((value_of(r, "footprint_bytes") for r in curve), default=0)
    memory = sorted((r for r in curve if value_of(r, "footprint_bytes") == largest), key=lambda r: r.value)
    titles: Mapping[str, tuple[str, Record | None]] = {
        "nearest_latency": ("Memory latency, nearest node", memory[0] if memory else None),
        "farthest_latency": ("Memory latency, farthest node", memory[-1] if len(memory) > 1 else None),
    }
    return {**titles, **figures}
