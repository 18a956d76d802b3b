"""`meshmark advise`: find the best placement of a program by running it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meshmark.cli.console import interruptible, print_rows, say
from meshmark.cli.options import ApplicationOption, NoStoreOption, StoreOption
from meshmark.errors import UsageError
from meshmark.statistics.verdicts import times_text
from meshmark.store.files import writing_problem
from meshmark.values import grammar
from meshmark.values.expressions import expression
from meshmark.values.paths import data_home, default_store
from meshmark.values.secrets import hide_words, mask_words
from meshmark.values.units import plain

if TYPE_CHECKING:
    from meshmark.experiments.advice import Advice
    from meshmark.experiments.trial import CandidateRunner
    from meshmark.place.candidates import AdvicePlan, PlacementResources


FomOption = Annotated[
    str,
    typer.Option(
        "--fom",
        help="figure of merit: the last match of this regular expression in the output, or its first group "
        "[elapsed time]",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command `advise`, whose options end where the command of the user begins."""
    app.command("advise", context_settings={"allow_interspersed_args": False})(advise)


def advise(
    command: Annotated[list[str] | None, typer.Argument(help="command and its arguments, after --")] = None,
    application: ApplicationOption = "",
    budget: Annotated[str, typer.Option("--budget", help="time limit [10m]", show_default=False)] = "",
    fom: FomOption = "",
    higher: Annotated[bool, typer.Option("--higher/--lower", help="whether higher figures are better")] = True,
    policies: Annotated[
        str,
        typer.Option(
            "--policies", help="policies of meshmark run --bind; separate policies that contain commas by semicolons"
        ),
    ] = "none,balance,pack,compact,scatter",
    threads: Annotated[
        str,
        typer.Option("--threads", help="values of OMP_NUM_THREADS, for example 1,2,4 [unchanged]", show_default=False),
    ] = "",
    memory: Annotated[
        str,
        typer.Option("--memory", help="values of meshmark run --memory [default,interleave,bind]", show_default=False),
    ] = "",
    pages: Annotated[
        str, typer.Option("--pages", help="values of meshmark run --pages [default,thp]", show_default=False)
    ] = "",
    wait: Annotated[
        str, typer.Option("--wait-policy", help="values of OMP_WAIT_POLICY: default,active,passive")
    ] = "default",
    smt: Annotated[
        str, typer.Option("--smt", help="hardware threads of a core: off,on [both]", show_default=False)
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="seed for the order of runs")] = 1,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="resume the advice in this folder", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="folder for plan, journal and result", show_default=False)
    ] = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one record per line, then the result")] = False,
) -> None:
    """Find the best placement for a program by running it.

    example: meshmark advise --budget 10m --policies balance,pack -- ./a.out
    """
    from meshmark.experiments.advise import advise as run_advice
    from meshmark.experiments.advise import make_plan
    from meshmark.place.candidates import WAIT_POLICIES, AdvicePlan, SearchSpace
    from meshmark.place.native import vocabulary
    from meshmark.store.session import check_same, held
    from meshmark.store.store import run_name

    budget_s = grammar.seconds("--budget", budget or "10m", low=0.01)
    if resume is not None and out is not None:
        raise UsageError("--resume: found with --out; allowed: one of them")
    run = run_name("advise")
    folder = resume or out or data_home() / "runs" / run
    plan = AdvicePlan.load(folder / "plan.json") if resume is not None else None
    if plan is not None:
        if command := hide_words(command or ()):
            recorded, requested = ({"COMMAND": shlex.join(words)} for words in (plan.command, command))
            check_same(folder, "an advice", recorded, requested, f"meshmark advise --resume {folder}")
        command, fom, higher = plan.command, "" if plan.application else plan.figure, plan.higher
        application = plan.application
    else:
        _no_advice_in(folder)
    _check_advice(fom, folder)
    resources, node_of = _resources()
    runner, command = _runner(folder, application, command or [], fom, higher, node_of)
    fom, higher = runner.figure.pattern if runner.figure else "", runner.higher
    start_time, start_s = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
    with held(folder, resumed=resume is not None):
        if plan is None:
            _no_advice_in(folder)  # another process may have started in this folder in the meantime
            space = SearchSpace(
                _listed("--policies", policies, vocabulary().policies),
                _counts(threads),
                _listed("--memory", memory, vocabulary().memory),
                _listed("--pages", pages, vocabulary().pages),
                _listed("--wait-policy", wait, WAIT_POLICIES),
                tuple(w == "on" for w in _listed("--smt", smt, ("off", "on"))),
            )
            _announce(command, resources)
            plan = make_plan(command, space, resources, runner, budget_s=budget_s, seed=seed, figure=fom, higher=higher)
            plan.run, plan.application = run, application
            _save_new(plan, folder)
        elif budget:
            plan.budget_s = budget_s
            plan.save(folder / "plan.json")
        state = f"completed runs are kept; resume with meshmark advise --resume {shlex.quote(str(folder))}"
        with interruptible(state):
            advice = run_advice(plan, folder, runner, say)
    answer = _keep_advice(advice, plan.run, start_time, folder, as_json, store, no_store)
    say(f"{answer['runs']} runs, {time.monotonic() - start_s:.0f} s: {folder}")


