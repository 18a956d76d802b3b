"""Tests of numbers with units in texts for people."""

from __future__ import annotations

import math

import pytest

from meshmark.values.units import (
    Scale,
    duration,
    number,
    percent,
    plain,
    round_size,
    scale_for,
    seconds,
    seconds_of,
    show,
    size,
)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.104e10, "B/s", "41.0 GB/s"),
        (1e15, "B/s", "1.00 PB/s"),
        (1e12, "B/s", "1.00 TB/s"),
        (1e9, "B/s", "1.00 GB/s"),
        (1e6, "B/s", "1.00 MB/s"),
        (1e3, "B/s", "1.00 kB/s"),
        (999.0, "B/s", "999 B/s"),
        (2.2e9, "Hz", "2.20 GHz"),
        (1.0, "s", "1.00 s"),
        (0.999, "s", "999 ms"),
        (1e-3, "s", "1.00 ms"),
        (2.5e-6, "s", "2.50 µs"),
        (1.6e-7, "s", "160 ns"),
        (5e-10, "s", "0.500 ns"),
        (8 * 2**20, "B", "8 MiB"),
        (2.0**41, "B", "2 TiB"),
        (2.0**30, "B", "1 GiB"),
        (1536.0, "B", "1.50 KiB"),
        (100.0, "B", "100 B"),
        (0.0, "B", "0 B"),
        (0.0, "1", "0"),
        (3.0, "1", "3.00"),
        (3.0, "lines", "3.00 lines"),
        (-4.104e10, "B/s", "-41.0 GB/s"),
        (1.024e11, "flop/s", "102 GFLOP/s"),
        (0.0651e9, "op/s", "65.1 Mop/s"),
        (math.nan, "s", "– ns"),
        (math.inf, "B/s", "– B/s"),
    ],
)
def test_units_for_people(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text.replace(" ", "\u00a0")


def test_a_terminal_gets_four_digits_and_plain_blanks() -> None:
    assert plain(4.1043e10, "B/s") == "41.04 GB/s"
    assert plain(4.1043e10, "B/s", 2) == "41 GB/s"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (41.04, 3, "41.0"),
        (1692.3, 3, "1692"),
        (0.0652, 3, "0.0652"),
        (0.06519, 2, "0.065"),
        (1e-4, 3, "0.000100"),
        (9.9e-5, 3, "9.90e-05"),
        (9999.4, 3, "9999"),
        (10000.0, 3, "10\u202f000"),
        (9999999.0, 3, "9\u202f999\u202f999"),
        (1e7, 3, "1.00e+07"),
        (-12.345, 3, "-12.3"),
        (0.0, 3, "0"),
        (math.nan, 3, "–"),
        (-math.inf, 3, "–"),
    ],
)
def test_a_number_has_its_digits(value: float, digits: int, text: str) -> None:
    assert number(value, digits) == text


def test_numbers_of_one_figure_share_their_unit() -> None:
    scale = scale_for("s", 9.9e-7)
    assert scale == Scale(1e-9, "ns") and number(1.01e-6 / scale.factor) == "1010"
    assert show(1.01e-6, "s", scale) == "1010\u00a0ns"
    assert show(2.5e-9, "s", Scale(1e-9, "ns"), digits=2) == "2.5\u00a0ns"


@pytest.mark.parametrize(("share", "text"), [(0.034, "3.4 %"), (0.12, "12 %"), (1.0, "100 %"), (math.nan, "–")])
def test_shares_are_per_cent(share: float, text: str) -> None:
    assert percent(share) == text.replace(" ", "\u00a0")


def test_sizes_are_binary() -> None:
    assert size(512 * 1024) == "512\u00a0KiB"


@pytest.mark.parametrize(
    ("value", "text"), [(0.4, "0 s"), (48.0, "48 s"), (89.9, "90 s"), (90.0, "1 min 30 s"), (192.0, "3 min 12 s")]
)
def test_run_times(value: float, text: str) -> None:
    assert seconds(value).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.254, "0.25 s"),
        (9.99, "9.99 s"),
        (10.0, "10.0 s"),
        (999.9, "999.9 s"),
        (1000.0, "1000 s"),
        (-12.34, "-12.3 s"),
    ],
)
def test_seconds_in_a_column(value: float, text: str) -> None:
    assert seconds_of(value) == text


@pytest.mark.parametrize(
    ("length_s", "text"),
    [
        (8.5e-8, "85.0 ns"),
        (59.9, "59.9 s"),
        (60.0, "1 min 00 s"),
        (61.0, "1 min 01 s"),
        (3599.0, "59 min 59 s"),
        (3600.0, "1 h 00 min"),
        (43500.0, "12 h 05 min"),
    ],
)
def test_durations(length_s: float, text: str) -> None:
    assert duration(length_s) == text


def test_a_size_is_shown_with_the_prefix_in_which_it_is_round() -> None:
    sizes = {
        40 * 10**9: "40 GB",
        2**30: "1 GiB",
        1_500_000_000: "1.5 GB",
        40 << 30: "40 GiB",
        39_999_766_528: "37.3 GiB",
    }
    assert {n: round_size(n).replace("\u00a0", " ") for n in sizes} == sizes
