"""Measures how pressures slow each other: the speed of the neighbours beside every pressure on the program's CPUs.

So the effect of a program on its neighbours can be compared with the effects of pressures whose strengths are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from meshmark.profiles.division import CpuDivision
from meshmark.profiles.pressure import MEMORY, NeighbourPressure, RunningPressure, running
from meshmark.store.session import Journal

JOURNAL: Final = "responses.jsonl"
MEASURED_S: Final = 0.2  # CPU time of a neighbour in which its rate is measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """How fast neighbours are beside each pressure.

    Attributes:
        probe: Name of what the neighbours run.
        rate: Rate of one of them alone, see `pressure.RunningPressure.rate`.
        speeds: Speed beside each pressure on the program's CPUs, relative to the speed alone.
    """

    probe: str
    rate: float
    speeds: Mapping[str, float]

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Response:
        """Return the response in a line of the journal.

        Raises:
            TypeError, KeyError: The line is not a response.
        """
        return Response(probe=line["probe"], rate=float(line["rate"]), speeds=dict(line["speeds"]))


def full_rate(responses: Sequence[Response]) -> float:
    """Return the rate of one neighbour under the strongest pressure on memory, of which others are shares."""
    return next((response.rate for response in responses if response.probe == MEMORY), 0.0)


def measured_rate(neighbours: RunningPressure) -> float:
    """Return the rate of neighbours during the next 0.2 s of their work; longer, if their CPUs do other work, too.

    Raises:
        MeshmarkError: A neighbour ended, or reported no progress for a minute.
    """
    marks = neighbours.marks()
    neighbours.wait(marks, MEASURED_S)
    rate = neighbours.rate(marks)
    assert rate is not None  # they have reported progress
    return rate


def measure(
    folder: Path,
    division: CpuDivision,
    pressures: Sequence[NeighbourPressure],
    others: Sequence[NeighbourPressure],
    notify: Callable[[int, int], None],
) -> list[Response]:
    """Measure the responses of all probes, except those that the journal in the folder contains.

    Args:
        folder: Folder of the session.
        division: The CPUs.
        pressures: All pressures.
        others: Probes that are no pressures.
        notify: Function that is called with the number of complete responses and of all after every response.

    Raises:
        MeshmarkError: A neighbour failed.
    """
    journal = Journal(folder / JOURNAL)
    complete = {entry.probe: entry for _, entry in journal.entries(Response.from_json, "a response")}
    # The strongest pressure on memory first, because its rate determines the rates of the weaker ones.
    probes = [*sorted((p for p in pressures if p.is_probe), key=lambda probe: probe.name != MEMORY), *others]
    results: list[Response] = []
    for probe in probes:
        response = complete.get(probe.name)
        if response is None:
            response = _response(probe, division, pressures, full_rate(results))
            journal.append({"type": "response", **asdict(response)})
        results.append(response)
        notify(len(results), len(probes))
    return results


def _response(
    probe: NeighbourPressure, division: CpuDivision, pressures: Sequence[NeighbourPressure], memory_rate: float
) -> Response:
    """Measure one probe. Its speed alone is measured before and after each pressure."""
    with running(probe, division.neighbours) as neighbours:
        alone = before = measured_rate(neighbours)
        speeds = {}
        for pressure in pressures:
            with running(pressure, division.program, memory_rate or alone):
                beside = measured_rate(neighbours)
            after = measured_rate(neighbours)
            speeds[pressure.name] = beside / fmean([before, after])
            before = after
    return Response(probe=probe.name, rate=alone, speeds=speeds)
