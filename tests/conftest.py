"""What all tests share: they leave the user's own store and calibrations alone, and signals as they are by default."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# `make test` tries the same examples every time; `make fuzz` new ones, and what it finds becomes an @example.
settings.register_profile("the same", derandomize=True)
settings.load_profile("default" if os.environ.get("MESHMARK_FUZZ") else "the same")


@pytest.fixture(scope="session", autouse=True)
def _own_data(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Also for the commands that tests start."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session", autouse=True)
def _default_signals() -> None:
    """`nohup make test &` ignores two of them, and every program that a test starts would inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
