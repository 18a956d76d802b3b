"""`meshmark model init`: writes an initial machine file from a template and a few numbers of a machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import counted, print_rows, say
from meshmark.cli.init import check_new, say_next, write_template
from meshmark.cli.options import JsonOption
from meshmark.errors import UsageError, near, quoted
from meshmark.model.fitting.key_numbers import (
    QUANTITIES,
    SOCKETS,
    STORES,
    KeyNumber,
    KeyNumbers,
    check,
    conflicts,
    required,
    show,
)

if TYPE_CHECKING:
    from meshmark.model.fitting.from_numbers import FittedNumber, KeyNumberFit

_FILE: Final = "machine.toml"
_NEXT: Final = "meshmark model show FILE; meshmark measure latency --on FILE"
_NEXT_OF_TEMPLATE: Final = (
    "meshmark measure latency --on FILE --footprint 4GiB; meshmark measure loaded --on FILE --threads all"
)
_METAVARS: Final = {"s": "TIME", "B/s": "RATE", "Hz": "FREQUENCY", "B": "SIZE", "1": "N"}


def number_option(name: str) -> Any:
    """Return the option for one of the numbers of a machine."""
    quantity = QUANTITIES[name]
    return typer.Option(f"--{name}", help=quantity.help, metavar=_METAVARS[quantity.unit], show_default=False)


NumberOption = str | None


def register(app: typer.Typer) -> None:
    """Add the command `model init`."""
    app.command("init")(init)


def init(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEMPLATE] [FILE]",
            help=f"{' or '.join(SOCKETS)}; file to write [{_FILE}, or TEMPLATE.toml]",
            autocompletion=lambda: list(SOCKETS),
            show_default=False,
        ),
    ] = None,
    cores: Annotated[NumberOption, number_option("cores")] = None,
    idle_local: Annotated[NumberOption, number_option("idle-local")] = None,
    idle_remote: Annotated[NumberOption, number_option("idle-remote")] = None,
    read: Annotated[NumberOption, number_option("read")] = None,
    triad: Annotated[NumberOption, number_option("triad")] = None,
    store: Annotated[
        str, typer.Option("--store", help="stores of --triad: ordinary (write-allocate), or streaming (non-temporal)")
    ] = STORES[0],
    core_read: Annotated[NumberOption, number_option("core-read")] = None,
    link: Annotated[NumberOption, number_option("link")] = None,
    transfer: Annotated[NumberOption, number_option("transfer")] = None,
    loaded: Annotated[NumberOption, number_option("loaded")] = None,
    clock: Annotated[NumberOption, number_option("clock")] = None,
    l3: Annotated[NumberOption, number_option("l3")] = None,
    force: Annotated[bool, typer.Option("--force", help="overwrite the file")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a machine file with comments as a starting point. A template is fitted to numbers of one or two sockets.

    example: meshmark model init two-socket --cores 128 --idle-local 110ns --idle-remote 190ns --read 420GB/s
    """
    texts = {
        "cores": cores,
        "idle-local": idle_local,
        "idle-remote": idle_remote,
        "read": read,
        "triad": triad,
        "core-read": core_read,
        "link": link,
        "transfer": transfer,
        "loaded": loaded,
        "clock": clock,
        "l3": l3,
    }
    number_texts = {name: text for name, text in texts.items() if text is not None}
    template, file = _template_and_file(words or [])
    if not template:
        if number_texts or store != STORES[0]:
            option = next(iter(number_texts), "store")
            raise UsageError(f"--{option}: found without a template; allowed: with {' or '.join(SOCKETS)}")
        check_new(file, force)
        write_template("meshmark.model", file, _NEXT)
        return
    from meshmark.store.files import check_writable

    numbers = key_numbers(template, number_texts, store)
    check_new(file, force)
    check_writable("file", file)
    _write(numbers, file, as_json)


def _template_and_file(words: list[str]) -> tuple[str, Path]:
    """Return the template ("" without one) and the file to write."""
    if len(words) > 2:
        raise UsageError(f"init: found {len(words)} words; allowed: a template and a file")
    if words and words[0] in SOCKETS:
        return words[0], Path(words[1] if len(words) > 1 else f"{words[0]}.toml")
    suggestion = near(words[0], SOCKETS) if words and not re.search(r"[./]", words[0]) else ""
    if len(words) == 2 or suggestion:
        raise UsageError(f"template: found '{quoted(words[0])}'; allowed: {', '.join(SOCKETS)}", suggestion)
    return "", Path(words[0] if words else _FILE)


