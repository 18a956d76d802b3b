"""Prints published numbers, with their places in the publications and their misprints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from meshmark.machine.published.papers import PAPER, Paper, paper, papers
from meshmark.machine.published.reference import Publication, PublishedNumber, Text, publication, publications
from meshmark.store.record import Record


def show_published(name: str, as_json: bool) -> None:
    """Print the numbers of a machine, or all numbers of a publication.

    Args:
        name: `paper:MACHINE` or `paper:PUBLICATION`.
        as_json: Print one JSON object per line.

    Raises:
        MachineError: The machine or publication is unknown.
    """
    short_name = name.removeprefix(PAPER)
    if short_name in {p.name for p in publications()} - {p.name for p in papers()}:
        _show_publication(publication(short_name), as_json)
        return
    machine = paper(short_name)
    if as_json:
        for record in machine.records():
            print(json.dumps(record.to_json()))
    else:
        _show_paper(machine)


def _show_paper(paper: Paper) -> None:
    from meshmark.views.terminal.tables import print_tables

    records = paper.records()
    print(paper.title)
    for line in _about(paper.publication):
        print(line)
    print()
    print_tables(records)
    print("\nplaces in the publication:")
    for place, metrics in _by_place(records).items():
        print(f"  {place}: {', '.join(metrics)}")
    misprints = {str(r.provenance["misprint"]) for r in records if "misprint" in r.provenance}
    if misprints:
        print("\nmisprints:")
        for text in sorted(misprints):
            print(f"  {text}")
    print(f"\nall of its numbers: meshmark machine show {PAPER}{paper.publication.name}")


def _by_place(records: Iterable[Record]) -> dict[str, dict[str, None]]:
    places: dict[str, dict[str, None]] = {}
    for r in records:
        qualifier = f" ({r.provenance['qualifier']})" if "qualifier" in r.provenance else ""
        places.setdefault(str(r.provenance["place"]), {})[f"{r.instrument} {r.metric}{qualifier}"] = None
    return places


def _show_publication(publication: Publication, as_json: bool) -> None:
    if as_json:
        for entry in publication.content():
            print(json.dumps(_entry_json(entry)))
        return
    for line in _about(publication):
        print(line)
    for key, text in publication.data["document"].items():
        if isinstance(text, str) and key not in {"title", "kind"}:
            print(f"{key}: {text}")
    place = ""
    for entry in publication.content():
        if entry.path.startswith("discrepancy["):
            continue  # listed below
        if entry.place != place:
            place = entry.place
            print(f"\n{place or 'place not stated'}")
        if isinstance(entry, Text):
            print(f"  {entry.path}: {entry.text}")
            continue
        numbers = ", ".join(f"{v:g}" for v in entry.printed)
        notes = [n for n in (entry.comparison, entry.qualifier, "computed, not printed" if entry.computed else "") if n]
        print(f"  {entry.path} = {numbers}" + (f"  ({'; '.join(notes)})" if notes else ""))
    if discrepancies := publication.data.get("discrepancy", []):
        print("\nmisprints and contradictions:")
        for mismatch in discrepancies:
            details = "".join(
                f"; {k}: {v}" for k, v in mismatch.items() if k not in {"id", "printed", "finding", "source"}
            )
            place = f" ({where})" if (where := mismatch.get("source", {}).get("place")) else ""
            print(f"  {mismatch['id']}{place}: printed: {mismatch['printed']}; found: {mismatch['finding']}{details}")


def _entry_json(entry: PublishedNumber | Text) -> Mapping[str, Any]:
    if isinstance(entry, Text):
        return {"path": entry.path, "text": entry.text, "place": entry.place}
    return {
        "path": entry.path,
        "values": entry.values,
        "unit": entry.unit,
        "printed": entry.printed,
        "place": entry.place,
        "qualifier": entry.qualifier,
        "computed": entry.computed,
        **entry.compares,
    }


def _about(publication: Publication) -> Iterable[str]:
    authors = f"{', '.join(publication.authors)}: " if publication.authors else ""
    year = f", {publication.year}" if publication.year else ""
    yield f"{authors}{publication.title}{year}" + (f" ({publication.kind})" if publication.kind else "")
