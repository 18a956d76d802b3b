"""Imports output of Meshmark into a store.

Existing runs are not changed, except that a step that an earlier import left incomplete is completed.

The input is the output or the journals of instruments, one or several per file; records as `--json` prints them;
exports of a store as JSON Lines or CSV; machine cards (`importers.card`); or the output of another tool
(`importers.formats`). A run without a name is named after its machine, start and content.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, TypeGuard, cast

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.importers.card import read_card
from meshmark.measure.importers.output import MAX_LISTED, LeftOutItem, decoded, encoding_of
from meshmark.measure.importers.packed import PackedRecords
from meshmark.measure.runs.journal import parse_line, read_journal
from meshmark.store.columns import row_of_absence, tables_of
from meshmark.store.export import CSV_FIXED, record_of_csv
from meshmark.store.files import open_regular
from meshmark.store.record import Record, RecordError, is_unicode
from meshmark.store.run import Absence
from meshmark.store.session import MAX_LINE_BYTES
from meshmark.store.store import Store

MAX_BYTES: Final = 1 << 30
MAX_TOOL_BYTES: Final = 64 << 20  # far above the output of any tool
STEP: Final = "import"
_GZIP: Final = b"\x1f\x8b"
_DIGEST_BYTES: Final = 16


class StepImport:
    """The records and absences of one step of one run.

    Attributes:
        run: Name of the run; "" if the input does not name it.
        start: First start of a record, ISO 8601; "" if one does not state it.
    """

    def __init__(
        self, records: Iterable[Record] = (), absences: Sequence[Absence] = (), run: str = "", step: str = STEP
    ) -> None:
        self.records: Final = PackedRecords()
        self.absences: Final = [*absences]
        self.run, self.step = run, step
        self.start = ""
        self._digests = bytearray()
        for record in records:
            self.add(record)

    def add(self, record: Record, digest: bytes = b"") -> None:
        """Add a record. `digest` is its digest, if it is known."""
        start = str(record.provenance.get("start", ""))
        self.start = min(self.start, start) if self._digests else start
        self.records.append(record)
        self._digests += digest or _digest(record)

    @property
    def machine(self) -> str:
        """Return the machine of its records, of which there is at least one."""
        return self.records.first.machine

    @property
    def digest(self) -> str:
        """Hash of the content, independent of the order of the records and of the file."""
        return _digest_of_step(self._digests, self.absences)

    @property
    def records_digest(self) -> str:
        """Hash of the records alone."""
        return _digest_of_step(self._digests)

    @property
    def record_digests(self) -> set[bytes]:
        """Hashes of the records, each by itself."""
        return _each(self._digests)

    @property
    def name(self) -> str:
        """Return a name that consists of machine, start and digest."""
        start_text = re.sub(r"[^0-9TZ]", "", self.start.partition(".")[0])
        return "-".join(filter(None, (self.machine, start_text, self.digest)))


def _digest(record: Record) -> bytes:
    """Return `_DIGEST_BYTES` that identify the content of a record, independent of the order of its conditions."""
    others = (sorted(record.conditions.items()), sorted(record.provenance.items()), sorted(record.flags))
    texts = (record.source, record.machine, record.instrument, record.metric, record.unit, record.better)
    content = array("d", record.samples).tobytes() + repr((texts, others)).encode()
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _each(digests: bytearray) -> set[bytes]:
    return {bytes(digests[i : i + _DIGEST_BYTES]) for i in range(0, len(digests), _DIGEST_BYTES)}


def _digest_of_step(digests: bytearray, absences: Sequence[Absence] = ()) -> str:
    in_order = sorted(digests[i : i + _DIGEST_BYTES] for i in range(0, len(digests), _DIGEST_BYTES))
    texts = sorted(repr(a) for a in absences)
    return hashlib.sha256(b"".join(in_order) + "\n".join(texts).encode()).hexdigest()[:10]


@dataclass(slots=True)
class FileImport:
    """The content of a file.

    Attributes:
        parts: Records and absences of the file, by step.
        left_out: The first items that were left out, with their lines.
        left_out_count: Number of all items that were left out.
        other_lines: Number of lines that are not results.
    """

    parts: list[StepImport] = field(default_factory=list)
    left_out: list[LeftOutItem] = field(default_factory=list)
    left_out_count: int = 0
    other_lines: int = 0

    def leave_out(self, line: int, reason: str) -> None:
        """Count an item that is left out, and list it if it is one of the first."""
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append(LeftOutItem(f"line {line}", reason))


def read_output(path: Path, machine: str = "") -> FileImport:
    """Read the records of a file. Items that are not certainly valid are left out and counted.

    Args:
        path: The file.
        machine: Name of the machine that another tool measured, which its output lacks; "" for the name of the file.
            Results of a machine card get this name, too; with "" they retain their machine.

    Raises:
        UsageError: The file cannot be read, is not a regular file, is larger than 1 GiB, or is damaged.
        MeshmarkError: The file contains no record.
    """
    if not is_unicode(machine):
        raise UsageError(f"--machine: found {machine!r}, a name in UTF-8 is required")
    data = b""
    try:
        with open_regular(path) as file:
            is_packed = file.read(2) == _GZIP
            file.seek(0)
            imported = _read_packed(file, path) if is_packed else _read_protocol(file, path)
            if not imported.parts:
                file.seek(0)
                data = file.read(MAX_TOOL_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"import: cannot read {quoted(path)}: {getattr(error, 'strerror', None) or error}") from error
    if (card_content := _of_card(data, path, machine)) is not None:
        return card_content
    if (tool_content := _of_tool(data, path, machine or path.stem)) is not None:
        return tool_content
    if not imported.parts:
        from meshmark.measure.importers.formats import readers

        reason = imported.left_out[0] if imported.left_out else "no line is a record, and the format is not known"
        format_names = ", ".join(r.name for r in readers())
        hint = "" if imported.left_out else f"known formats: {format_names}"
        raise MeshmarkError(f"import: {quoted(path)}: {reason}", hint)
    return imported


def _of_card(data: bytes, path: Path, machine: str) -> FileImport | None:
    """Return the content of a machine card; None if the file is empty or too long, or not a card."""
    if not data or len(data) > MAX_TOOL_BYTES:
        return None
    try:
        card = read_card(data)
    except UsageError as error:
        raise UsageError(f"import: {quoted(path)}: {error}", error.hint) from error
    if card is None:
        return None
    names = sorted({r.machine for _, r in card.records})
    if machine and len(names) > 1:
        names_text = ", ".join(names[:4])
        raise UsageError(
            f"--machine: found results of {len(names)} machines in {quoted(path)} ({names_text}), one is allowed"
        )
    # The store may also have the run under the original name of the machine.
    run = f"{card.run}-{machine}" if machine and names != [machine] else card.run
    parts: dict[str, StepImport] = {}
    for step, record in card.records:
        renamed = replace(record, machine=machine) if machine else record
        if step not in parts:
            parts[step] = StepImport(run=run, step=step)
        parts[step].add(renamed)
    for absence in card.absences if parts else ():
        parts.get(absence.step or "", next(iter(parts.values()))).absences.append(absence)
    imported = FileImport([*parts.values()], left_out_count=len(card.left_out))
    imported.left_out = [LeftOutItem(where, reason) for where, reason in card.left_out[:MAX_LISTED]]
    if not parts:
        reason = imported.left_out[0] if imported.left_out else "found no results in this card"
        raise MeshmarkError(f"import: {quoted(path)}: {reason}")
    return imported


def _of_tool(data: bytes, path: Path, machine: str) -> FileImport | None:
    """Return the content of another tool's output; None if it is empty or too long, or its format is not known."""
    if not data or len(data) > MAX_TOOL_BYTES:
        return None
    from meshmark.measure.importers.formats import read_text

    try:
        results = read_text(decoded(data), machine)
    except UsageError as error:
        raise UsageError(f"import: {quoted(path)}: {error}") from error
    if results is None:
        return None
    return FileImport([StepImport(results.records)], results.left_out, results.left_out_count, results.other_lines)


