"""Values of variables whose names look like secrets reach the programs, but are never written to a file of Meshmark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from meshmark.values.secrets import hide_text, is_secret, mask_text, reveal_text
from support.cli import meshmark

SECRETS = ["s3cret-alpha", "s3cret-beta", "s3cret-gamma", "s3cret-delta"]
ALPHA, BETA, GAMMA, DELTA = SECRETS


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str | None]:
    return {"XDG_DATA_HOME": str(tmp_path / "data"), "OUT": str(tmp_path / "seen"), "HF_TOKEN": None}


def files_with_secrets(*folders: Path) -> list[str]:
    """Return the files below the folders that contain a secret in their content or name."""
    return [
        str(path)
        for folder in folders
        for path in folder.rglob("*")
        if "s3cret" in path.name or (path.is_file() and b"s3cret" in path.read_bytes())
    ]


def seen(folder: Path) -> set[str]:
    """Return the set of lines that programs have written, without the empty line."""
    return {*(folder / "seen").read_text().split("\n")} - {""}


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "MYSQL_PASSWD",
        "GITHUB_PAT",
        "PGPASSWORD",
        "token",
        "SSHPASS",
        "db_pwd",
        "OPENAI_KEY",
        "CI_JOB_TOKEN_READ",
        "SENTRY_DSN",
        "HTTP_AUTH",
        "APIKEY",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)
    assert mask_text(f"A=1,{name}=x y") == f"A=1,{name}=…" and reveal_text(hide_text(f"{name}=x y")) == f"{name}=x y"


@pytest.mark.parametrize(
    "name",
    [
        "OMP_NUM_THREADS",
        "TOKEN_FILE",
        "SSH_KEY_PATH",
        "MAX_TOKENS",
        "TOKENIZERS_PARALLELISM",
        "PWD",
        "KEYS",
        "PATH",
        "PATTERN",
        "size",
        "",
        "_",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret(name) and mask_text(f"{name}=4") == f"{name}=4"


def test_a_reference_to_a_variable_is_no_secret_and_is_kept() -> None:
    assert hide_text("--token={token}") == "--token={token}" and hide_text("TOKEN=$TOKEN") == "TOKEN=$TOKEN"


def test_settings_and_the_command_of_an_experiment(tmp_path: Path, home: dict[str, str | None]) -> None:
    words = [f"HF_TOKEN={ALPHA}", f"HF_TOKEN={BETA} + shell:export API_KEY={GAMMA}"]
    words[0] += " + shell:true"
    command = ["env", f"DB_PASSWORD={DELTA}", "sh", "-c", 'echo "$HF_TOKEN $DB_PASSWORD $1" >> "$OUT"']
    command += ["--api-key", GAMMA]  # $0 and $1 of the shell
    options = ["--max-pairs", 2, "--budget", "20s", "--restore", f"API_KEY={GAMMA} true"]
    completed = meshmark("experiment", *options, "--json", *words, "--", *command, env=home)
    assert completed.returncode == 0, completed.stderr
    assert seen(tmp_path) == {f"{ALPHA} {DELTA} {GAMMA}", f"{BETA} {DELTA} {GAMMA}"}
    assert "s3cret" not in completed.stdout + completed.stderr
    settings = {json.loads(line).get("conditions", {}).get("setting") for line in completed.stdout.splitlines()}
    assert {text.partition(" ")[0] for text in settings if text} == {"HF_TOKEN=…", "HF_TOKEN=…2"}
    assert files_with_secrets(tmp_path / "data") == []
    exported = meshmark("store", "export", env=home)
    assert exported.stdout and "s3cret" not in exported.stdout


def test_a_resumed_experiment_needs_the_variable(tmp_path: Path, home: dict[str, str | None]) -> None:
    words = ["same", f"HF_TOKEN={ALPHA}", "--", "sh", "-c", 'echo "${HF_TOKEN:-none}" >> "$OUT"']
    assert meshmark("experiment", "--max-pairs", 1, "--warmup", 0, *words, env=home).returncode == 0
    (run,) = (tmp_path / "data" / "meshmark" / "runs").iterdir()
    plan = json.loads((run / "experiment.json").read_text())
    (run / "experiment.json").write_text(json.dumps({**plan, "max_pairs": 2}))
    refused = meshmark("experiment", "--resume", run.name, env=home)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-2:] == [
        "meshmark: error: --resume: the value of HF_TOKEN was not recorded, since it looks like a secret",
        "hint: set the environment variable HF_TOKEN",
    ]
    (tmp_path / "seen").unlink()
    assert meshmark("experiment", "--resume", run.name, env={**home, "HF_TOKEN": BETA}).returncode == 0
    assert BETA in seen(tmp_path)
    assert files_with_secrets(tmp_path / "data") == []


APPLICATION = f"""
[application]
command = ["sh", "-c", 'echo "$HF_TOKEN $DB_PASSWORD $API_KEY {{token}}" >> "$OUT"']
env = {{ DB_PASSWORD = "{GAMMA}" }}
[dimensions]
HF_TOKEN = ["{ALPHA}", "{BETA}"]
token = "{DELTA}"
"""


def test_dimensions_and_variables_of_an_application(tmp_path: Path, home: dict[str, str | None]) -> None:
    (tmp_path / "app.toml").write_text(APPLICATION)
    words = [tmp_path / "app.toml", "--vary", f"API_KEY={DELTA}", "--repetitions", 1, "--warmup", 0]
    completed = meshmark("measure", "app", *words, "--json", env=home)
    assert completed.returncode == 0, completed.stderr
    assert seen(tmp_path) == {f"{a} {GAMMA} {DELTA} {DELTA}" for a in (ALPHA, BETA)}
    assert "s3cret" not in completed.stdout + completed.stderr
    assert files_with_secrets(tmp_path / "data") == []


def test_a_command_line_in_place_of_an_application_file(tmp_path: Path, home: dict[str, str | None]) -> None:
    command = f"env DB_PASSWORD={GAMMA} sh -c 'echo $DB_PASSWORD $HF_TOKEN $1 >> $OUT' --api-key {DELTA}"
    words = ["--command", command, "--vary", f"HF_TOKEN={ALPHA},{BETA}", "--repetitions", 1, "--warmup", 0]
    completed = meshmark("measure", "app", *words, env=home)
    assert completed.returncode == 0, completed.stderr
    assert seen(tmp_path) == {f"{GAMMA} {ALPHA} {DELTA}", f"{GAMMA} {BETA} {DELTA}"}
    assert "s3cret" not in completed.stdout + completed.stderr and files_with_secrets(tmp_path / "data") == []


def test_variables_and_commands_of_a_load_scenario(tmp_path: Path, home: dict[str, str | None]) -> None:
    (tmp_path / "app.toml").write_text(APPLICATION.replace(f'["{ALPHA}", "{BETA}"]', f'"{ALPHA}"'))
    (tmp_path / "scenario.toml").write_text(
        "[scenario]\ncanary = false\n[[program]]\nname = 'a'\n"
        f"command = ['env', 'DB_PASSWORD={GAMMA}', 'sh', '-c', 'echo $DB_PASSWORD $HF_TOKEN >> $OUT', "
        f"'--api-key', '{DELTA}']\n"
        f"env = {{ HF_TOKEN = '{ALPHA}' }}\n"
        f"[[program]]\nname = 'b'\napplication = '{tmp_path / 'app.toml'}'\n"
    )
    completed = meshmark("load", "run", tmp_path / "scenario.toml", "--out", tmp_path / "run", env=home)
    assert completed.returncode == 0, completed.stderr
    assert seen(tmp_path) == {f"{GAMMA} {ALPHA}", f"{ALPHA} {GAMMA}  {DELTA}"}
    assert "s3cret" not in completed.stdout + completed.stderr
    assert files_with_secrets(tmp_path / "data", tmp_path / "run") == []
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert plan["programs"][0]["env"]["HF_TOKEN"] == "…"


def test_records_of_a_placed_command(tmp_path: Path, home: dict[str, str | None]) -> None:
    words = ["--record", tmp_path / "data" / "record.jsonl", "--bind", min(os.sched_getaffinity(0)), "--"]
    (tmp_path / "data").mkdir()
    command = ["env", f"API_KEY={ALPHA} x", "sh", "-c", 'echo "$API_KEY" > "$OUT"', "--api-key", BETA]
    completed = meshmark("run", *words, *command, env=home)
    assert completed.returncode == 0, completed.stderr
    assert seen(tmp_path) == {f"{ALPHA} x"}
    assert (
        files_with_secrets(tmp_path / "data") == [] and "API_KEY=…" in (tmp_path / "data" / "record.jsonl").read_text()
    )
