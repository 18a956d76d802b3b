"""Reads the file that a node left: the header, the results, and any damage.

The file is compressed JSON Lines (native/node/main.cpp). It may end in the middle, since nodes crash; the complete part
is read nevertheless, and the damage is reported. The lines that the runner writes itself are checked once, here: if one
of them has a value of the wrong type or out of range, the whole file is refused. Invalid results are left out and
counted.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.runs.journal import JournalContent, read_journal
from meshmark.store.files import read_bytes
from meshmark.values.inputs import LIST, Excerpt, checked, fields_of
from meshmark.values.units import counted

FORMAT: Final = "meshmark node result"
SUFFIX: Final = ".jsonl.gz"
INTERRUPTED: Final = f"+interrupted{SUFFIX}"  # suffix for a node that a signal stopped before its last step
REFUSED: Final = "refused: "  # prefix of the status of a node that did not measure because of other work
_VERSION: Final = 1
_MAX_FILE: Final = 64 << 20  # compressed
MAX_BYTES: Final = 256 << 20  # uncompressed, with the outputs of programs; a survey has less than one MiB
_MAX_RESULTS: Final = 32 << 20  # uncompressed, without the outputs of programs
_MAX_LINES: Final = 100_000
_MAX_LINE: Final = 16 << 20
_RUN: Final = b'{"type":"run"'
_SHORT: Final = 200  # characters of a name
_LONG: Final = 10_000  # characters of a reason
_Short = Annotated[str, Field(max_length=_SHORT)]
_Long = Annotated[str, Field(max_length=_LONG)]
_Number = Annotated[float, Field(ge=0, le=1e18)]


class ResultError(MeshmarkError):
    """The file is not a result of a node; the message names it and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderLine(Excerpt):
    """The first line."""

    plan: _Short
    kind: _Short
    name: _Short
    hostname: _Short
    machine: Annotated[str, Field(min_length=1, max_length=_SHORT)]
    hash: _Short
    boot: _Short
    started: _Short
    build: _Short = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine(Excerpt):
    """The first line of a step; `program` says how the runner carries out an application."""

    id: _Short = ""
    program: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEndLine(Excerpt):
    """The last line of a step."""

    id: _Short = ""
    status: _Short = ""
    reason: _Long = ""
    elapsed_s: _Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedLine(Excerpt):
    """The last line of the file.

    Attributes:
        status: `ok`, `interrupted` or `refused: …`.
        problems: Wrong results of kernels: the node computes wrongly.
    """

    status: Annotated[str, Field(min_length=1, max_length=_LONG)]
    problems: Annotated[tuple[_Long, ...], LIST, Field(max_length=1000)] = ()
    elapsed_s: _Number | None = None
    cpu_s: _Number | None = None
    peak_bytes: _Number | None = None


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step and its status: ok, absent, failed, timed out, interrupted or left out; "" if the file ends before."""

    id: str
    status: str
    reason: str
    elapsed_s: float
    reading: JournalContent
    program: bool = False  # whether it ran an application
    runs: list[Mapping[str, Any]] = field(default_factory=list)  # runs of an application, as the runner reports them


@dataclass(frozen=True, slots=True)
class NodeResult:
    """The content of the file of a node.

    Attributes:
        header: The first line.
        files: Content of the recorded files, by path below /.
        finished: The last line; None if it is missing.
        damage: Description of the damage of the file; "" if it is undamaged.
    """

    header: HeaderLine
    steps: list[NodeStep] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    finished: FinishedLine | None = None
    damage: str = ""

    @property
    def name(self) -> str:
        """Return the name of the node."""
        return self.header.name

    @property
    def status(self) -> str:
        """Return `ok`, `interrupted`, `refused: …` or `damaged`."""
        return self.finished.status if self.finished else "damaged"

    @property
    def wrong(self) -> list[str]:
        """Return the wrong results of kernels: the node computes wrongly."""
        return list(self.finished.problems) if self.finished else []


def read_result(path: Path) -> NodeResult:
    """Read the file of a node.

    Raises:
        ResultError: The file cannot be read, is too large, or has an invalid line of the runner.
    """
    return parse_result(path.name, read_packed(path))


def read_packed(path: Path) -> bytes:
    """Return the compressed content of the file of a node.

    Raises:
        ResultError: The file cannot be read, or is too large.
    """
    try:
        return read_bytes(path, _MAX_FILE)
    except UsageError as error:
        raise ResultError(str(error)) from error


def parse_result(name: str, packed: bytes) -> NodeResult:
    """Read the content of the file of a node.

    Args:
        name: Name of the file, for errors.
        packed: Compressed content of the file.

    Raises:
        ResultError: The file has no valid header, is too large, or has an invalid line of the runner.
    """
    name = quoted(name)
    _check_size(name, packed)
    lines = _lines(packed)
    first, _ = next(lines, (None, ""))
    header = _header(name, first)
    recorded: dict[str, bytes] = {}
    finished: FinishedLine | None = None
    steps: list[NodeStep] = []
    open_step: StepLine | None = None
    raw_lines, damages = list[bytes](), list[str]()
    for raw, damage in lines:
        if raw is None:
            damages.append(damage)
            break
        kind = _kind(raw)
        if kind == "file":
            _add_file(recorded, raw)
        elif kind == "step":
            open_step, raw_lines = checked(StepLine, _object(raw), f"{name}: step", ResultError), []
        elif kind == "step end":
            end = checked(StepEndLine, _object(raw), f"{name}: step end", ResultError)
            steps.append(_step(end, raw_lines, open_step))
            open_step = None
        elif kind == "finished":
            last = _object(raw)
            finished = checked(FinishedLine, last, f"{name}: last line", ResultError) if last else None
        else:
            raw_lines.append(raw)
    if open_step is not None:
        steps.append(_step(StepEndLine(id=open_step.id), raw_lines, open_step))
    if finished is None and not damages:
        damages.append("it has no last line: the runner was killed")
    invalid = [text for step in steps for text in step.reading.invalid_records]
    if invalid:
        damages.append(f"{counted(len(invalid), 'result')} left out: {quoted(invalid[0], 200)}")
    if no_json := sum(step.reading.invalid_lines for step in steps):
        damages.append(f"{counted(no_json, 'line')} left out: not JSON")
    return NodeResult(header, steps, recorded, finished, "; ".join(damages))


def _check_size(name: str, packed: bytes) -> None:
    """Check the number of bytes and lines before objects are built from them.

    Raises:
        ResultError: The file is too large.
    """
    total = results = count = 0
    with contextlib.suppress(EOFError, OSError, zlib.error), gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        while line := file.readline(_MAX_LINE + 1):
            total, count = total + len(line), count + 1
            results += 0 if line.startswith(_RUN) else len(line)
            too_large = (
                (len(line) > _MAX_LINE, f"a line of more than {_MAX_LINE >> 20} MiB"),
                (count > _MAX_LINES, f"more than {_MAX_LINES} lines"),
                (results > _MAX_RESULTS, f"more than {_MAX_RESULTS >> 20} MiB of results"),
                (total > MAX_BYTES, f"more than {MAX_BYTES >> 20} MiB"),
            )
            for is_exceeded, excess in too_large:
                if is_exceeded:
                    raise ResultError(f"{name}: found {excess}, which is the limit")


def _lines(packed: bytes) -> Iterator[tuple[bytes | None, str]]:
    """Yield complete lines, and finally the damage of the file if it is damaged."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            while line := file.readline(_MAX_LINE + 1):
                if not line.endswith(b"\n"):
                    yield None, "it ends in the middle of a line"
                    return
                yield line, ""
    except EOFError:
        yield None, "it ends in the middle"
    except (OSError, zlib.error) as error:
        yield None, f"it cannot be read: {quoted(error)}"


