"""Promises of the build: what is pinned, what is written into the tree, what the probe says of itself."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

from meshmark.describe import find_comm
from support.mpi_here import has_coarrays, has_openshmem, installed
from support.paths import ROOT

PROBE = ROOT / "build" / "release" / "bin" / "meshmark-probe"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: str) -> dict[str, set[str]]:
    """What a lock file allows: versions by name; each must come with hashes, and with no address."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / file).read_text().replace("\\\n", " ").splitlines():
        pin = re.fullmatch(r"([\w.-]+)==([\w.]+)( ; [^/@]+?)? +(--hash=sha256:[0-9a-f]{64} *)+", line)
        assert pin, line[:100]
        found.setdefault(normal(pin[1]), set()).add(pin[2])
    return found


def name(requirement: str) -> str:
    return normal(re.split(r"[<>=!~\[ ]", requirement)[0])


def test_every_dependency_is_pinned_by_version_and_hash() -> None:
    project = PROJECT["project"]
    asked = [*project["dependencies"], *(word for extra in project["optional-dependencies"].values() for word in extra)]
    assert {name(word) for word in asked} <= locked("locked.txt").keys()
    assert locked("installers.txt").keys() == {"pip", "uv"}


def test_a_build_requires_exact_versions_which_are_locked() -> None:
    requires = PROJECT["build-system"]["requires"]
    versions = locked("locked.txt")
    assert {word.partition("==")[2] for word in requires} == set().union(*(versions[name(word)] for word in requires))
    # Whatever they require is named as well: an isolated build takes no other version of anything.
    needed_by_build = {
        name(word)
        for each in requires
        for word in metadata.requires(name(each)) or []
        if "extra ==" not in word and not re.search(r"python_version *< *['\"]3\.(\d|10|11)['\"]", word)
    }
    assert needed_by_build <= {name(word) for word in requires}


def test_the_page_is_pinned_by_hash() -> None:
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    assert [p for p, what in packages.items() if p and not what.get("integrity", "").startswith("sha512-")] == []


def test_the_probe_carries_the_version_of_the_project() -> None:
    done = subprocess.run([PROBE, "clock", "--budget", "0.2s"], capture_output=True, text=True, check=True)
    header = json.loads(done.stdout.splitlines()[0])
    assert header["provenance"]["build"].partition("+")[0] == PROJECT["project"]["version"]
    assert "-march" not in header["provenance"]["compiler"]


# A probe that keeps only what the linker finds referred to would lose instruments without a word.
def test_every_instrument_source_is_in_the_probe() -> None:
    described = json.loads(subprocess.run([PROBE, "--describe"], capture_output=True, check=True).stdout)
    names = {instrument["name"] for instrument in described}
    wired = re.findall(r"^mm_instrument\((\w+)", (ROOT / "native/instruments/CMakeLists.txt").read_text(), re.M)
    there = {name for name in wired if (ROOT / "native" / "instruments" / f"{name}.cpp").exists()}
    assert there <= names


def packaged(folder: Path, name: str) -> Path:
    """A development package that pkg-config finds, without anything in it."""
    file = folder / f"{name}.pc"
    file.write_text(f"Name: {name}\nDescription: made up\nVersion: 3.1\nCflags: -DMADE_UP\n")
    return file


