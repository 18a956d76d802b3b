"""A native part that is missing, damaged or built for another system is one line with the cause and a remedy."""

from __future__ import annotations

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
    assert caught.value.hint == ("make setup" if is_checkout else "install Meshmark again")


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
