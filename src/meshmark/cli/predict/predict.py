"""`meshmark predict`: what neighbours do to a program, predicted from profiles, and checked by running them."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from meshmark.cli.console import say
from meshmark.cli.options import JsonOption, time_option
from meshmark.cli.place.setting_options import (
    ProgressTimer,
    ResumeOption,
    SeedOption,
    TimeoutOption,
    end_if_interrupted,
)
from meshmark.cli.predict.profile import checked_cpus, processor_model
from meshmark.errors import UsageError
from meshmark.values.paths import run_folder

if TYPE_CHECKING:
    from meshmark.profiles.machines import MachineRates
    from meshmark.profiles.profile import ProgramProfile

_BUDGET_S: Final = 600.0
_ROUNDS: Final = 5
_PROFILES: Final = "profiles.jsonl"
_MOST: Final = 50

app = typer.Typer(help="Predict from profiles of programs.", no_args_is_help=True)


@app.callback()
def predict() -> None:
    """Predict how programs run beside others, from their profiles (see meshmark profile).

    example: meshmark predict neighbours a.json b.json
    """


@app.command("neighbours")
def neighbours(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE…", help="files or runs of meshmark profile", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="also run every pair, and compare")] = False,
    rounds: Annotated[
        int, typer.Option("--rounds", help="with --check: runs alone and beside each neighbour", min=2, max=1000)
    ] = _ROUNDS,
    budget_s: Annotated[
        float, time_option("--budget", "with --check: time limit for each program", low=1, default="10m")
    ] = 0.0,
    timeout_s: TimeoutOption = 0.0,
    seed: SeedOption = None,
    resume: ResumeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Predict how much programs slow each other, and which should share a machine.

    example: meshmark predict neighbours a.json b.json --check
    """
    from meshmark.profiles.neighbours import check_comparable, predict_all
    from meshmark.profiles.profile import names_of

    if resume:
        folder = run_folder(resume)
        known = _of_session(folder)
        check = True
    else:
        words = profiles or []
        if not 2 <= len(words) <= _MOST:
            raise UsageError(
                f"PROFILE: found {len(words)}; allowed: 2 to {_MOST}", "meshmark profile -- COMMAND makes one"
            )
        known = [_profile(word) for word in words]
    names = names_of(known)
    check_comparable(known, names)
    answer: dict[str, Any] = predict_all(known, names)
    if check:
        more = {
            "rounds": rounds,
            "budget_s": budget_s or _BUDGET_S,
            "timeout_s": timeout_s or None,
            "seed": secrets.randbelow(1 << 31) if seed is None else seed,
        }
        run = resume or _new_session(known)
        _check(answer, known, names, run, bool(resume), more)
    _print(answer, as_json)


