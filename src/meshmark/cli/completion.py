"""Shell completion of commands, options, instruments, machines, policies and other names.

The shell runs `meshmark` for every suggestion, so each function imports only what it needs. A function that fails
suggests nothing and prints nothing into the line that the user types.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
import typer.completion

from meshmark.cli.console import say
from meshmark.errors import MeshmarkError, UsageError

if TYPE_CHECKING:
    from meshmark.describe import Parameter
    from meshmark.fleet.folder import Fleet

VARIABLE: Final = "_MESHMARK_COMPLETE"  # set by the shell
# Where each shell looks for the script.
SHELLS: Final = {
    "bash": "~/.local/share/bash-completion/completions/meshmark",
    "zsh": "~/.zfunc/_meshmark (and fpath+=~/.zfunc before compinit in ~/.zshrc)",
    "fish": "~/.config/fish/completions/meshmark.fish",
}

Suggestions = list[tuple[str, str]]  # word and help
Suggest = Callable[[str], Suggestions]
SuggestInContext = Callable[[typer.Context, str], Suggestions]

# Typer does not declare the names that it exports.
_completion: Any = typer.completion
_core: Any = typer.core

_completion.completion_init()


def register(app: typer.Typer) -> None:
    """Add the command `completion`."""
    app.command()(completion)


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish", autocompletion=lambda: list(SHELLS))],
) -> None:
    """Print the completion script of a shell.

    example: meshmark completion bash > ~/.local/share/bash-completion/completions/meshmark
    """
    if shell not in SHELLS:
        raise UsageError(f"shell: found '{shell}'; allowed: {', '.join(SHELLS)}")
    print(_completion.get_completion_script(prog_name="meshmark", complete_var=VARIABLE, shell=shell))
    say(f"note: {shell} loads it from {SHELLS[shell]}")


def beginning(words: Mapping[str, str] | Iterable[str], incomplete: str) -> Suggestions:
    """Return the words that begin with the typed text."""
    helps = words if isinstance(words, Mapping) else dict.fromkeys(words, "")
    return [(word, text) for word, text in helps.items() if word.startswith(incomplete)]


def _quietly(found: Callable[[], Mapping[str, str] | Iterable[str]]) -> Suggest:
    def suggest(incomplete: str) -> Suggestions:
        try:
            return beginning(found(), incomplete)
        except (MeshmarkError, OSError):
            return []

    return suggest


def _instruments() -> Mapping[str, str]:
    from meshmark.describe import descriptions

    return {name: d.summary for name, d in descriptions().items()}


def _machines() -> Iterable[str]:
    from meshmark.model.machine import machine_names

    return machine_names()


def _machines_and_host() -> Iterable[str]:
    return ["host", *_machines()]


def _workloads() -> Iterable[str]:
    from meshmark.model.instruments import POINTS
    from meshmark.model.patterns import PATTERNS

    return [*PATTERNS, *POINTS]


def _policies() -> Mapping[str, str]:
    from meshmark.place.native import vocabulary

    return {name.partition("=")[0]: text for name, text in vocabulary().policies.items()}


def _runs() -> Iterable[str]:
    from meshmark.values.paths import data_home

    return ["latest", *sorted(p.parent.name for p in (data_home() / "runs").glob("*/run.json"))]  # surveys


def _stored() -> Mapping[str, str]:
    """Return the runs of the default store, with their instruments."""
    from meshmark.store.store import Store
    from meshmark.values.paths import default_store

    folder = default_store()
    return {str(r["run"]): ", ".join(r["instruments"]) for r in Store(folder).runs()} if folder.is_dir() else {}


def _compared() -> Iterable[str]:
    """Return all names that can be compared: machines and runs of the default store, models, and publications."""
    from meshmark.machine.published.papers import PAPER, papers
    from meshmark.model.machine import machine_names
    from meshmark.store.store import Store
    from meshmark.values.paths import default_store

    folder = default_store()
    rows = Store(folder).runs() if folder.is_dir() else []
    stored = [str(row[k]) for k in ("machine", "run") for row in rows]
    return dict.fromkeys(["host", "latest", *stored, *machine_names(), *(PAPER + p.name for p in papers())])


def _claim_ids() -> Mapping[str, str]:
    from meshmark.validation.claims.catalogue import claims

    return {c.id: c.statement for c in claims()}


def _claim_themes() -> Iterable[str]:
    from meshmark.validation.claims.catalogue import themes

    return themes()


def _claim_machines() -> Iterable[str]:
    return ["host", "guest", "computed", *_machines()]


instruments = _quietly(_instruments)
claim_ids = _quietly(_claim_ids)
claim_machines = _quietly(_claim_machines)
claim_themes = _quietly(_claim_themes)
machines = _quietly(_machines)
machines_and_host = _quietly(_machines_and_host)
workloads = _quietly(_workloads)
policies = _quietly(_policies)
runs = _quietly(_runs)
stored = _quietly(_stored)
compared = _quietly(_compared)


def _engines() -> Iterable[str]:
    from meshmark.fleet.site import ENGINES

    return ENGINES


engines = _quietly(_engines)


def _of_fleet(names: Callable[[Fleet], Mapping[str, str] | Iterable[str]]) -> SuggestInContext:
    """Return a function that suggests names in the folder that was typed as FOLDER, also in comma-separated lists."""

    def suggest(ctx: typer.Context, incomplete: str) -> Suggestions:
        from meshmark.fleet.folder import Fleet

        try:
            # While the value of an option is missing, arguments are not assigned yet.
            folder = ctx.params.get("folder") or next(iter(ctx.args), "")
            return _of_list(names(Fleet(Path(folder))), incomplete) if folder else []
        except (MeshmarkError, OSError):
            return []

    return suggest


def _campaigns(fleet: Fleet) -> Iterable[str]:
    return ["latest", *reversed(fleet.campaigns())]


def _nodes(fleet: Fleet) -> Iterable[str]:
    """Return the nodes of the newest campaign."""
    from meshmark.fleet.campaigns.campaign import Campaign

    names = fleet.campaigns()
    return Campaign.load(fleet, names[-1]).members() if names else []


def _cases(fleet: Fleet) -> Mapping[str, str]:
    """Return the nodes with open cases, and the reason of each case."""
    from meshmark.fleet.actions import reason
    from meshmark.fleet.cases import CasesState
    from meshmark.fleet.site import load_site

    cases = CasesState.load(fleet, load_site(fleet.site).cluster).open
    return {name: reason(case).removeprefix("meshmark: ") for name, case in cases.items()}


campaigns = _of_fleet(_campaigns)
nodes = _of_fleet(_nodes)
cases = _of_fleet(_cases)


class InstrumentCommand(typer.core.TyperCommand):
    """`meshmark measure`, which completes the options in the description of the instrument."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions of the options and choices of the instrument that was typed, and of all other words."""
        items = super().shell_complete(ctx, incomplete)
        parameters = _parameters(ctx.params.get("instrument"))
        last_word = ctx.args[-1] if ctx.args else ""
        if last_word in parameters and parameters[last_word].kind != "flag" and not incomplete.startswith("-"):
            suggestions = _of_list(parameters[last_word].choices, incomplete)
        else:
            suggestions = beginning({name: p.help for name, p in parameters.items()}, incomplete)
        values = {item.value for item in items}
        return [*items, *(_core.CompletionItem(word, help=text) for word, text in suggestions if word not in values)]


