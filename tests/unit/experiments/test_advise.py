"""Tests of complete runs of `advise`, with a program that stands in for meshmark-place and reports given times."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from meshmark.cli.place.advise import sentence
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.experiments.advice import Advice, CommandLines, gain, lines, records, to_json
from meshmark.experiments.advise import advise, make_plan
from meshmark.experiments.halving import Race
from meshmark.experiments.trial import CandidateRun, CandidateRunner, evidence
from meshmark.native import find_native
from meshmark.place.candidates import (
    BASELINE,
    AdvicePlan,
    Candidate,
    InheritedPlacement,
    PlacementResources,
    SearchSpace,
)
from meshmark.place.other_work import OtherWorkShares
from meshmark.store.record import OBSERVED, Record
from meshmark.store.session import held
from meshmark.store.store import Store
from support.cli import meshmark
from support.waiting import until

# ------------------------------------------------------------------ evidence

NOTE: dict[str, Any] = {
    "type": "note",
    "kind": "placement",
    "conditions": {"minor_faults": 700, "major_faults": 2},
    "report": {
        "seconds": 2.0,
        "migrations": 5,
        "huge_bytes": 250,
        "pages": {"0": 600, "1": 400},
        "findings": ["thread 7\x1b[2J moved"],
        "threads": [
            {"user_s": 1.9, "system_s": 0.05, "waiting_s": 0.05, "ran_on": "0-1"},
            {"user_s": 0.0, "system_s": 0.0, "waiting_s": 0.0, "ran_on": "none"},
        ],
    },
}


def test_evidence_tells_remote_pages_by_the_cpus_that_were_used() -> None:
    node_of = {0: 0, 1: 0, 2: 1, 3: 1}
    values, findings = evidence(NOTE, Candidate("x"), node_of)
    assert values == {
        "threads": 1,
        "migrations": 5,
        "waiting_share": 0.05 / 2.0,
        "remote_share": 0.4,
        "huge_share": 0.25,
        "minor_faults": 700,
        "major_faults": 2,
    }
    assert findings == ["thread 7 [2J moved"]
    assert evidence(NOTE, Candidate("x", parts=((2,), (3,))), node_of)[0]["remote_share"] == 0.6


def test_what_was_not_seen_is_no_evidence() -> None:
    assert evidence({"report": {"threads": [], "migrations": None, "pages": {}}}, Candidate("x"), {}) == ({}, [])
    assert evidence({"report": 3}, Candidate("x"), {}) == ({}, [])


# ------------------------------------------------------------------ complete runs

FAKE = """#!{python} -SE
import json, os, random, signal, sys
words = sys.argv[1:]
if words == ["describe"]:
    os.execv({real!r}, ["meshmark-place", "describe"])
world = json.load(open(os.environ["FAKE_WORLD"]))
def value(option, otherwise=""):
    return words[words.index(option) + 1] if option in words else otherwise
if words[0] == "plan":
    n = int(value("--jobs"))
    parts = {{"balance": [0, 1, 2, 3], "pack": [4, 5, 6, 7]}}.get(value("--policy"), [3, 2, 1, 0])
    print(json.dumps({{"jobs": [{{"parts": [[c] for c in parts[:n]]}}]}}))
elif words[0] == "translate":
    print(json.dumps({{"forms": {{"taskset": {{"line": "taskset -c " + value("--parts") + " " + value("--command")}},
                                 "slurm": {{"line": "srun ./prog"}},
                                 "parts": {{"line": value("--parts")}}}},
                      "refused": {{"lsf": "has one mask for all parts"}}}}))
elif words[-1] == "true":
    if value("--pages") in world["absent"]:
        sys.stderr.write("meshmark: absent: no such pages\\nhint: reserve some\\n")
        sys.exit(77)
