"""Tests of `meshmark-place run` and `slots`: the command is placed, otherwise unchanged, and leaves nothing behind.

No test depends on speed. Each test has a separate ledger.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meshmark.measure.runs.journal import read_journal
from meshmark.store.session import whole_lines
from support.placer import CPUS, Place, placed, two_cpus
from support.waiting import alive, until

ALLOWED = "grep Cpus_allowed_list /proc/self/status | cut -f2"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def place() -> Iterator[Place]:
    with placed() as placement:
        yield placement


@pytest.fixture(params=[(), ("--verify",)], ids=["replaced", "watched"])
def how(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the options of both ways to start a command: replace this process, or watch a child process."""
    words: tuple[str, ...] = request.param
    return words


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def one_line(said: subprocess.CompletedProcess[str]) -> str:
    """Return the only error line, which a hint may follow."""
    complaint, *hints = said.stderr.splitlines()
    assert all(line.startswith("hint: ") for line in hints) and len(hints) <= 1, said.stderr
    return complaint


def test_children_and_threads_inherit_the_mask(place: Place, how: tuple[str, ...]) -> None:
    script = """if True:
        import os, subprocess, threading
        seen = [os.sched_getaffinity(0)]
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start(); thread.join()
        child = subprocess.run(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"], capture_output=True, text=True)
        print([sorted(s) for s in seen], child.stdout.split()[1])"""
    completed = place.run(*how, "--bind", f"list={CPUS[-1]}", "--", sys.executable, "-c", script)
    assert completed.stdout.strip() == f"[[{CPUS[-1]}], [{CPUS[-1]}]] {CPUS[-1]}", completed.stderr


def test_a_list_is_one_mask_for_all(place: Place) -> None:
    bound = place.run("--bind", "list=" + ",".join(map(str, CPUS)), "--", "sh", "-c", ALLOWED)
    unbound = place.run("--bind", "none", "--", "sh", "-c", ALLOWED)
    assert bound.returncode == 0 and bound.stdout == unbound.stdout


def test_without_a_wish_nothing_is_bound(place: Place) -> None:
    free = subprocess.run(["sh", "-c", ALLOWED], capture_output=True, text=True, check=True).stdout
    assert place.run("--", "sh", "-c", ALLOWED).stdout == free
    assert len(place.run("-n", "1", "--slots", "threads", "--", "sh", "-c", ALLOWED).stdout.strip()) == 1
    assert place.run("--", "sh", "-c", ALLOWED, env={"MESHMARK_BIND": f"list={CPUS[0]}"}).stdout.strip() == str(CPUS[0])


def test_user_is_what_the_environment_says(place: Place) -> None:
    free = place.run("--", "sh", "-c", ALLOWED).stdout
    assert place.run("--bind", "user", "--", "sh", "-c", ALLOWED).stdout == free
    completed = place.run("--bind", "user", "--", "sh", "-c", ALLOWED, env={"LSB_USER_BIND_CPU_LIST": str(CPUS[-1])})
    assert completed.stdout.strip() == str(CPUS[-1]), completed.stderr


def test_it_says_where_absolute_and_relative(place: Place) -> None:
    completed = place.run("--verbose", "--bind", f"list={CPUS[-1]}", "--slots", "threads", "--", "true")
    assert completed.returncode == 0
    assert f"list: 1 of {len(CPUS)} threads: CPUs {CPUS[-1]} (relative {len(CPUS) - 1}), nodes " in completed.stderr
    assert ", soft" in completed.stderr and len(completed.stderr.splitlines()) == 1


def test_it_becomes_the_command(place: Place) -> None:
    with place.start("-n", "1", "--", "sh", "-c", "echo $$") as process:
        assert first_line(process) == str(process.pid)


def test_the_exit_status_is_the_commands(place: Place, how: tuple[str, ...]) -> None:
    for status in (0, 7, 126, 255):
        assert place.run(*how, "-n", "1", "--", "sh", "-c", f"exit {status}").returncode == status


