"""Starting ranks: words for each launcher, refusals, and simulated launchers that hang, crash or print noise."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark.describe import find_comm
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.measure.runs import launch
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner
from support.cli import meshmark
from support.waiting import alive, until

# The messages of Open MPI 4.1 and MPICH 4.0 about a killed rank.
OPEN_MPI_KILLED = """--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
mpirun noticed that process rank 3 with PID 0 on node n042 exited on signal 9 (Killed).
--------------------------------------------------------------------------
"""
MPICH_KILLED = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT n042
=   EXIT CODE: 9
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


def forget() -> None:
    launch.launchers.cache_clear()
    launch.version_output.cache_clear()


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that alone is on the PATH, for launchers; builds for Open MPI and MPICH are in another folder."""
    for kind in ("", "-openmpi", "-mpich"):
        script(tmp_path / "builds" / f"meshmark-comm{kind}", "#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("MESHMARK_COMM", str(tmp_path / "builds"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    (tmp_path / "path").mkdir()
    return tmp_path / "path"


def answers(path: Path, says: str, then: str = "exit 0") -> Path:
    return script(path, f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{says}"; exit 0; fi\n{then}\n')


# ------------------------------------------------------------------ who is here


def test_a_launcher_is_told_by_what_it_says_not_by_its_name(made_up: Path) -> None:
    answers(made_up / "mpirun", "HYDRA build details: Version: 4.0.2")
    launchers = launch.launchers()
    assert list(launchers) == ["mpich"]
    assert launchers["mpich"].path == made_up / "mpirun"
    assert launchers["mpich"].program.name == "meshmark-comm-mpich"


def test_any_is_the_first_all_are_all_and_names_are_names(made_up: Path) -> None:
    answers(made_up / "mpirun.openmpi", "mpirun (Open MPI) 4.1.4")
    answers(made_up / "mpirun.mpich", "HYDRA build details")
    assert launch.chosen("any") == ["openmpi"]
    assert launch.chosen("all") == ["openmpi", "mpich"]
    assert launch.chosen("mpich") == ["mpich"]
    with pytest.raises(UsageError, match=r"^mpi: found 'pvm'; allowed: any, all, openmpi, mpich, mpi$"):
        launch.chosen("mpich,pvm")


def test_without_any_launcher_it_is_absent_and_says_what_would_help(made_up: Path) -> None:
    with pytest.raises(AbsentError, match="no MPI library") as raised:
        launch.chosen("any")
    assert "install" in raised.value.hint
    with pytest.raises(AbsentError, match=r"^mpich: found no launcher with a build of meshmark-comm$"):
        launch.launcher("mpich")


def test_what_is_here_is_named_where_another_was_asked_for(made_up: Path) -> None:
    answers(made_up / "mpirun", "mpirun (Open MPI) 4.1.4")
    with pytest.raises(AbsentError, match=r"^mpich: .*; available: openmpi$"):
        launch.launcher("mpich")


def test_a_folder_without_builds_is_absent(made_up: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(made_up / "mpirun", "mpirun (Open MPI) 4.1.4")
    monkeypatch.setenv("MESHMARK_COMM", str(tmp_path / "empty"))
    (tmp_path / "empty").mkdir()
    assert launch.launchers() == {}
    with pytest.raises(MeshmarkError, match=r"MESHMARK_COMM: found no meshmark-comm-mpich in .*empty"):
        find_comm("mpich")


def test_the_command_line_says_what_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    completed = meshmark("measure", "halo", "--no-store", env={"MESHMARK_COMM": str(tmp_path / "empty")})
    assert completed.returncode == 2, completed.stderr
    message = completed.stderr.strip().splitlines()
    assert "found 'halo'" in message[0] and message[1].startswith("hint: ") and "MPI" in message[1], completed.stderr


@pytest.mark.parametrize(
    ("built", "says"),
    [([], "no program for any MPI library; installed: none"), (["mpich"], "no program for openmpi; installed: mpich")],
)
def test_a_program_without_its_library_says_which(built: list[str], says: str, tmp_path: Path) -> None:
    alone = shutil.copy2(find_comm(), tmp_path)
    for kind in built:
        script(tmp_path / f"meshmark-comm-{kind}", "#!/bin/sh\n")
    started = {"OMPI_COMM_WORLD_SIZE": "2"} if built else {}
    completed = subprocess.run([alone, "halo"], capture_output=True, text=True, timeout=60, check=False, env=started)
    assert (completed.returncode, completed.stdout, completed.stderr) == (77, "", f"meshmark-comm: absent: {says}\n")


# ------------------------------------------------------------------ words


def test_numbers_of_ranks() -> None:
    assert launch.counts("all", 1) == [2]
    assert launch.counts("all", 96) == [96]
    assert launch.counts("4,2,4", 2) == [2, 4]
    assert launch.counts("2..8", 2) == [2, 4, 8]
    for value in ("", "0", "two", "-1", "65537", "2.0"):
        with pytest.raises(UsageError, match=f"^ranks: found '{value}'; allowed: "):
            launch.counts(value, 2)


def test_ranks_may_have_the_cpus_of_all_nodes_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_count = len(os.sched_getaffinity(0))
    for job, expected in (("", cpu_count), ("64", cpu_count), ("16(x3),8", 56), ("4,4", 8)):
        monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", job)
        assert launch.cpus() == expected, job
    monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", "16(x3),8")
    assert [launch.ranks_of_host(n) for n in (1, 4, 5, 8)] == [1, 1, 2, 2]
    assert [launch.cpus_of_rank(n) for n in (1, 4, 5, 8, 100)] == [8, 8, 4, 4, 1], "of the smallest host"


@pytest.mark.parametrize(
    ("kind", "cpus", "there", "not_there"),
    [
        ("openmpi", 4, ["--bind-to core"], ["--oversubscribe", "yield"]),
        ("openmpi", 2, ["--oversubscribe", "--bind-to none", "--mca mpi_yield_when_idle 1"], ["core"]),
        ("mpich", 4, ["-bind-to core"], ["--"]),
        ("mpich", 2, [], ["bind"]),
        ("mpi", 2, [], ["bind"]),
    ],
)
def test_each_launcher_gets_its_own_words(kind: str, cpus: int, there: list[str], not_there: list[str]) -> None:
    line = launch.launch_argv(launch.Launcher(kind, Path("/l"), Path("/p")), 4, cpus, ["-x", "A=1"])
    assert line[:3] == ["/l", "-n", "4"] and line[-3:] == ["-x", "A=1", "/p"]
    between = " ".join(line[3:-3])
    assert all(word in between for word in there) and not any(word in between for word in not_there), between


def test_ranks_with_threads_are_not_bound_to_a_core() -> None:
    def words(kind: str, threads: int) -> str:
        return " ".join(launch.launch_argv(launch.Launcher(kind, Path("/l"), Path("/p")), 2, 8, threads=threads))

    for kind in ("openmpi", "mpich"):
        assert "core" in words(kind, 1)
        enough, too_many = words(kind, 4), words(kind, 5)
        assert "core" not in enough and "OMP_WAIT_POLICY" not in enough
        assert "core" not in too_many and "OMP_WAIT_POLICY" in too_many and "passive" in too_many
    assert "--bind-to none" in words("openmpi", 4) and "--oversubscribe" in words("openmpi", 5)


def test_root_is_let_in_by_open_mpi_alone() -> None:
    variables = {k for k in launch.environment("openmpi") if k.startswith("OMPI_ALLOW")}
    assert variables >= ({"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"} if os.geteuid() == 0 else set())
    assert launch.environment("mpich") == dict(os.environ)


def test_openmp_binds_no_rank_before_the_ranks_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "0")
    environment = launch.environment("openmpi")
    assert (
        not {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"} & environment.keys()
        and "OMP_NUM_THREADS" in environment
    )


# ------------------------------------------------------------------ what they say


def test_who_died_is_told_in_one_line() -> None:
    assert launch.failure_message(OPEN_MPI_KILLED) == "rank 3 on n042 was terminated by SIGKILL"
    assert launch.failure_message(MPICH_KILLED) == "process 4711 on n042 was terminated by SIGKILL"
    assert (
        launch.failure_message(MPICH_KILLED, [{"pid": 4710}, {"pid": 4711}])
        == "rank 1 on n042 was terminated by SIGKILL"
    )
    exit_message = MPICH_KILLED.replace("EXIT CODE: 9", "EXIT CODE: 3").partition("YOUR APPLICATION TERMINATED")[0]
    assert launch.failure_message(exit_message) == "process 4711 on n042 ended with status 3"


def test_what_a_rank_said_comes_before_what_its_launcher_says_of_it() -> None:
    output = "warning\nmeshmark-comm: error: rank 1: MPI_Bcast: out of luck\n" + OPEN_MPI_KILLED
    assert launch.failure_message(output) == "rank 1: MPI_Bcast: out of luck"


def test_rulers_are_no_reason() -> None:
    assert launch.failure_message("cannot connect\n" + "-" * 74 + "\n") == "cannot connect"
    assert launch.failure_message("-----\n\n") == ""


# ------------------------------------------------------------------ made-up launchers


def step(budget_s: float = 0.5) -> SurveyStep:
    return SurveyStep("halo-openmpi-2", "halo", ("halo",), budget_s, 2, "openmpi")


def test_a_launcher_that_hangs_is_ended_with_all_that_it_started(
    made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{made_up}:/usr/bin:/bin")
    pids = tmp_path / "pids"
    # Ignores SIGTERM, as a launcher that hangs may do.
    answers(made_up / "mpirun.openmpi", "Open MPI", f"trap '' TERM\nsleep 300 &\necho $$ $! > {pids}\nwait")
    start_s = time.monotonic()
    result = PlanRunner(tmp_path / "run", silence_s=0.5).run_step(step())
    assert result.status == "failed" and result.message.startswith("no output for "), result.message
    assert time.monotonic() - start_s < 120
    # They are killed, but a killed process needs a moment to disappear.
    assert until(lambda: not [pid for pid in map(int, pids.read_text().split()) if alive(pid)], 10)


def test_a_launcher_that_listens_may_clean_up(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{made_up}:/usr/bin:/bin")
    cleaned = tmp_path / "cleaned"
    answers(
        made_up / "mpirun.openmpi", "Open MPI", f"trap 'touch {cleaned}; kill $!; exit 143' TERM\nsleep 300 &\nwait"
    )
    assert PlanRunner(tmp_path / "run", silence_s=0.5).run_step(step()).status == "failed"
    assert cleaned.exists()


def test_a_rank_that_died_is_named_and_what_was_measured_stays(
    made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{made_up}:/usr/bin:/bin")
    header = json.dumps(
        {
            "type": "header",
            "schema": 1,
            "instrument": "halo",
            "machine": "m",
            "conditions": {},
            "provenance": {},
            "parameters": {},
            "points": 0,
            "processes": [{"host": "n042", "pid": 4710}, {"host": "n042", "pid": 4711}],
        }
    )
    log = tmp_path / "talk"
    log.write_text(MPICH_KILLED)  # on standard output, among the lines
    point = json.dumps({"type": "point", "index": 0, "key": {}})
    answers(made_up / "mpirun.openmpi", "Open MPI", f"echo '{header}'\necho '{point}'\ncat {log}\nexit 9")
    runner = PlanRunner(tmp_path / "run")
    result = runner.run_step(step())
    assert (result.status, result.message) == ("failed", "rank 1 on n042 was terminated by SIGKILL")
    types = [json.loads(line)["type"] for line in runner.journal(step()).read_text().splitlines()]
    assert types == ["header", "point"]


def test_a_launcher_that_is_no_program_is_one_line(made_up: Path, tmp_path: Path) -> None:
    answers(made_up / "mpirun.openmpi", "Open MPI")
    assert "openmpi" in launch.launchers()
    (made_up / "mpirun.openmpi").write_text("#!/proc/no/such/shell\n")
    result = PlanRunner(tmp_path / "run").run_step(step())
    assert result.status == "failed" and "cannot be started" in result.message and "\n" not in result.message


def test_killing_the_runner_ends_the_launcher(made_up: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{made_up}:/usr/bin:/bin")
    pid_file = tmp_path / "pid"
    answers(
        made_up / "mpirun.openmpi",
        "Open MPI",
        f"echo $$ > {pid_file}.new\nmv {pid_file}.new {pid_file}\nexec sleep 300",
    )
    code = f"""
from pathlib import Path
from meshmark.measure.runs.plan import SurveyStep
from meshmark.measure.runs.runner import PlanRunner
PlanRunner(Path({str(tmp_path / "run")!r})).run_step(SurveyStep("s", "halo", ("halo",), 60, 2, "openmpi"))
"""
    child = subprocess.Popen([sys.executable, "-c", code])
    assert until(pid_file.exists)
    child.send_signal(signal.SIGKILL)
    child.wait()
    pid = int(pid_file.read_text())
    assert until(lambda: not alive(pid))
