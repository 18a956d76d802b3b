"""The command line: parse, call, print. Data go to standard output, messages to standard error.

Module level has only light imports, so that `meshmark --help` stays fast.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from meshmark.cli.advise import register as register_advise
from meshmark.cli.console import counted, interruptible, print_rows, progress, progress_of_plan, say
from meshmark.cli.doctor import register as register_doctor
from meshmark.cli.load import app as load_app
from meshmark.cli.machine import app as machine_app
from meshmark.cli.model import app as model_app
from meshmark.cli.options import SetOption, StoreOption, current
from meshmark.cli.place import register as register_place
from meshmark.cli.process import end_by_signals, ended, flushed, leave, memory_limit, open_streams
from meshmark.cli.serve import register as register_serve
from meshmark.cli.store import app as store_app
from meshmark.cli.watch import register as register_watch
from meshmark.errors import AbsentError, MeshmarkError, UsageError, quoted
from meshmark.terminal.records import print_records
from meshmark.values.paths import data_home, find_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshmark.describe import Description
    from meshmark.measure.plan import Plan
    from meshmark.measure.unfinished import Unfinished
    from meshmark.store.record import Record

_MEMORY_BYTES: Final = 1 << 30

app = typer.Typer(
    name="meshmark",
    help="Measure, watch, load, place and model the processors and memories of NUMA machines and small clusters.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(store_app, name="store")
app.add_typer(machine_app, name="machine")
app.add_typer(model_app, name="model")
app.add_typer(load_app, name="load")
register_watch(app)
register_serve(app)
register_doctor(app)
register_place(app)
register_advise(app)


def fail(error: MeshmarkError) -> NoReturn:
    """Print one line and exit. Quoted input is shortened to 100 characters, and control characters are removed.

    Long words outside quotation marks, such as paths, keep both ends.
    """
    word = "absent" if error.status == AbsentError.status else "error"
    text = re.sub(r"'([^']{99})[^']{2,}'", r"'\1…'", " ".join(str(error).split()))
    text = re.sub(r"([^\s']{60})[^\s']{2,}([^\s']{39})", r"\1…\2", text)
    say(f"meshmark: {word}: {quoted(text, 1000)}")
    if error.hint:
        say(f"hint: {error.hint}")
    raise SystemExit(error.status)


def main() -> None:
    """Entry point: every error is one line and an exit status, never a traceback."""
    if not open_streams():
        fail(MeshmarkError("standard output is closed"))
    try:
        status = _status()
    except (MemoryError, SystemError):  # without memory not even the message can be formatted
        os.write(2, b"meshmark: error: out of memory\n")
        os._exit(1)
    # A full disk or a closed pipe may be noticed only now.
    if (why := flushed()) is not None:
        if status == 0 and not isinstance(why, BrokenPipeError):
            say(f"meshmark: error: standard output: {why.strerror or why}")
        status = status or 1
    leave(status)


def _status() -> int:
    """Run the command and return its exit status."""
    try:
        code = _dispatch()
        return code if isinstance(code, int) else 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            say(ended.code)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _dispatch() -> Any:
    try:
        end_by_signals()
        find_home()
        if limit := memory_limit(_MEMORY_BYTES):
            # Some libraries abort without memory, before an error can be reported.
            say(f"warning: {limit}; commands that read the store or draw charts need about {_MEMORY_BYTES >> 20} MiB")
        argv, notes = current(sys.argv[1:])
        for note in notes:
            say(f"meshmark: note: {note}")
        code = app(argv, standalone_mode=False, prog_name="meshmark")
        if code == 130:
            raise KeyboardInterrupt  # the parser caught the interrupt
        return code
    except MeshmarkError as why:
        fail(why)
    except KeyboardInterrupt:
        text, status = ended()
        say(f"meshmark: {text}")
        raise SystemExit(status) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except OSError as why:
        where = f"{quoted(why.filename)}: " if why.filename else "standard output: " if flushed() else ""
        fail(MeshmarkError(f"{where}{why.strerror or why}"))
    except MemoryError:
        fail(MeshmarkError("out of memory", hint=memory_limit()))
    except Exception as why:  # errors of the parser, by shape: click comes with typer or separately
        if type(why).__name__ == "NoArgsIsHelpError":
            say(str(why))
            raise SystemExit(UsageError.status) from None
        if hasattr(why, "format_message") and hasattr(why, "exit_code"):
            context = getattr(why, "ctx", None)
            fail(UsageError(why.format_message(), hint=f"{context.command_path if context else 'meshmark'} --help"))
        if isinstance(why, ImportError) and ("failed to map" in str(why) or "allocate" in str(why)):
            fail(MeshmarkError(f"out of memory for a library: {quoted(why)}", hint=memory_limit()))
        if "start new thread" in str(why) or "launch worker thread" in str(why):  # CPython's and Arrow's words
            fail(MeshmarkError("no thread can be started", hint="the limit ulimit -u may be too low"))
        # A bug is one line too; the traceback is printed on request.
        if os.environ.get("MESHMARK_TRACE"):
            raise
        fail(
            MeshmarkError(
                f"unexpected {type(why).__name__}: {quoted(why, 300)}", hint="set MESHMARK_TRACE=1 for a traceback"
            )
        )
    except BaseException as why:
        if type(why).__name__ != "PanicException":
            raise
        # From a library written in Rust, such as the one that draws charts, if it gets no file descriptor or thread.
        fail(
            MeshmarkError(f"a library failed: {quoted(why)}", hint="the limits ulimit -n and ulimit -u may be too low")
        )


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("meshmark"))


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="instruments, kernels, machines, policies, metrics")] = "instruments",
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
) -> None:
    """List instruments, kernels, machines, policies or metrics.

    example: meshmark list metrics
    """
    from meshmark.describe import description, descriptions

    rows: list[dict[str, Any]]
    if what == "instruments":
        rows = [{"instrument": d.name, "summary": d.summary} for d in descriptions().values()]
    elif what == "metrics":
        from meshmark.load.records import METRICS as OF_LOAD
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
        rows = [{"machine": "host", "source": "host", "title": "this machine"}]
        from meshmark.machine.reference import publications
        from meshmark.model.machine import find_machine, machine_names

        rows += [{"machine": n, "source": "model", "title": find_machine(n).title} for n in machine_names()]
        rows += [{"machine": f"paper:{p.name}", "source": "paper", "title": p.title} for p in publications()]
    else:
        raise UsageError(f"list: found '{what}'; allowed: instruments, kernels, machines, policies, metrics")
    print_rows(rows, as_json)


# ------------------------------------------------------------------ measure


def _instrument_help(d: Description) -> str:
    from meshmark.model.instruments import POINTS

    lines = [
        f"usage: meshmark measure {d.name} [--on MACHINE] [--json] [options]",
        "",
        d.summary[:1].upper() + d.summary[1:] + ".",
        "",
    ]
    width = max(len(p.option) for p in d.parameters)
    modelled = POINTS[d.name][1] if d.name in POINTS else {}
    for p in d.parameters:
        if p.option == "--resume":  # takes a file; the option of `meshmark measure` takes no value
            continue
        unit = f" ({p.unit})" if p.unit else ""
        choices = f": {', '.join(p.choices)}" if p.choices else ""
        default = f" [{p.default}]" if p.default else ""
        if modelled.get(p.word, p.default) != p.default and modelled[p.word]:
            default = f" [{p.default or 'none'}; of a model {modelled[p.word]}]"
        lines.append(f"  {p.option:<{width}}  {p.help}{choices}{unit}{default}")
    taken = ", ".join(f"--{word.replace('_', '-')}" for word in (*modelled, "seed"))
    lines += [
        "",
        "  --on MACHINE   host, or a modelled machine (meshmark model list)"
        + (f", which accepts {taken}" if modelled else "; not available on modelled machines")
        + " [host]",
        "  --repetitions N",
        "                 fresh processes, which share the budget: results are pooled, and levels that differ are told",
        "                 apart as modes [3; 1 for ranks, and if each had less than 1 s]",
        "  Without --budget, more points than by default get proportionally more time.",
        "  --set KEY=VAL  override one value of a modelled machine",
        "  --json         print one record per line",
        "  --store DIR    store folder; --no-store stores nothing",
        "  --resume       resume the last interrupted run with its original options",
    ]
    example = next((x for x in d.detail.splitlines() if x.startswith("example:")), "")
    example = re.sub(r"mpirun -n (\d+) meshmark-comm (\S+)", r"meshmark measure \2 --ranks \1", example)
    lines += ["", example.replace("meshmark-probe", "meshmark measure")]
    return "\n".join(lines)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def measure(
    context: typer.Context,
    instrument: Annotated[str | None, typer.Argument(help="instrument, see meshmark list instruments")] = None,
    on: Annotated[str, typer.Option("--on", help="host, or a modelled machine")] = "host",
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line")] = False,
    stores: Annotated[
        list[str] | None, typer.Option("--store", help="store folder; for some instruments also the kinds of stores")
    ] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="store nothing; the run cannot be resumed")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="resume the last interrupted run (of INSTRUMENT, if given)")
    ] = False,
    repetitions: Annotated[
        int,
        typer.Option(
            "--repetitions",
            min=0,
            max=100,
            help="fresh processes, which share the budget; 0: 3, or 1 if each had less than 1 s",
        ),
    ] = 0,
    settings: SetOption = None,
) -> None:
    """Run one instrument. For its options: meshmark measure INSTRUMENT --help.

    example: meshmark measure latency --footprint 4KiB..1GiB --pages thp
    """
    from meshmark.describe import description, descriptions

    extra = list(context.args)
    help_wanted = {"-h", "--help"} & {instrument, *extra}
    if instrument in {"-h", "--help"} or (instrument is None and (help_wanted or not resume)):
        known = ", ".join(descriptions())
        print("usage: meshmark measure INSTRUMENT [--on MACHINE] [--json] [options]")
        print("       meshmark measure [INSTRUMENT] --resume [--store DIR] [--json]\n")
        print(f"Instruments: {known}\nOptions of one: meshmark measure INSTRUMENT --help")
        print("\nexample: meshmark measure latency --footprint 4KiB..1GiB --pages thp")
        raise SystemExit(0 if help_wanted else UsageError.status)
    d = None if instrument is None else description(instrument)
    if d and help_wanted:
        print(_instrument_help(d))
        return
    if repetitions and on != "host":
        raise UsageError("--repetitions: found with --on, allowed on the host only: a model repeats itself exactly")
    if resume:
        if extra or len(stores or []) > 1 or no_store or settings or repetitions or on != "host":
            raise UsageError(
                "--resume: found with other options; allowed: --store and --json; the original options apply"
            )
        _measure_resumed(Path(stores[0]) if stores else data_home() / "store", instrument or "", as_json)
        return
    assert d is not None
    # `--store streaming` is a kind of stores for instruments with that option; a folder needs a path, ./streaming.
    store_kinds = next((p.choices for p in d.parameters if p.option == "--store"), ())
    store: Path | None = None
    for word in stores or []:
        if {*word.split(",")} <= {*store_kinds}:
            extra += ["--store", word]
        elif store_kinds and "/" not in word and not Path(word).is_dir():
            raise UsageError(
                f"--store: found '{word}'; allowed: {', '.join(store_kinds)}, or the path of a folder, ./{word}"
            )
        else:
            store = Path(word)
    if on != "host":
        from meshmark.machine.reference import publications

        if on.removeprefix("paper:") in {p.name for p in publications()}:
            raise AbsentError(
                f"{on} is a publication: its values are published, not measured", "meshmark list machines"
            )
        _measure_model(on, d, extra, as_json, settings, None if no_store else store or data_home() / "store")
        return
    if settings:
        raise UsageError("--set: found with --on host, allowed for a modelled machine only", "meshmark model list")
    _measure_host(
        d, _checked_argv(d, extra), repetitions, None if no_store else store or data_home() / "store", as_json
    )


def _measure_host(d: Description, argv: list[str], repetitions: int, store: Path | None, as_json: bool) -> None:
    """Measure on this host, in fresh processes. With a store, an interrupted run can be resumed."""
    import tempfile

    from meshmark.machine.facts import host_id
    from meshmark.measure import unfinished
    from meshmark.measure.budget import BUDGET
    from meshmark.measure.plan import measurement
    from meshmark.store.store import Store, run_name
    from meshmark.values import grammar

    machine = host_id()
    if "--machine" not in argv:
        argv += ["--machine", machine]
    plan, run_id = measurement(d, argv, repetitions), run_name("measure")
    default = d.parameter("budget").default
    if BUDGET not in argv and not d.ranks and plan.budget_s > grammar.seconds(BUDGET, default):
        say(f"note: budget {plan.budget_s:.0f}s instead of {default}, for its points and memory; change it by --budget")
    if store is None:
        with interruptible("nothing is stored (--no-store)"), tempfile.TemporaryDirectory(prefix="meshmark-") as folder:
            _run_and_print(plan, Path(folder), Path(folder) / "store", run_id, as_json)
        return
    Store(store)  # raises early if the folder is not a store
    _run_and_remove(unfinished.begin(store, run_id, plan, machine), as_json)


def _measure_resumed(store: Path, instrument: str, as_json: bool) -> None:
    """Resume an interrupted run."""
    from meshmark.machine.facts import host_id
    from meshmark.measure.unfinished import newest

    found = newest(store, host_id(), instrument)
    say(f"meshmark: resuming {found.run_id}: {' '.join(found.plan.steps[0].argv)}")
    _run_and_remove(found, as_json)


def _run_and_remove(what: Unfinished, as_json: bool) -> None:
    """Run a plan, then remove its folder. A run that is killed, or fails after some points, can be resumed."""
    default = what.store == data_home() / "store"
    again = "meshmark measure --resume" + ("" if default else f" --store {shlex.quote(str(what.store))}")
    try:
        with interruptible(f"completed points are kept; resume with {again}"):
            _run_and_print(what.plan, what.folder, what.store, what.run_id, as_json)
    except _PartlyError as why:
        raise MeshmarkError(str(why), f"measure the rest with {again}") from why
    except MeshmarkError:
        what.remove()
        raise
    what.remove()


class _PartlyError(MeshmarkError):
    """A step failed after points were measured."""


def _run_and_print(plan: Plan, folder: Path, store: Path, run_id: str, as_json: bool) -> None:
    """Run the steps and print their records and absences.

    Raises:
        UsageError: A step rejected its options.
        AbsentError: Nothing could be measured.
        MeshmarkError: A step failed.
    """
    from meshmark.describe import description
    from meshmark.machine.sysfs import from_sysfs
    from meshmark.measure.history import in_store
    from meshmark.measure.repetitions import pool_steps, shortfall, unique
    from meshmark.measure.runner import run_plan
    from meshmark.store.store import Store
    from meshmark.terminal.tables import print_tables

    with progress(plan.budget_s) as report:
        results = run_plan(plan, folder, Store(store), run_id, report, lambda _: None)
    records = pool_steps((result.step, result.reading.records) for result in results)
    absences = unique(absence for result in results for absence in result.reading.absences)
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    if not as_json:
        print_tables(records)
    for absence in absences:
        if absence.kind == "absent":
            say(
                f"absent: {absence.metric or absence.instrument}: {absence.reason}"
                + (f" (to enable: {absence.enable})" if absence.enable else "")
            )
    if text := shortfall(records, plan.budget_s):
        say(f"note: {text}")
    for line in [*_suspicious(records, from_sysfs().to_dict()), *in_store(records, Store(store), run_id)]:
        say(line)
    d = description(plan.steps[0].instrument)
    for result in results:
        if result.status == "failed":
            wrong = result.message.partition(":")[0] in {p.name for p in d.parameters} | {"options", "fill"}
            kind = UsageError if wrong else _PartlyError if records else MeshmarkError
            raise kind(f"{result.step.id}: {result.message}")
    if not records:
        reasons = [a.reason for a in absences]
        raise AbsentError(f"{d.name}: {reasons[0] if reasons else 'nothing was measured'}")


def _suspicious(records: Sequence[Record], topology: Mapping[str, Any]) -> list[str]:
    """Results of this host that are probably not what they are called."""
    from meshmark.measure.suspicion import lines, suspicions

    return [f"suspicious: {line}" for line in lines(suspicions(records, topology.get("caches", ())))]


def _measure_model(
    on: str, d: Description, extra: list[str], as_json: bool, settings: list[str] | None, store: Path | None
) -> None:
    from meshmark.cli.model import keep, note_assumptions
    from meshmark.model.instruments import measure as measure_model
    from meshmark.model.machine import find_machine
    from meshmark.model.published import misses, with_published

    machine = find_machine(on, settings)
    argv = iter(_checked_argv(d, extra))
    options: dict[str, str] = {}
    for option in argv:
        parameter = d.parameter(option)
        options[parameter.word] = "true" if parameter.kind == "flag" else next(argv)
    seed = options.get("seed", "1")
    if not re.fullmatch("[0-9]{1,18}", seed):
        raise UsageError(f"{d.name}: --seed: found '{seed}'; allowed: an integer")
    with counted(f"{d.name} on {machine.name}") as progress:
        changed = [word for setting in settings or [] for word in ("--set", setting)]
        command = shlex.join([d.name, "--on", on, *changed, *extra])
        records = measure_model(d.name, machine, options, command=command, seed=int(seed), progress=progress)
    if not records:
        raise AbsentError(f"{d.name}: {machine.path.name} lacks values that this instrument needs")
    records = with_published(records)
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    if not as_json:
        print_records(records)
    keep(store, records, d.name)
    for line in misses(records):
        say(line)
    note_assumptions(machine)


def _checked_argv(d: Description, extra: list[str]) -> list[str]:
    """The options as arguments of the native program; raises UsageError for an unknown option."""
    argv: list[str] = []
    words = iter(extra)
    for word in words:
        if not word.startswith("--"):
            raise UsageError(f"{d.name}: found '{word}'; allowed: options", f"meshmark measure {d.name} --help")
        name, equals, value = word.partition("=")
        parameter = d.parameter(name)
        if parameter.kind == "flag":
            argv.append(parameter.option)
            continue
        if not equals:
            value = next(words, "")
            if not value:
                raise UsageError(f"{d.name}: {name}: found no value, one is required")
        argv += [parameter.option, value]
    return argv


@app.command()
def survey(
    quick: Annotated[bool, typer.Option("--quick", help="take 2 minutes instead of 10")] = False,
    spec: Annotated[
        str | None, typer.Option("--spec", help="file with the steps to run (TOML)", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder for this run", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="resume an interrupted run (in --out, or the last one)")
    ] = False,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line")] = False,
) -> None:
    """Measure this machine and write a report.

    example: meshmark survey --quick --out survey-of-n042
    """
    from meshmark.measure.history import in_store
    from meshmark.measure.repetitions import quality
    from meshmark.measure.survey import last_run, load_run, run_survey
    from meshmark.report.build import write_report
    from meshmark.store.store import Store

    if quick and spec is not None:
        raise UsageError("--quick: found with --spec; allowed: one of them")
    folder = out or (last_run(data_home() / "runs") if resume else None)
    again = "meshmark survey --resume" + (f" --out {shlex.quote(str(out))}" if out else "")
    with interruptible(f"completed measurements are kept; resume with {again}"), progress_of_plan("survey") as made:
        folder = run_survey(
            spec=spec if spec is not None else "quick" if quick else "full",
            folder=folder,
            runs=data_home() / "runs",
            store_folder=store or data_home() / "store",
            resume=resume,
            command="meshmark survey " + " ".join(sys.argv[2:]),
            progress=made,
            notify=say,
        )
    records, absences, info = load_run(folder)
    for record in records if as_json else ():
        print(json.dumps(record.to_json()))
    paths = write_report(records, absences, info, folder)
    topology: Any = info.host.get("topology", {})
    earlier = in_store(records, Store(store or data_home() / "store"), info.run_id)
    for line in [*_suspicious(records, topology), *earlier]:
        say(line)
    say(
        f"meshmark: {len(records)} results of {quality(records)}; {len(absences)} absent or failed; "
        f"{info.elapsed_s:.0f} s"
    )
    if not as_json:
        print(paths.html)
        print(paths.card)


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="folder or name of a run, or latest")] = "latest",
    out: Annotated[
        Path | None, typer.Option("--out", help="folder to write to [the folder of the run]", show_default=False)
    ] = None,
) -> None:
    """Write the report of a survey again.

    example: meshmark report latest --out report
    """
    from meshmark.measure.survey import find_run, load_run
    from meshmark.report.build import write_report

    folder = find_run(run, data_home() / "runs")
    records, absences, info = load_run(folder)
    paths = write_report(records, absences, info, out or folder)
    print(paths.html)
