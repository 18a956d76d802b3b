"""The output of another tool: its lines, the records that a reader takes from it, and the items that it leaves out.

All readers follow one rule: take every row that is certainly valid; count every item that is left out, with its line
and the reason; refuse the file only if nothing is certain, or if the unit or the meaning of a column is unknown.

A reader is a function with one parameter, a `ToolOutput`. It walks `output.lines` (or takes JSON from
`documents.json_objects` and CSV from `documents.csv_table`), and reads each row, test or document within
`with output.item(line.number):`. There it calls `output.take(…)` for a cell whose meaning a `ToolQuantity` states, or
`output.add_meshmark_metric(…)` and `output.add_tool_metric(…)` for numbers in SI units. If the block raises
`FormatError` or `RecordError`, as `number`, `field`, `take` and others do, the records that the block added are
dropped, and the row is left out with that message; messages in the block therefore need not name the line.
`output.leave_out(where, reason)` does the same without an exception, and `output.other_lines += 1` counts a line of
another program. `UnknownMeaningError` passes through `item` and refuses the file, as does any `FormatError` outside of
an `item` block. A reader need not check that it has read anything: `formats.read_text` refuses an output without
records, with the reason of the first item that was left out.

`decoded` and `ToolOutput` deal with encodings, line ends, control sequences of terminals and rank labels, so readers
get plain lines without trailing blanks. `output.is_cut(line)` returns whether the text ends within a line, so that its
last number may lack digits.
"""

from __future__ import annotations

import codecs
import re
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

from meshmark.describe import descriptions
from meshmark.measure.importers.base import FormatError, ToolFacts, UnknownMeaningError, unexpected
from meshmark.measure.importers.quantities import ToolQuantity, unit_of, value
from meshmark.store.record import Better, Metric, Record, RecordError, Scalar

