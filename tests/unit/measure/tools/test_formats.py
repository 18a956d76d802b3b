"""All formats: each fixture is recognised as one, has records, and is refused in one line if it is damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.formats import read_text, readers, recognised
from meshmark.store.record import Record

FIXTURES = sorted((Path(__file__).parent / "fixtures").iterdir())


def reader_of(path: Path) -> str:
    """A fixture is named after its format: `stream.txt`, `mlc-3.11.txt`."""
    return path.stem.partition("-")[0]


def test_every_format_has_a_fixture_and_a_name() -> None:
    assert {reader_of(p) for p in FIXTURES} == {r.name for r in readers()}
    assert all(r.title for r in readers())


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
def test_a_fixture_is_of_one_format_and_has_records(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [r.name for r in readers() if r.recognises(text[: 1 << 16])] == [reader_of(path)]
    reader = recognised(text)
    assert reader is not None
    results = read_text(text, "n042")
    assert results is not None
    not_run = ("<not supported>", "it failed or was skipped", "LINE_GRAPH")
    assert [str(item) for item in results.left_out if not any(words in item.reason for words in not_run)] == []
    for record in results.records:
        assert record.machine == "n042" and record.source == "tool"
        assert record.provenance["tool"] and record.provenance["origin"] == "reported"
        assert Record.from_json(record.to_json()) == record


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.name)
def test_a_hundred_mutilated_files_are_refused_in_a_line_or_are_sound(path: Path) -> None:
    """Cut off, cut apart, with other bytes: never another exception, never a number that is none."""
    text = path.read_text(encoding="utf-8")
    reader = recognised(text)
    assert reader is not None
    dice = random.Random(path.name)
    refused = 0
    for _ in range(100):
        at, length = dice.randrange(len(text)), dice.randrange(1, 200)
        change = dice.choice(("", "x", "-", "\n", "\0", "1e999", '"', "{"))
        damaged = text[:at] + change + (text[at + length :] if dice.random() < 0.5 else "")
        if not reader.recognises(damaged[: 1 << 16]):
            refused += 1
            continue
        try:
            results = read_text(damaged, "n042")
            for record in results.records if results else ():
                assert Record.from_json(record.to_json()) == record
        except FormatError as error:
            assert "\n" not in str(error) and len(str(error)) < 300
            refused += 1
            continue
        refused += results is not None and results.left_out_count > 0
    assert refused >= 25, "a cut file is incomplete"
