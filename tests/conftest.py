"""What all tests share: they leave the user's own store and calibrations alone."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also for the commands that tests start."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))
