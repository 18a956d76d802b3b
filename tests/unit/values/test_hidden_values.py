"""Tests of hidden values: placeholders replace secrets, and only the process that hid them reveals them."""

from __future__ import annotations

import pytest

from meshmark.errors import UsageError
from meshmark.values.secrets import (
    hide_command,
    hide_text,
    hide_value,
    hide_values,
    hide_words,
    mask_text,
    mask_variables,
    mask_words,
    reveal_text,
    reveal_value,
    reveal_variables,
    reveal_words,
)


def test_each_value_of_a_variable_has_a_placeholder_of_its_own() -> None:
    assert [hide_value("ONE_TOKEN", value) for value in ("first", "second", "first", "third")] == ["…", "…2", "…", "…3"]
    assert [reveal_value("ONE_TOKEN", text) for text in ("…", "…2", "…3")] == ["first", "second", "third"]
    assert hide_value("OTHER_TOKEN", "second") == "…" and reveal_value("OTHER_TOKEN", "…") == "second"


def test_placeholders_and_references_are_not_hidden_again() -> None:
    for text in ("…", "…2", "{dimension}", "$NAME", "${NAME}"):
        assert hide_value("SOME_TOKEN", text) == text
    assert hide_value("SOME_TOKEN", "…x") == "…" and hide_value("SOME_TOKEN", "$a$b") == "…2"


def test_only_the_placeholder_of_a_secret_is_revealed() -> None:
    assert reveal_value("THREADS", "…") == "…" and reveal_value("A_TOKEN", "plain") == "plain"
    assert reveal_text("THREADS=…") == "THREADS=…"


def test_the_environment_has_the_first_value_of_an_earlier_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATER_TOKEN", "given")
    assert reveal_value("LATER_TOKEN", "…") == "given" and reveal_text("LATER_TOKEN=…") == "LATER_TOKEN=given"
    with pytest.raises(UsageError, match="the value of LATER_TOKEN was not recorded") as second:
        reveal_value("LATER_TOKEN", "…2")
    assert second.value.hint == "start a new run"
    with pytest.raises(UsageError) as first:
        reveal_value("ABSENT_TOKEN", "…")
    assert first.value.hint == "set the environment variable ABSENT_TOKEN"
    monkeypatch.setenv("LATER_API_KEY", "of an option")
    assert reveal_text("--later-api-key=…") == "--later-api-key=of an option"
    assert hide_value("LATER_TOKEN", "new") == "…" and reveal_value("LATER_TOKEN", "…") == "new"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("A_TOKEN=x,B_TOKEN=y,N=3", "A_TOKEN=…,B_TOKEN=…,N=3"),
        ("A_TOKEN=x + B=2", "A_TOKEN=… + B=2"),
        ("A_TOKEN=x,y B=2", "A_TOKEN=…"),
        ("N=3,A_TOKEN=two\nlines", "N=3,A_TOKEN=…"),
        ("A_TOKEN=", "A_TOKEN="),
        ("A_TOKEN==x", "A_TOKEN==x"),
        ("A_TOKEN=B_TOKEN=x", "A_TOKEN=…"),
        ("--token=x", "--token=…"),
        ("--api-key=x", "--api-key=…"),
        ("--hf-token=x,A=1", "--hf-token=…,A=1"),
        ("-Dstore-pass=x", "-Dstore-pass=…"),
        ("--num-threads=4", "--num-threads=4"),
    ],
)
def test_a_value_extends_to_the_next_part_of_a_setting(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert reveal_text(hide_text(text)) == text


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["--api-key", "x"], ["--api-key", "…"]),
        (["-hf-token", "x", "y"], ["-hf-token", "…", "y"]),
        (["--api-key", "--verbose"], ["--api-key", "--verbose"]),
        (["--sort-key", "2", "--rope-key", "1.5"], ["--sort-key", "2", "--rope-key", "1.5"]),
        (["--token-file", "x", "--num-threads", "four"], ["--token-file", "x", "--num-threads", "four"]),
        (["--api-key=x", "y"], ["--api-key=…", "y"]),
        (["api-key", "x", "--", "z"], ["api-key", "x", "--", "z"]),
        (["--other-key", "A_TOKEN=x"], ["--other-key", "…"]),
        (["--api-key"], ["--api-key"]),
    ],
)
def test_the_word_after_an_option_of_a_secret_is_its_value(words: list[str], masked: list[str]) -> None:
    assert mask_words(words) == hide_command(words) == masked
    assert reveal_words(hide_words(words)) == words


def test_several_values_of_an_option_have_placeholders_of_their_own() -> None:
    words = ["--one-key", "first", "--one-key", "second", "--one-key=first"]
    assert hide_words(words) == ["--one-key", "…", "--one-key", "…2", "--one-key=…"]
    assert reveal_words(hide_words(words)) == words


def test_a_hidden_value_is_masked_where_it_stands_alone() -> None:
    hide_text("LONG_TOKEN=abcdefgh-1")
    hide_text("LONG_TOKEN=abcdefgh")
    hide_text("SHORT_TOKEN=abcde")
    hide_text("EXACT_TOKEN=uvwxyz")
    words = ["see abcdefgh-1, abcdefgh", "see abcde", "see uvwxyz"]
    assert mask_words(words) == ["see …, …", "see abcde", "see …"]


def test_variables_are_masked_by_their_names() -> None:
    assert mask_variables({"A_TOKEN": "x", "N": "3", "ARGS": "--token=x"}) == {
        "A_TOKEN": "…",
        "N": "3",
        "ARGS": "--token=…",
    }


def test_a_command_is_a_list_of_words_or_one_text() -> None:
    assert hide_command(["env", "CMD_TOKEN=x y", 3]) == ["env", "CMD_TOKEN=…", 3]
    assert hide_command(("env", "CMD_TOKEN=x y")) == ["env", "CMD_TOKEN=…"]
    assert hide_command("env 'CMD_TOKEN=x y' a  b") == "env 'CMD_TOKEN=…' a b"
    for value in ("a  b 'c d'", "a 'b", 3, {"a": 1}):
        assert hide_command(value) == value


def test_variables_have_one_value_or_a_list_of_them() -> None:
    variables = {"V_TOKEN": ["a", 1, True], "N": ["a", 1], "W_TOKEN": 2.5, "X_TOKEN": True, "M": 4, "Y_TOKEN": "a, b"}
    assert hide_values(variables) == {
        "V_TOKEN": ["…", "…2", True],
        "N": ["a", 1],
        "W_TOKEN": "…",
        "X_TOKEN": True,
        "M": 4,
        "Y_TOKEN": "…",
    }
    assert [reveal_value("V_TOKEN", text) for text in ("…", "…2")] == ["a", "1"]
    assert reveal_variables({"W_TOKEN": "…", "Y_TOKEN": "…", "N": "V_TOKEN=…2"}) == {
        "W_TOKEN": "2.5",
        "Y_TOKEN": "a, b",
        "N": "V_TOKEN=1",
    }


def test_a_text_of_a_dimension_is_a_list_with_commas() -> None:
    assert hide_values({"D_TOKEN": "a, b,a", "N": "1, 2"}, is_list=True) == {"D_TOKEN": ["…", "…2", "…"], "N": "1, 2"}
    assert [reveal_value("D_TOKEN", text) for text in ("…", "…2")] == ["a", "b"]


def test_other_data_stays_as_it_is() -> None:
    assert hide_values(["A_TOKEN=x"]) == ["A_TOKEN=x"] and hide_values(None) is None
