"""Makes the help of all commands uniform: complete summaries, and types of options in one style."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

_WHOLE: Final = 10_000  # limit in characters that no summary exceeds
_TYPE: Final = re.compile(r" (<[^<>]+>|\S+)$")
# Name of a type in the help of the parser → its name in the help of instruments and of native programs.
_NAMES: Final = {
    "str": "text",
    "list[str]": "text",
    "list[path]": "path",
    "int range": "int",
    "float": "real",
    "float range": "real",
    "n": "int",
}


def with_uniform_help(command: Any) -> Any:
    """Make the help of a command (of click, or of typer's own copy of it) uniform, and return the same command.

    Summaries in lists of commands are not cut. Types are lower-case words in angle brackets, such as `<text>`.
    """
    command.get_short_help_str = partial(_summary, command.get_short_help_str)
    for parameter in command.params:
        parameter.get_help_record = partial(_record, parameter, parameter.get_help_record)
    for subcommand in getattr(command, "commands", {}).values():
        with_uniform_help(subcommand)
    return command


def _summary(short_help: Any, _: int = 0) -> str:
    text: str = short_help(_WHOLE)
    return text


def _record(parameter: Any, help_record: Any, context: Any) -> tuple[str, str] | None:
    record: tuple[str, str] | None = help_record(context)
    if record is None or getattr(parameter, "is_flag", False):
        return record
    return _TYPE.sub(lambda match: f" <{_name(match[1])}>", record[0]), record[1]


def _name(shown: str) -> str:
    word = shown.strip("<>").lower()
    return _NAMES.get(word, word)
