"""Published numbers of machines of a class, beside results of a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshmark.compare.pairing import matches
from meshmark.machine.papers import PAPER, papers
from meshmark.store.record import Record


@dataclass(frozen=True, slots=True)
class Published:
    """A result and a published number of the same kind. `machine`: `paper:xeon5500, Xeon 5500 (…) of 2009`."""

    record: Record
    reference: Record
    machine: str


def published_of_class(
    records: Sequence[Record], levels: Sequence[Record], architecture: str, packages: int
) -> Iterator[Published]:
    """Pairs of results and published numbers, the newest publication first; one for each metric, for one CPU and all.

    Args:
        levels: Levels of the host's latency curves; they tell which footprints are memory.
        architecture: Such as `x86-64`; "": unknown, so that there are no pairs.
        packages: Of the host. Totals compare only with machines that have as many.
    """
    compared: set[tuple[str, bool]] = set()
    alike = [p for p in papers() if architecture and p.architecture == architecture]
    for paper in sorted(alike, key=lambda p: p.publication.year or 0, reverse=True):
        year = f" of {paper.publication.year}" if paper.publication.year else ""
        for match in matches([*records, *levels], paper.records(), same_machine=False):
            one = match.b.conditions.get("threads", match.b.conditions.get("processes")) == 1
            if match.a.metric == "level_latency" or match.differ or (not one and paper.packages != packages):
                continue
            if (match.a.metric, one) not in compared:
                compared.add((match.a.metric, one))
                yield Published(match.a, match.b, f"{PAPER}{paper.name}, {paper.title}{year}")
