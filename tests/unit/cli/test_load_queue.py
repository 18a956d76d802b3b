"""`meshmark load queue`: its output, files and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.cli import meshmark, start
from support.waiting import alive, until

MIX = '[[job]]\nname = "a"\ncopies = 30\nevery_s = 2\nrun_time_s = 9\nslots = 2\n'
WAIT_FOR = "until [ -e {} ]; do sleep 0.05; done; sleep 0.1"
SYNTHETIC = ("--topology", "pack:2 [numa] core:4 pu:1")


def mix(tmp_path: Path) -> Path:
    path = tmp_path / "mix.toml"
    path.write_text(MIX, encoding="utf-8")
    return path


def test_policies_are_compared_in_tables_and_in_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    completed = meshmark("load", "queue", mix(tmp_path), *SYNTHETIC, "--repetitions", "8", "--out", out)
    assert completed.returncode == 0, completed.stderr
    assert "30 jobs on pack:2 [numa] core:4 pu:1 with 8 slots, fcfs" in completed.stdout
    assert "against none, 8 repetitions with the same jobs" in completed.stdout
    assert "memory bandwidth is not simulated" in completed.stdout
    assert {path.name for path in out.iterdir()} == {"queue.json", "queue.png", "queue.svg"}
    content = json.loads((out / "queue.json").read_text(encoding="utf-8"))
    assert set(content["runs"]) == {"none", "balance", "pack", "compact"} and len(content["all_jobs"]) == 30
    assert len(content["repetitions"]) == 8 and len(content["gains"]) == 3


def test_json_states_machine_jobs_and_what_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    fields = " -1 -1 2 -1 -1 1 1 1 -1 1 -1 -1 -1"
    log.write_text("".join(f"{n} {n} 0 {10 * n} 2{fields}\n" for n in range(4)), encoding="utf-8")
    completed = meshmark("load", "queue", "--swf", log, "--on", "gs1280-16", "--policies", "pack", "--json")
    assert completed.returncode == 0, completed.stderr
    content = json.loads(completed.stdout)
    assert content["machine"] == "gs1280-16" and content["jobs"] == 3
    assert content["left_out"] == {"of less than a second": 1}
    assert content["repetitions"][0][0]["total_s"] == 32 and content["gains"] == []


def test_real_runs_are_compared_with_their_simulation_and_resumed(tmp_path: Path) -> None:
    path, out, ready = tmp_path / "mix.toml", tmp_path / "out", tmp_path / "ready"
    job = f'[[job]]\nname = "a"\ncopies = 2\nrun_time_s = 0.1\ncommand = ["sh", "-c", "{WAIT_FOR.format(ready)}"]\n'
    path.write_text(f'[mix]\npolicies = ["none", "any"]\nslots = "threads"\nmax_slots = 1\n{job}', encoding="utf-8")
    words = ("load", "queue", path, "--run", "--out", out, "--repetitions", "2")
    ready.touch()
    with start(*words) as child:
        journal = out / "journal.jsonl"
        assert until(lambda: journal.exists() and journal.read_text(encoding="utf-8").count("\n") >= 2)
        child.kill()
        child.wait()
    before = journal.read_text(encoding="utf-8")
    assert meshmark(*words).returncode == 2, "the folder is not used for another session"
    completed = meshmark(*words, "--resume")
    assert completed.returncode == 0, completed.stderr
    assert journal.read_text(encoding="utf-8").startswith(before[: before.rindex("\n") + 1])
    assert "a alone" not in completed.stderr
    entries = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    assert sorted((e["repetition"], e["policy"]) for e in entries[1:]) == [
        (r, p) for r in (0, 1) for p in ("any", "none")
    ]
    assert "real runs, and their simulation with the run times that were measured alone" in completed.stdout
    assert {"plan.json", "queue.json", "queue.svg"} <= {p.name for p in out.iterdir()}


def test_jobs_of_a_killed_command_end_with_it(tmp_path: Path) -> None:
    path, pid = tmp_path / "mix.toml", tmp_path / "pid"
    command = f'["sh", "-c", "echo $$ >{pid}; sleep 1000"]'
    path.write_text(f'[[job]]\nname = "a"\nrun_time_s = 9\ncommand = {command}\n', encoding="utf-8")
    with start("load", "queue", path, "--run", "--out", tmp_path / "out") as child:
        assert until(lambda: pid.exists() and pid.read_text(encoding="utf-8").endswith("\n"))
        child.kill()
        child.wait()
    assert until(lambda: not alive(int(pid.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "MIX, --swf, --sacct, --pbs, --lsf: found none; allowed: one of them"),
        (("MIX", "--swf", "x"), "found MIX and --swf"),
        (("MIX", "--discipline", "lifo"), "--discipline: found 'lifo'; allowed: fcfs, first-fit"),
        (("MIX", "--slots", "core"), "--slots: found 'core'; allowed: cores, procs, threads"),
        (("MIX", "--max-slots", "-1"), "--max-slots: found '-1'; allowed: 0 to 1000000"),
        (("MIX", "--policies", "none list=0"), "policy list=0: found 'list', which applies to one job"),
        (("MIX", "--on", "gs1280-16", *SYNTHETIC), "--on: found with --topology"),
        (("MIX", "--on", "no-such-machine"), "no-such-machine"),
        (("MIX", "--from", "1h"), "--from, --to: found no job that was submitted then"),
        (("MIX", "--topology", "pack:1 [numa] core:1 pu:1"), "policy none: none of the jobs can run: it needs 2 slots"),
        (("--swf", "/proc/nothing"), "/proc/nothing"),
        (("--swf", "MIX", "--repetitions", "2"), "--repetitions: found 2 for a mix without random times"),
        (("MIX", "--run"), "--run: found without --out; allowed: --out DIR"),
        (("MIX", "--run", "--out", "o", *SYNTHETIC), "--run: found with another machine"),
        (("MIX", "--resume"), "--resume: found without --run"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    completed = meshmark("load", "queue", *(str(mix(tmp_path)) if word == "MIX" else word for word in words))
    assert completed.returncode == 2 and text in completed.stderr, completed.stderr
    assert "Traceback" not in completed.stderr and completed.stdout == ""
