"""STREAM. The fixture is written by hand from the program's source, with rates of the project's first machine."""

from __future__ import annotations

import pytest

from meshmark.measure.importers.base import FormatError
from support.imports import fixture, reasons_of, records_of, results_of

TEXT = fixture("stream.txt")
FORTRAN = """----------------------------------------------
 Double precision appears to have 16 digits of accuracy
 Assuming 8 bytes per DOUBLE PRECISION word
----------------------------------------------
 STREAM Version $Revision: 5.6 $
 Array size =    2000000
 Offset     =         16
 Number of Threads =            4
Function     Rate (MB/s)  Avg time   Min time  Max time
Copy:       18500.0000      0.0174      0.0173      0.0176
Scale:      18300.0000      0.0176      0.0175      0.0178
Add:        23000.0000      0.0210      0.0209      0.0212
Triad:      23300.0000      0.0208      0.0206      0.0211
 Solution Validates!
"""


def test_the_best_rates_are_those_printed() -> None:
    rates = {r.conditions["kernel"]: r for r in records_of(TEXT)}
    assert {k: r.value for k, r in rates.items()} == pytest.approx(
        {"copy": 41903.2e6, "scale": 26412.7e6, "add": 28561.0e6, "triad": 28102.4e6}
    )
    triad = rates["triad"]
    assert triad.conditions["threads"] == 2 and triad.conditions["footprint_bytes"] == 3 * 8 * 100_000_000
    assert triad.source == "tool" and triad.machine == "n042" and triad.provenance["tool_version"] == "5.10"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Solution Validates", "Failed Validation", "the run says 'Failed Validation"),
        ("MB/s", "furlongs/s", "line 26: found the column 'Best Rate furlongs/s'"),
    ],
)
def test_runs_that_do_not_validate_and_unknown_units_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        records_of(TEXT.replace(old, new))


def test_appended_runs_are_told_apart_by_their_threads_and_a_failed_one_is_left_out() -> None:
    eight = TEXT.replace("counted = 2", "counted = 8").replace("requested = 2", "requested = 16")
    text = TEXT + "next run\n" + eight
    assert [r.conditions["threads"] for r in records_of(text)] == [2] * 4 + [8] * 4
    failed = results_of(text + TEXT.replace("Solution Validates", "Failed Validation on array a[]"))
    assert len(failed.records) == 8 and failed.left_out_count == 4
    assert "Failed Validation on array a[]" in str(failed.left_out[0])


def test_threads_are_those_of_all_ranks() -> None:
    text = TEXT.replace("Number of Threads requested = 2", "Number of Threads requested for each MPI rank = 9")
    text = text.replace("Number of Threads counted = 2", "Number of Threads counted for rank 0 = 9")
    text = text.replace("Array size =", "Data is distributed across 2 MPI ranks\nTotal Aggregate Array size =")
    assert {(r.conditions["threads"], r.conditions["ranks"]) for r in records_of(text)} == {(18, 2)}


def test_the_fortran_version_is_read_with_its_offset() -> None:
    copy = records_of(FORTRAN)[0]
    assert copy.value == 18500e6 and copy.conditions == {
        "kernel": "copy",
        "threads": 4,
        "footprint_bytes": 2 * 8 * 2_000_000,
        "offset_elements": 16,
        "statistic": "best",
    }
    single = records_of(FORTRAN.replace("Assuming 8", "Assuming 4").replace("Number of Threads", "Threads"))[0]
    assert single.conditions["footprint_bytes"] == 2 * 4 * 2_000_000 and single.conditions["threads"] == 1


def test_a_table_has_best_mean_and_worst_rates() -> None:
    rows = "".join(f"| {k} | 42.1 | 42.8 | 41.2 | 0.12 |\n" for k in ("Copy", "Scale", "Add", "Triad"))
    start = TEXT.index("Function")
    table = "| Function | Avg (GB/s) | Best (GB/s) | Worst (GB/s) | Avg time |\n|-----|-----|-----|----|----|\n" + rows
    records = records_of(TEXT[:start] + table + "Solution Validates\n")
    rates = {r.conditions["statistic"]: r.value for r in records if r.conditions["kernel"] == "add"}
    assert rates == pytest.approx({"mean": 42.1e9, "best": 42.8e9, "worst": 41.2e9})


def test_a_row_without_a_head_is_left_out() -> None:
    assert "a line 'Function Best Rate MB/s' is required above" in reasons_of(TEXT + TEXT.replace("Function", "Fun"))[0]


def test_the_fortran_version_for_mpi_states_its_processors() -> None:
    text = (
        " STREAM_MPI Version $Revision: 5.6 $\n Number of processors =           16\n Array size =    2000000\n"
        "Function     Rate (MB/s)  Avg time   Min time  Max time\n"
        "Copy:       46234.5678      0.0113      0.0111      0.0115\n"
        "Scale:      45134.5678      0.0115      0.0113      0.0117\n"
        "Add:        50234.5678      0.0155      0.0153      0.0158\n"
        "Triad:      50334.5678      0.0155      0.0153      0.0158\n Solution Validates!\n"
    )
    records = records_of(text)
    assert [r.value for r in records][:2] == pytest.approx([46234.5678e6, 45134.5678e6])
    assert {(r.conditions["ranks"], r.conditions["threads"]) for r in records} == {(16, 16)}
    assert records[3].conditions["footprint_bytes"] == 3 * 8 * 2000000
