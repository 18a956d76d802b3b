"""Child processes are prepared by a native program, end with their parent, and report why they cannot start."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshmark.native import find_native
from meshmark.process import (
    KILLED_WITH_PARENT,
    TERMINATED_WITH_PARENT,
    Preparation,
    PreparationError,
    run,
    run_in_session,
    run_text,
    signal_name,
    start,
    status_text,
    up_to_hard_limit,
)
from support.waiting import alive, until

PARENT = """
import os, signal, sys
from pathlib import Path
from meshmark.process import Preparation, start

signal.signal(signal.SIGTERM, signal.SIG_IGN)
number = int(sys.argv[2])
child = start(["sleep", "600"], Preparation(at_parent_death=signal.Signals(number) if number else None))
new = Path(sys.argv[1]).with_suffix(".new")
new.write_text(str(child.pid))
new.rename(sys.argv[1])
child.wait()
"""


@pytest.mark.parametrize("preparation", [KILLED_WITH_PARENT, TERMINATED_WITH_PARENT], ids=["SIGKILL", "SIGTERM"])
def test_a_program_ends_with_a_parent_that_is_killed(tmp_path: Path, preparation: Preparation) -> None:
    file = tmp_path / "child"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, file, str(int(preparation.at_parent_death or 0))])
    assert until(file.exists)
    child = int(file.read_text())
    assert alive(child)
    parent.kill()
    parent.wait()
    assert until(lambda: not alive(child))


def test_a_program_outlives_its_parent_if_it_shall(tmp_path: Path) -> None:
    file = tmp_path / "child"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, file, "0"])
    assert until(file.exists)
    child = int(file.read_text())
    parent.kill()
    parent.wait()
    assert alive(child)
    os.kill(child, signal.SIGKILL)
    assert until(lambda: not alive(child))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_parent_that_died_before_the_request_starts_no_program(tmp_path: Path, number: signal.Signals) -> None:
    """The process that runs this test is the parent; process 1 stands for one that has died."""
    receiver, report = os.pipe()
    words = [find_native("meshmark-start"), str(report), "1", str(int(number)), "--", "touch", tmp_path / "ran"]
    completed = subprocess.run(words, pass_fds=(report,), check=False)
    os.close(report)
    os.close(receiver)
    assert completed.returncode == -number
    assert not (tmp_path / "ran").exists()


def test_the_program_has_the_cpus_limits_and_class_that_were_requested() -> None:
    cpu = max(os.sched_getaffinity(0))
    preparation = Preparation(
        cpus=(cpu,),
        scheduler=(os.SCHED_BATCH, 0),
        limits={resource.RLIMIT_CORE: (0, 0), resource.RLIMIT_NOFILE: (100, 200)},
    )
    code = (
        "import os, resource; print(os.sched_getaffinity(0), os.sched_getscheduler(0),"
        "resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    completed = run([sys.executable, "-c", code], preparation, text=True)
    assert completed.stdout == f"{{{cpu}}} {os.SCHED_BATCH} (0, 0) (100, 200)\n"


def test_an_unlimited_value_stays_unlimited() -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    if resource.getrlimit(resource.RLIMIT_FSIZE) != unlimited:
        pytest.skip("the size of files is limited here")
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE))"
    completed = run([sys.executable, "-c", code], Preparation(limits={resource.RLIMIT_FSIZE: unlimited}), text=True)
    assert completed.stdout.strip() == str(unlimited)


def test_a_process_joins_a_group_before_its_program_runs(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.write_text("")
    completed = run(["sh", "-c", "echo $$"], Preparation(group=tasks), text=True)
    assert completed.stdout == tasks.read_text() != ""


@pytest.mark.parametrize(
    ("preparation", "step", "error"),
    [
        (Preparation(cpus=(1 << 19,)), "cpus", errno.EINVAL),
        (Preparation(scheduler=(99, 0)), "scheduler", errno.EINVAL),
        (Preparation(limits={99: (0, 0)}), "limit", errno.EINVAL),
        (Preparation(group=Path("/proc/missing/tasks")), "join", errno.ENOENT),
    ],
)
def test_a_preparation_that_fails_is_named_and_runs_no_program(
    tmp_path: Path, preparation: Preparation, step: str, error: int
) -> None:
    with pytest.raises(PreparationError) as failure:
        start(["touch", tmp_path / "ran"], preparation)
    assert (failure.value.step, failure.value.errno) == (step, error)
    assert not (tmp_path / "ran").exists()


def test_a_program_that_cannot_be_executed_is_an_error_as_of_popen(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("echo no format\n")
    with pytest.raises(PermissionError):
        start([text])
    text.chmod(0o700)
    for argv, error in ((["no-such-program"], errno.ENOENT), ([tmp_path / "x"], errno.ENOENT), ([text], errno.ENOEXEC)):
        with pytest.raises(OSError) as failure:
            start(argv)
        assert (failure.value.errno, failure.value.filename) == (error, os.fspath(argv[0]))


def test_a_program_is_searched_in_the_path_of_its_environment(tmp_path: Path) -> None:
    program = tmp_path / "here" / "greet"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$1"\n')
    program.chmod(0o700)
    completed = run(["greet", "a b"], env={"PATH": f"/proc/missing:{program.parent}:/bin"}, text=True)
    assert completed.stdout == "a b\n"
    assert run(["./greet", ""], cwd=program.parent, text=True).stdout == "\n"


def test_a_program_inherits_the_descriptors_that_it_is_given_and_no_other(tmp_path: Path) -> None:
    # The check for existence leaves out the descriptor that listdir itself has opened.
    code = (
        "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)))"
    )
    with (tmp_path / "file").open("w") as file, (tmp_path / "other").open("w") as other:
        os.set_inheritable(other.fileno(), True)
        completed = run([sys.executable, "-c", code], pass_fds=(file.fileno(),), text=True)
        assert completed.stdout.strip() == str([0, 1, 2, file.fileno()])


def test_a_time_limit_ends_the_program() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "600"], timeout_s=0.2)


def test_a_program_reads_its_input_and_has_an_empty_one_by_default() -> None:
    assert run_text(["cat"], input="a\n").stdout == "a\n"
    assert run_text(["cat"]).stdout == ""
    assert run_text(["printf", r"\377"]).stdout == "\ufffd"


def test_a_session_reports_its_status_and_its_times(tmp_path: Path) -> None:
    busy = "import os\nwhile os.times().user < 0.2: pass\nos._exit(3)"
    with (tmp_path / "out").open("wb") as out:
        ended = run_in_session([sys.executable, "-c", busy], TERMINATED_WITH_PARENT, out, out, 600)
        killed = run_in_session(["sh", "-c", "kill -KILL $$"], TERMINATED_WITH_PARENT, out, out, 600)
    assert ended.status == 3 and killed.status == -signal.SIGKILL
    assert 0.15 < ended.user_s <= ended.elapsed_s + 0.05


def test_a_session_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path / 'child'}; wait"
    with (tmp_path / "out").open("wb") as out:
        assert run_in_session(["sh", "-c", script], TERMINATED_WITH_PARENT, out, out, 1.0).status is None
    if (tmp_path / "child").exists():  # on a busy machine, the limit may end the shell first
        assert until(lambda: not alive(int((tmp_path / "child").read_text())))


def test_a_signal_is_named() -> None:
    assert (signal_name(9), signal_name(77)) == ("SIGKILL", "signal 77")
    assert (status_text(-9), status_text(0), status_text(3)) == ("SIGKILL", "status 0", "status 3")


def test_a_limit_is_at_most_the_hard_limit() -> None:
    soft, hard = up_to_hard_limit(resource.RLIMIT_NOFILE, 1 << 60)
    assert soft == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert up_to_hard_limit(resource.RLIMIT_NOFILE, 7) == (7, 7)
