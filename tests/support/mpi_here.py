"""The MPI libraries of this system.

A test is skipped if the system lacks a library. If a library is installed and Meshmark is not built with it, the
test fails: skips would hide a build that does not follow what is installed."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from meshmark.describe import KINDS, find_comm
from meshmark.errors import MeshmarkError
from meshmark.measure.runs import launch

PACKAGES = {"openmpi": "ompi-c", "mpich": "mpich"}  # the names that CMake passes to pkg-config


@cache
def has(package: str) -> bool:
    """Return whether pkg-config knows a development package."""
    path = shutil.which("pkg-config")
    return path is not None and subprocess.run([path, "--exists", package], check=False).returncode == 0


@cache
def installed() -> tuple[str, ...]:
    """Return the kinds of libraries with which Meshmark can be built here, built or not; `any` comes first."""
    packages = [kind for kind, package in PACKAGES.items() if has(package)]
    if not packages and shutil.which("mpicc") and shutil.which("mpiexec"):
        packages = ["mpi"]
    return tuple(kind for kind in KINDS if kind in packages or kind in launch.launchers())


def needed(kind: str = "any") -> launch.Launcher:
    """Return the launcher of a library and the program built with it; skip the test if the system lacks the library."""
    if kind == "any":
        kind = next(iter(launch.launchers()), "") or next(iter(installed()), "an MPI library")
    launchers = launch.launchers().get(kind)
    if launchers is not None:
        return launchers
    if kind not in installed():
        pytest.skip(f"{kind} is not installed")
    try:
        find_comm(kind)
    except MeshmarkError as error:
        pytest.fail(f"{kind} is installed, and Meshmark is not built with it: {error}", pytrace=False)
    pytest.skip(f"the launcher of {kind} is not installed")


def has_coarrays(kind: str) -> bool:
    """Return whether the system has co-arrays for this library, and a compiler for them."""
    return has(f"caf-{kind}") and shutil.which("gfortran") is not None


@cache
def has_openshmem() -> bool:
    """Return whether the development package of Open MPI has OpenSHMEM, which has no package file."""
    if not has(PACKAGES["openmpi"]):
        return False
    line = ["pkg-config", "--variable=libdir", PACKAGES["openmpi"]]
    folder = subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
    line = ["c++", "-print-file-name=liboshmem.so"]
    completed = subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
    return Path(folder, "liboshmem.so").exists() or Path(completed).is_absolute()
