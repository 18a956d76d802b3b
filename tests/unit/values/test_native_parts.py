"""A native part that is missing, damaged or built for another system is one line with the cause and a remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark import native
from meshmark.describe import descriptions
from meshmark.errors import MeshmarkError

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


def test_what_a_wheel_lacks_is_built_in_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.is_checkout() and native.remedy("setup APPS=yes", in_wheel=False) == "make setup APPS=yes"
    monkeypatch.setattr(native, "is_checkout", lambda: False)
    assert native.remedy("setup APPS=yes", in_wheel=False) == "make setup APPS=yes in a clone of Meshmark"
    monkeypatch.delenv("MESHMARK_PROBE", raising=False)
    with pytest.raises(MeshmarkError, match=r"meshmark-none not found at .*meshmark/bin/meshmark-none") as caught:
        native.find_native("meshmark-none")
    assert caught.value.hint == "install Meshmark again"