def _parameters(instrument: str | None) -> dict[str, Parameter]:
    from meshmark.describe import description

    try:
        return {p.option: p for p in description(instrument).parameters} if instrument else {}
    except MeshmarkError:
        return {}


def _of_list(choices: Mapping[str, str] | Iterable[str], incomplete: str) -> Suggestions:
    """Return suggestions for the last item of a comma-separated list of choices."""
    prefix, comma, last_item = incomplete.rpartition(",")
    return [(f"{prefix}{comma}{word}", text) for word, text in beginning(choices, last_item)]


class PlacerCommand(typer.core.TyperCommand):
    """A command of the native placer, whose help lists its options."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Return completions of policies, or of the options that the native placer prints with `--help`."""
        from meshmark.place.native import ask

        last_word = ctx.args[-1] if ctx.args else ""
        try:
            if last_word in {"--bind", "--policy"}:
                return [_core.CompletionItem(word, help=text) for word, text in policies(incomplete)]
            if not incomplete.startswith("-"):
                return []  # this is a value or the command, for which the shell completes files
            lines = ask([{"place": "plan"}.get(self.name or "", self.name or ""), "--help"]).splitlines()
        except (MeshmarkError, OSError):
            return []
        matches = [m.groups() for line in lines if (m := re.match(r"\s+(?:-\w, ?)?(--[\w-]+)(.*)", line))]
        options = {name: rest.split("  ")[-1].strip() for name, rest in matches}
        return [_core.CompletionItem(word, help=text) for word, text in beginning(options, incomplete)]