def _read_packed(file: IO[bytes], path: Path) -> FileImport:
    """Return the records of a file that is compressed by gzip, up to its end if it was cut off."""
    unpacked = cast(IO[bytes], gzip.GzipFile(fileobj=file))
    try:
        imported = _read_protocol(unpacked, path)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UsageError(f"import: {quoted(path)}: the compressed data are damaged") from error
    except EOFError:
        return FileImport()  # before its first line
    try:
        unpacked.read(1)
    except EOFError:
        if imported.parts:  # otherwise another reader reports it
            imported.left_out_count += 1
            imported.left_out.append(LeftOutItem("end of the file", "the compressed file is cut off"))
    return imported


def _read_protocol(file: IO[bytes], path: Path) -> FileImport:
    """Return the records of Meshmark's own lines and CSV."""
    if (start := file.read(400)) and (encoding := encoding_of(start)) not in {"utf-8", "utf-8-sig"}:
        file.seek(0)
        data = file.read(MAX_TOOL_BYTES + 1)
        file = io.BytesIO(data.decode(encoding, "replace").encode() if len(data) <= MAX_TOOL_BYTES else b"")
    file.seek(0)
    return _read_csv(file.read(MAX_BYTES + 1), path) if _is_csv(file) else _read_lines(_lines(file, path))


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, including a last line without a newline."""
    size = 0
    while line := _line(file):
        size += len(line)
        if size > MAX_BYTES:
            raise UsageError(f"import: {quoted(path)}: found more than {MAX_BYTES >> 20} MiB, which is the limit")
        yield line if size > len(line) else line.removeprefix(codecs.BOM_UTF8)


def _line(file: IO[bytes]) -> bytes:
    try:
        return file.readline(MAX_LINE_BYTES + 1)
    except EOFError:
        return b""  # a compressed file that was cut off


_Numbered = tuple[int, bytes]


def _read_lines(lines: Iterable[bytes]) -> FileImport:
    imported = FileImport()
    journals: list[list[_Numbered]] = []  # each journal ends with an end line or before the next header
    is_open = False
    exported: dict[tuple[str, str], StepImport] = {}
    digests: dict[tuple[str, str], set[bytes]] = {}
    cut_lines: list[int] = []
    for number, raw in enumerate(lines, 1):
        line = _object(raw)
        if line is None:
            if raw.startswith(b'{"') and not raw.rstrip().endswith(b"}"):
                cut_lines.append(number)
            else:
                imported.other_lines += 1
            continue
        if line["type"] == "header":
            journals.append([])
            is_open = True
        if is_open:
            journals[-1].append((number, raw))
            if line["type"] == "end":
                is_open = False
                _join_resumed(journals, line)
        elif line["type"] == "result":
            try:
                record = Record.from_json(line)
            except RecordError as error:
                imported.leave_out(number, str(error))
                continue
            run, step = line.get("run"), line.get("step")
            step = step if _is_name(step) else STEP
            key = (run, step) if _is_name(run) else ("", record.machine)
            known_digests = digests.setdefault(key, set())
            if (digest := _digest(record)) not in known_digests:  # identical lines count once
                known_digests.add(digest)
                if key not in exported:
                    exported[key] = StepImport(run=key[0], step=key[1] if key[0] else STEP)
                exported[key].add(record, digest)
        else:
            imported.other_lines += 1
    for journal in journals:
        _add_journal(imported, journal)
    imported.parts += exported.values()
    if imported.parts or imported.left_out:  # otherwise the file has another format
        for number in cut_lines:
            imported.leave_out(number, "not a complete JSON object")
    return imported


def _is_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the name of a run or of a step."""
    return isinstance(value, str) and value != "" and is_unicode(value)


