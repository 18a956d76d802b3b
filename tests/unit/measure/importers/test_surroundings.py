"""Additional text around the output of a tool, or before or between its lines, does not change any result."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from meshmark.measure.importers.base import FormatError
from meshmark.measure.importers.formats import read_text
from support.imports import fixture, results_of, taken_from

DISTORTIONS: dict[str, Callable[[str], str]] = {
    "indented, as in documentation": lambda line: f"    {line}" if line else line,
    "quoted, as in mail": lambda line: f"> {line}".rstrip(),
    "with times in brackets": lambda line: f"[2024-05-03 10:11:12] {line}",
    "with times of ts": lambda line: f"Nov 28 10:11:12 {line}",
    "with messages of mpirun": lambda line: (
        f"{line}\n[n1:04711] 1 more process has sent help message a.txt / no device"
    ),
    "with messages of srun": lambda line: f"{line}\nsrun: job 42 queued and waiting for resources",
    "with messages of NCCL": lambda line: f"{line}\nn1:4711:4712 [0] NCCL INFO Bootstrap : Using eth0",
}


@pytest.mark.parametrize("distortion", DISTORTIONS)
@pytest.mark.parametrize(
    "name", ["osu.txt", "stream.txt", "hpl.txt", "imb.txt", "mlc-pair.txt", "likwid_perfctr.csv", "mess_bwlat.txt"]
)
def test_lines_around_and_before_those_of_a_tool_change_no_result(name: str, distortion: str) -> None:
    text = fixture(name)
    changed_text = "".join(DISTORTIONS[distortion](line) + "\n" for line in text.splitlines())
    assert [(r.metric, r.value, r.conditions) for r in taken_from(changed_text)] == [
        (r.metric, r.value, r.conditions) for r in taken_from(text)
    ]


def test_messages_between_the_rows_are_counted() -> None:
    text = fixture("osu.txt").splitlines()
    text[6:6] = ["[n1:04711] 1 more process has sent help message a.txt / no device", "slurmstepd: error: x"]
    assert results_of("\n".join(text) + "\n").other_lines == results_of(fixture("osu.txt")).other_lines + 2


def test_many_times_before_a_line_are_not_followed_without_end() -> None:
    assert read_text(("2024-01-01 10:00:00 " * 2000 + "\n") * 5, "n042") is None


def test_a_row_of_a_hundred_thousand_blanks_takes_no_time() -> None:
    begin = time.process_time()
    with pytest.raises(FormatError, match="line 2: found a line of 100008 characters"):
        read_text("Benchmark Time CPU Iterations\nBM" + " " * 100000 + "1.0 ns\n", "n042")
    assert time.process_time() - begin < 1
