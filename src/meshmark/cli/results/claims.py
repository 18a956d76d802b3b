"""`meshmark claims`: tests published claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.completion import claim_ids, claim_machines, claim_themes
from meshmark.cli.console import interruptible, say, say_broken
from meshmark.cli.options import JsonOption, StoreOption, in_folder, must_exist, time_option
from meshmark.errors import UsageError
from meshmark.values.paths import default_store

if TYPE_CHECKING:
    from meshmark.store.store import Store
    from meshmark.validation.claims.judging import ClaimVerdict
    from meshmark.validation.claims.run import ClaimsRequest


def register(app: typer.Typer) -> None:
    """Add the command `claims`."""
    app.command("claims")(claims)


def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="claims, such as H05 [all]", autocompletion=claim_ids),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="only tests on host, guest (what a guest can support), computed, or a modelled machine",
            autocompletion=claim_machines,
        ),
    ] = "",
    theme: Annotated[str, typer.Option("--theme", help="only claims of this theme", autocompletion=claim_themes)] = "",
    budget: Annotated[
        float, time_option("--budget", "sampling time of each test on the host", 0.05, 3600.0, "5s")
    ] = 5.0,
    listed: Annotated[bool, typer.Option("--list", help="list claims and their newest verdicts; test nothing")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="resume the last interrupted run")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="write a page for each claim to this folder",
            show_default=False,
            file_okay=False,
            callback=in_folder,
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Test published claims about machines: on this host, on models, and by computation from printed numbers.

    Each test stores its evidence and a verdict: holds, does not hold, inconclusive, or cannot be tested here.

    example: meshmark claims H05 H09 --on host --budget 10s
    """
    from meshmark.store.store import Store
    from meshmark.validation.claims.catalogue import chosen
    from meshmark.validation.claims.run import ClaimsRequest, as_dict, history, latest
    from meshmark.validation.claims_text import print_list, print_verdicts

    if listed and store is not None:
        must_exist("--store", store)
    folder = store or default_store()
    request = ClaimsRequest(tuple(ids or ()), theme, on, budget)
    results: list[ClaimVerdict] = []
    if resume and (ids or theme or on or listed):
        raise UsageError("--resume: found with other options; allowed: --html, --store and --json")
    if listed or not resume:
        trials = request.trials()  # rejects unknown names before anything is measured
    if not listed:
        results = _run(Store(folder), request, resume)
    results_store = Store(folder)
    verdict_history = history(results_store)
    say_broken(results_store)
    if listed:
        claims_ = list({c.id: c for c, _, _ in trials}.values())
        for c in claims_ if as_json else ():
            verdicts = [v.to_json() for v in latest(verdict_history.get(c.id, ()))]
            print(json.dumps({**as_dict(c), "verdicts": verdicts}))
        if not as_json:
            print_list(claims_, verdict_history)
    elif as_json:
        for v in results:
            print(json.dumps(v.to_json()))
    else:
        print_verdicts({c.id: c for c in chosen(())}, results)
    if html is not None:
        from meshmark.validation.claims_page import write_pages

        count = write_pages(html, chosen(ids or (), theme), verdict_history, results_store)
        say(f"meshmark: wrote {count} pages to {html}: open {html / 'index.html'}")


def _run(store: Store, request: ClaimsRequest, resume: bool) -> list[ClaimVerdict]:
    """Run the tests of a request, or the remaining tests of an interrupted run; an interruption keeps the results."""
    from meshmark.validation.claims.bench import Bench
    from meshmark.validation.claims.run import begun, resumed, run_tests

    store_option = "" if store.folder == default_store() else f" --store {store.folder}"
    with ExitStack() as stack:
        if resume:
            run, folder, request = stack.enter_context(resumed(store))
            say(f"meshmark: resuming {run}")
        else:
            run, folder = stack.enter_context(begun(store, request))
        stack.enter_context(
            interruptible(f"completed tests are kept; resume with meshmark claims --resume{store_option}")
        )
        bench = Bench(store, run, folder, request.budget_s)
        return run_tests(bench, request, _progress())


def _progress() -> Callable[[int, int, str], None]:
    """Return a function that shows progress: a single line on a terminal, otherwise a line every ten seconds."""
    import time

    last = time.monotonic()
    on_terminal = sys.stderr.isatty()

    def report(done: int, total: int, step: str) -> None:
        nonlocal last
        if on_terminal:
            print(f"\r\x1b[K{done + 1} of {total}: {step}", end="", file=sys.stderr, flush=True)
            if done + 1 == total:
                print(file=sys.stderr)
        elif time.monotonic() - last > 10:
            last = time.monotonic()
            say(f"claims: {done} of {total} tests done, next {step}")

    return report
