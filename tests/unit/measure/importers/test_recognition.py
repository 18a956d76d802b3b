"""Recognising a format takes linear time for any text, since files of other programs are tried with every reader."""

from __future__ import annotations

import time

import pytest

from meshmark.measure.importers.formats import START_BYTES, readers

PIECES = [
    "\n",
    " ",
    ",",
    "|",
    "1,",
    "a,",
    "1;",
    "a|",
    "/",
    "{",
    '{"',
    '"a":',
    "1.5 ",
    "a=",
    "1|reframe 3|t|a=1|",
    "a[b],",
]


@pytest.mark.parametrize("piece", PIECES)
def test_text_of_one_piece_is_recognised_in_linear_time(piece: str) -> None:
    text = (piece * START_BYTES)[:START_BYTES]
    for reader in readers():
        begin = time.process_time()
        reader.recognises(text)
        assert time.process_time() - begin < 1, reader.name
