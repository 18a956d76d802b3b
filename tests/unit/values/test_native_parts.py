"""A native part that is missing, damaged or built for another system is one line with the cause and a remedy."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import meshmark
from meshmark import native
from meshmark.describe import descriptions
from meshmark.errors import MeshmarkError
from support.paths import ROOT

OLD_GLIBC = "meshmark-probe: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by meshmark-probe)"

ELSEWHERE = "install Meshmark on this system, or use its static programs (make bundle in a clone of Meshmark)"


def program(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f'#!/bin/sh\necho "{OLD_GLIBC}" >&2\necho more >&2\nexit 1\n'.replace("`", "\\`").encode(), OLD_GLIBC),
        (b"#!/bin/sh\nexit 3\n", "it ended with status 3"),
        (b"#!/no/loader\n", "cannot be started: this system lacks the C library glibc"),
        (b"\x7fELF, but not of this processor", "cannot be started: it was built for another kind of processor"),
    ],
    ids=["old glibc", "status", "no loader", "architecture"],
)
@pytest.mark.parametrize("is_checkout", [True, False])
def test_a_program_that_does_not_start_is_one_line(
    content: bytes, message: str, is_checkout: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MESHMARK_PROBE", str(program(tmp_path / "meshmark-probe", content)))
    monkeypatch.setattr(native, "is_checkout", lambda: is_checkout)
    with pytest.raises(MeshmarkError) as caught:
        descriptions()
    assert message in str(caught.value) and "\n" not in str(caught.value)
    # The same wheel would not run on this system either.
    in_wheel = "install Meshmark again" if "status" in message else ELSEWHERE
    assert caught.value.hint == ("make setup" if is_checkout else in_wheel)


@pytest.mark.parametrize("case", ["another processor", "no glibc", "old glibc", "damaged"])
def test_a_library_that_is_not_loaded_is_one_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Path(os.environ.get("MESHMARK_VALUES") or native.find_native("libmeshmark-values.so", folder="lib"))
    content = bytearray(library.read_bytes())
    if case == "another processor":
        content[18:20] = b"\xff\x01"
    elif case == "old glibc":
        content = content.replace(b"GLIBC_2.", b"GLIBC_9.")
    else:
        content = content[:4]
    if case == "no glibc":
        monkeypatch.delitem(os.confstr_names, "CS_GNU_LIBC_VERSION")
    monkeypatch.setattr(native, "is_checkout", lambda: False)
    with pytest.raises(MeshmarkError) as caught:
        native.load_library(program(tmp_path / library.name, bytes(content)))
    message, hint = {
        "another processor": ("it was built for another kind of processor", ELSEWHERE),
        "no glibc": ("this system lacks the C library glibc", ELSEWHERE),
        "old glibc": ("GLIBC_9", ELSEWHERE),
        "damaged": ("file too short", "install Meshmark again"),
    }[case]
    assert str(caught.value).startswith(f"{library.name} cannot be loaded: ")
    assert message in str(caught.value) and "\n" not in str(caught.value) and caught.value.hint == hint


def test_halves_of_different_versions_are_refused() -> None:
    program = "from meshmark import entry, native; native.VERSION = '0.0.9'; entry.main()"
    words = [sys.executable, "-c", program, "measure", "latency", "--footprint", "1KiB"]
    completed = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert completed.returncode == 1 and completed.stdout == ""
    assert completed.stderr.splitlines() == [
        "meshmark: error: libmeshmark-values.so belongs to Meshmark 0.1.0, the Python package is 0.0.9",
        "hint: make setup",
    ]


def test_the_versions_of_both_halves_are_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == native.VERSION == meshmark.__version__


def test_what_a_wheel_lacks_is_built_in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.is_checkout() and native.remedy("setup APPS=yes", in_wheel=False) == "make setup APPS=yes"
    monkeypatch.setattr(native, "is_checkout", lambda: False)
    assert native.remedy("setup APPS=yes", in_wheel=False) == "make setup APPS=yes in a clone of Meshmark"
    monkeypatch.delenv("MESHMARK_PROBE", raising=False)
    with pytest.raises(MeshmarkError, match=r"meshmark-none not found at .*meshmark/bin/meshmark-none") as caught:
        native.find_native("meshmark-none")
    assert caught.value.hint == "install Meshmark again"
