"""`meshmark load`: measures calibration data, and generates and runs synthetic programs in scenarios."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.console import interruptible, print_rows, progress_of_plan, say
from meshmark.cli.init import register as register_init
from meshmark.cli.load.load_base import base_variants, check_idle, cpus_of
from meshmark.cli.load.load_live import LoadProgress
from meshmark.cli.load.load_watch import WatchOption, watched
from meshmark.cli.load.study import app as study_app
from meshmark.cli.options import JsonOption, NoStoreOption, StoreOption, in_folder
from meshmark.errors import MeshmarkError, UsageError, quoted
from meshmark.values import grammar
from meshmark.values.paths import data_home, default_store
from meshmark.values.secrets import mask_words
from meshmark.values.units import plain

if TYPE_CHECKING:
    from meshmark.load.calibration.metrics import Metrics
    from meshmark.load.scenario.placing import HostResources
    from meshmark.load.scenario.scenario import Scenario, ScenarioProgram
    from meshmark.load.synthesis.make import ProgramTrial
    from meshmark.load.synthesis.program import SyntheticProgram

app = typer.Typer(help="Load this machine with synthetic programs.", no_args_is_help=True)
app.add_typer(study_app, name="study")
register_init(
    app,
    "meshmark.load",
    "a scenario",
    "scenario.toml",
    "meshmark load base --quick (once a machine); meshmark load make FILE; meshmark load run FILE --programs programs",
)

BaseOption = Annotated[
    str,
    typer.Option("--base", help="run that measured the calibration data [newest of this machine]", show_default=False),
]
CpusOption = Annotated[
    str, typer.Option("--cpus", help="CPUs to use, for example 0-3 [all allowed]", show_default=False)
]
RoundsOption = Annotated[int, typer.Option("--rounds", min=0, max=10, help="calibration trials per program")]
TrialOption = Annotated[str, typer.Option("--trial", help="duration of a calibration trial")]
MetricsOption = Annotated[
    Path | None, typer.Option("--metrics", help="file with additional metrics (TOML)", show_default=False)
]
ScenarioArgument = Annotated[Path, typer.Argument(help="scenario file (TOML)", show_default=False)]


@app.command("kernels")
def kernels(as_json: JsonOption = False) -> None:
    """List the load kernels.

    example: meshmark load kernels
    """
    from meshmark.load.synthesis.make import kernels as listed

    rows = listed()
    if as_json:
        print_rows(rows, True)
        return
    print_rows(
        [{"kernel": r["name"], "kind": r["kind"], "does": r["summary"], "after": r["source"]} for r in rows], False
    )


@app.command("variants")
def variants(
    base_name: BaseOption = "",
    metrics: MetricsOption = None,
    kernel: Annotated[
        str, typer.Option("--kernel", help="names or kinds, comma-separated [all]", show_default=False)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List measured kernel variants and their metrics.

    example: meshmark load variants --kernel triad,dense
    """
    from meshmark.load.calibration.metrics import all_metrics, of_variants

    user_metrics = _own_metrics(metrics)
    all_variants, _ = base_variants(base_name)
    requested = {word.strip() for word in kernel.split(",") if word.strip()}
    names = {name for v in all_variants for name in (v.kernel, v.kind)}
    if requested - names:
        raise UsageError(
            f"--kernel: found {sorted(requested - names)[0]!r}; the calibration data contain {', '.join(sorted(names))}"
        )
    selected = [v for v in all_variants if not requested or requested & {v.kernel, v.kind}]
    values = of_variants(all_variants, all_metrics(user_metrics), user_metrics)
    rows: list[dict[str, Any]] = []
    for v in selected:
        row_metrics = values[v.name]
        if as_json:
            rows.append({**v.to_json(), "metrics": row_metrics})
            continue
        columns = {
            k: row_metrics.get(k)
            for k in ("memory_gb_per_s", "cache_gb_per_s", "gflop_per_s", "gint_per_s", *user_metrics)
        }
        rows.append(
            {
                "variant": v.name,
                "kind": v.kind,
                "from": v.served_by,
                "call": plain(v.wall_s, "s"),
                **{k: "-" if x is None else f"{x:.4g}" for k, x in columns.items()},
            }
        )
    print_rows(rows, as_json)


