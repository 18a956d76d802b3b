"""Test the suggestions that shells get for a partially typed line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from meshmark.cli.completion import SHELLS
from meshmark.fleet.folder import Fleet
from meshmark.store.store import Store
from support import made_run, many_nodes
from support.cli import meshmark
from support.paths import ROOT


def offered(line: str, **more: str) -> list[str]:
    """Return the suggestions for bash; a line that ends with a space begins a new word."""
    words = line.split()
    word_index = len(words) if line.endswith(" ") else len(words) - 1
    env = {"_MESHMARK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word_index), **more}
    completed = meshmark(env=env)
    assert completed.returncode == 0 and completed.stderr == ""
    return completed.stdout.split()


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("meshmark mea", {"measure"}),
        ("meshmark measure la", {"latency"}),
        ("meshmark measure latency --p", {"--pattern", "--pages", "--policy"}),
        ("meshmark measure latency --j", {"--json"}),
        ("meshmark measure latency --pattern ", {"random", "stride"}),
        ("meshmark measure bandwidth --kernel copy,tr", {"copy,triad"}),
        ("meshmark measure latency --on gs1280-", {"gs1280-4", "gs1280-64"}),
        ("meshmark model show xeon", {"xeon5400", "xeon5500"}),
        ("meshmark model measure h", {"hot_spot", "halo"}),
        ("meshmark model sweep gs1280-4 --instrument g", {"gups"}),
        ("meshmark watch --on gs", {"gs1280-16"}),
        ("meshmark run --", {"--bind", "--verify", "--pages"}),
        ("meshmark run -n 2 --bind sc", {"scatter"}),
        ("meshmark place --policy p", {"pack"}),
        ("meshmark list ", {"instruments", "policies"}),
        ("meshmark completion ", set(SHELLS)),
    ],
)
def test_the_word_that_was_begun_is_completed(line: str, some: set[str]) -> None:
    suggestions = offered(line)
    prefix = "" if line.endswith(" ") else line.rsplit(maxsplit=1)[-1]
    assert some <= {*suggestions} and all(word.startswith(prefix) for word in suggestions), suggestions


@pytest.mark.parametrize("line", ["meshmark store rm me", "meshmark store export --run me"])
def test_runs_of_the_store_are_completed(line: str, tmp_path: Path) -> None:
    Store(tmp_path / "meshmark" / "store").add("measure-1", "step", made_run.lines(2))
    assert offered(line, XDG_DATA_HOME=str(tmp_path)) == ["measure-1"]


def test_names_of_a_fleet_are_completed(tmp_path: Path) -> None:
    campaigns = many_nodes.fleet_with_cases(Fleet(tmp_path), [f"n{i}" for i in range(1, 21)], many_nodes.points(4))
    some_campaigns = {campaigns[0], campaigns[-1], "latest"}
    for line, expected in {
        f"meshmark fleet report {tmp_path} --campaign ": some_campaigns,
        f"meshmark fleet close {tmp_path} n": {"n7", "n9"},
        f"meshmark fleet close {tmp_path} n7,n": {"n7,n7", "n7,n9"},
        f"meshmark fleet check {tmp_path} --nodes n1": {"n1", "n10", "n19"},
        f"meshmark fleet check {tmp_path} --engine l": {"lsf", "local"},
    }.items():
        assert expected <= {*offered(line)}, line
    assert offered(f"meshmark fleet close {tmp_path}/nosuch n") == []


@pytest.mark.parametrize("line", ["meshmark measure nosuch --p", "meshmark model show nosuch"])
def test_what_is_unknown_has_no_suggestions(line: str) -> None:
    assert [w for w in offered(line) if w != "--pages"] == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_reads_its_script(shell: str) -> None:
    completed = meshmark("completion", shell)
    assert completed.returncode == 0 and SHELLS[shell].split()[0] in completed.stderr
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([program, "-n"], input=completed.stdout, text=True, check=True, timeout=60)


def test_bash_completes_with_the_script() -> None:
    lines = (
        f'PATH="{ROOT}/.venv/bin:$PATH"; source <(meshmark completion bash 2>/dev/null)\n'
        "COMP_WORDS=(meshmark measure gu); COMP_CWORD=2\n"
        '_meshmark_completion meshmark; echo "${COMPREPLY[@]}"'
    )
    completed = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=False, timeout=60)
    assert completed.stdout.split() == ["gups"], completed.stderr


def test_an_unknown_shell_is_refused() -> None:
    completed = meshmark("completion", "tcsh")
    assert completed.returncode == 2 and completed.stdout == "" and "allowed: bash, zsh, fish" in completed.stderr
