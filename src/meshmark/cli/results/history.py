"""`meshmark history`: shows how the results of a machine changed over time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from meshmark.cli.completion import Suggestions, beginning
from meshmark.cli.console import say, say_broken, say_undrawn
from meshmark.cli.options import InstrumentOption, JsonOption, MetricOption, StoreToReadOption, in_folder, share
from meshmark.cli.results.gate import AllowUnjudgedOption, MinJudgedOption, check_results, check_used
from meshmark.errors import AbsentError, MeshmarkError, UsageError, near, quoted
from meshmark.values.paths import default_store

if TYPE_CHECKING:
    from meshmark.compare.history import History
    from meshmark.store.store import Store


def register(app: typer.Typer) -> None:
    """Add the command `history`."""
    app.command("history")(history)


def _recorded(incomplete: str) -> Suggestions:
    """Return the machines of the default store that begin with the typed text."""
    from meshmark.store.store import Store

    folder = default_store()
    try:
        rows = Store(folder).runs() if folder.is_dir() else []
    except (MeshmarkError, OSError):
        return []
    return beginning(dict.fromkeys(["host", *(str(row["machine"]) for row in rows)]), incomplete)


def age(name: str, text: str) -> float:
    """Return a time such as `30d` or `12h` in seconds. Other options do not accept days: no measurement takes a day.

    Raises:
        UsageError: The text is not a time.
    """
    from meshmark.values.grammar import seconds

    if days := re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)d", text):
        return 86400 * float(days[1])
    try:
        return seconds(name, text)
    except UsageError as error:
        raise UsageError(f"{name}: found '{quoted(text)}'; allowed: a time such as 30d, 12h or 5m") from error


def history(
    host: Annotated[
        str,
        typer.Argument(metavar="[HOST]", help="host, or a machine of the store", autocompletion=_recorded),
    ] = "host",
    instrument: InstrumentOption = "",
    metric: MetricOption = "",
    since: Annotated[str, typer.Option("--since", help="only runs from this time on", metavar="DATE")] = "",
    until: Annotated[str, typer.Option("--until", help="only runs up to this time", metavar="DATE")] = "",
    stale: Annotated[
        str, typer.Option("--stale", help="mark instruments whose newest result is older than this", metavar="TIME")
    ] = "30d",
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            help="exit with status 1 if the last change of a point made it worse by more than this",
            metavar="PERCENT",
            show_default=False,
        ),
    ] = "",
    min_judged: MinJudgedOption = 1,
    allow_unjudged: AllowUnjudgedOption = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="write a page with a chart of each changed point", show_default=False, callback=in_folder
        ),
    ] = None,
    store: StoreToReadOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show when the results of a machine changed, what else changed then, and which results are old.

    example: meshmark history --since 2026-10 --html history.html
    """
    from datetime import UTC, datetime

    from meshmark.compare.history import history as found_in
    from meshmark.compare.history import to_json
    from meshmark.machine.facts import host_id
    from meshmark.store.export import check_date
    from meshmark.store.store import Store
    from meshmark.views.terminal.history import print_history

    check_used(fail_on, min_judged, allow_unjudged)
    limit = share("--fail-on", fail_on) if fail_on else None
    stale_s = age("--stale", stale)
    for name, date in (("--since", since), ("--until", until)):
        check_date(name, date)
    archive = Store(store or default_store())
    machine = host_id() if host == "host" else host
    now = datetime.now(UTC)
    machine_history = found_in(archive, machine, now, instrument=instrument, metric=metric, since=since, until=until)
    say_broken(archive)
    if machine_history is None or not machine_history.points:
        _nothing(archive, machine, host, machine_history is not None, instrument or metric)
    assert machine_history is not None
    if machine_history.clock:
        say(f"warning: {machine_history.clock}")
    if as_json:
        for line in to_json(machine_history, now, stale_s):
            print(json.dumps(line))
    else:
        print_history(machine_history, now, stale_s)
    if html is not None:
        from meshmark.store.files import write_text
        from meshmark.views.charts.drawing import last_undrawn
        from meshmark.views.pages.history import history_page

        page = history_page(machine_history, now, stale_s)
        write_text(html, page)
        say(f"meshmark: wrote {html}")
        say_undrawn(last_undrawn())
    if limit is not None:
        _gate(machine_history, limit, fail_on, min_judged, allow_unjudged)


def _nothing(store: Store, machine: str, host: str, other: bool, selected: str) -> None:
    """Raise the error of a history without points.

    Args:
        store: Store without matching results.
        machine: Id of the machine.
        host: HOST as typed.
        other: Whether the machine has results from another time or without a start.
        selected: The instrument or the metric; "" for all.
    """
    known_machines = {str(row["machine"]) for row in store.runs()}
    if host != "host" and machine not in known_machines:
        hint = near(machine, {"host", *known_machines}) or "meshmark store machines"
        raise UsageError(f"HOST: found no machine '{quoted(machine)}' in the store", hint)
    message = f"history: found no result of {quoted(machine)}"
    if machine not in known_machines:
        raise AbsentError(message, "meshmark survey --quick")
    if other:
        raise AbsentError(f"{message} with a start between --since and --until", "meshmark store list")
    raise AbsentError(f"{message} that matches '{quoted(selected)}'", "meshmark list metrics")


def _gate(history: History, limit: float, text: str, min_judged: int, allow_unjudged: bool) -> None:
    """Raise if the last change of a point made it worse by more than the limit, or if too few could be judged."""
    worse = [
        f"{history.machine}: {c.record.instrument} {c.record.metric} is {c.ratio.value:.3g} of what it was before "
        f"{c.between[1].start[:10]}"
        for c in sorted(history.worse(limit), key=lambda c: c.between[1].start, reverse=True)
    ]
    judged_count = sum(p.status in {"changed", "steady"} for p in history.points)
    other_counts = [f"{status} ({n})" for status, n in history.counts().items() if status not in {"changed", "steady"}]
    flags = [f"flagged results left out ({history.flagged})"] if history.flagged else []
    counts = (judged_count, len(history.points), "points")
    check_results("history", counts, worse, text, min_judged, allow_unjudged, ", ".join([*other_counts, *flags]))
