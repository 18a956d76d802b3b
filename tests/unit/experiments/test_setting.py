"""Tests of the settings of an experiment: their grammar, their command lines, and the value of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import UsageError
from meshmark.experiments.figure import FigureOfMerit, FigureValue
from meshmark.experiments.setting import both, parse
from meshmark.place.native import find_place

COMMAND = ["./a.out", "two words"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("same", {}),
        ("N=1", {"N": "1"}),
        ("N=", {"N": ""}),
        ("OMP_NUM_THREADS=4,OMP_PROC_BIND=close", {"OMP_NUM_THREADS": "4", "OMP_PROC_BIND": "close"}),
        ("GOMP_CPU_AFFINITY=0,1,2", {"GOMP_CPU_AFFINITY": "0,1,2"}),
        ("OMP_PLACES={0},{1},N=2", {"OMP_PLACES": "{0},{1}", "N": "2"}),
        ("OPTIONS=a=b,c=d", {"OPTIONS": "a=b,c=d"}),
        ("N=1 + M=2", {"N": "1", "M": "2"}),
    ],
)
def test_variables_are_separated_by_commas_before_upper_case_names(text: str, expected: dict[str, str]) -> None:
    setting = parse("A", text)
    assert setting.environment == expected and setting.argv(COMMAND, False) == COMMAND


def test_placements_are_options_of_meshmark_run_which_both_settings_go_through() -> None:
    bound = parse("B", "bind:compact,near=eth0 + slots:2 + memory:interleave + pages:thp + run:--hard")
    start = [str(find_place()), "run"]
    options = ["--bind", "compact,near=eth0", "-n", "2", "--memory", "interleave", "--pages", "thp", "--hard"]
    assert bound.argv(COMMAND, True) == [*start, *options, "--", *COMMAND]
    neutral = ["--bind", "none", "--memory", "default", "--pages", "default"]
    assert parse("A", "same").argv(COMMAND, True) == [*start, *neutral, "--", *COMMAND]


def test_a_shell_command_goes_to_the_end_whatever_it_contains() -> None:
    setting = parse("A", "N=1 + shell:echo 0 > /proc/x; echo 1 + 1")
    assert setting.shell_argv() == ["sh", "-c", "echo 0 > /proc/x; echo 1 + 1"] and setting.environment == {"N": "1"}


def test_another_machine_gets_one_quoted_line() -> None:
    setting = parse("A", "ssh:me@n2 + N=a b + shell:sync")
    ssh = ["ssh", "-o", "BatchMode=yes", "me@n2", "--"]
    assert setting.argv(COMMAND, False) == [*ssh, "env 'N=a b' ./a.out 'two words'"]
    assert setting.argv(["x"], True)[-1].startswith("env 'N=a b' meshmark run --bind none ")
    assert setting.shell_argv() == [*ssh, "sync"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "A: found ''; allowed: same, NAME=VALUE, bind:…"),
        ("bimd:compact", "A: found 'bimd:compact'; allowed: same"),
        ("bind:compcat", "A: bind: found 'compcat'; allowed: balance"),
        ("bind:", "A: found 'bind:', a value after the colon is required"),
        ("memory:fast", "A: memory: found 'fast'; allowed: default"),
        ("pages:3MiB", "A: pages: found '3MiB'"),
        ("slots:0", "A: slots: found '0', a number from 1 is required"),
        ("slots:many", "A: slots: found 'many'"),
        ("run:--bind 'x", "A: run: found"),
        ("ssh:-oProxyCommand=x", "A: ssh: found '-oProxyCommand=x'; allowed: [USER@]HOST"),
        ("ssh:two words", "A: ssh: found 'two words'"),
        ("N=\0", "A: found a NUL character"),
        ("faster", "A: found 'faster'"),
    ],
)
def test_what_is_no_setting_is_one_line(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        parse("A", text)


@pytest.mark.parametrize("sides", [("same", "shell:x"), ("shell:x", "same")])
def test_a_shell_command_of_one_setting_would_last_in_the_other(sides: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match="would keep its effect"):
        both(*sides)
    assert both("shell:x", "shell:y")[1].shell == "y"


# ------------------------------------------------------------------ figures


def line(value: float, metric: str = "bandwidth_net", **changes: Any) -> str:
    return json.dumps(
        {
            "type": "result",
            "source": "host",
            "machine": "m",
            "instrument": "x",
            "metric": metric,
            "unit": "B/s",
            "better": "higher",
            "value": value,
            "interval": None,
            "samples": [value],
            "conditions": {},
            "flags": ["disturbed"],
            "provenance": {},
            **changes,
        }
    )


def read(tmp_path: Path, figure: FigureOfMerit, out: str, err: str = "") -> FigureValue | str:
    (tmp_path / "out").write_text(out)
    (tmp_path / "err").write_text(err)
    figure.check()
    return figure.read(1.5, tmp_path / "out", tmp_path / "err")


def test_without_options_it_is_the_elapsed_time(tmp_path: Path) -> None:
    assert read(tmp_path, FigureOfMerit(), "rate: 3") == FigureValue(1.5, "s", "lower")


def test_a_pattern_takes_the_last_match_of_both_outputs(tmp_path: Path) -> None:
    rate = FigureOfMerit(pattern=r"rate: (\S+)", better="higher")
    assert read(tmp_path, rate, "rate: 3\nrate: 4e1\n") == FigureValue(40.0, "1", "higher")
    assert read(tmp_path, rate, "rate: 3", "rate: 5") == FigureValue(5.0, "1", "higher")
    for out in ("", "rate: fast", "rate: nan", "rate: -1", "rate: 0"):
        assert "a positive number is required" in str(read(tmp_path, rate, out)), out


def test_a_metric_is_the_geometric_mean_of_its_records_with_their_unit_and_flags(tmp_path: Path) -> None:
    figure = FigureOfMerit(metric="bandwidth_net")
    value = read(tmp_path, figure, f"text\n{{broken\n{line(2e9)}\n{line(8e9)}\n{line(1, 'other')}\n")
    assert isinstance(value, FigureValue)
    assert value.value == pytest.approx(4e9)
    assert (value.unit, value.better, value.points, value.flags) == ("B/s", "higher", 2, ("disturbed",))


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("", "found no record of bandwidth_net in the output"),
        (line(1, "other"), "found no record of bandwidth_net in the output; found other"),
        (line(1, samples=[2.0]), "value: found 1, the median of the samples is 2.0"),
        (line(0.0), "found 0, a value above 0 is required"),
        (line(1, better="none"), "has no direction; --better lower or higher is required"),
        ("[" * 10000, "found no record"),
        ("{" * 10000, "found no record"),
    ],
)
def test_garbage_instead_of_records_is_one_line(tmp_path: Path, out: str, why: str) -> None:
    value = read(tmp_path, FigureOfMerit(metric="bandwidth_net"), out)
    assert why in str(value) and "\n" not in str(value)


@pytest.mark.parametrize(
    ("figure", "why"),
    [
        (FigureOfMerit(pattern="x", metric="y", better="lower"), "--pattern: found with --metric"),
        (FigureOfMerit(pattern="x"), "--better: required with --pattern"),
        (FigureOfMerit(better="lower"), "--better: found without --pattern or --metric"),
        (FigureOfMerit(metric="x", better="faster"), "--better: found 'faster'; allowed: lower, higher"),
        (
            FigureOfMerit(pattern="x{99999999999}", better="lower"),
            "--pattern: found 'x{99999999999}', which is not a regular",
        ),
        (FigureOfMerit(pattern="(" * 999 + ")" * 999, better="lower"), "it is nested too deep"),
        (
            FigureOfMerit(pattern="x" * 2001, better="lower"),
            "--pattern: found 2001 characters; allowed: a regular expression",
        ),
        (FigureOfMerit(pattern="(", better="lower"), "--pattern: found '(', which is not a regular expression"),
    ],
)
def test_contradicting_options_are_refused(figure: FigureOfMerit, why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        figure.check()
