"""Units and values of other tools, as all readers of general formats convert them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from meshmark.measure.importers.base import FormatError, field, number, size
from meshmark.measure.importers.quantities import (
    ToolUnit,
    finite,
    measured,
    named,
    numbers,
    optional,
    scalar,
    scaled,
    slug,
    string,
    unit_of,
)


@pytest.mark.parametrize(
    ("text", "si", "factor", "better"),
    [
        ("", "1", 1, "none"),
        (" none ", "1", 1, "none"),
        ("%", "1", 0.01, "none"),
        ("s", "s", 1, "lower"),
        ("MSec", "s", 1e-3, "lower"),
        ("µs", "s", 1e-6, "lower"),
        ("nanoseconds", "s", 1e-9, "lower"),
        ("minutes", "s", 60, "lower"),
        ("h", "s", 3600, "lower"),
        ("GFLOP/s", "flop/s", 1e9, "higher"),
        ("Mflops/sec", "flop/s", 1e6, "higher"),
        ("MHz", "Hz", 1e6, "none"),
        ("KiB", "B", 1024, "none"),
        ("GB", "B", 1e9, "none"),
        ("kbit", "B", 125, "none"),
        ("bytes", "B", 1, "none"),
        ("b", "B", 0.125, "none"),
        ("GBps", "B/s", 1e9, "higher"),
        ("Gbps", "B/s", 1.25e8, "higher"),
        ("MiB/s", "B/s", 2**20, "higher"),
        ("MB / sec", "B/s", 1e6, "higher"),
        ("Mbit/s", "B/s", 125e3, "higher"),
        ("kIOPS", "op/s", 1e3, "higher"),
        ("MLUP/s", "op/s", 1e6, "higher"),
        ("GUP/s", "op/s", 1e9, "higher"),
        ("ops/s", "op/s", 1, "higher"),
        ("Requests/sec", "op/s", 1, "higher"),
        ("Frames Per Second", "op/s", 1, "higher"),
        ("Million samples/s", "op/s", 1e6, "higher"),
        ("Mcells/s", "Mcells/s", 1, "higher"),
        ("furlongs", "furlongs", 1, "none"),
        ("s" * 61, "s" * 61, 1, "none"),
        ("x" * 58 + "/s", "x" * 58 + "/s", 1, "higher"),
    ],
)
def test_units_of_other_tools_become_si_units(text: str, si: str, factor: float, better: Any) -> None:
    unit = unit_of(text)
    assert (unit.si, unit.better) == (si, better) and unit.factor == pytest.approx(factor, rel=1e-12)


def test_an_unknown_unit_has_no_direction() -> None:
    assert unit_of("ops") == ToolUnit("ops", 1.0, "none")


@pytest.mark.parametrize(
    ("value", "unit", "is_possible"),
    [
        (0.0, "s", False),
        (-1.0, "B/s", False),
        (0.0, "op/s", False),
        (0.0, "flop/s", False),
        (1e-9, "s", True),
        (0.0, "B", True),
        (0.0, "J", True),
        (-1.0, "J", False),
        (-1.0, "Hz", False),
        (-1.0, "1", True),
    ],
)
def test_values_that_cannot_have_been_measured_are_refused(value: float, unit: str, is_possible: bool) -> None:
    if is_possible:
        assert measured(value, unit, "x") == value
    else:
        minimum = "of at least 0" if unit in {"J", "Hz"} else "above 0"
        with pytest.raises(FormatError, match=f"^x: found {value!r}, a number {minimum} is required$"):
            measured(value, unit, "x")


def test_a_product_beyond_all_numbers_is_refused() -> None:
    assert scaled(2.0, 3.0, "x") == 6.0
    with pytest.raises(FormatError, match=r"^x: found 1e\+300"):
        scaled(1e300, 1e9, "x")


def test_a_number_is_finite_and_above_zero_where_it_must_be() -> None:
    assert number("0", "x") == 0.0 and number("1e-300", "x", above_zero=True) == 1e-300
    for text in ("nan", "inf", "1e999", "", "x", "1_0", "٣"):
        with pytest.raises(FormatError, match=rf"^x: found '{text}', a number is required$"):
            number(text, "x")
    for text in ("0", "-1"):
        with pytest.raises(FormatError, match=rf"^x: found {text}, a number above 0 is required$"):
            number(text, "x", above_zero=True)


@pytest.mark.parametrize(
    ("text", "count"),
    [("64", 64), (" 64k", 1 << 16), ("64 KiB", 1 << 16), ("1.5 MB", 3 << 19), ("2gbytes", 2 << 30), ("1T", 1 << 40)],
)
def test_sizes_have_binary_prefixes(text: str, count: int) -> None:
    assert size(text, "x") == count


@pytest.mark.parametrize("text", ["", "k", "64q", "-1k", "1.2.3"])
def test_other_texts_are_not_sizes(text: str) -> None:
    with pytest.raises(FormatError, match=r"^x: found "):
        size(text, "x")


def test_a_field_has_the_type_that_is_required() -> None:
    values = {"a": 1, "b": True, "c": "x"}
    assert field(values, "a", int, "") == 1 and field(values, "b", bool, "") is True
    assert field(values, "b", (str, bool), "") is True
    for where, key, kind, message in [
        ("", "b", int, "^b: found True, int is required$"),
        ("job", "b", (int, float), "^job: b: found True, int or float is required$"),
        ("job", "c", int, "^job: c: found 'x', int is required$"),
        ("job", "d", str, "^job: d: found None, str is required$"),
    ]:
        with pytest.raises(FormatError, match=message):
            field(values, key, kind, where)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"^a: found None"):
        field([1], "a", int, "")


def test_numbers_of_json_are_scaled_and_their_place_is_named() -> None:
    values = {"a": 2, "b": [1, 2.5], "c": [], "d": [1, "x"], "e": math.inf}
    assert finite(values, "a", "", 10) == 20 and numbers(values, "b", "") == [1, 2.5]
    for call, message in [
        (lambda: finite(values, "e", "job"), "^job: e: found 'inf'"),
        (lambda: finite(values, "a", "job", 1e308 * 10), "^job: a: found 2.0"),
        (lambda: numbers(values, "c", "job"), "^job: c: found none, at least 1 number"),
        (lambda: numbers(values, "d", "job"), "^job: value 2: d: found 'x'"),
        (lambda: numbers(values, "a", ""), "^a: found 2, list is required"),
    ]:
        with pytest.raises(FormatError, match=message):
            call()


def test_a_name_is_text_that_is_not_empty() -> None:
    assert string({"a": "x"}, "a", "") == "x"
    for value in ("", "\ud800"):
        with pytest.raises(FormatError, match=r"^job: a: found '[?]?', a name is required"):
            string({"a": value}, "a", "job")
    assert [optional({"a": value}, "a") for value in ("x", "", 3, "\ud800")] == ["x", "", "", ""]
    assert optional({}, "a") == "" and optional(None, "a") == ""


def test_conditions_do_not_take_the_names_of_other_arguments() -> None:
    source = {"unit": 1, "n": "x", "": 2, "\ud800": 3, "m": "\ud800", "samples": None, "flag": False}
    assert named(source) == {"unit_": 1, "n": "x", "samples_": None, "flag": False}


def test_names_of_other_tools_become_names_of_metrics() -> None:
    assert [slug(text) for text in ("Avg Latency", " (a/b) c ", "x_y")] == ["avg_latency", "a_b_c", "x_y"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 12 ", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("2.", 2.0),
        ("1e3", 1000.0),
        ("-1.5E-3", -0.0015),
        ("", None),
        ("null", None),
        ("None", None),
        ("1" * 16, "1" * 16),
        ("1e100", "1e100"),
        ("nan", "nan"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_a_cell_is_a_number_if_it_looks_like_one(text: str, value: Any) -> None:
    result = scalar(text)
    assert result == value and type(result) is type(value)