def key_numbers(template: str, texts: Mapping[str, str], store: str) -> KeyNumbers:
    """Return the numbers for a template, parsed and checked.

    Raises:
        UsageError: A number is missing, invalid or impossible.
    """
    if store not in STORES:
        raise UsageError(f"--store: found '{quoted(store)}'; allowed: {', '.join(STORES)}")
    sockets = SOCKETS[template]
    if missing := [name for name in required(sockets) if name not in texts]:
        required_options = ", ".join(f"--{name}" for name in required(sockets))
        raise UsageError(
            f"{template}: found no --{missing[0]}; needed: {required_options}", "meshmark model init --help"
        )
    number_by_name = {name: KeyNumber(parsed(name, text), f"--{name}") for name, text in texts.items()}
    numbers = KeyNumbers(sockets, number_by_name, store)
    check(numbers)
    return numbers


def parsed(name: str, text: str) -> float:
    """Return the number in the text of an option, in SI units.

    Raises:
        UsageError: The text is not a number with the unit of the option, or the number is out of range.
    """
    return _PARSERS[QUANTITIES[name].unit](f"--{name}", text)


def _time(field: str, text: str) -> float:
    from meshmark.values.grammar import seconds

    if re.fullmatch(r"[0-9.]+", text):
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: a time with its unit, such as 110ns")
    return seconds(field, text)


def _rate(field: str, text: str) -> float:
    from meshmark.values.grammar import size

    amount = text.removesuffix("/s")
    if amount == text or not amount.endswith("B"):
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: a rate such as 420GB/s or 1.2TB/s")
    return size(field, amount)


def _size(field: str, text: str) -> float:
    from meshmark.values.grammar import size

    return size(field, text)


def _frequency(field: str, text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)([MG])Hz", text)
    if match is None:
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: a frequency such as 2.4GHz or 800MHz")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]]


def _count(field: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise UsageError(f"{field}: found '{quoted(text)}'; allowed: a whole number")
    return int(text)


_PARSERS: Final[Mapping[str, Callable[[str, str], float]]] = {
    "s": _time,
    "B/s": _rate,
    "Hz": _frequency,
    "B": _size,
    "1": _count,
}


def _write(numbers: KeyNumbers, file: Path, as_json: bool) -> None:
    """Fit the numbers, write the machine file, and print the value of the model for each number."""
    import tempfile

    from meshmark.model.fitting.from_numbers import fit_numbers
    from meshmark.store.files import write_file

    with tempfile.TemporaryDirectory(prefix="meshmark-") as folder, counted("fit") as progress:
        fit = fit_numbers(numbers, file.stem or "machine", Path(folder), progress)
    write_file(file, fit.text.encode())
    print_outcomes(fit, conflicts(numbers), as_json)
    say(f"machine file: {file}")
    say_next(file, _NEXT_OF_TEMPLATE)


def print_outcomes(fit: KeyNumberFit, doubts: Mapping[str, str], as_json: bool, prefix: str = "--") -> None:
    """Print the numbers of a machine and of its model, then warnings about numbers that contradict each other.

    Args:
        fit: Fitted machine with the outcome of each number.
        doubts: Reasons by name of the numbers that contradict others.
        as_json: Whether the numbers are printed as JSON, one per line.
        prefix: Text before the name of a number in warnings.
    """
    print_rows([_json(o) if as_json else _row(o) for o in fit.outcomes], as_json)
    for o in fit.outcomes:
        if o.given is not None and (reason := doubts.get(o.name) or o.warning):
            model_text = f"; the model gives {show(o.name, o.model)}" if o.warning else ""
            say(f"warning: {prefix}{o.name} {show(o.name, o.given)}: {reason}{model_text}")


def error_text(error: float) -> str:
    """Return a relative error as text, such as `+0.3 %`; an error that rounds to 0 has no minus sign."""
    return f"{round(100 * error, 1) + 0.0:+.1f} %"


def _row(o: FittedNumber) -> dict[str, str]:
    return {
        "number": o.name,
        "given": "-" if o.given is None else show(o.name, o.given),
        "model": show(o.name, o.model),
        "error": "-" if o.error is None else error_text(o.error),
        "how": o.how,
    }


def _json(o: FittedNumber) -> dict[str, Any]:
    return {
        "number": o.name,
        "unit": o.unit,
        "given": o.given,
        "model": o.model,
        "error": o.error,
        "how": o.how,
        "warning": o.warning,
    }
