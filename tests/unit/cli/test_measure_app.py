"""Test `meshmark measure app` as a user runs it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from rich.console import Console

from meshmark.applications.attempt import ConfigurationRun, end_earlier
from meshmark.applications.trials import ApplicationPlan, Trials
from meshmark.cli.measure.measure_app import RunProgress
from meshmark.store.store import Store
from meshmark.views.terminal import application
from support import fake_perf
from support.cli import meshmark, start
from support.waiting import until

FILE = r"""
[application]
command = "sh {source}/work.sh {size}"

[figure]
pattern = 'rate: (\S+)'
unit = "B/s"
scale = 1e9
better = "higher"

[verify]
pattern = "sum: 7"

[dimensions]
size = "1,2"
threads = "1,2"
"""
SCRIPT = 'echo "sum: 7, rate: $1$OMP_NUM_THREADS"\n'


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work.sh").write_text(SCRIPT)
    (tmp_path / "work.toml").write_text(FILE)
    return tmp_path


def test_a_file_is_measured_stored_and_printed(files: Path) -> None:
    completed = meshmark("measure", "app", files / "work.toml", "--seed", "1")
    assert completed.returncode == 0, completed.stderr
    assert "figure_of_merit [GB/s]" in completed.stdout and "size=2 threads=2" in completed.stdout
    assert "against size=1 threads=1:" in completed.stdout and "not verified" not in completed.stdout
    records = Store(files / "data" / "meshmark" / "store").query(instrument="app")
    rates = {(r.conditions["size"], r.conditions["threads"]): r.value for r in records if r.unit == "B/s"}
    assert rates == {("1", 1): 11e9, ("1", 2): 12e9, ("2", 1): 21e9, ("2", 2): 22e9}


def test_another_figure_has_neither_unit_nor_scale_of_the_file(files: Path) -> None:
    words = ("measure", "app", files / "work.toml", "--pattern", r"sum: (\d)", "--repetitions", "1", "--no-store")
    assert "figure.better: required with a pattern" in meshmark(*words).stderr
    completed = meshmark(*words, "--better", "higher", "--unit", "apples", "--vary", "size=1", "--json")
    records = [json.loads(line) for line in completed.stdout.splitlines()]
    kind = ("result", "figure_of_merit")
    assert {(r["value"], r["unit"]) for r in records if (r["type"], r.get("metric")) == kind} == {(7.0, "apples")}


def test_a_command_is_enough_and_json_ends_with_the_answer(files: Path) -> None:
    completed = meshmark("measure", "app", "--command", "sh -c 'exit {x}'", "--vary", "x=0,00", "--json", "--no-store")
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    assert completed.returncode == 0 and lines[-1]["type"] == "application" and lines[-1]["name"] == "sh"
    assert {line["metric"] for line in lines[:-1]} >= {"elapsed", "user", "system", "peak_memory"}
    assert not (files / "data" / "meshmark" / "store").exists()
    assert lines[-1]["pairs"][0]["to"] == "x=0"


def test_one_that_fails_is_named_and_the_others_are_kept(files: Path) -> None:
    completed = meshmark("measure", "app", "--command", "sh -c 'exit {x}'", "--vary", "x=0,3", "--warmup", "0")
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[-2] == "meshmark: error: x=3: ended with status 3: no output"
    assert "x=3: left out: ended with status 3" in completed.stdout and completed.stdout.splitlines()[1].startswith(
        "x=0"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "FILE: found no file and no --command; one of them is required"),
        (("work.toml", "--command", "true"), "FILE: found a file and --command; one of them is required"),
        (("--command", "true", "--vary", "threads"), "--vary: found 'threads'; allowed: NAME=VALUES, such as"),
        (("--command", "true", "--vary", "threads=x"), "dimensions.threads: found 'x'"),
        (("--command", "true", "--pattern", "x"), "figure.better: required with a pattern; allowed: lower, higher"),
        (("--command", ""), "FILE: found no file and no --command"),
        (("--command", "no-such-program"), "absent: no-such-program: found no program no-such-program"),
        (("none.toml",), "FILE: found 'none.toml'; allowed: a file, "),
        (("--resume", "none"), "--resume: found no application.json in "),
        (("--resume", "none", "--repetitions", "7"), "--repetitions: found with --resume; the original value applies"),
        (("--resume", "none", "--budget", "9s"), "--resume: found no application.json in "),
        (("--resume", "none", "--command", "true"), "--resume: found with an application"),
        (("--command", "true", "--margin", "2"), "--margin: found '2', a share from 0% to 1000% is required"),
    ],
)
def test_bad_options_are_refused_in_one_line(files: Path, words: tuple[str, ...], message: str) -> None:
    completed = meshmark("measure", "app", *words, cwd=files)
    assert completed.returncode in (2, 77) and message in completed.stderr and "Traceback" not in completed.stderr, (
        completed.stderr
    )
    assert len([line for line in completed.stderr.splitlines() if line.startswith("meshmark: ")]) <= 1


def test_one_that_was_killed_goes_on_and_repeats_nothing(files: Path) -> None:
    (files / "work.sh").write_text(f"echo x >> {files}/ran; {SCRIPT}")
    process = start("measure", "app", files / "work.toml", "--repetitions", "8", "--seed", "1")
    run_log = files / "ran"
    assert until(lambda: run_log.exists() and len(run_log.read_text()) >= 10)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    runs = files / "data" / "meshmark" / "runs"
    (folder,) = runs.iterdir()
    journaled_runs = len((folder / "journal.jsonl").read_text().splitlines())
    assert until(lambda: len(run_log.read_text().split()) - journaled_runs <= 1)
    end_earlier(folder)  # otherwise, its last run may still write
    runs_before = len(run_log.read_text().split())
    completed = meshmark("measure", "app", "--resume", folder.name)
    assert completed.returncode == 0, completed.stderr
    assert len(run_log.read_text().split()) - runs_before == 4 * 9 - journaled_runs
    assert completed.stdout.splitlines()[1].split()[-1] == "8"


def test_its_help_and_its_completion_are_those_of_a_command(files: Path) -> None:
    completed = meshmark("measure", "app", "--help")
    assert (
        completed.returncode == 0
        and "example: meshmark measure app" in completed.stdout
        and "--vary" in completed.stdout
    )
    completion = meshmark(
        env={"_MESHMARK_COMPLETE": "complete_bash", "COMP_WORDS": "meshmark measure app --va", "COMP_CWORD": "3"}
    )
    assert completion.stdout.split() == ["plain,--vary"] or "--vary" in completion.stdout


def test_an_application_is_placed_by_the_adviser_and_verified(files: Path) -> None:
    words = ("--policies", "none,pack", "--memory", "default", "--pages", "default", "--out", files / "advice")
    completed = meshmark("advise", "--app", files / "work.toml", "--budget", "2s", *words)
    assert completed.returncode == 0, completed.stderr
    plan = json.loads((files / "advice" / "plan.json").read_text())
    assert plan["figure"] == r"rate: (\S+)" and plan["higher"] and plan["application"].endswith("work.toml")
    (files / "work.sh").write_text(SCRIPT.replace("sum: 7", "sum: 8"))
    resumed = meshmark("advise", "--resume", files / "advice")
    assert resumed.returncode == 0, resumed.stderr
    unverified = meshmark("advise", "--app", files / "work.toml", "--budget", "2s")
    assert unverified.returncode == 1 and "verify.pattern: found no match in the output" in unverified.stderr


def test_the_adviser_starts_each_run_anew_and_reads_its_file_of_results(files: Path) -> None:
    (files / "fresh.toml").write_text(
        '[application]\noutput = "result"\n'
        "command = ['sh', '-c', 'test ! -e result && test -e input && echo rate: 5 > result']\n"
        '[files]\ninput = "1"\n[figure]\npattern = "rate: (\\\\S+)"\nbetter = "higher"\n'
    )
    words = ("--policies", "none,pack", "--memory", "default", "--pages", "default", "--out", files / "advice")
    completed = meshmark("advise", "--app", files / "fresh.toml", "--budget", "2s", *words)
    assert completed.returncode == 0, completed.stderr


def test_an_application_has_its_figure_of_merit_for_the_adviser(files: Path) -> None:
    completed = meshmark("advise", "--app", files / "work.toml", "--fom", "x")
    assert completed.returncode == 2 and "--fom: found with --app" in completed.stderr


def test_a_file_is_named_in_errors_and_may_have_any_name(files: Path) -> None:
    name = "1 größe.v2.toml"
    (files / name).write_text(FILE)
    completed = meshmark("measure", "app", name, "--repetitions", "1", "--warmup", "0", "--json", cwd=files)
    assert completed.returncode == 0 and json.loads(completed.stdout.splitlines()[-1])["name"] == "_gr__e", (
        completed.stderr
    )
    (files / name).write_text(FILE.replace("[figure]", "[figur]"))
    completed = meshmark("measure", "app", name, cwd=files)
    assert completed.returncode == 2 and completed.stderr.startswith(f"meshmark: error: {name}: figur: unknown key"), (
        completed.stderr
    )


def test_one_goes_on_wherever_it_is_resumed(files: Path) -> None:
    words = ("measure", "app", files / "work.toml", "--repetitions", "2", "--no-store")
    assert meshmark(*words).returncode == 0
    (folder,) = (files / "data" / "meshmark" / "runs").iterdir()
    lines = (folder / "journal.jsonl").read_text().splitlines(keepends=True)
    (folder / "journal.jsonl").write_text("".join(lines[:-1]))
    completed = meshmark("measure", "app", "--resume", f"./{folder.name}", "--no-store", cwd=folder.parent)
    assert completed.returncode == 0 and len((folder / "journal.jsonl").read_text().splitlines()) == len(lines), (
        completed.stderr
    )


def test_how_the_cache_is_limited_is_said_and_kept(files: Path) -> None:
    words = ("measure", "app", "--command", "true", "--vary", "cache=1MiB,all", "--no-store")
    # Without the load program, no neighbour starts.
    completed = meshmark(*words, env={"MESHMARK_LOAD": str(files / "none")})
    method, _, _ = completed.stderr.splitlines()[0].partition(", since resctrl is ")
    assert method in ("cache_method=neighbours", "cache_method=resctrl"), completed.stderr
    (plan,) = (files / "data" / "meshmark" / "runs").glob("*/application.json")
    dimensions = json.loads(plan.read_text())["tables"]["dimensions"]
    assert dimensions["cache"] == "1MiB,all" and f"cache_method={dimensions['cache_method']}" == method


def test_no_result_within_the_budget_is_an_error(files: Path) -> None:
    completed = meshmark("measure", "app", "--command", "sleep 0.2", "--budget", "0.1", "--no-store")
    assert completed.returncode == 1 and "the budget ended before a run that counts" in completed.stderr


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_table_keeps_configurations_and_figures_on_a_narrow_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"configuration": "size=1000 threads=2", "value": 0.1084, "interval": (0.1041, 0.1162), "lowest": 0.1041}
    further_columns = {
        "highest": 0.1162,
        "user_s": 0.0966,
        "system_s": 0.01,
        "waiting_share": 0.038,
        "peak_bytes": 1 << 20,
    }
    empty_columns: dict[str, object] = {"findings": [], "neighbours": {}}
    answer = {
        "configurations": [{**row, **further_columns, "runs": 6, "failed": 0, "flags": [], **empty_columns}],
        "unit": "s",
    }
    answer |= {"metric": "elapsed", "better": "lower", "verified": True, "stopped": "", "failed": {}}
    answer |= {"pairs": [], "scaling": [], "levels": []}
    answer |= {"profiles": [], "working_sets": [{"others": "threads=2", "text": "8MiB is as good as all"}]}
    answer |= {"prefetchers": [{"others": "", "text": "off against on: slower: 0.917 × as fast"}]}
    answer |= {"clocks": [{"others": "threads=2", "text": "the rate is proportional to the clock"}]}
    monkeypatch.setattr(application, "table_console", lambda: Console(width=columns, markup=False, highlight=False))
    application.print_application(answer)
    title, line, _, cache, _, prefetchers, _, clock = capsys.readouterr().out.splitlines()
    assert cache == "cache, threads=2: 8MiB is as good as all"
    assert prefetchers == "prefetchers: off against on: slower: 0.917 × as fast"
    assert clock == "clock, threads=2: the rate is proportional to the clock"
    assert line.startswith("size=1000 threads=2 ") and "108.4" in line and "104.1 – 116.2" in line
    assert "…" not in title + line and line.split()[-1] == "6" and ("peak" in title) == (columns == 200)


def test_progress_shows_values_with_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    plan = ApplicationPlan(
        tables={}, source="", rounds=1, warmup=0, budget_s=1.0, seed=1, margin=0.02, run="a", started="now"
    )
    with RunProgress(1, 1.0) as show:
        show(Trials(plan, [], [ConfigurationRun(configuration="x=[/a]", round=1, value=1.0)]))
        show.bar.refresh()


def test_a_profile_is_printed_stored_and_leaves_the_figures_alone(files: Path) -> None:
    path = fake_perf.install(files / "bin")
    # The script prints another figure under perf.
    (files / "work.sh").write_text('echo "sum: 7, rate: $1$OMP_NUM_THREADS$UNDER_PERF"\n')
    words = (files / "work.toml", "--vary", "size=1,2", "--vary", "threads=1", "--repetitions", "2", "--profile")
    completed = meshmark("measure", "app", *words, env={"PATH": path})
    assert completed.returncode == 0, completed.stderr
    assert "sweep(double*, int)" in completed.stdout and "72.2 – 77.6 %" in completed.stdout
    assert "2 configurations, 6 runs and 2 under perf, at most" in completed.stderr
    assert "size=2 threads=1: 1,000 samples of cpu-clock, 3 more were lost: " in completed.stdout
    records = Store(files / "data" / "meshmark" / "store").query(instrument="app")
    assert {r.value for r in records if r.unit == "B/s"} == {11e9, 21e9}
    assert {len(r.samples) for r in records if r.metric == "elapsed"} == {2}
    assert sum(r.metric == "function_share" for r in records) == 2 * 3


def test_a_file_asks_for_a_profile_and_what_would_enable_it_is_said(files: Path) -> None:
    (files / "work.toml").write_text(FILE.replace("[application]", "[application]\nprofile = true"))
    path = fake_perf.install(files / "bin")
    words = ("--vary", "size=1", "--vary", "threads=1", "--repetitions", "1", "--json", "--no-store")
    env = {"PATH": path, "FAKE_PERF_REFUSES": "no access"}
    completed = meshmark("measure", "app", files / "work.toml", *words, env=env)
    answer = json.loads(completed.stdout.splitlines()[-1])
    assert completed.returncode == 0 and "no profile: perf " in completed.stderr
    assert answer["profiles"][0]["reason"].startswith("perf ") and answer["profiles"][0]["functions"] == []
    (files / "work.toml").write_text(FILE.replace("[application]", "[application]\nprofile = 3"))
    completed = meshmark("measure", "app", files / "work.toml")
    assert completed.returncode == 2 and "application.profile" in completed.stderr


def test_a_finished_measurement_is_profiled_later(files: Path) -> None:
    path = fake_perf.install(files / "bin")
    words = ("--vary", "size=1", "--vary", "threads=1", "--repetitions", "2")
    first = meshmark("measure", "app", files / "work.toml", *words)
    run = first.stderr.split(":")[0]
    completed = meshmark("measure", "app", "--resume", run, "--profile", env={"PATH": path})
    assert completed.returncode == 0 and "sweep(double*, int)" in completed.stdout
    records = Store(files / "data" / "meshmark" / "store").query(instrument="app")
    assert sum(r.metric == "elapsed" for r in records) == 1 and sum(r.metric == "function_share" for r in records) == 3