def test_signals_reach_the_command(place: Place, how: tuple[str, ...]) -> None:
    script = "trap 'echo got; exit 5' TERM; trap 'echo usr' USR1; echo ready; while :; do sleep 0.05; done"
    with place.start(*how, "-n", "1", "--", "sh", "-c", script) as process:
        assert first_line(process) == "ready"
        process.send_signal(signal.SIGUSR1)
        assert first_line(process) == "usr"
        process.send_signal(signal.SIGTERM)
        assert first_line(process) == "got"
        assert process.wait() == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV])
def test_it_dies_as_the_command_dies(place: Place, how: tuple[str, ...], number: signal.Signals) -> None:
    assert place.run(*how, "-n", "1", "--", "sh", "-c", f"kill -{int(number)} $$").returncode == -number


def test_a_signal_that_ends_it_ends_the_command(place: Place, how: tuple[str, ...]) -> None:
    with place.start(*how, "-n", "1", "--", "sh", "-c", "echo $$; exec sleep 1000") as process:
        pid = int(first_line(process))
        process.terminate()
        assert process.wait() == -signal.SIGTERM
        assert not alive(pid)


def test_killed_itself_it_takes_the_command_along(place: Place) -> None:
    with place.start("--verify", "-n", "1", "--", "sh", "-c", "echo $$; exec sleep 1000") as process:
        pid = int(first_line(process))
        process.kill()
        assert until(lambda: not alive(pid), 20), "the command outlived the kill"


def test_ignored_signals_stay_ignored(place: Place, how: tuple[str, ...]) -> None:
    command = "grep SigIgn /proc/self/status"
    script = f"trap '' HUP CHLD; exec {' '.join(place.words(*how, '-n', '1', '--'))} {command}"
    placed_run, plain_run = (
        subprocess.run(["sh", "-c", s], env=place.env, capture_output=True, text=True, check=False)
        for s in (script, f"trap '' HUP CHLD; {command}")
    )
    assert placed_run.stdout == plain_run.stdout and placed_run.returncode == 0, placed_run.stderr


class Terminal:
    """A shell with a terminal that runs the program as its foreground job and reports each stop and the end of the job.

    A stopped job continues when the shell gets SIGUSR1.
    """

    def __init__(self, place: Place, script: str) -> None:
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid != 0:
            return
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            words = place.words("--verify", "-n", "1", "--", sys.executable, "-u", "-c", script)
            os.execve(place.program, words, place.env)
        while True:
            _, status = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                os.write(1, f"ended {os.waitstatus_to_exitcode(status)} .\n".encode())
                signal.pause()  # the text of the terminal is lost when the session leader ends
            os.write(1, f"stopped {job} .\n".encode())
            signal.sigwait([signal.SIGUSR1])
            os.kill(-job, signal.SIGCONT)

    def expect(self, what: str) -> str:
        """Return the text of the terminal before `what`, and discard both."""
        while what not in self.text:
            self.text += os.read(self.fd, 1000).decode()
        output, _, self.text = self.text.partition(what)
        return output

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal(place: Place) -> Iterator[Callable[[str], Terminal]]:
    terminals: list[Terminal] = []
    yield lambda script: terminals.append(Terminal(place, script)) or terminals[-1]  # type: ignore[func-returns-value]
    for shell in terminals:
        shell.end()


def test_the_terminals_interrupt_arrives_once(terminal: Callable[[str], Terminal]) -> None:
    tty = terminal(
        "import os, signal, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', os.getppid(), '.')\nwhile not seen: time.sleep(0.01)\nprint('one', '.')\n"
        "time.sleep(0.5)\nprint('times', len(seen), '.')"
    )
    job = int(tty.expect(" .\r\n").split()[-1])
    os.kill(job, signal.SIGSTOP)  # delay the watcher, because two signals at once would be merged
    assert "stopped" in tty.expect(" .\r\n")
    os.write(tty.fd, b"\x03")
    assert tty.expect(" .\r\n").endswith("one")
    os.kill(tty.pid, signal.SIGUSR1)
    assert tty.expect(" .\r\n").endswith("times 1")
    assert tty.expect(" .\r\n").endswith("ended 0")


