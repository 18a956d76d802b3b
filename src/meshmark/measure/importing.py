"""Imports output of Meshmark into a store, without merging or replacing existing runs.

The input is the output or the journals of instruments, one or several per file; records as `--json` prints them;
exports of a store as JSON Lines or CSV; or the output of another tool (`measure.tools`). A run without a name is named
after its machine, start and content.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.journal import Reading, parse_line, read_journal
from meshmark.store.export import CSV_FIXED, record_of_csv
from meshmark.store.files import open_regular
from meshmark.store.lines import MAX_LINE_BYTES
from meshmark.store.record import Record, RecordError
from meshmark.store.run import Absence
from meshmark.store.store import Store

MAX_BYTES: Final = 1 << 30
MAX_TOOL_BYTES: Final = 64 << 20  # far above the output of any tool
STEP: Final = "import"


@dataclass(slots=True)
class Part:
    """The records and absences of one step of one run. `run` is "" if the input does not name the run."""

    records: list[Record]
    absences: list[Absence] = field(default_factory=list)
    run: str = ""
    step: str = STEP

    @property
    def machine(self) -> str:
        return self.records[0].machine

    @property
    def digest(self) -> str:
        """Hash of the content, independent of the order of the records and of the file."""
        lines = sorted(json.dumps(r.to_json(), sort_keys=True) for r in self.records)
        lines += sorted(repr(a) for a in self.absences)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """A name made of machine, start and content."""
        start = min(str(r.provenance.get("start", "")) for r in self.records)
        when = re.sub(r"[^0-9TZ]", "", start.partition(".")[0])
        return "-".join(filter(None, (self.machine, when, self.digest)))


@dataclass(slots=True)
class Imported:
    """The content of a file."""

    parts: list[Part] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # one error for each invalid record
    others: int = 0  # lines of other types, and damaged lines


def read_output(path: Path, machine: str = "") -> Imported:
    """Read the records of a file.

    Args:
        machine: The name of the machine that another tool measured, which its output lacks; "": that of the file.

    Raises:
        UsageError: The file cannot be read, is not a regular file, is larger than 1 GiB, or is damaged.
        MeshmarkError: The file contains no record.
    """
    text = b""
    try:
        with open_regular(path) as file:
            found = _read_csv(file.read(MAX_BYTES + 1), path) if _is_csv(file) else _read_lines(_lines(file, path))
            if not found.parts and not found.refused:
                file.seek(0)
                text = file.read(MAX_TOOL_BYTES + 1)
    except (OSError, ValueError) as why:
        raise UsageError(f"import: cannot read {quoted(path)}: {getattr(why, 'strerror', None) or why}") from why
    if records := _of_tool(text, path, machine or path.stem):
        return Imported([Part(records)])
    if not found.parts:
        from meshmark.measure.tools.formats import readers

        reason = found.refused[0] if found.refused else "no line is a record, and the format is not known"
        known = ", ".join(r.name for r in readers())
        raise MeshmarkError(f"import: {quoted(path)}: {reason}", "" if found.refused else f"known formats: {known}")
    return found


def _of_tool(text: bytes, path: Path, machine: str) -> list[Record]:
    """The records of another tool's output; none if it is empty or too long, or its format is not known."""
    if not text or len(text) > MAX_TOOL_BYTES:
        return []
    from meshmark.measure.tools.formats import read_text

    try:
        return read_text(text.decode("utf-8-sig", "replace"), machine)
    except UsageError as why:
        raise UsageError(f"import: {quoted(path)}: {why}") from why


def _lines(file: Any, path: Path) -> Iterator[bytes]:
    """The lines of a file, including a last one without a newline."""
    size = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        size += len(line)
        if size > MAX_BYTES:
            raise UsageError(f"import: {quoted(path)}: found more than {MAX_BYTES >> 20} MiB, which is the limit")
        yield line


def _read_lines(lines: Iterable[bytes]) -> Imported:
    found = Imported()
    journals: list[list[bytes]] = []  # each from a header to an end line or the next header
    is_open = False
    exported: dict[tuple[str, str], dict[str, Record]] = {}
    for raw in lines:
        line = _object(raw)
        if line is None:
            found.others += 1
            continue
        if line["type"] == "header":
            journals.append([])
            is_open = True
        if is_open:
            journals[-1].append(raw)
            if line["type"] == "end":
                is_open = False
                _join_resumed(journals, line)
        elif line["type"] == "result":
            try:
                record = Record.from_json(line)
            except RecordError as why:
                found.refused.append(str(why))
                continue
            run, step = line.get("run"), line.get("step")
            key = (run, str(step or STEP)) if isinstance(run, str) and run else ("", record.machine)
            # Identical lines count once.
            exported.setdefault(key, {})[json.dumps(record.to_json(), sort_keys=True)] = record
        else:
            found.others += 1
    for journal in journals:
        _add_reading(found, read_journal(journal, STEP))
    for (run, step), records in exported.items():
        found.parts.append(Part([*records.values()], run=run, step=step if run else STEP))
    return found


