"""likwid-bench. The fixture is a real run of LIKWID 5.2.2 (`-t triad -W N:16MB:1 -s 1`) on a busy virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.tools.base import FormatError
from meshmark.measure.tools.likwid_bench import read, recognises

TEXT = (Path(__file__).parent / "fixtures" / "likwid_bench.txt").read_text(encoding="utf-8")


def test_rate_and_cycles_are_those_printed() -> None:
    assert recognises(TEXT)
    made = {r.metric: r for r in read(TEXT, "n042")}
    assert {k: r.value for k, r in made.items()} == pytest.approx(
        {
            "bandwidth_net": 1220.05e6,
            "flop_rate": 76.25e6,
            "cycles_per_update": 68.091582,
            "cpu_clock": 2596095221.0,
            "elapsed": 6.714486,
        }
    )
    rate = made["bandwidth_net"]
    assert rate.instrument == "bandwidth" and rate.conditions["kernel"] == "vector_triad"
    assert rate.conditions["threads"] == 1 and rate.conditions["footprint_bytes"] == 16_000_000


def test_the_name_of_the_test_gives_kernel_stores_and_instructions() -> None:
    (rate, *_) = read(TEXT.replace("Test: triad", "Test: stream_mem_sse"), "n042")
    assert rate.conditions["kernel"] == "triad" and rate.conditions["isa"] == "sse2"
    assert rate.conditions["store"] == "streaming"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("MByte/s:\t\t1220.05", "MByte/s:\t\t12e0.e5", "line 28: MByte/s: found '12e0.e5', a number is required"),
        ("MByte/s:\t\t1220.05", "MByte/s:\t\t220.05", "do not give; a cell is damaged"),
        ("Cycles per update", "Cycles per", "found no 'Cycles per update:'"),
        ("UOPs:\t\t\t1920000000\n" + 80 * "-", "UOPs:\t\t\t19", "found no line of dashes at the end"),
        ("Using 1 threads", "Using 2 threads", "found 1 lines 'Group"),
    ],
)
def test_what_is_damaged_is_refused(old: str, new: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read(TEXT.replace(old, new), "n042")
