"""Finds BLAS libraries in Python packages, for systems that have none of their own."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

VARIABLE: Final = "MESHMARK_BLAS"  # read by native/base/libraries/blas.cpp
_PACKAGES: Final = {"numpy": "NumPy", "scipy": "SciPy"}


@dataclass(frozen=True, slots=True)
class BundledLibrary:
    """A BLAS library in a Python package.

    Attributes:
        which: The value of `--library` that selects it, among others.
        path: The shared library.
        name: Its name in records.
    """

    which: str
    path: Path
    name: str


def bundled_libraries(
    packages: Sequence[Path] | None = None, prefixes: Sequence[Path] | None = None
) -> list[BundledLibrary]:
    """Return the libraries of MKL, NumPy and SciPy that are installed for this interpreter, in this order.

    Args:
        packages: Folders of packages, which contain `numpy.libs` and `scipy.libs`; None: where NumPy and SciPy are.
        prefixes: Folders whose `lib` contains MKL; None: those in which pip and conda install.
    """
    if packages is None:
        packages = [Path(spec.origin).parents[1] for name in _PACKAGES if (spec := find_spec(name)) and spec.origin]
    if prefixes is None:
        prefixes = [Path(sys.prefix), Path(site.getuserbase())]
    mkl = (
        BundledLibrary("mkl", path, "MKL")
        for prefix in prefixes
        for path in sorted((prefix / "lib").glob("libmkl_rt.so.*"), reverse=True)
    )
    return [*list(mkl)[:1], *_openblas(dict.fromkeys(packages))]


def _openblas(packages: dict[Path, None]) -> Iterator[BundledLibrary]:
    for name, title in _PACKAGES.items():
        for folder in packages:
            for path in sorted((folder / f"{name}.libs").glob("lib*openblas*.so*")):
                yield BundledLibrary("openblas", path, f"OpenBLAS of {title}")


def environment() -> dict[str, str]:
    """Return the environment variable that passes the bundled libraries to the probe; a value of the user remains."""
    if VARIABLE in os.environ:
        return {}
    lines = ("\t".join((b.which, str(b.path), b.name)) for b in bundled_libraries() if str(b.path).isprintable())
    return {VARIABLE: "".join(f"{line}\n" for line in lines)}
