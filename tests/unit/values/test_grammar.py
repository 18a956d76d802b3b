"""Tests of the grammar of sizes, times and lists for every command; tests/native/options_test.cpp has its rules."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from meshmark.cli.app import app
from meshmark.describe import find_probe
from meshmark.errors import UsageError
from meshmark.model.instruments import measure
from meshmark.model.machine import find_machine
from meshmark.values import grammar
from support.cli import meshmark

PARSERS: dict[str, Callable[[str], Any]] = {
    "size": lambda text: grammar.size("f", text),
    "sizes": lambda text: grammar.sizes("f", text),
    "seconds": lambda text: grammar.seconds("f", text),
    "integers": lambda text: grammar.integers("f", text, 9, 0),
    "cpus": lambda text: grammar.cpus("f", text),
    "choices": lambda text: grammar.choices("f", text, ("a", "b")),
}


def test_what_comes_back_is_what_the_native_half_read() -> None:
    assert grammar.size("f", "1.5KiB") == 1536
    assert grammar.sizes("f", "4KiB..10KiB,1MB") == [4096, 8192, 10240, 10**6]
    assert grammar.seconds("f", "500ms") == 0.5 and grammar.seconds("f", "2m") == 120 and grammar.seconds("f", "3") == 3
    assert grammar.integers("f", "1..6,all,0-2", 9, 0) == [0, 1, 2, 4, 6, 9]
    assert grammar.cpus("f", "0-3,8") == (0, 1, 2, 3, 8)
    assert grammar.cpus("f", "0-31:2/16,^17") == (0, 1, 16) and grammar.cpus("f", "0-6:2") == (0, 2, 4, 6)
    assert grammar.integers("f", "0-8:4", 9, 0) == [0, 4, 8]
    assert grammar.size("f", "64k") == 65536 and grammar.size("f", "1Gi") == grammar.size("f", "1g") == 2**30
    assert len(grammar.sizes("f", "1KiB..1TiB/64")) > 1000, "longer than the first buffer"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("size", "64 mib"),
        ("size", "0x10"),
        ("sizes", "8KiB..4KiB"),
        ("seconds", "1 hour"),
        ("seconds", "-1s"),
        ("integers", "0-10"),
        ("integers", "0-99999999"),
        ("cpus", "3-1"),
        ("cpus", "^8"),
        ("cpus", "0-99999999999999"),
        ("integers", "0-99999999999999"),
        ("size", "64kb"),
        ("cpus", ""),
        ("choices", "a,c"),
        ("size", "64\0"),
        ("size", "\udcff"),
        ("size", "\ud800"),
    ],
)
def test_what_is_wrong_is_named_by_its_field(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=r"^f: found '") as error:
        PARSERS[name](text)
    assert str(error.value).isprintable()


@given(st.sampled_from(sorted(PARSERS)), st.text(st.sampled_from("0123456789.,-/KMGTiBsnmhae+x \0é"), max_size=12))
def test_nonsense_is_a_value_or_a_usage_error(name: str, text: str) -> None:
    try:
        PARSERS[name](text)
    except UsageError as error:
        assert str(error).startswith("f: ")


@pytest.mark.parametrize("text", ["4KiB..10KiB", "64 mib", "1MiB,4KiB", "4KiB..64KiB/2", "0", "1e3"])
def test_a_host_and_a_model_read_the_same_footprints(text: str) -> None:
    """The model once read 4096, 8192 where the probe also read 10240, and accepted values that the probe refused."""
    completed = subprocess.run(
        [find_probe(), "latency", "--plan", "--footprint", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    try:
        records = measure("latency", find_machine("gs1280-4"), {"footprint": text, "memory_node": "0"})
    except UsageError:
        assert completed.returncode == 2
    else:
        assert completed.returncode == 0, completed.stderr
        assert [r.conditions["footprint_bytes"] for r in records] == grammar.sizes("f", text)


def test_without_the_library_there_is_one_line_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library")
    for path, message in ((tmp_path / "none", "not found at"), (tmp_path / "text", "cannot be loaded")):
        completed = meshmark("measure", "latency", "--on", "gs1280-4", "--no-store", env={"MESHMARK_VALUES": str(path)})
        assert completed.returncode == 1
        assert message in completed.stderr.splitlines()[0] and "hint: make setup" in completed.stderr


def options(command: Any, path: str = "meshmark") -> Iterator[tuple[str, Any]]:
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield f"{path} {parameter.opts[0]}", parameter
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from options(subcommand, f"{path} {name}")


def test_no_option_takes_a_time_without_its_unit() -> None:
    """`--duration 1` once meant seconds and `--window 1` nanoseconds, and neither accepted `1s`."""
    all_options = list(options(typer.main.get_command(app)))
    assert len(all_options) > 100
    for name, option in all_options:
        if option.type_descriptor.annotation is float and option.metavar != "TIME":
            words = (option.help or "").replace("(", " ").replace(")", " ").split()
            assert not {"s", "ms", "ns", "seconds"} & {*words}, name
    time_options = [name for name, option in all_options if option.metavar == "TIME"]
    assert {"meshmark watch --duration", "meshmark record --duration", "meshmark model measure --window"} <= {
        *time_options
    }


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (lambda: grammar.seconds("--d", "3s", 5, 9), "--d: found '3s'; allowed: times from 5 s to 9 s"),
        (lambda: grammar.seconds("--d", "10s", 5, 9), "--d: found '10s'; allowed: times from 5 s to 9 s"),
        (lambda: grammar.seconds("--d", "3s", 5), "--d: found '3s'; allowed: times from 5 s"),
        (lambda: grammar.integers("--n", "1,9", 8), "--n: found '9'; allowed: 1 to 8"),
        (lambda: grammar.integers("--n", "1,9", 9, 2), "--n: found '1'; allowed: 2 to 9"),
        (lambda: grammar.choices("--k", "a,c", ("a", "b")), "--k: found 'c'; allowed: a, b"),
        (lambda: grammar.integers("--n", "9..1", 9), "--n: found '9..1'; allowed: a rising range such as 1..16 or 0-3"),
        (
            lambda: grammar.size("--s", "4Q"),
            "--s: found '4Q'; allowed: a size such as 64, 64k, 512KiB, 1Gi or 64MB "
            "(k, Ki and KiB are 1024 B, kB is 1000 B; likewise M, G and T)",
        ),
        (lambda: grammar.size("--s", "4\0"), "--s: found '4\\x00'"),
    ],
)
def test_an_error_names_field_value_and_what_is_allowed(parse: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse()
    assert str(error.value) == message


def test_bounds_are_allowed_and_choices_trimmed() -> None:
    assert grammar.seconds("--d", "5s", 5, 9) == 5 and grammar.seconds("--d", "9s", 5, 9) == 9
    assert grammar.seconds("--d", "0") == 0
    assert grammar.integers("--n", "all", 8, all_=4) == [4] and grammar.integers("--n", "all", 8) == [8]
    assert grammar.integers("--n", "1,8", 8) == [1, 8]
    assert grammar.choices("--k", " b , a", ("a", "b")) == ["b", "a"]