@app.command("base")
def base(
    quick: Annotated[bool, typer.Option("--quick", help="take 2 minutes instead of 15")] = False,
    spec: Annotated[
        Path | None,
        typer.Option(
            "--spec", help="file with the steps to measure (TOML); use the result with --base RUN", show_default=False
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="folder for this run", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="resume an interrupted run (in --out, or the last one)")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="measure even on a busy machine; results are flagged")] = False,
    store: StoreOption = None,
) -> None:
    """Measure calibration data. These are the costs of every kernel variant; the machine must be idle.

    example: meshmark load base --quick
    """
    from meshmark.load.calibration.base import base_spec, last_base, variants_of
    from meshmark.machine.facts import host_id
    from meshmark.measure.survey import load_run, run_survey

    steps = base_spec(quick, spec)
    check_idle(force)
    runs = data_home() / "runs"
    folder = out or (last_base(runs, host_id()) if resume else None)
    if resume and folder is None:
        raise UsageError("--resume: found no calibration data of this machine", "run meshmark load base")
    state = "completed measurements are kept; resume with meshmark load base --resume"
    with interruptible(state), progress_of_plan("calibration data") as start_progress:
        folder = run_survey(
            spec=steps,
            folder=folder,
            runs=runs,
            store_folder=store or default_store(),
            resume=resume,
            command="meshmark load base " + " ".join(mask_words(sys.argv[3:])),
            progress=start_progress,
            notify=say,
        )
    records, absences, info = load_run(folder)
    entries = variants_of(records)
    flagged = sum(1 for r in records if r.flags)
    say(
        f"meshmark: {len(entries)} variants of {len({v.kernel for v in entries})} kernels, {flagged} of {len(records)} "
        f"results flagged, {len(absences)} absent, {info.elapsed_s:.0f} s"
    )
    print(folder)


def _own_metrics(path: Path | None) -> Metrics:
    from meshmark.load.calibration.metrics import read_metrics

    return read_metrics(path) if path else {}


def _make(
    scenario: Scenario, out: Path, base_name: str, cpus: tuple[int, ...], rounds: int, trial_s: float
) -> list[tuple[Path, SyntheticProgram, list[ProgramTrial]]]:
    """Synthesise, calibrate and write every program with a target profile; if one is infeasible, no trial runs."""
    from meshmark.load.synthesis import synthesize
    from meshmark.load.synthesis.make import calibrate
    from meshmark.load.synthesis.program import dump_program
    from meshmark.store.files import write_file

    members = [p for p in scenario.programs if p.profile is not None]
    if not members:
        return []
    variants, machine = base_variants(base_name)
    programs = []
    for p in members:
        assert p.profile is not None
        programs.append(synthesize(variants, p.profile, own_metrics=scenario.metrics, machine=machine))
        for note in programs[-1].notes:
            say(f"note: {p.name}: {note}")
    results = []
    for p, program in zip(members, programs, strict=True):
        threads = program.profile.threads
        trial_cpus = cpus[-threads:]  # interrupts and daemons use the first CPUs
        env = {
            "OMP_NUM_THREADS": str(threads),
            **({"OMP_WAIT_POLICY": p.wait_policy} if p.wait_policy else {}),
        }
        calibrated, trials = calibrate(program, trial_s, rounds, trial_cpus, env, progress=say)
        file = out / f"{p.name}.json"
        write_file(file, dump_program(calibrated).encode())
        results.append((file, calibrated, trials))
    return results


