"""The help of `meshmark measure`, in the form of the other commands; options are those of the instrument."""

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
        "fresh processes, which share the budget; their results are pooled, and levels that differ "
        "are told apart as modes  [default: 3; 1 for ranks, and if each had less than 1 s]",
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


_HYPHEN: Final = "\ue000"  # stands for one at which a line may not break


def _whole(text: str) -> str:
    """The text with options that a line break does not part."""
    return re.sub(r"--[\w-]+", lambda m: m[0].replace("-", _HYPHEN), text)


def _text(made: HelpFormatter) -> str:
    return made.getvalue().replace(_HYPHEN, "-").rstrip("\n")


def _paragraphs(formatter: HelpFormatter, *texts: str) -> str:
    """The texts that are not empty, indented and wrapped."""
    from click import wrap_text

    return "".join(f"\n{wrap_text(_whole(text), formatter.width, '  ', '  ')}\n" for text in texts if text)


def general_help(instruments: Iterable[str]) -> str:
    """The help without an instrument."""
    made = _formatter()
    made.write_usage("meshmark measure", "INSTRUMENT [OPTIONS]", "Usage: ")
    made.write_usage("meshmark measure", "[INSTRUMENT] --resume [OPTIONS]", "       ")
    made.write(
        _paragraphs(
            made,
            "Run one instrument. For its options: meshmark measure INSTRUMENT --help",
            f"Instruments: {', '.join(instruments)}",
            "A program of your own: meshmark measure app --help",
            "A set of programs against a reference machine: meshmark measure composite --help",
            "example: meshmark measure latency --footprint 4KiB..1GiB --pages thp",
        )
    )
    return _text(made)


def instrument_help(d: Description) -> str:
    """The help of an instrument: its options with defaults, then those of every instrument."""
    from meshmark.model.instruments import POINTS

    modelled = POINTS[d.name][1] if d.name in POINTS else {}
    taken = ", ".join(f"--{word.replace('_', '-')}" for word in (*modelled, "seed"))
    on = f"which accepts {taken}" if modelled else "which this instrument does not have"
    example = next((x for x in d.detail.splitlines() if x.startswith("example:")), "")
    example = re.sub(r"mpirun -n (\d+) meshmark-comm (\S+)", r"meshmark measure \2 --ranks \1", example)
    made = _formatter()
    made.write_usage(f"meshmark measure {d.name}", "[OPTIONS]", "Usage: ")
    made.write(
        _paragraphs(
            made,
            d.summary[:1].upper() + d.summary[1:] + ".",
            "Without --budget, more points than by default get proportionally more time.",
            example.replace("meshmark-probe", "meshmark measure"),
        )
    )
    with made.section(f"Options of {d.name}"):
        # --resume takes a file here, but not in `meshmark measure`.
        made.write_dl([_entry(p, modelled.get(p.word, "")) for p in d.parameters if p.option != "--resume"])
    with made.section("Options"):
        about = f"host, or a modelled machine (meshmark model list), {on}  [default: host]"
        made.write_dl([(option, _whole(text)) for option, text in (("--on <machine>", about), *_COMMON)])
    return _text(made)


def _entry(p: Parameter, modelled: str) -> tuple[str, str]:
    """An option and its help; `modelled` is its default on a modelled machine."""
    metavar = "" if p.kind == "flag" else f" <{p.kind.replace('integer', 'int')}>"
    choices = f": {', '.join(p.choices)}" if p.choices else ""
    unit = f" ({p.unit})" if p.unit and p.unit != "1" else ""
    default = p.default or "none" if modelled else p.default
    if modelled and modelled != p.default:
        default += f"; of a model {modelled}"
    text = f"{p.help}{choices}{unit}" + (f"  [default: {default}]" if default else "")
    return p.option + metavar, _whole(text)
