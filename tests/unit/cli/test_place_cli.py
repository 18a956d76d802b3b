"""Test `meshmark run`, `place` and related commands: what the native program receives, what Python adds, errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.entry import VERBS, native_argv
from meshmark.native import find_native
from meshmark.place.native import vocabulary
from support.cli import meshmark, python, start
from support.paths import ROOT

FAKE = """#!{python} -SE
import json, os, sys
if sys.argv[1:] == ["describe"]:
    os.execv({real!r}, ["meshmark-place", "describe"])
said = {{"pid": os.getpid(), "words": sys.argv[1:]}}
if "--matrix" in sys.argv:
    said["matrix"] = json.load(open(sys.argv[sys.argv.index("--matrix") + 1]))
print(json.dumps(said) if "--help" not in sys.argv else "the native help")
sys.exit(7 if "seven" in sys.argv else 0)
"""


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the native program prints its arguments as JSON."""
    program = tmp_path / "meshmark-place"
    program.write_text(FAKE.format(python=sys.executable, real=str(find_native("meshmark-place"))))
    program.chmod(0o755)
    return {**os.environ, "MESHMARK_PLACE": str(program), "XDG_DATA_HOME": str(tmp_path / "data")}


def call(*argv: str, env: dict[str, str], through: str = "entry") -> subprocess.CompletedProcess[str]:
    if through == "entry":
        return meshmark(*argv, env=env)
    return python(f"from meshmark.{through} import main; main()", *argv, env=env)


@pytest.mark.parametrize(
    ("argv", "native"),
    [
        (["run", "-n", "2", "--", "./a.out", "--", "-x"], ["run", "-n", "2", "--", "./a.out", "--", "-x"]),
        (["slots"], ["slots"]),
        (["placed", "1", "--cpus=0"], ["placed", "1", "--cpus=0"]),
        (["placed", "1"], None),
        (["place", "--jobs", "2"], ["plan", "--jobs", "2"]),
        (["place", "--topology", "host"], ["plan", "--topology", "host"]),
        (["place", "--topology", "pack:2 [numa] core:4 pu:1"], ["plan", "--topology", "pack:2 [numa] core:4 pu:1"]),
        (["place", "--topology=numa:2(indexes=1,0) core:1"], ["plan", "--topology=numa:2(indexes=1,0) core:1"]),
        (["place", "--topology", __file__], ["plan", "--topology", __file__]),
        (["place", "--matrix", "measured.json"], ["plan", "--matrix", "measured.json"]),
        (["place", "--policy", "list=0-3"], ["plan", "--policy", "list=0-3"]),
        (["place", "--topology", "gs1280-16"], None),
        (["place", "--topology=gs1280-16"], None),
        (["place", "--on", "gs1280-16"], None),
        (["place", "--on=gs1280-16"], None),
        (["place", "--matrix", "measured"], None),
        (["place", "--matrix=measured"], None),
        (["place", "--help"], None),
        (["survey"], None),
        (["--help"], None),
        ([], None),
    ],
)
def test_what_places_goes_to_the_native_program_as_it_was_typed(argv: list[str], native: list[str] | None) -> None:
    assert native_argv(argv) == native


def test_the_process_becomes_the_native_program(fake: dict[str, str]) -> None:
    with start("run", "--", "a", "--help=1", "seven", env=fake, stderr=None) as child:
        report = json.loads(child.communicate(timeout=60)[0])
    assert report == {"pid": child.pid, "words": ["run", "--", "a", "--help=1", "seven"]}
    assert child.returncode == 7


def test_the_quick_way_loads_nothing_of_ours_but_the_entry() -> None:
    code = (
        "import sys; sys.argv = ['meshmark', 'slots']; import os; before = set(sys.modules)\n"
        "os.execv = lambda *_: (print(sorted(set(sys.modules) - before)), os._exit(0))\n"
        "from meshmark.entry import main; main()"
    )
    completed = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "MESHMARK_PLACE": "/bin/true", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT / "src")},
    )
    assert completed.stdout.strip() == "['meshmark', 'meshmark.entry']", completed.stderr


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_command_line_forwards_too(fake: dict[str, str], verb: str) -> None:
    report = json.loads(call(verb, "--x", "1", "--", "-y", env=fake, through="cli.app").stdout)
    assert report["words"] == [verb, "--x", "1", "--", "-y"]
    assert call(verb, "--help", env=fake, through="cli.app").stdout == "the native help\n"


def test_the_help_lists_them_all(fake: dict[str, str]) -> None:
    help_text = call("--help", env=fake).stdout
    assert all(f" {name} " in help_text for name in (*VERBS, "place", "advise", "check-os"))


@pytest.mark.parametrize("through", ["entry", "cli.app"])
def test_without_the_native_program_one_line_says_so(fake: dict[str, str], through: str, tmp_path: Path) -> None:
    completed = call("run", "--", "true", env={**fake, "MESHMARK_PLACE": str(tmp_path / "none")}, through=through)
    assert completed.returncode == 1 and completed.stdout == ""
    assert completed.stderr.splitlines()[0] == f"meshmark: error: meshmark-place not found at {tmp_path / 'none'}"


