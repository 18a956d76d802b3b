"""Runs the command `meshmark` as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.command_server import can_serve, command_server

COMMAND = (sys.executable, "-m", "meshmark")
PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def command(*arguments: object) -> list[str]:
    """Return the argv of the command."""
    return [*COMMAND, *map(str, arguments)]


def environment(changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return the environment of this process with `changes`; None removes a variable."""
    env = {**os.environ, **(changes or {})}
    return {name: value for name, value in env.items() if value is not None}


def _decoded(output: bytes) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")  # as `subprocess` does


def meshmark(
    *arguments: object, env: Mapping[str, str | None] | None = None, timeout_s: float = 120, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end. `env` changes the environment; `more` is passed to `subprocess.run`."""
    variables = environment(env)
    if can_serve(variables, more):
        argv, cwd = [str(a) for a in arguments], str(more.get("cwd") or Path.cwd())
        given, is_text = more.get("input"), more.get("text", True)
        status, *outputs = command_server().run(
            argv, variables, cwd, given.encode() if isinstance(given, str) else given, timeout_s
        )
        decoded = [_decoded(output) if is_text else output for output in outputs]
        return subprocess.CompletedProcess(command(*argv), status, *decoded)
    return subprocess.run(
        command(*arguments),
        **{**PIPES, **more},
        env=variables,
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
