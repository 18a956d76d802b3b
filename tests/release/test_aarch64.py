"""The wheel and the bundle for aarch64 under emulation, as `make cross` builds them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from release.dist import NATIVE, unpack_bundle, wheel
from release.roots import debian_files

EMULATOR = shutil.which("qemu-aarch64-static") or ""
PLATFORMS = [*(f"manylinux_2_{n}_aarch64" for n in (17, 24, 26, 27, 28)), "manylinux2014_aarch64"]

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not EMULATOR, reason="no qemu-aarch64-static here; apt-get install qemu-user-static"),
]


@pytest.fixture(scope="module")
def static_arm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_bundle("aarch64", tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def root() -> Path:
    """Return the files of Debian 12 for aarch64."""
    return debian_files("bookworm", "arm64")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel with everything that it needs from wheels for aarch64, and return the folder."""
    folder = tmp_path_factory.mktemp("site")
    platforms = [f"--platform={p}" for p in PLATFORMS]
    words = ["--only-binary=:all:", "--python-version=3.11", *platforms, "--target", folder, wheel("aarch64")]
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", *words], check=True)
    return folder


def results(argv: list[str | Path]) -> list[dict[str, Any]]:
    """Run an instrument, and return its results."""
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return [line for line in map(json.loads, completed.stdout.splitlines()) if line["type"] == "result"]


def refuses_nonsense(argv: list[str | Path]) -> bool:
    """Return whether a program starts and reports an error, which is an exception."""
    completed = subprocess.run([*argv, "--nonsense"], capture_output=True, text=True, check=False)
    return completed.returncode == 2 and "error: " in completed.stderr


@pytest.mark.parametrize("name", NATIVE)
def test_programs_of_the_bundle_start(name: str, static_arm: Path) -> None:
    assert refuses_nonsense([EMULATOR, static_arm / f"meshmark-{name}"])


@pytest.mark.parametrize("name", NATIVE)
def test_programs_of_the_wheel_start(name: str, site: Path, root: Path) -> None:
    assert refuses_nonsense([EMULATOR, "-L", root, site / "meshmark" / "bin" / f"meshmark-{name}"])


@pytest.mark.parametrize("form", ["bundle", "wheel"])
def test_latency_and_bandwidth_are_measured(form: str, request: pytest.FixtureRequest) -> None:
    if form == "bundle":
        probe = [EMULATOR, request.getfixturevalue("static_arm") / "meshmark-probe"]
    else:
        folder = request.getfixturevalue("site") / "meshmark" / "bin"
        probe = [EMULATOR, "-L", request.getfixturevalue("root"), folder / "meshmark-probe"]
    (latency,) = results([*probe, "latency", "--footprint", "16KiB", "--cpus", "0", "--budget", "2s"])[:1]
    assert latency["metric"] == "load_latency" and latency["value"] > 0
    triad = ["bandwidth", "--kernel", "triad", "--threads", "1", "--footprint", "16KiB", "--isa", "all"]
    rates = results([*probe, *triad, "--budget", "5s"])
    assert {"neon", "sve"} <= {r["conditions"]["isa"] for r in rates} and all(r["value"] > 0 for r in rates)


def test_the_installed_wheel_measures_and_writes_a_report(site: Path, root: Path, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(site)}
    # The emulator does not emulate what a program starts, so scripts start the native programs by it.
    for name in ("probe", "start"):
        script = tmp_path / f"meshmark-{name}"
        program = site / "meshmark" / "bin" / script.name
        script.write_text(f'#!/bin/sh\nexec {EMULATOR} -L {root} {program} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        environment[f"MESHMARK_{name.upper()}"] = str(script)

    def meshmark(*words: str) -> str:
        argv = [EMULATOR, "-L", root, root / "usr/bin/python3.11", "-m", "meshmark", *words]
        completed = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=900
        )
        assert completed.returncode == 0, completed.stderr[-2000:]
        return completed.stdout

    assert meshmark("--version").startswith("meshmark ")
    (tmp_path / "spec.toml").write_text(
        'name = "s"\n[[step]]\ninstrument = "latency"\noptions = { footprint = "4KiB,64KiB", budget = "3s" }\n',
        encoding="utf-8",
    )
    meshmark("survey", "--spec", "spec.toml", "--out", "run")
    assert "<svg" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert '"load_latency"' in meshmark("measure", "latency", "--footprint", "16KiB", "--budget", "2s", "--json")
