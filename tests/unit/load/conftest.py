"""Program that several tests of loads run."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshmark.load.scenario.run import find_load
from support.made_program import made_program


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a program with about 0.3 s of fixed work."""
    return made_program(find_load(), tmp_path_factory.mktemp("program") / "busy.json", 3000)