def _join_resumed(journals: list[list[_Numbered]], end: dict[str, Any]) -> None:
    """Join the last journal with the interrupted journals that it resumed. Complete runs stay separate."""
    while len(journals) > 1 and end.get("resumed"):
        earlier_journal, last_journal = journals[-2:]
        first_header, header = parse_line(earlier_journal[0][1]) or {}, parse_line(last_journal[0][1]) or {}
        is_same_run = all(first_header.get(k) == header.get(k) for k in ("instrument", "machine", "parameters"))
        if not is_same_run or (parse_line(earlier_journal[-1][1]) or {}).get("type") == "end":
            return
        journals[-2:] = [earlier_journal + last_journal]


def _add_journal(imported: FileImport, journal: list[_Numbered]) -> None:
    reading = read_journal((raw for _, raw in journal), STEP)
    for index, reason in zip(reading.invalid_at, reading.invalid_records, strict=True):
        imported.leave_out(journal[index][0], reason)
    imported.other_lines += reading.invalid_lines
    if reading.records:
        # The header of a step of `meshmark-probe survey` names the run and the step.
        run, step = ((reading.header or {}).get(key) for key in ("run", "step"))
        names = (run, step) if _is_name(run) and _is_name(step) else ()
        imported.parts.append(StepImport(reading.records, reading.absences, *names))
    else:
        imported.other_lines += len(reading.absences)  # a part needs a record, which states the machine