@app.command("make")
def make(
    scenario: ScenarioArgument,
    out: Annotated[Path, typer.Option("--out", help="folder to write the programs to")] = Path("programs"),
    base_name: BaseOption = "",
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="file with additional metrics (TOML)", show_default=False)
    ] = None,
    cpus: CpusOption = "",
    rounds: RoundsOption = 2,
    trial: TrialOption = "10s",
    as_json: JsonOption = False,
) -> None:
    """Generate the programs of a scenario.

    example: meshmark load make bus.toml --out programs
    """
    from meshmark.load.scenario.check import check_kernels, check_threads
    from meshmark.load.scenario.scenario import read_scenario

    requested = read_scenario(scenario, _own_metrics(metrics))
    trial_cpus, trial_s = cpus_of(cpus), grammar.seconds("--trial", trial, 0.2, 3600)
    if not any(p.profile for p in requested.programs):
        raise UsageError(
            f"{scenario}: no program has a target profile", "set run_time_s, memory_gb_per_s, … in [[program]]"
        )
    check_kernels(requested)
    check_threads(requested, trial_cpus)
    with interruptible(f"completed programs are in {out}"):
        results = _make(requested, out, base_name, trial_cpus, rounds, trial_s)
    rows = []
    for file, program, trials in results:
        target = program.profile
        last_trial = trials[-1] if trials else None
        for name, value in {"run_time_s": target.run_time_s, **target.metrics}.items():
            planned = program.planned()[name]
            measured = None if last_trial is None or name == "run_time_s" else last_trial.metrics.get(name)
            rows.append(
                {"program": target.name, "metric": name, "asked": value, "planned": planned, "last trial": measured}
            )
        say(
            f"{target.name}: {program.calls} calls of {len(program.kernels)} kernels, "
            f"{plain(program.memory_bytes, 'B')}: {file}"
        )
    if not as_json:
        rows = [
            {
                "requested" if k == "asked" else k: f"{v:.4g}" if isinstance(v, float) else "-" if v is None else v
                for k, v in r.items()
            }
            for r in rows
        ]
    print_rows(rows, as_json)


