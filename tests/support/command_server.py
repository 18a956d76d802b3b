"""Runs the command `meshmark` in children of a process that has imported its modules, which saves most of its start.

Such a child has the arguments, the environment, the folder and the streams of a new process, and begins at the same
function. What depends on the start of the interpreter (`PYTHON…`, `LD_…`, the locale, limits) needs a new process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from threading import Lock, Thread
from typing import Any, NoReturn

_PRELOADED = ("arro3.core", "duckdb", "scipy.stats", "zoneinfo", "typer.main")
_PACKAGES = ("cli", "compare", "machine", "measure", "model", "store", "views")  # of Meshmark, that most commands use
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # forks are safe then
_FREE = ("XDG_", "MESHMARK_", "HOME", "PATH", "PWD", "TMPDIR", "PYTEST_CURRENT_TEST")  # read when a command runs
_MAX_REQUEST = 1 << 20


def _fixed(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that modules may read while they are imported."""
    return {name: value for name, value in env.items() if not name.startswith(_FREE)}


class CommandServer:
    """A process that forks a child for each command."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.fixed = _fixed(os.environ)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(other.fileno())],
                pass_fds=[other.fileno()],
                env={**os.environ, **_ONE_THREAD},
            )
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def run(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: str, given: bytes | None, timeout_s: float
    ) -> tuple[int, bytes, bytes]:
        """Run a command to its end; return its status, standard output and standard error.

        Raises:
            subprocess.TimeoutExpired: It takes longer than `timeout_s`.
        """
        reply, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pipes = [os.pipe(), os.pipe(), os.pipe()]
        inputs = pipes[0][0] if given is not None else 0
        try:
            request = json.dumps([list(arguments), dict(env), cwd]).encode()
            descriptors = [other.fileno(), inputs, pipes[1][1], pipes[2][1]]
            with self._lock:
                socket.send_fds(self._socket, [request], descriptors)
        finally:
            other.close()
            for descriptor in (pipes[0][0], pipes[1][1], pipes[2][1]):
                os.close(descriptor)
        outputs: list[bytes] = [b"", b""]

        def read(index: int) -> None:
            with os.fdopen(pipes[index + 1][0], "rb") as file:
                outputs[index] = file.read()

        readers = [Thread(target=read, args=(i,)) for i in range(2)]
        for reader in readers:
            reader.start()
        with reply:
            pid = int(reply.recv(64))
            with os.fdopen(pipes[0][1], "wb") as file, contextlib.suppress(BrokenPipeError):
                file.write(given or b"")
            reply.settimeout(timeout_s)
            try:
                status = int(reply.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
        for reader in readers:
            reader.join()
        return status, outputs[0], outputs[1]


@cache
def command_server() -> CommandServer:
    """Return the server of this test process; it ends with it."""
    return CommandServer()


def can_serve(env: Mapping[str, str], more: Mapping[str, Any]) -> bool:
    """Return whether a command with this environment and these arguments of `subprocess.run` needs no new process."""
    return set(more) <= {"cwd", "input", "text"} and _fixed(env) == command_server().fixed


def _serve(requests: socket.socket) -> None:
    waiting = selectors.DefaultSelector()
    waiting.register(requests, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is requests:
                message, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST, 4)
                if not message:
                    return  # the test process has ended
                reply = socket.socket(fileno=descriptors[0])
                pid = os.fork()
                if pid == 0:
                    waiting.close()
                    requests.close()
                    reply.close()
                    _run(descriptors[1:], *json.loads(message))
                for descriptor in descriptors[1:]:
                    os.close(descriptor)
                reply.send(str(pid).encode())
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply))
            else:
                pid, reply = key.data
                waiting.unregister(key.fileobj)
                os.close(key.fd)
                with reply, contextlib.suppress(OSError):  # nobody waits for a command that took too long
                    reply.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _run(descriptors: Sequence[int], arguments: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    status = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(env)
        os.chdir(cwd)
        sys.argv = ["meshmark", *arguments]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        assert isinstance(sys.stderr, io.TextIOWrapper)
        sys.stderr.reconfigure(line_buffering=True, errors="backslashreplace")
        from meshmark.entry import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    for module in _PRELOADED:
        import_module(module)
    for package in _PACKAGES:
        for info in walk_packages(import_module(f"meshmark.{package}").__path__, f"meshmark.{package}."):
            import_module(info.name)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    _serve(socket.socket(fileno=int(sys.argv[1])))
