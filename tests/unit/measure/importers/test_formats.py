"""All formats: each fixture is recognised as one format and has records; damaged parts are left out or refused."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.formats import read_text, readers
from meshmark.store.record import Record

FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())


def reader_of(path: Path) -> str:
    """Return the name of the format, with which the name of a fixture begins: `stream.txt`, `mlc-3.11.txt`."""
    return path.stem.partition("-")[0]


def test_every_format_has_a_fixture_and_a_name() -> None:
    assert {reader_of(p) for p in FIXTURES} == {r.name for r in readers()}
    assert all(r.title for r in readers())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
def test_a_fixture_is_of_one_format_and_has_records(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [r.name for r in readers() if r.recognises(text[: 1 << 16])] == [reader_of(path)]
    results = read_text(text, "n042")
    assert results is not None
    allowed_reasons = ("<not supported>", "it failed or was skipped", "LINE_GRAPH")
    assert [
        str(item) for item in results.left_out if not any(reason in item.reason for reason in allowed_reasons)
    ] == []
    for record in results.records:
        assert record.machine == "n042" and record.source == "tool"
        assert record.provenance["tool"] and record.provenance["origin"] == "reported"
        assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
def test_a_hundred_mutilated_files_are_refused_in_a_line_or_are_sound(path: Path) -> None:
    """Text is cut off, removed or replaced: no other exception is raised, and no value is invalid."""
    text = path.read_text(encoding="utf-8")
    rng = random.Random(path.name)
    refusals = 0
    for _ in range(100):
        position, length = rng.randrange(len(text)), rng.randrange(1, 200)
        change = rng.choice(("", "x", "-", "\n", "\0", "1e999", '"', "{"))
        changed_text = text[:position] + change + (text[position + length :] if rng.random() < 0.5 else "")
        try:
            results = read_text(changed_text, "n042")
            for record in results.records if results else ():
                assert Record.from_json(record.to_json()) == record
        except FormatError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
            refusals += 1
            continue
        refusals += results is None or results.left_out_count > 0
    assert refusals >= 25, "a cut file is incomplete"


@pytest.mark.parametrize(
    "unit", ["\n", " ", "\t", "0", "0\n", "(", '"', ",", ",\n", "#", "{\n", "[\n", "1.00 1.00\n", "- ", "a "]
)
def test_the_time_for_a_text_of_nothing_grows_with_its_length(unit: str) -> None:
    text = unit * ((1 << 16) // len(unit))
    start = time.process_time()
    with contextlib.suppress(FormatError):
        read_text(text, "n042")
    assert time.process_time() - start < 3, "the time of a reader grows faster than the text"


def test_several_tools_in_one_file_each_take_their_lines() -> None:
    texts = {
        name: (FIXTURES[0].parent / name).read_text(encoding="utf-8")
        for name in ("stream.txt", "osu.txt", "mlc-one.txt")
    }
    results = read_text("\n".join(["job 17 on n042", *texts.values()]), "n042")
    assert results is not None and results.left_out_count == 0
    counts = {name: len(result.records) for name, text in texts.items() if (result := read_text(text, "n042"))}
    assert len(results.records) == sum(counts.values())
    assert {r.provenance["reader"] for r in results.records} == {"stream", "osu", "mlc"}


def test_a_long_log_above_the_output_is_passed_over() -> None:
    text = (FIXTURES[0].parent / "stream.txt").read_text(encoding="utf-8")
    results = read_text("loading modules …\n" * 20_000 + text, "n042")
    assert results is not None and len(results.records) == 4


def test_a_cell_that_is_left_out_of_a_row_is_counted_although_others_of_the_row_are_taken() -> None:
    text = (FIXTURES[0].parent / "jube.csv").read_text(encoding="utf-8").replace("21000.5", "fast", 1)
    results = read_text(text, "n042")
    assert results is not None and results.left_out_count == 1 and results.left_out[0].where.startswith("line ")
