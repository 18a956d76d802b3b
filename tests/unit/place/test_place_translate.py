"""Tests of `meshmark-place translate` from the command line: a layout is expressed for another launcher."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from meshmark.native import find_native

MACHINE = "pack:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)"  # 0-3 are the first threads of the cores


def translate(*words: str, text: str = "", topology: str = MACHINE) -> subprocess.CompletedProcess[str]:
    program = find_native("meshmark-place", "MESHMARK_PLACE")
    command = [str(program), "translate", "--topology", topology, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


def answer(*words: str, text: str = "") -> dict[str, Any]:
    completed = translate("--json", *words, text=text)
    assert completed.returncode == 0, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


def test_every_form_is_there_with_its_line_or_its_reason() -> None:
    translation = answer("--parts", "0,4;1,5")
    assert translation["parts"] == translation["relative"] == [[0, 4], [1, 5]]
    assert translation["allowed"] == list(range(8))
    forms, refusals = translation["forms"], translation["refused"]
    assert forms["slurm"]["line"] == "srun -n 2 --cpu-bind=mask_cpu:0x11,0x22 ./a.out"
    assert forms["openmpi"]["files"] == {"rankfile": "rank 0=localhost slot=0,4\nrank 1=localhost slot=1,5\n"}
    assert forms["openmpi"]["numbers"] == "absolute" and forms["openmpi5"]["numbers"].startswith("relative")
    assert forms["openmpi5"]["files"] == {"rankfile": "rank 0=localhost slot=0-1\nrank 1=localhost slot=2-3\n"}
    assert forms["omp-places"]["environment"]["OMP_PLACES"] == "{0,4},{1,5}"
    assert set(refusals) == {"lsf", "blaunch", "pbsdsh", "gomp", "hwloc", "likwid", "numactl", "taskset", "cpuset"}
    assert "one mask" in refusals["taskset"] and "one CPU per part" in refusals["gomp"]


def test_the_line_for_people_says_absolute_and_relative() -> None:
    completed = translate("--parts", "3;2", "--to", "taskset,likwid", "--command", "./solve -n 3")
    assert completed.returncode == 2  # taskset was asked for by name
    completed = translate("--parts", "3;2", "--to", "mpich,likwid", "--command", "./solve -n 3")
    assert completed.stdout.splitlines() == [
        "CPUs 3;2 (relative to the allowed 0-7: 3;2)",
        "",
        "mpich",
        "  mpiexec -n 2 -bind-to user:3,2 ./solve -n 3",
        "",
        "likwid",
        "  likwid-pin -c 3,2 ./solve -n 3",
    ]


@pytest.mark.parametrize(
    ("form", "text", "parts"),
    [
        ("slurm", "srun --cpu-bind=mask_cpu:0x11,0x22 ./a.out", [[0, 4], [1, 5]]),
        ("omp-places", "sockets", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("gomp", "0 3 4-6:2", [[0], [3], [4], [6]]),
        ("hwloc", "package:1.core:0", [[2, 6]]),
        ("openmpi5", "rank 0=localhost slot=0-1", [[0, 4]]),
    ],
)
def test_what_others_write_is_read_from_the_command_line_and_from_standard_input(
    form: str, text: str, parts: list[list[int]]
) -> None:
    assert answer("--from", form, text)["parts"] == parts
    assert answer("--from", form, "-", text=text)["parts"] == parts


def test_options_may_be_pasted_after_two_dashes() -> None:
    assert answer("--from", "slurm", "--to", "mpich", "--", "--cpu-bind=map_cpu:5,2")["parts"] == [[5], [2]]


def test_the_words_behind_two_dashes_need_no_quotes() -> None:
    translation = answer(
        "--from", "numactl", "--to", "numactl,cpuset", "--", "-N", "0", "--membind=1", "./solve", "-n", "a b"
    )
    assert (
        translation["parts"] == [[0, 1, 4, 5]] and translation["memory"] == "bind=1" and translation["left_out"] == []
    )
    assert translation["forms"]["numactl"]["line"] == "numactl --physcpubind=0-1,4-5 --membind=1 ./solve -n 'a b'"
    assert translation["forms"]["cpuset"]["files"]["cpuset.mems"] == "1\n"


def test_what_no_other_form_expresses_is_named() -> None:
    completed = translate("--from", "numactl", "--to", "taskset", "--", "-N 0 --interleave=all --balancing ./a")
    assert completed.stdout.splitlines() == [
        "CPUs 0-1,4-5 (relative to the allowed 0-7: 0-1,4-5)",
        "memory: interleave=0-1",
        "left out, since no other form expresses it: --balancing",
        "",
        "taskset",
        "  taskset -c 0-1,4-5 numactl --interleave=0-1 ./a",
    ]


def test_lsfs_affinity_is_placed_and_its_memory_goes_along() -> None:
    translation = answer(
        "--from", "affinity", "--tasks", "2", "affinity[core(1,same=socket,exclusive=(socket,injob)):membind=localonly]"
    )
    assert translation["parts"] == [[0, 4], [2, 6]]
    assert "--mem-bind=mask_mem:0x1,0x2" in translation["forms"]["slurm"]["line"]


def test_memory_is_said_in_the_launchers_words() -> None:
    translation = answer("--parts", "2,3", "--memory", "bind=1", "--to", "numactl")
    assert translation["forms"]["numactl"]["line"] == "numactl --physcpubind=2-3 --membind=1 ./a.out"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--parts", "0,99"], "parts: found CPU 99"),
        (["--parts", "0;a"], "parts: found 'a'"),
        (["--parts", "0;1", "--to", "taskset"], "taskset: has one mask for all parts"),
        (["--parts", "0,1", "--to", "gomp"], "gomp: accepts one CPU per part"),
        (["--parts", "0", "--to", "pbs"], "form: found 'pbs'; allowed: openmpi, openmpi5, mpich, slurm"),
        (["--from", "pbs", "0"], "form: found 'pbs'"),
        (["--from", "slurm", "cores"], "slurm: found 'cores'; allowed: 'map_cpu:0,1'"),
        (["--from", "slurm"], "TEXT: is missing"),
        (
            ["--from", "numactl", "-N", "0", "-m", "0"],
            "must follow --; allowed: meshmark translate --from numactl [OPTIONS] -- TEXT",
        ),
        (["--from", "hwloc", "l3:9"], "hwloc: found 'l3:9'"),
        (["0", "--", "1"], "TEXT: found '0' and more after --"),
        (["--parts", "0", "0"], "TEXT: found together with --parts"),
        (["--from", "affinity", "affinity[die]"], "affinity: found 'die'"),
        (["--from", "affinity", "--tasks", "99", "affinity[core]"], "affinity: 99 tasks of 1 cores do not fit"),
        (["--tasks", "0", "--from", "affinity", "x"], "--tasks"),
        (["--parts", "0", "--memory", "weighted=0:3"], ""),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_input_is_one_line_with_exit_2(words: list[str], said: str) -> None:
    completed = translate(*words, *([] if "--to" in words else ["--to", "numactl"]))
    assert completed.returncode == 2 and completed.stdout == ""
    complaint, *hints = completed.stderr.splitlines()
    assert complaint.startswith("meshmark: error: ") and said in complaint
    assert hints == ["hint: meshmark translate --help"]


def test_help_has_an_example_and_every_form() -> None:
    completed = translate("--help")
    assert completed.returncode == 0
    for word in ("example: meshmark translate", "openmpi5", "slurm-mask", "cpuset", "--memory"):
        assert word in completed.stdout
