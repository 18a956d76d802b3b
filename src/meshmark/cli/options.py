"""Defines options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from meshmark.cli.completion import instruments
from meshmark.errors import UsageError, quoted
from meshmark.values.numbers import decimal, whole


def with_strict_values(command: Any) -> Any:
    """Make the options of a command and of its subcommands reject values that Python accepts but users do not mean.

    These are digits other than ASCII digits, underscores, numbers that are not finite, and empty texts.

    Args:
        command: A command of click, or of typer's own copy of it.

    Returns:
        The same command.
    """
    for parameter in command.params:
        parameter.process_value = partial(_processed, parameter, parameter.process_value)
    for subcommand in getattr(command, "commands", {}).values():
        with_strict_values(subcommand)
    return command


def _processed(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    _refuse_empty(parameter, context, value)
    result = process(context, value)
    texts, numbers = (x if isinstance(x, list | tuple) else [x] for x in (value, result))
    for text, number in zip(texts, numbers, strict=False):
        if isinstance(text, str) and isinstance(number, int | float) and not isinstance(number, bool):
            parse, allowed = (whole, "integers") if isinstance(number, int) else (decimal, "finite numbers")
            if parse(text) is None and _is_number_of_python(text):  # other texts have a parser, such as 1s
                raise UsageError(f"{parameter.opts[0]}: found '{quoted(text)}'; allowed: {allowed} in ASCII digits")
    return result


def _refuse_empty(parameter: Any, context: Any, value: Any) -> None:
    """Reject an empty value.

    It often results from an unset shell variable, and would be taken to mean "all" or "this folder". Words of a command
    may be empty.
    """
    texts = value if isinstance(value, list | tuple) else [value]
    is_option = parameter.param_type_name == "option"
    if "" in texts and (is_option or parameter.nargs == 1) and given(context, parameter.name):
        name = parameter.opts[0] if is_option else (parameter.metavar or parameter.name).strip("[]")
        raise UsageError(f"{name}: found no value, one is required")


def _is_number_of_python(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def given(context: typer.Context, name: str) -> bool:
    """Return whether the command line contains this parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_with_resume(context: typer.Context, *allowed: str) -> None:
    """Raise UsageError if the command line contains an option that a resumed run already has.

    Args:
        context: Context of the command.
        allowed: Parameters that are allowed with --resume.
    """
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in ("resume", *allowed) and given(context, name):
            raise UsageError(f"{parameter.opts[0]}: found with --resume; the original value applies")


def share(name: str, text: str) -> float:
    """Return a share in percent, such as `5%`, as a number.

    Raises:
        UsageError: The text is not a share between 0 and 1000 %.
    """
    percent = decimal(text.removesuffix("%"))
    if not text.endswith("%") or percent is None or not 0 <= percent <= 1000:
        raise UsageError(f"{name}: found '{quoted(text)}', a share from 0% to 1000% is required")
    return percent / 100


def named_values(option: str, words: Sequence[str], form: str) -> dict[str, str]:
    """Return the values, by name, of an option that may be repeated.

    Args:
        option: Name of the option in error messages.
        words: Its values as typed.
        form: The allowed form in error messages: `NAME=VALUE, such as size=1000`.

    Raises:
        UsageError: A word has no name or no value.
    """
    value_by_name: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise UsageError(f"{option}: found '{quoted(word)}'; allowed: {form}")
        value_by_name[name] = value
    return value_by_name


def shipped_applications() -> list[str]:
    """Return the names of application files, for completion."""
    from meshmark.applications.application import shipped

    return list(shipped())


def existing_folder(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Callback of an option that names a folder to read. The default folder may be missing; a named folder must exist.

    Raises:
        UsageError: The folder does not exist.
    """
    if value is not None:
        must_exist(param.opts[0], value)
    return value


def must_exist(option: str, folder: Path) -> None:
    """Raise UsageError if the folder that an option names does not exist."""
    if not os.path.exists(folder):  # noqa: PTH110 (which raises for long names)
        raise UsageError(f"{option}: {quoted(folder)}: No such file or directory")


ApplicationOption = Annotated[
    str,
    typer.Option(
        "--app",
        help="application file, or a name that meshmark list applications prints, instead of a command",
        metavar="FILE",
        autocompletion=shipped_applications,
        show_default=False,
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="override one value of a modelled machine: table.key=value; may be repeated", show_default=False
    ),
]
InstrumentOption = Annotated[str, typer.Option("--instrument", help="only this instrument", autocompletion=instruments)]
MetricOption = Annotated[str, typer.Option("--metric", help="only this metric")]
JsonOption = Annotated[bool, typer.Option("--json", help="print one JSON object per line")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="print Markdown, for a comment in a code review")]
_STORE: Final[dict[str, Any]] = {
    "help": "store folder [$XDG_DATA_HOME/meshmark/store]",
    "show_default": False,
    "file_okay": False,
}
StoreOption = Annotated[Path | None, typer.Option("--store", **_STORE)]
StoreToReadOption = Annotated[Path | None, typer.Option("--store", callback=existing_folder, **_STORE)]
NoStoreOption = Annotated[bool, typer.Option("--no-store", help="do not store the records")]
RunSeedOption = Annotated[
    int | None, typer.Option("--seed", help="seed of the order of runs [random]", show_default=False)
]
RunResumeOption = Annotated[
    str, typer.Option("--resume", help="resume this run, with its budget once more", metavar="RUN", show_default=False)
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="read /proc and /sys of a recorded machine from this folder",
        exists=True,
        file_okay=False,
        show_default=False,
    ),
]


def in_folder(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Callback of an option that names a file to write; it rejects a path that cannot be written before work begins.

    The folder of the file must exist, because a mistyped folder must not be created.

    Raises:
        UsageError: The folder does not exist, or the file cannot be written.
    """
    if value is None:
        return None
    if not os.path.isdir(value.parent):  # noqa: PTH112 (which raises for long names)
        raise UsageError(f"{param.opts[0]}: found no folder {quoted(value.parent)}", f"mkdir -p {value.parent}")
    return writable(param, value)


def writable(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Callback of an option that names a file to write. It creates missing folders.

    Raises:
        UsageError: The file cannot be written.
    """
    from meshmark.store.files import check_writable

    if value is not None:
        check_writable(param.opts[0], value)
    return value


def time_option(name: str, text: str, low: float = 0.0, high: float = float("inf"), default: str = "") -> Any:
    """Return an option whose value is a time (`500ms`, `10s`, `5m`; seconds without a unit), converted to seconds.

    Args:
        name: Name of the option.
        text: Help text.
        low: Minimum in s.
        high: Maximum in s.
        default: Default in the form of the help; the default of the parameter is a number in s.
    """

    def parse(value: str | float) -> float:
        from meshmark.values.grammar import seconds

        return value if isinstance(value, float) else seconds(name, value, low, high)

    help_text = f"{text} [{default}]" if default else text
    return typer.Option(name, parser=parse, metavar="TIME", help=help_text, show_default=False)


def check_one_form(markdown: bool, json: bool) -> None:
    """Raise UsageError if two forms of output are requested."""
    if markdown and json:
        raise UsageError("--markdown: found with --json; allowed without it")
