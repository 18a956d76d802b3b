"""Hundreds of bad inputs: every command with every option invalid, and every input file damaged.

For any input, a command ends within two minutes, with status 0, 1, 2 or 77, and with one line that explains a
failure.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from forked import Commands

from meshmark.cli.app import app

# The words with which each command does little, and ends; one option at a time is changed or added.
BASES: dict[str, list[str]] = {
    "list": ["instruments"],
    "survey": ["--spec", "spec.toml", "--out", "fresh"],
    "report": ["run"],
    "store list": [],
    "store export": [],
    "store verify": [],
    "store import": ["records.jsonl"],
    "machine capture": ["fresh.tar.gz"],
    "machine show": ["host"],
    "model list": [],
    "model show": ["gs1280-4"],
    "model measure": ["hot_spot", "gs1280-4", "--chains", "1", "--no-store"],
    "model sweep": ["gs1280-4", "--vary", "links.bandwidth=1,2", "--instrument", "latency", "--no-store"],
    "model compare": ["gs1280-4", "gs1280-4"],
    "model place-io": ["gs1280-4"],
    "model validate": ["A01", "--no-page"],
    "model fit": ["nothing"],
    "load kernels": [],
    "load variants": [],
    "load base": ["--spec", "spec.toml", "--force", "--out", "fresh"],
    "load make": ["scenario.toml"],
    "load run": ["scenario.toml", "--out", "fresh"],
    "load show": ["nothing"],
    "load compare": ["nothing", "nothing"],
    "watch": ["--on", "gs1280-4", "--frames", "2", "--json"],
    "record": ["--on", "gs1280-4", "--frames", "2", "--out", "fresh.parquet"],
    "replay": ["night.parquet", "--json"],
    "plot": ["night.parquet", "--out", "fresh"],
    "advise": ["--budget", "1s", "--resume", "nothing", "--", "true"],
    "doctor": [],
    "measure": ["latency", "--on", "gs1280-4", "--footprint", "1MiB", "--no-store"],
}
# Options that have separate parsers, or that descriptions list.
MORE: dict[str, tuple[list[str], list[str]]] = {
    "place": (
        ["--topology", "pack:2 core:4 pu:1", "--policy", "pack", "--jobs", "2,2"],
        ["--topology", "--policy", "--jobs", "--matrix", "--slots", "--svg", "--save", "--on"],
    ),
    "run": (["--", "true"], ["--bind", "-n", "--slots", "--memory", "--pages", "--within", "--record"]),
    "placed": (["1"], []),
    "slots": ([], ["--nonsense"]),
    "migrate": (["999999999"], ["--to", "--memory"]),
    "translate": (["--to", "taskset", "--bind", "pack"], ["--to", "--bind", "-n"]),
    "measure latency": (
        ["--footprint", "4KiB", "--budget", "100ms", "--no-store"],
        [
            "--footprint",
            "--stride",
            "--pattern",
            "--cpus",
            "--memory-node",
            "--policy",
            "--pages",
            "--budget",
            "--interval",
            "--seed",
            "--on",
            "--set",
            "--machine",
            "--nonsense",
            "--processes",
        ],
    ),
    "measure bandwidth": (
        ["--footprint", "1MiB", "--budget", "100ms", "--no-store", "--kernel", "copy"],
        ["--kernel", "--store", "--isa", "--threads", "--footprint"],
    ),
    "measure io": (["--budget", "100ms", "--no-store", "--target", "nothing"], ["--target", "--block", "--jobs"]),
    "measure gups": (["--table", "1MiB", "--budget", "100ms", "--no-store"], ["--table", "--threads"]),
}
WORDS = (
    "",
    "²",
    "-1",
    "0",
    "1e999",
    "nan",
    "x" * 5000,
    "9" * 5000,
    "\udcff\udcfe",
    "\x1b[31m\n",
    "1..",
    "0-99999999999",
    "/dev/zero",
    "/proc/self/mem",
    "nothing/at/all",
    "[" * 3000,
    "a=b",
    "{}",
    "'",
    "1TiB..1B",
    "١٢",
)


def options(command: str) -> list[str]:
    """Return the names of the options that take a value."""
    node: Any = typer.main.get_command(app)  # a command of click, or of the copy of it in typer
    for word in command.split():
        node = node.commands[word]
    return [p.opts[0] for p in node.params if p.param_type_name == "option" and not getattr(p, "is_flag", False)]


def spoiled_words() -> Iterator[list[str]]:
    rng = random.Random(17)
    commands = {name: (base, options(name)) for name, base in BASES.items()} | MORE
    for name, (base, names) in commands.items():
        front, after_dashes = (base[: base.index("--")], base[base.index("--") :]) if "--" in base else (base, [])
        for option in names:
            for word in rng.sample(WORDS, 6):
                position = front.index(option) if option in front else None
                line = front if position is None else front[:position] + front[position + 2 :]
                yield [*name.split(), *line, option, word, *after_dashes]
        for number, word in enumerate(base):
            if not word.startswith("-") and (number == 0 or not base[number - 1].startswith("-")):
                for other in rng.sample(WORDS, 5):
                    yield [*name.split(), *base[:number], other, *base[number + 1 :]]
        yield [*name.split(), "--no-such-option"]


FILE_USES = (
    "survey --spec F --out fresh",
    "load run F --out fresh",
    "load make F --out fresh",
    "load base --force --spec F",
    "load make scenario.toml --metrics F",
    "load variants --metrics F",
    "model show F",
    "measure latency --on F --no-store",
    "model measure trace gs1280-4 --no-store --trace F",
    "machine show F",
    "place --topology F --policy pack --jobs 2",
    "place --topology host --policy pack --jobs 1 --matrix F",
    "replay F --json",
    "replay F --html fresh.html",
    "plot F --out fresh",
    "replay night.parquet --against F",
    "store import F",
    "report F",
    "load show F",
    "load compare F F",
    "advise --resume F -- true",
    "survey --resume --out F",
    "model fit F",
    "record --root F --out fresh",
    "load show nothing --recording F",
    "store list --store F",
    "serve --port 0 --token-file F --recordings nothing",
    "model sweep F --vary a=1,2 --no-store",
    "model place-io F",
    "place --topology F --policy spread --jobs 1 --svg fresh.svg",
)


def make_files(folder: Path) -> list[str]:
    """Write damaged files of many kinds, and the few valid ones that commands need; return their paths."""
    valid_files = {
        "spec.toml": 'name = "s"\n[[step]]\ninstrument = "clock"\noptions = { budget = "200ms", clocks = "tsc" }\n',
        "scenario.toml": '[[program]]\nname = "a"\ncommand = ["true"]\n',
        "records.jsonl": "{}\n",
    }
    for name, text in valid_files.items():
        (folder / name).write_text(text, encoding="utf-8")
    rng = random.Random(42)
    contents: dict[str, bytes] = {
        "empty": b"",
        "binary": rng.randbytes(3000),
        "nul": bytes(100),
        "text.toml": b"hello, world\n",
        "deep.json": b"[" * 200_000,
        "deep.toml": b"x = " + b"[" * 100_000,
        "objects.json": b'{"a":' * 100_000,
        "number.toml": b"x = " + b"9" * 100_000,
        "number.json": b'{"format": 1e999, "schema": ' + b"9" * 10_000 + b"}",
        "surrogate.json": b'{"name": "\\ud800", "spec": "\\ud800", "steps": []}',
        "nan.json": b'{"spec": NaN, "steps": NaN}',
        "latin1.toml": 'name = "ü"\n'.encode("latin-1"),
        "utf16.toml": 'name = "s"\n'.encode("utf-16"),
        "long.toml": b"# " + b"x" * (20 << 20),
        "lines.jsonl": b"{}\n" * 1000,
        "array.toml": b"program = 3\nstep = 3\n",
        "types.toml": b'[scenario]\nname = 3\n[[program]]\nname = true\ncopies = "x"\n[[step]]\ninstrument = 1\n',
        "inf.toml": b"[[program]]\nrun_time_s = inf\nmemory_gb_per_s = nan\n",
        "deep.xml": b"<?xml version='1.0'?>" + b"<object>" * 50_000,
        "laughs.xml": b'<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a "'
        + b"x" * 1000
        + b'"><!ENTITY b "'
        + b"&a;" * 1000
        + b'">]><topology>&b;&b;</topology>',
        "topology.xml": b'<?xml version="1.0"?><topology version="2.0"><object type="Machine"/></topology>',
        "cut.gz": gzip.compress(rng.randbytes(5000))[:-100],
        "zeros.gz": gzip.compress(bytes(50 << 20)),
        "night.jsonl": b'{"type": "header"}\n' * 3,
        "trace.txt": b"0 0 x\n",
        "half.parquet": b"PAR1" + rng.randbytes(500),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        info = tarfile.TarInfo("meshmark-capture.json")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"[1]"))
    (folder / "capture.tar.gz").write_bytes(gzip.compress(sink.getvalue()))
    pq.write_table(pa.table({"t_s": [1.0]}), folder / "foreign.parquet")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing-there")
    for name, files in {"plan": ("plan.json", "run.json"), "journal": ("run.jsonl", "plan.json")}.items():
        for kind, data in (("deep", b"[" * 200_000), ("odd", b'{"spec": 3, "steps": [{"id": "../x", "argv": 3}]}')):
            (folder / f"{name}-{kind}").mkdir()
            for file in files:
                (folder / f"{name}-{kind}" / file).write_bytes(data)
        (folder / f"{name}-fifo").mkdir()
        for file in files:
            os.mkfifo(folder / f"{name}-fifo" / file)
    required = {*valid_files}
    return [p.name for p in sorted(folder.iterdir()) if p.name not in required] + [
        "/dev/zero",
        "/dev/null",
        "/dev/stdin",
    ]


def spoiled_files(names: list[str]) -> Iterator[list[str]]:
    for use in FILE_USES:
        for name in names:
            yield [name if word == "F" else word for word in use.split()]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with Commands(tmp_path_factory.mktemp("cwd"), tmp_path_factory.mktemp("home")) as runner:
        yield runner


def tried(commands: Commands, lines: list[list[str]]) -> dict[str, str]:
    """Return the problems by command line."""
    problems: dict[str, str] = {}
    before = {p.name for p in Path(commands.env["TMPDIR"]).iterdir()}
    for words in lines:
        completed = commands.run(*words)
        if problem := completed.wrong():
            problems[" ".join(words)[:200]] = problem
        for file in commands.cwd.glob("fresh*"):
            os.system(f"rm -rf '{file}'")
    leftovers = {p.name for p in Path(commands.env["TMPDIR"]).iterdir()} - before - {"meshmark"}
    if leftovers:
        problems["temporary files"] = ", ".join(sorted(leftovers)[:5])
    return problems


def test_a_few_of_each_kind(commands: Commands) -> None:
    names = make_files(commands.cwd)
    rng = random.Random(1)
    lines = rng.sample(list(spoiled_words()), 15) + rng.sample(list(spoiled_files(names)), 25)
    assert tried(commands, lines) == {}


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["words", "files"])
def test_all_of_them(commands: Commands, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [p.name for p in commands.cwd.iterdir()] if (commands.cwd / "fifo").exists() else make_files(commands.cwd)
    lines = list(spoiled_words() if kind == "words" else spoiled_files(names))
    findings = tried(commands, lines)
    with capsys.disabled():
        print(f"\n{len(lines)} bad inputs ({kind}): {len(findings)} failures", *list(findings.items())[:20], sep="\n")
    assert findings == {}
