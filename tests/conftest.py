"""What all tests share: they neither read nor write the user's home, and have signals as they are by default."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# `make test` tries the same examples every time; `make fuzz` new ones, and what it finds becomes an @example. How long
# an example takes says nothing on a busy machine.
settings.register_profile(
    "any load",
    derandomize=not os.environ.get("MESHMARK_FUZZ"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any load")


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An empty one, also for the commands that tests start: a store, calibration data and configuration change them."""
    home = tmp_path_factory.mktemp("home")
    os.environ["HOME"] = str(home)
    for name in ("DATA", "CONFIG", "STATE", "CACHE"):
        os.environ[f"XDG_{name}_HOME"] = str(home / name.lower())


@pytest.fixture(scope="session", autouse=True)
def _default_signals() -> None:
    """`nohup make test &` ignores two of them, and every program that a test starts would inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


# `make test-fast` runs what needs no other process: a test that starts one is skipped as soon as it does.
_CHILDREN = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"}
_running = [False]


def _skip_children(event: str, _: object) -> None:
    if _running[0] and event in _CHILDREN:
        pytest.skip("starts a process")


if os.environ.get("MESHMARK_FAST"):
    sys.addaudithook(_skip_children)

    def pytest_sessionstart() -> None:
        """Read the descriptions of the instruments, which many tests use and a process prints once."""
        from meshmark.describe import descriptions

        descriptions()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol() -> Generator[None, object, object]:
        _running[0] = True
        try:
            return (yield)
        finally:
            _running[0] = False
