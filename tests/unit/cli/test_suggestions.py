"""Errors about options and commands suggest what was probably meant."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from meshmark.entry import native_argv
from meshmark.errors import near_option
from support.cli import meshmark, start


@pytest.mark.parametrize(
    ("words", "option", "hint"),
    [
        ("measure latency --threads 4", "--threads", "did you mean --processes?"),
        ("measure bandwidth --processes 4", "--processes", "did you mean --threads?"),
        ("measure latency --footprnt 1MiB", "--footprnt", "did you mean --footprint?"),
        ("measure llm --size 4GB", "--size", "did you mean --weights?"),
        ("measure io --xyz 4", "--xyz", "meshmark measure io --help"),
        ("measure app --repetition 4", "--repetition", "did you mean --repetitions?"),
        ("watch --hz 3", "--hz", "did you mean --rate?"),
        ("fleet run --threads 4", "--threads", "meshmark fleet run --help"),
    ],
)
def test_an_unknown_option_names_the_right_one(words: str, option: str, hint: str) -> None:
    completed = meshmark(*words.split())
    error, hint_line = completed.stderr.splitlines()
    assert completed.returncode == 2 and f"found '{option}'; allowed: --" in error and hint_line == f"hint: {hint}"


def test_a_missing_value_names_the_help_of_its_command() -> None:
    assert meshmark("store", "export", "--since").stderr.endswith("hint: meshmark store export --help\n")


def test_another_name_of_an_option_must_be_allowed() -> None:
    assert near_option("--threads", ["--ranks", "--resume"]) == "did you mean --ranks?"
    assert near_option("--threads", ["--resume"]) == ""


def test_a_command_needs_no_dashes_if_no_option_precedes_it() -> None:
    assert native_argv(["run", "./a", "10", "-n", "3"]) == ["run", "--", "./a", "10", "-n", "3"]
    assert native_argv(["run", "-n", "3", "--", "./a"]) == ["run", "-n", "3", "--", "./a"]
    assert native_argv(["run"]) == ["run"]
    completed = meshmark("run", "sh", "-c", "echo $0 $1; exit 5", "-x", "--y")
    assert completed.stdout == "-x --y\n" and completed.returncode == 5
    assert "--" in meshmark("run", "-n", "1", "echo", "hi").stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_watch_like_other_commands(number: int, status: int) -> None:
    child = start("watch", "--json")
    assert child.stdout is not None and json.loads(child.stdout.readline())["type"] == "header"
    child.send_signal(number)
    _, message = child.communicate(timeout=60)
    assert child.returncode == status and message.startswith("meshmark: ") and message.count("\n") == 1


def test_frames_of_a_model_replay(tmp_path: Path) -> None:
    frames = tmp_path / "hot.jsonl"
    words = ("hot_spot", "gs1280-4", "--chains", "1..4", "--no-store")
    assert meshmark("model", "measure", *words, "--frames", frames).returncode == 0
    lines = [json.loads(line) for line in meshmark("replay", frames, "--json").stdout.splitlines()]
    times = [line["t_s"] for line in lines[1:]]
    assert len(lines) == len(frames.read_text().splitlines()) > 3
    assert times == sorted(set(times)) and [line["seq"] for line in lines[1:]] == [*range(1, len(lines))]


def test_frames_without_a_header_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "f.jsonl"
    file.write_text('{"type": "frame"}\n')
    completed = meshmark("replay", file)
    assert (
        completed.returncode == 1
        and "the first line must be a header" in completed.stderr
        and "hint: " in completed.stderr
    )