else:
    name = value("--bind") + ("/" + value("--pages") if value("--pages") != "default" else "")
    with open(os.environ["FAKE_WORLD"] + ".log", "a+") as log:
        log.write(name + "\\n")
        log.seek(0)
        number = len(log.readlines())
    if name in world["hangs"]:
        signal.pause()
    if name in world["fails"]:
        sys.stderr.write("it broke\\n")
        sys.exit(3)
    rng = random.Random(number)
    seconds = world["seconds"].get(name, 1.0) * (1 + rng.gauss(0, 0.005))
    print("rate: %.6f\\nrate: %.6f" % (1, 100 / seconds))
    sys.stderr.write("placement held: rate: 999999\\n")
    with open(value("--record"), "a") as record:
        for metric, s in (("elapsed", seconds), ("user", 0.9 * seconds), ("system", 0.1), ("waiting", 0.01)):
            record.write(json.dumps({{"type": "result", "schema": 1, "source": "host", "machine": "m",
                "instrument": "run", "metric": metric, "unit": "s", "better": "lower", "value": s, "interval": None,
                "samples": [s],
                "flags": ["migrated"] if name == "none" else [], "conditions": {{}}, "provenance": {{}}}}) + "\\n")
        record.write(json.dumps({{"type": "note", "kind": "placement", "conditions": {{"minor_faults": 10}},
            "report": {{"seconds": seconds, "migrations": 40 if name == "none" else 0, "pages": {{}},
            "findings": ["thread 7 moved"] * (name == "balance"),
                       "threads": [{{"user_s": seconds, "system_s": 0, "waiting_s": 0, "ran_on": "0"}}] * 2}}}}))
        record.write("\\n")
