"""All formats of other tools that can be imported."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from meshmark.errors import UsageError
from meshmark.measure import tools as package
from meshmark.measure.tools.base import FormatError, Reader
from meshmark.measure.tools.output import LeftOut, ToolOutput, by_task
from meshmark.store.record import Record

START_BYTES: Final = 1 << 16


@dataclass(slots=True)
class Results:
    """The content of another tool's output.

    Attributes:
        records: At least one.
        left_out: The first items that were left out; `left_out_count` is the number of all of them.
        other_lines: Number of lines between rows that are not of the tool.
    """

    records: list[Record] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    left_out_count: int = 0
    other_lines: int = 0


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


def read_text(text: str, machine: str) -> Results | None:
    """The records of another tool's output, and what was left out; None if its format is not known.

    The provenance of the records has the reader, its version and the digest of the output, by which runs that an
    earlier version imported are found.

    Raises:
        FormatError: Nothing of the text is certain, or the unit or the meaning of a column is unknown.
    """
    results: Results | None = None
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    outputs = by_task(ToolOutput(text, machine))
    for task, output in outputs:
        reader = recognised(output.text)
        if reader is None:
            continue
        reader.read(output)
        results = results or Results()
        provenance = {"reader": reader.name, "reader_version": reader.version, "output": digest}
        conditions = {"task": task} if len(outputs) > 1 else {}
        results.records += [
            replace(r, conditions={**r.conditions, **conditions}, provenance={**r.provenance, **provenance})
            for r in output.records
        ]
        results.left_out += output.left_out
        results.left_out_count += output.left_out_count
        results.other_lines += output.other_lines
    if results is not None and not results.records:
        raise FormatError(str(results.left_out[0]) if results.left_out else "no result in this output")
    return results
