"""Test the way from calibration data to programs that run, with a few real kernels; no test expects a speed."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meshmark.describe import find_probe
from meshmark.errors import MeshmarkError
from meshmark.load.calibration.base import variants_of
from meshmark.load.calibration.metrics import all_metrics
from meshmark.load.calibration.native import find_load
from meshmark.load.calibration.order import sequence
from meshmark.load.calibration.profile import parse_profile
from meshmark.load.calibration.variants import Variant
from meshmark.load.synthesis import synthesize
from meshmark.load.synthesis.make import calibrate, kernels, read_trial, run_program, shortened
from meshmark.load.synthesis.program import SyntheticProgram, dump_program
from meshmark.measure.runs.journal import read_journal

NAMES = "triad,copy,sum,dot,fill_past,gemm,horner,hash,stencil_2d_5pt,fft"


@pytest.fixture(scope="module")
def variants() -> list[Variant]:
    words = [
        find_probe(),
        "kernels",
        "--kernel",
        NAMES,
        "--volume",
        "256KiB,memory",
        "--stride",
        "1",
        "--threads",
        "1",
        "--budget",
        "1m",
    ]
    completed = subprocess.run(words, capture_output=True, check=True, timeout=120)
    return variants_of(read_journal(completed.stdout.splitlines(keepends=True), "kernels").records)


@pytest.fixture(scope="module")
def program(variants: list[Variant]) -> SyntheticProgram:
    keys: dict[str, Any] = {
        "name": "p",
        "run_time_s": 0.6,
        "memory_gb_per_s": 2.0,
        "write_fraction": 0.3,
        "gflop_per_s": 1.0,
        "least_kernels": 5,
    }
    return synthesize(variants, parse_profile(keys, "test", all_metrics()))


@pytest.mark.slow
def test_base_data_are_calls_of_a_quarter_of_a_millisecond(variants: list[Variant]) -> None:
    assert {v.kernel for v in variants} == set(NAMES.split(","))
    for v in variants:
        unit_s = v.wall_s / v.window
        assert v.window & (v.window - 1) == 0
        assert v.wall_s <= 1e-3 or v.window == 1
        assert v.wall_s >= 5e-5 or unit_s > 2.5e-5, v
    triad = max((v for v in variants if v.kernel == "triad"), key=lambda v: v.volume_bytes)
    assert triad.served_by == "memory"  # for any size of the caches, which is 480 MiB on some machines
    assert triad.flops == 128 * triad.window  # 64 elements per unit, two operations per element
    assert triad.line_read_bytes == 3 * 512 * triad.window
    assert triad.line_write_bytes == 512 * triad.window
    assert {v.served_by for v in variants if v.kernel == "horner"} == {"L1"}


def test_counts_done_are_those_planned(program: SyntheticProgram) -> None:
    trial = run_program(program)
    totals = program.totals()
    for name in ("flops", "int_ops", "load_bytes", "store_bytes", "memory_read_bytes", "memory_write_bytes"):
        assert trial.totals[name] == pytest.approx(totals[name], rel=1e-9), name
    assert trial.totals["calls"] == program.calls
    assert trial.totals["planned_s"] == pytest.approx(totals["wall_s"])
    assert trial.metrics["write_fraction"] == pytest.approx(0.3, abs=0.005)
    assert set(trial.per_call_s) == {p.variant.name for p in program.parts}
    assert trial.wall_s >= trial.dedicated_s > 0
    assert sum(w["calls"] for w in trial.windows) == program.calls


def test_a_paced_program_keeps_to_its_schedule(program: SyntheticProgram) -> None:
    target = dataclasses.replace(program.profile, pace=0.5)
    long = dataclasses.replace(program, profile=dataclasses.replace(target, run_time_s=2.5 * target.run_time_s))
    trial = run_program(long)
    # The kernels take 0.6 s if a CPU is free; no call begins before its scheduled time.
    assert trial.wall_s >= 2.5 * target.run_time_s
    overtime_s = trial.wall_s - 2.5 * target.run_time_s
    assert overtime_s - 0.5 < trial.late_s < overtime_s + 0.01  # other work may delay the program after its last call
    assert trial.late_s > 0 or trial.spun_s > 0
    assert trial.spun_s < trial.wall_s
    assert trial.metrics["memory_gb_per_s"] * trial.wall_s == pytest.approx(
        (trial.totals["memory_read_bytes"] + trial.totals["memory_write_bytes"]) / 1e9
    )
    assert run_program(program).spun_s == 0


def test_native_order_is_that_of_the_plan(program: SyntheticProgram, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(dump_program(program))
    completed = subprocess.run([find_load(), "program", file, "--order"], capture_output=True, text=True, check=True)
    names = [p.variant.name for p in program.parts]
    planned = [
        names[i]
        for piece in sequence([p.calls for p in program.parts], [p.phase for p in program.parts])
        for i in piece
    ]
    assert completed.stdout.split() == planned


def test_calibration_moves_towards_what_calls_took(program: SyntheticProgram) -> None:
    messages: list[str] = []
    calibrated, trials = calibrate(program, 0.6, 1, floor=0.0, progress=messages.append)
    assert len(trials) == 1 and calibrated.calibrations == 1 and messages
    assert {p.variant.name for p in calibrated.parts} <= {p.variant.name for p in program.parts}
    slow_trial = read_trial(
        program,
        [
            {
                "type": "variant",
                "name": p.variant.name,
                "calls": p.calls,
                "wall_s": 3 * p.calls * p.variant.wall_s,
                "cpu_s": 3 * p.calls * p.variant.wall_s,
            }
            for p in program.parts
        ]
        + [
            {
                "type": "end",
                "wall_s": 1.8,
                "user_s": 1.8,
                "system_s": 0.0,
                "waiting_s": 0.0,
                "spun_s": 0.0,
                "late_s": 0.0,
            }
        ],
    )
    assert slow_trial.dedicated_s == 1.8 and not slow_trial.disturbed


def test_a_shortened_program_keeps_its_mix(program: SyntheticProgram) -> None:
    half = shortened(program, program.profile.run_time_s / 2)
    for whole, part in zip(program.parts, half.parts, strict=True):
        assert part.calls == max(1, round(whole.calls / 2))
    assert shortened(program, 100.0).parts == program.parts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "recipe"}, "format"),
        ({"shares": [0.5]}, "shares"),
        ({"variants": []}, "variants"),
    ],
)
def test_a_wrong_file_is_one_line(program: SyntheticProgram, tmp_path: Path, change: dict[str, Any], says: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({**json.loads(dump_program(program)), **change}))
    completed = subprocess.run([find_load(), "program", file], capture_output=True, text=True, check=False)
    assert completed.returncode == 1 and len(completed.stderr.splitlines()) == 1 and says in completed.stderr


def test_counts_of_another_version_are_refused(program: SyntheticProgram, tmp_path: Path) -> None:
    raw = json.loads(dump_program(program))
    raw["variants"][0]["load_bytes"] = raw["variants"][0].get("load_bytes", 0) + 8
    file = tmp_path / "p.json"
    file.write_text(json.dumps(raw))
    completed = subprocess.run([find_load(), "program", file], capture_output=True, text=True, check=False)
    assert completed.returncode == 1 and "make it again" in completed.stderr and "load_bytes" in completed.stderr


def test_who_was_to_start_it_is_gone(program: SyntheticProgram, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(dump_program(program))
    completed = subprocess.run(
        [find_load(), "program", file, "--wait"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert completed.returncode == 0 and [json.loads(x)["type"] for x in completed.stdout.splitlines()] == ["ready"]


def test_a_missing_program_is_one_line(program: SyntheticProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHMARK_LOAD", "/proc/nowhere/meshmark-load")
    with pytest.raises(MeshmarkError, match="meshmark-load not found at"):
        run_program(program)


def test_the_published_set_and_fifty_six(tmp_path: Path) -> None:
    rows = kernels()
    assert len(rows) >= 56 and sum(r["parity"] for r in rows) >= 28
    assert len({r["name"] for r in rows}) == len(rows)


@pytest.mark.slow
def test_threads_share_a_call(variants: list[Variant]) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    from dataclasses import replace

    team_variants = [replace(v, name=v.name.replace("/t1", "/t2"), threads=2) for v in variants]
    keys = {"name": "p", "run_time_s": 0.3, "gflop_per_s": 1.0, "threads": 2, "load_balance": 0.75, "least_kernels": 4}
    trial = run_program(synthesize(team_variants, parse_profile(keys, "test", all_metrics())))
    assert trial.totals["flops"] > 0 and not trial.totals.get("wrong")


@pytest.mark.slow
def test_threads_do_not_meet_in_a_unit() -> None:
    """A call passes over a small volume many times, and an incomplete pass is divided differently than the next one.

    Two threads in one matrix spoil it, but not every time: only a failure of this test is conclusive.
    """
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    words = [
        find_probe(),
        "kernels",
        "--kernel",
        "eigen_step,fft",
        "--volume",
        "16KiB,256KiB",
        "--threads",
        "2",
        "--budget",
        "2s",
    ]
    completed = subprocess.run(words, capture_output=True, check=True, timeout=60)
    variants = variants_of(read_journal(completed.stdout.splitlines(keepends=True), "kernels").records)
    keys = {"run_time_s": 3.0, "threads": 2, "load_balance": 0.7, "least_kernels": 1, "most_share": 1.0}
    program = synthesize(variants, parse_profile(keys, "test", all_metrics()))
    assert run_program(program, env={"OMP_WAIT_POLICY": "passive"}).totals["flops"] > 0
