"""The program of MPI ranks is compiled for the library of the site, by wrappers and launchers that may fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshmark import describe, native
from meshmark.describe import find_comm
from meshmark.errors import AbsentError, MeshmarkError, UsageError
from meshmark.measure.mpi_build import build_program, find_wrapper
from meshmark.measure.runs import launch
from meshmark.mpi_programs import DESCRIPTION, built_program, programs_folder

# Stands for a compiler wrapper: writes an empty object, or links PROGRAM.
WRAPPER = """#!/bin/sh
case "$1" in --version) echo 'g++ 13.2.0'; exit;; esac
for last; do :; done
case "$*" in
*' -c '*) : > "$last" ;;
*) cp "$(dirname "$0")/program" "$last" ;;
esac
"""
PROGRAM = """#!/bin/sh
case "$1" in --library) echo '{"mpi": "intelmpi", "library": "Intel(R) MPI Library 2021.13"}' ;; esac
"""
LAUNCHER = '#!/bin/sh\nshift 2\nexec "$@"\n'


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of an MPI library's programs, which precedes the others in PATH."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("MESHMARK_COMM", raising=False)
    folder = tmp_path / "site" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name, text in (("mpicxx", WRAPPER), ("program", PROGRAM), ("mpirun", LAUNCHER)):
        write(folder / name, text)
    launch.launchers.cache_clear()
    yield folder
    launch.launchers.cache_clear()


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def leftovers() -> list[str]:
    return sorted(path.name for path in programs_folder().iterdir())


def test_measurements_use_the_program_with_the_launcher_of_its_library(site: Path) -> None:
    messages: list[str] = []
    program = build_program(find_wrapper(), notify=messages.append)
    assert program.name == "meshmark-comm-mpi" and program.is_relative_to(programs_folder())
    assert program.parent.name.startswith(f"{native.VERSION}-intel-r-mpi-library-2021.13-")
    assert find_comm("mpi") == program
    used = launch.launchers()["mpi"]
    assert (used.path, used.program) == (site / "mpirun", program)
    assert len(messages) == 2 and "two ranks" in messages[1]
    assert leftovers() == [program.parent.name, "build.log"]


def test_of_several_libraries_the_first_in_path_is_used(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build_program(find_wrapper())
    other = tmp_path / "other"
    other.mkdir()
    for name, text in (("mpicxx", WRAPPER), ("program", PROGRAM), ("mpirun", LAUNCHER)):
        write(other / name, text)
    second = build_program(find_wrapper(compiler=str(other / "mpicxx")))
    assert first != second and find_comm("mpi") == first
    monkeypatch.setenv("PATH", f"{other}:{site}:/usr/bin:/bin")
    assert find_comm("mpi") == second
    (other / "mpirun").unlink()
    assert find_comm("mpi") == first


def test_a_program_of_another_version_is_refused(site: Path) -> None:
    program = build_program(find_wrapper())
    path = program.parent / DESCRIPTION
    path.write_text(json.dumps(json.loads(path.read_text()) | {"meshmark": "0.0.9"}))
    assert built_program("mpi") is None
    with pytest.raises(MeshmarkError, match=r"^meshmark-comm-mpi belongs to Meshmark 0\.0\.9, .* is \d") as error:
        find_comm("mpi")
    assert error.value.hint == "meshmark mpi build"
    path.write_text("{")  # damaged
    with pytest.raises(MeshmarkError, match="meshmark-comm-mpi not found"):
        find_comm("mpi")


def test_without_a_wrapper_the_remedy_is_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(AbsentError, match=r"no compiler wrapper of an MPI library \(mpicxx, mpic\+\+") as error:
        find_wrapper()
    assert "--compiler PATH" in error.value.hint
    with pytest.raises(UsageError, match=r"--compiler: found 'mpicxy', which is not a program; allowed: .*mpicxx"):
        find_wrapper(compiler="mpicxy")
    with pytest.raises(UsageError, match="--mpi: found 'lam'; allowed: any, openmpi, mpich, mpi"):
        find_wrapper("lam")


def test_a_wrapper_without_a_compiler_is_absent(site: Path) -> None:
    write(site / "mpicxx", "#!/bin/sh\necho 'Unable to find the specified compiler g++ in your PATH.' >&2\nexit 1\n")
    with pytest.raises(AbsentError, match=r"mpicxx finds no C\+\+ compiler: Unable to find") as error:
        build_program(find_wrapper())
    assert "OMPI_CXX" in error.value.hint


def test_an_error_of_the_compiler_is_one_line_and_the_log_has_all(site: Path) -> None:
    lines = "In file included from x.cpp:\nx.hpp:3:10: fatal error: span: No such file\ncompilation terminated.\n"
    write(site / "mpicxx", f"#!/bin/sh\n[ $1 = --version ] || {{ printf '{lines}' >&2; exit 1; }}\n")
    with pytest.raises(
        MeshmarkError, match=r"cannot compile the program: x\.hpp:3:10: fatal error: span: No such file;"
    ) as e:
        build_program(find_wrapper())
    log = Path(str(e.value).partition("log: ")[2])
    assert "compilation terminated." in log.read_text() and leftovers() == ["build.log"]


def test_an_error_of_the_linker_is_reported_too(site: Path) -> None:
    (site / "program").unlink()
    with pytest.raises(MeshmarkError, match=r"cannot compile the program: .*program"):
        build_program(find_wrapper())


def test_a_program_that_cannot_be_started_is_not_installed(site: Path) -> None:
    write(site / "program", "#!/bin/sh\necho 'error while loading shared libraries: libmpi.so.12' >&2\nexit 127\n")
    with pytest.raises(MeshmarkError, match=r"cannot be started: error while loading shared libraries: libmpi\.so\.12"):
        build_program(find_wrapper())
    assert leftovers() == ["build.log"]


def test_a_library_that_cannot_run_ranks_is_reported_unless_they_are_not_tried(site: Path) -> None:
    write(site / "mpirun", "#!/bin/sh\necho 'There are not enough slots' >&2\nexit 1\n")
    with pytest.raises(MeshmarkError, match="mpirun cannot run two ranks of the program: There are not enough slots"):
        build_program(find_wrapper())
    assert leftovers() == ["build.log"]
    assert build_program(find_wrapper(), is_tried=False).is_file()


def test_a_launcher_is_needed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "mpirun").unlink()
    (site / "env").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(site))
    with pytest.raises(AbsentError, match=r"found no launcher \(mpirun, mpiexec\) for .*/mpicxx"):
        build_program(find_wrapper())


def test_a_folder_that_cannot_be_written_is_named(site: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MeshmarkError, match="/file/programs: cannot be written: File exists"):
        build_program(find_wrapper(), output=tmp_path / "file" / "programs")


def test_another_library_than_the_expected_one_is_refused(site: Path) -> None:
    with pytest.raises(
        UsageError, match=r"--mpi: found 'mpich', but .*/mpicxx compiles for Intel\(R\) MPI.*; allowed: mpi"
    ):
        build_program(site / "mpicxx", "mpich")


def test_a_named_folder_is_one_for_the_environment_variable(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build_program(find_wrapper(), output=tmp_path / "programs")
    assert program == tmp_path / "programs" / "meshmark-comm-mpi" and built_program("mpi") is None
    monkeypatch.setenv("MESHMARK_COMM", str(tmp_path / "programs"))
    assert describe.find_comm("mpi") == program


def test_two_packages_of_mpi_libraries_are_refused() -> None:
    launch.check_packages(["numpy"])
    with pytest.raises(AbsentError, match="the Python packages numpy and scipy overwrite each other's files") as error:
        launch.check_packages(["numpy", "scipy"])
    assert error.value.hint == "pip uninstall numpy scipy, then install one of them"


def test_a_program_of_the_wheel_has_the_launcher_of_the_package_that_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "is_checkout", lambda: False)
    program = tmp_path / "lib/python3.11/site-packages/meshmark/bin/meshmark-comm-mpich"
    program.parent.mkdir(parents=True)
    assert launch.package_folders(program) is None
    (tmp_path / "lib/libmpi.so.40").touch()  # of Open MPI
    assert launch.package_folders(program) is None
    (tmp_path / "lib/libmpi.so.12").touch()
    assert launch.package_folders(program) == str(tmp_path / "bin")


def test_a_program_of_the_wheel_without_its_library_is_not_offered(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "is_checkout", lambda: False)
    monkeypatch.setenv("MESHMARK_COMM", str(tmp_path))
    write(site / "mpirun.mpich", "#!/bin/sh\necho HYDRA\n")
    write(tmp_path / "meshmark-comm-mpich", "#!/bin/sh\nexit 127\n")
    assert launch.launchers() == {}
    launch.launchers.cache_clear()
    write(tmp_path / "meshmark-comm-mpich", "#!/bin/sh\necho []\n")
    assert [*launch.launchers()] == ["mpich"]
