"""Numbers with units, for people."""

from __future__ import annotations

import pytest

from meshmark.values.units import number, scale_for, show


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.104e10, "B/s", "41.0 GB/s"),
        (1.6e-7, "s", "160 ns"),
        (8 * 2**20, "B", "8 MiB"),
        (0.0, "1", "0"),
        (2.5e-6, "s", "2.50 µs"),
        (1.024e11, "flop/s", "102 GFLOP/s"),
        (0.0651e9, "op/s", "65.1 Mop/s"),
    ],
)
def test_units_for_people(value: float, unit: str, text: str) -> None:
    assert show(value, unit).replace("\u00a0", " ") == text


def test_numbers_of_one_figure_share_their_unit() -> None:
    scale = scale_for("s", 9.9e-7)
    assert scale.symbol == "ns" and number(1.01e-6 / scale.factor) == "1010"
