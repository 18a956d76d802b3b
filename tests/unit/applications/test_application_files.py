"""Tests of application files: their content is read, and invalid files are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from meshmark.applications.application import parse_application
from meshmark.applications.configuration import Folders, configurations, environment, placeholders
from meshmark.errors import UsageError

WHOLE = r"""
[application]
name = "stencil"
about = "all keys"
command = "{build}/stencil {size} --file 'a b'"
package = "stencil-tools"
prepare = ["seq {{1}} 3", ["true"]]
links = ["input/b.txt"]
output = "result.txt"
env = { OMP_PROC_BIND = "close", SIZE = "{size}", N = 3 }

[figure]
pattern = 'rate: (\S+)'
unit = "B/s"
scale = 1e9
better = "higher"

[verify]
pattern = 'norm: (\S+)'
expected = 0.25
tolerance = 1e-9
command = ["cmp", "out.dat", "{source}/expected.dat"]

[limits]
timeout_s = 10
memory_mib = 512
output_mib = 1

[dimensions]
threads = "1..4"
size = [1000, 2000]
MALLOC_ARENA_MAX = 1
wait = ["active", "passive"]

[files]
"input/a.txt" = "size {size}, threads {threads}, ${size} {{x}}"

[build.O2]
commands = ["gcc -O2 {source}/stencil.c -o {build}/stencil"]
[build.spack]
spack = "stencil@1.2 %gcc"
"""


def test_a_file_with_all_keys_is_read() -> None:
    app = parse_application(WHOLE, "a.toml", Path("/src"))
    assert app.command == ("{build}/stencil", "{size}", "--file", "a b")
    assert app.prepare == (("seq", "{{1}}", "3"), ("true",)) and app.links == ("input/b.txt",)
    assert list(app.dimensions) == ["threads", "size", "MALLOC_ARENA_MAX", "wait", "build"]
    assert app.dimensions["threads"] == ("1", "2", "4") and app.dimensions["build"] == ("O2", "spack")
    all_configurations = configurations(app)
    assert len(all_configurations) == 3 * 2 * 2 * 2 and len({c.label for c in all_configurations}) == len(
        all_configurations
    )
    first = all_configurations[0]
    assert first.label == "threads=1 size=1000 MALLOC_ARENA_MAX=1 wait=active build=O2"
    values = placeholders(app, first, Folders(Path("/run")))
    assert values["build"] == "/run/build/O2" and values["source"] == "/src" and values["ranks"] == "1"
    assert environment(app, first, values) == {
        "OMP_PROC_BIND": "close",
        "SIZE": "1000",
        "N": "3",
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "active",
        "MALLOC_ARENA_MAX": "1",
    }


def test_a_command_is_all_that_is_required() -> None:
    app = parse_application("[application]\ncommand = 'true'", "a.toml", Path())
    assert [c.label for c in configurations(app)] == ["as it is"]
    assert not app.scratch and app.judged_by.name == "elapsed"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "command = \"{build}/stencil {size} --file 'a b'\"",
            "",
            "application.command: found nothing; allowed: a comm",
        ),
        (
            "{build}/stencil {size}",
            "{build}/stencil {sise}",
            "application.command: found {sise}, which is not a dimension",
        ),
        (
            "--file 'a b'",
            "--file 'a b",
            "application.command: found '{build}/stencil {size} --file 'a b', which is not a valid command line",
        ),
        ("[figure]", "[figur]", "figur: unknown key; did you mean figure?"),
        ("'rate: (\\S+)'", "'rate: ('", "figure.pattern: found 'rate: (', which is not a regular expression"),
        ('better = "higher"', 'better = "more"', "figure.better: found 'more'; allowed: lower, higher"),
        ('better = "higher"', "", "figure.better: required with a pattern; allowed: lower, higher"),
        ("scale = 1e9", "scale = 0", "figure.scale: found 0; allowed: a number above 0"),
        ("tolerance = 1e-9", "tolerance = -1", "verify.tolerance: found -1; allowed: a number from 0 below 1"),
        ("timeout_s = 10", "timeout_s = true", "limits.timeout_s: found True; allowed: a number above 0 to 1e+06"),
        ('threads = "1..4"', "threads = 0", "dimensions.threads: found '0'; allowed: 1 to 4096"),
        ('threads = "1..4"', 'threads = "two"', "dimensions.threads: found 'two'"),
        ('"passive"]', '"pasive"]', "dimensions.wait: found 'pasive'; allowed: active, passive"),
        ("size = [1000, 2000]", "size = []", "dimensions.size: found []; allowed: a list of values, or a text"),
        ("size = [1000, 2000]", "size = [7, 7]", "dimensions.size: found a value twice: 7, 7"),
        (
            "size = [1000, 2000]",
            "size = [7, 8]\nbild = 3",
            "dimensions.bild: not used by any command, file or variable",
        ),
        ("MALLOC_ARENA_MAX = 1", 'scheduler = "fifo=1"', "dimensions.scheduler: found 'fifo=1'; allowed: other, batch"),
        ("MALLOC_ARENA_MAX = 1", 'pages = ["huge"]', "dimensions.pages: found 'huge'; allowed: default, 4KiB"),
        ("MALLOC_ARENA_MAX = 1", 'bind = "pack"\nranks = 2', "dimensions.bind: found with ranks of several threads"),
        ('threads = "1..4"', 'bind = ["none", "pack"]', "dimensions.bind: found without threads, which state how many"),
        ("MALLOC_ARENA_MAX = 1", 'bind = ["pakc"]', "dimensions.bind: found 'pakc'; allowed: none, "),
        ("MALLOC_ARENA_MAX = 1", 'build = ["O9"]', "dimensions.build: found 'O9'; allowed: O2, spack"),
        ("MALLOC_ARENA_MAX = 1", 'inputs = ["a"]', "dimensions.inputs: found the name of a folder"),
        ('"input/a.txt"', '"../a.txt"', "files: found '../a.txt'; allowed: a path below the folder of the run"),
        (
            "'rate: (\\S+)'",
            "'a{99999999999999999999}'",
            "figure.pattern: found 'a{99999999999999999999}', which is not a regular expression",
        ),
        ("'norm: (\\S+)'", "'" + 900 * "(" + 900 * ")" + "'", "verify.pattern: found '((((((("),
        ("N = 3", '"A=B" = 3', "application.env: found 'A=B'; allowed: a name of an environment variable"),
        ("N = 3", '"" = 3', "application.env: found ''; allowed: a name of an environment variable"),
        (
            "memory_mib = 512",
            "memory_mib = 1e300",
            "limits.memory_mib: found 1e+300; allowed: a number above 0 to 1e+09",
        ),
        ('"input/a.txt"', '"."', "files: found '.'; allowed: a path below the folder of the run"),
        ('"input/a.txt"', '"' + 201 * "a" + '"', "allowed: a path of at most 1000 B, with names of at most 200 B"),
        ('"input/a.txt"', '"input/b.txt"', "application.links: found 'input/b.txt', which is also files.input/b.txt"),
        ('"input/a.txt"', '"input/b.txt/c"', "files.input/b.txt/c: found 'input/b.txt/c' below 'input/b.txt'"),
        ("expected = 0.25", "expected = inf", "verify.expected: found inf; allowed: a number"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(old: str, new: str, message: str) -> None:
    assert old in WHOLE
    with pytest.raises(UsageError) as error:
        parse_application(WHOLE.replace(old, new, 1), "a.toml", Path("/src"))
    text = str(error.value)
    assert text.startswith("a.toml: ") and message in text and "\n" not in text, text


def test_too_many_combinations_are_refused() -> None:
    text = "[application]\ncommand='x {a} {b}'\n[dimensions]\na=" + str(list(range(65))) + "\nb=" + str(list(range(64)))
    with pytest.raises(UsageError, match=re.escape("dimensions: found 4160 combinations; allowed: 4096")):
        parse_application(text, "a.toml", Path())


def test_a_value_that_is_nearly_an_allowed_one_has_a_hint() -> None:
    text = "[application]\ncommand = 'a'\n[dimensions]\nscheduler = 'batsh'\n"
    with pytest.raises(UsageError, match="scheduler: found 'batsh'; allowed: other, ") as refusal:
        parse_application(text, "a.toml", Path())
    assert refusal.value.hint == "did you mean batch?"
