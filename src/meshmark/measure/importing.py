"""Reading what Meshmark printed, anywhere and at any time, back into records: nothing is merged, nothing replaced.

Read are the output and the journals of the instruments, one or many in a file; records as `--json` prints them; and
exports of a store, JSON Lines or CSV. A run is named by its machine, start and content, unless it says its name.
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
STEP: Final = "import"


@dataclass(slots=True)
class Part:
    """What becomes one step of one run. `run` is empty where the lines did not say one."""

    records: list[Record]
    absences: list[Absence] = field(default_factory=list)
    run: str = ""
    step: str = STEP

    @property
    def machine(self) -> str:
        return self.records[0].machine

    @property
    def digest(self) -> str:
        """Of the content alone: the same records in another order or file are the same."""
        lines = sorted(json.dumps(r.to_json(), sort_keys=True) for r in self.records)
        lines += sorted(repr(a) for a in self.absences)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:10]

    @property
    def name(self) -> str:
        """By machine, start and content."""
        start = min(str(r.provenance.get("start", "")) for r in self.records)
        when = re.sub(r"[^0-9TZ]", "", start.partition(".")[0])
        return "-".join(filter(None, (self.machine, when, self.digest)))


@dataclass(slots=True)
class Imported:
    """A file, read."""

    parts: list[Part] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # why, of lines that look like records and are none
    others: int = 0  # lines of another kind, or damaged


def read_output(path: Path) -> Imported:
    """What a file holds.

    Raises:
        UsageError: it cannot be read, is no regular file, or is larger than 1 GiB.
        MeshmarkError: it holds no record.
    """
    try:
        with open_regular(path) as file:
            found = _read_csv(file.read(MAX_BYTES + 1), path) if _is_csv(file) else _read_lines(_lines(file, path))
    except (OSError, ValueError) as why:
        raise UsageError(f"import: cannot read {quoted(path)}: {getattr(why, 'strerror', None) or why}") from why
    if not found.parts:
        reason = found.refused[0] if found.refused else "no line is a record"
        raise MeshmarkError(f"import: {quoted(path)}: {reason}")
    return found


def _lines(file: Any, path: Path) -> Iterator[bytes]:
    """Its lines; the last one counts also where no newline ends it, as long as it is whole."""
    size = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        size += len(line)
        if size > MAX_BYTES:
            raise UsageError(f"import: {quoted(path)}: found more than {MAX_BYTES >> 20} MiB, which is the limit")
        yield line


def _read_lines(lines: Iterable[bytes]) -> Imported:
    found = Imported()
    journals: list[list[bytes]] = []  # from a header to an end, or to the next header
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
            # A line that stands there twice is one.
            exported.setdefault(key, {})[json.dumps(record.to_json(), sort_keys=True)] = record
        else:
            found.others += 1
    for journal in journals:
        _take(found, read_journal(journal, STEP))
    for (run, step), records in exported.items():
        found.parts.append(Part([*records.values()], run=run, step=step if run else STEP))
    return found


def _join_resumed(journals: list[list[bytes]], end: dict[str, Any]) -> None:
    """Makes one of the last journal and those before it that it resumed. Two runs of the same stay two."""
    while len(journals) > 1 and end.get("resumed"):
        before, last = journals[-2:]
        first, header = parse_line(before[0]) or {}, parse_line(last[0]) or {}
        same = all(first.get(k) == header.get(k) for k in ("instrument", "machine", "parameters"))
        if not same or (parse_line(before[-1]) or {}).get("type") == "end":
            return
        journals[-2:] = [before + last]


def _take(found: Imported, reading: Reading) -> None:
    found.refused += reading.wrong
    found.others += reading.nonsense
    if reading.records:
        found.parts.append(Part(reading.records, reading.absences))


def _object(raw: bytes) -> dict[str, Any] | None:
    """A line of the protocol, or a record as `--json` prints it, which is a result."""
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
        found.refused.append(f"no CSV: {why}")
    found.parts += parts.values()
    return found


# ------------------------------------------------------------------ into the store


def add_to(store: Store, parts: Sequence[Part], name: str = "") -> list[tuple[str, int]]:
    """Adds what is not there yet; all of it is checked before the first file is written.

    Args:
        name: of the run, or of the first of several; `""`: by machine, start and content.

    Returns:
        Names of the runs, and how many records were added to each; 0: it was there already.

    Raises:
        UsageError: `name` is that of another run.
        MeshmarkError: the store cannot be written.
    """
    with store.exclusively():
        return _add(store, parts, name)


def _add(store: Store, parts: Sequence[Part], name: str) -> list[tuple[str, int]]:
    there = _There(store)
    todo: list[tuple[str, str, Part, bool]] = []
    named: dict[str, str] = {}  # run by digest, where `name` says what they are called
    for part in parts:
        if name:
            digest = part.digest
            run = named.setdefault(digest, f"{name}-{len(named) + 1}" if named else name)
            step = f"{STEP}-{digest}"
            if there.steps(run) - {step}:
                raise UsageError(
                    f"--name: found '{quoted(run)}', which is another run of the store",
                    "leave --name out, or choose another",
                )
        elif part.run:
            taken = there.content(part.run, part.step) not in {None, _content(part.records)}
            run, step = (f"{part.run}-{part.digest}" if taken else part.run), part.step
        else:
            run, step = part.name, part.step
        todo.append((run, step, part, there.plan(run, step, part)))
    added = []
    for run, step, part, new in todo:
        if new:
            store.add(run, step, part.records, part.absences, part.machine)
        added.append((run, len(part.records) if new else 0))
    return added


class _There:
    """What the store has, and what is about to be added to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readable = store.steps()
        self._planned: dict[tuple[str, str], Part] = {}

    def steps(self, run: str) -> set[str]:
        return self._readable.get(run, set()) | {step for of, step in self._planned if of == run}

    def content(self, run: str, step: str) -> str | None:
        """What the records of a step are; None: it is not there; `""`: its file cannot be read."""
        if (run, step) in self._planned:
            return _content(self._planned[run, step].records)
        if step in self._readable.get(run, ()):
            return _content(self._store.query(run=run, step=step))
        return "" if self._store.has_file(run, step) else None

    def plan(self, run: str, step: str, part: Part) -> bool:
        """Whether it is to be added: what is planned twice is added once."""
        new = step not in self.steps(run)
        self._planned.setdefault((run, step), part)
        return new


def _content(records: Sequence[Record]) -> str:
    return Part(list(records)).digest
