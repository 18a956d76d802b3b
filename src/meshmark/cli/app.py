"""The command line: parses arguments, calls functions and prints their results.

Data go to standard output, messages to standard error. This module imports only light modules at module level, so that
`meshmark --help` stays fast.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from meshmark.cli.completion import register as register_completion
from meshmark.cli.console import print_rows, say
from meshmark.cli.doctor import register as register_doctor
from meshmark.cli.fleet.fleet import register as register_fleet
from meshmark.cli.fleet.fleet_network import register as register_fleet_network
from meshmark.cli.help_form import with_uniform_help
from meshmark.cli.load.load import app as load_app
from meshmark.cli.load.queue import queue
from meshmark.cli.machine import app as machine_app
from meshmark.cli.measure.composite import register as register_composite
from meshmark.cli.measure.measure import register as register_measure
from meshmark.cli.measure.mpi import app as mpi_app
from meshmark.cli.measure.survey import register as register_survey
from meshmark.cli.model.model import app as model_app
from meshmark.cli.options import with_strict_values
from meshmark.cli.place.advise import register as register_advise
from meshmark.cli.place.experiment import register as register_experiment
from meshmark.cli.place.place import register as register_place
from meshmark.cli.place.rate import register as register_rate
from meshmark.cli.predict.predict import app as predict_app
from meshmark.cli.predict.profile import register as register_profile
from meshmark.cli.process import end_by_signals, ended, flushed, leave, memory_limit, open_streams, output_is_full
from meshmark.cli.results.claims import register as register_claims
from meshmark.cli.results.compare import register as register_compare
from meshmark.cli.results.export import register as register_export
from meshmark.cli.results.history import register as register_history
from meshmark.cli.results.share import register as register_share
from meshmark.cli.results.store import app as store_app
from meshmark.cli.serve import register as register_serve
from meshmark.cli.watch.plot import register as register_plot
from meshmark.cli.watch.record import register as register_record
from meshmark.cli.watch.replay import register as register_replay
from meshmark.cli.watch.watch import register as register_watch
from meshmark.errors import AbsentError, MeshmarkError, UsageError, near, near_option, quoted
from meshmark.values.paths import find_home

_MEMORY_BYTES: Final = 1 << 30
_CLOSED_PIPE: Final = 128 + signal.SIGPIPE  # the exit status of a program that `head` terminates

LISTS: Final = ("instruments", "applications", "composites", "kernels", "machines", "policies", "metrics")
# The commands in the order of the help. Commands such as `run` and `record` are listed next to related commands.
SECTIONS: Final = {
    "Measure": (
        "survey",
        "measure",
        "report",
        "compare",
        "composite",
        "history",
        "experiment",
        "rate",
        "profile",
        "predict",
        "claims",
        "list",
        "machine",
        "doctor",
        "check-os",
        "mpi",
    ),
    "Clusters": ("fleet",),
    "Watch": ("watch", "record", "replay", "plot", "serve"),
    "Place": ("run", "advise", "place", "slots", "placed", "migrate", "translate"),
    "Load and model": ("load", "model"),
    "Results and help": ("export", "store", "share", "site", "completion", "version", "help"),
}


class Sections(typer.core.TyperGroup):
    """Lists the commands by purpose."""

    def list_commands(self, ctx: Any) -> list[str]:  # a context of click, or of typer's own copy of it
        """Return the names of all commands, in the order of the sections of the help."""
        return [name for names in SECTIONS.values() for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands to the help, with a heading for each section."""
        width = max(map(len, self.commands))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), self.commands[name].get_short_help_str(formatter.width)) for name in names]
                )


