"""nvbandwidth. The fixture is written by hand from the source of version 0.8, with numbers of no machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.nvbandwidth import READERS, read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
TEXT = (FIXTURES / "nvbandwidth.json").read_text(encoding="utf-8")


def test_cells_are_those_stored() -> None:
    assert recognises(TEXT) and [r.name for r in READERS] == ["nvbandwidth"]
    cells = {
        (r.conditions["testcase"], r.conditions["row_index"], r.conditions["column_index"]): r
        for r in read(TEXT, "n042")
    }
    first = cells["host_to_device_memcpy_ce", 0, 1]
    assert first.value == pytest.approx(55.3318e9) and first.metric == "bandwidth" and first.unit == "B/s"
    assert (first.conditions["row"], first.conditions["direction"], first.conditions["column"]) == ("CPU", "->", "GPU")
    assert first.provenance["tool_version"] == "0.8"
    latency = cells["host_device_latency_sm", 0, 0]
    assert latency.value == pytest.approx(772.58e-9) and latency.better == "lower"


def test_cells_without_a_number_and_waived_tests_are_left_out_and_totals_are_read() -> None:
    records = read(TEXT, "n042")
    both = [r.value for r in records if str(r.conditions["testcase"]).startswith("device_to_device_bidirectional")]
    assert both == pytest.approx([552.18e9, 552.71e9])
    assert not any(r.conditions["testcase"] == "device_to_device_latency_sm" for r in records)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"276.51"', '"fast"', "testcases.2.: bandwidth_matrix: found 'fast'"),
        ('"55.3265"', '"N/A"', "sum: found 110.6583, the cells give 55.3318"),
        ('"Passed"', '"Running"', "status: found 'Running'"),
        ("(GB/s)", "(MB/s)", ".GB/s. or .ns. is required"),
        ('"version": "v0.8"', '"error": "no driver"', "such output is not imported"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    assert old in TEXT
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
