"""Parses the settings of an experiment, and builds the command lines that apply them.

A setting is one word of parts, separated by ` + `:

    same                          changes nothing
    NAME=VALUE[,NAME=VALUE…]      environment variables; those after the first need upper-case names
    bind:POLICY  slots:N  memory:POLICY  pages:SIZE
                                  options of `meshmark run`
    run:OPTIONS                   the same, as on its command line
    ssh:HOST                      runs the command on another machine
    shell:COMMAND                 a shell command before each run of the setting, not timed; always the last part
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from meshmark.errors import UsageError, near, quoted
from meshmark.place import native
from meshmark.values.numbers import whole
from meshmark.values.secrets import reveal_text, reveal_variables, reveal_words

SAME: Final = "same"
SHELL: Final = "shell:"
_OPTIONS: Final = {"bind": "--bind", "slots": "-n", "memory": "--memory", "pages": "--pages"}
KINDS: Final = (*_OPTIONS, "run", "ssh", "shell")
FORMS: Final = f"{SAME}, NAME=VALUE, {', '.join(f'{kind}:…' for kind in KINDS)}"
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*=")
_NEXT_VARIABLE: Final = re.compile(r",(?=[A-Z_][A-Z0-9_]*=)")
# The values of options of `meshmark run` that change nothing.
AS_IT_IS: Final = {"bind": "none", "memory": "default", "pages": "default"}
_AS_IT_IS: Final = tuple(word for name, usual in AS_IT_IS.items() for word in (f"--{name}", usual))


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of an experiment or of a rating.

    Attributes:
        text: The text that the user wrote.
        options: Options of `meshmark run`; empty if `meshmark run` is not needed.
        shell: Shell command before each run; "" if there is no such command.
        host: Destination of ssh; "" for this machine.
    """

    text: str
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    shell: str = ""
    host: str = ""

    def argv(self, command: Sequence[str], through_run: bool, more: Sequence[str] = ()) -> list[str]:
        """Return the command line that runs the command under this setting.

        Args:
            command: The command and its arguments.
            through_run: Start the command by `meshmark run`, even if this setting needs no option of it. Both settings
                start the command in the same way, so that they do not differ in the time to start it.
            more: More options of `meshmark run`, if it starts the command on this machine.
        """
        options = [*(self.options or _AS_IT_IS), *([] if self.host else more)]
        run_words = ["run", *options, "--"] if through_run else []
        if not self.host:
            return [*([str(native.find_place())] if run_words else []), *run_words, *command]
        variables = reveal_variables(self.environment)
        env_words = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
        command = reveal_words(command)
        remote_argv = [*env_words, *(["meshmark"] if run_words else []), *run_words, *command]
        return [*_ssh(self.host), shlex.join(remote_argv)]

    def shell_argv(self) -> list[str]:
        """Return the command line of `shell`."""
        return [*_ssh(self.host), reveal_text(self.shell)] if self.host else ["sh", "-c", reveal_text(self.shell)]


def _ssh(host: str) -> list[str]:
    return ["ssh", "-o", "BatchMode=yes", host, "--"]


def parse(name: str, text: str) -> Setting:
    """Parse a setting.

    Args:
        name: Name of the setting in errors: `A` or `B`.
        text: The setting as typed: parts that are separated by ` + `, the last of which may be a shell command.

    Raises:
        UsageError: A part is unknown or invalid.
    """
    environment: dict[str, str] = {}
    options: list[str] = []
    shell = host = ""
    rest = text.strip()
    while rest:
        if rest.startswith(SHELL):  # extends to the end, because shell commands can contain any separator
            part, rest = rest, ""
        else:
            part, _, rest = (p.strip() for p in rest.partition(" + "))
        kind, _, value = part.partition(":")
        if part == SAME:
            continue
        if _VARIABLE.match(part):
            for assignment in _NEXT_VARIABLE.split(part):
                variable, _, content = assignment.partition("=")
                environment[variable] = content
        elif kind not in KINDS:
            raise UsageError(f"{name}: found '{quoted(part)}'; allowed: {FORMS}", near(kind, {SAME, *KINDS}))
        elif not value.strip():
            raise UsageError(f"{name}: found '{quoted(part)}', a value after the colon is required")
        elif kind == "shell":
            shell = value.strip()
        elif kind == "ssh":
            host = _host(name, value)
        else:
            options += _options(name, kind, value)
    if not text.strip():
        raise UsageError(f"{name}: found ''; allowed: {FORMS}")
    if "\0" in text:
        raise UsageError(f"{name}: found a NUL character, which no setting can contain")
    return Setting(text.strip(), environment, tuple(options), shell, host)


def both(a: str, b: str) -> tuple[Setting, Setting]:
    """Return the two settings of an experiment.

    Raises:
        UsageError: A setting is invalid, or only one has a shell command, whose effect would last in runs of the other.
    """
    settings = parse("A", a), parse("B", b)
    check_shells(dict(zip("AB", settings, strict=True)))
    return settings


def check_shells(settings: Mapping[str, Setting]) -> None:
    """Check that all settings or none have a shell command, whose effect would last in runs of the others.

    Args:
        settings: The settings by their names in errors.

    Raises:
        UsageError: Only some settings have a shell command.
    """
    one = next((name for name, setting in settings.items() if setting.shell), None)
    other = next((name for name, setting in settings.items() if not setting.shell), None)
    if one is not None and other is not None:
        raise UsageError(
            f"{one}: found a shell command, but none in {other}; runs of {other} would keep its effect",
            f"add shell:COMMAND to {other}, which undoes it",
        )


def _host(name: str, value: str) -> str:
    """Return a destination of ssh after checking that ssh cannot take it for an option."""
    if not re.fullmatch(r"[^\s-]\S*", value):
        raise UsageError(f"{name}: ssh: found '{quoted(value)}'; allowed: [USER@]HOST")
    return value


def _options(name: str, kind: str, value: str) -> list[str]:
    if kind == "run":
        try:
            return shlex.split(value)
        except ValueError as error:
            raise UsageError(
                f"{name}: run: found '{quoted(value)}', which is not a valid command line: {error}"
            ) from None
    words = native.vocabulary()
    allowed: Mapping[str, Collection[str]] = {"bind": words.policies, "memory": words.memory, "pages": words.pages}
    word = re.split("[=,]", value)[0]
    if kind == "slots" and (whole(value) or 0) < 1:
        raise UsageError(f"{name}: slots: found '{quoted(value)}', a number from 1 is required")
    is_list = kind == "bind" and word[:1].isdigit()  # a list of CPUs
    if kind in allowed and not is_list and word not in allowed[kind]:
        raise UsageError(f"{name}: {kind}: found '{quoted(word)}'; allowed: {', '.join(allowed[kind])}")
    return [_OPTIONS[kind], value]
