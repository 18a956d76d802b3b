"""Test `meshmark measure composite` as a user runs it."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path

import pytest

from meshmark.applications.attempt import end_earlier
from meshmark.applications.composite import read_composite
from meshmark.machine.published.papers import paper
from meshmark.store.store import Store
from support.cli import meshmark, start
from support.waiting import until

RATE = r"""
[application]
command = "echo rate: {rate} ok"

[figure]
pattern = 'rate: (\S+)'
unit = "B/s"
better = "higher"

[verify]
pattern = "ok"

[dimensions]
rate = 8
"""
MEMBERS = """
[[member]]
application = "rate.toml"

[[member]]
name = "twice"
application = "rate.toml"
dimensions = { rate = 16 }
why = "the same, at another size"
"""
REFERENCE = """
[reference]
machine = "old"
source = "by hand"

[[reference.figure]]
member = "twice"
unit = "B/s"
runs = [8.0, 8.0, 8.0]

[[reference.figure]]
member = "rate"
unit = "B/s"
runs = 1.0
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "rate.toml").write_text(RATE)
    (tmp_path / "pair.toml").write_text(MEMBERS + REFERENCE)
    return tmp_path


def stored(files: Path, **equal: str) -> list[float]:
    return [r.value for r in Store(files / "data" / "meshmark" / "store").query(**equal)]


def test_a_composite_is_the_geometric_mean_of_the_ratios_and_is_stored(files: Path) -> None:
    completed = meshmark("measure", "composite", files / "pair.toml", "--runs", "3", "--warmup", "0", "--json")
    assert completed.returncode == 0, completed.stderr
    *records, answer = [json.loads(line) for line in completed.stdout.splitlines()]
    # The composite is the geometric mean of 8 and 2.
    assert answer["value"] == pytest.approx(4.0) and answer["interval"] == pytest.approx([4.0, 4.0])
    assert answer["name"] == "pair" and answer["reference"] == {"machine": "old", "source": "by hand"}
    assert {m["member"]: m["ratio"] for m in answer["members"]} == {"rate": 8.0, "twice": 2.0}
    assert stored(files, metric="composite") == pytest.approx([4.0])
    assert sorted(stored(files, metric="ratio")) == [2.0, 8.0]
    assert sorted(stored(files, metric="figure_of_merit")) == [8.0, 16.0]
    (composite,) = [r for r in records if r["metric"] == "composite"]
    assert (composite["conditions"]["reference"], composite["unit"], composite["better"]) == ("old", "1", "higher")


def test_without_a_reference_figures_are_measured_and_become_one(files: Path) -> None:
    (files / "alone.toml").write_text(MEMBERS)
    words = ("--runs", "3", "--warmup", "0", "--no-store")
    completed = meshmark("measure", "composite", files / "alone.toml", *words, "--save-reference", files / "ref.toml")
    assert completed.returncode == 0 and "no composite: there is no reference to divide by" in completed.stdout, (
        completed.stderr
    )
    completed = meshmark(
        "measure", "composite", files / "alone.toml", *words, "--against", files / "ref.toml", "--json"
    )
    assert json.loads(completed.stdout.splitlines()[-1])["value"] == pytest.approx(1.0), completed.stderr


def test_a_stored_run_is_a_reference(files: Path) -> None:
    words = ("--runs", "3", "--warmup", "0")
    assert meshmark("measure", "composite", files / "pair.toml", *words).returncode == 0
    (run,) = {row["run"] for row in Store(files / "data" / "meshmark" / "store").runs()}
    completed = meshmark("measure", "composite", files / "pair.toml", *words, "--against", run, "--json")
    answer = json.loads(completed.stdout.splitlines()[-1])
    assert answer["value"] == pytest.approx(1.0) and answer["reference"]["source"] == f"run {run}"