REPORTED: Final = "reported"  # provenance `origin` of a number that another tool measured
_GZIP: Final = b"\x1f\x8b"  # first bytes of a file
MAX_EXPANDED: Final = 64 << 20  # maximum size of the content of a compressed file, bytes
MAX_LISTED: Final = 1000  # maximum number of left-out items whose reasons are retained
_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BETTER: Final[dict[str, Better]] = {"s": "lower", "B/s": "higher", "flop/s": "higher", "op/s": "higher"}
# Labels that launchers put before each line: srun --label, mpirun --tag-output, mpiexec -l of Hydra and Intel MPI.
_LABELS: Final = (
    re.compile(r"\s{0,9}(?P<task>\d{1,7}): ?"),
    re.compile(r"\[(?:[\w.-]{1,80}@)?\d{1,9},(?P<task>\d{1,7})\](?:\[[^\]]{0,80}\])?<std(?:out|err|diag)>: ?"),
    re.compile(r"\[(?P<task>\d{1,7})\] ?"),
)
# Time stamps of `ts`, of logs of containers and of build services, with and without brackets.
_STAMP: Final = re.compile(
    r"(?P<bracket>\[)?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?:[A-Z][a-z]{2} [ \d]\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?(bracket)\])(?:[ \t]|$)"
)
# Messages that launchers and communication libraries print between the lines of a program.
_MESSAGE: Final = re.compile(
    r"\s{0,8}(?:\[(?=[\w.-]{0,80}[A-Za-z])[\w.-]{1,80}:\d{1,9}\]\s|\[(?:mpiexec|proxy)[@:][^\]\n]{1,120}\]\s"
    r"|(?:srun|slurmstepd|mpirun|mpiexec|prterun|orterun|libibverbs|libfabric(?::\d{1,9}){1,3}):\s"
    r"|[\w.-]{1,80}:\d{1,9}:\d{1,9} \[\d{1,9}\] NCCL (?:INFO|WARN)\s)"
)


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of a file. `number` counts from 1; `text` has no line end and no trailing blanks."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class LeftOutItem:
    """An item of a file that was left out. `where` is its place, such as `line 12`; "" if it has no place."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


class ToolOutput:
    """The lines of another tool's output, and the records and left-out items that its reader adds.

    Attributes:
        machine: Name of the machine on which the tool ran.
        about: Source of the next records; see `set_source`.
        lines: All lines, without labels of ranks.
        records: Records that were added so far.
        left_out: The first items that were left out.
        left_out_count: Number of all items that were left out.
        other_lines: Number of lines that another program printed between the rows.
    """

    def __init__(self, text: str, machine: str, lines: Sequence[OutputLine] | None = None) -> None:
        self.machine = machine
        self.about = ToolFacts("")
        self.lines: Sequence[OutputLine] = _lines(text) if lines is None else lines
        self.records: list[Record] = []
        self.left_out: list[LeftOutItem] = []
        self.left_out_count = 0
        self.other_lines = 0
        self.taken: set[int] = set()  # numbers of the lines whose items were taken
        self._open_line = text.count("\n") + 1 if text and not text.endswith("\n") else 0

    def without_messages(self) -> ToolOutput:
        """Return an output without the lines of launchers and communication libraries, which `other_lines` counts."""
        lines = [line for line in self.lines if _MESSAGE.match(line.text) is None]
        if len(lines) == len(self.lines):
            return self
        output = self.again(lines)
        output.other_lines = len(self.lines) - len(lines)
        return output

    def again(self, lines: Sequence[OutputLine] | None = None) -> ToolOutput:
        """Return an output for another reader with the same lines, or with the lines `lines`."""
        output = ToolOutput("", self.machine, self.lines if lines is None else lines)
        output._open_line = self._open_line
        return output

    @cached_property
    def text(self) -> str:
        """Return all lines as one text. Each line has a line end, except for a last line that is cut off."""
        text = "\n".join(line.text for line in self.lines)
        return text if not self.lines or self.is_cut(self.lines[-1]) else text + "\n"

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line.text) + 1 for line in self.lines)]

    def line_at(self, offset: int) -> int:
        """Return the number of the line of the file that contains the character `text[offset]`."""
        index = min(bisect_right(self._starts, offset) - 1, len(self.lines) - 1)
        return self.lines[index].number if self.lines else 1

    def is_cut(self, line: OutputLine) -> bool:
        """Return whether the text ends within this line, so that its last number may lack digits."""
        return line.number == self._open_line

    def set_source(self, version: str = "", command: str = "", start: str = "") -> None:
        """Set the source of the following records, as far as the output states it."""
        self.about = ToolFacts(self.about.tool, version, command, start)

    def add_meshmark_metric(self, metric: str, samples: float | Sequence[float], /, **conditions: Scalar) -> None:
        """Add a record of a metric of a Meshmark instrument, so that the result can be compared with Meshmark's own.

        Args:
            metric: The instrument and its metric, such as `latency.load_latency`.
            samples: One or several samples in the unit of the metric (SI).
            conditions: Conditions as the instrument names them; None for a condition that the output does not state.
        """
        instrument, _, name = metric.partition(".")
        self._add(instrument, descriptions()[instrument].metric(name), samples, conditions)

    def add_tool_metric(
        self,
        metric: str,
        unit: str,
        samples: float | Sequence[float],
        better: Better | None = None,
        /,
        **conditions: Scalar,
    ) -> None:
        """Add a record of a metric that only the tool has. The name of the instrument is the name of the tool.

        Args:
            metric: Name of the metric.
            unit: SI unit: s, B/s, B, flop/s, op/s, Hz, or 1 for shares, ratios and counts.
            samples: One or several samples in `unit`.
            better: Direction of the metric. None if the unit implies it: lower for times, higher for rates.
            conditions: Conditions of the record; None for a condition that the output does not state.
        """
        direction = better or _BETTER.get(unit, "none")
        self._add(self.about.tool, Metric(metric, unit, direction, ""), samples, conditions)

    def take(self, quantity: ToolQuantity, text: str, where: str, /, **more: Scalar) -> None:
        """Add a record of a quantity whose number is `text`.

        Args:
            quantity: The quantity, with its unit in the tool.
            text: The number as the tool printed it.
            where: The name of its column or key, for messages.
            more: Conditions in addition to the conditions of the quantity.

        Raises:
            FormatError: The text is not a finite number, or not above 0 although it must be.
        """
        number = value(text, quantity.unit, where, above_zero=quantity.above_zero)
        if "." in quantity.metric:
            self.add_meshmark_metric(quantity.metric, number, **{**quantity.conditions, **more})
        else:
            self.add_tool_metric(
                quantity.metric, unit_of(quantity.unit).si, number, quantity.better, **{**quantity.conditions, **more}
            )

    def _add(
        self, instrument: str, metric: Metric, samples: float | Sequence[float], conditions: Mapping[str, Scalar]
    ) -> None:
        about = self.about
        facts = {"tool": about.tool, "tool_version": about.version, "command": about.command, "start": about.start}
        record = Record.from_samples(
            metric,
            [samples] if isinstance(samples, int | float) else samples,
            source="tool",
            machine=self.machine,
            instrument=instrument,
            conditions={name: condition for name, condition in conditions.items() if condition is not None},
            provenance={"origin": REPORTED, **{key: fact for key, fact in facts.items() if fact}},
        )
        self.records.append(record)

    def leave_out(self, where: int | str, reason: str) -> None:
        """Count an item that is left out.

        Args:
            where: Number of its line, or a place such as `jobs[3]`.
            reason: Why it is left out.
        """
        self.left_out_count += 1
        if len(self.left_out) < MAX_LISTED:
            self.left_out.append(LeftOutItem(f"line {where}" if isinstance(where, int) else where, reason))

    @contextmanager
    def item(self, where: int | str) -> Iterator[None]:
        """Read one item: if the block raises `FormatError` or `RecordError`, the whole item is left out."""
        count = len(self.records)
        try:
            yield
        except UnknownMeaningError as error:
            place = f"line {where}" if isinstance(where, int) else where
            raise UnknownMeaningError(
                f"{place}: {error}" if place and place not in str(error) else str(error)
            ) from error
        except (FormatError, RecordError) as error:
            del self.records[count:]
            self.leave_out(where, str(error))
        else:
            if isinstance(where, int) and len(self.records) > count:
                self.taken.add(where)


class Cursor:
    """A position in a sequence of lines."""

    def __init__(self, lines: Sequence[OutputLine]) -> None:
        self.lines = lines
        self.position = 0

    def skip(self, passes: Callable[[str], object]) -> Sequence[OutputLine]:
        """Skip and return the next lines, as long as `passes` is true for their text."""
        begin = self.position
        while self.position < len(self.lines) and passes(self.lines[self.position].text):
            self.position += 1
        return self.lines[begin : self.position]

    def next(self, begins: Callable[[str], object] = str.strip) -> OutputLine | None:
        """Skip to the first line for whose text `begins` is true, and return that line; None at the end."""
        self.skip(lambda text: not begins(text))
        if self.position == len(self.lines):
            return None
        self.position += 1
        return self.lines[self.position - 1]


def matrix_row(text: str, columns: Sequence[int]) -> tuple[int, dict[int, str]]:
    """Return the number at the start of a matrix row, and the cells of the row by the numbers of their columns.

    Raises:
        FormatError: The row does not start with a number, the number of cells is not the number of columns, or two
            columns have the same number.
    """
    row, *cells = text.split()
    if len({*columns}) != len(columns):
        raise FormatError("found two columns with the same number")
    if re.fullmatch(r"\d{1,9}", row) is None or len(cells) != len(columns):
        raise unexpected(text, f"a row with a number and {len(columns)} cells")
    return int(row), dict(zip(columns, cells, strict=True))


def sections(lines: Iterable[OutputLine], begins: Callable[[str], object]) -> list[list[OutputLine]]:
    """Split the lines into parts that start with a line for whose text `begins` is true.

    Lines before the first part are left out. This is for files to which several runs were appended.
    """
    parts: list[list[OutputLine]] = []
    for line in lines:
        if begins(line.text):
            parts.append([])
        if parts:
            parts[-1].append(line)
    return parts


def decoded(data: bytes) -> str:
    r"""Return the text of a file in UTF-8 or UTF-16, with or without a byte order mark, with line ends `\n`.

    The file may be compressed by gzip. Redirection in PowerShell writes UTF-16. Invalid bytes become U+FFFD. Trailing
    NULs, which a full disk or an interrupted copy leaves, and control sequences of terminals are removed.
    """
    if data.startswith(_GZIP):
        data = _expanded(data)
    text = data.decode(encoding_of(data[:400]), "replace")
    text = text.rstrip("\0").replace("\r\r\n", "\n").replace("\r\n", "\n").replace("\r", "\n")
    return _TERMINAL.sub("", text) if "\x1b" in text else text


def _expanded(data: bytes) -> bytes:
    """Return the content of a gzip file, which may be cut off; nothing if it is damaged or exceeds `MAX_EXPANDED`."""
    content = b""
    while data.startswith(_GZIP):  # a file may consist of several, one after the other
        decompressor = zlib.decompressobj(wbits=31)
        try:
            content += decompressor.decompress(data, MAX_EXPANDED + 1 - len(content))
        except zlib.error:
            return b""
        if len(content) > MAX_EXPANDED:
            return b""
        data = decompressor.unused_data
    return content


def encoding_of(start: bytes) -> str:
    """Return the encoding of a file that begins with `start`: `utf-8-sig` or a variant of UTF-16.

    UTF-16 without a byte order mark is recognised by its zero bytes, because most characters are ASCII.
    """
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    pairs = len(start) // 2
    even_zeros, odd_zeros = start[: 2 * pairs : 2].count(0), start[1 : 2 * pairs : 2].count(0)
    if pairs > 2 and odd_zeros >= 0.9 * pairs and even_zeros <= 0.05 * pairs:
        return "utf-16-le"
    if pairs > 2 and even_zeros >= 0.9 * pairs and odd_zeros <= 0.05 * pairs:
        return "utf-16-be"
    return "utf-8-sig"


def _lines(text: str) -> list[OutputLine]:
    """Return the lines of a text, without the indentation and the `>` of quoted mail that all lines have."""
    texts = text.split("\n")
    if not texts[-1]:
        texts.pop()
    texts = _without_indentation(texts)
    while all(line.startswith(">") for line in texts if line.strip()) and any(map(str.strip, texts)):
        texts = _without_indentation([line[1:] for line in texts])
    return [OutputLine(number, line.rstrip()) for number, line in enumerate(texts, 1)]


def _without_indentation(texts: list[str]) -> list[str]:
    indent = min((len(line) - len(line.lstrip(" \t")) for line in texts if line.strip()), default=0)
    return [line[indent:] for line in texts] if indent else texts


def by_task(output: ToolOutput, *, has_stamps: bool = True) -> list[tuple[str, ToolOutput]]:
    """Return the output of each task of a launcher that labels lines, in the order of their first lines.

    Lines without a label belong to the task of the line before them; those before the first label are left out. Labels
    differ from the first column of a table by their repetition: at least one task has several lines, and most lines
    have a label.

    Returns:
        Label and output of each task; one output with the label "" if most lines have no label.
    """
    nonempty = [line for line in output.lines if line.text.strip()]
    if has_stamps and _most(_STAMP, nonempty):
        lines = [OutputLine(line.number, _STAMP.sub("", line.text, count=1)) for line in output.lines]
        return by_task(output.again(lines), has_stamps=False)
    for label in _LABELS:
        if not _most(label, nonempty):
            continue
        tasks: dict[str, list[OutputLine]] = {}
        unlabelled: list[OutputLine] = []
        current = unlabelled
        for line in output.lines:
            if (match := label.match(line.text)) is not None:
                current = tasks.setdefault(match["task"].lstrip("0") or "0", [])
                current.append(OutputLine(line.number, line.text[match.end() :]))
            else:
                current.append(line)
        if max(map(len, tasks.values())) < 3 or 2 * len(tasks) > sum(map(len, tasks.values())):
            continue
        return [(task, output.again(lines)) for task, lines in tasks.items()]
    return [("", output)]


def _most(label: re.Pattern[str], lines: Sequence[OutputLine]) -> bool:
    """Return whether most lines begin with a label."""
    labelled = sum(label.match(line.text) is not None for line in lines)
    return labelled >= 3 and labelled > 0.5 * len(lines)
