"""What an option names must exist, also where it is not needed; a refused request leaves nothing behind."""

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
        (["measure", "app", "--command", "true", "--reframe", "nosuch/x"], "--reframe: found no folder nosuch"),
        (["store", "export", "--since", "2026-13-45"], "--since: found '2026-13-45'"),
        (["store", "export", "--since", "2026-02-30"], "--since: found '2026-02-30'"),
        (["store", "export", "--until", "2026-02-28T25"], "--until: found '2026-02-28T25'"),
        (["store", "export", "--since", "٢٠٢٦"], "--since: found '٢٠٢٦'"),
        (["advise", "--threads", "0", "--", "true"], "--threads: found '0'"),
        (["advise", "--policies", "x", "--", "true"], "--policies: found 'x'"),
        (["experiment", "A=1", "A=2", "--", "nosuch"], "cannot run nosuch"),
        (["measure", "composite", "open13", "--save-reference", "/proc/x"], "--save-reference: cannot write /proc/x"),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else "",
)
def test_an_option_that_names_nothing_is_refused_and_leaves_nothing(
    tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "sc.toml").write_text(SCENARIO)
    done = meshmark(*words, cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    runs = tmp_path / "data" / "meshmark" / "runs"
    assert not (tmp_path / "out").exists()
    assert not runs.exists() or list(runs.iterdir()) == []


def test_a_program_that_does_not_exist_leaves_no_run(tmp_path: Path) -> None:
    done = meshmark(
        "measure", "app", "--command", "nosuchprogram", cwd=tmp_path, env={"XDG_DATA_HOME": str(tmp_path / "data")}
    )
    assert done.returncode == 77
    assert list((tmp_path / "data" / "meshmark" / "runs").iterdir()) == []
