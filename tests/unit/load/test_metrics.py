"""Test metrics as formulas: their ratios of sums, their values, and the formulas that are refused."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from meshmark.errors import UsageError
from meshmark.load.calibration.metrics import (
    Linear,
    all_metrics,
    metric,
    metrics_of,
    of_variants,
    parse_metrics,
    read_metrics,
)
from meshmark.load.calibration.variants import Variant

NUMBER_1 = Linear({}, 1.0)


def linear(constant: float = 0.0, /, **factors: float) -> Linear:
    return Linear(factors, constant)


# ------------------------------------------------------------------ linear sums


def test_linear_sums_are_scaled_and_added_with_their_constants() -> None:
    a = linear(3.0, flops=2.0, wall_s=1.0)
    assert a.scaled(-2.0) == linear(-6.0, flops=-4.0, wall_s=-2.0)
    assert a.plus(linear(1.0, flops=0.5, cpu_s=4.0), 1.0) == linear(4.0, flops=2.5, wall_s=1.0, cpu_s=4.0)
    assert a.plus(linear(1.0, flops=0.5, cpu_s=4.0), -1.0) == linear(2.0, flops=1.5, wall_s=1.0, cpu_s=-4.0)
    assert a.plus(linear(0.0, flops=2.0), -1.0) == linear(3.0, wall_s=1.0)  # factors that cancel are removed


def test_the_value_of_a_linear_sum_lacks_its_constant_and_has_the_shape_of_the_columns() -> None:
    columns = {"flops": np.array([1.0, 2.0, 4.0]), "wall_s": np.array([10.0, 20.0, 30.0])}
    assert linear(99.0, flops=2.0, wall_s=-0.5).evaluate(columns).tolist() == [-3, -6, -7]
    assert linear(99.0).evaluate(columns).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("one", "other", "factor"),
    [
        (linear(flops=6.0, wall_s=3.0), linear(flops=2.0, wall_s=1.0), 3.0),
        (linear(flops=-1.0), linear(flops=4.0), -0.25),
        (linear(flops=6.0, wall_s=3.0), linear(flops=2.0, wall_s=1.1), None),
        (linear(flops=-6.0, wall_s=-3.0), linear(flops=2.0, wall_s=1.1), None),
        (linear(flops=1.0, wall_s=1.0), linear(flops=1.0, wall_s=1.0 + 0.9e-12), 1.0),  # rounding
        (linear(flops=1.0, wall_s=1.0), linear(flops=1.0, wall_s=1.0 + 1.2e-12), None),
        (linear(flops=1e6, wall_s=1e6), linear(flops=1.0, wall_s=1.0 + 0.9e-12), 1e6),
        (linear(flops=1.0), linear(wall_s=1.0), None),
        (linear(flops=1.0), linear(flops=1.0, wall_s=1.0), None),
        (linear(), linear(), None),
        (linear(2.0, flops=1.0), linear(flops=1.0), None),
        (linear(flops=1.0), linear(2.0, flops=1.0), None),
    ],
)
def test_a_sum_is_a_multiple_of_another_if_all_factors_have_one_quotient(
    one: Linear, other: Linear, factor: float | None
) -> None:
    assert one.multiple_of(other) == factor


# ------------------------------------------------------------------ formulas

FLOPS, INTS, WALL, CPU = (linear(**{name: 1.0}) for name in ("flops", "int_ops", "wall_s", "cpu_s"))


@pytest.mark.parametrize(
    ("formula", "numerator", "denominator"),
    [
        ("flops", FLOPS, NUMBER_1),
        (" flops\n", FLOPS, NUMBER_1),
        ("-flops", linear(flops=-1.0), NUMBER_1),
        ("+flops", FLOPS, NUMBER_1),
        ("-(flops / wall_s)", linear(flops=-1.0), WALL),
        ("flops + 2", linear(2.0, flops=1.0), NUMBER_1),
        ("2 - flops", linear(2.0, flops=-1.0), NUMBER_1),
        ("flops + 3 * int_ops - 4 * flops", linear(flops=-3.0, int_ops=3.0), NUMBER_1),
        ("2 * flops", linear(flops=2.0), NUMBER_1),
        ("flops * 2", linear(flops=2.0), NUMBER_1),
        ("flops / 4", linear(flops=0.25), NUMBER_1),
        ("1 / 4 + flops", linear(0.25, flops=1.0), NUMBER_1),
        ("(flops + int_ops) / wall_s / 8", linear(flops=1.0, int_ops=1.0), linear(wall_s=8.0)),
        ("2 / (flops / wall_s)", linear(wall_s=2.0), FLOPS),
        ("flops / wall_s * 2", linear(flops=2.0), WALL),
        ("flops / (2 * wall_s + 1)", FLOPS, linear(1.0, wall_s=2.0)),
        # two ratios with the same denominator
        ("flops / wall_s - int_ops / wall_s", linear(flops=1.0, int_ops=-1.0), WALL),
        ("flops / wall_s + int_ops / wall_s", linear(flops=1.0, int_ops=1.0), WALL),
        # a number and a ratio
        ("1 - flops / wall_s", linear(wall_s=1.0, flops=-1.0), WALL),
        ("3 + flops / wall_s", linear(wall_s=3.0, flops=1.0), WALL),
        ("flops / wall_s - 2", linear(flops=1.0, wall_s=-2.0), WALL),
        ("flops / wall_s + 2", linear(flops=1.0, wall_s=2.0), WALL),
        ("(flops / wall_s - 2) / 4", linear(flops=1.0, wall_s=-2.0), linear(wall_s=4.0)),
        ("wall_s - wall_s + flops", FLOPS, NUMBER_1),
    ],
)
def test_a_formula_is_a_ratio_of_linear_sums(formula: str, numerator: Linear, denominator: Linear) -> None:
    assert metric("m", formula).ratio == (numerator, denominator)


@pytest.mark.parametrize(
    "formula",
    [
        "flops * wall_s",
        "flops / wall_s + int_ops / cpu_s",
        "flops / wall_s + int_ops",
        "int_ops - flops / wall_s",
        "flops / (wall_s / cpu_s)",
        "flops / wall_s / cpu_s",
        "1 + flops * wall_s",
        "flops * wall_s + 1",
        "-(flops * wall_s)",
        "flops / 0",
        "flops / (wall_s - wall_s)",
        "wall_s - wall_s",
        "wall_s - wall_s + 3",
    ],
)
def test_a_formula_that_is_no_ratio_of_linear_sums_can_be_reported_alone(formula: str) -> None:
    assert metric("m", formula).ratio is None


def test_a_metric_keeps_its_formula_unit_and_names() -> None:
    m = metric("rate", " flops / (wall_s + wall_s) ", "op/s")
    assert (m.name, m.formula, m.unit, m.names) == ("rate", " flops / (wall_s + wall_s) ", "op/s", {"flops", "wall_s"})
    assert metric("rate", "flops").unit == ""
    assert metric("rate", "apes + zebras", known=("apes", "zebras")).names == {"apes", "zebras"}


def test_values_have_one_element_for_each_of_the_columns_and_are_infinite_or_nan_on_division_by_zero() -> None:
    columns = {"flops": np.array([1.0, 0.0, 3.0]), "wall_s": np.array([0.0, 0.0, 2.0])}
    values = metric("m", "-flops / wall_s").evaluate(columns)
    assert values.tolist() == pytest.approx([-math.inf, math.nan, -1.5], nan_ok=True)
    assert values.dtype == np.float64
    assert metric("m", "+flops * 2 - wall_s + 1 + 0 * flops").evaluate(columns).tolist() == [3, 1, 5]


# ------------------------------------------------------------------ refused formulas


@pytest.mark.parametrize(
    ("formula", "found"),
    [
        ("flops" + " " * 496, ["501", "500"]),
        ("flops * 1.1e300", ["found '1.1e+300'", "finite numbers"]),
        ("flops * -1e999", ["found '1e309'", "finite numbers"]),
        ("flops * True", ["found 'True'", "finite numbers"]),
        ("flops * 'text'", ["found \"'text'\"", "finite numbers"]),
        ("flop + 1", ["'flop'", "did you mean flops?"]),
        ("zebra", ["'zebra'", "allowed", "memory_read_bytes, "]),
        ("flops ** 2", ["found a BinOp", "+ - * / ( ), numbers and names"]),
        ("~flops", ["found a UnaryOp"]),
        ("flops % 2", ["found a BinOp"]),
        ("2 + 3", ["'2 + 3' ", "name of a count or time"]),
        ("flops +", ["'flops +' is not a formula"]),
        ("flops * 1e300 * 1e300", ["overflows"]),
        ("flops + 1e300 * 1e300", ["overflows"]),
        ("flops / (wall_s * 1e300 * 1e300)", ["overflows"]),
    ],
)
def test_what_is_no_formula_is_refused_with_what_was_found_and_what_is_allowed(formula: str, found: list[str]) -> None:
    with pytest.raises(UsageError, match=r"^metric m: ") as error:
        metric("m", formula)
    assert [text for text in found if text not in str(error.value)] == []


def test_limits_of_a_formula_are_inclusive() -> None:
    assert metric("m", "flops" + " " * 495).names == {"flops"}
    assert metric("m", "flops * 1e300").ratio == (linear(flops=1e300), NUMBER_1)
    assert metric("m", "flops * -1e300").ratio == (linear(flops=-1e300), NUMBER_1)


def test_long_texts_are_cut_in_messages() -> None:
    with pytest.raises(UsageError) as error:
        metric("m", "z" * 100)
    assert f"unknown name '{'z' * 60}'" in str(error.value)
    with pytest.raises(UsageError) as error:
        metric("m", "flops " * 20)
    assert f"metric m: {('flops ' * 20)[:60]!r} is not" in str(error.value)
    with pytest.raises(UsageError) as error:
        metric("m", "1 + " * 20 + "1")
    assert f"metric m: {('1 + ' * 20)[:60]!r} contains no name" in str(error.value)
    with pytest.raises(UsageError) as error:
        metric("m", f"flops * {'7' * 100!r}")
    assert f"found {repr('7' * 100)[:40]!r};" in str(error.value)


def test_a_formula_causes_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UsageError, match="finite numbers"):
            metric("m", "flops * '\\d'")


# ------------------------------------------------------------------ tables of metrics


def test_metrics_of_a_text_are_known_by_name_and_may_use_its_counters() -> None:
    text = '[metric.b]\nformula = "apes / flops"\nunit = "1"\n[metric.a_1]\nformula = "flops"\n'
    metrics = parse_metrics(text, "own.toml", counters=("zebras", "apes"))
    assert [(name, m.name, m.formula, m.unit) for name, m in metrics.items()] == [
        ("b", "b", "apes / flops", "1"),
        ("a_1", "a_1", "flops", ""),
    ]
    assert metrics_of({}, "own.toml") == parse_metrics("", "own.toml") == {}
    with pytest.raises(UsageError, match=r"^own\.toml: metric b: unknown name 'apes'"):
        parse_metrics(text, "own.toml", counters=())
    with pytest.raises(UsageError, match=r"unknown name 'x'; allowed.* .*wall_s.*, apes, zebras$"):
        metrics_of({"b": {"formula": "x"}}, "own.toml", counters=("zebras", "apes"))
    assert parse_metrics('[metric.ipc]\nformula = "instructions / cycles"', "own.toml").keys() == {"ipc"}


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("a", True),
        ("a" * 60, True),
        ("a" * 61, False),
        ("a_9", True),
        ("9a", False),
        ("_a", False),
        ("a-b", False),
        ("A", False),
        ("seed", False),
        ("wall_s", False),
        ("apes", False),
    ],
)
def test_names_of_metrics_are_short_lower_case_and_of_nothing_else(name: str, allowed: bool) -> None:
    tables = {name: {"formula": "flops"}}
    if allowed:
        assert metrics_of(tables, "own.toml", ("apes",)).keys() == {name}
        return
    with pytest.raises(
        UsageError, match=f"^own.toml: metric '?{name[:20]}.*: allowed.*lower-case letters, digits and _"
    ):
        metrics_of(tables, "own.toml", ("apes",))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"formula": "flops", "unit": "x" * 31}, "own.toml: metric mine: unit: found "),
        ({"formula": 3}, "own.toml: metric mine: formula: found 3"),
        ({}, "own.toml: metric mine: formula: found nothing"),
        ({"formula": "flops ** 2"}, "own.toml: metric mine: found a BinOp"),
    ],
)
def test_a_table_that_is_no_metric_names_its_text_and_key(table: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        metrics_of({"mine": table}, "own.toml", ())


def test_a_unit_has_thirty_characters() -> None:
    assert metrics_of({"mine": {"formula": "flops", "unit": "x" * 30}}, "own.toml", ())["mine"].unit == "x" * 30


def test_metrics_are_read_from_a_file_of_at_most_64_kib(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    text = '[metric.mine]\nformula = "flops"\n'
    path.write_text(text + "#" * ((1 << 16) - len(text)))
    assert read_metrics(path).keys() == {"mine"}
    path.write_text(text + "#" * ((1 << 16) - len(text) + 1))
    with pytest.raises(UsageError, match=re.escape(str(path))):
        read_metrics(path)
    path.write_text("[metric.mine]\n")
    with pytest.raises(UsageError, match=f"^{re.escape(str(path))}: metric mine: formula: found nothing"):
        read_metrics(path)
    with pytest.raises(UsageError, match=re.escape(str(tmp_path / "none.toml"))):
        read_metrics(tmp_path / "none.toml")


def test_metrics_of_a_user_are_added_to_the_built_in_ones_and_replace_them() -> None:
    user_metrics = {"mine": metric("mine", "flops"), "gflop_per_s": metric("gflop_per_s", "flops / cpu_s")}
    formulas = {name: m.formula for name, m in all_metrics(user_metrics).items()}
    built_in = {name: m.formula for name, m in all_metrics().items()}
    assert formulas == {**built_in, "mine": "flops", "gflop_per_s": "flops / cpu_s"}
    assert built_in["gflop_per_s"] == "flops / wall_s / 1e9" and "mine" not in built_in
    assert all_metrics({}).keys() == built_in.keys()


# ------------------------------------------------------------------ values of variants


def test_values_that_are_not_finite_or_lack_a_column_are_left_out() -> None:
    a = Variant(name="a", kernel="k", kind="stream", volume_bytes=1, threads=1, wall_s=0.5, cpu_s=0.25, flops=3.0)
    b = dataclasses.replace(a, name="b", flops=0.0, cpu_s=0.5)
    metrics = {
        "rate": metric("rate", "flops / wall_s"),
        "per_flop": metric("per_flop", "cpu_s / flops"),
        "unknown": metric("unknown", "flops / apes", known=("flops", "apes")),
    }
    assert of_variants([a, b], metrics) == {"a": {"rate": 6.0, "per_flop": 0.25 / 3}, "b": {"rate": 0.0}}
    assert of_variants([a], metrics, ["rate", "per_flop"])["a"]["rate"] == 6
    unknown_names = {**metrics, "unknown": metric("unknown", "zebras / apes", known=("zebras", "apes"))}
    with pytest.raises(UsageError, match=r"^metric unknown: the calibration data have no apes$"):
        of_variants([a], unknown_names, ["rate", "unknown"])
