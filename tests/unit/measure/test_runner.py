"""Runner and journal: if a process is killed, hangs, crashes or prints invalid lines, nothing is lost or repeated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.measure import survey
from meshmark.measure.runs import runner
from meshmark.measure.runs.plan import SurveyPlan, SurveyStep, make_plan
from meshmark.measure.runs.runner import Pace, PlanRunner, StepResult, run_plan
from meshmark.measure.runs.spec import load_spec, parse_spec
from meshmark.store.store import Store
from support.paths import FAKE_PROBE
from support.processes import children_of, nobody_with
from support.waiting import alive, until

FAKE = FAKE_PROBE


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MESHMARK_PROBE", str(FAKE))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def step(*words: str, budget_s: float = 2) -> SurveyStep:
    return SurveyStep("01-fake", "fake", ("fake", *words), budget_s)


def test_a_step_runs_and_a_second_run_measures_nothing(tmp_path: Path, fake: Path) -> None:
    runner = PlanRunner(tmp_path / "run")
    first = runner.run_step(step())
    assert first.status == "ok" and len(first.reading.records) == 4
    log_text = fake.read_text()
    second = runner.run_step(step())
    assert second.status == "resumed" and second.reading.records == first.reading.records
    assert fake.read_text() == log_text


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("crash", "SIGSEGV"),
        ("nonsense", "not JSON"),
        ("no_end", "without an end line"),
        ("lies", "median"),
        ("usage", "points: found 'x'; allowed: 1 to 9"),
    ],
)
def test_a_fault_is_one_clear_line_and_the_others_go_on(tmp_path: Path, fault: str, says: str) -> None:
    bad, good = step("--fault", fault), SurveyStep("02-fake", "fake", ("fake",), 2)
    messages: list[str] = []
    store = Store(tmp_path / "store")
    results = run_plan(SurveyPlan("p", (bad, good)), tmp_path / "run", store, "r", None, messages.append)
    assert [r.status for r in results] == ["failed", "ok"]
    assert len(messages) == 1 and says in messages[0] and "\n" not in messages[0]
    assert len(store.query(step="02-fake")) == 4
    assert [a.kind for a in store.absences(step="01-fake")] == ["error"]


def test_what_is_absent_is_no_failure(tmp_path: Path) -> None:
    result = PlanRunner(tmp_path).run_step(step("--fault", "absent"))
    assert result.status == "absent"
    assert [(a.kind, a.reason, a.enable) for a in result.reading.absences] == [
        ("absent", "no such thing here", "buy one")
    ]


def test_a_hanging_probe_is_killed_with_its_reason(tmp_path: Path) -> None:
    result = PlanRunner(tmp_path, silence_s=0.5).run_step(step("--fault", "hang", budget_s=0.5))
    assert result.status == "failed" and "killed" in result.message


def test_a_probe_that_cannot_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = PlanRunner(tmp_path)
    broken = tmp_path / "broken"
    broken.write_text("#!/proc/no/such/shell\n")
    broken.chmod(0o755)
    monkeypatch.setenv("MESHMARK_PROBE", str(broken))
    assert "cannot be started" in runner.run_step(step()).message


def test_killed_at_random_moments_it_resumes_and_measures_nothing_twice(tmp_path: Path, fake: Path) -> None:
    code = f"""