@app.command("run")
def run(
    scenario: ScenarioArgument,
    out: Annotated[Path | None, typer.Option("--out", help="folder for this run", show_default=False)] = None,
    programs: Annotated[
        Path | None,
        typer.Option("--programs", help="folder with the programs that load make wrote", show_default=False),
    ] = None,
    base_name: BaseOption = "",
    metrics: Annotated[
        Path | None, typer.Option("--metrics", help="file with additional metrics (TOML)", show_default=False)
    ] = None,
    cpus: CpusOption = "",
    rounds: RoundsOption = 2,
    trial: TrialOption = "5s",
    alone: Annotated[bool, typer.Option("--alone", help="also run each program alone and report its slowdown")] = False,
    repetitions: Annotated[
        int,
        typer.Option("--repetitions", min=1, max=100, help="repetitions of every run; intervals with --alone need 4"),
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", help="seed for the order of runs")] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="measure missing calibration data even on a busy machine; they are flagged")
    ] = False,
    watch: WatchOption = False,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a scenario. Reports when each of its co-running programs ran, waited and slept.

    Programs that do not exist yet are generated first. If there are no calibration data, quick ones are measured for
    this. With --alone, each program also runs alone, interleaved with the scenario, and its co-run slowdown is
    reported.

    Exit status: 0 if every program succeeded; 1 if one did not (failed to start, a status other than 0, a wrong result,
    a signal, timeout_s) or the runner was killed; 2 if the scenario is invalid, before anything is measured or started;
    130 after Ctrl-C, and 128 plus the number of any other signal.

    example: meshmark load run bus.toml --out bus
    """
    from meshmark.load.calibration.base import base_run
    from meshmark.load.scenario.check import check_scenario
    from meshmark.load.scenario.placing import HostResources
    from meshmark.load.scenario.run import new_folder, refuse_run_in
    from meshmark.load.scenario.scenario import read_scenario
    from meshmark.machine.facts import host_id

    spec = read_scenario(scenario, _own_metrics(metrics))
    cpu_list = cpus_of(cpus)
    trial_s = grammar.seconds("--trial", trial, 0.2, 3600)
    is_study = alone or repetitions > 1
    if watch and is_study:
        raise UsageError("--watch: found with --alone or --repetitions, allowed only with a single run")
    if programs is not None and not programs.is_dir():
        raise UsageError(
            f"--programs: found {quoted(programs)}, which is not a folder", "meshmark load make creates one"
        )
    if base_name:
        base_run(data_home() / "runs", host_id(), base_name)  # raises if there is no such run
    folder = out or new_folder(data_home() / ("studies" if is_study else "load"))
    if not is_study:
        refuse_run_in(folder)
    resources = HostResources(cpu_list, HostResources.now().memory_bytes)
    files, missing = _files(spec, programs or folder / "programs")
    check_scenario(spec, resources, files)
    store_folder = None if no_store else store or default_store()
    if missing:
        target = programs or folder / "programs"
        _take_base(base_name, force, store)
        trials = f"up to {rounds} trials of {trial_s:g} s for each" if rounds else "without trials"
        say(f"meshmark: programs to generate in {target}: {len(missing)}, {trials}")
        with interruptible(f"completed programs are in {target}; the same command with --programs {target} uses them"):
            files |= _made(spec, missing, target, base_name, cpu_list, rounds, trial_s)
    if is_study:
        _compared(spec, folder, files, resources, alone, repetitions, seed, as_json, store_folder)
    else:
        _single(spec, folder, files, resources, watch, as_json, store_folder)


def _after(folder: Path) -> str:
    """Return the state of an interrupted run as text."""
    from meshmark.load.scenario.journal import JOURNAL

    if (folder / JOURNAL).exists():
        return f"the partial run is kept: meshmark load show {folder}; to run it again, choose another --out"
    return f"no program has run; the same command with --out {folder} uses the builds that are complete"


def _single(
    scenario: Scenario,
    folder: Path,
    files: Mapping[str, Path],
    here: HostResources,
    watch: bool,
    as_json: bool,
    kept: Path | None,
) -> None:
    """Run a scenario once, and print and store the result; a failure is reported last.

    Raises:
        MeshmarkError: A program failed, or the run was interrupted.
    """
    from meshmark.load.scenario.result import failures_text
    from meshmark.load.scenario.run import RunCutError, expected_end_s, run_scenario

    try:
        with (
            interruptible(lambda: _after(folder)),
            watched(folder, watch),
            LoadProgress(scenario, expected_end_s(scenario, files)) as live,
        ):
            result = run_scenario(scenario, folder, files, live.take, here=here, tick=live.draw, notify=say)
    except RunCutError as error:
        with contextlib.suppress(MeshmarkError):  # such as the full disk that interrupted the run
            _show(error.run, as_json, kept)
        raise
    _show(result, as_json, kept)
    if failures := failures_text(result):
        raise MeshmarkError(failures, f"their output is in {folder / 'output'}")


def _compared(
    scenario: Scenario,
    folder: Path,
    files: Mapping[str, Path],
    here: HostResources,
    alone: bool,
    repetitions: int,
    seed: int,
    as_json: bool,
    kept: Path | None,
) -> None:
    """Run a scenario repeatedly, and print and store the results.

    Raises:
        MeshmarkError: Some runs are invalid, or the study was interrupted.
    """
    from meshmark.cli.load.study import end, resumable
    from meshmark.load.scenario.journal import read_run
    from meshmark.load.studies.alone import ScenarioStudy
    from meshmark.load.studies.study import StudyOptions

    options = StudyOptions(repetitions=repetitions, seed=seed, notify=say)
    with resumable(folder):
        result = ScenarioStudy(folder, scenario=scenario, files=files, alone=alone, here=here, options=options).run()
    if result.median_run is not None:
        _show(read_run(result.median_run), as_json, kept)
    end(result, as_json, kept)


def _files(scenario: Scenario, folder: Path) -> tuple[dict[str, Path], list[ScenarioProgram]]:
    """Return the files of the generated programs in the folder, and the programs that are missing.

    Raises:
        UsageError: A file in the folder was generated for another target profile.
    """
    from meshmark.load.scenario.placing import compared
    from meshmark.load.scenario.scenario import about_program

    files: dict[str, Path] = {}
    missing = []
    for p in scenario.programs:
        if p.profile is None:
            continue
        file = folder / f"{p.name}.json"
        if not os.path.lexists(file):
            missing.append(p)
            continue
        with about_program(p.name):
            difference, notes = compared(file, p.profile)
        if difference:
            raise UsageError(
                f"program {p.name}: {file} was generated for {difference}",
                "run meshmark load make again, or name another folder with --programs",
            )
        files[p.name] = file
        for note in notes:
            say(f"note: {p.name}: {note}")
    return files, missing


def _take_base(base_name: str, force: bool, store: Path | None) -> None:
    """Measure quick calibration data if this machine has none; an interrupted quick run is resumed.

    Raises:
        MeshmarkError: The machine is busy.
    """
    from meshmark.load.calibration.base import SPECS, base_run, base_runs
    from meshmark.machine.facts import host_id

    runs, machine = data_home() / "runs", host_id()
    if base_name or base_run(runs, machine) is not None:
        return
    newest = next(iter(base_runs(runs, machine)), None)
    resumes = newest is not None and newest.spec == SPECS[True]
    say(
        "meshmark: this machine has no calibration data; "
        + ("resuming the interrupted quick ones" if resumes else "measuring quick ones first, once, about 2 minutes")
    )
    base(quick=True, resume=resumes, force=force, store=store)


def _made(
    scenario: Scenario,
    missing: list[ScenarioProgram],
    folder: Path,
    base_name: str,
    cpus: tuple[int, ...],
    rounds: int,
    trial_s: float,
) -> dict[str, Path]:
    """Generate the missing programs and return their files by name."""
    from dataclasses import replace

    todo = replace(scenario, programs=tuple(missing))
    return {p.profile.name: f for f, p, _ in _make(todo, folder, base_name, cpus, rounds, trial_s)}


@app.command("show")
def show(
    folder: Annotated[str, typer.Argument(help="folder or name of a run, or latest")] = "latest",
    recording: Annotated[
        Path | None,
        typer.Option(
            "--recording", help="recording of the machine during the run [the recording of --watch]", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run as a Gantt chart with totals. With a recording, also shows the use of the machine.

    example: meshmark load show latest
    """
    from meshmark.load.scenario.journal import read_run

    _show(read_run(run_folder(folder)), as_json, None, recording)


def run_folder(name: str) -> Path:
    """Return the folder of a run. The name is a folder, the name of a run of the user, or `latest`.

    Raises:
        UsageError: The run does not exist.
    """
    from meshmark.load.scenario.journal import JOURNAL

    home = data_home() / "load"
    if name == "latest":
        runs = [p for p in home.glob("*") if (p / JOURNAL).exists()]
        if not runs:
            raise UsageError("found no run", "start one with meshmark load run SCENARIO")
        return max(runs, key=lambda p: (p / JOURNAL).stat().st_mtime)
    for folder in (Path(name), home / name):
        if (folder / JOURNAL).exists():
            return folder
    raise UsageError(f"found no run in {name}", "start one with meshmark load run SCENARIO --out FOLDER")


@app.command("compare")
def compare(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="run as for load show, or a folder of repeated runs")],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="likewise")],
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="write a page with both charts on one time axis", show_default=False, callback=in_folder
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs, program by program. Also lists the conditions that differ.

    example: meshmark load compare quiet busy --html both.html
    """
    from meshmark.load.compare import compare as compared
    from meshmark.load.compare import read_side
    from meshmark.store.files import write_text
    from meshmark.views.pages.load_compare import compare_html
    from meshmark.views.terminal.load_compare import print_load_comparison

    folders = [Path(x) if Path(x).is_dir() and x != "latest" else run_folder(x) for x in (first, second)]
    same_name = folders[0].resolve().name == folders[1].resolve().name
    sides = [read_side(f, str(f) if same_name else f.resolve().name) for f in folders]
    comparison = compared(*sides)
    if html is not None:
        write_text(html, compare_html(comparison))
    if as_json:
        print(json.dumps(comparison.to_json()))
        return
    print_load_comparison(comparison)
    if html is not None:
        print(html)


def _show(result: Any, as_json: bool, store: Path | None, recording: Path | None = None) -> None:
    from meshmark.load.scenario.lanes import figure_lines, plan_lines
    from meshmark.load.scenario.recorded import machine_use, recorded_use, recording_in
    from meshmark.load.scenario.records import records_of
    from meshmark.load.scenario.result import canary_text
    from meshmark.views.gantt import write_gantt
    from meshmark.views.terminal.gantt import gantt_text

    records, absences = records_of(result)
    if store is not None and records:
        from meshmark.machine.boot import keep
        from meshmark.store.store import Store, run_name

        keep(Store(store), run_name("load"), "load", records, absences)
    if recording is not None:
        paths = write_gantt(result, result.folder, machine_use(result, recording))
    else:
        machine, reason = recorded_use(result, recording_in(result.folder))
        if reason:
            say(f"warning: {reason}")
        paths = write_gantt(result, result.folder, machine)
    if as_json:
        for record in records:
            print(json.dumps(record.to_json()))
        return
    width = os.get_terminal_size().columns if sys.stdout.isatty() else 110
    print(gantt_text(result, width), end="")
    for line in (*plan_lines(result), *figure_lines(result)):
        print(line)
    if canary_note := canary_text(result):
        print(canary_note)
    for absence in absences:
        say(f"absent: {absence.reason}")
    print(paths[0])