app = typer.Typer(
    name="meshmark",
    cls=Sections,
    help="Measure, watch, load, place and model the processors and memories of NUMA machines and small clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_app, name="store")
app.add_typer(machine_app, name="machine")
app.add_typer(model_app, name="model")
load_app.command("queue")(queue)
app.add_typer(load_app, name="load")
app.add_typer(mpi_app, name="mpi")
app.add_typer(predict_app, name="predict")
register_measure(app)
register_survey(app)
register_compare(app)
register_composite(app)
register_history(app)
register_fleet(app)
register_fleet_network()
register_export(app)
register_share(app)
register_experiment(app)
register_rate(app)
register_profile(app)
register_claims(app)
register_completion(app)
register_watch(app)
register_record(app)
register_replay(app)
register_plot(app)
register_serve(app)
register_doctor(app)
register_place(app)
register_advise(app)


def suggestion(text: str) -> str:
    """Return `did you mean X?` for an error of the form `found 'Y'; allowed: X, Z`; "" if no allowed word is close."""
    match = re.search(r"found '([^']+)'; allowed: ([\w.:/-]+(?:, [\w.:/-]+)+)$", text)
    return near(match[1], match[2].split(", ")) if match and not match[1].startswith("--") else ""


def fail(error: MeshmarkError) -> NoReturn:
    """Print the error in one line and exit. Quoted input is cut to 100 characters; control characters are removed.

    Long words outside quotation marks, such as paths, keep both ends.
    """
    word = "absent" if error.status == AbsentError.status else "error"
    text = re.sub(r"'([^']{99})[^']{2,}'", r"'\1…'", " ".join(str(error).split()))
    text = re.sub(r"([^\s']{60})[^\s']{2,}([^\s']{39})", r"\1…\2", text)
    say(f"meshmark: {word}: {quoted(text, 1000)}")
    if hint := error.hint or suggestion(text):
        say(f"hint: {hint}")
    raise SystemExit(error.status)


def main() -> None:
    """Run the command line and exit. Every error is printed in one line with an exit status, never as a traceback."""
    if not open_streams():
        fail(MeshmarkError("standard output is closed"))
    try:
        status = _status()
    except (MemoryError, SystemError):  # without memory, the message cannot be formatted
        os.write(2, b"meshmark: error: out of memory\n")
        os._exit(1)
    # A full disk or a closed pipe may become visible only now.
    if (error := flushed()) is not None:
        is_closed_pipe = isinstance(error, BrokenPipeError)
        if status == 0 and not is_closed_pipe:
            say(f"meshmark: error: standard output: {error.strerror or error}")
        status = status or (_CLOSED_PIPE if is_closed_pipe else 1)
    leave(status)


def _status() -> int:
    """Run the command and return its exit status."""
    try:
        code = _dispatch()
        return code if isinstance(code, int) else 0
    except SystemExit as exit_request:
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":  # the parser caught the error of a closed pipe
            return _CLOSED_PIPE
        if isinstance(exit_request.code, str):
            say(exit_request.code)
        return exit_request.code if isinstance(exit_request.code, int) else int(exit_request.code is not None)


def _command() -> Any:
    """Return the parser of all commands."""
    return with_uniform_help(with_strict_values(typer.main.get_command(app)))


def _usage_error(error: Any, argv: Sequence[str]) -> UsageError:
    """Return a usage error for an error of the parser, with a hint to the option or the help that the user needs."""
    path, group = ["meshmark"], _command()
    for word in argv:
        if word not in getattr(group, "commands", {}):
            break
        path, group = [*path, word], group.commands[word]
    following = argv[len(path) - 1 : len(path)]
    if following and (nested := getattr(group, "nested", lambda _: None)(following[0])) is not None:
        path, group = [*path, *following], nested
    text, _, _ = error.format_message().partition(" (Possible options")
    unknown = getattr(error, "option_name", "") if text.startswith("No such option") else ""
    if not unknown:
        return UsageError(text, f"{' '.join(path)} --help")
    options = [name for p in group.params for name in (*p.opts, *p.secondary_opts) if name.startswith("--")]
    text = f"{' '.join(path[1:] or path)}: found '{quoted(unknown)}'; allowed: {', '.join([*options, '--help'])}"
    return UsageError(text, near_option(unknown, options) or f"{' '.join(path)} --help")


def _dispatch() -> Any:
    argv: list[str] = []
    try:
        end_by_signals()
        find_home()
        if limit := memory_limit(_MEMORY_BYTES):
            # Some libraries abort without memory, before an error can be reported.
            say(f"warning: {limit}; commands that read the store or draw charts need about {_MEMORY_BYTES >> 20} MiB")
        argv = sys.argv[1:]
        code = _command()(argv, standalone_mode=False, prog_name="meshmark")
        if code == 130:
            raise KeyboardInterrupt  # the parser caught the interrupt
        return code
    except MeshmarkError as error:
        fail(error)
    except KeyboardInterrupt:
        text, status = ended()
        say(f"meshmark: {text}")
        raise SystemExit(status) from None
    except BrokenPipeError:
        raise SystemExit(_CLOSED_PIPE) from None
    except OSError as error:
        source = f"{quoted(error.filename)}: " if error.filename else ""
        if not source and (flushed() or output_is_full()):
            source = "standard output: "
        missing = isinstance(error, FileNotFoundError) and str(error.filename) in argv
        fail((UsageError if missing else MeshmarkError)(f"{source}{error.strerror or error}"))
    except MemoryError:
        fail(MeshmarkError("out of memory", hint=memory_limit()))
    except Exception as error:  # errors of the parser, by shape: click comes with typer or separately
        if type(error).__name__ == "NoArgsIsHelpError":
            say(str(error))
            raise SystemExit(UsageError.status) from None
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            fail(_usage_error(error, argv))
        if isinstance(error, ImportError) and ("failed to map" in str(error) or "allocate" in str(error)):
            fail(MeshmarkError(f"out of memory for a library: {quoted(error)}", hint=memory_limit()))
        if "start new thread" in str(error) or "launch worker thread" in str(error):  # messages of CPython and Arrow
            fail(MeshmarkError("no thread can be started", hint="the limit ulimit -u may be too low"))
        # A bug is reported in one line, too; the traceback is printed on request.
        if os.environ.get("MESHMARK_TRACE"):
            raise
        fail(
            MeshmarkError(
                f"unexpected {type(error).__name__}: {quoted(error, 300)}", hint="set MESHMARK_TRACE=1 for a traceback"
            )
        )
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # A library written in Rust, such as the one that draws charts, raises this without file descriptors or threads.
        fail(
            MeshmarkError(
                f"a library failed: {quoted(error)}", hint="the limits ulimit -n and ulimit -u may be too low"
            )
        )


def _installed() -> str:
    from importlib.metadata import version as installed

    return installed("meshmark")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"meshmark {_installed()}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """The options of `meshmark` itself."""


@app.command()
def version() -> None:
    """Print the version.

    example: meshmark version
    """
    print(_installed())


@app.command("help")
def help_(
    command: Annotated[list[str] | None, typer.Argument(help="a command, for example measure latency")] = None,
) -> None:
    """Show the help of a command.

    example: meshmark help measure latency
    """
    sys.argv[1:] = [*(command or []), "--help"]  # the commands of the native placer read sys.argv
    _command()(standalone_mode=False, prog_name="meshmark")


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help=", ".join(LISTS), autocompletion=lambda: list(LISTS))] = "instruments",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List instruments, applications, composites, kernels, machines, policies or metrics.

    example: meshmark list metrics
    """
    from meshmark.describe import description, descriptions, is_built

    rows: list[dict[str, Any]]
    if what == "instruments":
        rows = [
            {"instrument": d.name, "built": "yes" if is_built(d.name) else "no", "summary": d.summary}
            for d in descriptions().values()
        ]
    elif what == "applications":
        import shutil

        from meshmark.applications.application import read_application, shipped

        applications = {name: read_application(path) for name, path in shipped().items()}
        rows = [
            {
                "application": name,
                "installed": "yes" if shutil.which(a.command[0]) else "no",
                "package": a.package,
                "about": a.about,
            }
            for name, a in applications.items()
        ]
    elif what == "composites":
        from meshmark.applications.composite import read_composite, shipped

        sets = {name: read_composite(name) for name in shipped()}
        rows = [{"composite": name, "members": len(c.members), "about": c.about} for name, c in sets.items()]
    elif what == "metrics":
        from meshmark.load.scenario.records import METRICS as OF_LOAD
        from meshmark.place.native import vocabulary

        described = {d.name: d.metrics for d in descriptions().values()}
        rows = [
            {"metric": m.name, "unit": m.unit, "better": m.better, "instrument": name, "help": m.help}
            for name, metrics in {**described, "load": tuple(OF_LOAD.values()), "run": vocabulary().metrics}.items()
            for m in metrics
        ]
    elif what == "kernels":
        rows = [
            {"instrument": d.name, "parameter": p.word, "kernel": c}
            for d in descriptions().values()
            for p in d.parameters
            if p.word in {"kernel", "store", "isa", "type", "pattern", "state"}
            for c in p.choices
        ]
    elif what == "policies":
        from meshmark.place.native import vocabulary

        memory = description("latency").parameter("policy").choices
        rows = [
            {"policy": name, "of": "meshmark run --bind", "help": text} for name, text in vocabulary().policies.items()
        ]
        rows += [
            {"policy": name, "of": "meshmark run --bind", "help": f"modifier: {text}"}
            for name, text in vocabulary().modifiers.items()
        ]
        rows += [
            {
                "policy": name,
                "of": "meshmark measure --policy",
                "help": "pages interleaved over one or all nodes"
                if name == "interleave"
                else "pages on the node of the first touch",
            }
            for name in memory
        ]
    elif what == "machines":
        rows = _machines()
    else:
        raise UsageError(f"list: found '{what}'; allowed: {', '.join(LISTS)}")
    print_rows(rows, as_json)
    if what == "machines" and not as_json:
        newest = max(int(row["year"]) for row in rows if row["year"])
        say(
            f"the newest of them is from {newest}; for a current one, import its results with `meshmark store import` "
            "or describe it with `meshmark model init two-socket`"
        )


def _machines() -> list[dict[str, Any]]:
    """Return this machine, the models of the package and the publications, with their year ("" if unknown)."""
    from meshmark.machine.published.papers import PAPER, papers
    from meshmark.machine.published.reference import publication
    from meshmark.model.machine import find_machine, machine_names

    rows: list[dict[str, Any]] = [{"machine": "host", "year": "", "source": "host", "title": "this machine"}]
    for name in machine_names():
        model = find_machine(name)
        year = publication(model.publication).year if model.publication else None
        rows.append({"machine": name, "year": year or "", "source": "model", "title": model.title})
    for paper in papers():
        source = paper.publication
        title = f"{paper.title}: {source.title}"
        rows.append({"machine": PAPER + paper.name, "year": source.year or "", "source": "paper", "title": title})
    return rows
