"""lmbench.

The fixtures are written by hand from the formats in the program's source (intel/lmbench, version 3): curves of
lat_mem_rd, three calls of bw_mem, and the sections of memory of a results file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.lmbench import read, recognises

FIXTURES = Path(__file__).parent / "fixtures"
CURVES = (FIXTURES / "lmbench.txt").read_text(encoding="utf-8")
RATES = (FIXTURES / "lmbench-bw_mem.txt").read_text(encoding="utf-8")
RESULTS = (FIXTURES / "lmbench-results.txt").read_text(encoding="utf-8")


def test_footprints_are_exact_and_strides_apart() -> None:
    assert recognises(CURVES)
    curve = {(r.conditions["stride_bytes"], r.conditions["footprint_bytes"]): r.value for r in read(CURVES, "n042")}
    assert len(curve) == 23 + 5
    assert curve[64, 512] == pytest.approx(1.103e-9) and curve[64, 24 * 1024] == pytest.approx(1.103e-9)
    assert curve[64, 64 * 2**20] == pytest.approx(88.302e-9) and curve[128, 2048] == pytest.approx(1.104e-9)


def test_rates_without_a_title_are_those_of_an_unknown_operation() -> None:
    records = read(RATES, "n042")
    assert [r.value for r in records] == pytest.approx([28541.37e6, 96512.40e6, 12904.18e6])
    assert [r.conditions["size_bytes"] for r in records] == [8_390_000, 512, 33_550_000]
    assert {r.instrument for r in records} == {"lmbench"}


def test_titles_of_a_results_file_tell_the_operation() -> None:
    records = read(RESULTS, "n042")
    assert {r.provenance["tool_version"] for r in records} == {"3.0"}
    reads = {r.conditions["footprint_bytes"]: r.value for r in records if r.conditions.get("kernel") == "read"}
    assert reads == pytest.approx({512: 27112.38e6, 1024: 28014.62e6, 524288: 25780.44e6, 1050000: 24990.13e6})
    random = [r for r in records if r.conditions.get("pattern") == "random"]
    assert [r.value for r in random] == pytest.approx([1.103e-9, 1.104e-9, 1.104e-9, 1.198e-9])
    copies = [r for r in records if r.conditions.get("operation") == "bcopy_unaligned"]
    assert copies[-1].value == pytest.approx(41206.55e6) and copies[-1].metric == "operation_bandwidth"


@pytest.mark.parametrize(
    ("text", "old", "new", "says"),
    [
        (CURVES, "2.00000 18.233", "2.00000 18.2x3", "line 19: .*required: a footprint in MiB, a time in ns"),
        (CURVES, "1.00000 9.904\n2.00000 18.233\n", "", "line 18: found 4.00000 MiB after 0.5"),
        (CURVES, '"stride=128', '"stride', "line 26: found 'stride'; required: the title"),
        (CURVES, "0.00781 1.103\n\n", "0.00781 1.103\n", "the curve of stride 128; it is cut off|MiB after"),
        (RATES, "33.55 1", "33.55 x1", "line 3: .*required: a size and a rate in MB"),
        (RESULTS, "0.001024 28014.62", "0.000024 28014.62", "found 0.000024 MB after 0.000512"),
        (RESULTS[:-1], "x", "x", "the section is cut off"),
    ],
)
def test_what_is_damaged_is_refused(text: str, old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read(text.replace(old, new), "n042")