def _object(raw: bytes) -> dict[str, Any] | None:
    """Return a line of the protocol; a bare record, as `--json` prints it, becomes a `result` line."""
    if not raw.startswith((b"{", b" ", b"\t")) or raw.isspace():
        return None
    line = parse_line(raw)
    if line is not None:
        return line
    try:
        record = json.loads(raw) if len(raw) <= MAX_LINE_BYTES else None
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and {"source", "metric", "samples"} <= record.keys():
        return {"type": "result", "schema": 1, **record}
    return None


def _is_csv(file: IO[bytes]) -> bool:
    start = file.read(256)
    file.seek(0)
    return bool(start.lstrip(codecs.BOM_UTF8).startswith(CSV_FIXED[0].encode() + b","))


def _read_csv(data: bytes, path: Path) -> FileImport:
    if len(data) > MAX_BYTES:
        raise UsageError(f"import: {quoted(path)}: found more than {MAX_BYTES >> 20} MiB, which is the limit")
    imported = FileImport()
    parts: dict[tuple[str, str], StepImport] = {}
    csv.field_size_limit(MAX_BYTES)  # a field has all samples of a record
    rows = csv.DictReader(io.StringIO(data.decode("utf-8-sig", "replace")))
    try:
        for row in rows:
            try:
                record = record_of_csv(row)
            except RecordError as error:
                imported.leave_out(rows.line_num, str(error))
                continue
            key = row.get("run") or "", row.get("step") or STEP
            if key not in parts:
                parts[key] = StepImport(run=key[0], step=key[1])
            parts[key].add(record)
    except csv.Error as error:
        imported.leave_out(rows.line_num, f"not CSV: {error}; the rest of the file is ignored")
    imported.parts += parts.values()
    return imported


# ------------------------------------------------------------------ into the store


