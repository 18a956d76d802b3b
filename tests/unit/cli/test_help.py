"""The help of all commands has one form: usage, text, an example, options with defaults, within 80 columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main

from meshmark.cli.app import app
from support.cli import meshmark

INSTRUMENTS = ("latency", "halo", "npb", "io")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = [*commands(typer.main.get_command(app)), *(("measure", name) for name in INSTRUMENTS)]


@cache
def help_of(path: tuple[str, ...]) -> str:
    return meshmark(*path, "--help", env={"COLUMNS": "80"}).stdout


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_has_one_form(path: tuple[str, ...]) -> None:
    usage, *lines = (text := help_of(path)).splitlines()
    assert re.match(rf"Usage: meshmark {' '.join(path)} [\[A-Z]", usage)
    assert max(map(len, lines)) <= 80
    assert re.search(r"^  example: .*meshmark ", text, re.M), path
    if path not in {("measure",), ("help",), ("version",), ("completion",)}:
        assert "\nOptions:\n" in text and re.search(r"^  -h, --help +Show this message and exit\.$", text, re.M)
    # Each line is empty, an indented paragraph or a heading that is not indented.
    assert all(re.match(r"  |\w[\w ]*:|$", line) for line in lines), [x for x in lines if not re.match("  |\\w|$", x)]


GROUPS = [(), ("fleet",), ("store",), ("machine",), ("model",), ("load",), ("load", "study")]


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_no_summary_is_cut(path: tuple[str, ...]) -> None:
    usage, *lines = help_of(path).splitlines()
    assert usage.startswith("Usage: ") and not any("..." in line or "…" in line or len(line) > 80 for line in lines)


@pytest.mark.parametrize("path", [*ALL, ("measure", "app"), ("measure", "composite")], ids=" ".join)
def test_types_of_options_have_one_style(path: tuple[str, ...]) -> None:
    _, _, text = help_of(path).partition("\nOptions")
    other_styles = r"^  (?:-\w, )?-[\w-]+ (?:[A-Z]\S*|<[^>]*[A-Z ][^>]*>|<(?:str|float|integers?|list\[.*)>)"
    assert re.findall(other_styles, text, re.M) == []
    if path == ("fleet", "run"):
        assert "--nodes <set> " in text and "--random <int> " in text and "--spec <text> " in text
