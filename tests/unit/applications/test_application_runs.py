"""Tests of application runs: figures, verification, limits, and leftover processes and files."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from meshmark.applications.application import of_tables
from meshmark.applications.attempt import ConfigurationRun, attempt, end_earlier, read_record
from meshmark.applications.configuration import Folders, configurations
from meshmark.applications.preparation import prepare
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.experiments.trial import BUDGET
from meshmark.machine.tree import parse_list
from meshmark.process import up_to_hard_limit
from support.waiting import alive, until


def tables(script: str, **more: Any) -> dict[str, Any]:
    """Return the tables of an application that runs a shell script."""
    application = {"name": "app", "command": ["sh", "-c", script], **more.pop("application", {})}
    return {"application": application, **more}


def run(
    tmp_path: Path, script: str, at: int = 0, *, observed: bool = False, most_s: float = math.inf, **more: Any
) -> ConfigurationRun:
    app = of_tables(tables(script, **more), "a.toml", tmp_path)
    folders = Folders(tmp_path / "measurement")
    folders.root.mkdir(exist_ok=True)
    prepare(app, folders, lambda _: None)
    return attempt(app, configurations(app)[at], folders, 1, observed=observed, most_s=most_s)


FIGURE = {"pattern": r"rate: (\S+)", "unit": "B/s", "scale": 10.0, "better": "higher"}


def test_a_run_has_its_time_and_what_it_used(tmp_path: Path) -> None:
    outcome = run(tmp_path, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", observed=True)
    assert outcome.reason == "" and outcome.value == outcome.elapsed_s > 0
    assert outcome.times["user"] > 0 and outcome.times["waiting"] >= 0
    assert outcome.peak_bytes > 100_000 and outcome.counts["minor_faults"] > 10
    cpus = {*parse_list(outcome.seen["cpus"].replace(" ", ","))}
    assert cpus and cpus <= os.sched_getaffinity(0) and sum(outcome.seen["node_bytes"].values()) > 0
    assert ConfigurationRun.from_json(outcome.to_json()) == outcome


def copy_lines(cpu: str, seconds: float, peak: float, faults: int) -> list[dict[str, Any]]:
    conditions = {"largest_bytes": peak, "minor_faults": faults, "major_faults": 1, "switches_involuntary": 2}
    return [
        {"type": "header"},
        {"type": "result", "metric": "elapsed", "value": seconds, "conditions": conditions, "flags": []},
        {"type": "result", "metric": "user", "value": seconds / 2, "flags": ["nosuch"]},
        {"type": "result", "metric": "unknown", "value": 9.0, "flags": []},
        {
            "type": "note",
            "kind": "placement",
            "report": {"threads": [{"ran_on": cpu}, {"ran_on": "none"}, {}], "pages": {0: 4096}, "findings": ["a\nb"]},
        },
        {"type": "note", "kind": "other", "report": {"findings": ["x"]}},
    ]


def test_the_times_and_places_of_copies_are_added() -> None:
    outcome, copy_times = ConfigurationRun(configuration="a", round=1), list[float]()
    read_record(outcome, copy_lines("0-1", 2.0, 5e5, 10), copy_times)
    read_record(outcome, copy_lines("3", 4.0, 3e5, 5), copy_times)
    assert copy_times == [2.0, 4.0] and outcome.peak_bytes == 5e5 and outcome.times == {"user": 3.0}
    assert outcome.counts == {"minor_faults": 15.0, "major_faults": 2.0, "switches_involuntary": 4.0}
    assert outcome.seen == {"cpus": "0-1 3", "node_bytes": {"0": 8192.0}} and outcome.flags == []
    assert len(outcome.findings) == 2 and "\n" not in outcome.findings[0]


def test_the_figure_of_copies_is_their_sum_or_the_slowest(tmp_path: Path) -> None:
    script = 'echo "rate: $((1 + {copy}))"'
    assert run(tmp_path, script, figure=FIGURE, dimensions={"copies": 3}).value == 10.0 * (1 + 2 + 3)
    lower_figure = {**FIGURE, "better": "lower"}
    assert run(tmp_path, script, figure=lower_figure, dimensions={"copies": 3}).value == 30.0


def test_dimensions_reach_the_command_its_environment_and_its_files(tmp_path: Path) -> None:
    outcome = run(
        tmp_path,
        'cat in/a; [ "$(cat in/a)" = "size 8, $OMP_NUM_THREADS $MODE" ]',
        application={"prepare": ["sh -c 'echo made > input'"]},
        dimensions={"threads": 2, "size": 8, "MODE": "x"},
        files={"in/a": "size {size}, {threads} x"},
    )
    assert outcome.reason == ""
    assert (tmp_path / "measurement" / "inputs" / "input").read_text() == "made\n"


def test_a_run_finds_links_to_inputs_in_its_folder(tmp_path: Path) -> None:
    settings = {"prepare": ["sh -c 'mkdir in; echo made > in/mesh'"], "links": ["in/mesh"]}
    assert run(tmp_path, '[ "$(cat in/mesh)" = made ]', application=settings).reason == ""
    with pytest.raises(UsageError, match=r"application\.links: found without application\.prepare"):
        run(tmp_path, "true", application={"links": ["in/mesh"]})
    with pytest.raises(UsageError, match="allowed: a path below the folder of the run"):
        run(tmp_path, "true", application={**settings, "links": ["../mesh"]})


def test_no_inputs_are_made_for_a_program_that_is_not_installed(tmp_path: Path) -> None:
    app = {"command": "no-such-program", "package": "none", "prepare": [f"touch {tmp_path}/made"]}
    with pytest.raises(AbsentError, match="app: found no program no-such-program; it is in the package none"):
        run(tmp_path, "", application=app)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("script", "more", "reason"),
    [
        ("exit 3", {}, "ended with status 3"),
        ("echo broken >&2; exit 1", {}, "ended with status 1: broken"),
        ("kill -SEGV $$", {}, "ended with SIGSEGV"),
        ("echo", {"figure": FIGURE}, "figure.pattern: found no match in the output"),
        ("echo rate: fast", {"figure": FIGURE}, "figure.pattern: found 'rate: fast' in the output, a positive number"),
        ("echo rate: -1", {"figure": FIGURE}, "figure.pattern: found 'rate: -1'"),
        ("echo 1", {"verify": {"pattern": "OK"}}, "verify.pattern: found no match in the output"),
        ("echo n 2", {"verify": {"pattern": r"n (\S+)", "expected": 1}}, "verify.expected: found 2.0; expected 1.0"),
        ("echo n 1e-9", {"verify": {"pattern": r"n (\S+)", "expected": 0}}, "verify.expected: found 1e-09; expected 0"),
        ("echo n 2", {"verify": {"pattern": "n", "expected": 1}}, "verify.pattern: found 'n', a number is required"),
        ("echo n nan", {"verify": {"pattern": r"n (\S+)", "expected": 1}}, "verify.expected: found nan"),
        ("echo n 1 n 2", {"verify": {"pattern": r"n (\S)", "expected": 1}}, "verify.expected: found 2.0"),
        ("true", {"verify": {"command": "sh -c 'echo bad; exit 1'"}}, "verify.command: ended with status 1: bad"),
        ("true", {"verify": {"command": "no-such-program"}}, "verify.command: cannot run no-such-program"),
        ("sleep 60", {"limits": {"timeout_s": 0.2}}, "took longer than 0.2 s"),
        ("yes", {"limits": {"output_mib": 1}}, "wrote more than 1 MiB"),
        (
            "i=0; while true; do head -c 400000 /dev/zero > f$i; i=$((i+1)); done",
            {"limits": {"output_mib": 2}, "files": {"a": ""}},
            "wrote more than 2 MiB",
        ),
        (
            "exec python3 -c 'x = bytearray(1 << 30)'",
            {"limits": {"memory_mib": 100}},
            "ended with status 1: MemoryError",
        ),
    ],
)
def test_a_run_that_fails_says_why(tmp_path: Path, script: str, more: dict[str, Any], reason: str) -> None:
    outcome = run(tmp_path, script, **more)
    assert outcome.value is None and outcome.reason.startswith(reason), outcome.reason


def test_a_number_near_zero_is_right_within_the_absolute_tolerance(tmp_path: Path) -> None:
    verify = {"pattern": r"n (\S+)", "expected": 0, "absolute": 1e-8}
    assert run(tmp_path, "echo n 1e-9", verify=verify).reason == ""


def test_a_process_that_is_left_running_fails_the_run_and_is_ended(tmp_path: Path) -> None:
    outcome = run(
        tmp_path, f"setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & while [ ! -s {tmp_path}/pid ]; do :; done"
    )
    assert outcome.reason == "left 1 process running, which was killed"
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_run_that_takes_too_long_ends_with_all_its_processes(tmp_path: Path) -> None:
    script = f"for i in 1 2 3; do setsid sh -c 'echo $$ >> {tmp_path}/pids; exec sleep 600' & done; sleep 600"
    outcome = run(tmp_path, script, limits={"timeout_s": 1.0})
    assert outcome.reason == "took longer than 1 s"
    assert run(tmp_path, "sleep 600", most_s=0.2).reason == BUDGET
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    assert pids and until(lambda: not any(map(alive, pids)), 10)


def test_other_children_of_the_caller_live_on(tmp_path: Path) -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    try:
        assert run(tmp_path, "true").reason == ""
        assert alive(child)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_program_that_is_not_installed_is_absent_with_its_package(tmp_path: Path) -> None:
    app = of_tables({"application": {"command": "no-such-program", "package": "some-package"}}, "a.toml", tmp_path)
    with pytest.raises(AbsentError, match="found no program no-such-program; it is in the package some-package"):
        attempt(app, configurations(app)[0], Folders(tmp_path / "m"), 1)


def test_a_build_that_fails_leaves_the_others(tmp_path: Path) -> None:
    builds = {
        "good": {"commands": ["sh -c 'echo echo rate: 3 > {build}/run; chmod +x {build}/run'"]},
        "bad": {"commands": ["sh -c 'echo no such flag >&2; exit 2'"]},
        "none": {"commands": ["no-such-compiler -O2"]},
    }
    raw = {"application": {"command": "sh {build}/run"}, "figure": FIGURE, "build": builds}
    app = of_tables(raw, "a.toml", tmp_path)
    folders = Folders(tmp_path / "m")
    folders.root.mkdir()
    preparation = prepare(app, folders, lambda _: None)
    assert preparation.failed == {
        "bad": "sh ended with status 2: no such flag",
        "none": "cannot run no-such-compiler: No such file or directory",
    }
    assert attempt(app, configurations(app)[0], folders, 1).value == 30.0
    modified_ns = (folders.build("good") / "run").stat().st_mtime_ns
    assert prepare(app, folders, lambda _: None).build_s.keys() == {"good"}  # the good build is not repeated
    assert (folders.build("good") / "run").stat().st_mtime_ns == modified_ns


def test_spack_is_asked_once_for_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "installed" / "bin").mkdir(parents=True)
    (tmp_path / "installed" / "bin" / "solve").write_text("echo rate: 4\n")
    spack = tmp_path / "spack"
    spack.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/asked\n[ $1 = install ] || echo {tmp_path}/installed\n")
    spack.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    raw = {"application": {"command": "sh {build}/bin/solve"}, "figure": FIGURE, "build": {"b": {"spack": "solve@1"}}}
    app = of_tables(raw, "a.toml", tmp_path)
    folders = Folders(tmp_path / "m")
    folders.root.mkdir()
    assert prepare(app, folders, lambda _: None).failed == {}
    assert attempt(app, configurations(app)[0], folders, 1).value == 40.0
    assert prepare(app, folders, lambda _: None).failed == {}
    assert (tmp_path / "asked").read_text().split() == ["install", "location"]


def test_inputs_that_cannot_be_made_end_the_measurement(tmp_path: Path) -> None:
    with pytest.raises(MeshmarkError, match="app: prepare: false ended with status 1"):
        run(tmp_path, "true", application={"prepare": ["false"]})


def test_results_of_an_earlier_run_do_not_count(tmp_path: Path) -> None:
    settings = {"application": {"output": "result"}, "figure": FIGURE}
    assert run(tmp_path, "echo rate: 2 > result", **settings).value == 20.0
    assert run(tmp_path, "true", **settings).reason.startswith("figure.pattern: found no match in the output")
    assert run(tmp_path, "echo rate: 2 > result", **settings).value == 20.0


def test_the_file_of_results_may_be_named_by_dimensions_and_other_files_may_not(tmp_path: Path) -> None:
    settings = {"application": {"output": "result.{size}"}, "figure": FIGURE, "dimensions": {"size": 8}}
    assert run(tmp_path, "echo rate: 1 > result.9; echo rate: 2 > result.8", **settings).value == 20.0
    for key, extra in (("files", {"files": {"in.{size}": ""}}), ("application.links", {"links": ["in.{size}"]})):
        application = {"prepare": ["true"], **extra} if "links" in extra else {}
        invalid = {
            **settings,
            "application": {**settings["application"], **application},
            **(extra if "files" in extra else {}),
        }
        with pytest.raises(
            UsageError, match=rf"{key}: found {{size}} in the name 'in.{{size}}'; allowed: a fixed name"
        ):
            run(tmp_path, "true", **invalid)


def test_a_folder_that_cannot_be_emptied_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"files": {"a": ""}}
    assert run(tmp_path, "mkdir in; touch in/result; chmod 0 in", **settings).reason == ""
    remove, refused_paths = shutil.rmtree, []

    def rmtree(path: Path) -> None:  # as if the user were not root
        if any(not p.stat().st_mode & 0o200 for p in path.rglob("*") if not p.is_symlink()):
            refused_paths.append(path)
            raise PermissionError(13, "Permission denied")
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert run(tmp_path, "[ ! -e in ]", **settings).reason == "" and refused_paths


def test_a_process_without_environment_is_ended_and_a_zombie_is_reaped(tmp_path: Path) -> None:
    outcome = run(tmp_path, f"env -i setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600' & sleep 0.3")
    assert outcome.reason == "left 1 process running, which was killed"
    assert not alive(int((tmp_path / "pid").read_text()))
    earlier_children = children()
    assert run(tmp_path, "(sh -c 'exec sleep 0.05' &); sleep 0.3").reason == ""
    assert children() == earlier_children


def children() -> str:
    return "".join((task / "children").read_text() for task in Path("/proc/self/task").iterdir())


def test_a_verification_leaves_no_process_and_may_print_much(tmp_path: Path) -> None:
    script = f"sh -c 'sleep 600 & echo $! > {tmp_path}/pid'"
    start_s = time.monotonic()
    assert run(tmp_path, "true", verify={"command": script}).reason == ""
    assert time.monotonic() - start_s < 100 and until(lambda: not alive(int((tmp_path / "pid").read_text())), 10)
    verification = {"command": "sh -c 'ulimit -f 100; yes'"}
    assert run(tmp_path, "true", verify=verification).reason.startswith("verify.command: ended with")


def test_a_limit_below_that_of_the_file_is_no_error(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 22, 1 << 22))
            os.setresuid(65534, 65534, 65534) if os.geteuid() == 0 else None
            status = up_to_hard_limit(resource.RLIMIT_FSIZE, 1 << 30) != (1 << 22, 1 << 22)
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_findings_about_pages_and_memory_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def see(found: ConfigurationRun, lines: object, own: list[float]) -> None:
        own.append(1.0)
        found.findings = ["pages are small"]

    monkeypatch.setattr("meshmark.applications.attempt.read_record", see)
    assert run(tmp_path, "true", dimensions={"pages": ["thp"]}).findings == ["pages are small"]
    assert run(tmp_path, "true", dimensions={"pages": ["default"]}).findings == []


def test_what_is_said_about_placement_is_no_output_of_the_program(tmp_path: Path) -> None:
    verify = {"pattern": r"(\S+) processes?", "expected": 7}
    assert run(tmp_path, "echo 7 processes", observed=True, verify=verify).reason == ""


def test_a_figure_out_of_range_fails_the_run(tmp_path: Path) -> None:
    for scale in (1e-300, 1e300):
        outcome = run(tmp_path, "echo rate: 1", figure={**FIGURE, "scale": scale})
        assert outcome.value is None and outcome.reason.startswith("figure.scale: found a figure of 1e")


def test_the_output_of_all_copies_is_kept(tmp_path: Path) -> None:
    script = "echo {copy}; [ {copy} = 0 ]"
    assert run(tmp_path, script, dimensions={"copies": 2}).reason == "ended with status 1: 1"
    failed_folder = tmp_path / "measurement" / "failed"
    assert [(failed_folder / f"copy{n}.out").read_text() for n in (0, 1)] == ["0\n", "1\n"]


def test_many_copies_that_ignore_the_signal_end_together(tmp_path: Path) -> None:
    script = "trap '' TERM; while :; do sleep 0.1; done"
    start_s = time.monotonic()
    outcome = run(tmp_path, script, dimensions={"copies": 8}, limits={"timeout_s": 0.5})
    assert outcome.reason == "took longer than 0.5 s"
    assert time.monotonic() - start_s < 12  # ending one after the other would take 16 s


def test_what_runs_of_a_measurement_that_was_killed_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "é x"
    folder.mkdir()
    child = os.posix_spawn("/bin/sleep", ["sleep", "600"], {"MESHMARK_APPLICATION": str(folder)})
    # The environment of the child is empty for a moment after the kernel has replaced its memory.
    assert until(lambda: Path(f"/proc/{child}/environ").read_bytes())
    assert end_earlier(folder) == 1
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert end_earlier(folder) == 0