def _header(name: str, raw: bytes | None) -> HeaderLine:
    header = _object(raw or b"")
    if header.get("format") != FORMAT:
        raise ResultError(f"{name}: not a result of a node")
    version = header.get("version")
    if version != _VERSION:
        raise ResultError(f"{name}: version: found {quoted(version)}, this program reads {_VERSION}")
    return checked(HeaderLine, header, name, ResultError)


def _kind(raw: bytes) -> str:
    """Return the type of a line that the runner wrote; "" for lines of instruments, which are parsed once, later."""
    for kind in ("file", "step", "step end", "finished"):
        if raw.startswith(b'{"type":"%s"' % kind.encode()):
            return kind
    return ""


def _object(raw: bytes) -> dict[str, Any]:
    """Parse a line of the runner; {} if it is damaged."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def _add_file(files: dict[str, bytes], raw: bytes) -> None:
    line = _object(raw)
    path, content = line.get("path"), line.get("content")
    if isinstance(path, str) and isinstance(content, str):
        with contextlib.suppress(UnicodeError):
            files[path] = content.encode("latin-1")


def _step(end: StepEndLine, raw_lines: list[bytes], begin: StepLine | None) -> NodeStep:
    is_program = bool(begin and begin.program)
    return NodeStep(
        **fields_of(end),
        reading=read_journal(raw_lines, end.id),
        program=is_program,
        runs=[_object(raw) for raw in raw_lines if is_program and raw.startswith(_RUN)],
    )