def _runner(
    folder: Path, application: str, command: list[str], fom: str, higher: bool, node_of: dict[int, int]
) -> tuple[CandidateRunner, list[str]]:
    """Return the runner of the command, or of the first configuration of an application, and the command."""
    command = hide_words(command)
    from meshmark.applications.application import application_file, read_application
    from meshmark.applications.single import single
    from meshmark.experiments.trial import CandidateRunner

    if not application:
        if not command:
            raise UsageError("COMMAND: missing; allowed: a command after --, or --app", "meshmark advise -- ./a.out")
        return CandidateRunner(folder, command, fom, higher, node_of), command
    app = read_application(application_file(application))
    if fom:
        raise UsageError("--fom: found with --app, whose file has the figure of merit")
    command, context = single(app, folder / "application", say)
    figure = app.figure
    return CandidateRunner(folder, command, figure.pattern, figure.better == "higher", node_of, context), command


def _announce(command: list[str], resources: PlacementResources) -> None:
    if str(resources.inherited):
        say(f"the baseline runs with {resources.inherited}, inherited by this process")
    say(f"warm-up: {shlex.join(command)}")


def _save_new(plan: AdvicePlan, folder: Path) -> None:
    plan.save(folder / "plan.json")
    skipped = len(plan.left_out)
    say(f"{len(plan.candidates)} candidates, {skipped} skipped, {plan.pilot_s:.3g} s per run: {folder}")


def _keep_advice(
    advice: Advice, run: str, started: str, folder: Path, as_json: bool, store: Path | None, no_store: bool
) -> dict[str, Any]:
    """Write the result to the folder and its records to the store, and print both."""
    from importlib.metadata import version as installed

    from meshmark.experiments.advice import lines, records, to_json
    from meshmark.machine.boot import keep
    from meshmark.machine.facts import host_id
    from meshmark.store.files import write_json
    from meshmark.store.store import Store

    result_records = records(
        advice, host_id(), shlex.join(mask_words(["advise", *sys.argv[2:]])), started, installed("meshmark")
    )
    answer = to_json(advice, lines(advice))
    write_json(folder / "answer.json", answer)
    if not no_store and result_records:
        keep(Store(store or default_store()), run, "advise", result_records)
    if as_json:
        for record in result_records:
            print(json.dumps({"type": "result", "schema": 1, **record.to_json()}))
        print(json.dumps(answer))
    else:
        _print_advice(advice, answer)
    return answer


def _check_advice(fom: str, folder: Path) -> None:
    """Raise UsageError if the regular expression is invalid or the folder cannot be created."""
    expression("--fom", fom)
    if problem := writing_problem(folder / "plan.json"):
        raise UsageError(f"--out: cannot create {folder}: {problem}", "name a writable folder")


def _no_advice_in(folder: Path) -> None:
    if (folder / "plan.json").exists():
        raise UsageError(f"--out: {folder} contains a run of advise", f"meshmark advise --resume {folder}")


def _resources() -> tuple[PlacementResources, dict[int, int]]:
    from meshmark.machine.sources import from_sysfs
    from meshmark.machine.tree import FileTree, chosen, format_list
    from meshmark.place.candidates import InheritedPlacement, PlacementResources, inherited_memory

    topology = from_sysfs()
    allowed = set(topology.allowed_cpus)
    per_core = max((len(allowed & set(c.cpus)) for c in topology.cores), default=1)
    mode = chosen(FileTree(Path("/")).text("sys/kernel/mm/transparent_hugepage/enabled"))
    nodes = {n.os_index for n in topology.nodes if n.memory_bytes != 0}
    node_of = {c.os_index: c.node for c in topology.cpus if c.node is not None}
    inherited = InheritedPlacement(
        format_list(sorted(allowed)) if len(allowed) < len(topology.cpus) else "",
        inherited_memory(FileTree(Path("/")).text("proc/self/numa_maps") or ""),
    )
    memory_node_of = {cpu: node for cpu, node in node_of.items() if node in nodes}
    return PlacementResources(
        len(allowed), max(1, per_core), len(nodes), mode or "", inherited, memory_node_of
    ), node_of


