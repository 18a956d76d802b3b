"""Real tools apply the lines that `translate` writes, and the masks are read back.

The same holds for what `run` passes to launchers and they to it."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshmark.native import find_native
from support.mini_slurm import CannotStart, mini_slurm

CPUS = sorted(os.sched_getaffinity(0))
# Write the mask of this process into a file named after its rank (0 without a launcher).
RANK = """
import os, pathlib, sys
names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "FLUX_TASK_RANK")
rank = next((os.environ[n] for n in names if n in os.environ), "0")
maps = pathlib.Path("/proc/self/numa_maps")
policy = maps.read_text().splitlines()[0].split(" ", 1)[1] if maps.exists() else "absent"
text = ",".join(map(str, sorted(os.sched_getaffinity(0)))) + " " + policy
pathlib.Path(sys.argv[1], "rank" + rank).write_text(text)
"""
# Print the mask of each OpenMP thread.
THREADS = r"""
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdio.h>
int main(void) {
#pragma omp parallel
  {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
#pragma omp critical
    {
      printf("%d", omp_get_thread_num());
      for (int i = 0; i < CPU_SETSIZE; ++i)
        if (CPU_ISSET(i, &set)) printf(" %d", i);
      printf("\n");
    }
  }
}
"""

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="needs two allowed CPUs to tell masks apart")


def need(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} is not installed")
    return path


def form(name: str, parts: str, command: str, *words: str, within: int | None = None) -> dict[str, Any]:
    program = find_native("meshmark-place", "MESHMARK_PLACE")
    call = [str(program), "translate", "--json", "--parts", parts, "--to", name, "--command", command, *words]
    call = [*restriction(within), *call]
    completed = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stderr
    translated: dict[str, Any] = json.loads(completed.stdout)["forms"][name]
    return translated


def restriction(within: int | None) -> list[str]:
    return [] if within is None else [need("taskset"), "-c", str(within)]


@pytest.fixture(autouse=True)
def _own_wishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has separate claims and configuration, and no placement variables of the user."""
    prefixes = ("OMP_", "GOMP_", "KMP_", "OMPI_", "PMI", "MPI_", "SLURM", "FLUX_TASK", "FLUX_JOB", "LSB_", "MESHMARK_")
    for name in [n for n in os.environ if n.startswith(prefixes) and n != "MESHMARK_PLACE"]:
        monkeypatch.delenv(name)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "site.toml").write_text("")
    monkeypatch.setenv("MESHMARK_LEDGER", str(folder / "claims"))
    monkeypatch.setenv("MESHMARK_SITE_CONFIG", str(folder / "site.toml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    for launcher in ("OMPI", "PRTE"):
        for suffix in ("", "_CONFIRM"):
            monkeypatch.setenv(f"{launcher}_ALLOW_RUN_AS_ROOT{suffix}", "1")


def start(command: list[str], folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=os.environ | (env or {}), capture_output=True, text=True, timeout=120, check=False
    )


def shell(line: str, folder: Path, within: int | None = None, env: dict[str, str] | None = None) -> str:
    """Run a line as a user would, in `folder`."""
    process = start([*restriction(within), "sh", "-c", line], folder, env)
    assert process.returncode == 0, f"{line}\n{process.stdout}{process.stderr}"
    return process.stdout


def ranks(
    name: str,
    parts: str,
    folder: Path,
    *words: str,
    tool: str | None = None,
    within: int | None = None,
    env: dict[str, str] | None = None,
) -> list[str]:
    """Return, for each rank, its CPUs and the memory policy of its first mapping. `tool` replaces the launcher."""
    script = folder / "rank.py"
    script.write_text(RANK)
    line = form(name, parts, f"{sys.executable} {script} {folder}", *words, within=within)["line"]
    shell(re.sub(r"\b(mpiexec|mpirun) ", f"{tool} ", line, count=1) if tool else line, folder, within, env)
    return [p.read_text() for p in sorted(folder.glob("rank[0-9]*"), key=lambda p: int(p.name[4:]))]


def open_mpi() -> str:
    """Return the mpirun of Open MPI, even if `mpirun` belongs to another MPI."""
    return shutil.which("mpirun.openmpi") or need("mpirun")


def hydra() -> str:
    """Return the mpiexec of MPICH, even if `mpiexec` belongs to another MPI."""
    return shutil.which("mpiexec.mpich") or need("mpiexec.hydra")


def mpirun_form() -> str:
    version = subprocess.run([open_mpi(), "--version"], capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", version.stdout)
    if match is None:
        pytest.skip("mpirun is not Open MPI's")
    return "openmpi" if int(match[1]) < 5 else "openmpi5"


def run(*words: str) -> list[str]:
    return [str(find_native("meshmark-place", "MESHMARK_PLACE")), "run", *words]


# Rank within the node, the name of the node in Slurm, the mask.
LINGER = "; sleep 0.3"  # SIGPIPE ends mpiexec of MPICH in one of thirty runs whose ranks end at once
SAY = (
    "echo ${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-$SLURM_LOCALID}} ${SLURMD_NODENAME:-here} "
    "$(grep Cpus_allowed_list /proc/self/status | cut -f2)"
)
TURNED = ("--bind", f"list={CPUS[-1]},{CPUS[0]}", "--slots", "threads")
TURNED_SAID = [f"0 here {CPUS[-1]}", f"1 here {CPUS[0]}"]


def said_by_ranks(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("parts", [[[CPUS[1]], [CPUS[0]]], [CPUS[:2], [CPUS[1]]]], ids=["turned", "overlapping"])
def test_open_mpis_ranks_are_where_the_rank_file_says(parts: list[list[int]], tmp_path: Path) -> None:
    name = mpirun_form()
    text = ";".join(",".join(map(str, p)) for p in parts)
    reports = ranks(name, text, tmp_path, tool=open_mpi())
    assert [f.split()[0] for f in reports] == [",".join(map(str, p)) for p in parts]


@pytest.mark.parametrize("parts", [[[CPUS[1]], [CPUS[0]]], [CPUS[:2], [CPUS[1]]]], ids=["turned", "overlapping"])
def test_mpichs_ranks_are_where_the_option_says(parts: list[list[int]], tmp_path: Path) -> None:
    tool = hydra()
    text = ";".join(",".join(map(str, p)) for p in parts)
    reports = ranks("mpich", text, tmp_path, tool=tool)
    assert [f.split()[0] for f in reports] == [",".join(map(str, p)) for p in parts]


def test_flux_places_its_tasks(tmp_path: Path) -> None:
    need("flux")
    if not os.environ.get("FLUX_URI"):
        pytest.skip("no instance of Flux around this test")
    reports = ranks("flux", f"{CPUS[1]};{CPUS[0]}", tmp_path)
    assert [f.split()[0] for f in reports] == [str(CPUS[1]), str(CPUS[0])]


@pytest.fixture
def both_mpis(tmp_path: Path) -> Path:
    """Return a folder as a distribution with several MPIs has it.

    Beside mpirun and mpiexec it contains the launchers of each MPI, all of which only print their names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich"):
        (folder / name).write_text(f"#!/bin/sh\necho {name}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("form_name", "own"), [("openmpi", "mpirun.openmpi"), ("openmpi5", "mpirun.openmpi"), ("mpich", "mpiexec.mpich")]
)
def test_the_launcher_is_the_one_asked_for_where_there_are_several(
    form_name: str, own: str, both_mpis: Path, tmp_path: Path
) -> None:
    command = run("--launcher", form_name, "-n", "1", "--", "true")
    assert said_by_ranks(start(command, tmp_path, {"PATH": f"{both_mpis}:/usr/bin:/bin"})) == [own]
    (both_mpis / own).unlink()  # it is not searched for elsewhere: /usr/bin may have another installation
    plain = own.split(".", maxsplit=1)[0]
    assert said_by_ranks(start(command, tmp_path, {"PATH": f"{both_mpis}:/usr/bin:/bin"})) == [plain]


def test_mpichs_ranks_take_a_part_each(tmp_path: Path) -> None:
    hydra()
    command = [hydra(), "-n", "2", *run(*TURNED, "--each", "--", "sh", "-c", SAY + LINGER)]
    assert said_by_ranks(start(command, tmp_path)) == TURNED_SAID
    if shutil.which("mpiexec.mpich"):
        above = run(*TURNED, "--launcher", "mpich", "-n", "2", "--", "sh", "-c", SAY + LINGER)
        assert said_by_ranks(start(above, tmp_path)) == TURNED_SAID


def test_open_mpis_ranks_take_a_part_each(tmp_path: Path) -> None:
    name = mpirun_form()
    command = [open_mpi(), "-np", "2", "--oversubscribe", "--bind-to", "none"]
    if name == "openmpi5":
        command = [open_mpi(), "-np", "2", "--map-by", ":oversubscribe", "--bind-to", "none"]
    command += run(*TURNED, "--each", "--", "sh", "-c", SAY + LINGER)
    assert said_by_ranks(start(command, tmp_path)) == TURNED_SAID
    above = run(*TURNED, "--launcher", name, "-n", "2", "--", "sh", "-c", SAY + LINGER)
    assert said_by_ranks(start(above, tmp_path)) == TURNED_SAID


@pytest.mark.parametrize("launcher", ["mpich", "open mpi"])
def test_ranks_take_a_part_each_of_a_cpuset(launcher: str, tmp_path: Path) -> None:
    name = mpirun_form() if launcher == "open mpi" else "mpich"
    if launcher == "mpich" and not shutil.which("mpiexec.mpich"):
        hydra()
    for bind, expected in ((TURNED, TURNED_SAID), (("--bind", f"list={CPUS[-1]}"), [f"0 here {CPUS[-1]}"])):
        words = [*bind, "--hard", "--launcher", name, "-n", str(len(expected)), "--", "sh", "-c", SAY + LINGER]
        process = start(run(*words), tmp_path)
        if process.returncode == 77:
            pytest.skip(process.stderr.strip())
        assert said_by_ranks(process) == expected


@pytest.mark.parametrize("launcher", ["rankfile", "cpu-set", "mpich"])
def test_a_launcher_that_puts_all_ranks_on_one_cpu_is_named(launcher: str, tmp_path: Path) -> None:
    """This is the most expensive trap: two CPUs are available, and two ranks share one."""
    if launcher == "mpich":
        words = [hydra(), "-n", "2", "-bind-to", f"user:{CPUS[0]},{CPUS[0]}"]
    else:
        if mpirun_form() != "openmpi":
            pytest.skip("the options are those of Open MPI 4")
        words = [open_mpi(), "-np", "2", "--oversubscribe"]
        if launcher == "rankfile":
            (tmp_path / "ranks").write_text("".join(f"rank {i}=localhost slot={CPUS[0]}\n" for i in range(2)))
            words += ["--mca", "rmaps_rank_file_physical", "1", "--rankfile", "ranks"]
        else:
            words += ["--cpu-set", str(CPUS[0]), "--bind-to", "core"]
    names = ",".join(map(str, CPUS[:2]))
    process = start(
        run("--bind", f"list={names}", "--slots", "threads", "--verify=strict", "--", *words, "sleep", "1"), tmp_path
    )
    assert process.returncode == 3, process.stderr
    messages = [text for text in process.stderr.splitlines() if re.match(r" *mask_changed: sleep", text)]
    assert messages and all(re.search(r"launcher bound (all|each).*-bind-to none", text) for text in messages), (
        process.stderr
    )


@pytest.mark.parametrize("launcher", ["openmpi", "mpich"])
def test_a_launcher_that_leaves_its_ranks_alone_is_not_accused(launcher: str, tmp_path: Path) -> None:
    """To examine each CPU, launchers bind themselves to one after the other for a moment. That is not a change."""
    words = [hydra(), "-n", "2", "-bind-to", "none"]
    if launcher == "openmpi":
        mpirun_form()
        words = [open_mpi(), "-np", "2", "--bind-to", "none"]
    names = ",".join(map(str, CPUS[:2]))
    completed = run("--bind", f"list={names}", "--slots", "threads", "--verify=strict", "--", *words, "sleep", "0.3")
    for _ in range(3):
        process = start(completed, tmp_path)
        assert process.returncode == 0 and "placement held" in process.stderr, process.stderr


# ------------------------------------------------------------------ Slurm, a cluster of this machine


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield two nodes, which are both this machine; the first has its name."""
    try:
        with mini_slurm(nodes=2) as slurm_of_two:
            yield slurm_of_two
    except CannotStart as error:
        pytest.skip(str(error))


@pytest.fixture
def slurm(cluster: tuple[list[str], dict[str, str]]) -> dict[str, str]:
    return cluster[1]


def turned_on(node: str) -> list[str]:
    return [text.replace("here", node) for text in TURNED_SAID]


@pytest.mark.parametrize("name", ["slurm", "slurm-mask"])
@pytest.mark.parametrize("parts", [[[CPUS[-1]], [CPUS[0]]], [CPUS[:2], [CPUS[-1]]]], ids=["turned", "overlapping"])
def test_slurms_tasks_are_where_the_option_says(
    name: str, parts: list[list[int]], slurm: dict[str, str], tmp_path: Path
) -> None:
    text = ";".join(",".join(map(str, p)) for p in parts)
    reports = ranks(name, text, tmp_path, env=slurm)
    assert [f.split()[0] for f in reports] == [",".join(map(str, p)) for p in parts]


@pytest.mark.parametrize("memory", ["local", "bind=0"])
def test_slurm_takes_the_memory_policy(memory: str, slurm: dict[str, str], tmp_path: Path) -> None:
    reports = ranks("slurm", f"{CPUS[-1]};{CPUS[0]}", tmp_path, "--memory", memory, env=slurm)
    assert [f.split()[0] for f in reports] == [str(CPUS[-1]), str(CPUS[0])]


def test_slurms_own_words_are_read(slurm: dict[str, str], tmp_path: Path) -> None:
    """The environment of a task of Slurm names the layout that srun was given."""
    script = "echo $SLURM_CPU_BIND"
    parts = f"{CPUS[-1]};{CPUS[0]}"
    for name in ("slurm", "slurm-mask"):
        completed = shell(form(name, parts, f"sh -c '{script}'")["line"], tmp_path, env=slurm).splitlines()
        program = str(find_native("meshmark-place", "MESHMARK_PLACE"))
        read = start([program, "translate", "--from", name, completed[0], "--to", "parts", "--json"], tmp_path)
        assert json.loads(read.stdout)["parts"] == [[CPUS[-1]], [CPUS[0]]], (completed, read.stderr)


def test_run_starts_slurms_tasks_on_this_node(cluster: tuple[list[str], dict[str, str]], tmp_path: Path) -> None:
    """In a job of two nodes, srun without options would give each node a task, both with the first CPU of the list."""
    (first, second), env = cluster
    job = ["salloc", "-Q", "-N", "2", "-n", str(2 * len(CPUS))]
    inner = run(*TURNED, "--launcher", "slurm", "-n", "2", "--", "sh", "-c", SAY)
    on_the_second = ["srun", "--overlap", "-N", "1", "-n", "1", "-w", second, "--cpu-bind=none"]
    assert said_by_ranks(start([*job, *on_the_second, *inner], tmp_path, env)) == turned_on(second)
    assert said_by_ranks(start([*job, *inner], tmp_path, env)) == turned_on(
        first
    )  # outside of the nodes, by the name of this machine


def test_slurms_tasks_take_a_part_each_of_one_claim(cluster: tuple[list[str], dict[str, str]], tmp_path: Path) -> None:
    (first, _), env = cluster
    slots = [run()[0], "slots", "--json"]
    command = ["srun", "-w", first, "-n", "2", "--cpu-bind=none", *run(*TURNED, "--each")]
    wait = ": > $SLURM_LOCALID.{0}; until [ -e 0.{0} ] && [ -e 1.{0} ]; do sleep 0.05; done"
    show = f"{SAY}; {wait.format('begin')}; {' '.join(slots)}; {wait.format('end')}"
    lines = said_by_ranks(start([*command, "--", "sh", "-c", show], tmp_path, env))
    assert lines[:2] == turned_on(first)
    (claim,) = json.loads(lines[2])["claims"]
    assert (claim["joined"], claim["parts"]) == (2, [[CPUS[-1]], [CPUS[0]]])
    assert json.loads(start(slots, tmp_path).stdout)["claims"] == []


def test_each_of_slurms_tasks_sees_itself(slurm: dict[str, str], tmp_path: Path) -> None:
    command = ["srun", "-n", "2", "--cpu-bind=none", *run(*TURNED, "--each", "--verify=strict", "--", "sleep", "0.5")]
    process = start(command, tmp_path, slurm)
    assert process.returncode == 0 and process.stderr.count("placement held") == 2, process.stderr
    assert "absent: the ranks" not in process.stderr


def test_a_task_that_slurm_has_bound_is_refused(slurm: dict[str, str], tmp_path: Path) -> None:
    process = start(
        ["srun", "-n", "2", *run("--bind", "balance", "--slots", "threads", "--each", "--", "true")], tmp_path, slurm
    )
    assert process.returncode == 2 and "srun --cpu-bind=none" in process.stderr, process.stderr


def test_tasks_out_of_sight_are_absent_from_the_proof(slurm: dict[str, str], tmp_path: Path) -> None:
    """The tasks of srun are not its descendants: that its own threads kept their place proves nothing about them."""
    tasks = ["srun", "-n", "2", "sleep", "0.5"]
    for command in (tasks, ["sh", "-c", " ".join(tasks) + "; true"]):
        process = start(run("--verify", "--", *command), tmp_path, slurm)
        assert process.returncode == 0 and "absent: the ranks of srun" in process.stderr, process.stderr
    for words in (["--", *tasks], ["--launcher", "slurm", "-n", "2", "--", "true"]):
        strict = start(run("--verify=strict", *words), tmp_path, slurm)
        assert strict.returncode == 2 and "verify: cannot be strict" in strict.stderr, strict.stderr


@pytest.mark.parametrize(
    ("name", "tool"),
    [("taskset", "taskset"), ("numactl", "numactl"), ("hwloc", "hwloc-bind"), ("likwid", "likwid-pin")],
)
@pytest.mark.parametrize("cpu", CPUS[:2])
def test_binding_tools_take_the_line(name: str, tool: str, cpu: int, tmp_path: Path) -> None:
    need(tool)
    assert ranks(name, str(cpu), tmp_path)[0].split()[0] == str(cpu)


@pytest.mark.parametrize("name", ["mpirun", "likwid", "hwloc", "taskset"])
def test_the_numbers_are_right_where_the_starter_may_not_use_all_cpus(name: str, tmp_path: Path) -> None:
    """likwid then renumbers the remaining CPUs, Open MPI 5 does not, and others never do."""
    if name == "mpirun":
        reports = ranks(mpirun_form(), str(CPUS[1]), tmp_path, tool=open_mpi(), within=CPUS[1])
    else:
        need({"likwid": "likwid-pin", "hwloc": "hwloc-bind"}.get(name, name))
        reports = ranks(name, str(CPUS[1]), tmp_path, within=CPUS[1])
    assert [f.split()[0] for f in reports] == [str(CPUS[1])]


@pytest.mark.parametrize(("name", "tool"), [("numactl", "numactl"), ("hwloc", "hwloc-bind"), ("taskset", "numactl")])
@pytest.mark.parametrize(
    ("memory", "policy"), [("bind=0", "bind"), ("interleave=0", "interleave"), ("preferred=0", "prefer")]
)
def test_the_memory_policy_reaches_the_kernel(name: str, tool: str, memory: str, policy: str, tmp_path: Path) -> None:
    need(tool)
    cpus, reports = ranks(name, str(CPUS[0]), tmp_path, "--memory", memory)[0].split(" ", 1)
    if reports == "absent":
        pytest.skip("the kernel has no /proc/self/numa_maps")
    assert cpus == str(CPUS[0])
    assert re.match(policy + r"( \(many\))?:0\b", reports), reports


def test_a_control_groups_files_take_the_line(tmp_path: Path) -> None:
    base = Path("/sys/fs/cgroup/cpuset")
    group = (base if base.is_dir() else Path("/sys/fs/cgroup")) / f"mm-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not (group / "cpuset.cpus").exists():
            pytest.skip("the cpuset controller is not enabled for children here")
        script = tmp_path / "rank.py"
        script.write_text(RANK)
        shell(form("cpuset", str(CPUS[1]), f"{sys.executable} {script} {tmp_path}")["line"], group)
        assert (tmp_path / "rank0").read_text().split()[0] == str(CPUS[1])
        assert (group / "cpuset.cpus").read_text().strip() == str(CPUS[1])
    finally:
        group.rmdir()


@pytest.mark.parametrize("name", ["omp-places", "gomp", "kmp"])
@pytest.mark.parametrize("turned", [False, True])
def test_openmp_threads_are_where_the_variable_says(name: str, turned: bool, tmp_path: Path) -> None:
    need("gcc")
    (tmp_path / "threads.c").write_text(THREADS)
    link = ["-fopenmp"]
    if name == "kmp":
        library = next(filter(None, map(ctypes.util.find_library, ("omp", "iomp5"))), None)
        if library is None:
            pytest.skip("no OpenMP run time of LLVM or Intel is installed")
        link = [f"-l:{library}"]
    subprocess.run(["gcc", "-fopenmp", "-c", "threads.c"], cwd=tmp_path, check=True, timeout=120)
    subprocess.run(["gcc", "threads.o", *link, "-o", "threads"], cwd=tmp_path, check=True, timeout=120)
    parts = [[c] for c in (CPUS[1::-1] if turned else CPUS[:2])]
    if name != "gomp":
        parts.append(CPUS[:2])
    completed = shell(form(name, ";".join(",".join(map(str, p)) for p in parts), "./threads")["line"], tmp_path)
    masks = {int(row[0]): [int(c) for c in row[1:]] for row in (line.split() for line in completed.splitlines())}
    assert [masks[i] for i in sorted(masks)] == parts


@pytest.mark.parametrize("variable", ["OMP_PLACES", "GOMP_CPU_AFFINITY"])
def test_openmps_numbers_are_absolute_within_a_cpuset(variable: str, tmp_path: Path) -> None:
    need("gcc")
    (tmp_path / "threads.c").write_text(THREADS)
    subprocess.run(["gcc", "-fopenmp", "threads.c", "-o", "threads"], cwd=tmp_path, check=True, timeout=120)
    # --openmp gives OMP_PLACES; the user has set the other variable, and a cpuset must not change its numbers.
    words = ["--openmp"] if variable == "OMP_PLACES" else []
    env = {} if words else {variable: str(CPUS[-1]), "OMP_NUM_THREADS": "1"}
    process = start(run("--hard", "--bind", f"list={CPUS[-1]}", *words, "--", "./threads"), tmp_path, env)
    if process.returncode == 77:
        pytest.skip(process.stderr.strip())
    assert (process.returncode, process.stdout.split()) == (0, ["0", str(CPUS[-1])]), process