"""


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a machine without other work, because the fake program reports times that it did not take."""
    monkeypatch.setattr("meshmark.experiments.trial.OtherWork.shares", lambda _, __: OtherWorkShares(0.0, 0.0, 1.0))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that sets the times and failures of runs and returns the folder of an advice."""
    fake = tmp_path / "meshmark-place"
    fake.write_text(FAKE.format(python=sys.executable, real=str(find_native("meshmark-place"))))
    fake.chmod(0o755)
    world_file = tmp_path / "world.json"
    monkeypatch.setenv("MESHMARK_PLACE", str(fake))
    monkeypatch.setenv("FAKE_WORLD", str(world_file))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def make(
        seconds: Mapping[str, float], fails: Sequence[str] = (), hangs: Sequence[str] = (), absent: Sequence[str] = ()
    ) -> Path:
        world_file.write_text(json.dumps({"seconds": seconds, "fails": fails, "hangs": hangs, "absent": absent}))
        return tmp_path / "advice"

    return make


HERE = PlacementResources(cpus=8, threads_per_core=1, memory_nodes=1, thp="madvise")
TALK: list[str] = []


def run(folder: Path, space: SearchSpace | None = None, **more: Any) -> Advice:
    runner = CandidateRunner(folder, ["prog", "-x"], more.get("figure", ""), more.get("higher", False), {})
    search_space = space or SearchSpace(("none", "balance", "pack"), pages=("default", "thp"))
    plan = make_plan(["prog", "-x"], search_space, HERE, runner, **{"budget_s": 1000.0, "seed": 1, **more})
    plan.save(folder / "plan.json")
    TALK.clear()
    return advise(plan, folder, runner, TALK.append)


def test_the_quickest_is_chosen_with_its_gain_spread_reasons_and_lines(world: Any) -> None:
    folder = world({"pack": 0.8, "pack/thp": 0.9})
    advice = run(folder)
    answer = to_json(advice, lines(advice))
    assert (answer["verdict"], answer["choice"]) == ("better", "pack")
    low, high = answer["gain_interval"]
    assert low <= 0.2 <= high and low > 0.15
    evidence = r"best: pack: 1\.2\d × as fast as the baseline \(95 %: 1\.\d+ to 1\.\d+\), \d+ pairs \("
    assert re.match(evidence, sentence(advice, answer)), sentence(advice, answer)
    assert answer["before"]["n"] >= 6 and answer["before"]["worst"] >= answer["before"]["best"]
    assert 0.1 < answer["best_vs_best"] < 0.3 and 0.1 < answer["worst_vs_worst"] < 0.3
    assert answer["why"] == ["thread migrations per run: 40 baseline, 0 with pack"]
    runs = len(advice.successful_runs("balance"))
    assert (answer["flags"], answer["disturbance"]) == (["migrated"], "")
    assert answer["not_held"] == [f"balance: in {runs} of {runs} runs, for example: thread 7 moved"]
    assert answer["lines"] == {
        "meshmark": "meshmark run --bind pack -n 2 --slots cores --openmp -- prog -x",
        "taskset": "taskset -c 4;5 prog -x",
    }
    assert answer["lines_left_out"] == {"slurm": "the program has no ranks", "lsf": "has one mask for all parts"}
    assert answer["others"][BASELINE]["word"] == "worse" and "pack" not in answer["others"]
    json.loads(json.dumps(answer, allow_nan=False))


def test_a_difference_against_the_result_is_no_reason(world: Any) -> None:
    advice = run(world({"pack": 0.8}))
    for outcome in advice.outcomes:
        outcome.evidence["waiting_share"] = 1.0 if outcome.candidate == "pack" else 0.24
        outcome.evidence["huge_share"] = 0.9 if outcome.candidate == "pack" else 0.1
    assert to_json(advice, CommandLines({}, {}))["why"] == [
        "memory in huge pages: 10 % baseline, 90 % with pack",
        "thread migrations per run: 40 baseline, 0 with pack",
    ]
    slower_advice = run(
        world({"balance": 1.2}).with_name("slower"), SearchSpace(("none", "balance"), pages=("default",))
    )
    assert slower_advice.verdict.best == "balance"
    assert to_json(slower_advice, CommandLines({}, {}))["why"] == [], "a candidate that is not better needs no reason"


def test_other_work_flags_the_advice_and_limits_what_it_says(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshmark.experiments.trial.OtherWork.shares", lambda _, __: OtherWorkShares(0.45, 0.0, 1.0))
    advice = run(world({"pack": 0.8}))
    answer = to_json(advice, CommandLines({}, {}))
    assert answer["flags"] == ["disturbed", "migrated"]
    assert answer["disturbance"] == "other programs used 45 % (disturbed) of this machine's CPU time meanwhile"
    rows = records(advice, "m", "advise", "2026-01-01T00:00:00Z", "0")
    assert all("disturbed" in r.flags and r.conditions["others_share"] == pytest.approx(0.45) for r in rows)


def test_a_line_that_cannot_carry_what_won_is_left_out_with_the_reason(world: Any) -> None:
    advice = run(world({"pack/thp": 0.8}))
    command_lines = lines(advice)
    assert command_lines.ready == {
        "meshmark": "meshmark run --bind pack -n 2 --slots cores --pages thp --openmp -- prog -x"
    }
    assert command_lines.left_out["taskset"] == "it does not set the page size (thp)"
    assert command_lines.left_out["lsf"] == "has one mask for all parts"
    advice.plan.command = ["/usr/bin/mpirun", "-n", "2", "prog"]
    assert lines(advice).left_out["slurm"] == "mpirun starts its own ranks"


def test_where_nothing_helps_it_says_so(world: Any) -> None:
    advice = run(world({}))
    assert (advice.verdict.word, advice.verdict.choice) == ("no gain", BASELINE)
    assert lines(advice) == CommandLines({"meshmark": "prog -x"}, {})
    assert advice.verdict.effect == 0.02
    others = {c.name for c in advice.plan.candidates} - {BASELINE}
    assert set(advice.verdict.standings) == others
    assert not [s for s in advice.verdict.standings.values() if s.word == "worse"]


def test_records_keep_every_sample_and_read_back(world: Any) -> None:
    advice = run(world({"pack": 0.8}), figure=r"^rate: (\S+)", higher=True)
    rows = records(advice, "m", "advise", "2026-01-01T00:00:00Z", "0")
    reread = [Record.from_json(json.loads(json.dumps(r.to_json()))) for r in rows]
    assert reread == rows
    pack = {r.metric: r for r in rows if r.conditions["candidate"] == "pack"}
    assert set(pack) == {"elapsed", "user", "system", "waiting", "figure_of_merit"}
    assert len(pack["elapsed"].samples) == len(advice.successful_runs("pack")) >= 6
    assert pack["figure_of_merit"].value == pytest.approx(100 / pack["elapsed"].value, rel=1e-4)
    assert pack["elapsed"].conditions["cpus"] == "4-5"
    condition_names = (
        "program command copies candidate policy slots slot_kind cpus each threads memory pages wait_policy"
    )
    assert pack["elapsed"].conditions.keys() - OBSERVED == set(condition_names.split()), (
        "or two runs have no common point"
    )
    base = next(r for r in rows if r.conditions["candidate"] == BASELINE)
    assert base.flags == {"migrated"} and base.conditions["cpus"] == "none"


def test_what_is_inherited_is_said_and_kept(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world({"pack": 0.8})
    inherited = InheritedPlacement("0-3", "preferred=1")
    monkeypatch.setattr(sys.modules[__name__], "HERE", PlacementResources(4, 1, 2, "madvise", inherited))
    advice = run(folder, SearchSpace(("none", "pack"), memory=("default", "bind"), pages=("default",)))
    assert AdvicePlan.load(folder / "plan.json").inherited == inherited
    assert str(inherited) == "CPUs 0-3, memory preferred=1"
    assert to_json(advice, CommandLines({}, {}))["as_it_is"] == {"cpus": "0-3", "memory": "preferred=1"}
    settings = {
        r.conditions["candidate"]: (r.conditions["cpus"], r.conditions["memory"])
        for r in records(advice, "m", "advise", "2026-01-01T00:00:00Z", "0")
    }
    assert settings == {
        BASELINE: ("0-3", "preferred=1"),
        "none, bind": ("0-3", "bind"),
        "pack": ("4-5", "preferred=1"),
        "pack, bind": ("4-5", "bind"),
    }


def test_a_figure_of_merit_is_the_last_match_of_the_commands_own_output(world: Any) -> None:
    folder = world({"pack": 0.5})
    advice = run(folder, figure=r"rate: (\S+)", higher=True)
    assert (advice.verdict.word, advice.verdict.choice) == ("better", "pack")
    estimate = gain(advice)
    assert estimate is not None and estimate[0] == pytest.approx(1.0, abs=0.05)  # twice the rate
    # If a lower value of the same figure is better, pack is the worst.
    lower_advice = run(folder.with_name("lower"), figure=r"rate: (\S+)", higher=False)
    assert lower_advice.verdict.choice == BASELINE
    with pytest.raises(UsageError, match=r"^--fom: found no match"):
        run(folder.with_name("none"), figure="no such figure: (.*)")
    with pytest.raises(UsageError, match="positive number is required"):
        run(folder.with_name("text"), figure="(rate)")


def test_a_candidate_that_fails_or_hangs_is_told_and_out_after_the_second_time(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["meshmark.experiments.advise"], "MIN_LIMIT_S", 0.5)
    folder = world(
        {"pack/thp": 0.02, "none": 0.03, "balance": 0.03, "none/thp": 0.03, "balance/thp": 0.03},
        fails=["balance"],
        hangs=["pack"],
    )
    advice = run(folder)
    assert advice.failed["balance"] == "ended with status 3: it broke"
    assert advice.failed["pack"].startswith("took longer than 0.5 s")
    assert [o.cost for o in advice.outcomes if o.candidate == "balance"] == [None, None]
    assert sum("exclude" in t for t in TALK) == 4 and sum("second failure" in t for t in TALK) == 2
    assert advice.verdict.choice == "pack/thp".replace("/", ", ")


def test_a_command_that_fails_as_it_is_is_one_line(world: Any) -> None:
    with pytest.raises(MeshmarkError, match="the command ended with status 3: it broke"):
        run(world({}, fails=["none"]))


def test_absent_pages_are_left_out_and_nothing_to_try_is_said(world: Any) -> None:
    folder = world({}, absent=["2MiB"])
    advice = run(folder, SearchSpace(("none", "pack"), pages=("default", "2MiB")))
    assert [c.name for c in advice.plan.candidates] == [BASELINE, "pack"]
    assert advice.plan.left_out["pack, 2MiB"] == "absent: no such pages (would help: reserve some)"
    with pytest.raises(AbsentError, match="no candidate differs"):
        run(folder, SearchSpace(("none",), pages=("default", "2MiB")))


def test_the_budget_ends_it(world: Any) -> None:
    advice = run(world({}), budget_s=12.5)
    assert advice.spent_s <= 12.5 and 10 <= len(advice.outcomes) <= 12
    assert (advice.verdict.word, advice.verdict.stopped) == ("inconclusive", "the budget ended")


@pytest.mark.slow
def test_an_advice_that_was_killed_at_any_line_goes_on_to_the_same_runs(world: Any) -> None:
    folder = world({"pack": 0.8})
    uninterrupted = run(folder)
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    order = [o.candidate for o in uninterrupted.outcomes]
    for line_count, torn_line in itertools.product((0, 1, 7), (b"", b'{"type": "run", "cand')):
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:line_count]) + torn_line)
        plan = AdvicePlan.load(folder / "plan.json")
        assert plan == uninterrupted.plan
        resumed = advise(plan, folder, CandidateRunner(folder, plan.command, "", False, {}), TALK.append)
        assert resumed.outcomes[:line_count] == uninterrupted.outcomes[:line_count]
        # Times differ after that, so only the first rounds, in which all candidates run, must be in the same order.
        assert [o.candidate for o in resumed.outcomes][: 2 * len(plan.candidates)] == order[: 2 * len(plan.candidates)]
        journal_lines = [json.loads(x) for x in (folder / "journal.jsonl").read_bytes().splitlines()]
        assert [x["candidate"] for x in journal_lines] == [o.candidate for o in resumed.outcomes]


def test_a_run_is_on_disk_before_it_counts(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world({"pack": 0.8})

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Race, "add", die)
    with pytest.raises(KeyboardInterrupt):
        run(folder)
    assert len((folder / "journal.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"type": "run", "candidate": 3}\n', b'{"x": 1}\n'])
def test_a_journal_that_is_none_is_refused_in_one_line(world: Any, line: bytes) -> None:
    folder = world({})
    run(folder, budget_s=3.0)
    (folder / "journal.jsonl").write_bytes(line)
    plan = AdvicePlan.load(folder / "plan.json")
    with pytest.raises(MeshmarkError, match="line 1 is not a run"):
        advise(plan, folder, CandidateRunner(folder, plan.command, "", False, {}), TALK.append)
    foreign_run = {**asdict(CandidateRun("pack", 1.0, 1.0)), "candidate": "elsewhere", "type": "run"}
    (folder / "journal.jsonl").write_text(json.dumps(foreign_run) + "\n")
    with pytest.raises(MeshmarkError, match="belongs to another plan: found a run of 'elsewhere'"):
        advise(plan, folder, CandidateRunner(folder, plan.command, "", False, {}), TALK.append)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupting_ends_what_runs(world: Any, tmp_path: Path, number: signal.Signals) -> None:
    folder = world({}, hangs=["none"])
    code = (
        "from pathlib import Path; from meshmark.experiments.advise import *\n"
        "from meshmark.cli.process import end_by_signals; end_by_signals()\n"
        f"CandidateRunner(Path({str(folder)!r}), ['prog'], '', False, {{}}).run(Candidate(BASELINE), 1, 60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    log = Path(os.environ["FAKE_WORLD"] + ".log")
    assert until(log.exists)
    child.send_signal(number)
    child.wait(20)

    def left() -> list[Path]:
        return [p for p in Path("/proc").iterdir() if p.name.isdigit() and _is(p, str(tmp_path / "meshmark-place"))]

    assert until(lambda: left() == [])


def test_an_advice_that_another_is_at_is_refused(tmp_path: Path) -> None:
    AdvicePlan(["true"], 1.0, 1, "", False, [Candidate(BASELINE)]).save(tmp_path / "plan.json")
    with held(tmp_path):
        completed = meshmark("advise", "--resume", tmp_path)
    assert completed.returncode == 1
    assert f"{tmp_path}: in use by another measuring process" in completed.stderr


def test_nothing_runs_or_changes_in_a_folder_that_another_holds(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    AdvicePlan(["true"], 1.0, 1, "", False, [Candidate(BASELINE)]).save(tmp_path / "old" / "plan.json")
    plan = (tmp_path / "old" / "plan.json").read_bytes()
    for words in (
        ["--out", str(tmp_path / "new"), "--", "touch", str(marker)],
        ["--resume", str(tmp_path / "old"), "--budget", "7s"],
    ):
        with held(Path(words[1])):
            completed = meshmark("advise", *words)
        assert completed.returncode == 1 and "in use by another measuring process" in completed.stderr
    assert not marker.exists() and not (tmp_path / "new" / "plan.json").exists()
    assert (tmp_path / "old" / "plan.json").read_bytes() == plan


def test_runs_in_folders_of_one_name_are_two_runs_of_the_store(tmp_path: Path) -> None:
    for folder in (tmp_path / "a" / "best", tmp_path / "b" / "best"):
        words = ["--policies", "pack", "--pages", "default", "--store", str(tmp_path / "store"), "--out", str(folder)]
        completed = meshmark("advise", "--budget", "1s", *words, "--", "true")
        assert completed.returncode == 0, completed.stderr
    assert len(Store(tmp_path / "store").runs()) == 2


def _is(process: Path, program: str) -> bool:
    try:
        return program in (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
