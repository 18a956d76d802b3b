"""Systems on which a part of a release does not run: one line names the cause and the remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from release.dist import unpack_wheel, wheel
from support.made_program import made_program

EMULATOR = shutil.which("qemu-x86_64-static") or ""
WITHOUT_AVX = "Nehalem,+rdtscp"  # the emulator's model lacks an instruction that these processors have
WITHOUT_COUNTER = "core2duo"
OLD = [
    ["bandwidth", "--threads", "1", "--footprint", "64KiB", "--isa", "all"],
    ["bandwidth", "--kernel", "triad", "--threads", "1", "--footprint", "64KiB"],
    ["peak", "--threads", "1", "--isa", "all"],
    ["loops", "--length", "8,64", "--isa", "all"],
    ["kernels", "--volume", "16KiB", "--stride", "1", "--threads", "1"],
    ["latency", "--footprint", "16KiB", "--cpus", "0"],
    ["gups", "--table", "64KiB", "--threads", "1"],
    ["llm", "--weights", "1MiB", "--layers", "1", "--threads", "1"],
    ["prefetch", "--footprint", "64KiB", "--distance", "0,4", "--threads", "1"],
]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of x86-64"),
]
emulated = pytest.mark.skipif(not EMULATOR, reason="no qemu-x86_64-static here; apt-get install qemu-user-static")


def on_processor(model: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [EMULATOR, "-cpu", model, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)


@emulated
@pytest.mark.parametrize("words", OLD, ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_processor_without_avx2_uses_the_baseline(words: list[str], static: Path) -> None:
    completed = on_processor(WITHOUT_AVX, static / "meshmark-probe", *words, "--budget", "3s", "--interval", "60")
    assert completed.returncode == 0, completed.stderr
    results = [line for line in map(json.loads, completed.stdout.splitlines()) if line["type"] == "result"]
    assert results
    sets = {r["conditions"].get("chosen_isa", r["conditions"].get("isa", "sse2")) for r in results}
    assert sets == {"sse2"} and not [r for r in results if "unverified" in r["flags"]]


@emulated
def test_a_processor_whose_counter_cannot_be_read_is_reported(static: Path, tmp_path: Path) -> None:
    program = made_program(static / "meshmark-load", tmp_path / "program.json", calls=1)
    for words in (
        [static / "meshmark-probe", "latency", "--footprint", "16KiB"],
        [static / "meshmark-load", "program", program],
        [static / "meshmark-watch", "--calibrate", "1s"],
    ):
        completed = on_processor(WITHOUT_COUNTER, *words)
        assert completed.returncode == 77, completed.stderr
        error = completed.stderr.splitlines()[0]
        assert error.endswith("absent: this processor lacks the instruction rdtscp, with which times are measured")
        # The probe states the remedy in its record of the absence.
        assert "choose a processor model that has rdtscp" in completed.stdout + completed.stderr


@emulated
def test_such_a_processor_is_watched_without_the_canary(static: Path) -> None:
    completed = on_processor(WITHOUT_COUNTER, static / "meshmark-watch", "--rate", "5", "--duration", "500ms")
    assert completed.returncode == 0, completed.stderr
    lines = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [line["type"] for line in lines].count("frame") >= 2
    assert "lacks the instruction rdtscp" in completed.stdout


@pytest.mark.parametrize(
    ("arch", "system"),
    [("x86_64", "musllinux_1_2_x86_64"), ("x86_64", "manylinux_2_27_x86_64"), ("aarch64", "manylinux_2_28_x86_64")],
    ids=["musl", "old glibc", "other architecture"],
)
def test_pip_refuses_a_wheel_that_does_not_fit(arch: str, system: str, tmp_path: Path) -> None:
    words = [
        "--no-deps",
        "--no-index",
        "--only-binary=:all:",
        f"--platform={system}",
        "--target",
        tmp_path,
        wheel(arch),
    ]
    argv = [sys.executable, "-m", "pip", "install", *words]
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    assert completed.stderr.splitlines()[0] == f"ERROR: {wheel(arch).name} is not a supported wheel on this platform."


def errors(site: Path, *words: str, before: str = "true") -> str:
    """Run a command of an unpacked wheel that cannot work, after a command of the shell, and return its errors."""
    # Without `site`, the package of this clone is not found.
    paths = os.pathsep.join([str(site), sysconfig.get_path("purelib")])
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{before}; exec "$@"', "sh"]
    completed = subprocess.run(
        [*argv, sys.executable, "-S", "-m", "meshmark", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=site,
        env={"PATH": os.environ["PATH"], "HOME": str(site), "PYTHONPATH": paths},
    )
    assert completed.returncode == 1, (words, completed.stdout)
    return completed.stderr


COMMANDS = {
    "probe": ["measure", "latency", "--footprint", "16KiB"],
    "place": ["run", "--bind", "compact", "--", "true"],
    "load": ["load", "kernels"],
    "values": ["survey", "--quick"],
}


@pytest.mark.parametrize("part", COMMANDS)
def test_a_copy_for_another_architecture_says_so(part: str, tmp_path: Path) -> None:
    error, hint = errors(unpack_wheel("aarch64", tmp_path), *COMMANDS[part]).splitlines()
    assert error.startswith("meshmark: error: ") and error.endswith(": it was built for another kind of processor")
    assert hint.startswith("hint: install Meshmark on this system, or use its static programs")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("part", COMMANDS)
def test_a_copy_on_a_file_system_without_programs_says_so(part: str, tmp_path: Path) -> None:
    site = unpack_wheel("x86_64", tmp_path)
    mount = f"mount --bind {site} {site} && mount -o remount,bind,noexec {site}"
    error, hint = errors(site, *COMMANDS[part], before=mount).splitlines()
    assert error.startswith("meshmark: error: ") and error.endswith(
        ": its file system is mounted with the option noexec"
    )
    assert hint == "hint: install Meshmark on another file system"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_temporary_folders_need_no_programs(static: Path, tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o noexec none "$0" && cd "$0" && exec "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", mount, tmp_path]
    survey = [static / "meshmark-probe", "survey", "--out", tmp_path, "--budget", "5s"]
    kernels = [static / "meshmark-probe", "kernels", "--volume", "16KiB", "--stride", "1", "--threads", "1"]
    for words in (survey, [*kernels, "--budget", "3s"]):
        completed = subprocess.run(
            [*argv, *words], capture_output=True, text=True, check=False, env=os.environ | {"TMPDIR": str(tmp_path)}
        )
        assert completed.returncode == 0, completed.stderr
