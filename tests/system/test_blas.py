"""The fastest BLAS library that multiplies correctly is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from meshmark.measure.runs.blas import VARIABLE, BundledLibrary, bundled_libraries
from meshmark.native import find_native

NOTHING = "(void)0;"
NAIVE = """int n = *pn;
for (int j = 0; j < n; ++j)
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += a[k * n + i] * b[j * n + k];
    c[j * n + i] = sum;
  }"""
CRASH = "__builtin_trap();"


def library(folder: Path, name: str, body: str) -> None:
    source = folder / f"{name}.c"
    source.write_text(
        "void dgemm_(const char* ta, const char* tb, const int* pm, const int* pn, const int* pk,\n"
        "            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,\n"
        f"            const double* beta, double* c, const int* ldc) {{\n{body}\n}}\n"
        "void dgesv_(void) {}\n"
    )
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", folder / name, source], check=True)


def probe(folder: Path, *words: str, bundled: Sequence[BundledLibrary] = ()) -> subprocess.CompletedProcess[str]:
    """Run the probe with these libraries before the installed ones."""
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"} | {"LD_LIBRARY_PATH": str(folder)}
    env[VARIABLE] = "".join(f"{x.which}\t{x.path}\t{x.name}\n" for x in bundled)
    argv = [find_native("meshmark-probe"), *words]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120, env=env)


def chosen(
    folder: Path, *words: str, instrument: str = "dgemm", bundled: Sequence[BundledLibrary] = ()
) -> dict[str, Any]:
    """Return the conditions of a measurement with these libraries before the installed ones."""
    argv = (instrument, "--threads", "1", "--budget", "1s", *(words if "--n" in words else ("--n", "64", *words)))
    completed = probe(folder, *argv, bundled=bundled)
    results = [r for r in map(json.loads, completed.stdout.splitlines()) if r["type"] == "result"]
    assert results, completed.stderr
    assert not [r for r in results if "unverified" in r["flags"]]
    conditions: dict[str, Any] = results[0]["conditions"]
    return conditions


pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def test_the_fastest_library_that_multiplies_correctly_is_taken(tmp_path: Path) -> None:
    library(tmp_path, "libmkl_rt.so.2", NAIVE)  # the first one in the search order
    library(tmp_path, "libblis.so.4", NOTHING)  # the fastest one
    c = chosen(tmp_path)
    assert (c["library"], c["kernel_chosen_by"]) == ("OpenBLAS", "trial")
    assert c["trial_BLIS"] == 0 < c["trial_MKL"] < c[f"trial_{c['library_kernel']}"]
    assert "BLIS" not in c["library_missing"] and "MKL" not in c["library_missing"]


def test_a_library_that_crashes_is_passed_over(tmp_path: Path) -> None:
    library(tmp_path, "libmkl_rt.so.2", CRASH)
    c = chosen(tmp_path)
    assert c["library"] == "OpenBLAS" and "MKL" in c["library_missing"]


def test_the_same_library_under_another_name_is_tried_once(tmp_path: Path) -> None:
    library(tmp_path, "libblis.so.4", NAIVE)
    (tmp_path / "libmkl_rt.so.2").symlink_to(tmp_path / "libblis.so.4")
    c = chosen(tmp_path)
    assert "trial_MKL" in c and "trial_BLIS" not in c


def test_a_library_that_is_named_is_taken_as_it_is(tmp_path: Path) -> None:
    library(tmp_path, "libblis.so.4", NAIVE)
    for name in ("blis", str(tmp_path / "libblis.so.4")):
        c = chosen(tmp_path, "--library", name)
        assert c["library_path"] == str(tmp_path / "libblis.so.4") and c["kernel_chosen_by"] == "library"
        assert not [k for k in c if k.startswith("trial_")]


def test_a_kernel_is_one_of_openblas(tmp_path: Path) -> None:
    library(tmp_path, "libblis.so.4", NAIVE)
    c = chosen(tmp_path, "--coretype", "Haswell")
    assert (c["library"], c["library_kernel"], c["kernel_chosen_by"]) == ("OpenBLAS", "Haswell", "user")
    argv = [find_native("meshmark-probe"), "dgemm", "--n", "64", "--coretype", "Haswell"]
    argv += ["--library", str(tmp_path / "libblis.so.4")]
    completed = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 2 and "coretype: found 'Haswell' without OpenBLAS; allowed: auto" in completed.stderr


def test_systems_are_solved_by_a_library_that_can(tmp_path: Path) -> None:
    library(tmp_path, "libblis.so.4", NAIVE)
    source = tmp_path / "libblis.so.4.c"
    source.write_text(source.read_text().replace("void dgesv_(void) {}", ""))
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / "libblis.so.4", source], check=True)
    c = chosen(tmp_path, instrument="linpack")
    assert c["library"] == "OpenBLAS" and "trial_BLIS" not in c


def hide_system_libraries(folder: Path) -> None:
    """Write libraries without functions, which are loaded in place of the system's libraries."""
    for name in ("libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so", "libblas.so.3", "libflexiblas.so.3"):
        source = folder / "empty.c"
        source.write_text("int empty;\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, source], check=True)


def openblas_of(package: str) -> BundledLibrary:
    name = f"OpenBLAS of {package}"
    library = next((x for x in bundled_libraries() if x.name == name), None)
    if library is None:
        pytest.skip(f"{package} contains no OpenBLAS")
    return library


@pytest.mark.parametrize("instrument", ["dgemm", "linpack"])
@pytest.mark.parametrize("package", ["NumPy", "SciPy"])  # with integers of 64 and 32 bits
def test_the_library_of_a_python_package_multiplies_and_solves(instrument: str, package: str, tmp_path: Path) -> None:
    hide_system_libraries(tmp_path)
    library = openblas_of(package)
    c = chosen(tmp_path, "--n", "300", instrument=instrument, bundled=[library])
    assert (c["library"], c["library_path"]) == (library.name, str(library.path))
    assert c["library_missing"] == "MKL, BLIS"
    assert c["library_version"].startswith("OpenBLAS 0.") and c["library_kernel"]
    assert ("USE64BITINT" in c["library_version"]) == (package == "NumPy")


def test_a_library_of_the_system_is_preferred_to_one_of_a_python_package(tmp_path: Path) -> None:
    c = chosen(tmp_path, bundled=[openblas_of("NumPy")])
    assert c["library"] == "OpenBLAS" and "site-packages" not in c["library_path"]


def test_a_library_of_a_python_package_is_one_of_its_kind_or_a_path(tmp_path: Path) -> None:
    hide_system_libraries(tmp_path)
    numpy = openblas_of("NumPy")
    assert chosen(tmp_path, "--library", "openblas", bundled=[numpy])["library"] == "OpenBLAS of NumPy"
    assert chosen(tmp_path, "--library", str(numpy.path))["library_path"] == str(numpy.path)
    completed = probe(tmp_path, "dgemm", "--n", "64", "--library", "mkl", bundled=[numpy])
    assert completed.returncode == 77 and "no BLAS library is installed (looked for mkl)" in completed.stderr


def test_without_any_library_the_remedy_names_packages(tmp_path: Path) -> None:
    hide_system_libraries(tmp_path)
    missing = BundledLibrary("openblas", tmp_path / "libopenblas.so", "OpenBLAS of NumPy")  # without functions
    completed = probe(tmp_path, "dgemm", "--n", "64", bundled=[missing])
    assert completed.returncode == 77 and "pip: numpy or mkl" in completed.stdout