@app.command("rates")
def rates(
    cpus: Annotated[
        str,
        typer.Option("--cpus", help="CPUs that run each kernel at once [one CPU]", show_default=False),
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", help="write the rates to this file", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast load kernels are on this machine, for predictions of programs.

    example: meshmark predict rates --out here.json
    """
    from dataclasses import asdict

    from meshmark.store.files import write_json
    from meshmark.views.terminal.experiments.profile import print_rates

    answer = asdict(_rates_here(cpus))
    if out is not None:
        write_json(out, answer)
    if as_json:
        print(json.dumps(answer))
    elif out is None:
        print_rates(answer)


def _rates_here(cpus: str) -> MachineRates:
    from meshmark.machine.facts import host_id
    from meshmark.machine.sources import from_sysfs
    from meshmark.profiles.division import last_cache_bytes
    from meshmark.profiles.rates import measure_rates

    machine = from_sysfs()
    chosen = checked_cpus("--cpus", cpus, machine) or machine.allowed_cpus[:1]
    timer = ProgressTimer()

    def report(number: int, total: int) -> None:
        if timer.is_due():
            say(f"measuring kernels: {number} of {total}")

    return measure_rates(chosen, last_cache_bytes(machine, chosen[0]), host_id(), processor_model(), report)


@app.command("machine")
def machine(
    profiles: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROFILE…", help="files or runs of meshmark profile", show_default=False),
    ] = None,
    on: Annotated[
        list[Path] | None,
        typer.Option(
            "--on",
            help="file of meshmark predict rates from the other machine; may be repeated [measure this machine]",
            show_default=False,
        ),
    ] = None,
    cpus: Annotated[
        str,
        typer.Option(
            "--cpus",
            help="without --on: CPUs of the program on this machine [as many as in the profile]",
            show_default=False,
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Predict how long programs take on another machine, from their profiles and the rates of kernels there.

    example: meshmark predict machine solver.json --on there.json
    """
    from meshmark.profiles.machines import to_json
    from meshmark.profiles.rates import read_rates
    from meshmark.views.terminal.experiments.profile import print_times

    words = profiles or []
    if not 1 <= len(words) <= _MOST:
        raise UsageError(f"PROFILE: found {len(words)}; allowed: 1 to {_MOST}", "meshmark profile -- COMMAND makes one")
    known = [_profile(word) for word in words]
    machines = [read_rates(path) for path in on or ()] or [_rates_here(cpus or _same_number(known))]
    answers = [to_json(profile, there) for profile in known for there in machines]
    if as_json:
        for answer in answers:
            print(json.dumps(answer))
    else:
        print_times(answers)


def _same_number(profiles: list[ProgramProfile]) -> str:
    """Return as many allowed CPUs as the profiles have for the program."""
    import os

    counts = {len(profile.program_cpus) for profile in profiles}
    allowed = sorted(os.sched_getaffinity(0))
    if len(counts) > 1 or max(counts) > len(allowed):
        numbers = ", ".join(map(str, sorted(counts)))
        raise UsageError(f"--cpus: found none, and profiles of programs with {numbers} CPUs; required: the CPUs to use")
    return ",".join(map(str, allowed[: max(counts)]))


def _profile(word: str) -> ProgramProfile:
    """Return the profile in a file, or of a run."""
    from meshmark.profiles.profile import read_profile
    from meshmark.profiles.session import RESULT

    path = Path(word)
    if not path.is_file() and (in_run := run_folder(word) / RESULT).is_file():
        path = in_run
    return read_profile(path)


def _new_session(profiles: list[ProgramProfile]) -> str:
    """Keep the profiles in the folder of a new run, and return its name."""
    from meshmark.store.files import make_folder, write_file
    from meshmark.store.store import run_name

    run = run_name("prediction")
    folder = run_folder(run)
    make_folder(folder)
    lines = [json.dumps(one.to_json()) + "\n" for one in profiles]
    write_file(folder / _PROFILES, "".join(lines).encode(), private=True)
    return run


def _of_session(folder: Path) -> list[ProgramProfile]:
    """Return the profiles that a run keeps."""
    from meshmark.profiles.profile import ProgramProfile
    from meshmark.store.session import Journal
    from meshmark.values.inputs import checked

    def parse(content: Any) -> ProgramProfile:
        return checked(ProgramProfile, content, _PROFILES)

    known = [one for _, one in Journal(folder / _PROFILES).entries(parse, "a profile")]
    if not known:
        raise UsageError(
            f"--resume: found no {_PROFILES} in {folder}", "meshmark predict neighbours A B --check starts one"
        )
    return known


def _check(
    answer: dict[str, Any],
    profiles: list[ProgramProfile],
    names: list[str],
    run: str,
    resumed: bool,
    more: dict[str, Any],
) -> None:
    """Run every program alone and beside the others, and add what was measured to the answer."""
    from meshmark.profiles.together import PLAN, TogetherPlan, add_measured

    for number, (profile, name) in enumerate(zip(profiles, names, strict=True)):
        others = {n: shlex.split(one.command) for n, one in zip(names, profiles, strict=True) if n != name}
        folder = run_folder(run) / str(number)
        if resumed and (folder / PLAN).exists():
            plan = TogetherPlan.load(folder)
        else:
            plan = TogetherPlan(
                command=shlex.split(profile.command),
                name=name,
                program_cpus=list(profile.program_cpus),
                neighbour_cpus=list(profile.neighbour_cpus),
                neighbours=others,
                margin=0.0,
                metric="",
                pattern="",
                better="",
                restore="",
                run=run,
                started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **more,
            )
        session = _run(plan, folder, resumed)
        end_if_interrupted(session.stopped, "predict neighbours", run)
        add_measured(answer, session)


def _run(plan: Any, folder: Path, resumed: bool) -> Any:
    """Run a program alone and beside others, and report progress."""
    from meshmark import process
    from meshmark.experiments.rounds import conduct
    from meshmark.experiments.turns import SettingRunner
    from meshmark.profiles.session import check_run
    from meshmark.profiles.together import ProgramsBeside
    from meshmark.store.session import held

    with held(folder, resumed=resumed):
        plan.save(folder)
        runner = SettingRunner(plan, folder, beside=ProgramsBeside(plan, folder))
        timer = ProgressTimer()

        def report(session: Any) -> None:
            check_run(session.runs[-1])
            if timer.is_due():
                say(f"{plan.name}: run {len(session.runs)} of {plan.rounds * len(plan.labels)}")

        with process.adopting_orphans():
            try:
                return conduct(plan, folder, runner.run, report)
            finally:
                runner.restore()


def _print(answer: dict[str, Any], as_json: bool) -> None:
    from meshmark.views.terminal.experiments.profile import print_neighbours

    if as_json:
        print(json.dumps(answer))
    else:
        print_neighbours(answer)
