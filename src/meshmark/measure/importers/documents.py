"""JSON and CSV in the output of other tools, with text of other programs around it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.output import ToolOutput

_MAX_PASSED: Final = 1 << 20  # characters of other text that may be read more than once
_SHORT: Final = 20  # characters; text such as `[info]` turns out not to be JSON within this length
# A bracket that begins JSON, rather than `[info]` or `{`.
_BEGIN: Final = re.compile(r"^[ \t]*(?=\{\s{0,200}[\"}]|\[\s{0,200}(?:[\[{\"\d\]-]|true|false|null))", re.MULTILINE)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_DECODER: Final = json.JSONDecoder()
# C prints `nan` and `inf`, which are not JSON; the replacement has the same length.
_NOT_A_NUMBER: Final = re.compile(r"(?<=[:\[,\s])[+-]?(?:nan|inf)(?=\s*[,}\]])", re.IGNORECASE)


def json_documents(
    output: ToolOutput, is_document: Callable[[Any], bool], decoder: json.JSONDecoder = _DECODER
) -> list[tuple[int, Any]]:
    """Return the JSON values of an output, with the line on which each value begins. Other text is ignored.

    A document that is cut off or damaged is read up to the last whole element of its outermost list, and the rest is
    left out.

    Args:
        output: The output of the tool.
        is_document: Function that returns whether a value belongs to the tool, and not to another program.
        decoder: Decoder for a tool that repeats keys.

    Raises:
        FormatError: There is no such document.
    """
    text = output.text
    is_clean = False  # numbers that C prints as `nan` and `inf` have been replaced
    documents: list[tuple[int, Any]] = []
    problem: tuple[int, str] | None = None
    position = rescanned = 0
    while rescanned < _MAX_PASSED + len(text) and (begin := _BEGIN.search(text, position)) is not None:
        start = begin.end()
        try:
            value, position = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if not is_clean and _NOT_A_NUMBER.match(text, error.pos):
                text, is_clean = _NOT_A_NUMBER.sub(lambda match: "NaN".rjust(len(match[0])), text), True
                continue
            position = start + 1
            rescanned += error.pos - start + error.pos // 16  # the exception counts the lines before it
            line = output.line_at(error.pos)
            value = _closed(text, start, error.pos, decoder) if error.pos - start > _SHORT else None
            if value is not None and is_document(value):
                output.leave_out(line, f"not JSON ({quoted(error.msg, 60)}); the rest of the document is ignored")
                position = error.pos
            elif problem is None or error.pos - start > _SHORT:
                problem = (line, f"not JSON ({quoted(error.msg, 60)}); cut off?")
        except (ValueError, RecursionError):
            value, position = None, start + 1
            rescanned += _MAX_PASSED // 20
            problem = problem or (output.line_at(start), "numbers or nesting beyond what JSON allows")
        if value is not None and is_document(value):
            documents.append((output.line_at(start), value))
    if not documents:
        place, reason = problem or (1, "no JSON document of this format")
        raise FormatError(f"line {place}: {reason}")
    return documents


def json_objects(
    output: ToolOutput, key: str, kind: type = object, decoder: json.JSONDecoder = _DECODER
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON objects of an output in which a key has a value of a type, see `json_documents`.

    Each object comes with its place for messages: `line 7: `, or "" if there is only one object.
    """

    def is_document(value: Any) -> bool:
        return isinstance(value, dict) and key in value and isinstance(value[key], kind)

    documents = json_documents(output, is_document, decoder)
    for line, document in documents:
        yield f"line {line}: " if len(documents) > 1 else "", document


def _closed(text: str, start: int, stop: int, decoder: json.JSONDecoder) -> Any:
    """Return the value of a document that is valid before `stop`, up to the last whole element of its outermost list.

    Returns:
        The value; None if the list has no whole element that is an object or a list.
    """
    stack: list[str] = []
    list_depth = 0  # depth of the outermost list that is open
    end = 0
    for token in _TOKEN.finditer(text, start, stop):
        symbol = token[0]
        if symbol in "{[":
            stack.append(symbol)
            if symbol == "[" and not list_depth:
                list_depth = len(stack)
        elif symbol in "}]":
            if not stack:
                return None
            stack.pop()
            if list_depth and len(stack) == list_depth:
                end = token.end()
            elif len(stack) < list_depth:
                list_depth = end = 0
    if not end or not list_depth:
        return None
    closing = "".join("]" if symbol == "[" else "}" for symbol in reversed(stack[:list_depth]))
    try:
        return decoder.decode(text[start:end] + closing)
    except (ValueError, RecursionError):
        return None


def csv_cells(line: str, delimiter: str = ",") -> list[str]:
    """Return the cells of a CSV line, without blanks around them.

    Raises:
        FormatError: The line is not CSV.
    """
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]
    except csv.Error as error:
        raise FormatError(f"not CSV: {quoted(error, 60)}") from None


def row_of(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return the cells of a row by column name.

    Raises:
        FormatError: There are more or fewer cells than columns, or columns with the same name have different cells.
    """
    if len(cells) != len(columns):
        raise FormatError(f"found {len(cells)} cells, {len(columns)} are required")
    row = dict(zip(columns, cells, strict=True))
    if differing := [column for column, cell in zip(columns, cells, strict=True) if row[column] != cell]:
        raise FormatError(f"found columns of one name, {quoted(differing[0], 40)}, with different cells")
    return row


def csv_table(
    output: ToolOutput, is_header: Callable[[str], object], last: Collection[str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows below the first line that `is_header` accepts, each with its line number.

    Lines above the header belong to another program. Empty lines and the headers of appended files are ignored. A row
    that has another number of cells, or is cut off, is left out.

    Args:
        output: The output of the tool.
        is_header: Function that returns whether a line is the header of the table.
        last: Columns whose numbers would lack digits if the text ends within them; None for all columns.
    """
    lines = iter(output.lines)
    columns: list[str] = []
    for line in lines:
        if is_header(line.text):
            columns = csv_cells(line.text)
            break
        output.other_lines += 1
    for line in lines:
        row: dict[str, str] = {}
        count = output.left_out_count
        with output.item(line.number):
            cells = csv_cells(line.text)
            if any(cells) and cells != columns:
                row = row_of(columns, cells)
                if output.is_cut(line) and (last is None or columns[-1] in last):
                    raise FormatError(f"{columns[-1]}: found no end of the line; it is cut off")
        if row and output.left_out_count == count:
            yield line.number, row
