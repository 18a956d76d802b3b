"""Test `meshmark model init` with a template: the file, the table of numbers and the errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshmark.model.machine import read_machine
from support.cli import meshmark

ONE = "one-socket --cores 8 --idle-local 75ns --read 40GB/s"
TWO = "two-socket --cores 16 --idle-local 80ns --idle-remote 140ns --read 150GB/s"


def test_a_template_writes_a_file_and_says_how_each_number_was_found(tmp_path: Path) -> None:
    completed = meshmark("model", "init", *TWO.split(), "--triad", "105GB/s", "--clock", "2.4GHz", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    lines = {line.split()[0]: " ".join(line.split()) for line in completed.stdout.splitlines()}
    assert lines["idle-remote"] == "idle-remote 140.0 ns 140.0 ns +0.0 % fitted: links.socket.latency_ns"
    assert "assumed: links.socket.bandwidth_gb_per_s" in lines["link"] and lines["clock"].endswith("given")
    assert (
        "machine file: two-socket.toml" in completed.stderr
        and "next: meshmark measure latency --on" in completed.stderr
    )
    assert read_machine(tmp_path / "two-socket.toml").data["node"]["cpus"] == 8
    second = meshmark("model", "init", *TWO.split(), cwd=tmp_path)
    assert second.returncode == 2 and "exists; allowed: a new file, or --force" in second.stderr


def test_json_has_si_numbers(tmp_path: Path) -> None:
    completed = meshmark("model", "init", *ONE.split(), "mine.toml", "--json", cwd=tmp_path)
    rows = {row["number"]: row for row in map(json.loads, completed.stdout.splitlines())}
    assert rows["idle-local"]["given"] == pytest.approx(75e-9) and rows["idle-local"]["unit"] == "s"
    assert rows["triad"]["given"] is None and rows["triad"]["model"] == pytest.approx(30e9, rel=0.01)
    assert (tmp_path / "mine.toml").is_file()


def test_contradictions_are_warned_of(tmp_path: Path) -> None:
    completed = meshmark("model", "init", *ONE.split(), "--triad", "38GB/s", cwd=tmp_path)
    assert completed.returncode == 0
    assert "warning: --triad 38.00 GB/s: with ordinary stores" in completed.stderr
    assert "the model gives 29.9" in completed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("two-sockets", "template: found 'two-sockets'; allowed: one-socket, two-socket"),
        ("three x.toml", "template: found 'three'; allowed: one-socket, two-socket"),
        (f"{ONE} a b", "init: found 3 words; allowed: a template and a file"),
        ("x.toml --cores 4", "--cores: found without a template; allowed: with one-socket or two-socket"),
        (
            "two-socket --cores 4",
            "two-socket: found no --idle-local; needed: --cores, --idle-local, --idle-remote, --read",
        ),
        ("one-socket", "one-socket: found no --cores; needed: --cores, --idle-local, --read"),
        (f"{ONE} --idle-local 75", "--idle-local: found '75'; allowed: a time with its unit, such as 110ns"),
        (f"{ONE} --read 40", "--read: found '40'; allowed: a rate such as 420GB/s or 1.2TB/s"),
        (f"{ONE} --read fast/s", "--read: found 'fast/s'; allowed: a rate such as 420GB/s or 1.2TB/s"),
        (f"{ONE} --clock 2.4", "--clock: found '2.4'; allowed: a frequency such as 2.4GHz or 800MHz"),
        (f"{ONE} --cores 8.5", "--cores: found '8.5'; allowed: a whole number"),
        (f"{ONE} --store x", "--store: found 'x'; allowed: ordinary, streaming"),
        (f"{ONE} --idle-remote 90ns", "--idle-remote: found 90.00 ns of a machine with one socket"),
        (f"{ONE} --core-read 2GB/s", "--read: found 40.00 GB/s; allowed: at most 16.00 GB/s"),
    ],
)
def test_bad_numbers_are_one_line_and_write_nothing(words: str, message: str, tmp_path: Path) -> None:
    completed = meshmark("model", "init", *words.split(), cwd=tmp_path)
    (line,) = [x for x in completed.stderr.splitlines() if not x.startswith("hint: ")]
    assert completed.returncode == 2 and message in line and completed.stdout == ""
    assert not any(tmp_path.iterdir())
