"""Damaged input of every kind for the native programs with sanitizers.

Each program ends by itself, with one of its statuses and without a report of a sanitizer.

Slow: `make check-all` runs it, some seconds per kind; MESHMARK_MUTATION_SECONDS sets the time, and
MESHMARK_MUTATION_SEED the first seed. A failure names the seed, and leaves the input in the folder of the test.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mutate import damaged, damaged_words
from sanitized_runs import PROGRAMS, environment, run_all, verdict

from machines.trees import make_tree
from meshmark.model.machine import find_machine
from support.made_program import made_program
from support.paths import MACHINES

pytestmark = pytest.mark.slow


@dataclass
class Kind:
    """A kind of input.

    Attributes:
        seeds: Valid inputs.
        words: The command line that reads an input; FILE is its path.
        on_stdin: Whether the input is read from standard input instead.
        long: Whether a valid input may request hours of work, so that a run that is killed does not count as a hang.
    """

    seeds: list[bytes]
    words: tuple[str, ...]
    on_stdin: bool = False
    long: bool = False


def lines(*objects: object) -> bytes:
    return b"".join(json.dumps(o).encode() + b"\n" for o in objects)


# Damage cannot turn a path in it into a file of a user.
PLAN = {
    "format": "meshmark load plan",
    "version": 1,
    "scenario": "a",
    "sample_s": 0.01,
    "timeout_s": 1,
    "setup_s": 1,
    "canary": {"before_s": 0, "after_s": 0, "during": False},
    "programs": [
        {
            "name": "a",
            "copy": 0,
            "argv": ["true"],
            "start_s": 0,
            "cpus": "0",
            "nice": 1,
            "priority": "batch",
            "memory": "local",
            "env": {"A": "b"},
            "stdout": "out",
            "stderr": "err",
        },
        {"name": "a", "copy": 1, "argv": ["sleep", "0.01"], "synthesised": False},
    ],
}
MATRIX = {"nodes": [0, 1], "unit": "ns", "what": "load latency", "better": "lower", "values": [[80, 140.5], [141, 81]]}
SHARING = {"traffic": [[0, 5e9], [5e9, 0]], "bandwidth_demand": [0.5, 1]}
SETTINGS = b"""bind = 'pack'
slots = "cores"
memory = 'interleave=0'
pages = "thp"
[profile.quiet]
bind = 'list=0'
slots = 'threads'
"""
CANARY = {
    "nodes": {"0": [[0, 8e-8, 9e-8, 1e-7], [1e9, 9e-8, 1e-7, 2e-7], [5e9, 2e-7, 3e-7, 4e-7]]},
    "tells": {"0": True},
}
# A job that holds CPUs of this node: other users write such files.
CLAIM = {
    "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    "pid": 1,
    "since_s": 1.5e9,
    "command": "./a.out input",
    "policy": "pack",
    "job": "17",
    "exclusive": False,
    "parts": ["0", "1"],
}
ATTAINED = {"memory": {"0": [[0, 1e10], [0.5, 2e10], [1, 2.1e10]]}, "link": {"0 to 1": [[0, 1e10]]}}


def unpack(folder: Path) -> None:
    with tarfile.open(MACHINES / "numa-2.tar.xz") as tar:
        tar.extractall(folder)


def pmus(folder: Path) -> None:
    root = make_tree(folder / "made", "intel-spr-2s")
    for entry in root.iterdir():
        entry.rename(folder / entry.name)


def program() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return made_program(PROGRAMS / "meshmark-load", Path(folder) / "a.json", 5, 2).read_bytes()


def journal() -> bytes:
    words = ("clock", "--budget", "100ms", "--cpus", "0", "--clocks", "monotonic")
    return subprocess.run([PROGRAMS / "meshmark-probe", *words], capture_output=True, check=True, timeout=60).stdout


def kinds() -> dict[str, Callable[[], Kind]]:
    """Return the kinds by name, each created when it is needed, since some run the programs."""
    xml = [(MACHINES / name).read_bytes() for name in ("hbm-2.xml", "2x8-snc4.xml")]
    place, watch = ("place", "plan", "--jobs", "2"), ("watch", "--rate", "20", "--duration", "0.1")
    two = ("--topology", "pack:2 [numa] core:2 pu:1")
    constructors: dict[str, Callable[[], Kind]] = {
        "topology": lambda: Kind(xml, (*place, "--policy", "compact", "--topology", "FILE")),
        "matrix": lambda: Kind([lines(MATRIX)], (*place, *two, "--matrix", "FILE")),
        "sharing": lambda: Kind([lines(SHARING)], (*place, *two, "--policy", "sharing", "--sharing", "FILE")),
        "settings": lambda: Kind([SETTINGS], ("place", "run", "--no-claim", "--profile", "quiet", "--", "true")),
        "program": lambda: Kind([program()], ("load", "program", "FILE"), long=True),
        "plan": lambda: Kind([lines(PLAN)], ("load", "run", "FILE"), long=True),
        "requests": lambda: Kind(model_requests(), ("model",), on_stdin=True, long=True),
        "journal": lambda: Kind(
            [journal()],
            ("probe", "clock", "--budget", "100ms", "--cpus", "0", "--clocks", "monotonic", "--resume", "FILE"),
        ),
        "canary": lambda: Kind([lines(CANARY)], (*watch, "--sources", "canary,node", "--canary", "FILE")),
        "claim": lambda: Kind([lines(CLAIM), lines(CLAIM, {"joined": 2}, {"cgroup": "/none"})], ("place", "slots")),
        "attained": lambda: Kind([lines(ATTAINED)], (*watch, "--attained", "FILE")),
    }
    return constructors


def model_requests() -> list[bytes]:
    """Return the requests of Python to the model for machines of publications, if they are short."""
    runs = [{"kind": "describe"}, {"kind": "hops"}, {"kind": "loads"}, {"kind": "traffic", "load": 0.3, "packets": 200}]
    return [
        lines({"machine": find_machine(name).resolved(), "runs": runs, "threads": 1})
        for name in ("gs1280-4", "es80", "e325")
    ]


KINDS = kinds()


def test_what_is_damaged_was_whole() -> None:
    """Otherwise everything that follows would be refused for the same reason."""
    for name, make in KINDS.items():
        kind = make()
        for seed in kind.seeds:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "input"
                file.write_bytes(seed)
                with living(name, file):
                    assert verdict(*asked(name, kind, file, seed)) == "0", (name, (file.parent / "err").read_text())


def asked(name: str, kind: Kind, file: Path, data: bytes) -> tuple[list[str], Path, bytes | None, dict[str, str], bool]:
    """Return the arguments of `verdict` for this kind, with the input in `file`."""
    env = environment(file.parent)
    if name == "settings":
        env["MESHMARK_SITE_CONFIG"] = str(file)
    words = [str(file) if word == "FILE" else word for word in kind.words]
    return words, file.parent, data if kind.on_stdin else None, env, kind.long


@contextlib.contextmanager
def living(name: str, file: Path) -> Iterator[None]:
    """Add a claim to the ledger whose owner holds it."""
    if name != "claim":
        yield
        return
    ledger = file.parent / "ledger"
    ledger.mkdir()
    with shutil.copy(file, ledger / "claim-0123456789abcdef").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def needed(program: str) -> None:
    assert (PROGRAMS / f"meshmark-{program}").exists(), "not built: tools/build.sh asan"


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]()
    needed(kind.words[0])

    def one(seed: int, folder: Path) -> str:
        chance = random.Random(f"{name} {seed}")
        data = damaged(chance, chance.choice(kind.seeds), kind.seeds)
        file = folder / "input"
        file.write_bytes(data)
        with living(name, file):
            return verdict(*asked(name, kind, file, data))

    run_all(name, tmp_path, one)


@pytest.mark.parametrize("tree", ["captured", "of counters"])
def test_damaged_trees(tree: str, tmp_path: Path) -> None:
    needed("watch")
    complete_copy = tmp_path / "whole"
    complete_copy.mkdir()
    (unpack if tree == "captured" else pmus)(complete_copy)
    root = next(folder for folder in (complete_copy, *complete_copy.iterdir()) if (folder / "sys").is_dir())
    files = [f for f in sorted(root.rglob("*")) if f.is_file() and not f.is_symlink()]
    contents = [f.read_bytes() for f in files if f.stat().st_size < 1 << 16]

    def one(seed: int, folder: Path) -> str:
        chance = random.Random(f"{tree} {seed}")
        shutil.copytree(root, folder / "tree", symlinks=True, copy_function=os.link)
        for file in chance.sample(files, chance.choice((1, 3, 30))):
            copy = folder / "tree" / file.relative_to(root)
            copy.unlink()  # the others are links to the valid files
            if (choice_of_damage := chance.randrange(12)) == 0:
                os.mkfifo(copy)
            elif choice_of_damage > 1:
                copy.write_bytes(damaged(chance, file.read_bytes(), contents))
        return verdict(
            ["watch", "--rate", "20", "--duration", "0.1", "--root", str(folder / "tree")],
            folder,
            None,
            environment(folder),
            long=False,
        )

    run_all(f"tree, {tree}", tmp_path, one)


@pytest.mark.parametrize("program", ["probe", "comm", "watch", "place", "load"])
def test_damaged_command_lines(program: str, tmp_path: Path) -> None:
    needed(program)
    lines_of: list[list[str]] = []
    if program in ("probe", "comm"):
        completed = subprocess.run([PROGRAMS / f"meshmark-{program}", "--describe"], capture_output=True, check=True)
        for instrument in json.loads(completed.stdout):
            plan_words = [instrument["name"], "--plan"]  # reads all options and measures nothing
            for p in instrument["parameters"]:
                if p["kind"] != "flag" and p["default"]:
                    plan_words += [p["option"], p["default"]]
            lines_of.append(plan_words)
    elif program == "watch":
        lines_of.append(["--describe", "--rate", "10", "--hold", "1", "--sources", "cpu,node", "--without", "io"])
    elif program == "place":
        lines_of += [
            [
                "plan",
                "--topology",
                "pack:2 [numa] core:4 pu:2",
                "--policy",
                "compact,near=node:0,distance<=1",
                "--jobs",
                "1,2",
                "--within",
                "0-7",
                "--taken",
                "3",
                "--slots",
                "threads",
                "--json",
            ],
            [
                "run",
                "--bind",
                "pack(socket=1)",
                "-n",
                "1",
                "--memory",
                "weighted=0:1",
                "--pages",
                "thp",
                "--no-claim",
                "--",
                "true",
            ],
            [
                "run",
                "--bind",
                "affinity[core(1,same=socket,exclusive=(core,injob)):cpubind=core:membind=localonly]",
                "--no-claim",
                "--",
                "true",
            ],
            ["translate", "--from", "taskset", "--to", "all", "--topology", "pack:2 core:2 pu:1", "0-1"],
            ["translate", "parts=0-1;2-3", "--json"],
            ["slots", "--json"],
        ]
    else:
        lines_of += [["kernels", "--json"], ["program", "x.json", "--window", "10ms", "--order"], ["run", "x.json"]]
    others = sorted({word for line in lines_of for word in line})

    def one(seed: int, folder: Path) -> str:
        chance = random.Random(f"{program} {seed}")
        words = damaged_words(chance, chance.choice(lines_of), others)
        # Only commands that check or plan: no benchmark of hours, and no command except one that does nothing.
        if program in ("probe", "comm") and "--plan" not in words:
            words.append("--plan")
        if "run" in words[:1] and "--" in words:
            words = [*words[: words.index("--")], "--", "true"]
        (folder / "words").write_bytes(os.fsencode("\n".join(words)))
        return verdict([program, *words], folder, None, environment(folder), long=program == "watch")

    run_all(f"command line of {program}", tmp_path, one)