def _listed(option: str, text: str, allowed: Collection[str]) -> tuple[str, ...]:
    """Return the items of a list; the name of each item, up to `=` or a comma, must be allowed."""
    words = tuple(dict.fromkeys(w.strip() for w in text.split(";" if ";" in text else ",") if w.strip()))
    for word in words:
        if re.split("[=,]", word)[0] not in allowed:
            raise UsageError(f"{option}: found '{word}'; allowed: {', '.join(allowed)}")
    return words


def _counts(text: str) -> tuple[int, ...]:
    return tuple(grammar.integers("--threads", text, 1 << 16)) if text else ()


def _print_advice(advice: Advice, answer: dict[str, Any]) -> None:
    from meshmark.experiments.advice import spread, values_of

    plan, verdict = advice.plan, advice.verdict
    unit = "" if plan.figure else "s"
    lower_is_better = not (plan.figure and plan.higher)

    def shown(value: float) -> str:
        return plain(value, unit) if unit else f"{value:.5g}"

    rows = []
    for candidate in plan.candidates:
        values = values_of(advice, candidate.name)
        summary = spread(values, lower_is_better) if values else None
        state = (
            "chosen"
            if candidate.name == verdict.choice
            else "failed"
            if candidate.name in advice.failed and not values
            else verdict.standings[candidate.name].word
            if candidate.name in verdict.standings
            else "not compared"
            if values
            else "not tried"
        )
        rows.append(
            (
                summary["mean"] if summary else 0.0,
                {
                    "candidate": candidate.name,
                    "runs": len(values),
                    "mean": shown(summary["mean"]) if summary else "–",
                    "CoV": f"{100 * summary['cov']:.1f} %" if summary and len(values) > 1 else "–",
                    "best": shown(summary["best"]) if summary else "–",
                    "worst": shown(summary["worst"]) if summary else "–",
                    "": state,
                },
            )
        )
    rows.sort(key=lambda r: (r[1]["runs"] == 0, r[0] if lower_is_better else -r[0]))
    print_rows([r for _, r in rows], False)
    print(f"\n{sentence(advice, answer)}")
    if answer["disturbance"]:
        print(f"{answer['disturbance']}: the answer holds only beside such work; repeat it on a quiet machine")
    if str(plan.inherited):
        print(f"baseline: {plan.inherited}, inherited")
    baseline, best = answer["before"], answer["after"]
    if baseline and best:
        print(
            f"spread: CoV {100 * baseline['cov']:.1f} % baseline, {100 * best['cov']:.1f} % with {verdict.best}; "
            f"best vs. best {100 * answer['best_vs_best']:+.1f} %, worst vs. worst "
            f"{100 * answer['worst_vs_worst']:+.1f} % (+ is better)"
        )
    for title, lines in (
        ("why", answer["why"]),
        ("placement not enforced", answer["not_held"]),
        ("failed", [f"{k}: {v}" for k, v in answer["failed"].items()]),
        ("skipped", [f"{k}: {v}" for k, v in answer["left_out"].items()]),
    ):
        if lines:
            print(f"\n{title}")
            for line in lines:
                print(f"  {line}")
    print("\nequivalent commands")
    for form, line in answer["lines"].items():
        print(f"  {form}\n    {line}")
    reasons: dict[str, list[str]] = {}
    for form, reason in answer["lines_left_out"].items():
        reasons.setdefault(reason, []).append(form)
    for reason, forms in reasons.items():
        print(f"  not for {', '.join(forms)}: {reason}")


def sentence(advice: Advice, answer: dict[str, Any]) -> str:
    """Return the result in one sentence, with its evidence."""
    verdict, gain = advice.verdict, ""
    if verdict.ratio is not None:  # ratio of the costs, candidate over baseline
        bounds = (1 / verdict.interval[1], 1 / verdict.interval[0]) if verdict.interval else None
        quality = "good" if advice.plan.figure else "fast"
        gain = f"{times_text(1 / verdict.ratio, bounds, 'the baseline', quality)}, {verdict.pairs} pairs"
    if verdict.word == "better":
        return f"best: {verdict.choice}: {gain} ({verdict.stopped})"
    limit = f"{100 * verdict.effect:.1f} %" if answer["minimum_effect"] is not None else "a measurable size"
    if verdict.word == "no gain":
        best_text = f": {verdict.best} {gain}" if verdict.best else ""
        return f"no gain of {limit} or more{best_text} ({verdict.stopped}): keep the default placement"
    interim = f": {verdict.best} {gain}" if gain else ""
    return (
        f"inconclusive ({verdict.stopped}){interim}; smallest difference that counts: {limit}: keep the default "
        "placement, or repeat with a larger --budget"
    )
