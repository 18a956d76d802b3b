"""Tests of numbers from users: only finite numbers with ASCII digits are accepted, wherever they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.cli.options import share
from meshmark.errors import UsageError
from meshmark.model.sweeps.sweep import values_of
from meshmark.values.numbers import decimal, whole
from support.cli import meshmark

NOT_NUMBERS = ["", "٣", "３", "²", "1_0", "nan", "inf", "1e999", "0x1", "1 2", "-", ".", "1e", "½", "十"]


@pytest.mark.parametrize("text", NOT_NUMBERS)
def test_what_python_takes_for_a_number_need_not_be_one(text: str) -> None:
    assert decimal(text) is None and whole(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), (" -2.5 ", -2.5), ("1e-3", 0.001), (".5", 0.5), ("5.", 5.0), ("+3", 3.0)]
)
def test_plain_numbers_are_read(text: str, value: float) -> None:
    assert decimal(text) == value
    assert whole(text) == (int(value) if text.strip("+- ").isdigit() else None)


def test_integers_beyond_18_digits_are_refused() -> None:
    assert whole("9" * 18) == 10**18 - 1 and whole("9" * 19) is None


@pytest.mark.parametrize("text", ["٣%", "３%", "nan%", "1_0%", "²%", "5"])
def test_a_share_in_other_digits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-on: found"):
        share("--fail-on", text)
    assert share("--fail-on", "2.5%") == 0.025


@pytest.mark.parametrize("text", ["١..2/3", "1..２/3", "1..2/٣", "1..inf/3"])
def test_a_range_in_other_digits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--vary: found"):
        values_of(text)


@pytest.mark.parametrize("text", ["٣", "３", "1_0"])
def test_an_option_that_takes_an_integer_refuses_other_digits(text: str) -> None:
    completed = meshmark("check-os", "--starts", text)
    assert completed.returncode == 2 and "--starts" in completed.stderr and "unexpected" not in completed.stderr


def test_options_with_units_and_paths_are_not_taken_for_numbers(tmp_path: Path) -> None:
    completed = meshmark("measure", "clock", "--budget", "1x", "--store", tmp_path / "store")
    assert completed.returncode == 2 and "ASCII digits" not in completed.stderr and "unexpected" not in completed.stderr
    planned = meshmark("measure", "clock", "--budget", "10s", "--store", tmp_path / "store", "--plan")
    assert "unexpected" not in planned.stderr
