"""Tables on the terminal: columns are conditions that were set and vary, not conditions that were observed."""

from __future__ import annotations

import re

import pytest

from meshmark.store.record import OBSERVED, Record
from meshmark.views.content.listing import listings
from meshmark.views.terminal.records import print_records
from support import made_run


def columns(records: list[Record], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the words of the headings of all tables."""
    print_records(records)
    headings = [line for line in capsys.readouterr().out.splitlines() if "median" in line and "95 % interval" in line]
    return " ".join(headings).replace(" cpu", "_cpu").split()


def test_what_programs_found_is_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    records = [r for seed in (1, 2) for r in made_run.programs(seed=seed)]
    for instrument in ("npb", "pop", "gyro", "swim", "anatomy"):
        instrument_records = [r for r in records if r.instrument == instrument]
        assert any(k in OBSERVED for r in instrument_records for k in r.conditions)
        assert not OBSERVED & {*columns(instrument_records, capsys)}
    assert "kernel" in columns([r for r in records if r.instrument == "npb"], capsys)


def test_states_of_a_line_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"state", "from_cpu"} <= {*columns(made_run.lines(2), capsys)}


def printed(records: list[Record], width: int, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that are printed on a terminal of this width."""
    from unittest import mock

    with mock.patch.dict("os.environ", {"COLUMNS": str(width)}), mock.patch("sys.stdout.isatty", return_value=True):
        print_records(records)
    return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("instrument", ["latency", "bandwidth", "loaded", "kernels", "npb", "anatomy", "pingpong"])
def test_a_table_has_no_column_that_never_varies(instrument: str) -> None:
    records = [r for r in [*made_run.everything(), *made_run.kernels()] if r.instrument == instrument]
    shared, tables = listings(records)
    assert sum(len(listing.records) for listing in tables) == len(records)
    for listing in tables:
        assert all(
            len({str(r.conditions[k]) for r in listing.records}) > 1 for k in listing.columns
        )  # every column varies and has a value in each row
        assert all(len({str(r.conditions[k]) for r in listing.records}) == 1 for k in (*listing.common, *shared))


def test_rows_are_in_the_order_of_their_conditions() -> None:
    records = [made_run.record("latency", "load_latency", 1e-9, footprint_bytes=2**k) for k in (20, 12, 9)]
    (listing,) = listings(records)[1]
    assert [r.conditions["footprint_bytes"] for r in listing.records] == [2**9, 2**12, 2**20]


def test_value_interval_and_flags_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        made_run.record("latency", "load_latency", 1e-9, footprint_bytes=4096),
        made_run.record("latency", "load_latency", 2e-9, ["stolen"], footprint_bytes=8192),
    ]
    title, metric, heading, first, second = printed(records, 120, capsys)
    assert title == "made-up: latency" and metric == "load_latency"
    assert heading.split() == ["median", "95", "%", "interval", "flags", "footprint", "best", "spread", "n"]
    assert "stolen" in second and "stolen" not in first and "8 KiB" in second


def test_a_flag_of_all_rows_stands_above_them(capsys: pytest.CaptureFixture[str]) -> None:
    records = [made_run.record("latency", "load_latency", 1e-9, ["stolen"], footprint_bytes=2**k) for k in (12, 13)]
    _, shared_line, heading, *rows = printed(records, 120, capsys)
    assert shared_line == "load_latency; all stolen" and "flags" not in heading and not any("stolen" in r for r in rows)


def test_a_narrow_terminal_leaves_out_the_last_columns_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(made_run.kernels(), 80, capsys)
    assert max(map(len, lines)) <= 80
    assert re.search(r"not shown at this width: n, .*flops", " ".join(lines))
    assert not any(line.startswith("not shown") for line in printed(made_run.kernels(), 200, capsys))


def test_an_interval_wider_than_requested_has_its_width(capsys: pytest.CaptureFixture[str]) -> None:
    record = made_run.record("latency", "load_latency", 1e-9, footprint_bytes=4096, interval_asked=0.0001)
    lines = printed([record], 120, capsys)
    assert "±" in lines[3] and lines[4] == "±: wider than the ±0.01 % requested"


def test_a_table_that_sweeps_threads_keeps_the_order_of_its_matrices(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        made_run.record(
            "dgemm",
            "flop_rate",
            rate * threads,
            n=n,
            threads=threads,
            cpus=f"0-{threads - 1}",
            library="openblas",
            library_path="/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3",
            runs=3,
            trial_SkylakeX=4.7638774457e10 + n + threads,
            trial_Cooperlake=4.6e10 + n * threads,
        )
        for n, rate in ((64, 1e10), (256, 2e10), (1000, 4e10))
        for threads in (1, 2)
    ]
    lines = printed(rows, 80, capsys)
    heading = next(line for line in lines if "median" in line)
    assert "order" in heading
    assert "trial" not in " ".join(lines)
    assert all(sum(f" {n} " in f"{line} " for line in lines) == 2 for n in (64, 256, 1000))


def test_the_order_of_a_matrix_is_not_mistaken_for_the_number_of_samples(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [made_run.record("dgemm", "flop_rate", 1e10 * n, n=n, threads=1) for n in (64, 1000)]
    output = "\n".join(printed(rows, 46, capsys))
    assert "64" in output
    assert "1000" in output
