"""Options that were renamed keep working for one release, with a note."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.cli.options import RENAMED, current


@pytest.mark.parametrize(
    ("argv", "now"),
    [
        (["load", "base", "--quick", "--anyway"], ["load", "base", "--quick", "--force"]),
        (["model", "place-io", "gs1280-4", "--least=max"], ["model", "place-io", "gs1280-4", "--minimize=max"]),
        (["model", "show", "--numbers", "gs1280-4"], ["model", "show", "--origins", "gs1280-4"]),
        (["watch", "--of", "wire", "--web"], ["watch", "--full-scale", "theoretical", "--web"]),
        (["watch", "--of=attained"], ["watch", "--full-scale=sustained"]),
        (["watch", "--of"], ["watch", "--full-scale"]),
    ],
)
def test_an_old_name_is_replaced_with_a_note(argv: list[str], now: list[str]) -> None:
    found, notes = current(argv)
    assert found == now
    assert len(notes) == 1 and "is now --" in notes[0] and "0.2.0" in notes[0]


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["model"],
        ["model", "measure", "trace", "--numbers"],
        ["load", "run", "x.toml", "--anyway"],
        ["record", "--of"],
    ],
)
def test_other_commands_and_options_stay(argv: list[str]) -> None:
    assert current(argv) == (argv, [])


@pytest.mark.parametrize(("command", "new"), [(command, new) for command, _, new, _ in RENAMED])
def test_the_new_name_is_in_the_help_and_the_old_one_is_not(command: tuple[str, ...], new: str) -> None:
    old = next(o for c, o, n, _ in RENAMED if (c, n) == (command, new))
    shown = subprocess.run(
        [sys.executable, "-m", "meshmark", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    ).stdout.split()
    assert new in shown and old not in shown


def test_a_command_line_of_the_previous_release_runs(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    argv = [sys.executable, "-m", "meshmark", "model", "place-io", "gs1280-4", "--least", "max"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    assert "hops, maximum" in done.stdout
    assert done.stderr.startswith("meshmark: note: --least is now --minimize")


@pytest.mark.parametrize(
    ("argv", "new"),
    [
        (["run", "--say", "--bind", "none", "--", "true"], "--verbose"),
        (["migrate", "--threads-too", "--to", "0", str(2**22)], "--with-threads"),
    ],
)
def test_the_native_placer_takes_old_names_too(argv: list[str], new: str) -> None:
    done = subprocess.run([sys.executable, "-m", "meshmark", *argv], capture_output=True, text=True, check=False)
    assert f"is now {new}; the old name will be removed in 0.2.0" in done.stderr.splitlines()[0]
    shown = subprocess.run(
        [sys.executable, "-m", "meshmark", argv[0], "--help"], capture_output=True, text=True, check=True
    )
    assert new in shown.stdout.split() and argv[1] not in shown.stdout
