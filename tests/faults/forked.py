"""Runs commands in children of one process that has loaded the program: a start takes milliseconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

# Modules that start threads must not be loaded before a fork.
_SERVER = """
import json, os, signal, sys
import meshmark.cli.app, meshmark.entry, pydantic, numpy
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(asked["cwd"])
        os.environ.update(asked["env"])
        for number, name in enumerate(("in", "out", "err")):
            os.dup2(os.open(asked[name], os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = ["meshmark", *(os.fsdecode(bytes.fromhex(word)) for word in asked["words"])]
        status = 70
        try:
            meshmark.entry.main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 70
        except BaseException:
            import traceback

            traceback.print_exc()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)
    ended = []
    signal.signal(signal.SIGALRM, lambda *_: (ended.append(1), os.killpg(child, signal.SIGKILL)))
    signal.alarm(asked["timeout_s"])
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    code = "hangs" if ended else os.waitstatus_to_exitcode(status)
    os.write(1, (json.dumps(code) + chr(10)).encode())
"""


@dataclass(frozen=True, slots=True)
class Done:
    words: Sequence[str]
    status: int | str
    out: str
    err: str

    def wrong(self) -> str:
        """Return what a user should never see in the outcome; `""` if there is nothing."""
        if self.status not in (0, 1, 2, 77):
            return f"status {self.status}: {self.err[-300:]}"
        for word in ("Traceback", "unexpected ", "terminate called", "Sanitizer"):
            if word in self.err:
                return self.err[-600:]
        errors = [x for x in self.err.splitlines() if ": error: " in x[:40] or ": absent: " in x[:40]]
        if self.status in (1, 2, 77) and len(errors) != 1:
            return f"status {self.status} with {len(errors)} lines that say why: {self.err[-600:]!r}"
        if any(len(line) > 1100 or max(map(len, line.split())) > 110 for line in errors):
            return f"a line of {max(map(len, errors))} characters"
        if self.status == 0 and errors:
            return f"status 0 with an error: {errors[0]}"
        return ""


class Commands:
    """Runs commands; must be used in a `with` statement."""

    def __init__(self, cwd: Path, home: Path) -> None:
        self.cwd = cwd
        self.env = {"XDG_DATA_HOME": str(home), "HOME": str(home), "TMPDIR": str(home)}
        self._talk = tempfile.TemporaryDirectory(prefix="meshmark-faults-")
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *words: str, timeout_s: int = 120, env: Mapping[str, str] | None = None) -> Done:
        out, err = (Path(self._talk.name) / name for name in ("out", "err"))
        request: dict[str, Any] = {
            "words": [os.fsencode(w).hex() for w in words],
            "cwd": str(self.cwd),
            "env": {**self.env, **(env or {})},
            "in": os.devnull,
            "out": str(out),
            "err": str(err),
            "timeout_s": timeout_s,
        }
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        status = json.loads(self._server.stdout.readline())
        read = [p.read_text(encoding="utf-8", errors="replace") if p.exists() else "" for p in (out, err)]
        return Done(words, status, *read)

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, at: TracebackType | None) -> None:
        self._server.kill()
        self._server.wait()
        self._talk.cleanup()