def test_the_build_follows_what_is_installed(tmp_path: Path) -> None:
    """Of this tree with packages that come and go; configured for real, built in name only."""
    for name in ("CMakeLists.txt", "CMakePresets.json", "cmake", "native", "pyproject.toml", "tests/native"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "build.sh", tmp_path / "tools")
    for folder in ("bin", "packages"):
        (tmp_path / folder).mkdir()
    script = tmp_path / "bin" / "cmake"
    script.write_text(f'#!/bin/sh\n[ "$1" != --build ] || exit 0\necho >>calls\nexec {shutil.which("cmake")} "$@"\n')
    script.chmod(0o755)
    packages = tmp_path / "packages"
    packaged(packages, "hwloc")
    around = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PKG_CONFIG_LIBDIR": str(packages)}
    around.pop("PKG_CONFIG_PATH", None)
    programs = tmp_path / "build" / "release" / "bin"

    def built() -> tuple[int, str]:
        """How often CMake configured so far, and how it was last asked to make the program of MPICH."""
        subprocess.run([tmp_path / "tools" / "build.sh", "release"], env=around, check=True, timeout=300)
        commands = json.loads((tmp_path / "build/release/compile_commands.json").read_text())
        found = {c["command"] for c in commands if "meshmark-comm-mpich.dir" in c["command"]}
        return len((tmp_path / "calls").read_text()), " ".join(found)

    assert built() == (1, "")
    assert built() == (1, ""), "nothing changed"
    mpich = packaged(packages, "mpich")
    calls, commands = built()
    assert calls == 2 and "MADE_UP" in commands and "MM_CAF" not in commands
    coarrays = packaged(packages, "caf-mpich")
    calls, commands = built()
    assert calls == 3 and ("MM_CAF" in commands) == bool(shutil.which("gfortran"))
    programs.mkdir(exist_ok=True)
    for name in ("meshmark-comm", "meshmark-comm-mpich", "meshmark-probe"):
        (programs / name).touch()
    assert built()[0] == 3
    coarrays.unlink()
    calls, commands = built()
    assert calls == 4 and "MADE_UP" in commands and "MM_CAF" not in commands
    assert (programs / "meshmark-comm-mpich").exists()
    mpich.unlink()
    assert built() == (5, "")
    assert sorted(p.name for p in programs.iterdir()) == ["meshmark-comm", "meshmark-probe"]


def test_what_is_installed_is_built_and_nothing_else() -> None:
    """After `make run` on a machine without MPICH, `make test` installed it and built nothing with it."""
    folder = find_comm().parent
    assert {p.name for p in folder.glob("meshmark-comm-*")} == {f"meshmark-comm-{kind}" for kind in installed()}
    for kind in installed():
        linked = subprocess.run(["ldd", folder / f"meshmark-comm-{kind}"], capture_output=True, text=True, check=True)
        assert ("libcaf_" in linked.stdout) == has_coarrays(kind), f"{kind}: co-arrays"
        assert ("liboshmem" in linked.stdout) == (kind == "openmpi" and has_openshmem()), f"{kind}: OpenSHMEM"


# Whatever is looked for by CMake and not by build.sh would be built only where CMake happens to run again.
def test_build_looks_at_all_that_cmake_looks_for() -> None:
    lists = "".join(p.read_text() for p in [ROOT / "CMakeLists.txt", *(ROOT / "native").glob("**/CMakeLists.txt")])
    script = (ROOT / "tools" / "build.sh").read_text()
    asked = re.findall(r"pkg_check_modules\(\w+ .*?([\w-]+)\)", lists) + re.findall(r"find_library\(\w+ (\w+)", lists)
    assert {"hwloc", "mpich", "oshmem"} <= set(asked)
    assert not [name for name in asked if not re.search(rf"(?<![\w-])(lib)?{name}(?![\w-])", script)]


def test_no_test_is_skipped_where_something_is_not_built() -> None:
    """What the system lacks is skipped; what `make setup` builds is there or fails."""
    skips = re.compile(r"(skip|skipif|importorskip)\(.*(built|no build|this build|make setup)")
    lines = [(p.name, line) for p in (ROOT / "tests").rglob("test_*.py") for line in p.read_text().splitlines()]
    assert [found for found in lines if skips.search(found[1])] == []


def test_tests_have_an_own_home_and_miss_only_what_nobody_can_make() -> None:
    """Some programs make /nonexistent; in /proc nobody makes a file."""
    assert Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert all(Path(os.environ[f"XDG_{name}_HOME"]).is_relative_to(Path.home()) for name in ("DATA", "CONFIG", "CACHE"))
    missing = re.compile(r"""["'](/nonexistent|/nowhere|/no/such)""")
    files = [p for p in (ROOT / "tests").rglob("test_*.py") if missing.search(p.read_text())]
    assert [p.name for p in files if p != Path(__file__)] == []
