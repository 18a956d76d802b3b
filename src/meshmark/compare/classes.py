"""Pairs the results of a host with published numbers of machines of its class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshmark.compare.pairing import Pairing
from meshmark.machine.published.papers import PAPER, papers
from meshmark.store.record import Record


@dataclass(frozen=True, slots=True)
class PublishedPair:
    """A result and a published number of the same kind. `machine`: `paper:xeon5500, Xeon 5500 (…) of 2009`."""

    record: Record
    reference: Record
    machine: str


def published_of_class(
    records: Sequence[Record], levels: Sequence[Record], architecture: str, packages: int
) -> Iterator[PublishedPair]:
    """Yield pairs of results and published numbers, the newest publication first.

    Each metric has at most one pair for one CPU, and one for all CPUs.

    Args:
        records: Results of the host.
        levels: Levels of the host's latency curves; they determine which footprints are memory.
        architecture: Architecture of the host, such as `x86-64`; "": unknown, so that there are no pairs.
        packages: Number of packages of the host. Totals are compared only with machines that have as many.
    """
    compared: set[tuple[str, bool]] = set()
    candidates = [p for p in papers() if architecture and p.architecture == architecture]
    for paper in sorted(candidates, key=lambda p: p.publication.year or 0, reverse=True):
        year = f" of {paper.publication.year}" if paper.publication.year else ""
        for match in Pairing([*records, *levels], paper.records(), same_machine=False).matches:
            is_one_cpu = match.b.conditions.get("threads", match.b.conditions.get("processes")) == 1
            if match.a.metric == "level_latency" or match.differ or (not is_one_cpu and paper.packages != packages):
                continue
            if (match.a.metric, is_one_cpu) not in compared:
                compared.add((match.a.metric, is_one_cpu))
                yield PublishedPair(match.a, match.b, f"{PAPER}{paper.name}, {paper.title}{year}")
