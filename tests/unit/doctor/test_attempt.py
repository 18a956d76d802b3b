"""A command that the doctor tries ends in time, and its failure is named briefly."""

from __future__ import annotations

import os
import signal

import pytest

from meshmark.doctor.mpi import attempt
from meshmark.doctor.mpi.attempt import CommandResult, MpiHost, try_for_real


def test_both_outputs_and_the_status_are_returned() -> None:
    result = try_for_real(
        ["sh", "-c", "echo $A; printf '\\377' >&2; cat; exit 3"], {"A": "x", "PATH": os.environ["PATH"]}
    )
    assert result == CommandResult(3, "x\n", "\ufffd", timed_out=False)


def test_a_signal_gives_the_status_of_a_shell() -> None:
    result = try_for_real(["sh", "-c", "kill -USR1 $$"], os.environ)
    assert result.status == 128 + signal.SIGUSR1 and result.why == "was terminated by SIGUSR1"


def test_a_missing_program_gives_the_status_of_a_shell() -> None:
    result = try_for_real(["no-such-program"], os.environ)
    assert (result.status, result.why) == (127, "no-such-program: No such file or directory")


def test_the_command_runs_on_the_cpus_that_are_given() -> None:
    cpu = max(os.sched_getaffinity(0))
    assert try_for_real(["sh", "-c", "taskset -cp $$"], os.environ, [cpu]).out.split()[-1] == str(cpu)


def test_a_command_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "LIMIT_S", 0.2)
    result = try_for_real(["sleep", "600"], os.environ)
    assert result.timed_out and result.status == 128 + signal.SIGTERM and result.why == "did not end within 0 s"


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (CommandResult(0, "", "warning: it works"), ""),
        (CommandResult(1, "", "--- 1\n  no free slots  \nmore"), "no free slots"),
        (CommandResult(1, "", "x" * 200), "x" * 120),
        (CommandResult(5, "", "\n12\n"), "exit status 5"),
        (CommandResult(139, "", ""), "was terminated by SIGSEGV"),
        (CommandResult(128, "", ""), "exit status 128"),
        (CommandResult(1, "", "rank 0 exited on signal 9 (Killed)"), "was terminated by SIGKILL"),
        (CommandResult(1, "", "terminated by signal: 6"), "was terminated by SIGABRT"),
        (CommandResult(1, "", "signal number 15"), "was terminated by SIGTERM"),
        (CommandResult(1, "", "rank 0 (Segmentation fault)"), "was terminated by SIGSEGV"),
        (CommandResult(1, "", "signal 900 of a program"), "signal 900 of a program"),
        (CommandResult(1, "", "", timed_out=True), f"did not end within {attempt.LIMIT_S:.0f} s"),
    ],
)
def test_the_reason_of_a_failure_is_brief(result: CommandResult, reason: str) -> None:
    assert result.why == reason


@pytest.mark.parametrize(
    ("what", "root", "managers", "command"),
    [
        ("openmpi", True, {"apt-get", "dnf"}, "apt-get install openmpi-bin libopenmpi-dev   # then make setup"),
        ("openmpi", False, {"dnf"}, "sudo dnf install openmpi openmpi-devel   # then make setup"),
        ("mpich", True, {"zypper"}, "zypper install mpich mpich-devel   # then make setup"),
        ("caf-mpich", True, {"zypper"}, ""),
        ("openmpi", True, set(), ""),
    ],
)
def test_the_command_that_installs_a_component_is_that_of_the_system(
    what: str, root: bool, managers: set[str], command: str
) -> None:
    host = MpiHost((0,), root, {}, lambda name: f"/bin/{name}" if name in managers else None)
    assert host.install(what) == command


def test_this_host_is_described() -> None:
    host = MpiHost.here()
    assert host.cpus == tuple(sorted(os.sched_getaffinity(0))) and host.root == (os.geteuid() == 0)
    assert host.environment == dict(os.environ)