def add_to(
    store: Store, parts: Sequence[StepImport], name: str = "", replaced: Collection[str] = ()
) -> list[tuple[str, int]]:
    """Add the parts that the store does not contain. All parts are checked before the first file is written.

    Args:
        parts: The parts of one file.
        name: Name of the run; further runs get a numeric suffix. "" derives it from machine, start and content.
        replaced: Names of runs that these parts replace.

    Returns:
        For each part, the name of its run and the number of its records that were added; 0 if the store contained it.

    Raises:
        UsageError: `name` is the name of another run.
        MeshmarkError: The store cannot be written.
    """
    with store.exclusively():
        plans = _plans(_Contents(store, replaced), parts, name)
        runs = list(dict.fromkeys(plan.run for plan in plans if plan.is_new))
        for run in sorted({*replaced} & {*runs}):
            store.remove_locked(run)
        for plan in plans:
            if plan.is_new:
                part = plan.part
                absences = [row_of_absence(a, plan.run, plan.step, part.machine) for a in part.absences]
                tables = [*part.records.tables(plan.run, plan.step), *tables_of(absences)]
                store.add_tables(plan.run, plan.step, tables)
        for run in runs:
            store.finish(run)
        for run in sorted({*replaced} - {*runs}):  # after the new runs, so that nothing is lost if the process ends
            store.remove_locked(run)
    return [(plan.run, len(plan.part.records) if plan.is_new else 0) for plan in plans]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The run and the step that a part becomes. `is_new` is False if the store, or another part, has the step."""

    run: str
    step: str
    part: StepImport
    is_new: bool


def _plans(contents: _Contents, parts: Sequence[StepImport], name: str) -> list[_Plan]:
    plans: list[_Plan] = []
    run_by_key: dict[str, str] = {}  # if `name` is set: the name of the run by its name in the input, or by its digest
    keys = [part.run or part.digest if name else "" for part in parts]
    steps: dict[str, set[str]] = {}
    for part, key in zip(parts, keys, strict=True):
        steps.setdefault(key, set()).add(part.step if part.run else f"{STEP}-{key}")
    for part, key in zip(parts, keys, strict=True):
        if name:
            run = run_by_key.setdefault(key, f"{name}-{len(run_by_key) + 1}" if run_by_key else name)
            step = part.step if part.run else f"{STEP}-{key}"
            is_taken = contents.differs(run, step, part)
            if is_taken or contents.steps(run) - steps[key]:
                raise UsageError(
                    f"--name: found '{quoted(run)}', which is another run of the store",
                    "omit --name or choose another name",
                )
        elif part.run:
            is_taken = contents.differs(part.run, part.step, part)
            run, step = (f"{part.run}-{part.digest}" if is_taken else part.run), part.step
        else:
            run, step = part.name, part.step
        plans.append(_Plan(run, step, part, contents.plan(run, step, part)))
    return plans


class _Contents:
    """The content of a store, including parts that are about to be added, without runs that are about to be removed."""

    def __init__(self, store: Store, removed: Collection[str]) -> None:
        self._store = store
        self._removed = removed
        self._readable: dict[str, set[str]] = {}
        for row in store.select("SELECT DISTINCT run, step FROM {rows}"):
            if row["run"] not in removed:
                self._readable.setdefault(row["run"], set()).add(row["step"])
        self._planned: dict[tuple[str, str], StepImport] = {}
        # By run and step of the requested runs: the digest of the step, and the digests of its records.
        self._stored: dict[str, dict[str, tuple[str, bytearray]]] = {}

    def steps(self, run: str) -> set[str]:
        return self._readable.get(run, set()) | {step for planned_run, step in self._planned if planned_run == run}

    def content(self, run: str, step: str) -> str | None:
        """Return the digest of the records of a step; None if it does not exist, "" if its file cannot be read."""
        if (run, step) in self._planned:
            return self._planned[run, step].records_digest
        if step in self._readable.get(run, ()):
            if run not in self._stored:  # all steps at once, since each query opens all files of the store
                steps: dict[str, bytearray] = {}
                for name, digest in self._store.converted(lambda row: (row[1], _digest(row[2])), run=run):
                    steps.setdefault(name, bytearray()).extend(digest)
                self._stored[run] = {name: (_digest_of_step(digests), digests) for name, digests in steps.items()}
            stored = self._stored[run].get(step)
            return stored[0] if stored else _digest_of_step(bytearray())
        return "" if run not in self._removed and self._store.unreadable(run, step) else None

    def differs(self, run: str, step: str, part: StepImport) -> bool:
        """Return whether the store has a step of this name that is not this part.

        A stored step with only some records of the part is the part: an import ended early, for example on a full disk.
        """
        content = self.content(run, step)
        if content is None or content == part.records_digest:
            return False
        stored = None if (run, step) in self._planned else self._stored.get(run, {}).get(step)
        return stored is None or not _each(stored[1]) <= part.record_digests

    def plan(self, run: str, step: str, part: StepImport) -> bool:
        """Plan a step and return whether it must be added: it is new, or the store has only some of its records.

        Steps that are planned twice are added once.
        """
        is_new = self.content(run, step) != part.records_digest
        self._planned.setdefault((run, step), part)
        return is_new
