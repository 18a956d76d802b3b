"""The wheel and the bundle, as `make wheel bundle` builds them, on systems that lack everything else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from release.dist import NATIVE, bundle, dynamic, glibc_versions, programs, unpack_wheel, wheel
from release.roots import ROOTS, debian, run
from support.paths import ROOT

MIB = 1 << 20
OLDEST_GLIBC = (2, 28)
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
MPI_LIBRARIES = {"meshmark-comm-openmpi": "libmpi.so.40", "meshmark-comm-mpich": "libmpi.so.12"}

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_the_wheel_needs_an_old_glibc_and_no_other_library(arch: str, tmp_path: Path) -> None:
    assert wheel(arch).name.endswith(f"-py3-none-manylinux_2_28_{arch}.whl")
    assert wheel(arch).stat().st_size <= 15_000_000
    binaries = programs(unpack_wheel(arch, tmp_path))
    assert {f"meshmark-{name}" for name in NATIVE} < {path.name for path in binaries}
    for path in binaries:
        text = dynamic(path)
        assert max(glibc_versions(text), default=(0, 0)) <= OLDEST_GLIBC, path.name
        of_mpi = {MPI_LIBRARIES[path.name]} if path.name in MPI_LIBRARIES else set()
        assert {*re.findall(r"NEEDED.*\[(.*)\]", text)} - LIBRARIES - {LOADERS[arch]} == of_mpi, path.name


def test_the_library_for_python_exports_its_functions_only(unpacked: Path) -> None:
    """Other libraries of the process have a libstdc++ of their own, and some of its symbols would be merged."""
    (library,) = unpacked.rglob("libmeshmark-values.so")
    argv = ["nm", "-D", "--defined-only", library]
    names = [line.split()[-1] for line in subprocess.check_output(argv, text=True).splitlines()]
    assert names and all(name.startswith(("meshmark_", "mm_")) for name in names), names[:5]


def test_the_wheel_lists_the_software_of_others(unpacked: Path) -> None:
    (sbom,) = unpacked.glob("*.dist-info/sboms/*.json")
    components = json.loads(sbom.read_text(encoding="utf-8"))["components"]
    assert len(components) == 11
    assert all(re.fullmatch(r"\d+(\.\d+)+", component["version"]) for component in components)
    (notice,) = unpacked.glob("*.dist-info/licenses/NOTICE.md")
    text = notice.read_text(encoding="utf-8")
    assert not [c["name"] for c in components if c["name"] not in text and not c["name"].startswith("GCC")]


def test_the_wheel_has_manual_pages_of_its_commands(unpacked: Path) -> None:
    (folder,) = unpacked.glob("*.data/data/share/man/man1")
    names = {path.stem for path in folder.iterdir()}
    assert {"meshmark", "meshmark-run", "meshmark-measure-latency", "meshmark-load-study-curve"} < names
    assert "meshmark-measure-halo" in names


def test_the_bundle_is_static(static: Path) -> None:
    assert bundle().stat().st_size <= 5 * MIB
    assert {path.name for path in programs(static)} == {f"meshmark-{name}" for name in NATIVE}
    for path in programs(static):
        assert "NEEDED" not in dynamic(path)


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie", "sid"])
def test_native_programs_start_and_report_errors(suite: str, name: str, unpacked: Path) -> None:
    """An error is an exception: it needs the unwind tables, which the C library finds differently in each version."""
    root = debian(suite)
    shutil.copytree(unpacked / "meshmark", root / "opt" / "meshmark", dirs_exist_ok=True)
    completed = run(root, f"/opt/meshmark/bin/meshmark-{name}", "--nonsense")
    assert completed.returncode == 2 and "error: " in completed.stderr


@pytest.mark.parametrize("suite", ["bullseye", "bookworm", "trixie", "sid", ""])
def test_the_survey_of_the_bundle_needs_nothing(suite: str, static: Path, tmp_path: Path) -> None:
    """ "" is a root without any file."""
    root = debian(suite) if suite else ROOTS / "empty"
    shutil.copytree(static, root / "opt" / "native", dirs_exist_ok=True)
    out = root / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(mode=0o777)
    completed = run(root, "/opt/native/meshmark-probe", "survey", "--out", "/out", "--budget", "30s")
    assert completed.returncode == 0, completed.stderr
    assert "Latency of dependent loads" in completed.stdout
    assert len([*out.glob("*.jsonl.gz")]) == 1
    absent = run(root, "/opt/native/meshmark-probe", "dgemm", "--n", "100")
    assert absent.returncode == 77 and "cannot load a BLAS library" in absent.stderr


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_wheel_measures_and_writes_a_report_without_root_or_a_network(suite: str, tmp_path: Path) -> None:
    root = debian(suite)
    version = next(root.glob("usr/lib/python3.*")).name.removeprefix("python")
    wheels = root / "opt" / "wheels"
    platforms = [f"--platform=manylinux_2_{n}_x86_64" for n in (17, 27, 28)] + ["--platform=manylinux2014_x86_64"]
    shutil.rmtree(wheels, ignore_errors=True)
    words = ["-q", "-d", wheels, "--only-binary=:all:", f"--python-version={version}", *platforms, wheel()]
    subprocess.run([sys.executable, "-m", "pip", "download", *words], check=True)
    home = root / "tmp" / "home"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=0o777)
    home.chmod(0o777)
    script = (
        "python3 -m venv /tmp/home/mm && cd /tmp/home"
        " && mm/bin/pip install -q --no-index --find-links /opt/wheels meshmark"
        " && mm/bin/meshmark --version && mm/bin/meshmark measure latency --footprint 16KiB --budget 2s --json"
        " && mm/bin/meshmark survey --spec spec.toml --out run"
    )
    (home / "spec.toml").write_text(
        'name = "s"\n[[step]]\ninstrument = "latency"\noptions = { footprint = "4KiB,64KiB", budget = "3s" }\n',
        encoding="utf-8",
    )
    completed = run(root, "sh", "-ec", script, user="1000")
    assert completed.returncode == 0, completed.stderr[-2000:]
    assert '"load_latency"' in completed.stdout
    assert "<svg" in (home / "run" / "report.html").read_text(encoding="utf-8")


def test_make_run_takes_a_wheel_of_its_commit_instead_of_building(unpacked: Path, tmp_path: Path) -> None:
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()
    provenance = (unpacked / "meshmark" / "mpi" / "provenance.cpp").read_text()
    assert f'+g{commit[:8]}"' in provenance, "the wheel is of another commit, make wheel"
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    (clone / "dist").mkdir()
    shutil.copy(wheel(), clone / "dist")
    for _ in range(2):
        setup = subprocess.run(["tools/setup.sh", "--run"], cwd=clone, capture_output=True, text=True, check=True)
        assert not (clone / "build" / "release").exists()
    assert setup.stderr == ""  # the second time, there is nothing to do
    line = "import meshmark.native as n; print(n.is_checkout(), n.find_native('meshmark-probe').exists())"
    assert subprocess.check_output([clone / ".venv/bin/python", "-c", line], text=True).split() == ["False", "True"]
