"""All formats of other tools that can be imported."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from meshmark.errors import UsageError
from meshmark.measure import tools as package
from meshmark.measure.tools.base import Reader
from meshmark.store.record import Record

START_BYTES: Final = 1 << 16


def readers() -> list[Reader]:
    """The readers, by name. A module of this package has those of its formats in `READERS`."""
    modules = [import_module(f"{package.__name__}.{m.name}") for m in iter_modules(package.__path__)]
    return sorted((r for module in modules for r in getattr(module, "READERS", ())), key=lambda r: r.name)


def recognised(text: str, among: Sequence[Reader] | None = None) -> Reader | None:
    """The reader of a text, by its first part; None if it is of no known format.

    Raises:
        UsageError: It looks like several, which must not happen.
    """
    start = text[:START_BYTES]
    found = [r for r in (readers() if among is None else among) if r.recognises(start)]
    if len(found) > 1:
        raise UsageError(f"format: found text of {' and '.join(r.name for r in found)}; allowed: one of them")
    return found[0] if found else None


def read_text(text: str, machine: str) -> list[Record]:
    """The records of another tool's output; none if its format is not known.

    Raises:
        FormatError: The text is damaged.
    """
    reader = recognised(text)
    return reader.read(text, machine) if reader else []