from pathlib import Path
from meshmark.measure.runs.plan import SurveyPlan, SurveyStep
from meshmark.measure.runs.runner import run_plan
from meshmark.store.store import Store
steps = tuple(SurveyStep(f"0{{i}}-fake", "fake", ("fake", "--seed", str(i), "--pause", "0.02"), 2) for i in range(3))
run_plan(SurveyPlan("p", steps), Path({str(tmp_path / "run")!r}), Store(Path({str(tmp_path / "store")!r})), "r")
"""
    rng = random.Random(5)
    kills = 0
    while True:
        child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
        try:
            child.wait(timeout=rng.uniform(0.3, 0.7) if kills < 8 else 60)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            kills += 1
            assert nobody_with(f"FAKE_LOG={fake}"), "the probe dies with its parent"
            continue
        break
    assert child.returncode == 0
    assert kills >= 3, "it was never killed in the middle"
    store = Store(tmp_path / "store")
    assert len(store.query()) == 12
    # A sample that was taken but not yet written at the time of the kill is lost; only this sample is repeated.
    sample_counts = Counter(fake.read_text().split())
    assert sum(sample_counts.values()) <= 3 * 4 * 7 + kills
    assert all(len(r.samples) == 7 for r in store.query())


def test_the_probe_dies_with_its_runner(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner
PlanRunner(Path({str(tmp_path)!r})).run_step(SurveyStep("s", "fake", ("fake", "--fault", "hang"), 99))
"""
    child = subprocess.Popen([sys.executable, "-c", code])

    def probes() -> list[int]:
        return [p for p in children_of(child.pid) if b"fake_probe" in Path(f"/proc/{p}/cmdline").read_bytes()]

    assert until(probes)
    processes = probes()
    child.kill()
    child.wait()
    assert until(lambda: not any(map(alive, processes)))


def test_a_full_disk_under_the_journal_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root to be mounted")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(small)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        messages: list[str] = []
        store = Store(tmp_path / "store")
        store.add("before", "s", PlanRunner(tmp_path / "r0").run_step(step()).reading.records)
        plan = SurveyPlan("p", (step("--points", "90"), SurveyStep("02-fake", "fake", ("fake",), 2)))
        results = run_plan(plan, small, store, "r", None, messages.append)
        assert results[0].status == "failed" and "No space left" in messages[0]
        assert len(store.query(run="before")) == 4, "the store stays readable"
    finally:
        subprocess.run(["umount", str(small)], check=True)


GOOD = 'name = "mine"\n[[step]]\ninstrument = "fake"\nrepetitions = 2\noptions = { points = 3 }\n'


def test_repetitions_are_fresh_steps_one_round_after_the_other() -> None:
    more = GOOD + '[[step]]\ninstrument = "fake"\nrepetitions = 2\n'
    ids = [s.id for s in make_plan(parse_spec(more, "x")).steps]
    assert ids == ["01-fake.r1", "02-fake-2.r1", "03-fake.r2", "04-fake-2.r2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "not TOML"),
        ('name = "x"\n', "step"),
        (GOOD.replace("repetitions", "repeats"), "step[0].repeats: unknown key; did you mean repetitions?"),
        (GOOD.replace("= 2", "= 0"), "step[0].repetitions"),
        (GOOD.replace('"fake"', '"nosuch"'), "allowed: fake"),
        (GOOD.replace("points = 3", "pionts = 3"), "found 'pionts'; allowed: budget"),
        (GOOD.replace("points = 3", "points = { a = 1 }"), "a string, a number or a list"),
        (GOOD.replace('"mine"', '"../x"'), "name"),
    ],
)
def test_a_wrong_spec_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        make_plan(parse_spec(text, "my.toml"))
    assert says in str(error.value) and "my.toml" in str(error.value)


def test_a_spec_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_spec("/proc/no/such/spec.toml")


