"""JSON and CSV in the output of other tools, with text of other programs around it."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from meshmark.errors import quoted
from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.output import Line, ToolOutput

_MAX_PASSED: Final = 1 << 20  # characters of other text that may be read more than once
_SHORT: Final = 20  # characters; a bracket of other text, such as `[info]`, is not JSON within fewer
# A bracket that begins JSON, rather than `[info]` or `{`.
_BEGIN: Final = re.compile(r"^[ \t]*(?=\{\s{0,200}[\"}]|\[\s{0,200}(?:[\[{\"\d\]-]|true|false|null))", re.MULTILINE)
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)
_DECODER: Final = json.JSONDecoder()
# `nan` and `inf` as C prints them are not JSON; each is replaced by as many characters.
_NOT_A_NUMBER: Final = re.compile(r"(?<=[:\[,\s])[+-]?(?:nan|inf)(?=\s*[,}\]])", re.IGNORECASE)


def json_documents(
    output: ToolOutput, is_document: Callable[[Any], bool], decoder: json.JSONDecoder = _DECODER
) -> list[tuple[int, Any]]:
    """The JSON values of an output, with the line on which each begins; text before, between and after is passed over.

    A document that is cut off or damaged is taken up to the last whole element of its outermost list, and the rest is
    left out.

    Args:
        is_document: Whether a value is one of the tool, rather than JSON of another program.
        decoder: For a tool that repeats keys.

    Raises:
        FormatError: There is no such document.
    """
    text = output.text
    is_clean = False  # of numbers that C prints as `nan` and `inf`
    documents: list[tuple[int, Any]] = []
    problem: tuple[int, str] | None = None
    at = passed = 0
    while passed < _MAX_PASSED + len(text) and (begin := _BEGIN.search(text, at)) is not None:
        start = begin.end()
        try:
            value, at = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if not is_clean and _NOT_A_NUMBER.match(text, error.pos):
                text, is_clean = _NOT_A_NUMBER.sub(lambda match: "NaN".rjust(len(match[0])), text), True
                continue
            at = start + 1
            passed += error.pos - start + error.pos // 16  # the exception counts the lines before it
            line = output.line_at(error.pos)
            value = _closed(text, start, error.pos, decoder) if error.pos - start > _SHORT else None
            if value is not None and is_document(value):
                output.leave_out(line, f"not JSON ({quoted(error.msg, 60)}); the rest of the document is not taken")
                at = error.pos
            elif problem is None or error.pos - start > _SHORT:
                problem = (line, f"not JSON ({quoted(error.msg, 60)}); cut off?")
        except (ValueError, RecursionError):
            value, at = None, start + 1
            passed += _MAX_PASSED // 20
            problem = problem or (output.line_at(start), "numbers or nesting beyond what JSON allows")
        if value is not None and is_document(value):
            documents.append((output.line_at(start), value))
    if not documents:
        place, reason = problem or (1, "no JSON document of this format")
        raise FormatError(f"line {place}: {reason}")
    return documents


def json_document(output: ToolOutput, is_document: Callable[[Any], bool]) -> Any:
    """The only JSON value of an output, as `json_documents` finds it; further ones are left out."""
    documents = json_documents(output, is_document)
    for line, _ in documents[1:]:
        output.leave_out(line, "a second document; one per file is read")
    return documents[0][1]


def _closed(text: str, start: int, stop: int, decoder: json.JSONDecoder) -> Any:
    """The value of a document that is valid before `stop`, up to the last whole element of its outermost list; None
    if that list has no whole element that is an object or a list."""
    stack: list[str] = []
    list_depth = 0  # of the outermost list that is open
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


def csv_rows(output: ToolOutput, lines: Sequence[Line], delimiter: str = ",") -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table whose first line has the names of the columns, with the number of the line of each.

    Cells are without blanks around them. Empty lines are passed over. A row with another number of cells is left out.

    Args:
        lines: From the names of the columns on.
    """
    names: list[str] = []
    for line in lines:
        try:
            cells = next(csv.reader([line.text], delimiter=delimiter, skipinitialspace=True), [])
        except csv.Error as error:
            output.leave_out(line.number, f"not CSV: {quoted(error, 60)}")
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if not names:
            names = [cell.strip() for cell in cells]
        elif len(cells) != len(names):
            output.leave_out(line.number, f"found {len(cells)} cells, {len(names)} are required")
        else:
            yield line.number, dict(zip(names, (cell.strip() for cell in cells), strict=True))