def _join_resumed(journals: list[list[bytes]], end: dict[str, Any]) -> None:
    """Join the last journal with the interrupted ones that it resumed. Complete runs stay separate."""
    while len(journals) > 1 and end.get("resumed"):
        before, last = journals[-2:]
        first, header = parse_line(before[0]) or {}, parse_line(last[0]) or {}
        same = all(first.get(k) == header.get(k) for k in ("instrument", "machine", "parameters"))
        if not same or (parse_line(before[-1]) or {}).get("type") == "end":
            return
        journals[-2:] = [before + last]


def _add_reading(found: Imported, reading: Reading) -> None:
    found.refused += reading.invalid_records
    found.others += reading.invalid_lines
    if reading.records:
        found.parts.append(Part(reading.records, reading.absences))
    else:
        found.others += len(reading.absences)  # without a result, nothing tells which run they are of


def _object(raw: bytes) -> dict[str, Any] | None:
    """A line of the protocol; a bare record, as `--json` prints it, becomes a `result` line."""
    line = parse_line(raw)
    if line is not None:
        return line
    try:
        bare = json.loads(raw) if len(raw) <= MAX_LINE_BYTES else None
    except (ValueError, RecursionError):
        return None
    if isinstance(bare, dict) and {"source", "metric", "samples"} <= bare.keys():
        return {"type": "result", "schema": 1, **bare}
    return None


def _is_csv(file: Any) -> bool:
    start = file.read(256)
    file.seek(0)
    return bool(start.lstrip(b"\xef\xbb\xbf").startswith(CSV_FIXED[0].encode() + b","))


def _read_csv(data: bytes, path: Path) -> Imported:
    if len(data) > MAX_BYTES:
        raise UsageError(f"import: {quoted(path)}: found more than {MAX_BYTES >> 20} MiB, which is the limit")
    found = Imported()
    parts: dict[tuple[str, str], Part] = {}
    try:
        for row in csv.DictReader(io.StringIO(data.decode("utf-8-sig"))):
            try:
                record = record_of_csv(row)
            except RecordError as why:
                found.refused.append(str(why))
                continue
            key = row.get("run") or "", row.get("step") or STEP
            parts.setdefault(key, Part([], run=key[0], step=key[1])).records.append(record)
    except csv.Error as why:
        found.refused.append(f"not CSV: {why}")
    found.parts += parts.values()
    return found


# ------------------------------------------------------------------ into the store


def add_to(store: Store, parts: Sequence[Part], name: str = "") -> list[tuple[str, int]]:
    """Add parts that the store does not contain. All are checked before the first file is written.

    Args:
        store: The store.
        parts: The parts of one file.
        name: Name of the run; further runs get a numeric suffix. "" derives it from machine, start and content.

    Returns:
        The name of each run and the number of records added to it, 0 if the store already contained it.

    Raises:
        UsageError: `name` is the name of another run.
        MeshmarkError: The store cannot be written.
    """
    with store.exclusively():
        return _add(store, parts, name)


def _add(store: Store, parts: Sequence[Part], name: str) -> list[tuple[str, int]]:
    contents = _Contents(store)
    planned: list[tuple[str, str, Part, bool]] = []
    named: dict[str, str] = {}  # run by digest, if `name` is given
    for part in parts:
        if name:
            digest = part.digest
            run = named.setdefault(digest, f"{name}-{len(named) + 1}" if named else name)
            step = f"{STEP}-{digest}"
            if contents.steps(run) - {step}:
                raise UsageError(
                    f"--name: found '{quoted(run)}', which is another run of the store",
                    "omit --name or choose another name",
                )
        elif part.run:
            taken = contents.content(part.run, part.step) not in {None, _content(part.records)}
            run, step = (f"{part.run}-{part.digest}" if taken else part.run), part.step
        else:
            run, step = part.name, part.step
        planned.append((run, step, part, contents.plan(run, step, part)))
    added = []
    for run, step, part, new in planned:
        if new:
            store.add(run, step, part.records, part.absences, part.machine)
        added.append((run, len(part.records) if new else 0))
    for run in dict.fromkeys(run for run, _, _, new in planned if new):
        store.finish(run)
    return added


class _Contents:
    """The content of a store, including parts that are about to be added."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readable = store.steps()
        self._planned: dict[tuple[str, str], Part] = {}
        self._stored: dict[str, dict[str, list[Record]]] = {}  # of the runs that were asked for, by step

    def steps(self, run: str) -> set[str]:
        return self._readable.get(run, set()) | {step for of, step in self._planned if of == run}

    def content(self, run: str, step: str) -> str | None:
        """Digest of the records of a step; None if it does not exist, "" if its file cannot be read."""
        if (run, step) in self._planned:
            return _content(self._planned[run, step].records)
        if step in self._readable.get(run, ()):
            if run not in self._stored:  # at once, since each query opens all files of the store
                steps = self._stored[run] = {}
                for _, name, record in self._store.rows(run=run):
                    steps.setdefault(name, []).append(record)
            return _content(self._stored[run].get(step, []))
        return "" if self._store.unreadable(run, step) else None

    def plan(self, run: str, step: str, part: Part) -> bool:
        """Plan a step and return whether it must be added. Steps that are planned twice are added once."""
        new = step not in self.steps(run)
        self._planned.setdefault((run, step), part)
        return new


def _content(records: Sequence[Record]) -> str:
    return Part(list(records)).digest
