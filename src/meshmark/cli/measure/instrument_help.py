"""Formats the help of `meshmark measure` like the help of other commands, with the options of the instrument."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from click import HelpFormatter

    from meshmark.describe import Description, Parameter

_COMMON: Final = (
    (
        "--repetitions <int>",
        "fresh processes, which share the budget; their results are pooled, and different levels "
        "are reported as modes  [default: 3; 1 for ranks, or if each would have less than 1 s]",
    ),
    ("--set <key=value>", "override one value of a modelled machine; may be repeated"),
    ("--store <dir>", "store folder [$XDG_DATA_HOME/meshmark/store]"),
    ("--no-store", "store nothing; the run cannot be resumed"),
    ("--resume", "resume the last interrupted run with its original options"),
    ("--json", "print one record per line"),
    ("-h, --help", "Show this message and exit."),
)


def _formatter() -> HelpFormatter:
    from click import HelpFormatter

    return HelpFormatter(width=max(min(shutil.get_terminal_size().columns, 80) - 2, 50))


_HYPHEN: Final = "\ue000"  # stands for a hyphen at which a line may not break


def _whole(text: str) -> str:
    """Return the text with the hyphens of options replaced, so that no line breaks at them."""
    return re.sub(r"--[\w-]+", lambda m: m[0].replace("-", _HYPHEN), text)


def _text(made: HelpFormatter) -> str:
    return made.getvalue().replace(_HYPHEN, "-").rstrip("\n")


def _paragraphs(formatter: HelpFormatter, *texts: str) -> str:
    """Return the texts that are not empty, indented and wrapped."""
    from click import wrap_text

    return "".join(f"\n{wrap_text(_whole(text), formatter.width, '  ', '  ')}\n" for text in texts if text)


def general_help(instruments: Iterable[str]) -> str:
    """Return the help without an instrument."""
    formatter = _formatter()
    formatter.write_usage("meshmark measure", "INSTRUMENT [OPTIONS]", "Usage: ")
    formatter.write_usage("meshmark measure", "[INSTRUMENT] --resume [OPTIONS]", "       ")
    formatter.write(
        _paragraphs(
            formatter,
            "Run one instrument. For its options: meshmark measure INSTRUMENT --help",
            f"Instruments: {', '.join(instruments)}",
            "A program of your own: meshmark measure app --help",
            "A set of programs against a reference machine: meshmark measure composite --help",
            "example: meshmark measure latency --footprint 4KiB..1GiB --pages thp",
        )
    )
    return _text(formatter)


def instrument_help(d: Description) -> str:
    """Return the help of an instrument: its options with defaults, then the options of all instruments."""
    from meshmark.model.instruments import POINTS

    modelled = POINTS[d.name][1] if d.name in POINTS else {}
    model_options = ", ".join(f"--{word.replace('_', '-')}" for word in (*modelled, "seed"))
    on_text = f"which accepts {model_options}" if modelled else "which this instrument does not have"
    example = next((x for x in d.detail.splitlines() if x.startswith("example:")), "")
    example = re.sub(r"mpirun -n (\d+) meshmark-comm (\S+)", r"meshmark measure \2 --ranks \1", example)
    formatter = _formatter()
    formatter.write_usage(f"meshmark measure {d.name}", "[OPTIONS]", "Usage: ")
    formatter.write(
        _paragraphs(
            formatter,
            d.summary[:1].upper() + d.summary[1:] + ".",
            "Without --budget, more points than by default get proportionally more time.",
            example.replace("meshmark-probe", "meshmark measure"),
        )
    )
    with formatter.section(f"Options of {d.name}"):
        # In the native program, --resume takes a file; in `meshmark measure`, it does not.
        entries = [option_entry(p, modelled.get(p.word, "")) for p in d.parameters if p.option != "--resume"]
        formatter.write_dl([(option, _whole(text)) for option, text in entries])
    with formatter.section("Options"):
        on_help = f"host, or a modelled machine (meshmark model list), {on_text}  [default: host]"
        formatter.write_dl([(option, _whole(text)) for option, text in (("--on <machine>", on_help), *_COMMON)])
    return _text(formatter)


def option_entry(p: Parameter, modelled: str = "") -> tuple[str, str]:
    """Return an option and its help. `modelled` is its default on a modelled machine; "" if models lack the option."""
    metavar = "" if p.kind == "flag" else f" <{p.kind.replace('integer', 'int')}>"
    choices = f": {', '.join(p.choices)}" if p.choices else ""
    unit = f" ({p.unit})" if p.unit and p.unit != "1" else ""
    default = p.default or "none" if modelled else p.default
    if modelled and modelled != p.default:
        default += f"; of a model {modelled}"
    text = f"{p.help}{choices}{unit}" + (f"  [default: {default}]" if default else "")
    return p.option + metavar, text
