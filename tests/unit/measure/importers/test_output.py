"""Functions that all readers share: encodings, labels, and items that are left out."""

from __future__ import annotations

import codecs
import json

import pytest

from meshmark.measure.importers.base import FormatError, UnknownMeaningError, number
from meshmark.measure.importers.documents import csv_table, json_documents, json_objects
from meshmark.measure.importers.formats import ToolResults
from meshmark.measure.importers.output import MAX_LISTED, ToolOutput, by_task, decoded
from support.imports import reasons_of, taken_from

TEXT = "Zeile 1 µs\nline 2\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode("utf-16"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r\n").encode("utf-16"),
        TEXT.replace("\n", "\r\r\n").encode(),
        TEXT.encode() + b"\0" * 512,
        TEXT.replace("line", "\x1b[1;32mline\x1b[0m").encode(),
    ],
)
def test_every_encoding_gives_the_same_text(data: bytes) -> None:
    assert decoded(data) == TEXT


def test_lines_keep_their_numbers_whatever_they_contain() -> None:
    output = ToolOutput("a\x0c\x85b  \n\nc", "n1")
    assert [(line.number, line.text) for line in output.lines] == [(1, "a\x0c\x85b"), (2, ""), (3, "c")]
    assert output.text == "a\x0c\x85b\n\nc" and output.is_cut(output.lines[2]) and not output.is_cut(output.lines[0])
    assert [output.line_at(position) for position in (0, 4, 5, 6)] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "label",
    ["{}: ", "  {}: ", "[1,{}]<stdout>:", "[prterun-n1-99@1,{}]<stdout>: ", "[{}] "],
)
def test_labels_of_launchers_are_removed_and_tasks_told_apart(label: str) -> None:
    text = "srun: job 17 queued\n" + "".join(
        f"{label.format(task)}line {i} of {task}\n" for i in range(9) for task in (0, 11)
    )
    tasks = by_task(ToolOutput(text, "n1"))
    assert [task for task, _ in tasks] == ["0", "11"]
    assert [line.text for line in tasks[1][1].lines] == [f"line {i} of 11" for i in range(9)]
    assert tasks[1][1].lines[0].number == 3


@pytest.mark.parametrize(
    "stamp", ["2026-11-28T08:00:00.1234567Z ", "2026-11-28 08:00:00 ", "2026-11-28T08:00:00,5+01:00\t"]
)
def test_time_stamps_before_lines_are_removed(stamp: str) -> None:
    ((task, output),) = by_task(
        ToolOutput("".join(f"{stamp}line {i}\n" for i in range(4)) + stamp.strip() + "\n", "n1")
    )
    assert task == "" and [line.text for line in output.lines] == ["line 0", "line 1", "line 2", "line 3", ""]


def test_an_item_is_taken_as_a_whole_or_left_out_with_its_line() -> None:
    output = ToolOutput("x\n", "n1")
    for k in range(MAX_LISTED + 5):
        with output.item(k):
            number("1e999", "rate")
    assert output.left_out_count == MAX_LISTED + 5 and len(output.left_out) == MAX_LISTED
    assert str(output.left_out[7]) == "line 7: rate: found '1e999', a number is required"
    with pytest.raises(UnknownMeaningError, match="line 3: furlongs"), output.item(3):
        raise UnknownMeaningError("furlongs")


def test_json_is_found_among_other_text() -> None:
    document = {"fio version": "3.1", "jobs": [{"a": 1}, {"b": [2, 3]}]}
    text = "note\n[info] starting {\n" + json.dumps(document, indent=1) + "\ntrailing }\n" + json.dumps([1]) + "\n"
    assert list(json_objects(ToolOutput(text, "n1"), "jobs", list)) == [("", document)]
    assert [place for place, _ in json_objects(ToolOutput(text + text, "n1"), "jobs")] == ["line 3: ", "line 21: "]
    assert [line for line, _ in json_documents(ToolOutput(text, "n1"), lambda v: True)] == [
        3,
        4 + json.dumps(document, indent=1).count("\n") + 1,
    ]


@pytest.mark.parametrize(
    "note", ["[1 of 2] begins\n", "[1 of 2] begins\n" * 3, 'x\n  {"a" is set\n\n', '[1, 2}\n["x" y]\n']
)
def test_text_that_begins_like_json_is_passed_over(note: str) -> None:
    output = ToolOutput(note + '{"jobs": [1, 2]}\n' + note, "n1")
    assert json_documents(output, lambda v: "jobs" in v) == [(note.count("\n") + 1, {"jobs": [1, 2]})]
    assert output.left_out_count == 0


def test_numbers_that_c_prints_are_read_as_such() -> None:
    output = ToolOutput('{"a": -nan, "b": [inf, 1], "c": "nan"}', "n1")
    [(_, document)] = json_documents(output, lambda v: True)
    assert document["a"] != document["a"] and document["b"][1] == 1 and document["c"] == "nan"


def test_a_document_that_is_cut_off_gives_its_whole_elements() -> None:
    text = json.dumps({"jobs": [{"a": 1, "x": [1, 2]}, {"a": 2, "x": [1, 2]}, {"a": 3}], "z": 1}, indent=1)
    output = ToolOutput(text[: text.index('"a": 3')], "n1")
    assert list(json_objects(output, "jobs")) == [("", {"jobs": [{"a": 1, "x": [1, 2]}, {"a": 2, "x": [1, 2]}]})]
    assert output.left_out_count == 1 and "the rest of the document is ignored" in str(output.left_out[0])
    with pytest.raises(FormatError, match="line 2: not JSON"):
        json_documents(ToolOutput('{"jobs":\n [{"a": 1, "aaaaaaaaaaaaaaaaaaaaaa', "n1"), lambda v: True)


def test_nested_and_repeated_brackets_take_linear_time() -> None:
    for text in ("{\n" * 100_000, "[" * 1_000_000, '{"a":\n' * 100_000, "[1,\n" * 200_000):
        with pytest.raises(FormatError):
            json_documents(ToolOutput(text, "n1"), lambda v: True)


def test_rows_of_csv_have_their_line_and_odd_ones_are_left_out() -> None:
    output = ToolOutput('note\na,b\n1,"2,5"\n\n3\na,b\n4,5\n6,7', "n1")
    table = csv_table(output, lambda text: text == "a,b")
    assert list(table) == [(3, {"a": "1", "b": "2,5"}), (7, {"a": "4", "b": "5"})] and output.other_lines == 1
    assert [str(item) for item in output.left_out] == [
        "line 5: found 1 cells, 2 are required",
        "line 8: b: found no end of the line; it is cut off",
    ]
    whole = csv_table(ToolOutput("a,b\n6,7", "n1"), lambda text: "a" in text, last={"a"})
    assert list(whole) == [(2, {"a": "6", "b": "7"})], "nobody reads the number that may lack digits"


def test_a_value_of_a_line_is_left_out_although_another_one_is_taken() -> None:
    assert reasons_of("n,a[s],b[s]\n1,-2,3\n") == ["line 2: a: found -2.0, a number above 0 is required"]
    assert [r.metric for r in taken_from("n,a[s],b[s]\n1,-2,3\n")] == ["b"]


def test_what_the_tasks_of_a_launcher_left_out_is_added_up() -> None:
    results = ToolResults()
    for task in range(2):
        output = ToolOutput("x\n", "n1")
        output.leave_out(task + 1, "odd")
        output.other_lines = 3
        results.leave_out([output])
    assert results.left_out_count == 2 and [item.where for item in results.left_out] == ["line 1", "line 2"]
    assert results.other_lines == 6