def test_a_member_that_fails_leaves_no_composite_but_the_results_of_the_others(files: Path) -> None:
    (files / "wrong.toml").write_text(RATE.replace('pattern = "ok"', 'pattern = "right"'))
    members = MEMBERS.replace('application = "rate.toml"', 'application = "wrong.toml"\nname = "rate"', 1)
    (files / "pair.toml").write_text(members + REFERENCE)
    completed = meshmark("measure", "composite", files / "pair.toml", "--runs", "3", "--warmup", "0")
    reason = "member rate failed: verify.pattern: found no match in the output"
    assert completed.returncode == 1 and f"no composite: {reason}" in completed.stderr.splitlines()[-2]
    assert "twice" in completed.stdout and "composite pair:" not in completed.stdout
    assert stored(files, metric="composite") == [] and stored(files, metric="figure_of_merit") == [16.0]
    reasons = [a.reason for a in Store(files / "data" / "meshmark" / "store").absences(metric="composite")]
    assert reasons == [f"pair: {reason}"]


def test_too_few_runs_leave_no_composite(files: Path) -> None:
    (files / "rate.toml").write_text(RATE.replace('"echo', "\"sh -c 'sleep 0.2; echo", 1).replace(' ok"', " ok'\"", 1))
    completed = meshmark(
        "measure", "composite", files / "pair.toml", "--runs", "9", "--warmup", "0", "--budget", "0.9s"
    )
    assert completed.returncode == 1 and "of at least 3 runs, since the budget ended" in completed.stderr, (
        completed.stderr
    )


def test_programs_that_are_not_installed_are_all_named_before_anything_runs(files: Path) -> None:
    for name in ("one", "two"):
        (files / f"{name}.toml").write_text(
            RATE.replace("echo", f"no-{name}").replace("[figure]", 'package="p"\n[figure]')
        )
    (files / "absent.toml").write_text('[[member]]\napplication = "one.toml"\n[[member]]\napplication = "two.toml"\n')
    completed = meshmark("measure", "composite", files / "absent.toml")
    assert completed.returncode == 77 and "lacks 2 of 2 members: one: found no program no-one; " in completed.stderr, (
        completed.stderr
    )
    assert "two: found no program no-two; it is in the package p" in completed.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("dimensions = { rate = 16 }", 'dimensions = { rate = "1,2" }'), "found 2 combinations of rate; allowed: one"),
        (('name = "twice"\n', ""), "member rate.toml: found a second member of this name"),
        (
            (
                'application = "rate.toml"\n',
                "",
            ),
            "found neither of application and instrument; one of them is required",
        ),
        (
            ('application = "rate.toml"\n', 'instrument = "nothing"\nmetric = "x"\n'),
            "instrument: found 'nothing'; allowed",
        ),
        (('application = "rate.toml"\n', 'instrument = "clock"\nmetric = "x"\n'), "metric: found 'x'; allowed: "),
        (
            ('member = "twice"', 'member = "thrice"'),
            "reference.figure: missing for member twice; each member needs one",
        ),
        (('unit = "B/s"', 'unit = "s"'), "twice: found the unit 's'; allowed: B/s"),
        (("runs = 1.0", "runs = 0"), "reference.figure[1].runs"),
        (("runs = 1.0", "runs = []"), "reference.figure[1].runs"),
        (('machine = "old"', 'machine = ""'), "reference.machine: found ''"),
        (("[reference]", "[referenz]"), "referenz: unknown key; did you mean reference?"),
        (('why = "', 'whi = "'), "whi: unknown key; did you mean why?"),
    ],
)
def test_bad_files_are_refused_in_one_line(files: Path, change: tuple[str, str], message: str) -> None:
    (files / "pair.toml").write_text((MEMBERS + REFERENCE).replace(*change, 1))
    completed = meshmark("measure", "composite", files / "pair.toml")
    assert completed.returncode == 2 and message in completed.stderr and "Traceback" not in completed.stderr, (
        completed.stderr
    )
    assert len([line for line in completed.stderr.splitlines() if line.startswith("meshmark: ")]) == 1


