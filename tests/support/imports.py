"""Reads the output of other tools as `store import` does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.formats import ToolResults, read_text, recognised
from meshmark.store.record import Record

FIXTURES: Final = Path(__file__).parents[1] / "unit" / "measure" / "importers" / "fixtures"


def fixture(name: str) -> str:
    """Return the text of an output of another tool."""
    return (FIXTURES / name).read_text(encoding="utf-8")


def formats_of(text: str) -> list[str]:
    """Return the names of the formats that match a text."""
    return [reader.name for reader in recognised(text)]


def results_of(text: str, machine: str = "n042") -> ToolResults:
    """Return the records of a text in a known format, and what was left out."""
    results = read_text(text, machine)
    assert results is not None, "the format is not known"
    return results


def records_of(text: str, machine: str = "n042") -> list[Record]:
    """Return the records of a text; nothing may be left out."""
    results = results_of(text, machine)
    assert results.left_out_count == 0, [str(item) for item in results.left_out]
    return results.records


def reasons_of(text: str) -> list[str]:
    """Return the place and reason of each item that is left out."""
    return [str(item) for item in results_of(text).left_out]


def taken_from(text: str) -> list[Record]:
    """Return the records of a text; items may be left out."""
    return results_of(text).records


def problems_of(text: str) -> list[str]:
    """Return the place and reason of each item that is left out, or the reason why the text is refused."""
    try:
        return reasons_of(text)
    except FormatError as error:
        return [str(error)]