def test_the_terminals_stop_is_seen_by_the_shell_and_undone(terminal: Callable[[str], Terminal]) -> None:
    tty = terminal("import time\nprint('ready')\nfor i in range(100): time.sleep(0.01)\nprint('done', '.')")
    tty.expect("ready")
    os.write(tty.fd, b"\x1a")
    job = int(tty.expect(" .\r\n").split()[-1])
    children = Path(f"/proc/{job}/task/{job}/children").read_text().split()
    assert [Path(f"/proc/{c}/stat").read_text().rpartition(")")[2].split()[0] for c in children] == ["T"]
    os.kill(tty.pid, signal.SIGUSR1)
    assert tty.expect(" .\r\n").endswith("done")
    assert tty.expect(" .\r\n").endswith("ended 0")


def test_a_command_that_is_not_there_is_127(place: Place) -> None:
    for command in ("no-such-program", "./no-such-program"):
        completed = place.run("--verify", "--", command)
        assert completed.returncode == 127 and f"command: found no '{command}'" in one_line(completed)
    file = place.folder / "plain"
    file.write_text("no program")
    completed = place.run("--", str(file))
    assert completed.returncode == 126 and "cannot be executed" in one_line(completed)
    assert not place.ledger.exists()


WRONG: dict[str, tuple[list[str], str]] = {
    "memory": (["--memory", "near"], "memory: found 'near'"),
    "memory node": (["--memory", "bind=99"], "memory: found node 99, which has no memory"),
    "memory nodes of local": (["--memory", "local=0"], "local accepts no nodes"),
    "memory weights": (["--memory", "weighted=0"], "memory: found 'weighted=0'"),
    "memory weight": (["--memory", "weighted=0:0"], "memory: found weight 0"),
    "pages": (["--pages", "3MiB"], "pages: found '3MiB'"),
    "slots": (["--slots", "sockets"], "found 'sockets'"),
    "bind": (["--bind", "nicely"], "nicely"),
    "bind and list": (["--bind", "pack,list=0"], "list"),
    "list": (["--bind", "list=99999"], "99999"),
    "n": (["-n", "0"], "-n"),
    "many": (["-n", "60000"], "60000"),
    "hard": (["--hard", "--soft"], "hard: found together with --soft"),
    "hard without claim": (["--hard", "--no-claim"], "hard: found together with --no-claim"),
    "hard none": (["--hard", "--bind", "none"], "hard: found with policy none"),
    "hard ranks of a daemon": (["--hard", "--launcher", "slurm"], "hard: found with --launcher slurm"),
    "unknown affinity": (["--bind", "affinity[crate]"], "--bind: found 'crate'"),
    "wait": (["--wait", "soon"], "wait: found 'soon'"),
    "timeout": (["--timeout", "0"], "timeout: found '0'"),
    "verify": (["--verify=maybe"], "verify: found 'maybe'"),
    "launcher": (["--launcher", "ssh"], "launcher: found 'ssh'"),
    "record": (["--record", "/proc/no/such/folder/x"], "record: cannot write '/proc/no/such/folder/x'"),
    "sharing": (["--sharing", "/dev/null"], "sharing: /dev/null"),
    "option": (["--nonsense"], "--nonsense"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_in_one_line(place: Place, case: str) -> None:
    words, expected = WRONG[case]
    completed = place.run(*words, "--", "true")
    assert completed.returncode == 2, completed
    assert expected in one_line(completed) and completed.stdout == ""
    assert (
        not place.ledger.exists()
        or not [f for f in place.ledger.iterdir() if f.name != "mutex"]
        or not place.slots()["claims"]
    )


def test_no_command_is_a_usage_error(place: Place) -> None:
    for words in ([], ["-n", "1"], ["-n", "1", "--"]):
        completed = place.run(*words)
        assert completed.returncode == 2 and "command: found none" in one_line(completed)


@as_root
def test_without_permission_hard_is_absent_and_soft_works(place: Place) -> None:
    program = place.folder / "meshmark-place"  # the build may be in a folder that other users cannot read
    shutil.copy(place.program, program)
    as_other_user = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        str(program),
        "run",
        "--bind",
        f"list={CPUS[0]}",
    ]
    place.run("-n", "1", "--", "true")  # root made the ledger
    completed = subprocess.run(
        [*as_other_user, "--", "sh", "-c", ALLOWED], env=place.env, capture_output=True, text=True, check=False
    )
    assert (completed.returncode, completed.stdout.strip()) == (0, str(CPUS[0])), completed.stderr
    hidden_folder = place.folder / "hidden"  # stands for the home folder of the previous user
    hidden_folder.mkdir(mode=0o700)
    env = place.env | {"XDG_CONFIG_HOME": str(hidden_folder)}
    completed = subprocess.run([*as_other_user, "--", "true"], env=env, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    completed = subprocess.run(
        [*as_other_user, "--hard", "--", "true"], env=place.env, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 77 and "no hard binding: " in completed.stderr and "--soft" in completed.stderr, (
        completed.stderr
    )


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="this kernel has no NUMA")
@pytest.mark.parametrize(
    ("asked", "told"),
    [("bind=0", "bind:0"), ("preferred=0", "prefer:0"), ("interleave=0", "interleave:0"), ("local", "local")],
)
def test_the_memory_policy_is_the_kernels(place: Place, how: tuple[str, ...], asked: str, told: str) -> None:
    completed = place.run(*how, "-n", "1", "--memory", asked, "--", "cat", "/proc/self/numa_maps")
    policies = {line.split()[1] for line in completed.stdout.splitlines() if "heap" in line or "stack" in line}
    assert policies == {told}, (completed.stdout[:500], completed.stderr)


def test_pages_are_asked_for(place: Place) -> None:
    command = ["sh", "-c", "echo $GLIBC_TUNABLES; grep THP_enabled /proc/self/status"]
    completed = place.run(
        "--pages", "4KiB", "--", *command, env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.check=0"}
    )
    assert completed.stdout.split() == ["glibc.malloc.check=0:glibc.malloc.hugetlb=0", "THP_enabled:", "0"], (
        completed.stderr
    )
    thp = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    completed = place.run("--pages", "thp", "--", *command)
    if not thp.exists() or "[never]" in thp.read_text():
        assert completed.returncode == 77
    else:
        assert completed.stdout.split() == ["glibc.malloc.hugetlb=1", "THP_enabled:", "1"], completed.stderr
    pool = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
    if not pool.exists() or pool.read_text().strip() == "0":
        completed = place.run("--pages", "1GiB", "--", *command)
        assert completed.returncode == 77 and "in the pool" in one_line(completed)


@two_cpus
def test_a_hard_binding_cannot_be_undone_and_goes_with_the_claim(place: Place, how: tuple[str, ...]) -> None:
    script = (
        "import os\ntry: os.sched_setaffinity(0, range(1024))\nexcept OSError as e: print(e)\n"
        "print(sorted(os.sched_getaffinity(0)), flush=True)\ninput()"
    )
    with subprocess.Popen(
        place.words(*how, "--hard", "--bind", f"list={CPUS[-1]}", "--", sys.executable, "-c", script),
        env=place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = first_line(process)
        if not line:
            _, message = process.communicate()
            assert process.returncode == 77, message
            pytest.skip(message.strip())
        assert line == f"[{CPUS[-1]}]"
        (claim,) = place.slots()["claims"]
        assert Path(claim["cgroup"], "cpuset.cpus").read_text().strip() == str(CPUS[-1])
        process.communicate("\n")
        assert process.returncode == 0
    assert until(lambda: not place.slots()["claims"], 20), "the claim stayed"
    assert not Path(claim["cgroup"]).exists()


# Prints the lines of the rank file that the launcher was given, then the CPUs that it may use.
LAUNCHER = """#!/bin/sh
for word; do case $word in rankfile:file=*) f=${word#rankfile:file=}; cat ${f%%:*};; /proc/self/fd/*) cat $word;; esac
done
grep Cpus_allowed_list /proc/self/status | cut -f2
"""


@two_cpus
@pytest.mark.parametrize(("launcher", "number"), [("openmpi5", 0), ("openmpi", CPUS[-1])])
def test_in_a_cpuset_numbers_count_from_its_first_cpu_where_the_launcher_counts(
    place: Place, launcher: str, number: int
) -> None:
    """Open MPI 5 starts in the new cpuset and numbers its first CPU 0, whereas version 4 needs absolute numbers."""
    mpirun = place.folder / "bin" / "mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text(LAUNCHER)
    mpirun.chmod(0o755)
    env = {"PATH": f"{mpirun.parent}:{place.env['PATH']}"}
    words = ["--bind", f"list={CPUS[-1]}", "--launcher", launcher, "-n", "1", "--", "true"]
    completed = place.run("--hard", *words, env=env)
    if completed.returncode == 77:
        pytest.skip(completed.stderr.strip())
    assert completed.stdout.splitlines() == [f"rank 0=localhost slot={number}", str(CPUS[-1])], completed
    soft = place.run(*words, env=env)  # the process stays in its control group
    assert soft.stdout.splitlines()[0] == f"rank 0=localhost slot={CPUS[-1]}", soft


@two_cpus
def test_ranks_take_a_part_each_of_one_claim(place: Place, how: tuple[str, ...]) -> None:
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                place.start(
                    *how,
                    "--bind",
                    "any",
                    "--slots",
                    "threads",
                    "--each",
                    "--",
                    "sh",
                    "-c",
                    f"{ALLOWED}; exec sleep 1000",
                    env={"MESHMARK_RANK": str(i), "MESHMARK_RANKS": "2"},
                )
            )
            for i in (1, 0)
        ]
        assert [first_line(r) for r in ranks] == [str(CPUS[1]), str(CPUS[0])]
        (claim,) = place.slots()["claims"]
        assert claim["joined"] == 2 and claim["cpus"] == CPUS[:2]
    assert until(lambda: not place.slots()["claims"], 20), "the claim stayed"


def test_a_rank_without_a_part_is_refused(place: Place) -> None:
    completed = place.run("--each", "-n", "1", "--", "true", env={"MESHMARK_RANK": "3"})
    assert completed.returncode == 2 and "local rank 3" in one_line(completed)
    completed = place.run(
        "--each", "--", "true", env={"OMPI_COMM_WORLD_LOCAL_RANK": "x", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    )
    assert completed.returncode == 2 and "OMPI_COMM_WORLD_LOCAL_RANK" in one_line(completed)
    completed = place.run(
        "--each", "--bind", "pack", "--", "true", env={"MESHMARK_RANK": "0", "MESHMARK_RANKS": "9999"}
    )
    assert completed.returncode == 2 and "a launcher that does not bind" in one_line(completed)


@two_cpus
def test_threads_of_openmp_get_a_place_each(place: Place) -> None:
    words = ["--bind", f"list={CPUS[1]},{CPUS[0]}", "--slots", "threads"]
    command = ["sh", "-c", 'echo "$OMP_PLACES|$OMP_PROC_BIND|$OMP_NUM_THREADS"']
    completed = place.run(*words, "--openmp", "--", *command)
    places, bind, threads = completed.stdout.strip().split("|")
    assert (places, threads) == (f"{{{CPUS[1]}}},{{{CPUS[0]}}}", "2") and bind, completed.stderr
    assert place.run(*words, "--each", "--", *command).stdout.strip().endswith("|")  # the number of threads is not set
    assert place.run(*words, "--", *command).stdout.strip() == "||"


@two_cpus
def test_jobs_see_each_other_and_the_last_one_is_told(place: Place) -> None:
    cpus = len(CPUS)
    words = ["--bind", "any,exclude", "--slots", "threads", "-n", "1"]
    with contextlib.ExitStack() as stack:
        jobs = [
            stack.enter_context(place.start(*words, "--", "sh", "-c", f"{ALLOWED}; exec sleep 1000"))
            for _ in range(cpus)
        ]
        taken_cpus = sorted(int(first_line(job)) for job in jobs)
        if len(place.slots()["free"]) == 0 and taken_cpus != CPUS:  # siblings of a core are kept free, too
            pytest.skip("threads of one core")
        assert taken_cpus == CPUS
        assert len(place.slots()["claims"]) == cpus and place.slots()["free"] == []
        completed = place.run(*words, "--", "true")
        assert completed.returncode == 1 and "--wait" in completed.stderr
        assert place.run(*words, "--wait", "100ms", "--", "true").returncode == 1
        assert place.run(*words, "--no-claim", "--", "true").returncode == 0
        with place.start(*words, "--wait", "--", "sh", "-c", ALLOWED) as waiter:
            assert until(lambda: place.slots()["waiting"], 20), "nobody waits"
            assert place.slots()["waiting"][0]["pid"] == waiter.pid
            jobs[0].kill()
            assert int(first_line(waiter)) in CPUS
            assert waiter.wait() == 0
    assert until(lambda: not place.slots()["claims"], 20), "claims stayed"
    assert [f.name for f in place.ledger.iterdir()] == ["mutex"]


def test_slots_for_people(place: Place) -> None:
    with place.start("--bind", f"list={CPUS[0]}", "--", "sh", "-c", "echo; exec sleep 1000 # \x1b[31m") as process:
        first_line(process)
        output = subprocess.run(
            [place.program, "slots"], env=place.env, capture_output=True, text=True, check=True
        ).stdout
    assert str(process.pid) in output and "free: " in output and "\x1b" not in output


def test_a_corrupt_ledger_is_named_with_its_remedy(place: Place) -> None:
    place.ledger.mkdir(mode=0o1777)
    claim = place.ledger / "claim-1"
    claim.write_text("nonsense")
    with claim.open() as ledger:
        fcntl.flock(ledger, fcntl.LOCK_SH)
        completed = place.run("-n", "1", "--", "true")
        assert completed.returncode == 1 and "claim-1" in one_line(completed) and "remove the file" in completed.stderr
        assert str(os.getpid()) in completed.stderr
        assert place.run("-n", "1", "--no-claim", "--", "true").returncode == 0
    assert place.run("-n", "1", "--", "true").returncode == 0


def test_a_record_is_read_by_the_journal(place: Place) -> None:
    file = place.folder / "runs.jsonl"
    file.write_text('{"type": "torn')
    for _ in range(2):
        assert (
            place.run(
                "--record", str(file), "--verify", "-n", "1", "--memory", "bind", "--", "sh", "-c", "sleep 0.2; exit"
            ).returncode
            == 0
        )
    assert place.run("--record", str(file), "--", "sh", "-c", "exit 3").returncode == 3
    reading = read_journal(whole_lines(file), "run")
    assert (
        reading.invalid_records == []
        and reading.invalid_lines == 1
        and reading.error == "the command ended with status 3"
    )
    assert sorted(r.metric for r in reading.records) == sorted(2 * ["elapsed", "user", "system", "waiting"])
    for r in reading.records:
        assert r.instrument == "run" and r.conditions["program"] == "sh" and r.conditions["policy"] == "balance"
        assert r.conditions["memory"] == "bind" and r.conditions["held"] is True
        assert r.metric != "elapsed" or 0.2 <= r.value < 30
    notes = [json.loads(line) for line in whole_lines(file) if b'"note"' in line]
    assert [n["kind"] for n in notes] == 2 * ["placement"] and all(n["report"]["held"] for n in notes)


def test_unwatched_waiting_is_absent_not_zero(place: Place) -> None:
    file = place.folder / "runs.jsonl"
    assert place.run("--record", str(file), "--", "true").returncode == 0
    reading = read_journal(whole_lines(file), "run")
    assert sorted(r.metric for r in reading.records) == ["elapsed", "system", "user"]
    assert [(a.metric, a.enable) for a in reading.absences] == [("waiting", "--verify")]


@two_cpus
def test_a_command_that_leaves_its_place_is_found(place: Place) -> None:
    script = (
        f"import os, time\nos.sched_setaffinity(0, {set(CPUS)})\nend = time.time() + 0.5\nwhile time.time() < end: pass"
    )
    words = ["--bind", f"list={CPUS[0]}", "--", sys.executable, "-c", script]
    file = place.folder / "runs.jsonl"
    completed = place.run("--verify=strict", "--record", str(file), *words)
    assert completed.returncode == 3, completed.stderr
    assert all("migrated" in r.flags for r in read_journal(whole_lines(file), "run").records)
    assert place.run("--verify", *words).returncode == 0
    assert place.run("--verify=strict", "--bind", f"list={CPUS[0]}", "--", "sleep", "0.3").returncode == 0


def test_a_time_out_ends_all_of_it(place: Place) -> None:
    with place.start(
        "--timeout", "300ms", "--", "sh", "-c", "sleep 1000 & echo $!; trap '' TERM; while :; do sleep 0.1; done"
    ) as process:
        sleeper = int(first_line(process))
        assert process.wait() == 124
        assert until(lambda: not alive(sleeper), 20), "a grandchild outlived the time-out"