def test_members_are_verified(files: Path) -> None:
    (files / "rate.toml").write_text(RATE.replace('[verify]\npattern = "ok"\n', ""))
    completed = meshmark("measure", "composite", files / "pair.toml")
    assert (
        completed.returncode == 2 and "found an application without [verify]; members are verified" in completed.stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "FILE: missing; a composite file is required"),
        (("none.toml",), "FILE: found 'none.toml'; allowed: a file, open13"),
        (("pair.toml", "--runs", "2"), "--runs': Input should be greater than or equal to 3"),
        (("pair.toml", "--against", "nothing"), "--against: found neither a file nor a run of a composite 'nothing'"),
        (("pair.toml", "--against", "rate.toml"), "rate.toml: reference: missing"),
        (("pair.toml", "--resume", "none"), "--resume: found with a file; the original ones apply"),
        (("--resume", "none", "--runs", "5"), "--runs: found with --resume; the original value applies"),
        (("--resume", "none"), "--resume: found no application.json in "),
    ],
)
def test_bad_options_are_refused_in_one_line(files: Path, words: tuple[str, ...], message: str) -> None:
    completed = meshmark("measure", "composite", *words, cwd=files)
    assert completed.returncode == 2 and message in completed.stderr and "Traceback" not in completed.stderr, (
        completed.stderr
    )


def test_one_that_was_killed_goes_on_and_repeats_nothing(files: Path) -> None:
    run_log = files / "ran"
    text = RATE.replace('"echo rate: {rate} ok"', f"\"sh -c 'echo x >> {run_log}; echo rate: {{rate}} ok'\"")
    (files / "rate.toml").write_text(text)
    process = start("measure", "composite", files / "pair.toml", "--runs", "8", "--seed", "1")
    assert until(lambda: run_log.exists() and len(run_log.read_text().split()) >= 6)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = (files / "data" / "meshmark" / "runs").iterdir()
    # The last run may write its line late, which would count as a repetition.
    assert until(lambda: not sum(end_earlier(folder / "members" / member) for member in ("rate", "twice")))
    journaled_runs = len((folder / "journal.jsonl").read_text().splitlines())
    runs_before = len(run_log.read_text().split())
    (files / "pair.toml").unlink()  # the run folder has everything that is needed
    completed = meshmark("measure", "composite", "--resume", folder.name)
    assert completed.returncode == 0, completed.stderr
    assert len(run_log.read_text().split()) - runs_before == 2 * 9 - journaled_runs
    assert stored(files, metric="composite") == pytest.approx([math.sqrt(8 * 2)])


def test_an_instrument_is_a_member_and_must_leave_one_point(files: Path) -> None:
    options = "--kernel {} --volume 1MiB --stride 1 --threads 1 --budget 0.1s"
    text = f'[[member]]\ninstrument = "kernels"\nmetric = "unit_time"\noptions = "{options}"\n'
    words = ("--runs", "3", "--warmup", "0", "--no-store", "--json")
    (files / "one.toml").write_text(text.format("triad"))
    completed = meshmark("measure", "composite", files / "one.toml", *words)
    answer = json.loads(completed.stdout.splitlines()[-1])
    assert (
        completed.returncode == 0 and answer["members"][0]["unit"] == "s" and len(answer["members"][0]["values"]) == 3
    )
    (files / "two.toml").write_text(text.format("triad,copy"))
    completed = meshmark("measure", "composite", files / "two.toml", *words)
    assert (
        completed.returncode == 1
        and "found no single verified result of kernels; its options must select" in completed.stderr
    )


def test_the_open_suite_has_a_kernel_for_each_program_of_the_published_table() -> None:
    suite = read_composite("open13")
    published = {str(r.conditions["program"]) for r in paper("xeon5500").records() if r.metric == "figure_of_merit"}
    assert {m.name for m in suite.members} == published and len(published) == 13
    assert all(m.why and m.instrument for m in suite.members)
