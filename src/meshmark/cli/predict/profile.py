"""`meshmark profile`: what limits a program, and what it takes from its neighbours, found without counters."""

from __future__ import annotations

import json
import secrets
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.options import JsonOption, NoStoreOption, StoreOption, time_option
from meshmark.cli.place.setting_options import (
    BetterOption,
    MetricOption,
    PatternOption,
    ProgressTimer,
    ResumeOption,
    SeedOption,
    TimeoutOption,
    end_if_interrupted,
    split_at_dashes,
)
from meshmark.errors import UsageError, quoted
from meshmark.values.paths import default_store, run_folder
from meshmark.values.secrets import hide_words, mask_words

if TYPE_CHECKING:
    from meshmark.experiments.rounds import Rounds
    from meshmark.machine.topology import Topology
    from meshmark.profiles.profile import ProgramProfile
    from meshmark.profiles.responses import Response
    from meshmark.profiles.session import ProfilePlan

_BUDGET_S: Final = 300.0
_ROUNDS: Final = 5

CpusOption = Annotated[
    str, typer.Option("--cpus", help="CPUs of the program [half of the cores that share a cache]", show_default=False)
]
NeighboursOption = Annotated[
    str, typer.Option("--neighbours", help="CPUs of the neighbours [the other cores that share it]", show_default=False)
]
NameOption = Annotated[
    str, typer.Option("--name", help="name of the program in tables [its file name]", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the command `profile`."""
    app.command("profile")(profile)


def profile(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND",
            help="the program and its arguments, after --; or files of profiles, to show them again",
            show_default=False,
        ),
    ] = None,
    cpus: CpusOption = "",
    neighbours: NeighboursOption = "",
    rounds: Annotated[
        int, typer.Option("--rounds", help="runs alone and beside each pressure", min=2, max=1000)
    ] = _ROUNDS,
    budget_s: Annotated[float, time_option("--budget", "time limit", low=1, default="5m")] = 0.0,
    timeout_s: TimeoutOption = 0.0,
    metric: MetricOption = "",
    pattern: PatternOption = "",
    better: BetterOption = "",
    name: NameOption = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="write the profile to this file", show_default=False)
    ] = None,
    seed: SeedOption = None,
    resume: ResumeOption = "",
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find what limits a program, and what it takes from its neighbours, without counters.

    Runs the program alone and beside neighbours that compute, fill caches, or transfer data from and to memory. The
    profile predicts how the program runs beside others: meshmark predict neighbours.

    example: meshmark profile -- ./a.out; meshmark profile --name solver --out solver.json -- ./solver mesh.dat
    """
    files, command = split_at_dashes(words or [])
    if files:
        if command:
            raise UsageError(
                f"COMMAND: found '{quoted(files[0])}' before --; allowed: files of profiles, or -- COMMAND"
            )
        _show_files([Path(file) for file in files], as_json)
        return
    if resume:
        plan, folder = _resumed(resume, command)
    else:
        if not command:
            raise UsageError("COMMAND: found none; allowed: a command after --, or files of profiles")
        plan = _plan(
            command,
            (cpus, neighbours),
            name,
            rounds=rounds,
            budget_s=budget_s or _BUDGET_S,
            timeout_s=timeout_s or None,
            pattern=pattern,
            metric=metric,
            better=better,
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
        )
        folder = run_folder(plan.run)
    session, responses = _conducted(plan, folder, bool(resume))
    end_if_interrupted(session.stopped, "profile", plan.run)
    result = _result(session, responses)
    _keep(result, session, folder, None if no_store else store or default_store(), out)
    _print([result], as_json)


def _plan(command: list[str], cpus: tuple[str, str], name: str, **more: Any) -> ProfilePlan:
    from meshmark.machine.sources import from_sysfs
    from meshmark.profiles.division import divide
    from meshmark.profiles.pressure import other_probes, pressures
    from meshmark.profiles.session import ProfilePlan
    from meshmark.store.store import run_name

    machine = from_sysfs()
    names = ("--cpus", "--neighbours")
    division = divide(machine, *(checked_cpus(name, text, machine) for name, text in zip(names, cpus, strict=True)))
    if name and not name.isprintable():
        raise UsageError(f"--name: found '{quoted(name)}'; allowed: printable characters")
    return ProfilePlan(
        command=hide_words(command),
        name=(name or Path(command[0]).name)[:120],
        division=division,
        pressures=pressures(division),
        probes=other_probes(division),
        margin=0.0,
        restore="",
        **more,
        run=run_name("profile"),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def checked_cpus(option: str, text: str, machine: Topology) -> tuple[int, ...]:
    """Return the CPUs that an option names; empty if it is not set.

    Raises:
        UsageError: The text is no list of CPUs, or this process may not use one of them.
    """
    from meshmark.machine.tree import MachineError, format_list, parse_list

    try:
        cpus = tuple(parse_list(text))
    except MachineError:
        raise UsageError(f"{option}: found '{quoted(text)}'; allowed: numbers and ranges, such as 0-3,8") from None
    if wrong := sorted(set(cpus) - set(machine.allowed_cpus)):
        raise UsageError(f"{option}: found CPU {wrong[0]}; allowed: {format_list(machine.allowed_cpus)}")
    return cpus


def _resumed(run: str, command: list[str]) -> tuple[ProfilePlan, Path]:
    """Return the plan of an earlier run and its folder. The command may be repeated."""
    from meshmark.profiles.session import ProfilePlan
    from meshmark.store.session import check_same

    folder = run_folder(run)
    plan = ProfilePlan.load(folder)
    hidden = hide_words(command)  # also stores the secret values, which the plan lacks
    if hidden:
        again = f"meshmark profile --resume {shlex.quote(run)}"
        check_same(folder, "a profile", {"COMMAND": shlex.join(plan.command)}, {"COMMAND": shlex.join(hidden)}, again)
    return plan, folder


def _conducted(plan: ProfilePlan, folder: Path, resumed: bool) -> tuple[Rounds[ProfilePlan], list[Response]]:
    """Run the plan and report progress."""
    from meshmark import process
    from meshmark.experiments.rounds import conduct
    from meshmark.experiments.turns import SettingRunner
    from meshmark.profiles.pressure import ALONE
    from meshmark.profiles.responses import measure
    from meshmark.profiles.session import beside, check_run
    from meshmark.store.session import held
    from meshmark.values.units import duration

    plan.figure.check()
    with held(folder, resumed=resumed):
        plan.save(folder)
        say(f"{plan.run}: {plan.division.text}, at most {duration(plan.budget_s)}: {shlex.join(plan.command)}")
        timer = ProgressTimer()

        def report_response(complete: int, total: int) -> None:
            if timer.is_due():
                say(f"measuring how neighbours slow each other: {complete} of {total}")

        def report_run(session: Rounds[ProfilePlan]) -> None:
            check_run(session.runs[-1])
            if timer.is_due():
                say(f"run {len(session.runs)} of {plan.rounds * len(plan.labels)}")

        responses: list[Response] = []
        runner = SettingRunner(plan, folder, beside=beside(plan, responses))
        start_s = time.monotonic()
        with process.adopting_orphans():
            try:
                if not resumed:
                    check_run(runner.run(0, ALONE, 0))  # warms up the program, and shows early that it cannot run
                responses += measure(folder, plan.division, plan.pressures, plan.probes, report_response)
                plan.budget_s = max(0.0, plan.budget_s - (time.monotonic() - start_s))
                session = conduct(plan, folder, runner.run, report_run)
            finally:
                runner.restore()
    return session, responses


def _result(session: Rounds[ProfilePlan], responses: list[Response]) -> ProgramProfile:
    from importlib.metadata import version

    from meshmark.machine.facts import host_id
    from meshmark.profiles.session import profile_of

    return profile_of(session, responses, machine=host_id(), processor=processor_model(), build=version("meshmark"))


def processor_model() -> str:
    """Return the model of the processor; "" if it is unknown."""
    from meshmark.machine.processor import processor
    from meshmark.machine.tree import FileTree

    return str(processor(FileTree(Path("/"))).get("model") or "")


def _keep(
    result: ProgramProfile, session: Rounds[ProfilePlan], folder: Path, store: Path | None, out: Path | None
) -> None:
    """Write the profile into the folder of the run, the store and the requested file."""
    from meshmark.machine.boot import keep
    from meshmark.profiles.limits import to_json
    from meshmark.profiles.session import RESULT, records
    from meshmark.store.files import write_json
    from meshmark.store.store import Store

    content = to_json(result)
    write_json(folder / RESULT, content)
    if store is not None:
        command_line = shlex.join(mask_words(["profile", *sys.argv[2:]]))
        keep(Store(store), session.plan.run, "profile", records(result, session, command_line))
    if out is not None:
        write_json(out, content)


def _show_files(paths: list[Path], as_json: bool) -> None:
    from meshmark.profiles.profile import read_profile

    _print([read_profile(path) for path in paths], as_json)


def _print(profiles: list[ProgramProfile], as_json: bool) -> None:
    from meshmark.profiles.limits import to_json
    from meshmark.views.terminal.experiments.profile import print_profile, print_profiles

    answers = [to_json(one) for one in profiles]
    if as_json:
        for answer in answers:
            print(json.dumps(answer))
    elif len(answers) == 1:
        print_profile(answers[0])
    else:
        print_profiles(answers)
