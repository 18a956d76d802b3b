"""Test applications as programs of scenarios and studies: how they run, how results are verified, what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.load.scenario.application import (
    VERDICTS,
    CopyVerdict,
    DimensionTerms,
    ScenarioApplication,
    described,
    read_verdicts,
    save_verdicts,
)
from meshmark.load.scenario.journal import JOURNAL, read_run
from meshmark.load.scenario.records import records_of
from meshmark.load.scenario.run import run_scenario
from meshmark.load.scenario.scenario import read_scenario
from meshmark.load.studies.copies import CopiesStudy
from meshmark.load.studies.study import StudyOptions
from meshmark.views.terminal.gantt import gantt_text
from support.scenarios import CPUS, QUIET, run

# The script writes its copy and size to a file of its working folder, and prints how often that folder was used.
SCRIPT = """#!/bin/sh
echo "copy {copy} of size {size}" >> used
wc -l < used
echo "sum: $(cat in.txt)"
echo "rate: 1{copy} GB/s" > result.txt
"""
ASKED = DimensionTerms("file", "dimension", "{name}={value}")


def described_in(folder: Path, size: str, expected: str = "7") -> Path:
    path = folder / "app.toml"
    path.write_text(
        f"""
[application]
command = "sh run.sh"
prepare = ["sh -c 'echo made >> {{source}}/made'"]
output = "result.txt"
[build.O2]
commands = ["true"]
[figure]
pattern = 'rate: (\\S+) GB/s'
unit = "B/s"
scale = 1e9
better = "higher"
[verify]
pattern = 'sum: (\\d+)'
expected = {expected}
[dimensions]
size = {size}
[files]
"in.txt" = "{{size}}"
"run.sh" = '''{SCRIPT}'''
"""
    )
    return path


def of(folder: Path, **values: str) -> ScenarioApplication:
    return described("app.toml", values, None, folder, ASKED)


def test_copies_run_in_folders_of_their_own_and_their_results_are_read(tmp_path: Path) -> None:
    described_in(tmp_path, "[7, 8]")
    load_run = run(
        tmp_path,
        QUIET
        + "[[program]]\nname = 'right one'\napplication = 'app.toml'\ndimensions = { size = 7 }\ncopies = 2\n"
        + "[[program]]\nname = 'wrong'\napplication = 'app.toml'\ndimensions = { size = 8 }\n",
    )
    assert [(p.program, p.how) for p in load_run.programs] == [
        ("right one", "ok"),
        ("right one", "ok"),
        ("wrong", "status"),
    ]
    assert "found 8.0; expected 7.0" in load_run.programs[2].reason
    assert [p.figure_value for p in load_run.programs] == [10e9, 11e9, 0]
    for copy in (0, 1):
        assert (
            load_run.folder / "copies" / "right_one" / f"copy{copy}" / "used"
        ).read_text() == f"copy {copy} of size 7\n"
    assert (tmp_path / "made").read_text() == "made\n" * 2, "inputs are made once for each program"
    records, absences = records_of(load_run)
    figures = [r for r in records if r.metric == "figure_of_merit"]
    assert [(r.value, r.unit, r.better) for r in figures] == [(10e9, "B/s", "higher"), (11e9, "B/s", "higher")]
    assert (
        figures[0].conditions["application"] == "app.toml"
        and figures[0].conditions["configuration"] == "size=7 build=O2"
    )
    assert [a.conditions["program"] for a in absences] == ["wrong"]
    assert "failed" in gantt_text(load_run)


def test_a_run_that_was_cut_before_its_results_were_read_does_not_count(tmp_path: Path) -> None:
    described_in(tmp_path, "7")
    load_run = run(tmp_path, QUIET + "[[program]]\napplication = 'app.toml'\n")
    assert [p.how for p in load_run.programs] == ["ok"]
    (load_run.folder / VERDICTS).unlink()
    (unread,) = read_run(load_run.folder).programs
    assert unread.how == "cut" and "before its result was read" in unread.reason


def test_a_program_that_fails_is_not_verified(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(
        '[application]\ncommand = "sh -c \'echo sum: 7; exit 3\'"\n[verify]\npattern = "7"\n'
    )
    load_run = run(tmp_path, QUIET + "[[program]]\napplication = 'app.toml'\n")
    assert [p.reason for p in load_run.programs] == ["ended with status 3"]
    assert read_verdicts(load_run.folder) == {}


def test_threads_are_those_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(
        "[application]\ncommand = \"sh -c 'echo threads {threads} $OMP_NUM_THREADS'\"\n"
        "[verify]\npattern = 'threads 2 2'\n[dimensions]\nthreads = [1, 2, 4]\n"
    )
    load_run = run(tmp_path, QUIET + "[[program]]\napplication = 'app.toml'\nthreads = 2\noversubscribe = true\n")
    assert [p.how for p in load_run.programs] == ["ok"]
    application = described("app.toml", {}, None, tmp_path, ASKED)
    assert application.configuration.values == {"threads": "1"}


def test_threads_are_also_those_of_a_program_whose_file_names_none(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text('[application]\ncommand = "echo {threads}"\n[verify]\npattern = "^2$"\n')
    load_run = run(tmp_path, QUIET + "[[program]]\napplication = 'app.toml'\nthreads = 2\noversubscribe = true\n")
    assert [p.how for p in load_run.programs] == ["ok"]


@pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="needs Open MPI")
def test_ranks_stay_on_the_cpus_of_their_copy(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(
        "[application]\ncommand = \"sh -c 'grep Cpus_allowed_list /proc/self/status'\"\n"
        f"[verify]\npattern = 'Cpus_allowed_list:\\s+{CPUS[-1]}$'\n[dimensions]\nranks = 2\n"
    )
    table = f"[[program]]\napplication = 'app.toml'\ncpus = '{CPUS[-1]}'\n"
    with pytest.raises(UsageError, match="threads: found 2, more than"):
        run(tmp_path, QUIET + table)
    load_run = run(tmp_path, QUIET + table + "oversubscribe = true\n")
    assert [(p.how, p.reason) for p in load_run.programs] == [("ok", "")]
    out = (load_run.folder / "output" / "program.0.out").read_text()
    assert out.count(f"\t{CPUS[-1]}\n") == 2, "both ranks"


def test_programs_have_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("[[program]]\nname = 'a b'\ncommand = ['true']\n")
    read_scenario(tmp_path / "s.toml")
    (tmp_path / "s.toml").write_text(
        "".join(f"[[program]]\nname = '{n}'\ncommand = ['true']\n" for n in ("a b", "a:b"))
    )
    with pytest.raises(
        UsageError, match="name: found 'a:b', whose files would have the same names as the files of 'a b'"
    ):
        read_scenario(tmp_path / "s.toml")


def test_a_study_makes_inputs_once_and_counts_only_right_results(tmp_path: Path) -> None:
    described_in(tmp_path, "[7, 8]")
    options = StudyOptions(repetitions=2)
    messages: list[str] = []
    study = CopiesStudy(
        tmp_path / "study", work=of(tmp_path, size="7"), counts=(1, 2), options=replace(options, notify=messages.append)
    ).run()
    assert sum(line.startswith("build ") for line in messages) == 1
    assert study.counts == [1, 2] and not study.excluded
    assert (tmp_path / "made").read_text() == "made\n"
    with pytest.raises(MeshmarkError, match=r"no valid run: .*expected 7"):
        CopiesStudy(tmp_path / "wrong", work=of(tmp_path, size="8"), counts=(1,), options=options).run()
    with pytest.raises(UsageError, match="contains a study with work"):
        CopiesStudy(tmp_path / "study", work=of(tmp_path, size="8"), counts=(1, 2), options=options).run()
    described_in(tmp_path, "7", expected="9")
    with pytest.raises(UsageError, match="contains a study with work"):
        CopiesStudy(tmp_path / "study", work=of(tmp_path), counts=(1, 2), options=options).run()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("application = 'none.toml'", r"program p: application: found '.*none.toml'; allowed: a file, blast"),
        ("application = 'app.toml'", r"program p: application: found 2 combinations of size in app.toml; allowed: one"),
        ("application = 'app.toml'\ndimensions = { bind = 'pack' }", "dimensions: found bind, which is cpus or policy"),
        (
            "application = 'app.toml'\ndimensions = { cache = '8MiB' }",
            "found cache, which only `meshmark measure app` varies",
        ),
        (
            "application = 'app.toml'\ndimensions = { prefetchers = 'on' }",
            "found prefetchers, which only `meshmark measure app` varies",
        ),
        ("application = 'app.toml'\ndimensions = { other = 3 }", "dimensions.other: not used by any command"),
        ("application = 'app.toml'\ndimensions = { size = [1] }", "dimensions.size: found"),
        ("application = 'app.toml'\ncommand = ['true']", "command: found with application; allowed: one of them"),
        ("application = 'app.toml'\ncwd = '/'", "cwd: found with application"),
        ("application = 'app.toml'\nrun_time_s = 3.0", "run_time_s: found with application"),
        ("command = ['true']\ndimensions = { size = 3 }", "dimensions: found without application"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, table: str, message: str) -> None:
    described_in(tmp_path, "[7, 8]")
    (tmp_path / "s.toml").write_text(f"[[program]]\nname = 'p'\n{table}\n")
    with pytest.raises(UsageError, match=message):
        read_scenario(tmp_path / "s.toml")


def test_what_cannot_be_made_or_is_not_installed_stops_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text('[application]\ncommand = "{build}/a"\n[build.O2]\ncommands = ["false"]\n')
    (tmp_path / "s.toml").write_text("[[program]]\napplication = 'app.toml'\n")
    for _ in range(2):  # the first attempt must not occupy the folder
        with pytest.raises(MeshmarkError, match="build O2: false ended with status 1"):
            run_scenario(tmp_path / "s.toml", tmp_path / "out")
        assert not (tmp_path / "out" / JOURNAL).exists()
    (tmp_path / "app.toml").write_text('[application]\ncommand = "no-such-program"\npackage = "nsp"\n')
    with pytest.raises(AbsentError, match="no-such-program; it is in the package nsp"):
        described("app.toml", {}, None, tmp_path, ASKED).check()


DAMAGED: list[Any] = [3, {}, [3], [{"program": "p"}], "[", None]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_damaged_verdicts_are_none(tmp_path: Path, damaged: Any) -> None:
    verdict = CopyVerdict(program="p", copy=0, value=3e20, unit="flop/s", better="higher")
    save_verdicts(tmp_path, [verdict, replace(verdict, copy=1, value=None, reason="wrong")])
    verdicts = read_verdicts(tmp_path)
    assert verdicts["p", 0] == verdict and verdicts["p", 1].reason == "wrong"
    (tmp_path / VERDICTS).write_text(damaged if isinstance(damaged, str) else json.dumps(damaged))
    assert read_verdicts(tmp_path) == {}
    line = {"program": "p", "copy": 0, "value": 1.0, "unit": "1", "better": "lower", "reason": ""}
    for key, value in (("copy", -1), ("value", "x"), ("better", "more"), ("unit", "\n"), ("program", 3)):
        (tmp_path / VERDICTS).write_text(json.dumps([{**line, key: value}]))
        assert read_verdicts(tmp_path) == {}, key
