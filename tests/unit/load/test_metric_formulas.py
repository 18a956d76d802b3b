"""Test metrics, which are formulas over counts and times, and the variants that they are computed for."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from meshmark.errors import MeshmarkError, UsageError
from meshmark.load.calibration.metrics import BUILT_IN, RESERVED, all_metrics, metric, parse_metrics
from meshmark.load.calibration.order import sequence
from meshmark.load.calibration.profile import TargetProfile
from meshmark.load.calibration.variants import COLUMNS, Variant, VariantColumns, served_by
from meshmark.load.synthesis import synthesize
from meshmark.load.synthesis.program import ProgramPart, dump_program, parse_program
from meshmark.values.inputs import checked
from support.made_base import base
from support.scenarios import one_line

METRICS = all_metrics()


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {c: rng.uniform(1, 2, 5) for c in COLUMNS}


NUMBERS = st.sampled_from(["1", "2.5", "7", "-3"])  # of similar magnitude, so that sums do not cancel
FORMULAS = st.recursive(
    st.one_of(NUMBERS, st.sampled_from(COLUMNS)),
    lambda inner: st.builds(lambda a, op, b: f"({a} {op} {b})", inner, st.sampled_from("+-*/"), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(FORMULAS)
@example("(wall_s + (1 / (1 - 1)))")
def test_a_ratio_of_sums_is_the_formula_itself(formula: str) -> None:
    try:
        m = metric("m", formula)
    except UsageError as error:
        assert "metric m" in str(error)
        return
    c = columns()
    with np.errstate(all="ignore"):
        # Division by zero gives infinity instead of an error.
        numpy_formula = re.sub(r"(?<![\w.])([\d.]+)", r"float64(\1)", formula)
        expected = np.broadcast_to(eval(numpy_formula, {"__builtins__": {}, "float64": np.float64}, c), 5)
        assert np.asarray(m.evaluate(c)) == pytest.approx(expected, nan_ok=True)
        if m.ratio is not None:
            numerator, denominator = (part.evaluate(c) + part.constant for part in m.ratio)
            reliable = (
                np.isfinite(expected)
                & (np.abs(denominator) > 1e-6)
                & (np.abs(expected) < 1e12)
                & (np.abs(expected) > 1e-12)
            )
            assert (numerator / denominator)[reliable] == pytest.approx(expected[reliable], rel=1e-6, abs=1e-9)


def test_the_shipped_metrics_can_all_be_prescribed_and_mean_what_they_say() -> None:
    assert all(m.ratio is not None for m in METRICS.values())
    v = Variant(
        name="a",
        kernel="a",
        kind="stream",
        volume_bytes=1,
        threads=2,
        wall_s=0.5,
        cpu_s=0.8,
        system_s=0.2,
        flops=2e9,
        int_ops=1e9,
        line_read_bytes=3e9,
        line_write_bytes=1e9,
        io_read_bytes=1e8,
        io_write_bytes=4e8,
        system_calls=10,
        serial_s=0.75,
    )
    t = VariantColumns([v])
    values = {k: float(m.evaluate(t.columns)[0]) for k, m in METRICS.items()}
    assert values == pytest.approx(
        {
            "memory_gb_per_s": 8,
            "cache_gb_per_s": 0,
            "gflop_per_s": 4,
            "gint_per_s": 2,
            "write_fraction": 0.25,
            "io_gb_per_s": 1,
            "system_share": 0.25,
            "system_calls_per_s": 20,
            "load_balance": 0.8,
            "parallel_efficiency": 0.75,
        }
    )
    cached = VariantColumns([dataclasses.replace(v, served_by="L2")])
    assert METRICS["cache_gb_per_s"].evaluate(cached.columns)[0] == 8
    assert METRICS["memory_gb_per_s"].evaluate(cached.columns)[0] == 0


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("__import__('os').system('id')", "found a Call"),
        ("flops.real", "found a Attribute"),
        ("flop / wall_s", "unknown name 'flop'; did you mean flops?"),
        ("flops ** 2", "found a BinOp"),
        ("1 + 2", "contains no name"),
        ("flops / wall_s +", "is not a formula"),
        ("(" * 150 + "flops" + ")" * 150, ""),
        ("-" * 300 + "flops", "nested deeper"),
        ("flops + 1e999", "allowed: finite numbers"),
        ("flops * True", "allowed: finite numbers"),
        ("flops * 'x'", "allowed: finite numbers"),
        ("flops" + " + flops" * 100, "allowed: 500"),
        ("flops\x00", ""),
        ("flops * 1e300 * 1e300", "overflow"),
        ("[flops]", "found a List"),
        ("flops if wall_s else 1", "found a IfExp"),
    ],
)
def test_a_hostile_formula_is_one_line_that_names_the_metric(formula: str, said: str) -> None:
    text = f"[metric.mine]\nformula = {json.dumps(formula)}"
    try:
        parse_metrics(text, "own.toml")
        assert said == ""
    except UsageError as error:
        assert "mine" in str(error)
        assert said in str(error)
        assert "\n" not in str(error)
        assert len(str(error)) < 400


@pytest.mark.parametrize(("before", "after"), [("-", ""), ("", " + flops"), ("flops - (", ")")])
def test_a_formula_may_be_nested_forty_deep(before: str, after: str) -> None:
    assert metric("mine", before * 40 + "flops" + after * 40).names == {"flops"}
    with pytest.raises(UsageError, match="metric mine: parentheses and operators are nested deeper than 40"):
        metric("mine", before * 41 + "flops" + after * 41)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.text(max_size=300), st.text(alphabet="flops+-*/() 1.e", max_size=120)))
def test_any_text_as_a_formula_ends_well(text: str) -> None:
    try:
        metric("mine", text)
    except UsageError as error:
        assert "metric mine" in str(error)
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "not TOML"),
        ("a = 1", "a: unknown key; allowed: metric"),
        ("metric = 1", "tables [metric.NAME]"),
        ("[metric.flops]\nformula = '1'", "not a column"),
        ("[metric.Upper]\nformula = 'flops'", "lower-case letters"),
        ("[metric.seed]\nformula = 'flops'", "not a column or key of a program"),
        ("[metric.a]\nunit = 'x'", "formula: found nothing"),
        ("[metric.a]\nformula = 'flops'\nunits = 'x'", "units: unknown key"),
        ("[metric.a]\nformula = 'flops'\nunit = 3", "unit: found 3"),
        ("a = " + "[" * 5000, "not TOML"),
        ("a = " + "9" * 6000, "not TOML"),
    ],
)
def test_bad_metrics_are_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        parse_metrics(text, "own.toml")
    assert one_line(error).startswith("own.toml")


def test_the_last_call_of_reserved_names_is_the_prescription() -> None:
    assert RESERVED - {"name"} <= {f.name for f in dataclasses.fields(TargetProfile)}
    assert parse_metrics(BUILT_IN, "built in").keys() == METRICS.keys()


def test_counters_of_the_hardware_are_names_where_base_data_have_them() -> None:
    user_metrics = parse_metrics(
        '[metric.ipc]\nformula = "instructions / cycles"', "own.toml", ("instructions", "cycles")
    )
    cycles = [3e9 * v.wall_s for v in base()]
    counters = [{"cycles": c, "instructions": (1 + i % 4) * c} for i, c in enumerate(cycles)]
    variants = [dataclasses.replace(v, counters=c) for v, c in zip(base(), counters, strict=True)]
    program = synthesize(variants, TargetProfile(run_time_s=10.0, metrics={"ipc": 2.5}), own_metrics=user_metrics)
    assert program.planned()["ipc"] == pytest.approx(2.5, rel=1e-3)
    assert parse_program(dump_program(program), "x").planned()["ipc"] == pytest.approx(2.5, rel=1e-3)
    with pytest.raises(UsageError, match="calibration data have no cycles"):
        synthesize(base(), TargetProfile(run_time_s=10.0, metrics={"ipc": 2.5}), own_metrics=user_metrics)


def test_variants_survive_their_own_writing_and_bad_ones_are_named() -> None:
    for v in base()[:50]:
        assert checked(Variant, json.loads(json.dumps(v.to_json())), "x") == v
    valid = base()[0].to_json()
    for key, value in (
        ("wall_s", 0),
        ("wall_s", "1"),
        ("volume_bytes", 1.5),
        ("served_by", "L9"),
        ("flops", -1),
        ("team", 1),
        ("surprise", 1),
        ("name", ""),
        ("threads", 0),
        ("wall_interval_s", [1]),
    ):
        with pytest.raises(MeshmarkError, match=key) as error:
            checked(Variant, {**valid, key: value}, "base: entry 3")
        assert one_line(error).startswith("base: entry 3")
    with pytest.raises(UsageError, match="two variants are named"):
        VariantColumns([base()[0], base()[0]])


def test_levels_are_the_first_that_holds_the_volume() -> None:
    kib = 1 << 10
    for volume, threads, level in (
        (32 * kib, 1, "L1"),
        (33 * kib, 1, "L2"),
        (33 * kib, 2, "L1"),
        (2 << 20, 1, "L3"),
        (2 << 20, 2, "L2"),
        (33 << 20, 64, "L2"),
        (129 << 20, 64, "memory"),
    ):
        assert served_by(volume, 32 * kib, 1 << 20, 32 << 20, threads) == level
    assert served_by(1 << 20, 32 * kib, 0, 0) == "memory"


def test_a_part_is_what_is_run() -> None:
    program = synthesize(base(), TargetProfile(run_time_s=10.0))
    assert all(isinstance(p, ProgramPart) for p in program.parts)
    pieces = sequence([p.calls for p in program.parts], [p.phase for p in program.parts])
    assert program.calls == sum(len(piece) for piece in pieces)
