"""The value of an option must exist even if it is not needed; a refused command leaves no files behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import meshmark

SCENARIO = '[[program]]\nname = "one"\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["load", "run", "sc.toml", "--out", "out", "--programs", "nosuch"], "--programs: found nosuch"),
        (["load", "run", "sc.toml", "--out", "out", "--base", "nosuch"], "found no run 'nosuch'"),
        (["store", "export", "--since", "2026-13-45"], "--since: found '2026-13-45'"),
        (["store", "export", "--since", "2026-02-30"], "--since: found '2026-02-30'"),
        (["store", "export", "--until", "2026-02-28T25"], "--until: found '2026-02-28T25'"),
        (["store", "export", "--since", "٢٠٢٦"], "--since: found '٢٠٢٦'"),
        (["advise", "--threads", "0", "--", "true"], "--threads: found '0'"),
        (["advise", "--policies", "x", "--", "true"], "--policies: found 'x'"),
        (["experiment", "A=1", "A=2", "--", "nosuch"], "cannot run nosuch"),
        (["measure", "composite", "open13", "--save-reference", "/proc/x"], "--save-reference: cannot write /proc/x"),
        (["plot", "sc.toml", "--out", "/proc/x"], "--out: cannot write /proc/x"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_an_option_that_names_nothing_is_refused_and_leaves_nothing(
    tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "sc.toml").write_text(SCENARIO)
    completed = meshmark(*words, cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    runs = tmp_path / "data" / "meshmark" / "runs"
    assert not (tmp_path / "out").exists()
    assert not runs.exists() or list(runs.iterdir()) == []


def test_a_program_that_does_not_exist_leaves_no_run(tmp_path: Path) -> None:
    completed = meshmark(
        "measure", "app", "--command", "nosuchprogram", cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")}
    )
    assert completed.returncode == 77
    assert list((tmp_path / "data" / "meshmark" / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fleet", "check", ".", "--engine", "local", "--nodes", ""], "--nodes: found no value"),
        (["fleet", "report", ".", "--campaign", ""], "--campaign: found no value"),
        (["advise", "--policies", "", "--", "true"], "--policies: found no value"),
        (["store", "export", "--run="], "--run: found no value"),
        (["history", "--fail-on", ""], "--fail-on: found no value"),
        (["store", "list", "--store", ""], "--store: found no value"),
        (["claims", "--on", "", "--list"], "--on: found no value"),
        (["serve", "--token", ""], "--token: found no value"),
        (["composite", ""], "A: found no value"),
        (["machine", "show", ""], "found no value"),
        (["claims", ""], "claims: found ''"),
    ],
    ids=" ".join,
)
def test_an_empty_value_is_refused_since_it_would_mean_everything(
    tmp_path: Path, words: list[str], message: str
) -> None:
    completed = meshmark(*words, cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert completed.returncode == 2, completed.stderr
    assert message in completed.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["history"],
        ["claims", "--list"],
        ["serve", "--port", "0"],
        ["compare", "host", "host"],
        ["export", "openmetrics"],
        ["composite", "host"],
        ["machine", "declared"],
    ],
    ids=" ".join,
)
def test_a_store_that_is_read_must_exist(tmp_path: Path, words: list[str]) -> None:
    completed = meshmark(*words, "--store", "nosuch", cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert completed.returncode == 2, completed.stderr
    assert "--store: nosuch: No such file or directory" in completed.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--run", "--machine", "--instrument", "--metric"])
def test_an_export_of_something_unknown_is_refused(tmp_path: Path, option: str) -> None:
    completed = meshmark("store", "export", option, "nosuch", env={"XDG_DATA_HOME": str(tmp_path)})
    assert completed.returncode == 2, completed.stderr
    assert f"{option}: found no {option[2:]} 'nosuch'" in completed.stderr


def test_an_export_of_a_known_instrument_without_results_is_empty(tmp_path: Path) -> None:
    completed = meshmark("store", "export", "--instrument", "latency", env={"XDG_DATA_HOME": str(tmp_path)})
    assert (completed.returncode, completed.stdout) == (0, "")


def test_the_token_file_of_nodes_is_named_by_its_option(tmp_path: Path) -> None:
    completed = meshmark("fleet", "serve", ".", "--node-token-file", "nosuch", "--port", "0", cwd=tmp_path)
    assert completed.returncode == 2, completed.stderr
    assert "error: --node-token-file: nosuch: No such file or directory" in completed.stderr
