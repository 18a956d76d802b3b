"""BLAS libraries in Python packages are passed to the probe."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.measure.runs.blas import VARIABLE, bundled_libraries, environment


def library(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_libraries_of_mkl_numpy_and_scipy_are_listed_in_this_order(tmp_path: Path) -> None:
    scipy = library(tmp_path / "site-packages/scipy.libs/libscipy_openblas-6c.so")
    numpy = library(tmp_path / "site-packages/numpy.libs/libscipy_openblas64_-32.so")
    library(tmp_path / "site-packages/numpy.libs/libgfortran-04.so.5.0.0")
    library(tmp_path / "prefix/lib/libmkl_rt.so.2")
    mkl = library(tmp_path / "prefix/lib/libmkl_rt.so.3")
    libraries = bundled_libraries([tmp_path / "site-packages"] * 2, [tmp_path / "prefix"])
    assert [(x.which, x.path, x.name) for x in libraries] == [
        ("mkl", mkl, "MKL"),
        ("openblas", numpy, "OpenBLAS of NumPy"),
        ("openblas", scipy, "OpenBLAS of SciPy"),
    ]


def test_packages_that_use_a_library_of_the_system_contain_none(tmp_path: Path) -> None:
    assert bundled_libraries([tmp_path], [tmp_path / "prefix"]) == []


def test_the_probe_gets_the_libraries_of_this_interpreter_unless_the_user_names_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    lines = environment()[VARIABLE].splitlines()
    assert [line.split("\t")[1] for line in lines] == [str(x.path) for x in bundled_libraries()]
    monkeypatch.setenv(VARIABLE, "openblas\t/opt/libopenblas.so\tOpenBLAS\n")
    assert environment() == {}
