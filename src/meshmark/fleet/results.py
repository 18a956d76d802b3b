"""Reads the file that a node left: what it is, what it measured, and what is wrong with it.

The file is compressed JSON Lines (native/node/main.cpp). It may end in the middle, since nodes crash; what is complete
is read all the same, and the damage is named.
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
from typing import Any, Final

from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.measure.journal import Reading, read_journal
from meshmark.store.files import read_bytes

FORMAT: Final = "meshmark node result"
SUFFIX: Final = ".jsonl.gz"
INTERRUPTED: Final = f"+interrupted{SUFFIX}"  # of a node that a signal stopped before its last step
REFUSED: Final = "refused: "  # begins the status of a node that did not measure, since it does other work
_VERSION: Final = 1
_MAX_FILE: Final = 64 << 20  # compressed
MAX_BYTES: Final = 256 << 20  # uncompressed; a survey has less than one MiB
_MAX_LINE: Final = 16 << 20
_RUN: Final = b'{"type":"run"'
_TEXTS: Final = ("plan", "kind", "name", "hostname", "machine", "hash", "boot", "started")


class ResultError(MeshmarkError):
    """The file is not a result of a node; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class NodeStep:
    """A step as it ended: ok, absent, failed, timed out, interrupted or left out; "" if the file ends before."""

    id: str
    status: str
    reason: str
    elapsed_s: float
    reading: Reading
    program: bool = False  # whether it ran an application
    runs: list[Mapping[str, Any]] = field(default_factory=list)  # of an application, as the runner reports them


@dataclass(frozen=True, slots=True)
class NodeResult:
    """What a node left.

    Attributes:
        header: Its first line.
        files: Content of the recorded files, by path below /.
        finished: Its last line; {} if it is missing.
        damage: What is wrong with the file; "" if nothing is.
    """

    header: Mapping[str, Any]
    steps: list[NodeStep] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    finished: Mapping[str, Any] = field(default_factory=dict)
    damage: str = ""

    @property
    def name(self) -> str:
        return str(self.header["name"])

    @property
    def status(self) -> str:
        """ok, interrupted, refused: …, or damaged."""
        return str(self.finished.get("status", "")) or "damaged"

    @property
    def wrong(self) -> list[str]:
        """Results of kernels that were not right: the node computes wrongly."""
        return [str(p) for p in self.finished.get("problems", ())]


def read_result(path: Path) -> NodeResult:
    """Read the file of a node.

    Raises:
        ResultError: It cannot be read, or does not begin as such a file does.
    """
    return parse_result(path.name, read_packed(path))


def read_packed(path: Path) -> bytes:
    """The content of the file of a node, compressed.

    Raises:
        ResultError: It cannot be read, or is too large.
    """
    try:
        return read_bytes(path, _MAX_FILE)
    except UsageError as why:
        raise ResultError(str(why)) from why


def parse_result(name: str, packed: bytes) -> NodeResult:
    """Read the content of the file of a node.

    Args:
        name: Of the file, for errors.

    Raises:
        ResultError: It does not begin as such a file does.
    """
    lines = _lines(packed)
    first, _ = next(lines, (None, ""))
    header = _header(name, first)
    recorded: dict[str, bytes] = {}
    finished: Mapping[str, Any] = {}
    steps: list[NodeStep] = []
    open_step: Mapping[str, Any] = {}
    raw_lines, damage = list[bytes](), ""
    for raw, wrong in lines:
        if raw is None:
            damage = wrong
            break
        kind = _kind(raw)
        if kind == "file":
            _add_file(recorded, raw)
        elif kind == "step":
            open_step, raw_lines = _object(raw), []
        elif kind == "step end":
            steps.append(_step(_object(raw), raw_lines, bool(open_step.get("program"))))
            open_step = {}
        elif kind == "finished":
            finished = _object(raw)
        else:
            raw_lines.append(raw)
    if open_step:
        steps.append(_step({"id": open_step.get("id", "")}, raw_lines, bool(open_step.get("program"))))
    if not finished and not damage:
        damage = "it has no last line: the runner was killed"
    return NodeResult(header, steps, recorded, finished, damage)


def _lines(packed: bytes) -> Iterator[tuple[bytes | None, str]]:
    """Complete lines, and at last what is wrong with the file, if anything is."""
    total = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            while line := file.readline(_MAX_LINE + 1):
                total += len(line)
                if total > MAX_BYTES or len(line) > _MAX_LINE:
                    yield None, f"it has more than {MAX_BYTES >> 20} MiB, or a line of more than {_MAX_LINE >> 20}"
                    return
                if not line.endswith(b"\n"):
                    yield None, "it ends in the middle of a line"
                    return
                yield line, ""
    except EOFError:
        yield None, "it ends in the middle"
    except (OSError, zlib.error) as why:
        yield None, f"it cannot be read: {quoted(why)}"


def _header(name: str, raw: bytes | None) -> Mapping[str, Any]:
    try:
        header = json.loads(raw or b"")
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ResultError(f"{quoted(name)}: not a result of a node")
    if header.get("version") != _VERSION:
        raise ResultError(
            f"{quoted(name)}: version: found {quoted(header.get('version'))}, this program reads {_VERSION}"
        )
    if wrong := [key for key in _TEXTS if not isinstance(header.get(key), str)]:
        raise ResultError(f"{quoted(name)}: {wrong[0]}: found {quoted(header.get(wrong[0]))}; allowed: a text")
    return header


def _kind(raw: bytes) -> str:
    """The type of a line that the runner wrote itself; "" for lines of instruments, which are parsed once, later."""
    for kind in ("file", "step", "step end", "finished"):
        if raw.startswith(b'{"type":"%s"' % kind.encode()):
            return kind
    return ""


def _object(raw: bytes) -> dict[str, Any]:
    """A line of the runner; {} if it is damaged."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _add_file(files: dict[str, bytes], raw: bytes) -> None:
    line = _object(raw)
    with contextlib.suppress(UnicodeError, KeyError, AttributeError):
        files[str(line["path"])] = line["content"].encode("latin-1")


def _step(end: Mapping[str, Any], raw_lines: list[bytes], program: bool) -> NodeStep:
    id_ = str(end.get("id", ""))
    elapsed = end.get("elapsed_s")
    return NodeStep(
        id=id_,
        status=str(end.get("status", "")),
        reason=str(end.get("reason", "")),
        elapsed_s=float(elapsed) if isinstance(elapsed, int | float) else 0.0,
        reading=read_journal(raw_lines, id_),
        program=program,
        runs=[_object(raw) for raw in raw_lines if program and raw.startswith(_RUN)],
    )