def test_a_plan_survives_the_way_to_disk(tmp_path: Path) -> None:
    plan = make_plan(parse_spec(GOOD, "x"))
    plan.save(tmp_path / "plan.json")
    assert SurveyPlan.load(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", ".hidden", "", "x" * 300])
def test_the_id_of_a_step_cannot_leave_the_run_folder(tmp_path: Path, name: str) -> None:
    SurveyPlan("p", (SurveyStep(name, "fake", ("fake",), 1.0),)).save(tmp_path / "plan.json")
    with pytest.raises(MeshmarkError, match="id of a step"):
        SurveyPlan.load(tmp_path / "plan.json")


@pytest.mark.parametrize("word", ["resume", "machine"])
def test_a_specification_names_no_file_that_the_probe_would_read(word: str) -> None:
    text = f'name = "s"\n[[step]]\ninstrument = "fake"\noptions = {{ {word} = "/etc/passwd" }}\n'
    with pytest.raises(UsageError, match=rf"step\[0\]: fake\.{word}: not allowed in a specification"):
        parse_spec(text, "my.toml")


def test_two_resumed_surveys_do_not_measure_the_same_step(tmp_path: Path, fake: Path) -> None:
    """The second run is refused with one line, and the first run finishes."""
    folder = tmp_path / "run"
    begin = f"""
import sys
from pathlib import Path
from meshmark.measure import survey
from meshmark.errors import MeshmarkError
def run(resume):
    survey.run_survey(sys.argv[1], Path({str(folder)!r}), Path("runs"), Path({str(tmp_path / "store")!r}), resume, "c",
                      lambda _: lambda *_: None, lambda _: None)
try:
    run(sys.argv[2] == "resume")
except MeshmarkError as why:
    print(why)
"""
    spec = tmp_path / "my.toml"
    spec.write_text('name = "s"\n[[step]]\ninstrument = "fake"\noptions = { pause = "0.05" }\n')
    words = [sys.executable, "-c", begin, str(spec)]
    first = subprocess.Popen([*words, "new"], stdout=subprocess.PIPE, text=True)
    assert until(fake.exists)
    first.send_signal(signal.SIGSTOP)  # the first run stays at this point, however long the second takes to start
    plan, state = (folder / "plan.json").read_bytes(), (folder / "run.json").read_bytes()
    second = subprocess.run([*words, "resume"], capture_output=True, text=True, check=True)
    (folder / "plan.json").unlink()  # the state before the first run saved the plan
    new = subprocess.run([*words, "new"], capture_output=True, text=True, check=True)
    assert "in use by another measuring process" in new.stdout and not (folder / "plan.json").exists()
    assert (folder / "run.json").read_bytes() == state
    (folder / "plan.json").write_bytes(plan)
    first.send_signal(signal.SIGCONT)
    assert "in use by another measuring process" in second.stdout
    assert first.communicate(timeout=60)[0] == ""
    assert max(Counter(fake.read_text().splitlines()).values()) == 1
    third = subprocess.run([*words, "resume"], capture_output=True, text=True, check=True)
    assert third.stdout == "" and max(Counter(fake.read_text().splitlines()).values()) == 1


def test_a_step_that_cannot_start_is_absent_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step has no journal and does not count as failed, neither at once nor after a run that resumes the survey."""
    program_of = runner.program_of

    def program(step: SurveyStep) -> list[str]:
        if step.id.startswith("02"):
            raise AbsentError("MPICH is not installed", "apt install mpich")
        return program_of(step)

    monkeypatch.setattr(runner, "program_of", program)
    spec = tmp_path / "my.toml"
    spec.write_text('name = "s"\n[[step]]\ninstrument = "fake"\n[[step]]\ninstrument = "fake"\nname = "other"\n')
    folder = tmp_path / "run"
    for resume in (False, True):
        survey.run_survey(
            str(spec), folder, tmp_path, tmp_path / "store", resume, "c", lambda _: lambda *_: None, lambda _: None
        )
        records, absences, info = survey.load_run(folder)
        assert len(records) == 4 and [s["status"] for s in info.steps] == ["ok", "absent"]
        assert [(a.kind, a.reason, a.enable) for a in absences] == [
            ("absent", "MPICH is not installed", "apt install mpich")
        ]


def test_a_plan_far_behind_starts_no_further_repetitions() -> None:
    steps = [SurveyStep(f"prefetch.r{i}", "prefetch", ("prefetch",), 3.0) for i in (1, 2, 3)]
    pace = Pace(9.0)
    assert pace.allows(steps[0])
    pace.add(StepResult(steps[0], "ok", elapsed_s=5.0))
    assert pace.allows(steps[1]), "5 s and another 5 s are within a fifth of 9 s"
    pace.add(StepResult(steps[1], "ok", elapsed_s=5.0))
    assert not pace.allows(steps[2])
    assert pace.allows(SurveyStep("gups", "gups", ("gups",), 3.0)), "every step runs once"


def test_earlier_results_of_a_resumed_run_take_no_time() -> None:
    step = SurveyStep("gups.r1", "gups", ("gups",), 1.0)
    pace = Pace(2.0)
    pace.add(StepResult(step, "resumed", elapsed_s=100.0))
    assert pace.allows(step)
