"""The Phoronix Test Suite. The fixture is written by hand from the layout of version 10.8.4's composite.xml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.phoronix import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "phoronix.xml").read_text(encoding="utf-8")


def test_single_runs_are_samples() -> None:
    assert recognises(TEXT)
    stream, rating, build = read(TEXT, "n042")
    assert stream.instrument == "bandwidth" and stream.metric == "bandwidth_net"
    assert stream.samples == pytest.approx([190120.4e6, 190388.2e6, 190725.3e6])
    assert stream.conditions["kernel"] == "copy" and stream.conditions["statistic"] == "best"
    assert stream.provenance["tool_version"] == "10.8.4" and stream.provenance["start"] == "2024-03-05 14:02:33"
    assert rating.value == pytest.approx(331301e6) and (rating.unit, rating.better) == ("op/s", "higher")
    assert rating.conditions["test"] == "pts/compress-7zip-1.10.0" and rating.conditions["app_version"] == "22.01"
    assert build.value == pytest.approx(38.204) and build.better == "lower"
    assert build.conditions["statistic"] == "mean" and "system" not in build.conditions


def test_the_direction_is_that_of_the_file() -> None:
    assert read(TEXT.replace("LIB", "HIB"), "n042")[2].better == "higher"


def test_a_test_that_failed_has_no_record() -> None:
    assert len(read(TEXT.replace("<Value>38.204</Value>", "<Value/>"), "n042")) == 2


def test_several_systems_are_told_apart() -> None:
    second = TEXT[TEXT.index("  <System>") : TEXT.index("  <Result>")].replace("node042", "node043")
    assert {r.conditions["system"] for r in read(TEXT.replace("  <Result>", second + "  <Result>", 1), "n042")} == {
        "node042"
    }


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("190388.2:", "190388,2:", "result 1: pts/stream-1.3.4: found '190388,2', a number is required"),
        ('<?xml version="1.0"?>', '<!DOCTYPE a [<!ENTITY b "c">]>', "found a document type, none is allowed"),
        ("</PhoronixTestSuite>", "", "found no XML"),
        (
            "      <Entry>\n        <Identifier>node042",
            "      <Entry>\n        <Identifier>node7",
            "found system 'node7'; allowed: those of <System>",
        ),
        ("<Value>331250</Value>", "<Value>fast</Value>", "result 2: pts/compress-7zip-1.10.0: found 'fast'"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=re.escape(says)):
        read(TEXT.replace(old, new), "n042")
