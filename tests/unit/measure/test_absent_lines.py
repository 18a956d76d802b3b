"""What a measurement says about quantities that are absent."""

from __future__ import annotations

from meshmark.measure.single import absent_lines
from meshmark.store.run import Absence

REASON = "the budget of 1 s ended before its first sample"


def absence(**conditions: str | int) -> Absence:
    return Absence(
        instrument="loops",
        metric="loop_time",
        conditions={"isa": "avx2", **conditions},
        reason=REASON,
        enable="a larger --budget",
    )


def test_absences_name_their_points_in_one_line() -> None:
    [line] = absent_lines([absence(kernel="copy", length=n) for n in (1, 7)])
    assert line == f"absent: loop_time at length 1, length 7: {REASON} (to enable: a larger --budget)"


def test_sizes_of_points_have_units() -> None:
    [line] = absent_lines([absence(kernel="copy", footprint_bytes=n << 20) for n in (512, 1024)])
    assert line.startswith("absent: loop_time at footprint 512 MiB, footprint 1 GiB: ")


def test_many_points_are_counted() -> None:
    [line] = absent_lines([absence(kernel="copy", length=n) for n in range(33)])
    assert line.startswith("absent: loop_time at length 0, length 1, length 2, length 3 and 29 more points: ")


def test_one_absence_needs_no_point() -> None:
    assert absent_lines([absence(kernel="copy")]) == [f"absent: loop_time: {REASON} (to enable: a larger --budget)"]
