"""The wheel and the bundle for this machine, unpacked."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.dist import unpack_bundle, unpack_wheel


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_wheel("x86_64", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_bundle("x86_64", tmp_path_factory.mktemp("bundle"))