@pytest.mark.parametrize("argv", [["--topology", "gs1280-16"], ["--on", "gs1280-16"], ["--on=gs1280-16"]])
def test_a_described_machine_comes_with_the_latencies_of_its_closed_form(fake: dict[str, str], argv: list[str]) -> None:
    completed = call("place", *argv, "--policy", "compact", "--jobs", "4", env=fake)
    report = json.loads(completed.stdout)
    assert report["words"][:3] == ["plan", "--topology", "pack:16 [numa] core:1 pu:1"]
    assert report["words"][3:7] == ["--policy", "compact", "--jobs", "4"]
    values = report["matrix"]["values"]
    assert report["matrix"]["unit"] == "s" and report["matrix"]["nodes"] == list(range(16))
    # In a 4 x 4 torus, each node is nearest to itself, and the farthest node is four hops away.
    assert len(values) == 16 and all(min(row) == row[i] > 0 for i, row in enumerate(values))
    assert max(values[0]) == values[0][10] > values[0][1] > values[0][0]
    assert not Path(report["words"][-1]).exists()


def test_the_status_of_the_plan_is_passed_on(fake: dict[str, str]) -> None:
    assert call("place", "--on", "gs1280-4", "seven", env=fake).returncode == 7


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        (["place", "--on", "atlantis"], 2, "atlantis"),
        (["place", "--topology", "atlantis"], 2, "atlantis"),
        (["place", "--on", "gs1280-4", "--topology", "host"], 2, "--on: found with --topology"),
        (["place", "--on", "gs1280-4", "--matrix", "x.json"], 2, "--matrix: found with"),
        (["place", "--matrix", "measured", "--topology", "pack:2 core:1 pu:1"], 2, "allowed with host"),
        (["place", "--matrix", "measured"], 77, "found no measured latency from node 0 to node 0"),
        (["advise"], 2, "COMMAND: missing"),
        (["advise", "--budget", "soon", "--", "true"], 2, "--budget: found 'soon'"),
        (["advise", "--fom", "(", "--", "true"], 2, "--fom: found '('"),
        (["advise", "--fom", "x{99999999999}", "--", "true"], 2, "--fom: found 'x{99999999999}', which is not"),
        (["advise", "--policies", "best", "--", "true"], 2, "--policies: found 'best'; allowed: balance, pack"),
        (["advise", "--policies", "near=eth0", "--", "true"], 2, "--policies: found 'near=eth0'"),
        (["advise", "--memory", "far", "--", "true"], 2, "--memory: found 'far'"),
        (["advise", "--pages", "3MiB", "--", "true"], 2, "--pages: found '3MiB'"),
        (["advise", "--wait-policy", "lazy", "--", "true"], 2, "--wait-policy: found 'lazy'"),
        (["advise", "--smt", "maybe", "--", "true"], 2, "--smt: found 'maybe'; allowed: off, on"),
        (["advise", "--threads", "0", "--", "true"], 2, "--threads: found '0'"),
        (["advise", "--threads", "two", "--", "true"], 2, "--threads: found 'two'"),
        (["advise", "--resume", "/proc/nonexistent", "--", "true"], 2, "--resume: found no plan.json"),
        (["advise", "--resume", "a", "--out", "b", "--", "true"], 2, "--resume: found with --out"),
        (["advise", "--out", "/dev/null/x", "--", "true"], 2, "--out: cannot create /dev/null/x: Not a directory"),
    ],
)
def test_bad_words_are_one_line_and_a_status(fake: dict[str, str], argv: list[str], status: int, says: str) -> None:
    completed = call(*argv, env=fake)
    assert completed.returncode == status and says in completed.stderr.splitlines()[0], completed.stderr
    assert "Traceback" not in completed.stderr and len(completed.stderr.splitlines()) <= 2


def test_the_help_of_place_tells_of_described_machines(fake: dict[str, str]) -> None:
    help_text = call("place", "--help", env=fake).stdout
    assert help_text.startswith("the native help") and "--on <name>" in help_text and "--matrix measured" in help_text


def test_policies_are_listed(fake: dict[str, str]) -> None:
    rows = [json.loads(x) for x in call("list", "policies", "--json", env=fake).stdout.splitlines()]
    assert {"none", "balance", "pack", "any", "compact", "scatter", "sharing", "list"} <= {
        r["policy"] for r in rows if "run" in r["of"]
    }
    assert {"local", "interleave"} <= {r["policy"] for r in rows if "measure" in r["of"]}


def test_the_words_are_those_of_the_native_program() -> None:
    """The native program accepts the words that its description lists."""

    def output_of(*argv: str) -> str:
        completed = subprocess.run(
            [find_native("meshmark-place", "MESHMARK_PLACE"), *argv], capture_output=True, text=True, check=False
        )
        return completed.stdout + completed.stderr

    described = vocabulary()
    (allowed,) = re.findall(r"allowed: (.*?), with near=", output_of("run", "--bind", "?", "--", "true"))
    assert described.policies.keys() == {word.partition("=")[0] for word in allowed.split(", ")}
    for option, argv in (("--memory", described.memory), ("--pages", described.pages)):
        (allowed,) = re.findall(r"allowed: (.*)", output_of("run", "--bind", "none", option, "?", "--", "true"))
        allowed_words = [re.split(r"[\[=]", word)[0] for word in allowed.removesuffix(",…").split(", ")]
        assert allowed_words == list(argv), option
