"""Finds the readers of a text, and reads all formats of other tools that can be imported."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from meshmark.measure.importers.base import FormatError, FormatReader, ToolFacts
from meshmark.measure.importers.output import LeftOutItem, ToolOutput, by_task
from meshmark.store.record import Record, Scalar

START_BYTES: Final = 1 << 16
MORE_BYTES: Final = 1 << 20
_BLANK: Final = re.compile(r"\A(?:[ \t]*\n)+")


@dataclass(slots=True)
class ToolResults:
    """The content of another tool's output.

    Attributes:
        records: The records, at least one.
        left_out: The first items that were left out.
        left_out_count: Number of all items that were left out.
        other_lines: Number of lines that another program printed between the rows.
    """

    records: list[Record] = field(default_factory=list)
    left_out: list[LeftOutItem] = field(default_factory=list)
    left_out_count: int = 0
    other_lines: int = 0

    def take(self, output: ToolOutput, conditions: dict[str, Scalar], provenance: dict[str, Scalar]) -> None:
        """Add the records of a reader, with further conditions and provenance."""
        self.records += [
            replace(r, conditions={**r.conditions, **conditions}, provenance={**r.provenance, **provenance})
            for r in output.records
        ]

    def leave_out(self, outputs: Sequence[ToolOutput]) -> None:
        """Add the items that readers of the same lines left out, except lines that another reader took or left out."""
        left_out: set[str] = set()
        for output in outputs:
            other_places = set[str]().union(
                *({f"line {number}" for number in other.taken} for other in outputs if other is not output), left_out
            )
            items = [item for item in output.left_out if item.where not in other_places]
            left_out |= {item.where for item in items if item.where}
            self.left_out += items
            self.left_out_count += output.left_out_count - len(output.left_out) + len(items)
        self.other_lines += min(output.other_lines for output in outputs)


def readers() -> list[FormatReader]:
    """Return all readers, by name. The modules of the packages in this folder list their readers in `READERS`."""
    folder, package = os.path.split(__file__)[0], __name__.rpartition(".")[0]
    kinds = [m.name for m in iter_modules([folder], f"{package}.") if m.ispkg]
    modules = [import_module(m.name) for kind in kinds for m in iter_modules(import_module(kind).__path__, f"{kind}.")]
    return sorted((r for module in modules for r in getattr(module, "READERS", ())), key=lambda r: r.name)


def recognised(text: str) -> list[FormatReader]:
    """Return the readers that recognise the first 64 KiB of a text, or else the first MiB."""
    start = _BLANK.sub("", text[:MORE_BYTES], count=1)
    all_readers = readers()
    return [r for r in all_readers if r.recognises(start[:START_BYTES])] or (
        [r for r in all_readers if r.recognises(start)] if len(start) > START_BYTES else []
    )


def _tasks(output: ToolOutput) -> list[tuple[str, ToolOutput]]:
    """Return the output of each task if lines are labelled.

    The first column of a table below a title is not a label.
    """
    tasks = by_task(output)
    if len(tasks) == 1 and not tasks[0][0]:
        return tasks
    texts = {line.number: line.text for line in output.lines}
    unchanged = [line for _, task in tasks for line in task.lines if texts[line.number] == line.text]
    label_lines = {line.number for _, task in tasks for line in task.lines} - {line.number for line in unchanged}
    unlabelled_lines = [line for line in output.lines if line.number not in label_lines]
    return [("", output)] if recognised(output.again(unlabelled_lines).text) else tasks


def read_text(text: str, machine: str) -> ToolResults | None:
    """Return the records of other tools' output, and the items that were left out; None if the format is not known.

    The provenance of the records contains the reader, its version and the digest of the output, which identify runs
    that an earlier version imported. If several tools wrote to the file, each reader takes the lines of its tool. If a
    launcher labelled the lines of several tasks, the records have the condition `task`.

    Raises:
        FormatError: Nothing of the text is certain, or the unit or the meaning of a column is unknown.
    """
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    results: ToolResults | None = None
    outputs = _tasks(ToolOutput(text, machine))
    for task, labelled_output in outputs:
        reader_outputs: list[ToolOutput] = []
        whole_output = labelled_output.without_messages()
        for reader in recognised(whole_output.text):
            output = whole_output.again()
            output.about = ToolFacts(reader.tool or reader.name)
            reader.read(output)
            results = results or ToolResults()
            results.take(
                output,
                {"task": task} if len(outputs) > 1 else {},
                {"reader": reader.name, "reader_version": reader.version, "output": digest},
            )
            reader_outputs.append(output)
        if results is not None and reader_outputs:
            results.leave_out(reader_outputs)
            results.other_lines += whole_output.other_lines
    if results is not None and not results.records:
        raise FormatError(str(results.left_out[0]) if results.left_out else "no result in this output")
    return results
