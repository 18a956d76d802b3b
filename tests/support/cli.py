"""Runs the command `meshmark` as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

COMMAND = (sys.executable, "-m", "meshmark")
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def command(*arguments: object) -> list[str]:
    """Return the argv of the command."""
    return [*COMMAND, *map(str, arguments)]


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment of this process with `changes`; None removes a variable."""
    env = {**os.environ, **(changes or {})}
    return {name: value for name, value in env.items() if value is not None}


def meshmark(
    *arguments: object, env: Mapping[str, str | None] | None = None, timeout_s: float = 120, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. `env` changes the environment; `more` is passed to `subprocess.run`."""
    return subprocess.run(
        command(*arguments),
        **{**PIPES, **more},
        env=environment(env),
        timeout=timeout_s,
        check=False,
    )


def start(*arguments: object, env: Mapping[str, str | None] | None = None, **more: Any) -> subprocess.Popen[str]:
    """Start the command with both outputs piped.

    `env` changes the environment; `more` is passed to `subprocess.Popen`.
    """
    return subprocess.Popen(command(*arguments), **{**PIPES, **more}, env=environment(env))


def python(
    code: str, *arguments: object, env: Mapping[str, str | None] | None = None, timeout_s: float = 60, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python code that prepares the command or calls parts of it."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        **{**PIPES, **more},
        env=environment(env),
        timeout=timeout_s,
        check=False,
    )
