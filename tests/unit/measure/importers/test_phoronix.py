"""The Phoronix Test Suite. The fixture is written by hand from the layout of version 10.8.4's composite.xml."""

from __future__ import annotations

import json

import pytest

from meshmark.measure.importers.programs.phoronix import recognises
from support.imports import fixture, problems_of, results_of, taken_from

TEXT = fixture("phoronix.xml")


def test_single_runs_are_samples() -> None:
    assert recognises(TEXT)
    stream, rating, build = taken_from(TEXT)
    assert stream.instrument == "bandwidth" and stream.metric == "bandwidth_net"
    assert stream.samples == pytest.approx([190120.4e6, 190388.2e6, 190725.3e6])
    assert stream.conditions["kernel"] == "copy" and stream.conditions["statistic"] == "best"
    assert stream.provenance["tool_version"] == "10.8.4" and stream.provenance["start"] == "2024-03-05 14:02:33"
    assert rating.value == pytest.approx(331301e6) and (rating.unit, rating.better) == ("op/s", "higher")
    assert rating.conditions["test"] == "pts/compress-7zip-1.10.0" and rating.conditions["app_version"] == "22.01"
    assert build.value == pytest.approx(38.204) and build.better == "lower"
    assert build.conditions["statistic"] == "mean" and "system" not in build.conditions


def test_the_direction_is_that_of_the_file() -> None:
    assert taken_from(TEXT.replace("LIB", "HIB"))[2].better == "higher"


def test_a_test_that_failed_has_no_record() -> None:
    results = results_of(TEXT.replace("<Value>38.204</Value>", "<Value/>"))
    assert len(results.records) == 2 and "the test failed" in results.left_out[0].reason


@pytest.mark.parametrize("value", ["-38.204", "0", "1e999", "nan"])
def test_impossible_values_are_left_out(value: str) -> None:
    results = results_of(TEXT.replace("<Value>38.204</Value>", f"<Value>{value}</Value>"))
    assert len(results.records) == 2 and results.left_out[0].where == "result 3"
    assert len(taken_from(TEXT.replace("190388.2:", f"{value}:"))) == 2


def test_a_file_that_is_cut_off_keeps_its_whole_results() -> None:
    text = TEXT[: TEXT.index("pts/build-linux-kernel")]
    assert len(taken_from(text)) == 2 and "found no </PhoronixTestSuite>" in problems_of(text)[0]


def test_results_of_one_description_are_told_apart_by_their_arguments() -> None:
    begin, end = TEXT.index("  <Result>"), TEXT.index("  </Result>") + len("  </Result>\n")
    second_result = TEXT[begin:end].replace("<Arguments>Copy</Arguments>", "<Arguments>Copy -n 7</Arguments>")
    records = [r for r in taken_from(TEXT[:end] + second_result + TEXT[end:]) if r.instrument == "bandwidth"]
    assert [r.conditions["arguments"] for r in records] == ["Copy", "Copy -n 7"]


def test_json_of_a_result_file() -> None:
    entry = {"value": 190411.3, "raw_values": [190120.4, 190725.3]}
    result = {"identifier": "pts/stream-1.3.4", "description": "Type: Copy", "scale": "MB/s", "proportion": "HIB"}
    result["display_format"] = "BAR_GRAPH"
    system = {"identifier": "n1", "client_version": "10.8.4", "timestamp": "2024-03-05 14:02:33"}
    document = {"title": "t", "systems": {"n1": system}, "results": {"abc": {**result, "results": {"n1": entry}}}}
    (record,) = taken_from(json.dumps(document))
    assert record.samples == pytest.approx([190120.4e6, 190725.3e6]) and record.conditions["kernel"] == "copy"
    assert record.provenance["tool_version"] == "10.8.4" and record.provenance["start"] == "2024-03-05 14:02:33"
    old_result = {"arguments": "Type: Add", "units": "MB/s", "results": {"n1": {"value": "7", "all_results": "6:8"}}}
    (record,) = taken_from(json.dumps({"title": "t", "results": {"pts/stream-1.3.1": old_result}}, indent=4))
    assert record.samples == (6e6, 8e6) and record.conditions["kernel"] == "add"


def test_several_systems_are_told_apart() -> None:
    second = TEXT[TEXT.index("  <System>") : TEXT.index("  <Result>")].replace("node042", "node043")
    assert {r.conditions["system"] for r in taken_from(TEXT.replace("  <Result>", second + "  <Result>", 1))} == {
        "node042"
    }
